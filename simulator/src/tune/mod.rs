//! Searches for the weights of a policy's scores with the simulator: which weights are best for a goal, and what that
//! costs in other goals.
//!
//! The search is a sequence of tries, the first of which is the policy itself. A third of the others draw every weight
//! anew over three orders of magnitude; the rest change one or two weights of a try on the frontier. Everything follows
//! from the seed. [`unseen`] tells how the chosen weights do on seeds that the search did not see.

mod goal;
mod search;
mod weights;

pub use self::{
    goal::Goal,
    search::{Search, SearchError, Tried, TuneSettings, search},
    weights::{Weight, WeightsError},
};

use std::collections::BTreeMap;

use placement::Policy;
use scenarios::ScenarioError;

use crate::{
    RunSettings,
    outcome::Balance,
    scenario::{Contender, Decider, Scenario},
};

/// The progress of a search or a comparison.
#[derive(Clone, Copy, Debug)]
pub struct TuneProgress {
    /// Number of tries that are done.
    pub tries: u32,
    /// Number of simulations that are done, of `runs_in_all`.
    pub runs: u64,
    /// Number of all simulations.
    pub runs_in_all: u64,
}

/// Called with the progress now and then; ends the work by returning false.
pub type Watch<'w> = dyn FnMut(TuneProgress) -> bool + 'w;

/// One goal before and after, over seeds that the search did not see.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Compared {
    /// The original policy.
    pub before: Balance,
    /// The policy with the chosen weights.
    pub after: Balance,
    /// After minus before, seed by seed.
    pub difference: Balance,
    /// Number of seeds on which it is better than before.
    pub better: u32,
    /// Number of seeds on which it is worse.
    pub worse: u32,
}

/// Compares both policies over these seeds, by the goals' names. None if `watch` ended it.
///
/// # Errors
/// If the scenario cannot be simulated or the policy cannot decide it.
pub fn unseen(
    scenario: &Scenario,
    seeds: std::ops::Range<u64>,
    goals: &[Goal],
    (before, after): (&Policy, &Policy),
    watch: &mut Watch<'_>,
) -> Result<Option<BTreeMap<&'static str, Compared>>, ScenarioError> {
    let runs_in_all = 2 * (seeds.end - seeds.start);
    let mut values: Vec<Vec<(f64, f64)>> = vec![Vec::new(); goals.len()];
    for (n, seed) in seeds.enumerate() {
        let mut two = Vec::new();
        for (half, policy) in [before, after].into_iter().enumerate() {
            let mut go_on = || {
                watch(TuneProgress {
                    tries: 0,
                    runs: 2 * n as u64 + half as u64,
                    runs_in_all,
                })
            };
            match simulate(scenario, policy, seed, goals, &mut go_on)? {
                Some(values) => two.push(values),
                None => return Ok(None),
            }
        }
        for (goal, values) in values.iter_mut().enumerate() {
            values.push((two[0][goal], two[1][goal]));
        }
    }
    let compared = goals.iter().zip(&values);
    let compared = compared.map(|(goal, values)| (goal.name(), compare(*goal, values)));
    Ok(Some(compared.collect()))
}

fn compare(goal: Goal, values: &[(f64, f64)]) -> Compared {
    let of =
        |value: &dyn Fn(&(f64, f64)) -> f64| -> Vec<f64> { values.iter().map(value).collect() };
    let difference = of(&|(before, after)| after - before);
    let gained = |less: bool| {
        let lost = |d: &&f64| d.abs() > 1e-12 && (**d < 0.0) == less;
        u32::try_from(difference.iter().filter(lost).count()).unwrap_or(u32::MAX)
    };
    Compared {
        before: Balance::of(&of(&|v| v.0)),
        after: Balance::of(&of(&|v| v.1)),
        better: gained(!goal.is_more_better()),
        worse: gained(goal.is_more_better()),
        difference: Balance::of(&difference),
    }
}

/// Returns the goals' values of one run; none if it was ended.
fn simulate(
    scenario: &Scenario,
    policy: &Policy,
    seed: u64,
    goals: &[Goal],
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<f64>>, ScenarioError> {
    let contender = Contender {
        label: policy.name().to_owned(),
        decider: Decider::Policy(Box::new(policy.clone())),
    };
    let settings = RunSettings {
        seed,
        verbatim: false,
    };
    let (run, ended) = crate::run(scenario, &contender, settings, &mut |_| go_on())?;
    let values = goals.iter().map(|goal| goal.value(&run.figures));
    Ok((!ended).then(|| values.collect()))
}

#[cfg(test)]
mod tests;
