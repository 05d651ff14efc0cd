//! Scenario files: a cluster, its workload and its faults, in TOML or JSON.
//!
//! The format is that of `vendue place` with more fields; docs/SIMULATOR.md lists them.

mod apps;
mod contender;
mod fault;
mod network;
mod read;
pub mod recording;
mod running;
mod trace;

use std::{collections::BTreeSet, sync::Arc};

use advertiser::Cadence;
use manager::{AppCommand, AppDefinition};
use placement::{Cell, Rate, Request, Resources, Span, fields};
use scenarios::{OfflineAuction, ScenarioError};
use serde::Deserialize;
use serde_json::Value;

pub use self::{
    apps::Command,
    contender::{AUCTIONS_2014, Contender, Decider},
    fault::{Fault, FaultKind, Target},
    trace::{ReadFile, TraceTable},
};
use crate::{
    demand::{self, Demand, DemandAction},
    network::Network,
    trace::Resample,
    workload::{self, WorkloadTable},
};

/// The maximum of cells times auctioneers and managers of a scenario.
const MAX_LINKS: u64 = 1_000_000;

/// A validated scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The part that `vendue place` also reads: the cells, their instances, the policy, the date.
    pub base: OfflineAuction,
    /// Its description.
    pub description: String,
    /// The file as it was read.
    pub text: String,
    /// The contenders it is simulated under, in order; at least one.
    pub contenders: Vec<Contender>,
    /// How long it runs; none: until every request has an outcome.
    pub duration_ms: Option<u64>,
    /// Number of auctioneers.
    pub auctioneers: u32,
    /// They are run with `--single`.
    pub single: bool,
    /// Number of managers.
    pub managers: u32,
    /// The commands to the managers, sorted by time.
    pub commands: Vec<Command>,
    /// The price of a cell for an hour.
    pub price_per_cell_hour: Option<f64>,
    /// The maximum number of requests of one moment in one message.
    pub array: usize,
    /// From a cell's acceptance of an instance until it runs.
    pub start_takes: Span,
    /// A minimal health manager: instances that are lost with a cell are requested again after this time.
    pub restart_lost_after_ms: Option<u64>,
    /// Set if an operator rebalances all the time: how many moves at once, and the wait before the next ones.
    pub rebalance: Option<Rate>,
    /// How messages travel.
    pub network: Network,
    /// How often cells advertise.
    pub cadence: Cadence,
    /// The faults.
    pub faults: Vec<Fault>,
    /// Warnings: work that is never requested, stops of unknown apps.
    pub warnings: Vec<String>,
    workload: Vec<WorkloadTable>,
    /// The demands of a trace.
    trace: Vec<Demand>,
    /// How it is drawn; none: unchanged.
    pub(crate) resample: Option<Resample>,
}

/// The fields that the simulator reads and `place` ignores.
#[derive(Default, Deserialize)]
struct SimulatorFields {
    #[serde(default)]
    description: String,
    #[serde(default)]
    policies: Option<Vec<Value>>,
    #[serde(default)]
    duration: Option<Span>,
    #[serde(default = "one")]
    auctioneers: u32,
    #[serde(default)]
    single: bool,
    #[serde(default)]
    managers: u32,
    #[serde(default)]
    apps: Vec<apps::AppsTable>,
    #[serde(default)]
    price_per_cell_hour: Option<f64>,
    #[serde(default = "one_request")]
    array: usize,
    #[serde(default)]
    start_takes: Span,
    #[serde(default)]
    restart_lost_after: Option<Span>,
    #[serde(default)]
    rebalance: Option<Rate>,
    #[serde(default)]
    network: network::NetworkTable,
    #[serde(default)]
    adverts: network::AdvertsTable,
    #[serde(default)]
    faults: Vec<fault::FaultTable>,
    #[serde(default)]
    trace: Option<TraceTable>,
    #[serde(default)]
    workload: Vec<WorkloadTable>,
}

/// The fields of a scenario that `place` and the simulator both read.
const SHARED_FIELDS: [&str; 9] = [
    "cells", "groups", "name", "now", "pick", "policy", "requests", "seed", "ttl",
];

impl Scenario {
    /// Parses a scenario: TOML, or else JSON. A scenario with a trace is refused, as its files cannot be read.
    pub fn read(text: &str, toml: bool) -> Result<Self, ScenarioError> {
        let none = |_: &str| Err(std::io::ErrorKind::Unsupported.into());
        Self::read_with(text, toml, &none)
    }

