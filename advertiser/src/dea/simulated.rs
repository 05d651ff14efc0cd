//! DEAs without machines, for tests, measurements and the simulator. Each is a [`Facade`] whose cell does what it is
//! told, but runs nothing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use placement::Invalid;

use super::{
    DeaBody, DeaFilter, DeaStart, Facade, FacadeEvent, FacadeInput, FacadeOptions, FacadeOutput,
    FacadeRoom, Hidden, subjects,
};

/// The subjects that all DEAs hear, besides those about an app.
const OF_ALL: [&str; 5] = [
    subjects::UPDATE,
    subjects::LOCATE,
    subjects::STATUS,
    subjects::HEALTH_MANAGER_START,
    subjects::ROUTER_START,
];

/// A message of a DEA.
#[derive(Clone, Debug, PartialEq)]
pub struct DeaMessage {
    /// Its subject.
    pub subject: String,
    /// Its body.
    pub body: Hidden<Vec<u8>>,
}

#[derive(Debug)]
struct SimulatedDea {
    facade: Facade,
    room: FacadeRoom,
    /// What it has started and not ended, by the facade's names.
    instances: BTreeMap<String, DeaStart>,
    /// While it is frozen, the messages that it was sent: subject, reply subject, body.
    unheard: Option<Vec<Told>>,
}

type Told = (String, Option<String>, Vec<u8>);

/// A set of DEAs. Times are in ms since the Unix epoch.
#[derive(Debug, Default)]
pub struct SimulatedDeas {
    /// How long an instance takes to start.
    pub start_takes_ms: u64,
    /// The least memory that a DEA ever had left, in MB; negative if memory was promised twice.
    pub least_memory_mb: i64,
    /// The number of instances ever started.
    pub started: u64,
    deas: BTreeMap<String, SimulatedDea>,
    /// When each DEA says something by itself.
    due: BTreeSet<(u64, String)>,
    /// When each starting instance runs, with its DEA and the facade's name for it.
    starting: BTreeSet<(u64, String, String)>,
}

impl SimulatedDeas {
    /// Adds a DEA with this much memory, and returns its first messages. Rejects an id that is not a valid name.
    pub fn add(
        &mut self,
        now_ms: u64,
        options: FacadeOptions,
        memory_mb: i64,
    ) -> Result<Vec<DeaMessage>, Invalid> {
        let id = options.id.clone();
        let room = FacadeRoom {
            memory: memory_mb,
            available_memory: memory_mb,
            available_disk: None,
        };
        let (facade, out) = Facade::new(options, room, now_ms)?;
        self.due.insert((facade.next_ms(), id.clone()));
        let dea = SimulatedDea {
            facade,
            room,
            instances: BTreeMap::new(),
            unheard: None,
        };
        self.deas.insert(id.clone(), dea);
        Ok(self.perform(now_ms, &id, out))
    }

    /// Handles a message to DEAs.
    pub fn heard(
        &mut self,
        now_ms: u64,
        subject: &str,
        reply: Option<&str>,
        body: &[u8],
    ) -> Vec<DeaMessage> {
        let own = subject.strip_prefix("dea.");
        let own = own.and_then(|rest| rest.strip_suffix(".start"));
        let ids: Vec<String> = match own {
            Some(id) => vec![id.to_owned()],
            None if [subjects::STOP, subjects::FIND].contains(&subject) => self.with_app(body),
            None if OF_ALL.contains(&subject) => self.deas.keys().cloned().collect(),
            // addressed to a DEA that is not one of these
            None => return Vec::new(),
        };
        let mut said = Vec::new();
        for id in ids {
            said.extend(self.one_heard(now_ms, &id, (subject, reply, body)));
        }
        said
    }

