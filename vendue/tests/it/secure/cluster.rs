//! The cluster of these tests: an auctioneer, two cells, and an identity of each other role.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use async_nats::{Client, ConnectOptions, Event, ServerError};
use tempfile::TempDir;
use testkit::NatsServer;

use crate::{
    common::{Finished, end, until, vendue},
    roles::Role,
};

/// The identities.
const IDENTITIES: [&[&str]; 10] = [
    &["add-auctioneer", "auc-0"],
    &["add-cell", "cell-a", "cell-b"],
    &["add-manager", "mgr-0"],
    &["add-bridge", "dea", "--slots", "2"],
    &["add-facade", "out", "--cells", "cell-a"],
    &["add-user", "alice", "bob"],
    &["add-user", "op", "--role", "operator"],
    &["add-user", "obs", "--role", "observer"],
    &["add-user", "met", "--role", "metrics"],
    &["add-user", "rec", "--role", "recorder"],
];

pub(super) struct Secure {
    pub(super) server: NatsServer,
    pub(super) dir: PathBuf,
    _files: TempDir,
}

/// Runs `vendue auth` in a directory.
pub(super) fn auth(dir: &Path, args: &[&str]) -> Finished {
    let mut command = vendue();
    command.arg("auth").args(args).arg("--dir").arg(dir);
    end(&mut command)
}

impl Secure {
    /// Starts a server with JetStream and the generated permissions, without any programs.
    pub(super) async fn server() -> Self {
        let files = tempfile::tempdir().unwrap();
        let dir = files.path().join("auth");
        auth(&dir, &["init"]).expect(0, &["vendue-auth.conf"]);
        for args in IDENTITIES {
            auth(&dir, args).expect(0, &[args[1]]);
        }
        // included by name, so that a restart reads it again; a server resolves every path relative to the directory of
        // its own file
        let up = "../".repeat(10);
        let config = format!(
            "jetstream {{ store_dir: \"{}\" }}\ninclude \"{up}{}\"\n",
            files.path().join("js").display(),
            dir.join("vendue-auth.conf").display()
        );
        Self {
            server: NatsServer::with_config(&config).await,
            dir,
            _files: files,
        }
    }

    /// Starts a server with the auctioneer and both cells.
    pub(super) async fn cluster() -> (Self, Vec<Role>) {
        let secure = Self::server().await;
        let roles = vec![
            secure.auctioneer(),
            secure.rep("cell-a"),
            secure.rep("cell-b"),
        ];
        secure.healthy(2).await;
        (secure, roles)
    }

    pub(super) fn auctioneer(&self) -> Role {
        Role::start(&mut self.command("auc-0", &["auctioneer"]))
    }

    pub(super) fn rep(&self, cell: &str) -> Role {
        let args = ["rep", "--cell", cell, "--memory", "256", "--grace", "1s"];
        Role::start(&mut self.command(cell, &args))
    }

    /// Returns a manager whose first connection uses the account of the cluster.
    pub(super) fn manager(&self, name: &str) -> Command {
        let mut command = self.command(name, &["manager"]);
        command.env("VENDUE_STATE_NKEY", self.key(&format!("{name}-state")));
        command
    }

    pub(super) async fn healthy(&self, cells: usize) {
        until("the cells to be known", || {
            let said = self.run("alice", &["cells", "--output", "json"]);
            let known = said.out.matches("\"incarnation\"").count();
            (known == cells).then_some(()).ok_or(format!("{said:?}"))
        })
        .await;
    }

    pub(super) fn key(&self, who: &str) -> PathBuf {
        self.dir.join("keys").join(format!("{who}.nk"))
    }

    /// Returns the program with somebody's key.
    pub(super) fn command(&self, who: &str, args: &[&str]) -> Command {
        let mut command = vendue();
        command
            .args(args)
            .env("NATS_URL", self.server.url())
            .env("NATS_NKEY", self.key(who));
        command
    }

    pub(super) fn run(&self, who: &str, args: &[&str]) -> Finished {
        end(&mut self.command(who, args))
    }

    /// Returns a client that can try anything.
    pub(super) async fn raw(&self, who: &str) -> Raw {
        self.raw_on(&self.server, who).await
    }

    /// Returns the same on another server that knows our keys.
    pub(super) async fn raw_on(&self, server: &NatsServer, who: &str) -> Raw {
        let seed = std::fs::read_to_string(self.key(who)).unwrap();
        let refused = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&refused);
        let options = ConnectOptions::with_nkey(seed.trim().to_owned())
            .custom_inbox_prefix(format!("_INBOX.{who}"))
            .event_callback(move |event| {
                if let Event::ServerError(ServerError::Other(text)) = event {
                    heard.lock().unwrap().push(text);
                }
                std::future::ready(())
            });
        let client = options.connect(server.url()).await.unwrap();
        Raw { client, refused }
    }
}

/// A connection, and what the server refused.
pub(super) struct Raw {
    pub(super) client: Client,
    refused: Arc<Mutex<Vec<String>>>,
}

impl Raw {
    /// Returns whether the server has refused this subject, with this queue group if one is given.
    pub(super) fn was_refused(&self, verb: &str, subject: &str, queue: Option<&str>) -> bool {
        let refused = self.refused.lock().unwrap();
        refused.iter().any(|text| {
            let lower = text.to_lowercase();
            lower.contains(&format!("permissions violation for {verb}"))
                && text.contains(&format!("\"{subject}\""))
                && queue.is_none_or(|queue| text.contains(&format!("\"{queue}\"")))
        })
    }

    pub(super) fn refusals(&self) -> Vec<String> {
        self.refused.lock().unwrap().clone()
    }
}
