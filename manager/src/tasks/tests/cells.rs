//! The cells of the world, and what they say of tasks.

use std::collections::BTreeMap;

use serde_json::json;
use shared::{InstanceId, wire::Instance};

use crate::{TaskDefinition, tasks::Submitted};

/// Whether a task has ended, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Not,
    Exit(i32),
    Stopped,
}

impl Ended {
    pub(super) fn text(self) -> String {
        match self {
            Self::Not => String::new(),
            Self::Exit(code) => format!("exit {code}"),
            Self::Stopped => "stopped".into(),
        }
    }

    pub(super) fn code(self) -> Option<i32> {
        match self {
            Self::Exit(code) => Some(code),
            Self::Not | Self::Stopped => None,
        }
    }
}

/// What a cell holds of a task.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) request: String,
    pub(super) app: String,
    pub(super) ended: Ended,
}

#[derive(Clone, Debug, Default)]
pub(super) struct SimCell {
    pub(super) dead: bool,
    pub(super) slots: usize,
    pub(super) held: BTreeMap<InstanceId, Held>,
}

impl SimCell {
    pub(super) fn running(&self) -> usize {
        let running = self.held.values().filter(|held| held.ended == Ended::Not);
        running.count()
    }
}

pub(super) fn listed(id: InstanceId, held: &Held) -> Instance {
    let state = match held.ended {
        Ended::Not => "running",
        Ended::Exit(0) | Ended::Stopped => "exited",
        Ended::Exit(_) => "crashed",
    };
    let ended = (held.ended != Ended::Not).then(|| held.ended.text());
    serde_json::from_value(json!({
        "instance": id, "app": held.app, "index": 0, "kind": "task", "request": held.request,
        "state": state, "age_ms": 0, "memory_mb": 1, "disk_mb": 1,
        "ended": ended, "exit_code": held.ended.code(),
    }))
    .unwrap()
}

/// Returns the definition of a task.
pub(super) fn task(id: &str, more: &str) -> TaskDefinition {
    let body =
        format!(r#"{{"app":"a","memory_mb":1,"disk_mb":1,"run":{{"command":["true"]}}{more}}}"#);
    TaskDefinition::read(body.as_bytes(), Submitted::Task(id)).unwrap()
}
