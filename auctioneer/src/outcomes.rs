//! Outcomes of requests, of this and other auctioneers: a repeated request gets the same answer.

use std::{
    collections::{BTreeSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use bytes::Bytes;
use placement::{FastMap, FastSet, Invalid, Kind, MAX_INSTANCES, Request};
use shared::wire::{
    ErrorBody, Outcome, StartReply, WireError, instance_id, parse_indices, to_bytes,
};
use shared::{AuctionId, RequestId};

use crate::ticket::{Answer, Begun};

/// How long an outcome is remembered.
pub const REMEMBER_MS: u64 = 120_000;
/// The most outcomes.
pub const MAX_OUTCOMES: usize = 100_000;
/// The most bytes of outcomes.
const MAX_BYTES: usize = 64 << 20;

/// The most requests that were begun and whose outcome has not been heard.
const MAX_BEGUN: usize = 100_000;
/// The smallest number of ids that are remembered as having had an outcome that was forgotten.
const FORMER: usize = 250_000;

/// What is remembered of requests.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    known: FastMap<RequestId, Known>,
    /// Requests with an outcome, and requests that were only begun, in separate queues: a flood of one does not push
    /// out the other.
    ended: VecDeque<(u64, RequestId)>,
    begun: VecDeque<(u64, RequestId)>,
    bytes: usize,
    /// How many were dropped before their time.
    dropped: u64,
    former: Former,
    /// How often messages may have been missed.
    misses: u64,
}

/// What is remembered of one request.
#[derive(Debug)]
struct Known {
    body: Option<Bytes>,
    /// The outcome leaves open what runs: repeats are looked up on the cells.
    unsure: bool,
    /// Several claims were heard: another outcome may follow, and what runs may change.
    contested: bool,
    /// An auctioneer, this one or another, has announced the request with this claim. Anyone can make up an outcome of
    /// a request that nobody has begun.
    announced: bool,
    claim: Option<AuctionId>,
    /// What this auctioneer began of it, if anything.
    own: Option<Arc<Begun>>,
    /// The value of [`Outcomes::misses`] when this was heard.
    misses: u64,
}

/// An outcome to be remembered.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) body: Bytes,
    pub(crate) unsure: bool,
    /// Several auctioneers have begun it.
    pub(crate) contested: bool,
    /// It is our own, or that of a request that an auctioneer has announced.
    pub(crate) announced: bool,
    pub(crate) claim: Option<AuctionId>,
    pub(crate) own: Option<Arc<Begun>>,
}

/// What is known of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Its outcome.
    Ended(Bytes),
    /// It was begun, and what became of it is not certain: the cells must be asked. Holds the last outcome heard.
    Unsure(Option<Bytes>),
}

/// Ids whose outcomes were forgotten, as hashes; the older half is dropped when they become too many.
#[derive(Debug, Default)]
struct Former {
    newer: FastSet<u64>,
    older: FastSet<u64>,
}

impl Former {
    fn hash(id: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        hasher.finish()
    }

