//! The last auctions, for `explain`.

use std::{collections::VecDeque, sync::Arc};

use placement::{DeviceShares, FastMap, Job, Policy, Rating, Unplaced};
use shared::wire::{AuctionRecord, DecisionRecord, Outcome, instance_id};

use shared::{AuctionId, InstanceId};

/// How many auctions are remembered.
pub(crate) const REMEMBERED: usize = 16;
/// The most decisions remembered in total; the oldest auctions are dropped first.
pub(crate) const MAX_DECISIONS: usize = 40_000;

/// One auction.
#[derive(Debug)]
pub(crate) struct PastAuction {
    pub(crate) auction: AuctionId,
    pub(crate) seed: u64,
    pub(crate) at_ms: u64,
    pub(crate) cells: usize,
    pub(crate) decisions: Vec<PastDecision>,
    /// The outcomes of instances that no cell accepted.
    pub(crate) outcomes: FastMap<InstanceId, LateOutcome>,
}

/// The outcome of an instance after it was sent to a cell, and the reason.
type LateOutcome = (Outcome, Arc<Unplaced>);

/// One decision.
#[derive(Debug)]
pub(crate) struct PastDecision {
    pub(crate) job: Job,
    pub(crate) cell: Option<Arc<str>>,
    pub(crate) devices: Option<Box<DeviceShares>>,
    pub(crate) rating: Option<Rating>,
    pub(crate) why: Option<Arc<Unplaced>>,
}

/// The last auctions.
#[derive(Debug, Default)]
pub(crate) struct PastAuctions {
    past: VecDeque<PastAuction>,
    decisions: usize,
}

impl PastAuctions {
    pub(crate) fn add(&mut self, past: PastAuction) {
        self.decisions += past.decisions.len();
        self.past.push_back(past);
        // two limits: 16 large auctions would be 160,000 decisions
        while self.past.len() > REMEMBERED || self.decisions > MAX_DECISIONS {
            let dropped = self.past.pop_front();
            self.decisions -= dropped.map_or(0, |dropped| dropped.decisions.len());
        }
    }

    /// Records that an instance that an auction placed was refused by its cell, or is unknown.
    pub(crate) fn record_outcome(
        &mut self,
        auction: AuctionId,
        instance: InstanceId,
        outcome: LateOutcome,
    ) {
        // newest first: most answers belong to the last auction
        let mut past = self.past.iter_mut().rev();
        if let Some(past) = past.find(|past| past.auction == auction) {
            past.outcomes.insert(instance, outcome);
        }
    }

    /// Records that an unknown instance is running after all.
    pub(crate) fn clear_outcome(&mut self, auction: AuctionId, instance: InstanceId) {
        let mut past = self.past.iter_mut().rev();
        if let Some(past) = past.find(|past| past.auction == auction) {
            past.outcomes.remove(&instance);
        }
    }

    /// Returns up to `most` jobs of the app from the last auction that had any.
    pub(crate) fn last_jobs(&self, app: &str, most: usize) -> Vec<Job> {
        let of_app = |past: &PastAuction| {
            let of_app = past.decisions.iter().filter(|d| d.job.request.app == app);
            of_app.take(most).map(|d| d.job.clone()).collect()
        };
        let jobs = self.past.iter().rev().map(of_app);
        jobs.into_iter()
            .find(|jobs: &Vec<Job>| !jobs.is_empty())
            .unwrap_or_default()
    }

    /// Returns the auctions with jobs of the app, newest first.
    pub(crate) fn of_app(&self, now_ms: u64, policy: &Policy, app: &str) -> Vec<AuctionRecord> {
        let record = |past: &PastAuction| {
            let of_app = past.decisions.iter().filter(|d| d.job.request.app == app);
            let decisions: Vec<DecisionRecord> = of_app.map(|d| d.record(&past.outcomes)).collect();
            (!decisions.is_empty()).then(|| AuctionRecord {
                auction: past.auction,
                seed: past.seed,
                policy: policy.name().to_owned(),
                pick: policy.pick_name().to_owned(),
                age_ms: now_ms.saturating_sub(past.at_ms),
                cells: past.cells,
                decisions,
            })
        };
        self.past.iter().rev().filter_map(record).collect()
    }
}

impl PastDecision {
    fn record(&self, outcomes: &FastMap<InstanceId, LateOutcome>) -> DecisionRecord {
        let request = &self.job.request;
        // only what was sent to a cell can have ended differently from the decision
        let later = self.cell.as_ref().and_then(|_| {
            let instance = instance_id(&request.id, &request.app, request.kind, self.job.index);
            outcomes.get(&instance)
        });
        let why = self.why.as_ref().or(later.map(|(_, why)| why));
        let outcome = match (&self.cell, later) {
            (None, _) => Outcome::Unplaced,
            (Some(_), None) => Outcome::Placed,
            (Some(_), Some((outcome, _))) => *outcome,
        };
        DecisionRecord {
            index: self.job.index,
            outcome,
            cell: self.cell.as_ref().map(ToString::to_string),
            devices: self.devices.clone(),
            cost: self.rating.and_then(Rating::cost),
            score: self.rating.and_then(Rating::score),
            reason: why.map(|why| why.reason.clone()),
            tally: why.map(|why| why.tally.clone()).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(at_ms: u64, app: &str, decisions: u32) -> PastAuction {
        let decision = |index| PastDecision {
            job: Job {
                request: Arc::new(placement::Request::new(app, 1, 1)),
                index,
            },
            cell: Some("c".into()),
            devices: None,
            rating: None,
            why: None,
        };
        PastAuction {
            auction: AuctionId::from_u128(u128::from(at_ms)),
            seed: at_ms,
            at_ms,
            cells: 1,
            decisions: (0..decisions).map(decision).collect(),
            outcomes: FastMap::default(),
        }
    }

    #[test]
    fn the_last_sixteen_newest_first() {
        let dea = Policy::preset("dea").unwrap();
        let mut past_auctions = PastAuctions::default();
        for at_ms in 0..20 {
            past_auctions.add(past(at_ms, if at_ms % 2 == 0 { "even" } else { "odd" }, 1));
        }
        let ages: Vec<u64> = past_auctions
            .of_app(20, &dea, "even")
            .iter()
            .map(|a| a.age_ms)
            .collect();
        assert_eq!(ages, [2, 4, 6, 8, 10, 12, 14, 16]);
        assert!(past_auctions.of_app(20, &dea, "none").is_empty());
    }

    #[test]
    fn the_winners_rating_is_a_cost_or_a_score() {
        let dea = Policy::preset("dea").unwrap();
        for (rating, cost, score) in [
            (Some(Rating::Cost(0.5)), Some(0.5), None),
            (Some(Rating::Score(0.5)), None, Some(0.5)),
            (None, None, None),
        ] {
            let mut held = past(0, "web", 1);
            held.decisions[0].rating = rating;
            let mut past_auctions = PastAuctions::default();
            past_auctions.add(held);
            let record = &past_auctions.of_app(0, &dea, "web")[0].decisions[0];
            assert_eq!((record.cost, record.score), (cost, score));
        }
    }

    #[test]
    fn large_auctions_push_out_more() {
        let mut past_auctions = PastAuctions::default();
        for at_ms in 0..6 {
            past_auctions.add(past(at_ms, "a", 10_000));
        }
        assert_eq!(
            (past_auctions.past.len(), past_auctions.decisions),
            (4, 40_000)
        );
    }
}
