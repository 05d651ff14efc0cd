//! Starts in flight, and the instances whose cells did not answer in time.

use std::{collections::VecDeque, sync::Arc};

use placement::FastMap;

use crate::{ids::DispatchId, ticket::Slot};
use shared::{AuctionId, InstanceId, RequestId};

/// How long a start waits for its answer.
pub const START_WAIT_MS: u64 = 1_000;
/// The most unknown instances whose late answers are awaited.
const MAX_UNSETTLED: usize = 100_000;

/// A start in flight.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) cell: Arc<str>,
    pub(crate) auction: AuctionId,
    pub(crate) jobs: Vec<(Slot, InstanceId)>,
}

/// An instance whose request was answered `unknown`.
#[derive(Clone, Debug)]
pub(crate) struct Unsettled {
    pub(crate) request: RequestId,
    pub(crate) app: Arc<str>,
    pub(crate) index: u32,
    pub(crate) cell: Arc<str>,
    pub(crate) auction: AuctionId,
}

/// Starts that have not been answered yet.
#[derive(Debug, Default)]
pub(crate) struct Dispatches {
    sent: FastMap<DispatchId, Dispatch>,
    /// When each start is given up, in order of time, because all wait equally long.
    ends: VecDeque<(u64, DispatchId)>,
    /// How many of the last entries were added since [`Dispatches::sent`].
    fresh: usize,
    unsettled: FastMap<InstanceId, Unsettled>,
    unsettled_order: VecDeque<InstanceId>,
    next: u64,
}

impl Dispatches {
    /// Records a start that is sent now.
    pub(crate) fn add(&mut self, now_ms: u64, dispatch: Dispatch) -> DispatchId {
        self.next += 1;
        let id = DispatchId::new(self.next);
        self.ends.push_back((now_ms + START_WAIT_MS, id));
        // not sent yet: the machine is still deciding, and its driver calls `sent` when the messages leave
        self.fresh += 1;
        self.sent.insert(id, dispatch);
        id
    }

    /// Records that the starts added since the last call leave only now: deciding may have taken long.
    pub(crate) fn sent(&mut self, now_ms: u64) {
        let fresh = std::mem::take(&mut self.fresh);
        for (at_ms, _) in self.ends.iter_mut().rev().take(fresh) {
            *at_ms = (*at_ms).max(now_ms + START_WAIT_MS);
        }
    }

    /// Removes and returns the start that the cell answered; none if it is not in flight (any more) or went to another
    /// cell.
    pub(crate) fn answered_by(&mut self, id: DispatchId, cell: &str) -> Option<Dispatch> {
        // an answer that names another cell does not belong to this start
        let ours = self.sent.get(&id)?.cell.as_ref() == cell;
        if ours { self.sent.remove(&id) } else { None }
    }

    /// Removes and returns a start that could not be delivered.
    pub(crate) fn undelivered(&mut self, id: DispatchId) -> Option<Dispatch> {
        self.sent.remove(&id)
    }

    /// Removes and returns the next start whose answer is overdue.
    pub(crate) fn next_unanswered(&mut self, now_ms: u64) -> Option<Dispatch> {
        while let Some((_, id)) = self.ends.front().filter(|(at_ms, _)| *at_ms <= now_ms) {
            let id = *id;
            self.ends.pop_front();
            let dispatch = self.sent.remove(&id);
            // entries of answered starts stay in the list until their time comes: cheaper than searching for them
            if dispatch.is_some() {
                return dispatch;
            }
        }
        None
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Returns when the next answer becomes overdue.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.ends.front().map(|(at_ms, _)| *at_ms)
    }

    /// Waits for a late answer, or the cell's next advertisement, to settle this instance.
    pub(crate) fn await_late(&mut self, instance: InstanceId, unsettled: Unsettled) {
        self.unsettled.insert(instance, unsettled);
        self.unsettled_order.push_back(instance);
        if self.unsettled_order.len() > MAX_UNSETTLED
            && let Some(oldest) = self.unsettled_order.pop_front()
        {
            self.unsettled.remove(&oldest);
        }
    }

    /// Settles an unknown instance; returns none if it was not unknown.
    pub(crate) fn settle(&mut self, instance: InstanceId) -> Option<Unsettled> {
        self.unsettled.remove(&instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dispatch(cell: &str) -> Dispatch {
        Dispatch {
            cell: cell.into(),
            auction: AuctionId::nil(),
            jobs: Vec::new(),
        }
    }

    #[test]
    fn only_the_cell_that_it_was_sent_to_answers_a_start_and_once() {
        let mut dispatches = Dispatches::default();
        let id = dispatches.add(0, dispatch("c1"));
        assert!(dispatches.answered_by(id, "c2").is_none());
        assert!(!dispatches.is_empty());
        assert!(dispatches.answered_by(id, "c1").is_some());
        assert!(dispatches.answered_by(id, "c1").is_none());
        assert!(dispatches.is_empty());
    }

    #[test]
    fn an_answer_is_overdue_after_its_time_and_not_when_it_came() {
        let mut dispatches = Dispatches::default();
        let first = dispatches.add(10, dispatch("c1"));
        dispatches.add(20, dispatch("c2"));
        assert_eq!(dispatches.next_ms(), Some(10 + START_WAIT_MS));
        assert!(dispatches.next_unanswered(9 + START_WAIT_MS).is_none());
        assert!(dispatches.undelivered(first).is_some());
        assert!(dispatches.next_unanswered(19 + START_WAIT_MS).is_none());
        let overdue = dispatches.next_unanswered(20 + START_WAIT_MS);
        assert_eq!(overdue.map(|d| d.cell.to_string()).as_deref(), Some("c2"));
        assert_eq!(dispatches.next_ms(), None);
    }

    #[test]
    fn the_wait_begins_when_the_start_is_sent() {
        let mut dispatches = Dispatches::default();
        dispatches.add(0, dispatch("c1"));
        dispatches.sent(5);
        dispatches.add(10, dispatch("c2"));
        dispatches.add(10, dispatch("c3"));
        // deciding took two seconds
        dispatches.sent(2_010);
        assert_eq!(dispatches.next_ms(), Some(5 + START_WAIT_MS));
        assert!(dispatches.next_unanswered(5 + START_WAIT_MS).is_some());
        assert!(dispatches.next_unanswered(2_009 + START_WAIT_MS).is_none());
        assert!(dispatches.next_unanswered(2_010 + START_WAIT_MS).is_some());
        assert!(dispatches.next_unanswered(2_010 + START_WAIT_MS).is_some());
    }

    #[test]
    fn the_oldest_unknown_instances_are_given_up_when_there_are_too_many() {
        let mut dispatches = Dispatches::default();
        let id = |n: usize| InstanceId::from_u128(n as u128);
        let unsettled = Unsettled {
            request: "r".parse().unwrap(),
            app: "web".into(),
            index: 0,
            cell: "c1".into(),
            auction: AuctionId::nil(),
        };
        for n in 0..MAX_UNSETTLED {
            dispatches.await_late(id(n), unsettled.clone());
        }
        assert_eq!(dispatches.unsettled.len(), MAX_UNSETTLED);
        dispatches.await_late(id(MAX_UNSETTLED), unsettled);
        assert!(dispatches.settle(id(0)).is_none());
        assert!(dispatches.settle(id(1)).is_some());
        assert!(dispatches.settle(id(1)).is_none());
    }
}
