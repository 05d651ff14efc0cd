//! Tasks and durable requests, and what goes wrong around them.

use serde_json::json;

use super::{Script, Step, What};
use crate::random::Random;

/// By this time managers hold the lease if nothing fails.
const BEGIN_MS: u64 = 4_000;

/// A request that managers store, with an id of its own.
#[derive(Clone, Debug)]
pub(in crate::check) struct ScriptTask {
    pub(in crate::check) id: String,
    /// None for a task.
    pub(in crate::check) instances: Option<u32>,
    pub(in crate::check) memory_mb: i64,
    /// How long a run takes, and its exit code.
    pub(in crate::check) takes_ms: u64,
    pub(in crate::check) exit_code: i32,
    pub(in crate::check) retries: u32,
    pub(in crate::check) timeout_ms: Option<u64>,
    pub(in crate::check) queue_timeout_ms: u64,
}

impl ScriptTask {
    /// Returns the body that a client sends.
    pub(in crate::check) fn body(&self) -> String {
        let mut body = json!({
            "id": self.id, "app": "stored", "memory_mb": self.memory_mb, "disk_mb": 1,
            "run": { "command": ["task", self.takes_ms.to_string(), self.exit_code.to_string()] },
            "queue_timeout": format!("{}ms", self.queue_timeout_ms),
        });
        if let Some(instances) = self.instances {
            body["instances"] = instances.into();
        } else {
            body["kind"] = "task".into();
            body["retries"] = self.retries.into();
        }
        if let Some(timeout_ms) = self.timeout_ms {
            body["timeout"] = format!("{timeout_ms}ms").into();
        }
        body.to_string()
    }
}

impl Script {
    /// Draws stored requests in most of the runs with managers, with repeats, cancellations and further faults.
    pub(super) fn draw_tasks(&mut self, last_ms: u64, random: &mut Random) {
        if !random.chance(0.7) {
            return;
        }
        for n in 0..=random.place(5) {
            self.tasks.push(draw_task(n, random));
            let mut at_ms = BEGIN_MS + random.below(last_ms - BEGIN_MS);
            for _ in 0..=random.place(2) {
                let what = What::Submit(n);
                self.steps.push(Step { at_ms, what });
                at_ms += [0, 400, 6_000, 15_000][random.place(4)];
            }
            if random.chance(0.15) {
                let what = What::Cancel(n);
                self.steps.push(Step { at_ms, what });
            }
        }
        for _ in 0..random.place(4) {
            let step = self.draw_fault(last_ms, random);
            self.steps.push(step);
        }
    }
}

fn draw_task(n: usize, random: &mut Random) -> ScriptTask {
    let durable = random.chance(0.3);
    ScriptTask {
        id: format!("t{n}"),
        instances: durable.then(|| 1 + u32::try_from(random.place(3)).unwrap_or(0)),
        memory_mb: 30 * random.range(1, 4),
        takes_ms: [0, 200, 2_000, 12_000, 30_000][random.place(5)],
        exit_code: i32::from(random.chance(0.2)),
        retries: [0, 0, 0, 2][random.place(4)],
        timeout_ms: (!durable && random.chance(0.2)).then_some(5_000),
        queue_timeout_ms: [5_000, 15_000, 25_000][random.place(3)],
    }
}
