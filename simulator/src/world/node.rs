//! One auctioneer: the production machine, its timers and its warm-up.

use auctioneer::{Auctioneer, AuctioneerInput, AuctioneerOutput, ECHO_MS, Grant, Standing, WarmUp};

use super::{Event, WARM_UP_US, World, messages::ToCell, traffic::Kind};
use crate::random::Random;

/// Interval between two echoes.
const ECHO_US: u64 = ECHO_MS * 1_000;

/// An auctioneer.
#[derive(Debug, Default)]
pub(super) struct SimAuctioneer {
    /// None while it is down.
    pub(super) machine: Option<Auctioneer>,
    /// Increases with every restart.
    pub(super) life: u32,
    warm_up: WarmUp,
    /// Whether it accepts requests.
    pub(super) joined: bool,
    /// With `single`.
    pub(super) grant: Option<Grant>,
    /// What the machine was told of it last.
    standing: Standing,
    /// The time of its next timer in the event queue.
    wake_us: u64,
    /// In aggregated mode: when leases were last renewed.
    pub(super) renewed_ms: u64,
    pub(super) auctions: u64,
}

impl SimAuctioneer {
    pub(super) fn is_up(&self) -> bool {
        self.machine.is_some()
    }

    /// Whether the server delivers requests to it.
    pub(super) fn takes_requests(&self, now_ms: u64) -> bool {
        let granted = self.grant.as_ref();
        self.joined && self.is_up() && granted.is_none_or(|grant| grant.takes_requests(now_ms))
    }
}

impl World<'_> {
    pub(super) fn start_auctioneer(&mut self, n: usize) {
        let life = self.nodes[n].life + 1;
        let root = Random::new(self.settings.seed);
        let mut random = root.fork("auctioneer", ((n as u64) << 32) | u64::from(life));
        let wall_start_ms =
            self.scenario.base.now_ms - i64::try_from(WARM_UP_US / 1_000).unwrap_or(0);
        let mut machine = Auctioneer::new(auctioneer::Settings {
            name: format!("auctioneer-{n}"),
            policy: self.policy.clone(),
            limits: auctioneer::Limits::MOST,
            max_payload: super::messages::MAX_PAYLOAD,
            seed: random.next(),
            wall_start_ms,
        });
        // announcements distinguish repeats by clients, and nothing was requested before the run
        machine.trust_ids();
        self.nodes[n] = SimAuctioneer {
            machine: Some(machine),
            life,
            grant: self
                .scenario
                .single
                .then(|| Grant::new(format!("{n}-{life}"))),
            wake_us: u64::MAX,
            renewed_ms: self.now_ms(),
            auctions: self.nodes[n].auctions,
            ..SimAuctioneer::default()
        };
        self.discover(n);
        self.at(self.now_us, Event::Echo(n, life));
        self.step(n, None);
    }

    /// Has the auctioneer ask every cell to advertise.
    pub(super) fn discover(&mut self, n: usize) {
        if self.away > 0 {
            return;
        }
        self.counts.sent(Kind::Discover, 1);
        let bytes = r#"{"v":1}"#.len() as u64;
        for c in 0..self.cells.len() {
            self.send_cell(n, c, bytes, ToCell::Discover);
        }
    }

    pub(super) fn echo(&mut self, n: usize, life: u32) {
        if self.nodes[n].life != life || !self.nodes[n].is_up() {
            return;
        }
        let warm = self.now_us < WARM_UP_US;
        if self.aggregated && !warm && self.now_ms() >= self.alert_ms {
            return; // counted at the end
        }
        if self.away == 0 {
            if !self.aggregated {
                self.counts.sent(Kind::Echo, 1);
                self.counts.delivered(Kind::Echo, 1, 0);
            }
            self.step(n, Some(AuctioneerInput::Echo));
        }
        self.at(self.now_us + ECHO_US, Event::Echo(n, life));
    }

    pub(super) fn wake(&mut self, n: usize) {
        if self.nodes[n].wake_us == self.now_us {
            self.nodes[n].wake_us = u64::MAX;
            self.step(n, None);
        }
    }

    /// Passes an input to the machine, does what is due, and carries out its outputs.
    pub(super) fn step(&mut self, n: usize, input: Option<AuctioneerInput>) {
        self.renew_if_aggregated(n);
        let now_ms = self.now_ms();
        let node = &mut self.nodes[n];
        let Some(machine) = &mut node.machine else {
            return;
        };
        let standing = node.grant.as_ref().map(|grant| grant.standing(now_ms));
        let standing = standing.unwrap_or_default();
        if std::mem::replace(&mut node.standing, standing) != standing {
            machine.take(now_ms, AuctioneerInput::Standing(standing));
        }
        if let Some(input) = input {
            machine.take(now_ms, input);
        }
        let outputs = machine.run(now_ms);
        if !node.joined && node.warm_up.is_over(now_ms, machine.feed().pool().len()) {
            node.joined = true;
            machine.warmed_up();
        }
        for output in outputs {
            if let AuctioneerOutput::AuctionHeld { .. } = output {
                self.nodes[n].auctions += 1;
            }
            self.carry_out(n, output);
        }
        self.ask_for_grant(n);
        self.plan_wake(n);
    }

    fn plan_wake(&mut self, n: usize) {
        let now_ms = self.now_ms();
        let node = &mut self.nodes[n];
        let Some(machine) = &node.machine else {
            return;
        };
        let mut wake_ms = if self.aggregated {
            machine.next_work_ms()
        } else {
            machine.next_wake_ms()
        };
        if !node.joined {
            wake_ms = wake_ms.min(node.warm_up.next_ms(now_ms));
        }
        if let Some(grant) = &node.grant {
            wake_ms = wake_ms.min(grant.next_ms(now_ms));
        }
        if wake_ms == u64::MAX {
            return;
        }
        let wake_us = (wake_ms * 1_000).max(self.now_us);
        if wake_us < node.wake_us {
            node.wake_us = wake_us;
            self.at(wake_us, Event::Wake(n));
        }
    }
}
