//! A cell as a DEA: what stands between a Cloud Controller and a cell of a vendue cluster.
//!
//! A state machine without clock and I/O: [`Facade::handle`] takes messages to DEAs, and what the cell reports about
//! itself and its instances, and returns what is to be published, started and stopped. It behaves like DEAs of early
//! 2016, except that it advertises room for staging only if the cell stages apps.

mod heard;
mod instance;
mod said;
mod staging;

use std::collections::BTreeMap;

use placement::{Invalid, check_name, random::mix};
use serde::Serialize;

use super::{DeaInstanceState, DeaNumber, DeaStart, DeaUsage, Hidden, subjects};
use instance::FacadeInstance;
use staging::StagingTask;
pub use staging::{FacadeStaged, FacadeStaging};

/// The most instances that a facade knows; starts of further ones are dropped and counted.
pub const MAX_FACADE_INSTANCES: usize = 10_000;
/// How often crashed instances are reviewed; below, how long the last one of each app is kept.
const REAP_MS: u64 = 10_000;
const KEEP_CRASHED_MS: u64 = 3_600_000;

/// A cell's settings as a DEA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FacadeOptions {
    /// Its id, new at each start: 1 to 128 of `A-Za-z0-9_-`.
    pub id: String,
    /// Its address.
    pub ip: String,
    /// Its zone.
    pub zone: String,
    /// Its stacks.
    pub stacks: Vec<String>,
    /// The interval between advertisements (5,000).
    pub advertise_ms: u64,
    /// The interval between heartbeats (10,000).
    pub heartbeat_ms: u64,
    /// The interval between registrations of the same route (20,000).
    pub register_ms: u64,
    /// The least memory and disk that staging takes, in MB (1,024 and 2,048).
    pub staging_mb: (i64, i64),
    /// How long staging may take (900,000).
    pub staging_ms: u64,
    /// The seed for the ids of its instances.
    pub seed: u64,
}

impl FacadeOptions {
    /// Returns options with the intervals with which DEAs were deployed, in the default zone.
    pub fn new(id: &str, ip: &str, stacks: Vec<String>, seed: u64) -> Self {
        Self {
            id: id.to_owned(),
            ip: ip.to_owned(),
            zone: super::DEFAULT_ZONE.to_owned(),
            stacks,
            advertise_ms: 5_000,
            heartbeat_ms: 10_000,
            register_ms: 20_000,
            staging_mb: (1_024, 2_048),
            staging_ms: 900_000,
            seed,
        }
    }
}

/// The resources of the cell, in MB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FacadeRoom {
    /// Total memory.
    pub memory: i64,
    /// Memory that is not reserved; may be negative.
    pub available_memory: i64,
    /// Disk that is not reserved; none = unlimited.
    pub available_disk: Option<i64>,
}

/// What the cell reports about an instance, or about the staging of an app.
#[derive(Clone, Debug, PartialEq)]
pub enum FacadeEvent {
    /// It was accepted: the cell's available resources no longer include what it takes.
    Accepted,
    /// It runs, and can be reached at this port if there is one.
    Running(Option<u16>),
    /// It failed, or was not accepted.
    Crashed {
        /// The exit code; -1 if there is none.
        exit_status: i64,
        /// Why, in words.
        description: String,
    },
    /// It ended as it was asked to.
    Stopped,
    /// The resources that it was last measured to use; the time is not read.
    Used(DeaUsage),
    /// How staging ended, and what it produced.
    Staged(Box<FacadeStaged>),
}

/// An input of a facade.
#[derive(Clone, Debug)]
pub enum FacadeInput<'a> {
    /// A message to DEAs, on a subject of [`Facade::subjects`].
    Heard {
        /// Its subject.
        subject: &'a str,
        /// Where replies go.
        reply: Option<&'a str>,
        /// Its body.
        body: &'a [u8],
    },
    /// The cell's current resources.
    Room(FacadeRoom),
    /// Whether the cell stages apps; false until this is given.
    Stages(bool),
    /// Something has happened to an instance.
    Instance {
        /// The instance, as [`FacadeOutput::Start`] named it.
        key: &'a str,
        /// What happened.
        event: FacadeEvent,
    },
    /// The cell's address, which was not known before.
    Address(&'a str),
    /// The cell has lost everything that it ran, and the DEA ends with it.
    Lost,
    /// The cell is to be emptied: it takes no more work.
    Evacuate,
    /// The DEA ends: it takes no more work, and stops what it runs.
    ShutDown,
    /// The time that [`Facade::next_ms`] gave has come.
    Tick,
}

