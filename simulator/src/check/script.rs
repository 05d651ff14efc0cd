//! The events of one run, drawn from its seed: requests, their repeats, and faults. Plain data.

mod managed;
mod tasks;

use crate::random::Random;

pub(super) use tasks::ScriptTask;

/// A whole run.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) seed: u64,
    pub(super) policy: &'static str,
    pub(super) auctioneers: usize,
    /// Memory of each cell, MiB.
    pub(super) cells: Vec<i64>,
    pub(super) requests: Vec<ScriptRequest>,
    pub(super) steps: Vec<Step>,
    /// By how much messages of different subscriptions may overtake each other, in microseconds.
    pub(super) overtake_us: u64,
    /// Number of messages in a thousand that arrive twice.
    pub(super) duplicates: u64,
    /// The number of managers, none in half of the runs, and the names of the apps that they are told about.
    pub(super) managers: usize,
    pub(super) apps: Vec<String>,
    /// Tasks and durable requests that managers are to carry out.
    pub(super) tasks: Vec<ScriptTask>,
}

/// A request that clients send, with an id of their own.
#[derive(Clone, Debug)]
pub(super) struct ScriptRequest {
    pub(super) id: String,
    pub(super) app: String,
    pub(super) instances: u32,
    pub(super) memory_mb: i64,
    pub(super) queue_timeout_ms: u64,
}

/// Something that happens at a time.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) at_ms: u64,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    /// A client sends a request, again or for the first time.
    Ask(usize),
    /// Something fails for a while.
    Fail {
        node: usize,
        fault: Fault,
        for_ms: u64,
    },
    /// A second program with the name of this node starts.
    Namesake(usize),
    /// A client sends a command to the managers.
    Command { app: String, text: String },
    /// An operator asks for a move of an instance to another cell.
    Move {
        app: String,
        index: u32,
        node: usize,
    },
    /// A client submits a stored request, again or for the first time.
    Submit(usize),
    /// A client cancels it.
    Cancel(usize),
    /// A cell is drained.
    Drain { node: usize, deadline_ms: u64 },
    /// One of the managed instances of a cell crashes `times` times.
    Crash { node: usize, nth: usize, times: u32 },
    /// A fault of the bucket begins.
    Bucket { fault: BucketFault, for_ms: u64 },
}

/// A fault of the bucket, or something that happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BucketFault {
    /// It has no leader: nobody is answered. A quarter of the writes is stored once it has one again.
    Down,
    /// Every second write is stored but not answered.
    LosesAnswers,
    /// Watches show everything with this delay.
    SlowWatch { by_ms: u64 },
    /// All watches end.
    WatchesEnd,
    /// It is deleted and recreated, with or without the lease.
    Recreated { with_lease: bool },
    /// All its keys are deleted.
    Emptied,
    /// Everything that managers store about apps is deleted.
    StateDeleted,
    /// Everything in it is removed at once, with or without the lease; revisions continue, and no watch shows it.
    Purged { with_lease: bool },
    /// The server that leads it is lost: watches end, and new ones are read from a server that is behind. That server
    /// shows the rest when the fault is over.
    FailsOver,
    /// A copy is made, without the lease, …
    Copied,
    /// … and replaces it.
    Restored,
}

impl BucketFault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Down => "bucket down",
            Self::LosesAnswers => "bucket answers lost",
            Self::SlowWatch { .. } => "bucket watches slow",
            Self::WatchesEnd => "bucket watches end",
            Self::Recreated { .. } => "bucket recreated",
            Self::Emptied => "bucket emptied",
            Self::StateDeleted => "bucket state deleted",
            Self::Purged { .. } => "bucket purged",
            Self::FailsOver => "bucket fails over",
            Self::Copied => "bucket copied",
            Self::Restored => "bucket restored",
        }
    }
}

/// A fault of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Its program is suspended (SIGSTOP); messages wait for it.
    Freeze,
    /// Its program is killed, and started again at the end.
    Restart,
    /// It has no connection. Both sides notice that after this many milliseconds; what it sends meanwhile is delivered
    /// at the end or lost.
    Cut { noticed_ms: u64, lost: bool },
    /// Everything that it sends and receives takes this much longer.
    Slow { by_ms: u64 },
    /// One in three messages to it is lost.
    Drop,
    /// A manager cannot reach the bucket.
    NoBucket,
}

impl Fault {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Freeze => "freeze",
            Self::Restart => "restart",
            Self::Cut { .. } => "partition",
            Self::Slow { .. } => "delay",
            Self::Drop => "loss",
            Self::NoBucket => "no bucket",
        }
    }
}

/// When the cluster has started, and the first requests come.
const BEGIN_MS: u64 = 3_000;

