//! The interface of a machine on the bus.

use std::{any::Any, sync::Arc};

use placement::Request;
use shared::InstanceId;

use super::bus::{Message, Subscription};
use crate::bucket::{StateAnswer, StateRequest};

/// A program on the bus, under virtual time. It lives several lives: [`Node::begin`] starts one,
/// [`Node::die`] ends it at once.
pub(super) trait Node {
    /// Returns its name in timelines. Two programs of one name have different labels.
    fn label(&self) -> &str;

    /// Returns its present subscriptions.
    fn subscriptions(&self) -> Vec<Subscription>;

    /// Starts the program for the `life`th time. It first asks whether its name is free.
    fn begin(&mut self, now_ms: u64, life: u32, out: &mut Outbox);

    /// Kills the program.
    fn die(&mut self);

    /// Tells it that the connection to NATS ended or is back.
    fn connected(&mut self, now_ms: u64, up: bool, out: &mut Outbox);

    /// Tells it that messages for it were lost.
    fn missed(&mut self, now_ms: u64, out: &mut Outbox);

    /// Passes a message to it.
    fn receive(&mut self, now_ms: u64, message: &Message, out: &mut Outbox);

    /// Passes a message of the bucket to it; only managers get these.
    fn state_says(&mut self, _now_ms: u64, _answer: StateAnswer, _out: &mut Outbox) {}

    /// Does whatever is due, as time passed.
    fn wake(&mut self, now_ms: u64, out: &mut Outbox);

    /// Returns by when [`Node::wake`] must be called.
    fn next_ms(&self) -> u64;

    /// Allows the invariants to access the kinds of nodes.
    fn as_any(&self) -> &dyn Any;

    /// Allows the world to have clients ask.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// The messages of a node in one step, and notes for the timeline.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) messages: Vec<Message>,
    /// Requests to the bucket.
    pub(super) state: Vec<StateRequest>,
    /// Start requests and stops of a manager, which are also among the messages.
    pub(super) starts: Vec<Arc<Request>>,
    pub(super) stops: Vec<(Arc<str>, Vec<InstanceId>)>,
    /// What a manager has started, stopped or stored something for, other than a lease: the names and uids of apps, and
    /// the other keys.
    pub(super) worked: Vec<String>,
    /// Whether notes are kept.
    pub(super) noted: bool,
    pub(super) notes: Vec<String>,
    /// Whether its subscriptions have changed.
    pub(super) resubscribed: bool,
    /// Cells that now count as gone for this node.
    pub(super) lost_cells: Vec<String>,
    /// Whether the program ends by itself.
    pub(super) exits: bool,
}

impl Outbox {
    pub(super) fn send(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Adds a note to the timeline.
    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.noted {
            self.notes.push(text());
        }
    }
}
