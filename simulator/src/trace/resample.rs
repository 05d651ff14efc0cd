//! A trace's pods as a demand of a given per cent of what its nodes have, without their times.
//!
//! Pods are drawn from the list, with replacement, and added to it until one more would exceed the demand; if the list
//! itself exceeds it, pods are removed instead. Then all are put in random order. They arrive one by one, and none
//! leaves. This is the workload of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023), section 6.

use std::sync::Arc;

use placement::{Amounts, Cell, Request, ResourceName};

use crate::{
    demand::{Demand, DemandAction},
    random::Random,
};

/// The time from one pod to the next, in milliseconds: long enough for each to be placed before the next one arrives.
const EVERY_MS: u64 = 10;
/// Maximum number of pods that are drawn.
const MAX_DRAWN: usize = 1_000_000;

/// How much is requested.
#[derive(Clone, Debug, PartialEq)]
pub struct Resample {
    /// In per cent of what all cells have.
    pub per_cent: f64,
    /// The resource in which it is counted.
    pub of: ResourceName,
}

/// Returns how much of the resource all cells have; none if it is unlimited or absent.
pub(crate) fn capacity(of: &ResourceName, cells: &[Cell]) -> Option<i64> {
    let mut totals = cells.iter().map(|cell| of.total(&cell.total));
    let sum = totals.try_fold(0_i64, |sum, total| {
        (total != Amounts::UNLIMITED).then(|| sum + total)
    });
    sum.filter(|sum| *sum > 0)
}

/// Returns how much of the resource one instance of the request asks for.
pub(crate) fn wanted(of: &ResourceName, request: &Request) -> i64 {
    // pods of traces always name the amount of each device
    of.wanted(request, &placement::Resources::default())
}

impl Resample {
    /// Returns the demands that the seed draws from these pods.
    pub(crate) fn draw(&self, pods: &[Demand], cells: &[Cell], seed: u64) -> Vec<Demand> {
        let mut random = Random::new(seed).fork("resample", 0);
        let pods: Vec<&Arc<Request>> = pods.iter().filter_map(Demand::request).collect();
        let capacity = capacity(&self.of, cells).unwrap_or(0) as f64;
        let most = self.per_cent / 100.0 * capacity;
        let sizes = pods.iter().map(|pod| wanted(&self.of, pod));
        let mut sum: i64 = sizes.sum();
        let mut drawn: Vec<(usize, usize)> = (0..pods.len()).map(|n| (n, 0)).collect();
        while sum as f64 > most && !drawn.is_empty() {
            let (pod, _) = drawn.swap_remove(random.place(drawn.len()));
            sum -= wanted(&self.of, pods[pod]);
        }
        // a list that was too long is not filled up again, as its content would then depend on whatever pod came next
        while drawn.len() >= pods.len() && drawn.len() < MAX_DRAWN && !pods.is_empty() {
            let pod = random.place(pods.len());
            let more = wanted(&self.of, pods[pod]);
            if (sum + more) as f64 > most {
                break;
            }
            sum += more;
            drawn.push((pod, drawn.len()));
        }
        random.shuffle(&mut drawn);
        let demand = |(at, (pod, copy)): (u64, (usize, usize))| Demand {
            at_ms: at * EVERY_MS,
            action: DemandAction::Start {
                request: named(pods[pod], copy),
                lifetime_ms: None,
            },
        };
        (0..).zip(drawn).map(demand).collect()
    }
}

/// Gives a copy of a pod its own name; the pod itself (0) keeps its name.
fn named(pod: &Arc<Request>, copy: usize) -> Arc<Request> {
    if copy == 0 {
        return Arc::clone(pod);
    }
    let mut request = Request::clone(pod);
    // a name is at most 128 characters long
    request.app = format!("{:.110}-{copy}", pod.app);
    request.id.clone_from(&request.app);
    Arc::new(request)
}
