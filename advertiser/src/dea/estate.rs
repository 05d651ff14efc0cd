//! The estate: the DEAs that exist, according to what they publish.
//!
//! A state machine without clock and I/O. The rule of expiry is that of the Cloud Controller: it counts in whole
//! seconds, and an advertisement completely replaces the previous one. `dea.shutdown` takes a DEA out; a later
//! advertisement brings it back.

use std::collections::BTreeMap;

use super::{
    DeaAdvertisement, DeaBody, DeaExited, DeaHeartbeat, DeaHello, DeaInstanceState, DeaMalformed,
    DeaOddities, DeaRead, DeaShutdown, DeaStagingAdvertisement, OddSenders, subjects,
};

/// The most DEAs that are known at a time; messages of others are counted and dropped.
pub const MAX_DEAS: usize = 10_000;
/// How long after its last message a DEA that is not live is forgotten: three heartbeats.
const FORGET_MS: u64 = 30_000;

/// Settings of an estate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EstateOptions {
    /// How long an advertisement counts, in seconds.
    pub expiry_s: u64,
}

impl Default for EstateOptions {
    /// Returns the Cloud Controller's own default. Estates were deployed with 15 s.
    fn default() -> Self {
        Self { expiry_s: 10 }
    }
}

/// An input of an estate.
#[derive(Clone, Copy, Debug)]
pub enum EstateInput<'a> {
    /// A message of a DEA.
    Heard {
        /// Its subject; messages on subjects that are not in [`Estate::SUBJECTS`] are ignored.
        subject: &'a str,
        /// Its body.
        body: &'a [u8],
    },
    /// Time has passed; due about once a second.
    Tick,
}

/// A change of an estate.
#[derive(Clone, Debug, PartialEq)]
pub enum EstateChange {
    /// A DEA has become live.
    Joined(String),
    /// A live DEA has advertised again.
    Advertised(String),
    /// A DEA is no longer live.
    Left(String, DeaState),
    /// A DEA has been forgotten.
    Forgotten(String),
    /// What a DEA runs.
    Heartbeat(DeaHeartbeat),
    /// An instance has ended.
    Exited(DeaExited),
}

/// Whether a Cloud Controller would place work on a DEA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeaState {
    /// Its advertisement counts.
    Live,
    /// It said that it takes no more work; what runs there may continue.
    ShutDown,
    /// It has not advertised for too long, or not yet.
    Silent,
}

impl DeaState {
    /// Returns its name in messages and documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::ShutDown => "shutdown",
            Self::Silent => "silent",
        }
    }
}

/// A DEA, as far as it has been heard.
#[derive(Clone, Debug, PartialEq)]
pub struct Dea {
    /// Whether it takes work.
    pub state: DeaState,
    /// Its last advertisement.
    pub advertisement: Option<DeaAdvertisement>,
    /// What was odd in the last advertisement.
    pub odd: DeaOddities,
    /// When the last advertisement arrived.
    pub advertised_ms: Option<u64>,
    /// The second at which the last advertisement no longer counts.
    expires_s: u64,
    /// The most memory that it ever had left, in MB.
    pub most_memory_mb: i64,
    /// What it has left for staging, if it advertises that.
    pub staging: Option<DeaStagingAdvertisement>,
    /// Its address; empty if unknown.
    pub ip: String,
    /// The number of instances in each state in its last heartbeat; none if there was no heartbeat.
    pub instances: Option<BTreeMap<DeaInstanceState, usize>>,
    /// When anything was last heard of it.
    pub heard_ms: u64,
}

impl Dea {
    fn new(now_ms: u64) -> Self {
        Self {
            state: DeaState::Silent,
            advertisement: None,
            odd: DeaOddities::default(),
            advertised_ms: None,
            expires_s: 0,
            most_memory_mb: 0,
            staging: None,
            ip: String::new(),
            instances: None,
            heard_ms: now_ms,
        }
    }

    /// Returns whether its advertisement counts at this time.
    pub fn is_live(&self, now_ms: u64) -> bool {
        self.state == DeaState::Live && now_ms / 1_000 < self.expires_s
    }

    /// Returns how long its advertisement will still count at least, in ms.
    pub fn expires_in_ms(&self, now_ms: u64) -> u64 {
        (self.expires_s * 1_000).saturating_sub(now_ms)
    }
}

/// The known DEAs.
#[derive(Clone, Debug, Default)]
pub struct Estate {
    options: EstateOptions,
    deas: BTreeMap<String, Dea>,
    /// Senders of messages that cannot be read.
    pub senders: OddSenders,
    /// Messages of DEAs beyond [`MAX_DEAS`].
    pub dropped: u64,
    /// Messages that were understood.
    pub heard: u64,
}

impl Estate {
    /// The subjects that must be subscribed to.
    pub const SUBJECTS: [&'static str; 6] = [
        subjects::ADVERTISE,
        subjects::STAGING_ADVERTISE,
        subjects::HELLO,
        subjects::SHUTDOWN,
        subjects::HEARTBEAT,
        subjects::EXITED,
    ];

