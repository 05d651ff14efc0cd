//! `vendue app` with running managers, auctioneers and cells.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::NatsServer;

use crate::{
    cli_page::check,
    common::{Finished, Up, is_old_server, until, vendue},
};

/// A cluster with a manager, and a directory for files of apps.
struct Kept {
    up: Up,
    manager: Child,
    files: TempDir,
    _server: NatsServer,
}

impl Drop for Kept {
    fn drop(&mut self) {
        // it may already have ended by itself
        let _ = self.manager.kill();
        let _ = self.manager.wait();
    }
}

impl Kept {
    /// Starts a cluster; none if the server is too old for a manager, which the tests of managers show.
    async fn start() -> Option<Self> {
        if is_old_server() {
            return None;
        }
        let files = tempfile::tempdir().unwrap();
        let store = files.path().join("jetstream");
        let config = format!("jetstream {{ store_dir: \"{}\" }}", store.display());
        let server = NatsServer::with_config(&config).await;
        let mut up = vendue();
        let url = server.url();
        up.args([
            "up",
            "--cells",
            "2",
            "--grace",
            "1s",
            "--no-manager",
            "--nats",
            &url,
        ]);
        let up = Up::of(up);
        let mut manager = vendue();
        manager.args(["manager", "--name", "manager-t"]);
        manager.env("NATS_URL", server.url()).stderr(Stdio::null());
        let manager = manager.spawn().unwrap();
        let kept = Self {
            up,
            manager,
            files,
            _server: server,
        };
        until("a manager that acts", || {
            let listed = kept.app("list --output json");
            let acting = listed.code == Some(0) && listed.json()["acting"] == true;
            acting.then_some(()).ok_or(format!("{listed:?}"))
        })
        .await;
        Some(kept)
    }

    fn app(&self, line: &str) -> Finished {
        let args: Vec<&str> = std::iter::once("app").chain(line.split(' ')).collect();
        self.up.run(&args)
    }

    /// Runs a command that must succeed, and checks its document against the page.
    #[track_caller]
    fn document(&self, command: &str, line: &str) -> Value {
        let said = self.app(&format!("{line} --output json"));
        let document = said.expect(0, &[]).json();
        check(&format!("app {command}"), &document);
        document
    }

    fn file(&self, name: &str, definition: &Value) -> String {
        let file = self.files.path().join(name);
        fs::write(&file, definition.to_string()).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }
}