    fn one_heard(
        &mut self,
        now_ms: u64,
        id: &str,
        (subject, reply, body): (&str, Option<&str>, &[u8]),
    ) -> Vec<DeaMessage> {
        let unheard = self.deas.get_mut(id).and_then(|dea| dea.unheard.as_mut());
        if let Some(unheard) = unheard {
            unheard.push((subject.to_owned(), reply.map(str::to_owned), body.to_vec()));
            return Vec::new();
        }
        let heard = FacadeInput::Heard {
            subject,
            reply,
            body,
        };
        self.handle(now_ms, id, heard)
    }

    /// Returns the DEAs that know an instance of the app that a filter is about; the message does not concern the
    /// others.
    fn with_app(&self, body: &[u8]) -> Vec<String> {
        let Ok(filter) = DeaFilter::read(body) else {
            return Vec::new();
        };
        let app = filter.body.droplet;
        let all = self.deas.iter();
        let with = all.filter(|(_, dea)| dea.facade.has_app(&app) || dea.unheard.is_some());
        with.map(|(id, _)| id.clone()).collect()
    }

    /// Returns when [`SimulatedDeas::tick`] is due next.
    pub fn next_ms(&self) -> u64 {
        let said_ms = self.due.first().map_or(u64::MAX, |(at_ms, _)| *at_ms);
        let runs_ms = self
            .starting
            .first()
            .map_or(u64::MAX, |(at_ms, _, _)| *at_ms);
        said_ms.min(runs_ms)
    }

    /// Does what is due by now.
    pub fn tick(&mut self, now_ms: u64) -> Vec<DeaMessage> {
        let mut said = Vec::new();
        while self.starting.first().is_some_and(|first| first.0 <= now_ms)
            && let Some((_, id, key)) = self.starting.pop_first()
        {
            let event = FacadeEvent::Running(None);
            let runs = FacadeInput::Instance { key: &key, event };
            said.extend(self.handle(now_ms, &id, runs));
        }
        while self.due.first().is_some_and(|first| first.0 <= now_ms)
            && let Some((_, id)) = self.due.pop_first()
        {
            let Some(dea) = self.deas.get(&id) else {
                continue;
            };
            // a frozen one is checked again after it has thawed
            if dea.unheard.is_none() {
                said.extend(self.handle(now_ms, &id, FacadeInput::Tick));
                self.plan(now_ms, id);
            }
        }
        said
    }

    /// Empties a DEA: it takes no more work.
    pub fn evacuate(&mut self, now_ms: u64, dea: &str) -> Vec<DeaMessage> {
        self.handle(now_ms, dea, FacadeInput::Evacuate)
    }

    /// Lets the first instance of a DEA fail with exit code 3.
    pub fn crash(&mut self, now_ms: u64, dea: &str) -> Vec<DeaMessage> {
        let known = self.deas.get(dea);
        let Some(key) = known.and_then(|known| known.instances.keys().next().cloned()) else {
            return Vec::new();
        };
        self.over(now_ms, dea, &key);
        let event = FacadeEvent::Crashed {
            exit_status: 3,
            description: "exit 3".to_owned(),
        };
        self.handle(now_ms, dea, FacadeInput::Instance { key: &key, event })
    }

    /// Freezes a DEA: it says nothing, and hears messages only once it is thawed. What runs there continues.
    pub fn freeze(&mut self, dea: &str) {
        if let Some(dea) = self.deas.get_mut(dea) {
            dea.unheard.get_or_insert_default();
        }
    }

    /// Returns how many starts a frozen DEA was sent and has not heard yet.
    #[must_use]
    pub fn unheard_starts(&self, dea: &str) -> usize {
        let unheard = self.deas.get(dea).and_then(|dea| dea.unheard.as_ref());
        let told = unheard.into_iter().flatten();
        told.filter(|(subject, ..)| subject.strip_suffix(".start").is_some())
            .count()
    }

    /// Thaws a frozen DEA.
    pub fn thaw(&mut self, now_ms: u64, dea: &str) -> Vec<DeaMessage> {
        let known = self.deas.get_mut(dea);
        let unheard = known.and_then(|known| known.unheard.take());
        let mut said = Vec::new();
        for (subject, reply, body) in unheard.into_iter().flatten() {
            let told = (subject.as_str(), reply.as_deref(), &body[..]);
            said.extend(self.one_heard(now_ms, dea, told));
        }
        self.plan(now_ms, dea.to_owned());
        said
    }

