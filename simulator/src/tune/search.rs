//! The search itself.

use std::collections::BTreeMap;

use placement::Policy;
use scenarios::ScenarioError;
use serde::Serialize;

use super::{
    Goal, TuneProgress, Watch, simulate,
    weights::{Weight, Weights, WeightsError, changed},
};
use crate::{random::Random, scenario::Scenario};

/// The settings of a search.
#[derive(Clone, Debug)]
pub struct TuneSettings {
    /// What is to be improved, at least one goal. [`Goal::Allocated`] is evaluated in any case.
    pub goals: Vec<Goal>,
    /// The seeds of the simulations of a try.
    pub seeds: std::ops::Range<u64>,
    /// Maximum number of tries, including the policy itself.
    pub tries: u32,
    /// Determines which weights are tried.
    pub seed: u64,
    /// The name of the tried policies.
    pub name: String,
}

/// One try.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// The weights.
    pub weights: Vec<Weight>,
    /// The means of the goals over the seeds, by their names.
    pub values: BTreeMap<&'static str, f64>,
    /// Whether it is the original policy.
    pub own: bool,
    /// Whether it was chosen.
    pub chosen: bool,
}

/// The result of a search.
#[derive(Clone, Debug)]
pub struct Search {
    /// The tries that no other is better than: better in one goal and not worse in any. Sorted by the first goal, the
    /// best first. The policy itself is always included, at the end if others are better.
    pub frontier: Vec<Tried>,
    /// The policy with the chosen weights.
    pub policy: Policy,
    /// Number of tries that were done.
    pub tries: u32,
    /// Whether it was ended before all were done.
    pub interrupted: bool,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The policy.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// Weights, with the means of the goals.
#[derive(Clone, Debug)]
struct Point {
    weights: Vec<f64>,
    values: Vec<f64>,
}

/// Searches. From the frontier it chooses the try with the smallest sum of the goals' losses, each in units of its mean
/// over all tries, among those that allocate no less than the policy itself (unless allocation is a goal: then it is
/// part of the sum).
///
/// # Errors
/// If the policy has no weights, or the scenario or the policy cannot be used.
pub fn search(
    scenario: &Scenario,
    policy: &Policy,
    settings: &TuneSettings,
    watch: &mut Watch<'_>,
) -> Result<Search, SearchError> {
    let weights = Weights::of(policy)?;
    let mut goals = settings.goals.clone();
    if !goals.contains(&Goal::Allocated) {
        goals.push(Goal::Allocated);
    }
    let mut random = Random::new(settings.seed).fork("tune", 0);
    let mut points: Vec<Point> = Vec::new();
    let mut interrupted = false;
    for n in 0..settings.tries.max(1) {
        let tried = next_weights(n, &weights, &points, &goals, &mut random);
        let policy = weights.policy(&tried, &settings.name)?;
        let Some(values) = try_one(scenario, &policy, settings, &goals, n, watch)? else {
            interrupted = true;
            break;
        };
        points.push(Point {
            weights: tried,
            values,
        });
    }
    let chosen = choose(&points, &goals, &settings.goals);
    let best = points
        .get(chosen)
        .map_or(&weights.own, |point| &point.weights);
    Ok(Search {
        policy: weights.policy(best, &settings.name)?,
        frontier: shown(&points, &goals, &weights, chosen),
        tries: u32::try_from(points.len()).unwrap_or(u32::MAX),
        interrupted,
    })
}

fn next_weights(
    n: u32,
    weights: &Weights,
    points: &[Point],
    goals: &[Goal],
    random: &mut Random,
) -> Vec<f64> {
    if n == 0 {
        return weights.own.clone();
    }
    if n % 3 == 1 {
        return weights.draw_all(random);
    }
    let frontier = frontier(points, goals);
    let from = frontier[random.place(frontier.len())];
    changed(&points[from].weights, random)
}

/// Returns the means of the goals over the seeds; none if `watch` ended it.
fn try_one(
    scenario: &Scenario,
    policy: &Policy,
    settings: &TuneSettings,
    goals: &[Goal],
    n: u32,
    watch: &mut Watch<'_>,
) -> Result<Option<Vec<f64>>, ScenarioError> {
    let seeds = settings.seeds.end - settings.seeds.start;
    let mut sums = vec![0.0; goals.len()];
    for (done, seed) in settings.seeds.clone().enumerate() {
        let mut go_on = || {
            watch(TuneProgress {
                tries: n,
                runs: u64::from(n) * seeds + done as u64,
                runs_in_all: u64::from(settings.tries) * seeds,
            })
        };
        if !go_on() {
            return Ok(None);
        }
        let Some(values) = simulate(scenario, policy, seed, goals, &mut go_on)? else {
            return Ok(None);
        };
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
    }
    Ok(Some(sums.iter().map(|sum| sum / seeds as f64).collect()))
}

/// Returns the losses of a point. At most 100 per cent can be allocated, and at most as many cells be spare as in any
/// try.
fn losses(point: &Point, points: &[Point], goals: &[Goal]) -> Vec<f64> {
    let loss = |(at, goal): (usize, &Goal)| {
        let most = points.iter().map(|point| point.values[at]);
        let most = if *goal == Goal::Allocated {
            100.0
        } else {
            most.fold(0.0, f64::max)
        };
        goal.loss(point.values[at], most)
    };
    goals.iter().enumerate().map(loss).collect()
}

/// Returns the points that no other is better than; of equal ones, the first.
fn frontier(points: &[Point], goals: &[Goal]) -> Vec<usize> {
    let losses: Vec<Vec<f64>> = points.iter().map(|p| losses(p, points, goals)).collect();
    let beats = |a: usize, b: usize| {
        let pairs = || losses[a].iter().zip(&losses[b]);
        let better = pairs().any(|(a, b)| a < b);
        pairs().all(|(a, b)| a <= b) && (better || a < b)
    };
    let all = 0..points.len();
    let unbeaten = all
        .clone()
        .filter(|b| !all.clone().any(|a| a != *b && beats(a, *b)));
    unbeaten.collect()
}

fn choose(points: &[Point], goals: &[Goal], wanted: &[Goal]) -> usize {
    let losses: Vec<Vec<f64>> = points.iter().map(|p| losses(p, points, goals)).collect();
    let Some(own) = losses.first() else {
        return 0;
    };
    let mean = |goal: usize| losses.iter().map(|l| l[goal]).sum::<f64>() / losses.len() as f64;
    let cost = |point: usize| -> f64 {
        let of_goal = |goal: usize| {
            let (loss, mean) = (losses[point][goal], mean(goal));
            if mean > 0.0 { loss / mean } else { 0.0 }
        };
        (0..wanted.len()).map(of_goal).sum()
    };
    let allocated = goals.iter().position(|goal| *goal == Goal::Allocated);
    let keeps = |point: &usize| match allocated {
        Some(at) if at >= wanted.len() => losses[*point][at] <= own[at] + 1e-9,
        _ => true,
    };
    let candidates = frontier(points, goals).into_iter().filter(keeps);
    let best = candidates.min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
    best.filter(|best| cost(*best) < cost(0)).unwrap_or(0)
}

fn shown(points: &[Point], goals: &[Goal], weights: &Weights, chosen: usize) -> Vec<Tried> {
    let mut at = frontier(points, goals);
    let first = |point: &usize| losses(&points[*point], points, goals)[0];
    at.sort_by(|a, b| first(a).total_cmp(&first(b)));
    for kept in [chosen, 0] {
        if !at.contains(&kept) && kept < points.len() {
            at.push(kept);
        }
    }
    let tried = |point: usize| {
        let values = goals.iter().zip(&points[point].values);
        Tried {
            weights: weights.named(&points[point].weights),
            values: values.map(|(goal, value)| (goal.name(), *value)).collect(),
            own: point == 0,
            chosen: point == chosen,
        }
    };
    at.into_iter().map(tried).collect()
}