/// Returns an app that is complete as soon as it runs.
fn app(name: &str, memory_mb: u64) -> Value {
    json!({
        "app": name, "instances": 2, "memory_mb": memory_mb, "disk_mb": 16,
        "run": {"command": ["sleep", "1000"], "env": {"PASSWORD": "hunter2"}},
        "update": {"min_healthy": "0s"},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_runs_is_changed_and_returns() {
    let Some(kept) = Kept::start().await else {
        return;
    };
    kept.app("list").expect(0, &["no apps", "vendue app put"]);
    let first = kept.file("first.json", &app("web", 16));
    let second = kept.file("second.json", &app("web", 32));

    let dry = kept.app(&format!("put {first} --dry-run"));
    dry.expect(0, &["web: would be created", "2 placed"]);
    kept.app("show web").expect(1, &["not_found", "web"]);
    let created = kept.app(&format!("put {first} --wait"));
    created.expect(0, &["web: created, version 1", "web: 2 of 2 running"]);
    assert_eq!(kept.up.instances("web", "running").len(), 2);
    let again = kept.app(&format!("put {first} --wait"));
    again.expect(0, &["web: unchanged, version 1"]);
    let dry = kept.app(&format!("put {first} --dry-run"));
    dry.expect(0, &["web: unchanged, version 1"]);

    let changed = kept.app(&format!("put {second} --wait"));
    changed.expect(0, &["web: changed, version 2", "memory_mb", "16", "32"]);
    kept.app("history web")
        .expect(0, &["wanted", "undo", "memory_mb"]);
    let shown = kept.app("show web --version 1 --output json").json();
    assert_eq!(shown["definition"]["memory_mb"], 16, "{shown}");
    kept.app("show web --version 7")
        .expect(1, &["version", "7"]);
    kept.app("undo web --wait")
        .expect(0, &["web: changed, version 3", "2 of 2"]);
    kept.app("show web")
        .expect(0, &["web: 2 wanted, 2 running", "version 3 (done)"]);

    kept.app("scale web 3 --wait")
        .expect(0, &["instances", "3 of 3 running"]);
    kept.app("scale web 3").expect(0, &["unchanged"]);
    let dry = kept.app(&format!("put {first} --dry-run"));
    dry.expect(0, &["web: would change", "instances"]);
    kept.app("stop web").expect(0, &["web: changed"]);
    kept.app("wait web").expect(0, &["0 of 0 running"]);
    kept.app("list").expect(0, &["web", "stopped"]);
    kept.app("start web --wait").expect(0, &["3 of 3 running"]);
    kept.app("restart web --half --wait")
        .expect(0, &["version 4", "3 of 3"]);
    kept.app("restart web --one-by-one --wait")
        .expect(0, &["version 5", "3 of 3"]);
    kept.app("pause web").expect(0, &["web: "]);
    kept.app("resume web").expect(0, &["web: "]);
    kept.app("wait web nobody").expect(1, &["nobody"]);
    kept.app("delete web").expect(0, &["web: changed"]);
    until("the app to be forgotten", || {
        let shown = kept.app("show web");
        (shown.code == Some(1))
            .then_some(())
            .ok_or(format!("{shown:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_as_documented_and_hold_no_secret() {
    let Some(kept) = Kept::start().await else {
        return;
    };
    let file = kept.file("web.json", &app("web", 16));
    let mut documents = vec![
        kept.document("put FILE…", &format!("put {file} --dry-run")),
        kept.document("put FILE…", &format!("put {file} --wait")),
        kept.document("list", "list"),
        kept.document("show APP", "show web"),
        kept.document("scale APP N", "scale web 1 --wait"),
        kept.document("wait APP…", "wait web"),
    ];
    let changed = app("web", 32).to_string().replace("hunter2", "hunter3");
    fs::write(&file, changed).unwrap();
    documents.push(kept.document("put FILE…", &format!("put {file} --wait")));
    assert!(
        documents[6]["apps"][0]["changes"]
            .to_string()
            .contains("PASSWORD"),
        "{documents:?}"
    );
    documents.push(kept.document("history APP", "history web"));
    for line in [
        "undo web --wait",
        "restart web",
        "pause web",
        "resume web",
        "stop web",
        "start web",
        "delete web",
    ] {
        documents.push(kept.document("scale APP N", line));
    }
    for document in &documents {
        assert!(!document.to_string().contains("hunter"), "{document}");
    }
    let status = &documents[5]["apps"][0];
    assert_eq!(
        (&status["outcome"], &status["status"]["running"]),
        (&json!("ready"), &json!(1))
    );
    for line in ["show web", "history web", "list"] {
        let said = kept.app(line);
        assert!(!said.out.contains("hunter"), "{said:?}");
    }
    let error = kept.app("scale nobody 2 --output json");
    assert_eq!(error.expect(1, &[]).json()["error"]["code"], "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_placed_and_what_is_refused_have_their_exit_codes() {
    let Some(kept) = Kept::start().await else {
        return;
    };
    let huge = kept.file("huge.json", &app("huge", 1_000_000));
    kept.app(&format!("put {huge} --dry-run"))
        .expect(3, &["unplaced", "memory"]);
    kept.app(&format!("put {huge} --wait"))
        .expect(3, &["created", "not placed", "memory"]);
    kept.app("wait huge")
        .expect(3, &["0 of 2 running", "memory"]);
    kept.app("list").expect(0, &["huge", "memory"]);
    let mut crashing = app("crashing", 16);
    crashing["run"]["command"] = json!(["false"]);
    crashing["update"] = json!({"min_healthy": "1h"});
    let crashing = kept.file("crashing.json", &crashing);
    let late = kept.app(&format!("put {crashing} --wait --timeout 1s"));
    late.expect(1, &["crashing: "]);

    let web = kept.file("web.json", &json!([app("web", 16), app("other", 16)]));
    kept.app(&format!("put {web} --wait"))
        .expect(0, &["web: created", "other: created"]);
    let start = kept.file(
        "start.json",
        &json!({
            "app": "web", "memory_mb": 16, "disk_mb": 16, "run": {"command": ["sleep", "9"]},
        }),
    );
    let hints = &[
        "kept running by a manager",
        "vendue app scale web",
        "vendue app put",
    ];
    kept.up.run(&["start", &start]).expect(1, hints);
    let run = [
        "run", "web", "--memory", "16M", "--disk", "16M", "--", "sleep", "9",
    ];
    kept.up.run(&run).expect(1, hints);
    let stop = kept.up.run(&["stop", "web"]);
    stop.expect(
        1,
        &[
            "kept running by a manager",
            "vendue app stop web",
            "--force",
        ],
    );
    assert_eq!(kept.up.instances("web", "running").len(), 2);
    kept.up
        .run(&["stop", "web", "--force"])
        .expect(0, &["2 instances told to stop"]);
    until("the manager to start them again", || {
        let count = kept.up.instances("web", "running").len();
        (count == 2).then_some(()).ok_or(format!("{count}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_holds_everything_and_is_imported() {
    let Some(kept) = Kept::start().await else {
        return;
    };
    let two = kept.file("two.json", &json!({"apps": [app("a", 16), app("b", 16)]}));
    kept.app(&format!("put {two} --wait")).expect(0, &[]);
    let file = kept.path("exported.json");
    let export = format!("export --file {}", file.display());
    kept.app(&export).expect(0, &["2 apps written"]);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(fs::read_to_string(&file).unwrap().contains("hunter2"));
    assert_eq!(kept.document("export", &export)["apps"], json!(["a", "b"]));
    let one = kept.app("export b --file -").expect(0, &[]).json();
    assert_eq!(one["apps"].as_array().unwrap().len(), 1);
    kept.app("export nobody --file -").expect(1, &["nobody"]);

    let import = format!("import {}", file.display());
    kept.app(&import).expect(0, &["a ", "b ", "unchanged"]);
    // what an interrupted restore has already stored is not an error
    let restore = format!("{import} --restore");
    kept.app(&restore).expect(0, &["unchanged"]);
    kept.app("delete a").expect(0, &[]);
    until("the app to be forgotten", || {
        let shown = kept.app("show a");
        (shown.code == Some(1))
            .then_some(())
            .ok_or(format!("{shown:?}"))
    })
    .await;
    kept.app(&import).expect(0, &["imported", "unchanged"]);
    let imported = kept.document("import FILE", &import);
    assert_eq!(imported["apps"][0]["changed"], false);
    let refused = kept.app(&restore);
    refused.expect(2, &["refused", "is stored with uid", "unchanged"]);
    kept.app("wait a b")
        .expect(0, &["a: 2 of 2 running", "b: 2 of 2 running"]);
}

/// An import of two messages, and a list of three pages.
#[tokio::test(flavor = "multi_thread")]
async fn more_apps_than_a_message_holds_are_restored_listed_and_exported() {
    let Some(kept) = Kept::start().await else {
        return;
    };
    let names: Vec<String> = (1..=1_001).map(|i| format!("app-{i:04}")).collect();
    let one = |(i, name): (usize, &String)| {
        json!({"bucket": "0a0b0c0d", "uid": format!("{:08x}", i + 1), "version": 3, "stopped": true,
               "definition": app(name, 16)})
    };
    let many: Vec<Value> = names.iter().enumerate().map(one).collect();
    let many = kept.file("many.json", &json!({"v": 1, "apps": many}));
    let restored = kept.document("import FILE", &format!("import {many} --restore"));
    let restored = restored["apps"].as_array().unwrap();
    assert!(restored.iter().all(|app| app["version"] == 3));
    assert_eq!(restored.len(), names.len());
    let listed = kept.document("list", "list");
    let listed: Vec<&str> = listed["apps"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|app| app["stopped"] == true)
        .map(|app| app["app"].as_str().unwrap())
        .collect();
    assert_eq!(listed, names);
    let file = kept.path("all.json");
    kept.app(&format!("export --file {}", file.display()))
        .expect(0, &["1001 apps written"]);
}