    /// Creates an estate of which nothing was heard.
    pub fn new(options: EstateOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    /// Returns the DEAs by id.
    pub fn deas(&self) -> impl Iterator<Item = (&str, &Dea)> {
        self.deas.iter().map(|(id, dea)| (id.as_str(), dea))
    }

    /// Returns the DEA with this id.
    pub fn dea(&self, id: &str) -> Option<&Dea> {
        self.deas.get(id)
    }

    /// Returns the advertisements that count at this time, by id.
    pub fn live(&self, now_ms: u64) -> impl Iterator<Item = (&DeaAdvertisement, &Dea)> {
        let live = self.deas.values().filter(move |dea| dea.is_live(now_ms));
        live.filter_map(|dea| Some((dea.advertisement.as_ref()?, dea)))
    }

    /// Takes an input, and returns what has changed. `now_ms` never decreases.
    pub fn handle(&mut self, now_ms: u64, input: EstateInput<'_>) -> Vec<EstateChange> {
        let changed = match input {
            EstateInput::Tick => return self.tick(now_ms),
            EstateInput::Heard { subject, body } => match subject {
                subjects::ADVERTISE => self.advertised(now_ms, body),
                subjects::STAGING_ADVERTISE => self.staging(now_ms, body),
                subjects::HELLO => self.greeted(now_ms, body),
                subjects::SHUTDOWN => self.shut_down(now_ms, body),
                subjects::HEARTBEAT => self.heartbeat(now_ms, body),
                subjects::EXITED => self.exited(body),
                _ => None,
            },
        };
        changed.into_iter().collect()
    }

    /// Reads a body, unless it is malformed; what is wrong with it is counted.
    fn read<T: DeaBody>(
        &mut self,
        subject: &'static str,
        body: &[u8],
        sender: impl Fn(&T) -> &str,
    ) -> Option<DeaRead<T>> {
        let read: Result<DeaRead<T>, DeaMalformed> = T::read(body);
        match read {
            Ok(read) => {
                self.heard += 1;
                self.senders.odd_of(subject, sender(&read.body), &read.odd);
                Some(read)
            }
            Err(malformed) => {
                self.senders.malformed_of(subject, malformed);
                None
            }
        }
    }

    /// Returns the DEA with this id, which was heard now; none if there are too many.
    fn hear(&mut self, id: &str, now_ms: u64) -> Option<&mut Dea> {
        if self.deas.len() >= MAX_DEAS && !self.deas.contains_key(id) {
            self.dropped += 1;
            return None;
        }
        let dea = self.deas.entry(id.to_owned());
        let dea = dea.or_insert_with(|| Dea::new(now_ms));
        dea.heard_ms = now_ms;
        Some(dea)
    }

    fn advertised(&mut self, now_ms: u64, body: &[u8]) -> Option<EstateChange> {
        let read = self.read(subjects::ADVERTISE, body, |ad: &DeaAdvertisement| &ad.id)?;
        let id = read.body.id.clone();
        let expires_s = now_ms / 1_000 + self.options.expiry_s;
        let dea = self.hear(&id, now_ms)?;
        let was_live = dea.is_live(now_ms);
        let memory_mb = read.body.available().memory_mb;
        dea.most_memory_mb = dea.most_memory_mb.max(memory_mb);
        (dea.state, dea.expires_s) = (DeaState::Live, expires_s);
        (dea.advertisement, dea.odd) = (Some(read.body), read.odd);
        dea.advertised_ms = Some(now_ms);
        Some(if was_live {
            EstateChange::Advertised(id)
        } else {
            EstateChange::Joined(id)
        })
    }

    fn staging(&mut self, now_ms: u64, body: &[u8]) -> Option<EstateChange> {
        let subject = subjects::STAGING_ADVERTISE;
        let read = self.read(subject, body, |ad: &DeaStagingAdvertisement| &ad.id)?;
        let dea = self.hear(&read.body.id, now_ms)?;
        dea.staging = Some(read.body);
        None
    }

    fn greeted(&mut self, now_ms: u64, body: &[u8]) -> Option<EstateChange> {
        let read = self.read(subjects::HELLO, body, |hello: &DeaHello| &hello.id)?;
        let dea = self.hear(&read.body.id, now_ms)?;
        dea.ip = read.body.ip;
        None
    }

    /// Handles `dea.shutdown`, which is ignored for an unknown DEA.
    fn shut_down(&mut self, now_ms: u64, body: &[u8]) -> Option<EstateChange> {
        let read = self.read(subjects::SHUTDOWN, body, |down: &DeaShutdown| &down.id)?;
        let dea = self.deas.get_mut(&read.body.id)?;
        let was_live = dea.is_live(now_ms);
        (dea.state, dea.heard_ms) = (DeaState::ShutDown, now_ms);
        dea.ip = read.body.ip;
        was_live.then_some(EstateChange::Left(read.body.id, DeaState::ShutDown))
    }

    fn heartbeat(&mut self, now_ms: u64, body: &[u8]) -> Option<EstateChange> {
        let subject = subjects::HEARTBEAT;
        let read = self.read(subject, body, |beat: &DeaHeartbeat| &beat.dea)?;
        let dea = self.hear(&read.body.dea, now_ms)?;
        let mut counts = BTreeMap::new();
        for instance in &read.body.droplets {
            *counts.entry(instance.state).or_insert(0) += 1;
        }
        dea.instances = Some(counts);
        Some(EstateChange::Heartbeat(read.body))
    }

    fn exited(&mut self, body: &[u8]) -> Option<EstateChange> {
        // the message does not say which DEA sent it
        let subject = subjects::EXITED;
        let read = self.read(subject, body, |_: &DeaExited| "")?;
        Some(EstateChange::Exited(read.body))
    }

    fn tick(&mut self, now_ms: u64) -> Vec<EstateChange> {
        let mut changes = Vec::new();
        for (id, dea) in &mut self.deas {
            if dea.state == DeaState::Live && !dea.is_live(now_ms) {
                dea.state = DeaState::Silent;
                changes.push(EstateChange::Left(id.clone(), DeaState::Silent));
            }
        }
        self.deas.retain(|id, dea| {
            let silent_ms = now_ms.saturating_sub(dea.heard_ms);
            let is_gone = dea.state != DeaState::Live && silent_ms >= FORGET_MS;
            if is_gone {
                changes.push(EstateChange::Forgotten(id.clone()));
            }
            !is_gone
        });
        changes
    }
}
