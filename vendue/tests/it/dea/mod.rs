//! Tests between an estate of DEAs and a cluster: `advertiser dea-in` and `advertiser dea-out` as programs, each side
//! with its own server.

pub(crate) mod estate;
mod inward;
mod kept;
mod many;
pub(crate) mod outward;
mod secrets;
pub(crate) mod staged;
mod usage;

use std::{fs, path::PathBuf, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    common::{Finished, end, until, vendue},
    roles::Role,
};

/// An instance that the cluster knows: its index, cell and id.
type Known = (u64, String, String);

/// A cluster, and the test's files.
struct Cluster {
    url: String,
    files: TempDir,
}

impl Cluster {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = vendue();
        command.args(args).env("NATS_URL", &self.url);
        command
    }

    fn role(&self, args: &[&str]) -> Role {
        Role::start(&mut self.command(args))
    }

    fn run(&self, args: &[&str]) -> Finished {
        end(&mut self.command(args))
    }

    /// Returns the document of a command that must succeed.
    fn json(&self, args: &[&str]) -> Value {
        let said = end(self.command(args).args(["--output", "json"]));
        said.expect(0, &[]);
        said.json()
    }

    fn file(&self, name: &str, body: &Value) -> PathBuf {
        let file = self.files.path().join(name);
        fs::write(&file, body.to_string()).unwrap();
        file
    }

    /// Starts a bridge to an estate, which settles quickly.
    fn bridge(&self, estate: &str) -> Role {
        self.bridge_of(estate, 5)
    }

    /// Does the same with this many slots.
    fn bridge_of(&self, estate: &str, slots: usize) -> Role {
        self.role(&[
            "advertiser",
            "dea-in",
            "--dea-server",
            estate,
            "--slots",
            &slots.to_string(),
            "--expiry",
            "20s",
            "--settle",
            "1s",
        ])
    }

    async fn cells(&self, count: usize) {
        until("the cells to be known", || {
            let said = end(self.command(&["cells"]).args(["--output", "json"]));
            let there = said.code == Some(0) && said.json()["total"] == count;
            there.then_some(()).ok_or(format!("{said:?}"))
        })
        .await;
    }

    /// Returns the instances of an app in a state. It is an error if no cell answers, as may be
    /// until a bridge that started again has heard the first DEA.
    fn instances(&self, app: &str, state: &str) -> Result<Vec<Known>, String> {
        let said = self.run(&["ps", app, "--all", "--output", "json"]);
        if said.code != Some(0) {
            return Err(format!("{said:?}"));
        }
        let answer = said.json();
        let all = answer["instances"].as_array().unwrap();
        let of_state = all.iter().filter(|instance| instance["state"] == state);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let mut found: Vec<_> = of_state
            .map(|i| {
                (
                    i["index"].as_u64().unwrap(),
                    text(&i["cell"]),
                    text(&i["instance"]),
                )
            })
            .collect();
        found.sort();
        Ok(found)
    }
}

/// Returns a request for a droplet of 256 MB.
pub(crate) fn droplet(instances: u32) -> Value {
    json!({"app": "orders", "instances": instances, "memory_mb": 256, "disk_mb": 64, "stack": "cflinuxfs2",
        "run": {"droplet": {"uri": "http://me:s3cret@127.0.0.1:1/d", "environment": {"KEY": "s3cret"},
            "uris": ["orders.example.test"], "start_command": "exec ./source"}}})
}
