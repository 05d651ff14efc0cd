//! Scenario files: a cluster, what is asked of it and what goes wrong, in TOML or JSON.
//!
//! The file is the one of `vendue place`, with a few fields more; docs/SIMULATOR.md lists them.

mod contender;
mod fault;
mod network;
mod read;

use std::sync::Arc;

use advertiser::Cadence;
use placement::{Job, Kind, Request, ScenarioError, Span};
use serde::Deserialize;
use serde_json::Value;

pub use self::{
    contender::{Contender, Decider, ERA},
    fault::{Fault, Target, Trouble},
    network::Network,
};
use crate::{
    demand::{Demand, What},
    workload::{self, Workload},
};

/// The most cells times auctioneers of a scenario.
const MAX_LINKS: usize = 1_000_000;

/// A scenario, checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The cells, what runs on them, the policy, "now": what `vendue place` reads as well.
    pub base: placement::Scenario,
    /// What it shows, for people.
    pub description: String,
    /// The file as it was read.
    pub text: String,
    /// Under what it is played, in order; at least one.
    pub contenders: Vec<Contender>,
    /// How long it runs; none: until everything has an outcome.
    pub duration_ms: Option<u64>,
    /// How many auctioneers.
    pub auctioneers: u32,
    /// What a cell costs for an hour.
    pub price_per_cell_hour: Option<f64>,
    /// At most so many requests that are made at one moment go in one message.
    pub array: usize,
    /// How long an instance takes from its acceptance until it runs.
    pub start_takes: Span,
    /// A minimal health manager: what was lost with a cell is asked for again after so long.
    pub restart_lost_after_ms: Option<u64>,
    /// How messages travel.
    pub network: Network,
    /// How often cells advertise.
    pub cadence: Cadence,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    workload: Vec<Workload>,
    /// Work that came with a trace.
    trace: Vec<Demand>,
}

/// What the simulator reads beside what `place` reads.
#[derive(Default, Deserialize)]
struct File {
    #[serde(default)]
    description: String,
    #[serde(default)]
    policies: Vec<Value>,
    #[serde(default)]
    duration: Option<Span>,
    #[serde(default = "one")]
    auctioneers: u32,
    #[serde(default)]
    price_per_cell_hour: Option<f64>,
    #[serde(default = "one_request")]
    array: usize,
    #[serde(default)]
    start_takes: Span,
    #[serde(default)]
    restart_lost_after: Option<Span>,
    #[serde(default)]
    network: network::File,
    #[serde(default)]
    adverts: network::Adverts,
    #[serde(default)]
    faults: Vec<fault::File>,
    #[serde(default)]
    workload: Vec<Workload>,
}

impl Scenario {
    /// Reads a scenario: TOML, or else JSON.
    pub fn read(text: &str, toml: bool) -> Result<Self, ScenarioError> {
        let value = placement::Scenario::value(text, toml)?;
        let mut base = placement::Scenario::from_value(value.clone())?;
        let policy = value.get("policy").cloned();
        let mut file: File = read::table(value, "")?;
        let contenders = match (file.policies.is_empty(), policy) {
            (true, policy) => {
                let policy = policy.unwrap_or_else(|| base.policy.name().into());
                vec![Contender::read(&policy, "policy")?]
            }
            (false, Some(policy)) => {
                return Err(read::wrong(
                    "policy",
                    &policy,
                    "\"policy\" or \"policies\", not both",
                ));
            }
            (false, None) => contender::read_all(&file.policies)?,
        };
        fill_running(&mut base);
        if base.name.is_empty() {
            base.name = "scenario".into();
        }
        let faults = std::mem::take(&mut file.faults).into_iter().enumerate();
        let faults = faults
            .map(|(i, fault)| fault.check(&format!("faults[{i}]"), &base.cells, file.auctioneers))
            .collect::<Result<_, _>>()?;
        Self {
            base,
            text: text.to_owned(),
            contenders,
            duration_ms: file.duration.map(millis),
            network: file.network.check()?,
            cadence: file.adverts.check()?,
            faults,
            description: file.description,
            auctioneers: file.auctioneers,
            price_per_cell_hour: file.price_per_cell_hour,
            array: file.array,
            start_takes: file.start_takes,
            restart_lost_after_ms: file.restart_lost_after.map(millis),
            workload: file.workload,
            trace: Vec::new(),
        }
        .check()
    }

