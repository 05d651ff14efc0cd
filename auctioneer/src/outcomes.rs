//! Outcomes of requests, ours and other auctioneers': a repeated request gets the same answer.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use placement::{Invalid, MAX_INSTANCES, Request};
use shared::RequestId;
use shared::wire::{Outcome, StartReply, WireError, parse_indices, to_bytes};

use crate::{fast_map::FastMap, ticket::Answer};

/// How long an outcome is remembered.
pub const REMEMBER_MS: u64 = 120_000;
/// The most outcomes.
pub const MAX_OUTCOMES: usize = 100_000;
/// The most bytes of outcomes.
const MAX_BYTES: usize = 64 << 20;

/// The remembered requests.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    known: FastMap<RequestId, Option<Bytes>>,
    order: VecDeque<(u64, RequestId)>,
    bytes: usize,
    /// Outcomes dropped early.
    dropped: u64,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Its outcome.
    Ended(Bytes),
    /// An auctioneer has announced it, and its outcome has not arrived.
    Announced,
}

impl Outcomes {
    /// How many were dropped early.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What is known of this request.
    pub(crate) fn get(&self, id: &str) -> Option<Seen> {
        self.known.get(id).map(|body| match body {
            Some(body) => Seen::Ended(body.clone()),
            None => Seen::Announced,
        })
    }

    /// An auctioneer announced the request.
    pub(crate) fn announced(&mut self, now_ms: u64, id: &RequestId) {
        if !self.known.contains_key(id) {
            self.known.insert(id.clone(), None);
            self.order.push_back((now_ms, id.clone()));
            self.prune(now_ms);
        }
    }

    /// Records the request's outcome. The first one stays, unless a later one is `settled`.
    pub(crate) fn ended(&mut self, now_ms: u64, id: &RequestId, body: &Bytes, settled: bool) {
        match self.known.get_mut(id) {
            Some(Some(_)) if !settled => return,
            Some(known) => {
                let old = known.replace(body.clone()).map_or(0, |old| old.len());
                self.bytes = self.bytes + body.len() - old;
            }
            None => {
                self.known.insert(id.clone(), Some(body.clone()));
                self.order.push_back((now_ms, id.clone()));
                self.bytes += body.len();
            }
        }
        self.prune(now_ms);
    }

    /// Forgets what is too old, and the oldest if there is too much.
    pub(crate) fn prune(&mut self, now_ms: u64) {
        while let Some((at_ms, id)) = self.order.front() {
            let old = now_ms.saturating_sub(*at_ms) >= REMEMBER_MS;
            let full = self.order.len() > MAX_OUTCOMES || self.bytes > MAX_BYTES;
            if !old && !full {
                return;
            }
            self.dropped += u64::from(!old);
            let dropped = self.known.remove(id).flatten();
            self.bytes -= dropped.map_or(0, |body| body.len());
            self.order.pop_front();
        }
    }
}

impl Answer {
    /// The outcome of an earlier request with this id. If that was for another app, an error; if it
    /// has other instances, a warning is added as far as `max_bytes` allow.
    pub(crate) fn remembered(
        id: &RequestId,
        request: &Request,
        body: Bytes,
        max_bytes: usize,
    ) -> Result<Self, WireError> {
        let mut answer = Self {
            id: id.clone(),
            app: request.app.as_str().into(),
            outcome: Outcome::Unplaced,
            body,
        };
        // an error (of a rejected request) has neither an app nor an outcome
        let Ok(mut remembered) = serde_json::from_slice::<StartReply>(&answer.body) else {
            return Ok(answer);
        };
        if remembered.app != request.app {
            return Err(other_app(request, &remembered.app));
        }
        answer.outcome = remembered.outcome;
        if indices_of(&remembered).is_some_and(|remembered| remembered != asked_for(request)) {
            let warning = "duplicate request id with other instances; the first ones are used";
            remembered.warnings.push(warning.to_owned());
            let body = to_bytes(&remembered);
            if body.len() <= max_bytes {
                answer.body = body;
            }
        }
        Ok(answer)
    }
}

