//! What would happen: the state machines that run in production (pool, batch, plan, ledger,
//! advertisement schedule) under virtual time, with faults, and what there is to see of it.

pub mod demand;
pub mod era;
pub mod measure;
pub mod outcome;
pub mod random;
pub mod record;
pub mod report;
pub mod scenario;
pub mod seeds;
pub mod shipped;
pub mod trace;
pub mod workload;
mod world;

use outcome::{Outcome, Run};
use placement::ScenarioError;
use scenario::{Contender, Decider, Scenario};

pub use world::{Mirror, Progress, Settings, ToSend};

/// The version of [`Outcome`].
const VERSION: u32 = 1;

/// An outcome of this scenario without any run yet.
pub fn outcome(scenario: &Scenario, seed: u64, command: &str) -> Outcome {
    Outcome {
        v: VERSION,
        name: scenario.base.name.clone(),
        description: scenario.description.clone(),
        seed,
        command: command.to_owned(),
        scenario: scenario.text.clone(),
        over: "in-process".into(),
        interrupted: false,
        runs: Vec::new(),
    }
}

/// Plays the scenario under one contender, in virtual time. `watch` is told now and then how far it
/// is, and ends it by returning false: then the second value is true.
pub fn run(
    scenario: &Scenario,
    contender: &Contender,
    settings: Settings,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Result<(Run, bool), ScenarioError> {
    let demands = scenario.demands(settings.seed)?;
    match &contender.decider {
        Decider::Policy(policy) => {
            check(&demands, policy)?;
            let label = &contender.label;
            Ok(world::run(
                scenario, label, policy, &demands, settings, watch,
            ))
        }
        Decider::Era(rules) => {
            let seed = settings.seed;
            Ok(era(
                scenario,
                &contender.label,
                *rules,
                &demands,
                seed,
                watch,
            ))
        }
    }
}

/// The auctions of 2014 over the same cells and demands. Faults are none of theirs.
fn era(
    scenario: &Scenario,
    label: &str,
    rules: era::Rules,
    demands: &[demand::Demand],
    seed: u64,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> (Run, bool) {
    let setting = era::Setting {
        rules: era::Rules {
            auctioneers: rules.auctioneers.max(scenario.auctioneers),
            ..rules
        },
        network: era::Network {
            latency: scenario.network.latency,
            loss: scenario.network.loss,
        },
        seed,
        until_ms: scenario.duration_ms,
    };
    let cells = &scenario.base.cells;
    let last_ms = demands.last().map_or(0, |demand| demand.at_ms);
    let end_ms = scenario.duration_ms.unwrap_or(last_ms);
    let mut told = |virtual_ms| {
        watch(Progress {
            virtual_ms,
            end_ms,
            placed: 0,
            asked: 0,
        })
    };
    let (result, interrupted) = era::run_watched(cells, demands, &setting, &mut told);
    let price = scenario.price_per_cell_hour;
    let run = era::outcome(label, cells, demands, &result, price);
    (run, interrupted)
}

/// Refuses requests that a policy cannot judge.
fn check(demands: &[demand::Demand], policy: &placement::Policy) -> Result<(), ScenarioError> {
    for demand in demands {
        if let demand::What::Start { request, .. } = &demand.what {
            policy
                .check_request(request)
                .map_err(|e| ScenarioError::Field {
                    at: format!("request {}: {}", request.id, e.field),
                    message: format!("{} is not allowed; expected {}", e.value, e.expected),
                })?;
        }
    }
    Ok(())
}
