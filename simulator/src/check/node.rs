//! What a machine on the bus is.

use std::{any::Any, sync::Arc};

use placement::Request;
use shared::InstanceId;

use super::bus::{Message, Subscription};
use crate::bucket::{StateAnswer, StateRequest};

/// A program on the bus, under virtual time. It lives several lives: [`Node::begin`] starts one,
/// [`Node::die`] ends it at once.
pub(super) trait Node {
    /// How it is called in timelines. Two programs of one name are called differently.
    fn label(&self) -> &str;

    /// What it listens to now.
    fn subscriptions(&self) -> Vec<Subscription>;

    /// The program starts, for the `life`th time, and asks first whether its name is free.
    fn begin(&mut self, now_ms: u64, life: u32, out: &mut Outbox);

    /// The program is killed.
    fn die(&mut self);

    /// The connection to NATS ended, or is back.
    fn connected(&mut self, now_ms: u64, up: bool, out: &mut Outbox);

    /// Messages for it were lost, and it has learnt that.
    fn missed(&mut self, now_ms: u64, out: &mut Outbox);

    /// A message for it.
    fn receive(&mut self, now_ms: u64, message: &Message, out: &mut Outbox);

    /// The bucket says something to it; of managers only.
    fn state_says(&mut self, _now_ms: u64, _answer: StateAnswer, _out: &mut Outbox) {}

    /// Time passed; whatever is due is done.
    fn wake(&mut self, now_ms: u64, out: &mut Outbox);

    /// When [`Node::wake`] must be called at the latest.
    fn next_ms(&self) -> u64;

    /// For the invariants, which know the kinds of nodes.
    fn as_any(&self) -> &dyn Any;

    /// For the world, which has clients ask.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// What a node says in one step, and what the timeline is to tell of it.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) messages: Vec<Message>,
    /// For the bucket.
    pub(super) state: Vec<StateRequest>,
    /// Start requests and stops of a manager, which are among the messages.
    pub(super) starts: Vec<Arc<Request>>,
    pub(super) stops: Vec<(Arc<str>, Vec<InstanceId>)>,
    /// Of what a manager has started, stopped or stored something, other than a lease: the names and uids of apps, and
    /// the keys of the rest.
    pub(super) worked: Vec<String>,
    /// Whether notes are kept.
    pub(super) noted: bool,
    pub(super) notes: Vec<String>,
    /// Its subscriptions are others than before.
    pub(super) resubscribed: bool,
    /// Cells that count as gone now, to this node.
    pub(super) lost_cells: Vec<String>,
    /// The program ends by itself.
    pub(super) exits: bool,
}

impl Outbox {
    pub(super) fn send(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// For the timeline.
    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.noted {
            self.notes.push(text());
        }
    }
}
