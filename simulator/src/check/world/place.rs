//! A node and how it is reached.

use super::{Arrival, StateLink};
use crate::check::{
    bus::{Message, Subscription},
    node::Node,
};

pub(super) struct Place {
    pub(super) node: Box<dyn Node>,
    pub(super) subscriptions: Vec<Subscription>,
    pub(super) life: u32,
    pub(super) alive: bool,
    /// Whether it starts as soon as it has a connection.
    pub(super) starts: bool,
    pub(super) frozen: u32,
    pub(super) cut: u32,
    /// Whether the server and the node know that the connection ended.
    pub(super) noticed: bool,
    /// Whether the node is suspended and learns only later that the connection ended or is back.
    pub(super) unnoticed: bool,
    /// Number of faults that keep the program down.
    pub(super) down: u32,
    pub(super) slow_us: u64,
    pub(super) dropping: u32,
    pub(super) dropped: bool,
    /// Messages that wait for a suspended program.
    pub(super) waiting: Vec<Arrival>,
    /// Messages that wait for a connection.
    pub(super) unsent: Vec<Message>,
    pub(super) unsent_is_lost: bool,
    pub(super) wake_us: u64,
    /// The millisecond of its last timer, and the number of timers in it.
    pub(super) wakes: (u64, u32),
    /// When the last message left for the server, and arrived on each subscription.
    pub(super) up_us: u64,
    pub(super) down_us: u64,
    pub(super) subscription_us: Vec<u64>,
    /// Number of its faults in progress, and when the last one ended.
    pub(super) failing: u32,
    pub(super) mended_ms: u64,
    pub(super) link: StateLink,
}

impl Place {
    pub(super) fn new(node: Box<dyn Node>) -> Self {
        Self {
            node,
            subscriptions: Vec::new(),
            life: 0,
            alive: false,
            starts: false,
            frozen: 0,
            cut: 0,
            noticed: false,
            unnoticed: false,
            down: 0,
            slow_us: 0,
            dropping: 0,
            dropped: false,
            waiting: Vec::new(),
            unsent: Vec::new(),
            unsent_is_lost: false,
            wake_us: u64::MAX,
            wakes: (0, 0),
            up_us: 0,
            down_us: 0,
            subscription_us: Vec::new(),
            failing: 0,
            mended_ms: 0,
            link: StateLink::default(),
        }
    }

    /// Returns whether any of its faults is in progress.
    pub(super) fn fails(&self) -> bool {
        let faults = [self.frozen, self.cut, self.dropping, self.down];
        self.slow_us > 0 || faults.iter().any(|faults| *faults > 0)
    }

    /// Marks the program as ended, killed or by itself.
    pub(super) fn ends(&mut self) {
        self.alive = false;
        self.waiting.clear();
        self.unsent.clear();
        self.link.watch = None;
    }

    /// Returns when the last message from it reaches the server, or the last one for it arrives.
    pub(super) fn last_arrival_us(&self) -> u64 {
        let arrivals = self.subscription_us.iter().copied();
        arrivals.fold(self.up_us.max(self.down_us), u64::max)
    }

    pub(super) fn resubscribe(&mut self) {
        self.subscriptions = self.node.subscriptions();
        let down_us = self.down_us;
        self.subscription_us
            .resize(self.subscriptions.len(), down_us);
    }
}