    fn add(&mut self, id: &str) {
        if self.newer.len() >= FORMER {
            // two sets instead of a queue: at least half is always kept, at 8 bytes per id
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(Self::hash(id));
    }

    fn has(&self, id: &str) -> bool {
        let hash = Self::hash(id);
        self.newer.contains(&hash) || self.older.contains(&hash)
    }
}

impl Ended {
    /// Reads another auctioneer's published outcome, which also answers repeats; none if it is no answer to the request
    /// with this id. `knows` tells whether a cell exists.
    pub(crate) fn heard(id: &RequestId, body: Bytes, knows: impl Fn(&str) -> bool) -> Option<Self> {
        let (unsure, claim) = match serde_json::from_slice::<StartReply>(&body) {
            Ok(reply) if reply.id == *id && has_own_ids(&reply) => {
                // what was queued may have been placed since
                let open = [Outcome::Unknown, Outcome::Queued].contains(&reply.outcome);
                let mut cells = reply.instances.iter().filter_map(|i| i.cell.as_deref());
                (open || cells.any(|cell| !knows(cell)), reply.claim)
            }
            Ok(_) => return None,
            // the only answer to a rejected request is its error, and a repeat is examined anew
            Err(_) => serde_json::from_slice::<ErrorBody>(&body)
                .ok()
                .map(|_| (true, None))?,
        };
        Some(Self {
            unsure,
            claim,
            body,
            contested: false,
            announced: false,
            own: None,
        })
    }
}

/// Returns whether each instance has the id that follows from its request.
fn has_own_ids(reply: &StartReply) -> bool {
    let (request, app) = (reply.id.as_str(), reply.app.as_str());
    reply.instances.iter().all(|listed| {
        let (Some(index), Some(id)) = (listed.index, listed.instance) else {
            return listed.instance.is_none();
        };
        let is = |kind| id == instance_id(request, app, kind, index);
        is(Kind::Lrp) || is(Kind::Task)
    })
}

impl Outcomes {
    /// Returns how many were dropped before their time.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Records that messages may have been missed: remembered requests may have been begun again elsewhere since.
    pub(crate) fn missed(&mut self) {
        self.misses += 1;
    }

    /// Returns what is known of the request.
    pub(crate) fn get(&self, id: &str) -> Option<Seen> {
        match self.known.get(id) {
            // without the body: an unannounced outcome does not prove which app the request is for
            Some(known) if !known.announced => Some(Seen::Unsure(None)),
            Some(known) if !known.is_certain() || known.misses < self.misses => {
                Some(Seen::Unsure(known.body.clone()))
            }
            Some(known) => Some(match &known.body {
                Some(body) => Seen::Ended(body.clone()),
                None => Seen::Unsure(None),
            }),
            None => self.former.has(id).then_some(Seen::Unsure(None)),
        }
    }

    /// Returns whether there is one outcome and no other claim was heard.
    pub(crate) fn is_uncontested(&self, id: &RequestId) -> bool {
        let known = self.known.get(id);
        known.is_some_and(|known| known.body.is_some() && known.is_certain())
    }

    /// Returns whether this is the remembered outcome.
    pub(crate) fn is(&self, id: &RequestId, body: &Bytes) -> bool {
        self.known
            .get(id)
            .is_some_and(|known| known.body.as_ref() == Some(body))
    }

    /// Returns the claim with which the request was begun, as far as known.
    pub(crate) fn claim(&self, id: &RequestId) -> Option<AuctionId> {
        self.known.get(id)?.claim
    }

    /// Returns whether an auctioneer has announced the request.
    pub(crate) fn is_announced(&self, id: &RequestId) -> bool {
        self.known.get(id).is_some_and(|known| known.announced)
    }

    /// Returns what this auctioneer began of the request.
    pub(crate) fn own(&self, id: &RequestId) -> Option<Arc<Begun>> {
        self.known.get(id)?.own.clone()
    }

    /// Records that an auctioneer has begun the request.
    pub(crate) fn announced(&mut self, now_ms: u64, id: &RequestId, claim: AuctionId) {
        if let Some(known) = self.known.get_mut(id) {
            // two auctioneers have begun it, so what runs may change after any outcome
            known.contested |= known.claim.is_some_and(|known| known != claim);
            if known.body.is_none() || known.unsure {
                known.claim = Some(claim);
            }
            // the announcement may arrive after the outcome, which is on another subject
            known.announced |= known.claim == Some(claim);
            return;
        }
        let known = Known {
            body: None,
            unsure: true,
            contested: false,
            announced: true,
            claim: Some(claim),
            own: None,
            misses: self.misses,
        };
        self.known.insert(id.clone(), known);
        self.begun.push_back((now_ms, id.clone()));
        self.prune(now_ms);
    }

