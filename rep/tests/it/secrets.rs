//! Secrets of the cell that are given to instances.

use std::{fs, sync::Arc};

use placement::{Kind, Run};
use rep::{ExecutorKind, RepConfig};
use serde_json::{Value, json as value};
use shared::wire::{InstanceState, Work};
use testkit::NatsServer;

use crate::harness::{Cell, command, json, process_config};

fn with_secrets(directory: &std::path::Path) -> RepConfig {
    let mut config = process_config("a");
    if let ExecutorKind::Process(process) = &mut config.executor {
        process.secrets = Some(directory.to_owned());
    }
    config
}

/// A task with these secrets.
fn task(script: &str, secrets: &Value) -> Work {
    let work = command("task", &["sh", "-c", script]);
    let run = Run {
        secrets: serde_json::from_value(secrets.clone()).unwrap(),
        ..work.run.as_deref().cloned().unwrap()
    };
    Work {
        kind: Kind::Task,
        run: Some(Arc::new(run)),
        ..work
    }
}

#[tokio::test]
async fn an_instance_gets_its_secrets_and_nobody_else_hears_of_them() {
    let server = NatsServer::start().await;
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("db"), "s3cret\n").unwrap();
    fs::write(directory.path().join("key"), "k3y").unwrap();
    let cell = Cell::start(&server, with_secrets(directory.path())).await;
    let mut all = cell.client.subscribe("vendue.>").await.unwrap();
    cell.client.flush().await.unwrap();
    let secrets = value!([{"file":"db","env":"DB"},{"file":"key","path":"keys/web"}]);
    // the exit code tells what the instance found
    let script = "test \"$DB\" = s3''cret || exit 2; test \"$(cat keys/web)\" = k3''y || exit 3; \
                  test \"$(stat -c %a keys/web)\" = 600 || exit 4; \
                  test \"$(stat -c %u keys/web)\" = \"$(id -u)\" || exit 5";
    let work = task(script, &secrets);
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let ended = cell.wait_for(id, InstanceState::Exited).await;
    assert_eq!(ended.ended.as_deref(), Some("exit 0"));
    // marks the last message that counts
    cell.client.publish("vendue.end", "".into()).await.unwrap();
    while let Some(message) = futures_util::StreamExt::next(&mut all).await {
        let text = String::from_utf8_lossy(&message.payload);
        assert!(!text.contains("s3cret") && !text.contains("k3y"), "{text}");
        if message.subject.as_str() == "vendue.end" {
            break;
        }
    }
    cell.end().await;
}

#[tokio::test]
async fn what_the_cell_does_not_have_is_refused() {
    let server = NatsServer::start().await;
    let directory = tempfile::tempdir().unwrap();
    let inside = directory.path().join("secrets");
    fs::create_dir(&inside).unwrap();
    fs::write(directory.path().join("outside"), "hidden").unwrap();
    std::os::unix::fs::symlink("../outside", inside.join("tunnel")).unwrap();
    let cell = Cell::start(&server, with_secrets(&inside)).await;
    for file in ["nosuch", "tunnel"] {
        let work = task("true", &value!([{"file":file,"env":"A"}]));
        let start = cell.start_of(vec![work]).await;
        let answer = cell.send(&start).await;
        let reason = &answer.refused[0].reason;
        assert!(reason.starts_with("run.secrets[0].file: "), "{reason}");
        assert!(
            !reason.contains("hidden") && !reason.contains(file),
            "{reason}"
        );
    }
    let mut outside = value!(cell.start_of(vec![task("true", &value!([]))]).await);
    outside["work"][0]["run"]["secrets"] = value!([{"file":"../outside","env":"A"}]);
    let answer = cell.ask("start", json(&outside)).await;
    assert_eq!(answer["error"]["field"], "work[0].run.secrets[0].file");
    cell.end().await;

    let cell = Cell::start(&server, process_config("b")).await;
    let work = task("true", &value!([{"file":"db","env":"A"}]));
    let start = cell.start_of(vec![work]).await;
    let answer = cell.send(&start).await;
    let reason = &answer.refused[0].reason;
    assert!(
        reason.ends_with("no directory of secrets (--secrets)"),
        "{reason}"
    );
    cell.end().await;
}
