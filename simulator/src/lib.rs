//! The production state machines (pool, batch, plan, ledger, advertisement schedule) in virtual
//! time, with faults, and reports of the result: what would a policy do?
//!
//! [`scenario`] describes a cluster, [`workload`] and [`trace`] the demands on it ([`demand`]);
//! [`run`] simulates it under one contender and returns an [`outcome::SimRun`], which [`report`]
//! shows. All random choices follow from the seed ([`random`]).
//!
//! [`auctions_2014`] is separate: the distributed auctions that Diego held over NATS in 2014, as
//! one more contender over the same cells and demands. They have their own messages and cells and
//! share with the simulator only the event queue, the random numbers and the form of the result.

pub mod auctions_2014;
mod bound;
mod bucket;
pub mod check;
pub mod demand;
mod manager_driver;
pub mod measure;
pub mod network;
pub mod outcome;
mod queue;
pub mod random;
pub mod report;
pub mod scenario;
pub mod seeds;
pub mod shipped;
pub mod trace;
pub mod tune;
pub mod workload;
mod world;

use demand::Demand;
use outcome::{SimOutcome, SimRun};
use scenario::{Contender, Decider, Scenario};
use scenarios::ScenarioError;

pub use world::{Observer, Progress, RunSettings, ToSend};

/// The version of the format of [`SimOutcome`].
const VERSION: u32 = 1;

/// Creates an outcome of this scenario, without runs so far.
pub fn outcome(scenario: &Scenario, seed: u64, command: &str) -> SimOutcome {
    SimOutcome {
        v: VERSION,
        name: scenario.base.name.clone(),
        description: scenario.description.clone(),
        seed,
        command: command.to_owned(),
        scenario: scenario.text.clone(),
        over: "in-process".into(),
        interrupted: false,
        warnings: scenario.warnings.clone(),
        seeds: None,
        runs: Vec::new(),
    }
}

/// Simulates the scenario under one contender. `watch` is called with the progress now and then, and ends the run by
/// returning false; then the second value is true.
pub fn run(
    scenario: &Scenario,
    contender: &Contender,
    settings: RunSettings,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Result<(SimRun, bool), ScenarioError> {
    let demands = scenario.demands(settings.seed)?;
    let label = &contender.label;
    let (mut run, interrupted) = match &contender.decider {
        Decider::Policy(policy) => {
            check(scenario, &demands, policy)?;
            world::run(scenario, label, policy, &demands, settings, watch)
        }
        Decider::Auctions2014(rules) => {
            run_auctions_2014(scenario, label, *rules, &demands, settings.seed, watch)
        }
    };
    if interrupted {
        // not everything was requested
        run.figures.bounds = None;
    }
    Ok((run, interrupted))
}

/// Runs the auctions of 2014 over the same cells and demands. The scenario's faults do not affect them.
fn run_auctions_2014(
    scenario: &Scenario,
    label: &str,
    rules: auctions_2014::Rules,
    demands: &[Demand],
    seed: u64,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> (SimRun, bool) {
    let settings = auctions_2014::AuctionSettings {
        rules: auctions_2014::Rules {
            auctioneers: rules.auctioneers.max(scenario.auctioneers),
            ..rules
        },
        network: scenario.network,
        seed,
        until_ms: scenario.duration_ms,
    };
    let cells = &scenario.base.cells;
    let last_ms = demands.last().map_or(0, |demand| demand.at_ms);
    let end_ms = scenario.duration_ms.unwrap_or(last_ms);
    let mut watch_time = |virtual_ms| {
        watch(Progress {
            virtual_ms,
            end_ms,
            placed: 0,
            asked: 0,
        })
    };
    let (result, interrupted) =
        auctions_2014::run_watched(cells, demands, &settings, &mut watch_time);
    let price = scenario.price_per_cell_hour;
    let mut run = auctions_2014::outcome(label, cells, demands, &result, price);
    run.figures.bounds = Some(bound::of_asked(&run.figures));
    bound::add_balance(&mut run);
    (run, interrupted)
}

/// Rejects requests that the policy cannot decide.
fn check(
    scenario: &Scenario,
    demands: &[Demand],
    policy: &placement::Policy,
) -> Result<(), ScenarioError> {
    let requests = demands.iter().filter_map(Demand::request);
    let requests = requests.map(|request| (format!("request {}", request.id), request));
    let apps = scenario.definitions();
    let apps = apps.map(|put| (format!("app {}", put.app()), &put.template));
    for (what, request) in requests.chain(apps) {
        policy
            .check_request(request)
            .map_err(|e| ScenarioError::Field {
                at: format!("{what}: {}", e.field),
                message: format!("{} is not allowed; expected {}", e.value, e.expected),
            })?;
    }
    Ok(())
}
