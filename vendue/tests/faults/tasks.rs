//! A task runs at most once, whatever is killed: each run leaves a line in a file.

use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt, time::Duration};

use serde_json::{Value, json};
use shared::wire::{TaskList, TaskListed, TaskState, TaskStatus, to_bytes};
use testkit::{NatsServer, eventually, eventually_within};

use crate::parts::{Observer, Part};

/// A manager takes the lease of a killed one after 15 s, and then waits for the cells' ttl.
const PATIENCE: Duration = Duration::from_secs(120);
const CELLS: [&str; 3] = ["z1-a", "z1-b", "z2-a"];

struct Tasks {
    server: NatsServer,
    observer: Observer,
    dir: tempfile::TempDir,
    _data: tempfile::TempDir,
}

impl Tasks {
    /// Starts a server; none if it is too old for managers.
    async fn start() -> Option<Self> {
        let data = tempfile::tempdir().unwrap();
        let store = data.path().display();
        let config = format!("jetstream {{ store_dir: \"{store}\" }}\n");
        let server = NatsServer::with_config(&config).await;
        let observer = Observer::of(&server).await;
        let version = observer.client.server_info().version;
        if ["2.9.", "2.10."].iter().any(|old| version.starts_with(old)) {
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        // if the test runs as root, instances run as another user
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let file = dir.path().join("runs");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        Some(Self {
            server,
            observer,
            dir,
            _data: data,
        })
    }

    fn manager(&self, name: &str) -> Part {
        Part::start(&self.server.url(), &["manager", "--name", name])
    }

    fn reps(&self) -> Vec<Part> {
        CELLS
            .map(|name| Part::rep(&self.server.url(), name, &[]))
            .into()
    }

    async fn ask(&self, subject: String, body: Value) -> Result<Value, String> {
        let answer = self.observer.client.request(subject, to_bytes(&body));
        let answer = answer.await.map_err(|e| e.to_string())?;
        serde_json::from_slice(&answer.payload).map_err(|e| e.to_string())
    }

    /// Stores a task that leaves a line and takes some time.
    async fn submit(&self, id: &str, retries: u32) {
        let runs = self.dir.path().join("runs");
        let script = format!("echo {id} >> {}; sleep 0.3", runs.display());
        let task = json!({ "app": "once", "memory_mb": 64, "disk_mb": 16, "retries": retries,
            "run": { "command": ["sh", "-c", script] } });
        let subject = self.observer.subjects.task("run", id);
        eventually_within(PATIENCE, "a task to be stored", async || {
            let answer = self.ask(subject.clone(), task.clone()).await?;
            let stored = answer["task"]["id"] == id;
            stored.then_some(()).ok_or(answer.to_string())
        })
        .await;
    }

    async fn listed(&self) -> Result<Vec<TaskStatus>, String> {
        let question = serde_json::to_value(TaskList::default()).unwrap();
        let answer = self
            .ask(self.observer.subjects.task_list(), question)
            .await?;
        let listed: TaskListed =
            serde_json::from_value(answer.clone()).map_err(|_| answer.to_string())?;
        Ok(listed.tasks)
    }

    /// Waits until `count` tasks have ended.
    async fn over(&self, count: usize) -> Vec<TaskStatus> {
        eventually_within(PATIENCE, &format!("{count} tasks to be over"), async || {
            let tasks = self.listed().await?;
            let over = tasks.iter().filter(|task| task.state.is_over()).count();
            if over == count {
                return Ok(tasks);
            }
            let open: Vec<&TaskStatus> = tasks.iter().filter(|t| !t.state.is_over()).collect();
            Err(format!("{over} of {}: {:?}", tasks.len(), open.first()))
        })
        .await
    }

    /// Returns how often each has run.
    fn runs(&self) -> BTreeMap<String, usize> {
        let mut runs = BTreeMap::new();
        for line in fs::read_to_string(self.dir.path().join("runs"))
            .unwrap()
            .lines()
        {
            *runs.entry(line.to_owned()).or_default() += 1;
        }
        runs
    }
}

#[tokio::test]
async fn a_task_runs_at_most_once_whatever_is_killed() {
    let Some(tasks) = Tasks::start().await else {
        return;
    };
    let mut reps = tasks.reps();
    let mut auctioneer = Part::auctioneer(&tasks.server.url(), "diego");
    tasks.observer.cells(&CELLS).await;
    let mut managers = vec![tasks.manager("m1"), tasks.manager("m2")];
    let count = 60;
    for n in 0..count {
        tasks.submit(&format!("t{n}"), 0).await;
        match n {
            15 => {
                auctioneer.kill();
                auctioneer = Part::auctioneer(&tasks.server.url(), "diego");
            }
            30 => {
                managers.remove(0).kill();
                managers.push(tasks.manager("m3"));
            }
            45 => {
                reps.remove(0).kill();
                reps.push(Part::rep(&tasks.server.url(), CELLS[0], &[]));
            }
            _ => {}
        }
    }
    let listed = tasks.over(count).await;
    let runs = tasks.runs();
    for task in &listed {
        let ran = runs.get(&task.id).copied().unwrap_or(0);
        match task.state {
            TaskState::Succeeded => assert_eq!(ran, 1, "{task:?}"),
            TaskState::Failed => assert!(ran <= 1 && task.why.is_some(), "{ran} {task:?}"),
            _ => panic!("{task:?}"),
        }
    }
    let failed = listed.iter().filter(|t| t.state == TaskState::Failed);
    println!("{} of {count} failed", failed.clone().count());
    // only those that the killed cell may have run
    assert!(failed.count() < count / 2, "{listed:?}");
}

#[tokio::test]
async fn a_task_that_was_accepted_outlives_everything() {
    let Some(tasks) = Tasks::start().await else {
        return;
    };
    let manager = tasks.manager("m1");
    // nobody can run it yet
    tasks.submit("t1", 0).await;
    manager.kill();
    let _manager = tasks.manager("m2");
    let _reps = tasks.reps();
    let _auctioneer = Part::auctioneer(&tasks.server.url(), "diego");
    let listed = tasks.over(1).await;
    assert_eq!(listed[0].state, TaskState::Succeeded, "{listed:?}");
    assert_eq!(tasks.runs()["t1"], 1);
    let result = eventually("the result", async || {
        let subject = tasks.observer.subjects.task("result", "t1");
        let answer = tasks.ask(subject, json!({})).await?;
        let known = answer["output"].is_string();
        known.then_some(answer.clone()).ok_or(answer.to_string())
    })
    .await;
    assert_eq!(result["task"]["exit_code"], 0, "{result}");
}