/// An output of a facade.
#[derive(Clone, Debug, PartialEq)]
pub enum FacadeOutput {
    /// Publish.
    Publish {
        /// The subject.
        subject: String,
        /// The body.
        body: Hidden<Vec<u8>>,
    },
    /// Start an instance on the cell.
    Start {
        /// The facade's name for it.
        key: String,
        /// What to run.
        start: Box<DeaStart>,
    },
    /// Stage an app on the cell.
    Stage {
        /// The facade's name for it, unique among instances and staging.
        key: String,
        /// What to stage.
        staging: Box<FacadeStaging>,
    },
    /// Stop an instance, or the staging of an app.
    Stop {
        /// The facade's name for it.
        key: String,
    },
}

/// A cell as a DEA. Times are in ms since the Unix epoch.
#[derive(Debug)]
pub struct Facade {
    options: FacadeOptions,
    room: FacadeRoom,
    /// By the name given to the cell.
    instances: BTreeMap<String, FacadeInstance>,
    staging: BTreeMap<String, StagingTask>,
    stages: bool,
    evacuating: bool,
    drawn: u64,
    advertise_at_ms: u64,
    heartbeat_at_ms: u64,
    register_at_ms: u64,
    reap_at_ms: u64,
    /// Messages that could not be used.
    pub malformed: u64,
    /// Starts beyond [`MAX_FACADE_INSTANCES`].
    pub dropped: u64,
    /// Apps that were staged.
    pub staged: u64,
    /// Apps whose staging failed, was stopped, or found no room.
    pub not_staged: u64,
}

impl Facade {
    /// Creates the facade of an empty cell, and returns it with its first messages. Rejects an id that is not a valid
    /// name.
    pub fn new(
        options: FacadeOptions,
        room: FacadeRoom,
        now_ms: u64,
    ) -> Result<(Self, Vec<FacadeOutput>), Invalid> {
        check_name("id", &options.id)?;
        let mut facade = Self {
            room,
            instances: BTreeMap::new(),
            staging: BTreeMap::new(),
            stages: false,
            evacuating: false,
            drawn: 0,
            advertise_at_ms: now_ms,
            heartbeat_at_ms: now_ms + options.heartbeat_ms,
            register_at_ms: now_ms + options.register_ms,
            reap_at_ms: now_ms + REAP_MS,
            malformed: 0,
            dropped: 0,
            staged: 0,
            not_staged: 0,
            options,
        };
        let mut out = vec![publish(subjects::HELLO, &facade.hello())];
        facade.tick(now_ms, &mut out);
        Ok((facade, out))
    }

    /// Returns the subjects that must be subscribed to.
    pub fn subjects(&self) -> Vec<String> {
        let all = [
            subjects::STOP,
            subjects::UPDATE,
            subjects::FIND,
            subjects::LOCATE,
            subjects::STATUS,
            subjects::HEALTH_MANAGER_START,
            subjects::ROUTER_START,
        ];
        let own = self.own_subject();
        all.into_iter().map(str::to_owned).chain([own]).collect()
    }

    /// Returns the subject for starts of this DEA.
    pub fn own_subject(&self) -> String {
        subjects::start(&self.options.id)
    }

    /// Returns when [`FacadeInput::Tick`] is due next.
    pub fn next_ms(&self) -> u64 {
        let advertise_ms = if self.evacuating {
            u64::MAX
        } else {
            self.advertise_at_ms
        };
        let others = self.heartbeat_at_ms.min(self.register_at_ms);
        let staging_ms = self.staging_next_ms();
        advertise_ms
            .min(others)
            .min(self.reap_at_ms)
            .min(staging_ms)
    }

    /// Returns the cell's resources as last reported.
    pub fn room(&self) -> FacadeRoom {
        self.room
    }

    /// Returns the app of an instance or of staging; none if it is unknown.
    pub fn app_of(&self, key: &str) -> Option<&str> {
        let known = self.instances.get(key);
        let app = known.map(|known| known.shown.droplet.as_str());
        app.or_else(|| Some(self.staging.get(key)?.app()))
    }

    /// Returns the state of an instance or of staging; none if it is unknown.
    pub fn state_of(&self, key: &str) -> Option<DeaInstanceState> {
        let state = self.instances.get(key).map(|known| known.shown.state);
        state.or_else(|| Some(self.staging.get(key)?.state()))
    }

    /// Returns whether it knows an instance of the app.
    pub fn has_app(&self, app: &str) -> bool {
        let mut instances = self.instances.values();
        instances.any(|known| known.shown.droplet == app)
    }

