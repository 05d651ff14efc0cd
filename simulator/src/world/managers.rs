//! Managers: the production machine, its timers, and its messages.

use std::collections::BTreeMap;

use manager::{CellHeard, CommandKey, ManagerInput, ManagerSettings, QuestionId};
use shared::wire::{Advert, ErrorBody, Event as CellEvent, StartReply, WireError, code, to_bytes};

use super::{
    Event, World,
    messages::{MAX_PAYLOAD, Message, ToCell, ToManager, Wave},
    traffic::{Kind, written},
};
use crate::{
    bucket::StateAnswer,
    manager_driver::{ECHO_MS, ManagerDriver, ManagerSends},
    outcome::Traffic,
    random::Random,
};

/// Interval between two echoes.
const ECHO_US: u64 = ECHO_MS * 1_000;
/// A manager.
#[derive(Debug, Default)]
pub(super) struct SimManager {
    /// None while it is down.
    pub(super) driver: Option<ManagerDriver>,
    /// Increases with every restart.
    pub(super) life: u32,
    /// The time of its next timer in the event queue.
    wake_us: u64,
    /// The watch to which the bucket shows changes.
    pub(super) watch: Option<u64>,
    /// When the last message to the bucket arrives there, and the last one of each kind from it.
    pub(super) asks_us: u64,
    pub(super) ended_us: u64,
    pub(super) shown_us: u64,
    /// Commands that it has not answered yet.
    pub(super) commands: BTreeMap<CommandKey, usize>,
    pub(super) keys: u64,
}