    /// Schedules what the DEA says by itself.
    fn plan(&mut self, now_ms: u64, id: String) {
        if let Some(dea) = self.deas.get(&id) {
            self.due.insert((dea.facade.next_ms().max(now_ms + 1), id));
        }
    }

    /// Removes a DEA's machine with everything that it ran. It says nothing.
    pub fn vanish(&mut self, dea: &str) {
        self.deas.remove(dea);
        self.due.retain(|(_, id)| id != dea);
        self.starting.retain(|(_, id, _)| id != dea);
    }

    /// Returns what was started and has not ended, with its DEA.
    pub fn instances(&self) -> impl Iterator<Item = (&str, &DeaStart)> {
        self.deas.iter().flat_map(|(id, dea)| {
            let starts = dea.instances.values();
            starts.map(move |start| (id.as_str(), start))
        })
    }

    fn handle(&mut self, now_ms: u64, id: &str, input: FacadeInput<'_>) -> Vec<DeaMessage> {
        let Some(dea) = self.deas.get_mut(id) else {
            return Vec::new();
        };
        let out = dea.facade.handle(now_ms, input);
        self.perform(now_ms, id, out)
    }

    /// Carries out what a facade wants from its cell.
    fn perform(&mut self, now_ms: u64, id: &str, out: Vec<FacadeOutput>) -> Vec<DeaMessage> {
        let mut said = Vec::new();
        let mut left = VecDeque::from(out);
        while let Some(output) = left.pop_front() {
            match output {
                FacadeOutput::Publish { subject, body } => said.push(DeaMessage { subject, body }),
                FacadeOutput::Start { key, start } => {
                    self.begun(now_ms, id, &key, *start);
                    left.extend(self.tell(now_ms, id, &key, FacadeEvent::Accepted));
                    if self.start_takes_ms == 0 {
                        left.extend(self.tell(now_ms, id, &key, FacadeEvent::Running(None)));
                    }
                }
                // simulated DEAs do not advertise staging
                FacadeOutput::Stage { .. } => {}
                FacadeOutput::Stop { key } => {
                    self.over(now_ms, id, &key);
                    left.extend(self.tell(now_ms, id, &key, FacadeEvent::Stopped));
                }
            }
        }
        said
    }

    fn tell(&mut self, now_ms: u64, id: &str, key: &str, event: FacadeEvent) -> Vec<FacadeOutput> {
        let Some(dea) = self.deas.get_mut(id) else {
            return Vec::new();
        };
        let input = FacadeInput::Instance { key, event };
        dea.facade.handle(now_ms, input)
    }

    fn begun(&mut self, now_ms: u64, id: &str, key: &str, start: DeaStart) {
        let Some(dea) = self.deas.get_mut(id) else {
            return;
        };
        dea.room.available_memory -= start.limits.mem;
        self.started += 1;
        self.least_memory_mb = self.least_memory_mb.min(dea.room.available_memory);
        dea.instances.insert(key.to_owned(), start);
        dea.facade.handle(now_ms, FacadeInput::Room(dea.room));
        if self.start_takes_ms > 0 {
            let runs_ms = now_ms + self.start_takes_ms;
            let starting = (runs_ms, id.to_owned(), key.to_owned());
            self.starting.insert(starting);
        }
    }

    fn over(&mut self, now_ms: u64, id: &str, key: &str) {
        self.starting.retain(|(_, _, of)| of != key);
        let Some(dea) = self.deas.get_mut(id) else {
            return;
        };
        let memory_mb = dea
            .instances
            .remove(key)
            .map_or(0, |start| start.limits.mem);
        dea.room.available_memory += memory_mb;
        dea.facade.handle(now_ms, FacadeInput::Room(dea.room));
    }
}
