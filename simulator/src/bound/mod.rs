//! How far a run is from the best that any policy could have reached: bounds that hold for every order of decisions,
//! with knowledge of all work to come.
//!
//! docs/SIMULATOR.md proves each of them. [`work`] says which cells could have held which work at the end of the run,
//! [`relaxation`] how much of it at most, [`balance`] how evenly what runs at the end could have been spread.

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

/// What counts instances, beside the names of resources.
const INSTANCES: &str = "instances";

/// Sums what was placed of the scenario's own requests: `placed` are these with how many instances of each. Under a policy
/// the bound is computed from the cells, without one (auctions of 2014) it is what was asked for.
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

/// What managers keep running: no more than what is wanted.
pub(crate) fn of_managers(kept: &Kept) -> Bounds {
    let wanted = kept.wanted as f64;
    let runs = wanted - kept.missing.end;
    let one = |value| BTreeMap::from([(INSTANCES.to_owned(), value)]);
    bounds(one(runs), one(wanted))
}

/// For the auctions of 2014, whose cells are not these: what was asked for.
pub(crate) fn of_asked(figures: &Figures) -> Bounds {
    let one = |value: u64| BTreeMap::from([(INSTANCES.to_owned(), value as f64)]);
    bounds(one(figures.placed), one(figures.asked))
}

/// The gap is left out where there is nothing to place.
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

/// Adds the bound of the balance, which follows from what runs at the end.
pub(crate) fn add_balance(run: &mut SimRun) {
    run.figures.most_even = most_even(&run.cells).map(|bound| MostEven {
        bound,
        // the two are computed from the same numbers in another order
        gap: Some(run.figures.distribution - bound)
            .filter(|gap| gap.abs() > 1e-12)
            .unwrap_or(0.0),
    });
}

#[cfg(test)]
mod tests;
