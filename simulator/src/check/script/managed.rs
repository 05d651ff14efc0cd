//! What managers are told to keep running, and what goes wrong around them.

use serde_json::json;

use super::{BucketFault, Fault, Script, Step, What};
use crate::random::Random;

/// By this time managers hold the lease if nothing fails.
const BEGIN_MS: u64 = 4_000;

impl Script {
    /// Draws apps, commands, crashes, drains, and faults of the bucket.
    pub(super) fn draw_managed(&mut self, last_ms: u64, random: &mut Random) {
        for n in 0..=random.place(3) {
            self.apps.push(format!("m{n}"));
        }
        for n in 0..self.apps.len() {
            self.draw_commands(n, last_ms, random);
        }
        for _ in 0..random.place(4) {
            let step = self.draw_trouble(last_ms, random);
            self.steps.push(step);
        }
        if random.chance(0.3) {
            self.draw_drain(last_ms, random);
        }
        if random.chance(0.4) {
            self.draw_bucket(last_ms, random);
        }
        // from a separate stream, so that the other draws of a seed stay the same
        self.draw_moves(last_ms, &mut random.fork("moves", 0));
    }

    /// Draws moves of instances, wherever they are by then.
    fn draw_moves(&mut self, last_ms: u64, random: &mut Random) {
        if random.chance(0.6) {
            return;
        }
        for _ in 0..=random.place(6) {
            let what = What::Move {
                app: self.apps[random.place(self.apps.len())].clone(),
                index: u32::try_from(random.place(3)).unwrap_or(0),
                node: self.auctioneers + random.place(self.cells.len()),
            };
            let at_ms = BEGIN_MS + random.below(last_ms - BEGIN_MS);
            self.steps.push(Step { at_ms, what });
        }
    }

    fn draw_commands(&mut self, app: usize, last_ms: u64, random: &mut Random) {
        let name = self.apps[app].clone();
        let mut at_ms = BEGIN_MS + random.below(last_ms / 3);
        let rules = rules(random);
        let definition = |random: &mut Random| definition(&name, &rules, random);
        let mut text = format!("put {}", definition(random));
        for _ in 0..=random.place(5) {
            let app = name.clone();
            let what = What::Command { app, text };
            self.steps.push(Step { at_ms, what });
            at_ms += [0, 300, 3_000, 15_000, last_ms][random.place(5)] * random.below(100) / 100;
            at_ms = at_ms.min(last_ms);
            text = match random.place(14) {
                0..=3 => format!("put {}", definition(random)),
                4 | 5 => format!("scale {}", 1 + random.place(4)),
                6 => "stop".to_owned(),
                7 => "start".to_owned(),
                8 | 9 => "restart 2".to_owned(),
                10 => "delete".to_owned(),
                11 => "undo".to_owned(),
                12 => "pause".to_owned(),
                _ => "resume".to_owned(),
            };
        }
    }

    /// Draws a crash, or a fault of a manager or of its link to the bucket.
    fn draw_trouble(&self, last_ms: u64, random: &mut Random) -> Step {
        let at_ms = BEGIN_MS + random.below(last_ms - BEGIN_MS);
        let for_ms = length_ms(random);
        let node = self.auctioneers + self.cells.len() + random.place(self.managers);
        let fault = match random.place(10) {
            0..=2 => {
                let what = What::Crash {
                    node: self.auctioneers + random.place(self.cells.len()),
                    nth: random.place(4),
                    times: [1, 2, 4, 8][random.place(4)],
                };
                return Step { at_ms, what };
            }
            3 | 4 => Fault::Freeze,
            5 => Fault::Restart,
            6 => Fault::Cut {
                noticed_ms: random.below(for_ms.min(1_000)),
                lost: random.chance(0.5),
            },
            _ => Fault::NoBucket,
        };
        let what = What::Fail {
            node,
            fault,
            for_ms,
        };
        Step { at_ms, what }
    }

    /// Draws a drain of a cell, which is usually started again.
    fn draw_drain(&mut self, last_ms: u64, random: &mut Random) {
        let node = self.auctioneers + random.place(self.cells.len());
        let at_ms = BEGIN_MS + random.below(last_ms - BEGIN_MS);
        let deadline_ms = [0, 5_000, 20_000][random.place(3)];
        let what = What::Drain { node, deadline_ms };
        self.steps.push(Step { at_ms, what });
        if random.chance(0.7) {
            let what = What::Fail {
                node,
                fault: Fault::Restart,
                for_ms: 1_000,
            };
            let at_ms = at_ms + deadline_ms + random.below(20_000);
            self.steps.push(Step { at_ms, what });
        }
    }

    fn draw_bucket(&mut self, last_ms: u64, random: &mut Random) {
        let at_ms = BEGIN_MS + random.below(last_ms - BEGIN_MS);
        let mut for_ms = 4_000 + random.below(1_500);
        let fault = match random.place(14) {
            0..=2 => BucketFault::Down,
            3 | 4 => BucketFault::LosesAnswers,
            5 => BucketFault::SlowWatch {
                by_ms: 100 + random.below(6_000),
            },
            6 => BucketFault::WatchesEnd,
            7 => BucketFault::Recreated {
                with_lease: random.chance(0.5),
            },
            8 => BucketFault::Emptied,
            9 => BucketFault::StateDeleted,
            10 => BucketFault::Purged {
                with_lease: random.chance(0.5),
            },
            11 | 12 => BucketFault::FailsOver,
            _ => {
                let what = What::Bucket {
                    fault: BucketFault::Copied,
                    for_ms: 0,
                };
                let at_ms = BEGIN_MS + random.below(at_ms - BEGIN_MS + 1);
                self.steps.push(Step { at_ms, what });
                BucketFault::Restored
            }
        };
        match fault {
            BucketFault::Down => {}
            BucketFault::LosesAnswers | BucketFault::SlowWatch { .. } | BucketFault::FailsOver => {
                for_ms = length_ms(random);
            }
            _ => for_ms = 0,
        }
        let what = What::Bucket { fault, for_ms };
        self.steps.push(Step { at_ms, what });
    }
}

fn length_ms(random: &mut Random) -> u64 {
    let length_ms = [300, 1_500, 5_000, 10_000, 25_000][random.place(5)];
    length_ms * random.range(5, 15).unsigned_abs() / 10
}

/// Draws the rules of an app's definition, and its memory.
fn rules(random: &mut Random) -> (serde_json::Value, i64) {
    let order = ["start-first", "start-first", "stop-first"][random.place(3)];
    let min_healthy = ["0s", "2s", "6s"][random.place(3)];
    let deadline = ["20s", "45s"][random.place(2)];
    let update = json!({
        "min_healthy": min_healthy,
        "deadline": deadline,
        "max_in_flight": 1 + random.place(2),
        "order": order,
        "auto_revert": random.chance(0.3),
    });
    (update, 30 * random.range(1, 3))
}

fn definition(app: &str, rules: &(serde_json::Value, i64), random: &mut Random) -> String {
    json!({
        "app": app, "instances": 1 + random.place(3), "memory_mb": rules.1, "disk_mb": 1,
        "run": { "command": ["sleep"] }, "tags": { "t": random.place(3).to_string() },
        "crash": { "wait": "2s", "max_wait": "8s" }, "update": rules.0,
    })
    .to_string()
}