impl Script {
    /// Draws the run of this seed.
    pub(super) fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed).fork("script", 0);
        let mut managed = Random::new(seed).fork("managed", 0);
        let managers = [0, 0, 0, 0, 1, 2, 2, 3][managed.place(8)];
        let auctioneers = 2 + random.place(2);
        let cells: Vec<i64> = (0..2 + random.place(3))
            .map(|_| 100 * random.range(2, 6))
            .collect();
        let policy = ["dea", "diego", "diego-bin-pack", "dapi"][random.place(4)];
        // one run in eight lasts longer than what is remembered
        let long = random.chance(0.125);
        let last_ms = match managers {
            0 if long => 170_000,
            0 => 25_000,
            _ => 50_000,
        };
        let mut script = Self {
            seed,
            policy,
            auctioneers,
            cells,
            requests: Vec::new(),
            steps: Vec::new(),
            overtake_us: [0, 2_000, 20_000][random.place(3)],
            duplicates: [0, 0, 20][random.place(3)],
            managers,
            apps: Vec::new(),
            tasks: Vec::new(),
        };
        let (requests, faults) = if managers > 0 { (2, 5) } else { (5, 7) };
        for n in 0..=random.place(requests) {
            script.draw_request(n, last_ms, &mut random);
        }
        for _ in 0..random.place(faults) {
            let step = script.draw_fault(last_ms, &mut random);
            script.steps.push(step);
        }
        if managers > 0 {
            script.draw_managed(last_ms, &mut managed);
            script.draw_tasks(last_ms, &mut Random::new(seed).fork("tasks", 0));
        } else if random.chance(0.2) {
            script.draw_namesake(last_ms, &mut random);
        }
        script.steps.sort_by_key(|step| step.at_ms);
        script
    }

    fn draw_request(&mut self, n: usize, last_ms: u64, random: &mut Random) {
        let queue_timeout_ms = [0, 0, 5_000][random.place(3)];
        self.requests.push(ScriptRequest {
            id: format!("r{n}"),
            app: format!("app{}", n % 2),
            instances: 1 + u32::try_from(random.place(3)).unwrap_or(0),
            memory_mb: 50 * random.range(1, 3),
            queue_timeout_ms,
        });
        let mut at_ms = BEGIN_MS + random.below(last_ms - BEGIN_MS);
        for _ in 0..=random.place(5) {
            self.steps.push(Step {
                at_ms,
                what: What::Ask(n),
            });
            at_ms += match random.place(5) {
                0 | 1 => 0,
                2 => random.below(400),
                3 => random.below(6_000),
                _ => random.below(last_ms),
            };
        }
    }

    fn draw_fault(&self, last_ms: u64, random: &mut Random) -> Step {
        let node = random.place(self.machines());
        let at_ms = 2_000 + random.below(last_ms - 2_000);
        let for_ms = [300, 1_500, 4_000, 9_000, 20_000][random.place(5)]
            * random.range(5, 15).unsigned_abs()
            / 10;
        let fault = match random.place(8) {
            0..=2 => Fault::Freeze,
            3 | 4 => Fault::Restart,
            5 => Fault::Cut {
                noticed_ms: random.below(for_ms.min(1_000)),
                lost: random.chance(0.5),
            },
            6 => Fault::Slow {
                by_ms: 50 + random.below(2_500),
            },
            _ => Fault::Drop,
        };
        Step {
            at_ms,
            what: What::Fail {
                node,
                fault,
                for_ms,
            },
        }
    }

    /// Has a second program of a name start, usually because the first one fails or as that one is restarted.
    fn draw_namesake(&mut self, last_ms: u64, random: &mut Random) {
        let node = random.place(self.machines());
        let at_ms = 2_000 + random.below(last_ms - 2_000);
        self.steps.push(Step {
            at_ms,
            what: What::Namesake(node),
        });
        let length_ms = [1_000, 5_000, 14_000, 25_000][random.place(4)];
        let for_ms = length_ms * random.range(5, 15).unsigned_abs() / 10;
        let fault = match random.place(6) {
            0 => return,
            1..=3 => Fault::Freeze,
            4 => Fault::Cut {
                noticed_ms: random.below(for_ms.min(1_000)),
                lost: random.chance(0.5),
            },
            _ => Fault::Restart,
        };
        let begins_ms = if fault == Fault::Restart {
            (at_ms + random.below(700)).saturating_sub(for_ms)
        } else {
            at_ms.saturating_sub(1 + random.below(for_ms))
        };
        self.steps.push(Step {
            at_ms: begins_ms,
            what: What::Fail {
                node,
                fault,
                for_ms,
            },
        });
    }

    /// Returns the number of auctioneers, cells and managers from the start. They are the first nodes, in this order,
    /// followed by the client.
    pub(super) fn machines(&self) -> usize {
        self.auctioneers + self.cells.len() + self.managers
    }

    /// Returns the nodes of which a second program starts, in order.
    pub(super) fn namesakes(&self) -> impl Iterator<Item = usize> {
        self.steps.iter().filter_map(|step| match step.what {
            What::Namesake(node) => Some(node),
            _ => None,
        })
    }

    /// Returns how long the cluster has to come to rest afterwards: longer than a ttl, and than two programs of one
    /// name may run. With managers: a lease, the time to settle, and a rollout of everything.
    pub(super) fn rest_ms(&self) -> u64 {
        if self.managers > 0 {
            200_000
        } else if self.namesakes().next().is_some() {
            45_000
        } else {
            20_000
        }
    }

    /// Returns when everything has been requested and nothing fails any more.
    pub(super) fn quiet_ms(&self) -> u64 {
        let ends = self.steps.iter().map(|step| match &step.what {
            What::Ask(n) => step.at_ms + self.requests[*n].queue_timeout_ms,
            What::Namesake(_) | What::Command { .. } | What::Cancel(_) => step.at_ms,
            // until its new instance was not healthy in time
            What::Move { .. } => step.at_ms + 60_000,
            What::Submit(n) => step.at_ms + self.tasks[*n].queue_timeout_ms,
            What::Drain { deadline_ms, .. } => step.at_ms + deadline_ms,
            // eight crashes with the pauses of the rep
            What::Crash { .. } => step.at_ms + 30_000,
            What::Bucket { for_ms, .. } => step.at_ms + for_ms,
            What::Fail { for_ms, fault, .. } => {
                step.at_ms
                    + for_ms
                    + match fault {
                        Fault::Slow { by_ms } => 2 * *by_ms,
                        _ => 0,
                    }
            }
        });
        ends.max().unwrap_or(0).max(BEGIN_MS)
    }
}
