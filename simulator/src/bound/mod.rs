//! How far a run is from the best that any policy could have reached: bounds that hold for every order of decisions,
//! even with knowledge of all work to come.
//!
//! docs/SIMULATOR.md proves each of them. [`work`] determines which cells could have held which work at the end of the
//! run, [`relaxation`] how much of it at most, and [`balance`] how evenly what runs at the end could have been spread.

mod balance;
mod relaxation;
mod room;
mod work;

use std::collections::BTreeMap;

use placement::{Policy, Request};

pub(crate) use self::balance::most_even;
use self::work::Work;
use crate::{
    demand::Demand,
    outcome::{Bounds, Figures, Kept, MostEven, SimRun},
    scenario::Scenario,
};

/// The name under which instances are counted, besides the names of resources.
const INSTANCES: &str = "instances";

/// Computes the bounds of the scenario's own requests, of which `placed` are those that were placed, with the number of
/// instances of each. Under a policy the bound follows from the cells; without one (auctions of 2014) it is what was
/// requested.
pub(crate) fn of_requests<'r>(
    scenario: &Scenario,
    demands: &[Demand],
    policy: &Policy,
    placed: impl Iterator<Item = (&'r Request, u64)>,
) -> Bounds {
    let work = Work::of(scenario, demands, policy, work::MOST_PAIRS);
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    for (request, count) in placed {
        for measure in work.measures() {
            let value = measure.of(request) * count as f64;
            *sums.entry(measure.name().to_owned()).or_default() += value;
        }
    }
    let at_most = |measure: &work::Measure| (measure.name().to_owned(), work.at_most(measure));
    bounds(sums, work.measures().iter().map(at_most).collect())
}

/// Returns the bounds of what managers keep running: at most what is wanted.
pub(crate) fn of_managers(kept: &Kept) -> Bounds {
    let wanted = kept.wanted as f64;
    let runs = wanted - kept.missing.end;
    let one = |value| BTreeMap::from([(INSTANCES.to_owned(), value)]);
    bounds(one(runs), one(wanted))
}

/// Returns the bounds for the auctions of 2014, whose cells are different: what was requested.
pub(crate) fn of_asked(figures: &Figures) -> Bounds {
    let one = |value: u64| BTreeMap::from([(INSTANCES.to_owned(), value as f64)]);
    bounds(one(figures.placed), one(figures.asked))
}

/// Computes the gaps. A gap is left out if there is nothing to place.
fn bounds(placed: BTreeMap<String, f64>, at_most: BTreeMap<String, f64>) -> Bounds {
    let gap = at_most.iter().filter(|(_, most)| **most > 0.0);
    let gap = gap.map(|(name, most)| {
        let placed = placed.get(name).copied().unwrap_or(0.0);
        (name.clone(), 100.0 * (most - placed) / most)
    });
    Bounds {
        gap: gap.collect(),
        placed,
        at_most,
    }
}

/// Adds the bound on the balance, which follows from what runs at the end.
pub(crate) fn add_balance(run: &mut SimRun) {
    run.figures.most_even = most_even(&run.cells).map(|bound| MostEven {
        bound,
        // both are computed from the same numbers, but in another order
        gap: Some(run.figures.distribution - bound)
            .filter(|gap| gap.abs() > 1e-12)
            .unwrap_or(0.0),
    });
}

#[cfg(test)]
mod tests;