/// The indices in an answer; none if the answer had no room to list them.
fn indices_of(reply: &StartReply) -> Option<BTreeSet<u32>> {
    let mut remembered = BTreeSet::new();
    for instance in &reply.instances {
        match (instance.index, &instance.indices) {
            (Some(index), _) => _ = remembered.insert(index),
            (None, Some(text)) => remembered.extend(parse_indices(text, MAX_INSTANCES as usize)?),
            (None, None) => return None,
        }
    }
    (!remembered.is_empty()).then_some(remembered)
}

fn asked_for(request: &Request) -> BTreeSet<u32> {
    match &request.indices {
        Some(indices) => indices.iter().copied().collect(),
        None => (0..request.instances).collect(),
    }
}

/// An id names one request: the remembered answer is about another app.
pub(crate) fn other_app(request: &Request, app: &str) -> WireError {
    let expected = format!("an unused id; the request with this id is for the app {app}");
    Invalid::new("id", format!("{:?}", request.id), expected).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(outcomes: &mut Outcomes, now_ms: u64, id: &str, body: &str) {
        outcomes.ended(
            now_ms,
            &RequestId::new(id).unwrap(),
            &Bytes::from(body.to_owned()),
            false,
        );
    }

    #[test]
    fn the_first_outcome_is_kept_for_two_minutes() {
        let mut outcomes = Outcomes::default();
        outcomes.announced(0, &RequestId::new("a").unwrap());
        assert_eq!(outcomes.get("a"), Some(Seen::Announced));
        ended(&mut outcomes, 10, "a", "one");
        ended(&mut outcomes, 20, "a", "two");
        outcomes.announced(30, &RequestId::new("a").unwrap());
        assert_eq!(outcomes.get("a"), Some(Seen::Ended("one".into())));
        outcomes.ended(40, &RequestId::new("a").unwrap(), &"settled".into(), true);
        assert_eq!(outcomes.get("a"), Some(Seen::Ended("settled".into())));
        assert_eq!(outcomes.bytes, 7);
        outcomes.prune(REMEMBER_MS - 1);
        assert!(outcomes.get("a").is_some());
        outcomes.prune(REMEMBER_MS);
        assert_eq!(
            (outcomes.get("a"), outcomes.bytes, outcomes.dropped()),
            (None, 0, 0)
        );
    }

    #[test]
    fn too_many_outcomes_push_out_the_oldest() {
        let mut outcomes = Outcomes::default();
        for n in 0..=MAX_OUTCOMES {
            ended(&mut outcomes, 0, &n.to_string(), "x");
        }
        assert_eq!(outcomes.get("0"), None);
        assert!(outcomes.get("1").is_some());
        assert_eq!(
            (outcomes.known.len(), outcomes.dropped()),
            (MAX_OUTCOMES, 1)
        );
    }

    #[test]
    fn what_is_pushed_out_is_counted() {
        let mut outcomes = Outcomes::default();
        let large = "x".repeat(MAX_BYTES / 4 * 3);
        for (id, dropped) in [("a", 0), ("b", 1), ("c", 2), ("d", 3)] {
            ended(&mut outcomes, 0, id, &large);
            assert_eq!(outcomes.dropped(), dropped, "after {id}");
        }
    }

    #[test]
    fn too_many_bytes_push_out_the_oldest() {
        let mut outcomes = Outcomes::default();
        let large = "x".repeat(MAX_BYTES / 2);
        ended(&mut outcomes, 0, "a", &large);
        ended(&mut outcomes, 0, "b", &large);
        assert!(outcomes.get("a").is_some());
        ended(&mut outcomes, 0, "c", "x");
        assert_eq!(outcomes.get("a"), None);
        assert!(outcomes.get("b").is_some() && outcomes.get("c").is_some());
    }
}