impl World<'_> {
    pub(super) fn start_manager(&mut self, m: usize) {
        let life = self.managers[m].life + 1;
        let root = Random::new(self.settings.seed);
        let mut random = root.fork("manager", ((m as u64) << 32) | u64::from(life));
        let settings = ManagerSettings {
            holder: format!("manager-{m}-{life}"),
            seed: random.next(),
        };
        self.managers[m] = SimManager {
            driver: Some(ManagerDriver::new(self.now_ms(), settings)),
            life,
            wake_us: u64::MAX,
            ..SimManager::default()
        };
        self.discover(self.nodes.len() + m);
        self.at(self.now_us, Event::ManagerEcho(m, life));
        self.act(m, |driver, now_ms| vec![driver.watch(now_ms)]);
    }

    /// Kills the manager: messages in transit to it are lost.
    pub(super) fn end_manager(&mut self, m: usize) {
        let manager = &mut self.managers[m];
        (manager.driver, manager.watch) = (None, None);
        manager.life += 1;
        manager.commands.clear();
    }

    /// Lets the manager act and sends its messages.
    pub(super) fn act(
        &mut self,
        m: usize,
        act: impl FnOnce(&mut ManagerDriver, u64) -> Vec<ManagerSends>,
    ) {
        let now_ms = self.now_ms();
        let Some(driver) = &mut self.managers[m].driver else {
            return;
        };
        for sends in act(driver, now_ms) {
            self.manager_sends(m, sends);
        }
        let manager = &mut self.managers[m];
        let next_ms = manager
            .driver
            .as_ref()
            .map_or(u64::MAX, ManagerDriver::next_ms);
        let next_us = next_ms.saturating_mul(1_000).max(self.now_us + 1);
        if next_us < manager.wake_us && next_us < u64::MAX / 2 {
            manager.wake_us = next_us;
            self.at(next_us, Event::ManagerWake(m));
        }
    }

    pub(super) fn manager_wakes(&mut self, m: usize) {
        if self.managers[m].wake_us == self.now_us {
            self.managers[m].wake_us = u64::MAX;
            self.act(m, ManagerDriver::due);
        }
    }

    pub(super) fn manager_echo(&mut self, m: usize, life: u32) {
        if self.managers[m].life != life || self.managers[m].driver.is_none() {
            return;
        }
        if self.away == 0 {
            self.act(m, |driver, now_ms| {
                driver.step(now_ms, Some(ManagerInput::Echo))
            });
        }
        self.at(self.now_us + ECHO_US, Event::ManagerEcho(m, life));
    }

    fn manager_sends(&mut self, m: usize, sends: ManagerSends) {
        self.managers_traffic.sent += 1;
        let life = self.managers[m].life;
        let sender = self.nodes.len() + m;
        match sends {
            ManagerSends::State(request) => self.ask_bucket(m, request),
            ManagerSends::Start { number, request } => {
                self.counts.sent(Kind::ManagerRequest, 1);
                if self.away > 0 {
                    return;
                }
                let body = to_bytes(&*request);
                if let Some(at_us) = self.travel() {
                    let wave = (m, life, number);
                    self.fly(at_us, Message::Wave(wave, body));
                }
            }
            ManagerSends::Stop { cell, stop } => {
                self.counts.sent(Kind::ManagerStop, 1);
                if let Some(c) = self.by_name.get(&cell).copied() {
                    let bytes = to_bytes(&stop).len() as u64;
                    self.send_cell(sender, c, bytes, ToCell::ManagerStop(Box::new(stop)));
                }
            }
            ManagerSends::Ask(question) => {
                self.counts.sent(Kind::InstancesRequest, 1);
                for c in 0..self.cells.len() {
                    self.send_cell(sender, c, 2, ToCell::List(question));
                }
            }
            ManagerSends::Event(_) => self.counts.sent(Kind::Event, 1),
            ManagerSends::Moved { to, answer } => self.move_answered(to, &answer),
            ManagerSends::Reply { to, answer } => {
                if let Some(command) = self.managers[m].commands.remove(&to) {
                    self.command_reply(command, answer);
                }
            }
        }
    }

    /// Delivers a manager's start request to one of the auctioneers that accept requests.
    pub(super) fn admit_wave(&mut self, wave: Wave, body: &[u8]) {
        if self.away > 0 {
            return;
        }
        let ready = self.ready_auctioneers();
        if ready.is_empty() {
            let error = WireError::new(code::OVERLOADED, "no auctioneer accepts requests");
            return self.wave_answered(wave, Err(error), 0);
        }
        let n = ready[self.client.random.place(ready.len())];
        self.counts
            .delivered(Kind::ManagerRequest, 1, body.len() as u64);
        let reply = self.waves.add(wave);
        let input =
            auctioneer::admission::read_simulated_start(self.policy, body, Some(reply), || {
                super::uuid(&mut self.client.random)
            });
        self.step(n, Some(input));
    }

    /// Sends an auctioneer's answer to a manager.
    pub(super) fn reply_to_manager(&mut self, wave: Wave, body: &[u8]) {
        let answer = match serde_json::from_slice::<StartReply>(body) {
            Ok(reply) => Ok(Box::new(reply)),
            Err(_) => match serde_json::from_slice::<ErrorBody>(body) {
                Ok(refused) => Err(refused.error),
                Err(_) => return,
            },
        };
        self.counts.sent(Kind::ManagerReply, 1);
        if self.away == 0 {
            self.wave_answered(wave, answer, body.len() as u64);
        }
    }

    fn wave_answered(
        &mut self,
        (m, life, number): Wave,
        answer: Result<Box<StartReply>, WireError>,
        bytes: u64,
    ) {
        if self.managers[m].life == life
            && let Some(at_us) = self.travel()
        {
            let what = ToManager::Started(number, answer);
            self.fly_to_manager(at_us, m, Kind::ManagerReply, bytes, what);
        }
    }

    /// Sends a cell's message to all managers.
    fn tell_managers(&mut self, c: usize, kind: Kind, bytes: u64, what: impl Fn() -> ToManager) {
        for m in 0..self.managers.len() {
            self.tell_manager(c, m, kind, bytes, what());
        }
    }

    /// Sends a cell's message to one manager.
    pub(super) fn tell_manager(
        &mut self,
        c: usize,
        m: usize,
        kind: Kind,
        bytes: u64,
        what: ToManager,
    ) {
        let Some(at_us) = self.travel() else {
            return;
        };
        let last_us = &mut self.to_manager_us[c * self.managers.len() + m];
        *last_us = at_us.max(*last_us);
        let at_us = *last_us;
        self.fly_to_manager(at_us, m, kind, bytes, what);
    }

    pub(super) fn fly_to_manager(
        &mut self,
        at_us: u64,
        m: usize,
        kind: Kind,
        bytes: u64,
        what: ToManager,
    ) {
        let message = Message::Manager {
            manager: m,
            life: self.managers[m].life,
            kind,
            bytes,
            what: Box::new(what),
        };
        self.fly(at_us, message);
    }

    /// Handles a message that reaches a manager.
    pub(super) fn manager_hears(
        &mut self,
        (m, life): (usize, u32),
        kind: Kind,
        bytes: u64,
        what: ToManager,
    ) {
        if self.away > 0 || self.managers[m].life != life || self.managers[m].driver.is_none() {
            return;
        }
        self.counts.delivered(kind, 1, bytes);
        add(&mut self.managers_traffic, bytes);
        match what {
            ToManager::Input(input) => {
                self.act(m, |driver, now_ms| driver.step(now_ms, Some(*input)));
            }
            ToManager::Lists(question, lists) => {
                for list in lists {
                    let list = Box::new(list);
                    let input = ManagerInput::Listed { question, list };
                    self.act(m, |driver, now_ms| driver.step(now_ms, Some(input)));
                }
            }
            ToManager::Started(number, answer) => {
                self.act(m, |driver, now_ms| {
                    let outcome = driver.started(number, answer);
                    driver.step(now_ms, outcome)
                });
            }
            ToManager::State(answer) => {
                self.act(m, |driver, now_ms| driver.state_says(now_ms, answer));
            }
        }
    }

    /// Sends a cell's advertisement to the managers.
    pub(super) fn managers_hear_advert(&mut self, c: usize, advert: &Advert, bytes: u64) {
        let heard = || CellHeard {
            cell: advert.cell.cell.clone(),
            incarnation: advert.incarnation,
            seq: advert.seq,
            ttl: advert.ttl,
            // a cordoned cell keeps its instances
            draining: advert.cell.evacuating && !advert.cell.cordoned,
            leaving: advert.leaving,
            recent: advert.recent.clone(),
        };
        let what = || ToManager::Input(Box::new(ManagerInput::Cell(heard())));
        self.tell_managers(c, Kind::Advertisement, bytes, what);
    }

    /// … and its event.
    pub(super) fn managers_hear_event(&mut self, c: usize, mut event: Box<CellEvent>) {
        if self.managers.is_empty() {
            return;
        }
        event.by = self.cells[c].name.to_string();
        let bytes = written(&*event);
        let what = || ToManager::Input(Box::new(ManagerInput::Event(event.clone())));
        self.tell_managers(c, Kind::Event, bytes, what);
    }

    /// Sends a cell's heartbeat; only managers listen.
    pub(super) fn heartbeat(&mut self, c: usize, life: u32) {
        if self.cells[c].life != life || self.cells[c].down > 0 {
            return;
        }
        if self.cells[c].is_there() && self.away == 0 {
            let lists = self.cells[c].heartbeat(self.now_ms());
            self.counts.sent(Kind::Heartbeat, lists.len() as u64);
            let bytes = lists.iter().map(written).sum();
            let what = || ToManager::Lists(None, lists.clone());
            self.tell_managers(c, Kind::Heartbeat, bytes, what);
        }
        let next_us = self.now_us + super::HEARTBEAT_MS * 1_000;
        self.at(next_us, Event::Heartbeat(c, life));
    }

    /// Sends a cell's answer to a manager's question.
    pub(super) fn list_for_manager(
        &mut self,
        c: usize,
        (sender, life): (usize, u32),
        question: QuestionId,
    ) {
        let now_ms = self.now_ms();
        let m = sender - self.nodes.len();
        let machine = self.cells[c].machine();
        let Ok(answers) = machine.instances(now_ms, b"", MAX_PAYLOAD) else {
            return;
        };
        self.counts.sent(Kind::Instances, answers.len() as u64);
        if self.managers[m].life == life {
            let bytes = answers.iter().map(written).sum();
            let what = ToManager::Lists(Some(question), answers);
            self.tell_manager(c, m, Kind::Instances, bytes, what);
        }
    }

    /// Tells the managers that NATS is down, or back: then everything begins again.
    pub(super) fn managers_connected(&mut self, up: bool) {
        for m in 0..self.managers.len() {
            let watch = self.managers[m].watch.take();
            self.act(m, |driver, now_ms| {
                let mut sent = driver.step(now_ms, Some(ManagerInput::Interrupted));
                if up {
                    sent.push(driver.watch(now_ms));
                } else if let Some(watch) = watch {
                    sent.extend(driver.state_says(now_ms, StateAnswer::Broken { watch }));
                }
                sent
            });
            if up && self.managers[m].driver.is_some() {
                self.discover(self.nodes.len() + m);
            }
        }
    }
}

pub(super) fn add(traffic: &mut Traffic, bytes: u64) {
    traffic.delivered += 1;
    traffic.bytes += bytes;
}