    /// Parses a scenario, with the files of its trace.
    pub fn read_with(text: &str, toml: bool, files: &ReadFile<'_>) -> Result<Self, ScenarioError> {
        let mut value = OfflineAuction::value(text, toml)?;
        check_fields(&value)?;
        if let Some(file) = value
            .as_object_mut()
            .filter(|file| file.contains_key("trace"))
        {
            file.insert("cells".into(), Value::Array(Vec::new()));
        }
        let mut base = read_base(value.clone())?;
        let policy = value.get("policy").cloned();
        let mut file: SimulatorFields = read::table(value, "")?;
        let mut resample = None;
        let mut work = Vec::new();
        if let Some(table) = &file.trace {
            let (trace, how) = table.read(files)?;
            base.cells = trace.cells;
            (work, resample) = (trace.demands, how);
        }
        let contenders = match (&file.policies, policy) {
            (None, policy) => {
                let policy = policy.unwrap_or_else(|| base.policy.name().into());
                vec![Contender::read(&policy, "policy")?]
            }
            (Some(_), Some(policy)) => {
                let expected = "\"policy\" or \"policies\", not both";
                return Err(read::wrong("policy", &policy, expected));
            }
            (Some(policies), None) => contender::read_all(policies)?,
        };
        running::check_room(&base.cells)?;
        running::check_devices(&base)?;
        running::fill_running(&mut base);
        if base.name.is_empty() {
            base.name = "scenario".into();
        }
        let faults = std::mem::take(&mut file.faults).into_iter().enumerate();
        let faults = faults
            .map(|(i, fault)| {
                let roles = (file.auctioneers, file.managers);
                fault.check(&format!("faults[{i}]"), &base.cells, roles)
            })
            .collect::<Result<_, _>>()?;
        Self {
            base,
            text: text.to_owned(),
            contenders,
            duration_ms: file.duration.map(millis),
            network: file.network.check()?,
            cadence: file.adverts.check()?,
            faults,
            warnings: Vec::new(),
            description: file.description,
            auctioneers: file.auctioneers,
            single: file.single,
            managers: file.managers,
            commands: apps::commands(file.apps)?,
            price_per_cell_hour: file.price_per_cell_hour,
            array: file.array,
            start_takes: file.start_takes,
            restart_lost_after_ms: file.restart_lost_after.map(millis),
            rebalance: file.rebalance,
            workload: file.workload,
            trace: work,
            resample,
        }
        .check()
    }

    fn check(mut self) -> Result<Self, ScenarioError> {
        self.check_roles()?;
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
        let demands = self.demands(self.base.seed)?;
        self.warnings = self.find_warnings(&demands);
        Ok(self)
    }

    fn check_roles(&self) -> Result<(), ScenarioError> {
        let roles = u64::from(self.auctioneers) + u64::from(self.managers);
        if self.auctioneers == 0 || self.base.cells.len() as u64 * roles > MAX_LINKS {
            let expected = format!(
                "1 or more, and at most {MAX_LINKS} pairs of an auctioneer or a manager and a cell"
            );
            return Err(read::wrong(
                "auctioneers",
                &self.auctioneers.into(),
                &expected,
            ));
        }
        let of_2014 =
            |contender: &&Contender| matches!(contender.decider, Decider::Auctions2014(_));
        if self.single && self.contenders.iter().any(|contender| of_2014(&contender)) {
            let expected = "no such field with an auction of 2014, which needs no auctioneers";
            return Err(read::wrong("single", &true.into(), expected));
        }
        if self.managers == 0 && !self.commands.is_empty() {
            let expected = "1 or more: [[apps]] are kept by managers";
            return Err(read::wrong("managers", &0.into(), expected));
        }
        if let Some(rate) = self.rebalance.filter(|_| self.managers == 0) {
            let expected = "no such field without managers, who carry out the moves";
            return Err(read::wrong("rebalance", &rate.to_string().into(), expected));
        }
        if self.managers == 0 {
            return Ok(());
        }
        let missing = |at: &str, message: &str| ScenarioError::Field {
            at: at.into(),
            message: message.into(),
        };
        if self.duration_ms.is_none() {
            return Err(missing(
                "duration",
                "missing; expected the time at which the run ends: managers never end it",
            ));
        }
        if self.restart_lost_after_ms.is_some() {
            return Err(missing(
                "restart_lost_after",
                "expected no such field beside managers, who replace what is lost",
            ));
        }
        if let Some(contender) = self.contenders.iter().find(of_2014) {
            let expected = "policies only: there were no managers in the auctions of 2014";
            return Err(read::wrong(
                "policies",
                &contender.label.as_str().into(),
                expected,
            ));
        }
        Ok(())
    }

    fn find_warnings(&self, demands: &[Demand]) -> Vec<String> {
        let asked = demands.iter().filter_map(Demand::request);
        let running = self.base.running.values().flatten();
        let mut apps: BTreeSet<&str> = asked.map(|request| request.app.as_str()).collect();
        apps.extend(running.map(|job| job.request.app.as_str()));
        let mut warnings = workload::warnings(&self.workload, self.duration_ms, &apps);
        for (i, fault) in self.faults.iter().enumerate() {
            if self.duration_ms.is_some_and(|end_ms| fault.at_ms >= end_ms) {
                warnings.push(format!(
                    "faults[{i}].at: not before the end of the scenario (duration); this fault never begins"
                ));
            }
        }
        let late = |command: &&Command| self.duration_ms.is_some_and(|end| command.at_ms >= end);
        if let Some(command) = self.commands.iter().find(late) {
            warnings.push(format!(
                "apps: the command to {} at {} is not before the end of the scenario (duration); it is not sent",
                command.app,
                placement::Span(std::time::Duration::from_millis(command.at_ms))
            ));
        }
        warnings
    }

