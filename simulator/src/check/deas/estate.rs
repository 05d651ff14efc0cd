//! DEAs on the bus, all on one connection.

use std::any::Any;

use advertiser::dea::{DeaMessage, FacadeOptions, SimulatedDeas, subjects};

use crate::check::{
    bus::{Message, Subscription},
    node::{Node, Outbox},
};

/// How long a DEA takes to start an instance.
const START_TAKES_MS: u64 = 2_000;

pub(super) struct EstateNode {
    pub(super) deas: SimulatedDeas,
    /// The zone of each.
    zones: Vec<String>,
    memory_mb: i64,
}

impl EstateNode {
    /// Creates `count` DEAs, in these zones in turn.
    pub(super) fn new(count: usize, zones: &[&str], memory_mb: i64) -> Self {
        let zone = |n: usize| zones[n % zones.len()].to_owned();
        let mut node = Self {
            deas: SimulatedDeas::default(),
            zones: (0..count).map(zone).collect(),
            memory_mb,
        };
        node.deas.start_takes_ms = START_TAKES_MS;
        node
    }

    /// Removes all DEAs of a zone.
    pub(super) fn lose(&mut self, zone: &str) {
        let lost = self.zones.iter().enumerate();
        for (n, _) in lost.filter(|(_, of)| *of == zone) {
            self.deas.vanish(&format!("d{n}"));
        }
    }

    fn say(said: Vec<DeaMessage>, out: &mut Outbox) {
        for DeaMessage { subject, body } in said {
            out.send(Message::new(subject, body.0));
        }
    }
}

impl Node for EstateNode {
    fn label(&self) -> &'static str {
        "estate"
    }

    fn subscriptions(&self) -> Vec<Subscription> {
        let all = [
            "dea.*.start",
            subjects::STOP,
            subjects::FIND,
            subjects::LOCATE,
            subjects::HEALTH_MANAGER_START,
        ];
        all.map(Subscription::to).into()
    }

    fn begin(&mut self, now_ms: u64, _life: u32, out: &mut Outbox) {
        out.resubscribed = true;
        for (n, zone) in self.zones.iter().enumerate() {
            let stacks = vec!["cflinuxfs2".to_owned()];
            let mut options = FacadeOptions::new(&format!("d{n}"), "10.0.0.1", stacks, n as u64);
            options.zone.clone_from(zone);
            if let Ok(greets) = self.deas.add(now_ms, options, self.memory_mb) {
                Self::say(greets, out);
            }
        }
    }

    fn die(&mut self) {}

    fn connected(&mut self, _now_ms: u64, _up: bool, _out: &mut Outbox) {}

    fn missed(&mut self, _now_ms: u64, _out: &mut Outbox) {}

    fn receive(&mut self, now_ms: u64, message: &Message, out: &mut Outbox) {
        let reply = message.reply.as_deref();
        let said = self
            .deas
            .heard(now_ms, &message.subject, reply, &message.body);
        Self::say(said, out);
    }

    fn wake(&mut self, now_ms: u64, out: &mut Outbox) {
        Self::say(self.deas.tick(now_ms), out);
    }

    fn next_ms(&self) -> u64 {
        self.deas.next_ms()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
