//! What was started although it may have been begun before.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use shared::RequestId;

use crate::ticket::Begun;

/// The most requests.
const MAX_RESTARTED: usize = 10_000;

/// The requests that were begun here after the cells were asked for them; the oldest are forgotten.
#[derive(Debug, Default)]
pub(super) struct Restarted {
    pub(super) begun: BTreeMap<RequestId, Arc<Begun>>,
    order: VecDeque<RequestId>,
    /// A cell has joined: they are looked for again.
    pub(super) look: bool,
}

impl Restarted {
    pub(super) fn add(&mut self, id: RequestId, begun: Arc<Begun>) {
        if self.begun.insert(id.clone(), begun).is_none() {
            self.order.push_back(id);
        }
        if self.order.len() > MAX_RESTARTED
            && let Some(oldest) = self.order.pop_front()
        {
            self.begun.remove(&oldest);
        }
    }
}