    /// Returns how many instances it knows in this state.
    pub fn count(&self, state: DeaInstanceState) -> usize {
        let instances = self.instances.values();
        instances.filter(|known| known.shown.state == state).count()
    }

    /// Takes an input, and returns what is to be done.
    pub fn handle(&mut self, now_ms: u64, input: FacadeInput<'_>) -> Vec<FacadeOutput> {
        let mut out = Vec::new();
        match input {
            FacadeInput::Heard {
                subject,
                reply,
                body,
            } => self.heard(now_ms, (subject, reply), body, &mut out),
            FacadeInput::Room(room) => self.room = room,
            FacadeInput::Stages(stages) => self.set_stages(stages, &mut out),
            FacadeInput::Instance { key, event } => self.happened(now_ms, key, event, &mut out),
            FacadeInput::Address(address) => address.clone_into(&mut self.options.ip),
            FacadeInput::Lost => self.lose_staging(&mut out),
            FacadeInput::Evacuate => self.evacuate(now_ms, &mut out),
            FacadeInput::ShutDown => self.end(now_ms, &mut out),
            FacadeInput::Tick => self.tick(now_ms, &mut out),
        }
        out
    }

    fn tick(&mut self, now_ms: u64, out: &mut Vec<FacadeOutput>) {
        if now_ms >= self.advertise_at_ms && !self.evacuating {
            self.advertise_at_ms = now_ms + self.options.advertise_ms;
            out.push(publish(subjects::ADVERTISE, &self.advertisement()));
            self.advertise_staging(out);
        }
        self.end_overdue_staging(now_ms, out);
        if now_ms >= self.heartbeat_at_ms {
            self.heartbeat_at_ms = now_ms + self.options.heartbeat_ms;
            out.push(publish(subjects::HEARTBEAT, &self.heartbeat()));
        }
        if now_ms >= self.register_at_ms {
            self.register_at_ms = now_ms + self.options.register_ms;
            self.register_all(out);
        }
        if now_ms >= self.reap_at_ms {
            self.reap_at_ms = now_ms + REAP_MS;
            self.reap(now_ms);
        }
    }

    /// Returns what is not reserved, less what was sent to the cell and has not been accepted yet.
    fn available(&self) -> (i64, Option<i64>) {
        let sent = self.instances.values().filter(|known| known.is_sent);
        let (mut memory, mut disk) = (self.room.available_memory, self.room.available_disk);
        for known in sent {
            memory -= known.start.limits.mem;
            disk = disk.map(|disk| disk - known.start.limits.disk);
        }
        for (staging_memory, staging_disk) in self.staging_sent() {
            memory -= staging_memory;
            disk = disk.map(|disk| disk - staging_disk);
        }
        (memory, disk)
    }

    /// Returns which resource the cell has too little of for these MB, if any; disk if both are short.
    fn short_of(&self, memory_mb: i64, disk_mb: i64) -> Option<&'static str> {
        let (memory, disk) = self.available();
        if disk.is_some_and(|disk| disk < disk_mb) {
            Some("disk")
        } else {
            (memory < memory_mb).then_some("memory")
        }
    }

    /// Returns 32 hexadecimal digits that no other instance has.
    fn draw_id(&mut self) -> String {
        let mut draw = || {
            self.drawn += 1;
            mix(self.options.seed ^ mix(self.drawn))
        };
        format!("{:016x}{:016x}", draw(), draw())
    }

    /// Forgets crashed instances, except the last one of each app.
    fn reap(&mut self, now_ms: u64) {
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        let crashed = |known: &FacadeInstance| known.shown.state == DeaInstanceState::Crashed;
        for known in self.instances.values().filter(|known| crashed(known)) {
            let at = last.entry(known.shown.droplet.clone()).or_default();
            *at = (*at).max(known.since_ms);
        }
        self.instances.retain(|_, known| {
            let is_last = last.get(&known.shown.droplet) == Some(&known.since_ms);
            let is_young = now_ms.saturating_sub(known.since_ms) < KEEP_CRASHED_MS;
            !crashed(known) || (is_last && is_young)
        });
    }
}

/// Returns whole MB, as DEAs write them.
fn mb(amount: i64) -> DeaNumber {
    DeaNumber::Integer(amount)
}

/// Serialises a body of the dialect for publishing; this never fails.
fn publish(subject: &str, body: &impl Serialize) -> FacadeOutput {
    FacadeOutput::Publish {
        subject: subject.to_owned(),
        body: Hidden(serde_json::to_vec(body).unwrap_or_default()),
    }
}
