//! Tasks and durable requests under faults. Each run leaves a line in a file, so that the number of runs does not
//! depend on anybody's report.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::{Value, json};
use shared::wire::{TaskList, TaskListed, TaskState, TaskStatus, to_bytes};
use testkit::eventually_within;

use super::{cluster::lock, desk::Desk};

/// How long it may take until everything has ended: a manager may wait three minutes for a cell's answer.
const OVER: Duration = Duration::from_secs(300);

/// What was stored, and what has run of it.
#[derive(Clone)]
pub(crate) struct Stored {
    desk: Desk,
    folder: Arc<tempfile::TempDir>,
    /// Requests that are not acknowledged yet.
    asked: Arc<Mutex<BTreeSet<String>>>,
    /// Acknowledged requests that are not known to have ended.
    accepted: Arc<Mutex<BTreeSet<String>>>,
    /// Number of requests that ended in each state.
    pub(crate) ended: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Stored {
    pub(crate) fn open(desk: &Desk) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // if the test runs as root, instances run as another user
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let stored = Self {
            desk: desk.clone(),
            folder: Arc::new(folder),
            asked: Arc::default(),
            accepted: Arc::default(),
            ended: Arc::default(),
        };
        fs::write(stored.file(), "").unwrap();
        fs::set_permissions(stored.file(), fs::Permissions::from_mode(0o666)).unwrap();
        stored
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("runs")
    }

    /// Asks managers until one has stored it; every other one as a durable request.
    pub(crate) fn submit(&self, number: usize) {
        let (stored, id) = (self.clone(), format!("stored-{number}"));
        // longer than faults last, too
        let seconds = ["0.2", "1", "5"][number / 2 % 3];
        let script = format!("echo {id} >> {}; sleep {seconds}", self.file().display());
        let body = json!({ "id": id, "app": "stored", "kind": "task", "memory_mb": 16, "disk_mb": 1,
            "run": { "command": ["sh", "-c", script] } });
        let subjects = &self.desk.observer.subjects;
        let subject = if number.is_multiple_of(2) {
            subjects.task("run", &id)
        } else {
            subjects.app_submit()
        };
        lock(&self.asked).insert(id.clone());
        tokio::spawn(async move {
            let answer = stored.desk.until_answered(&subject, &to_bytes(&body)).await;
            if answer.is_some() {
                lock(&stored.accepted).insert(id.clone());
            }
            lock(&stored.asked).remove(&id);
        });
    }

    /// Waits until every request has an outcome, and compares that with what ran.
    pub(crate) async fn over(&self) {
        let over = eventually_within(OVER, "stored requests to be over", async || {
            let asked = lock(&self.asked).first().cloned();
            if let Some(id) = asked {
                return Err(format!("{id} is not acknowledged"));
            }
            self.outcomes().await
        })
        .await;
        let runs = self.runs();
        let violated = |what: &str| lock(&self.desk.watch).violated(what);
        for task in over {
            let ran = runs.get(&task.id).copied().unwrap_or(0);
            let right = match task.state {
                TaskState::Succeeded => ran == 1,
                TaskState::Failed => task.why.is_some(),
                _ => false,
            };
            if !right {
                violated(&format!("a task ran {ran} times and is {task:?}"));
            }
            *lock(&self.ended).entry(task.state.to_string()).or_default() += 1;
            lock(&self.accepted).remove(&task.id);
        }
        for (id, ran) in runs.into_iter().filter(|(_, ran)| *ran > 1) {
            violated(&format!("{id} ran {ran} times"));
        }
    }

    /// Returns how every acknowledged request ended.
    async fn outcomes(&self) -> Result<Vec<TaskStatus>, String> {
        let ids: Vec<String> = lock(&self.accepted).iter().cloned().collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let list = TaskList {
            ids: ids.clone(),
            ..TaskList::default()
        };
        let subject = self.desk.observer.subjects.task_list();
        let answer = self.desk.observer.client.request(subject, to_bytes(&list));
        let answer = answer.await.map_err(|e| e.to_string())?;
        let listed: Result<TaskListed, _> = serde_json::from_slice(&answer.payload);
        let Ok(listed) = listed else {
            let said: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
            return Err(said.to_string());
        };
        let open = listed.tasks.iter().find(|task| !task.state.is_over());
        match open {
            Some(open) => Err(format!("{open:?}")),
            None if listed.tasks.len() < ids.len() => {
                Err(format!("of {ids:?} only {:?} are known", listed.tasks))
            }
            None => Ok(listed.tasks),
        }
    }

    /// Returns how often each has run.
    fn runs(&self) -> BTreeMap<String, usize> {
        let mut runs = BTreeMap::new();
        for line in fs::read_to_string(self.file()).unwrap().lines() {
            *runs.entry(line.to_owned()).or_default() += 1;
        }
        runs
    }
}