    /// Records the request's outcome; returns whether it now stands. Of two outcomes with claims the lower claim
    /// stands, otherwise the first, until there is a better one or it is `settled`. With two claims it is not certain
    /// which copies run.
    pub(crate) fn ended(&mut self, now_ms: u64, id: &RequestId, new: Ended, settled: bool) -> bool {
        let first = if let Some(old) = self.known.get_mut(id) {
            old.contested |= old.claim.is_some() && new.claim.is_some() && old.claim != new.claim;
            let lower = new.claim.is_some() && old.claim.is_none_or(|old| new.claim < Some(old));
            // every auctioneer applies the rule of the lower claim, whichever outcome it heard first
            let better = old.unsure || (new.announced && !old.announced);
            if !(settled || old.body.is_none() || better || lower) {
                return false;
            }
            self.bytes -= old.bytes();
            let first = old.body.is_none();
            old.replace(new, self.misses);
            self.bytes += old.bytes();
            first
        } else {
            let known = Known::new(new, self.misses);
            self.bytes += known.bytes();
            self.known.insert(id.clone(), known);
            true
        };
        // only one entry per id in the queue: a second one would forget a newer outcome too soon
        if first {
            self.ended.push_back((now_ms, id.clone()));
        }
        self.prune(now_ms);
        true
    }

    /// Forgets what is old, and the oldest if there is too much.
    pub(crate) fn prune(&mut self, now_ms: u64) {
        while let Some((at_ms, id)) = self.ended.front() {
            let old = now_ms.saturating_sub(*at_ms) >= REMEMBER_MS;
            let full = self.ended.len() > MAX_OUTCOMES || self.bytes > MAX_BYTES;
            if !old && !full {
                break;
            }
            self.dropped += u64::from(!old);
            // a repeat of it must still ask the cells before anything is started
            self.former.add(id.as_str());
            if let Some(gone) = self.known.remove(id) {
                self.bytes -= gone.bytes();
            }
            self.ended.pop_front();
        }
        while let Some((at_ms, id)) = self.begun.front() {
            let old = now_ms.saturating_sub(*at_ms) >= REMEMBER_MS;
            if !old && self.begun.len() <= MAX_BEGUN {
                break;
            }
            // a request with an outcome is in `ended` too, and is forgotten from there
            if self.known.get(id).is_some_and(|known| known.body.is_none()) {
                self.former.add(id.as_str());
                self.known.remove(id);
            }
            self.begun.pop_front();
        }
    }
}

impl Known {
    fn new(outcome: Ended, misses: u64) -> Self {
        Self {
            body: Some(outcome.body),
            unsure: outcome.unsure,
            contested: outcome.contested,
            announced: outcome.announced,
            claim: outcome.claim,
            own: outcome.own,
            misses,
        }
    }

    /// Takes over a later outcome, and keeps what that does not say.
    fn replace(&mut self, outcome: Ended, misses: u64) {
        let new = Self::new(outcome, misses);
        *self = Self {
            contested: self.contested || new.contested,
            announced: self.announced || new.announced,
            // an answer found on the cells carries no claim: later announcements must still show that there are two
            claim: new.claim.or(self.claim),
            own: new.own.or_else(|| self.own.take()),
            ..new
        };
    }

    /// Returns whether a repeat can be answered with this outcome, provided that no message was missed.
    fn is_certain(&self) -> bool {
        self.announced && !self.unsure && !self.contested
    }

    fn bytes(&self) -> usize {
        let own = self.own.as_ref().map_or(0, |own| own.instances.len() * 16);
        own + self.body.as_ref().map_or(0, Bytes::len)
    }
}

impl Answer {
    /// Returns the outcome of an earlier request with this id. If that was for another app, this is an error; if its
    /// outcome covers other instances, a warning is added as far as `max_bytes` allows.
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
        // the error of a rejected request has neither an app nor an outcome
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

/// Returns the indices in an answer; none if it had no room to list them.
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

/// Returns the error for an id that is in use for another app: its answer would be about that app.
pub(crate) fn other_app(request: &Request, app: &str) -> WireError {
    let expected = format!("an unused id; the request with this id is for the app {app}");
    Invalid::new("id", format!("{:?}", request.id), expected).into()
}

#[cfg(test)]
mod tests;
