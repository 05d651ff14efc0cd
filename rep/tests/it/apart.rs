//! A rep in a separate process, which may run as a different user than the test.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json as value};
use tempfile::TempDir;
use testkit::{NatsServer, eventually};

use crate::harness::{Cell, subjects};

/// A user who is not root.
pub(crate) const NOBODY: u32 = 65_534;
/// A variable in the environment of such a rep.
pub(crate) const SECRET: &str = "SECRET=of-the-rep";

/// A cell in a separate process, which is killed on drop.
pub(crate) struct Apart {
    child: Child,
    /// A copy of its program that any user may execute.
    _program: TempDir,
}

impl Apart {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.wait();
    }

    pub(crate) fn wait(&mut self) -> std::process::ExitStatus {
        self.child.wait().unwrap()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Creates a directory that every user may pass through.
pub(crate) fn open_directory() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Creates a directory that belongs to this user.
pub(crate) fn home_of(user: Option<u32>) -> TempDir {
    let home = open_directory();
    if user.is_some() {
        chown(home.path(), user, user).unwrap();
    }
    home
}

/// Starts a cell with these process settings as this user (only root may choose one).
pub(crate) fn apart(server: &NatsServer, name: &str, executor: &Value, user: Option<u32>) -> Apart {
    let mut executor = executor.clone();
    executor["kind"] = value!("process");
    let config = value!({"cell": name, "total": {"memory_mb": 1000, "disk_mb": 1000},
        "executor": executor});
    let directory = open_directory();
    let program = directory.path().join("mini-rep");
    fs::copy(env!("CARGO_BIN_EXE_mini-rep"), &program).unwrap();
    let (variable, value) = SECRET.split_once('=').unwrap();
    let mut command = Command::new(program);
    command.args([server.url(), config.to_string()]);
    command.env(variable, value).stdin(Stdio::null());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    Apart {
        child: command.spawn().unwrap(),
        _program: directory,
    }
}

/// Returns a client for a cell in another process.
pub(crate) async fn client_of(server: &NatsServer, name: &str) -> Cell {
    let client = server.client().await;
    eventually("the cell's state", async || {
        client
            .request(subjects().cell(name, "state"), "".into())
            .await
    })
    .await;
    Cell {
        name: name.into(),
        client,
        shutdown: shared::shutdown::CancellationToken::new(),
        task: tokio::spawn(async { Ok(rep::RepExit::Shutdown) }),
    }
}