    /// Returns the requests of the trace as its file has them.
    pub(crate) fn pods(&self) -> impl Iterator<Item = &Arc<Request>> {
        self.trace.iter().filter_map(Demand::request)
    }

    /// Returns the definitions of the apps that managers are to keep running.
    pub(crate) fn definitions(&self) -> impl Iterator<Item = &AppDefinition> {
        self.commands.iter().filter_map(|told| match &told.command {
            AppCommand::Put(definition) => Some(&**definition),
            _ => None,
        })
    }

    /// Returns the largest memory that one instance asks for, in MiB.
    pub(crate) fn largest_memory_mb(&self, demands: &[Demand]) -> i64 {
        let kept = self.definitions().map(|put| put.template.memory_mb);
        kept.fold(demand::largest_memory_mb(demands), i64::max)
    }

    /// Returns all demands, sorted by time. The seed determines the workload's draws.
    pub fn demands(&self, seed: u64) -> Result<Vec<Demand>, ScenarioError> {
        let mut demands = match &self.resample {
            Some(resample) => resample.draw(&self.trace, &self.base.cells, seed),
            None => self.trace.clone(),
        };
        for (n, request) in self.base.requests.iter().enumerate() {
            let mut request = (**request).clone();
            if request.id.is_empty() {
                request.id = format!("request-{n}");
            }
            demands.push(Demand {
                at_ms: 0,
                action: DemandAction::Start {
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

/// Rejects unknown fields at the top level: ignoring a misspelt one would silently change the experiment.
fn check_fields(value: &Value) -> Result<(), ScenarioError> {
    let Some(file) = value.as_object() else {
        return Ok(()); // refused where the file is read
    };
    let mut known = SHARED_FIELDS.to_vec();
    known.extend(fields::names::<SimulatorFields>());
    if let Some(field) = file.keys().find(|field| !known.contains(&field.as_str())) {
        return Err(unknown_field(field, &known));
    }
    let has_cells = file.contains_key("cells") || file.contains_key("groups");
    if file.contains_key("trace") && has_cells {
        return Err(ScenarioError::Field {
            at: "trace".into(),
            message: "expected no [[cells]] or [[groups]] beside it: its nodes are the cells"
                .into(),
        });
    }
    if !file.contains_key("trace") && !has_cells {
        return Err(ScenarioError::Field {
            at: "cells".into(),
            message: "missing; expected [[groups]] or [[cells]]".into(),
        });
    }
    Ok(())
}

fn unknown_field(path: &str, known: &[&str]) -> ScenarioError {
    let name = path.rsplit('.').next().unwrap_or(path);
    ScenarioError::Field {
        at: path.to_owned(),
        message: format!("unknown field{}", fields::hint(name, known)),
    }
}

/// Reads the part that `place` also reads; there, an unknown field is only a warning.
fn read_base(value: Value) -> Result<OfflineAuction, ScenarioError> {
    // the "available" of a group, or of a list of running instances, is a copy of its total
    let has_available = value["cells"]
        .as_array()
        .is_some_and(|cells| cells.iter().any(|cell| cell.get("available").is_some()));
    let valid_fields = |path: &str| {
        let of_request = path.starts_with("requests") || path.contains("running");
        match path.rsplit_once('.') {
            Some((parent, _)) if parent.ends_with("total") || parent.ends_with("available") => {
                fields::names::<Resources>()
            }
            _ if of_request => fields::names::<Request>(),
            _ => fields::names::<Cell>(),
        }
    };
    let base = OfflineAuction::from_value(value).map_err(|error| match error {
        ScenarioError::Field { at, message } => {
            let at = if has_available {
                at
            } else {
                at.replace(".available", ".total")
            };
            let missing = message.contains("missing field `available`");
            if missing && at.starts_with("cells") {
                let expected = "\"available\" beside \"total\", or \"running\"";
                let message = format!("missing field `available`; expected {expected}");
                ScenarioError::Field { at, message }
            } else if message == "no such field" {
                unknown_field(&at, valid_fields(&at))
            } else {
                ScenarioError::Field { at, message }
            }
        }
        other => other,
    })?;
    match base.warnings.first() {
        Some(path) => Err(unknown_field(path, valid_fields(path))),
        None => Ok(base),
    }
}

/// Returns the milliseconds of a duration, at most about 30,000 years.
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