    /// A scenario of a trace's cells and work.
    pub fn of_trace(
        name: &str,
        cells: Vec<placement::Cell>,
        work: Vec<Demand>,
    ) -> Result<Self, ScenarioError> {
        let mut scenario = Self::read(
            &format!("name = {name:?}\ndescription = \"a trace\"\nauctioneers = 1\ncells = []\n"),
            true,
        )?;
        scenario.base.cells = cells;
        scenario.trace = work;
        scenario.check()
    }

    fn check(self) -> Result<Self, ScenarioError> {
        let links = self.base.cells.len() * self.auctioneers as usize;
        if self.auctioneers == 0 || links > MAX_LINKS {
            let expected = format!("1 and more, and with the cells at most {MAX_LINKS} pairs");
            return Err(read::wrong(
                "auctioneers",
                &self.auctioneers.into(),
                &expected,
            ));
        }
        if !(1..=10_000).contains(&self.array) {
            return Err(read::wrong(
                "array",
                &self.array.into(),
                "a number from 1 to 10000",
            ));
        }
        if let Some(price) = self
            .price_per_cell_hour
            .filter(|p| !(0.0..=1e9).contains(p))
        {
            return Err(read::wrong(
                "price_per_cell_hour",
                &price.into(),
                "a number from 0 to 1e9",
            ));
        }
        self.demands(self.base.seed).map(|_| ())?;
        Ok(self)
    }

    /// All that is asked for, in time's order. The seed decides what the workload draws.
    pub fn demands(&self, seed: u64) -> Result<Vec<Demand>, ScenarioError> {
        let mut demands = self.trace.clone();
        for (n, request) in self.base.requests.iter().enumerate() {
            let mut request = (**request).clone();
            if request.id.is_empty() {
                request.id = format!("request-{n}");
            }
            demands.push(Demand {
                at_ms: 0,
                what: What::Start {
                    request: Arc::new(request),
                    lifetime_ms: None,
                },
            });
        }
        let drawn = workload::demands(&self.workload, self.duration_ms, seed);
        demands.extend(drawn.map_err(|e| read::invalid(&e))?);
        demands.sort_by_key(|demand| demand.at_ms);
        Ok(demands)
    }
}

/// Where a file says of a cell only which apps it holds and how much is left, each of their
/// instances has the same share of what is used; without apps one instance holds all of it.
fn fill_running(base: &mut placement::Scenario) {
    for cell in &base.cells {
        let used_mb = cell.total.memory_mb - cell.available.memory_mb;
        let listed = cell
            .apps
            .iter()
            .map(|(app, count)| (app.clone(), *count, Kind::Lrp));
        let tasks =
            (cell.tasks > 0).then(|| (format!("tasks-of-{}", cell.cell), cell.tasks, Kind::Task));
        let mut apps: Vec<(String, u32, Kind)> = listed.chain(tasks).collect();
        if base.running.contains_key(&cell.cell) || (apps.is_empty() && used_mb <= 0) {
            continue;
        }
        if apps.is_empty() {
            apps.push((format!("used-of-{}", cell.cell), 1, Kind::Lrp));
        }
        let count: i64 = apps.iter().map(|(_, count, _)| i64::from(*count)).sum();
        let used = |total: Option<i64>, left: Option<i64>| {
            total.zip(left).map_or(0, |(t, l)| (t - l).max(0))
        };
        let disk_mb = used(cell.total.disk_mb, cell.available.disk_mb);
        let cpu = (cell.total.cpu_millis - cell.available.cpu_millis).max(0);
        let mut jobs = Vec::new();
        for (app, instances, kind) in apps {
            for index in 0..instances {
                // the first one has what does not divide
                let share = |all: i64| all / count + if jobs.is_empty() { all % count } else { 0 };
                let mut request = Request::new(app.as_str(), share(used_mb.max(0)), share(disk_mb));
                request.cpu_millis = share(cpu);
                request.kind = kind;
                jobs.push(Job {
                    request: Arc::new(request),
                    index,
                });
            }
        }
        base.running.insert(cell.cell.clone(), jobs);
    }
}

/// Milliseconds of a length of time, at most some 30,000 years.
fn millis(span: Span) -> u64 {
    u64::try_from(span.0.as_millis())
        .unwrap_or(u64::MAX)
        .min(1 << 50)
}

fn one() -> u32 {
    1
}

fn one_request() -> usize {
    1
}
