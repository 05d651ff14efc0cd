//! Scenario files: cells, requests and a policy in one file, in JSON or TOML.

mod groups;

use std::{collections::BTreeMap, sync::Arc};

use placement::{
    Cell, Explain, Invalid, Job, PlanContext, Policy, PolicyError, Pool, Report, Request,
    Timestamp, in_json_terms,
};
use serde::Deserialize;

/// An offline auction: the cells, the requests, and the policy.
#[derive(Clone, Debug)]
pub struct OfflineAuction {
    /// Its name.
    pub name: String,
    /// Milliseconds since the Unix epoch: the time to which planned reboots are compared.
    pub now_ms: i64,
    /// The policy.
    pub policy: Policy,
    /// Pick the first cell by name among the finalists instead of drawing.
    pub first: bool,
    /// Decides ties and samples.
    pub seed: u64,
    /// The cells whose advertisement is valid.
    pub cells: Vec<Cell>,
    /// The cells whose advertisement has expired.
    pub expired: Vec<Cell>,
    /// The requests, in order.
    pub requests: Vec<Arc<Request>>,
    /// The instances that run already, by cell, if the file lists them (`running`); the cells
    /// include them.
    pub running: BTreeMap<String, Vec<Job>>,
    /// Unknown fields: perhaps misspelt.
    pub warnings: Vec<String>,
}

/// An error in a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// It is neither JSON nor TOML.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// The parser's message.
        message: String,
    },
    /// A field is invalid.
    #[error("{at}: {message}")]
    Field {
        /// The field, as a path (`cells[3].total.memory_mb`).
        at: String,
        /// Its value and what was expected.
        message: String,
    },
    /// The policy is invalid.
    #[error("policy: {0}")]
    Policy(PolicyError),
}

// no source beside it: the message says it already
impl From<PolicyError> for ScenarioError {
    fn from(error: PolicyError) -> Self {
        Self::Policy(error)
    }
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    name: String,
    #[serde(default)]
    now: Option<String>,
    #[serde(default)]
    ttl: Option<String>,
    #[serde(default)]
    policy: Option<serde_json::Value>,
    #[serde(default)]
    pick: Option<String>,
    #[serde(default)]
    seed: u64,
    cells: Vec<Cell>,
    #[serde(default)]
    requests: Vec<Request>,
}

/// The fields that only the simulator reads.
const SIMULATOR: [&str; 18] = [
    "apps",
    "array",
    "auctioneers",
    "adverts",
    "description",
    "duration",
    "faults",
    "managers",
    "network",
    "policies",
    "price_per_cell_hour",
    "rebalance",
    "restart_lost_after",
    "single",
    "start_takes",
    "trace",
    "workload",
    "reboots",
];

/// The default policy.
const DEFAULT_POLICY: &str = "diego";

impl OfflineAuction {
    /// Parses a scenario in JSON.
    pub fn from_json(text: &str) -> Result<Self, ScenarioError> {
        Self::from_value(Self::value(text, false)?)
    }

    /// Parses a scenario in TOML.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        Self::from_value(Self::value(text, true)?)
    }

    /// The file as a tree, in either format; nothing is validated.
    pub fn value(text: &str, toml: bool) -> Result<serde_json::Value, ScenarioError> {
        if !toml {
            return serde_json::from_str(text).map_err(|e| ScenarioError::Syntax {
                line: e.line(),
                column: e.column(),
                message: strip_place(&e.to_string()),
            });
        }
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            let before = text.get(..e.span().map_or(0, |s| s.start)).unwrap_or(text);
            ScenarioError::Syntax {
                line: before.matches('\n').count() + 1,
                column: before.chars().rev().take_while(|c| *c != '\n').count() + 1,
                message: e.message().trim().to_owned(),
            }
        })?;
        to_json(toml::Value::Table(table), "")
    }

    /// Reads the tree of a scenario file.
    pub fn from_value(mut json: serde_json::Value) -> Result<Self, ScenarioError> {
        let expanded = groups::expand(&mut json)?;
        if let Some(file) = json.as_object_mut() {
            for field in SIMULATOR {
                file.remove(field);
            }
        }
        let mut warnings = Vec::new();
        let mut track = serde_path_to_error::Track::new();
        let tracked = serde_path_to_error::Deserializer::new(json, &mut track);
        let read: Result<File, _> =
            serde_ignored::deserialize(tracked, |path| warnings.push(path.to_string()));
        let file = read.map_err(|e: serde_json::Error| {
            let path = track.path().to_string();
            let at = if path == "." { "scenario".into() } else { path };
            let message = plain(&e);
            ScenarioError::Field { at, message }
        })?;
        Self::check(file, expanded, warnings)
    }

    fn check(
        file: File,
        expanded: groups::Expanded,
        warnings: Vec<String>,
    ) -> Result<Self, ScenarioError> {
        let name = serde_json::Value::String(DEFAULT_POLICY.into());
        let policy = Policy::from_json(file.policy.as_ref().unwrap_or(&name))?;
        let now_ms = match &file.now {
            None => 0,
            Some(now) => now
                .parse::<Timestamp>()
                .map_err(|_| wrong("now", now, "a date such as \"2026-01-01T00:00:00Z\""))?
                .ms(),
        };
        let ttl_text = file.ttl.as_deref().unwrap_or("15s");
        let ttl = humantime::parse_duration(ttl_text)
            .ok()
            .ok_or_else(|| wrong("ttl", ttl_text, "a duration such as \"15s\""))?;
        let first = match file.pick.as_deref() {
            None | Some("draw") => false,
            Some("first") => true,
            Some(other) => return Err(wrong("pick", other, "\"first\" or \"draw\"")),
        };
        let listed = file.cells.into_iter().enumerate();
        let is_old = |i: usize| expanded.ages.get(&i).is_some_and(|age| *age >= ttl);
        let listed = listed.map(|(i, cell)| (format!("cells[{i}]"), cell, is_old(i)));
        let grouped = expanded.cells.into_iter();
        let grouped = grouped.map(|cell| (format!("groups: {}", cell.cell), cell, false));
        let (cells, expired) = check_cells(listed.chain(grouped))?;
        let mut requests = Vec::with_capacity(file.requests.len());
        for (i, request) in file.requests.into_iter().enumerate() {
            let at = || format!("requests[{i}]");
            request.check().map_err(|e| field(&at(), &e))?;
            policy
                .check_request(&request)
                .map_err(|e| field(&at(), &e))?;
            requests.push(Arc::new(request));
        }
        Ok(Self {
            name: file.name,
            now_ms,
            policy,
            first,
            seed: file.seed,
            cells,
            expired,
            requests,
            running: expanded.running,
            warnings,
        })
    }

    /// What the requests ask for and the policy does not use: each text once, with the first
    /// request that it concerns.
    pub fn ignored_fields(&self) -> Vec<String> {
        let mut seen: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        for (i, request) in self.requests.iter().enumerate() {
            for text in self.policy.ignored_fields(request) {
                seen.entry(text).or_insert((i, 0)).1 += 1;
            }
        }
        let in_one_line = |(text, (first, times)): (String, (usize, usize))| match times {
            1 => format!("requests[{first}].{text}"),
            n => format!("requests[{first}].{text} (and {} more like it)", n - 1),
        };
        seen.into_iter().map(in_one_line).collect()
    }

    /// The cells as a pool, the expired ones included: [`OfflineAuction::draw`] has their names.
    pub fn pool(&self) -> Pool {
        let mut pool = Pool::default();
        for cell in self.cells.iter().chain(&self.expired) {
            pool.put(cell.clone());
        }
        pool
    }

    /// All jobs, in the order of the requests.
    pub fn jobs(&self) -> Vec<Job> {
        self.requests.iter().flat_map(Request::jobs).collect()
    }

    /// The seed, the date and what else the plan depends on.
    pub fn draw(&self, explain: Explain) -> PlanContext {
        let name = |cell: &Cell| Arc::from(cell.cell.as_str());
        PlanContext {
            seed: self.seed,
            now_ms: self.now_ms,
            first: self.first,
            expired: self.expired.iter().map(name).collect(),
            explain,
            ..PlanContext::default()
        }
    }

    /// Decides everything. Finalists are always included; stages and scores if asked for.
    pub fn run(&self, explain: Explain) -> Report {
        let jobs = self.jobs();
        let draw = self.draw(explain.max(Explain::Finalists));
        let plan = self.pool().plan(&jobs, &self.policy, &draw);
        Report::new(&jobs, plan)
    }
}

/// Validates each cell and its name; those with expired advertisements are kept apart.
fn check_cells(
    all: impl Iterator<Item = (String, Cell, bool)>,
) -> Result<(Vec<Cell>, Vec<Cell>), ScenarioError> {
    let mut names = std::collections::BTreeSet::new();
    let (mut cells, mut expired) = (Vec::new(), Vec::new());
    for (at, cell, is_old) in all {
        cell.check().map_err(|e| field(&at, &e))?;
        if !names.insert(cell.cell.clone()) {
            let at = format!("{at}.cell");
            return Err(wrong(&at, &cell.cell, "each name once"));
        }
        if is_old {
            expired.push(cell);
        } else {
            cells.push(cell);
        }
    }
    Ok((cells, expired))
}

fn wrong(at: &str, value: &str, expected: &str) -> ScenarioError {
    ScenarioError::Field {
        at: at.into(),
        message: format!("{value:?} is not allowed; expected {expected}"),
    }
}

fn field(prefix: &str, e: &Invalid) -> ScenarioError {
    ScenarioError::Field {
        at: format!("{prefix}.{}", e.field),
        message: format!("{} is not allowed; expected {}", e.value, e.expected),
    }
}

/// What is wrong with a value, in words of the file's format where the parser has Rust's.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    in_json_terms(&text, false).unwrap_or(text)
}

/// serde_json ends its messages with the position, which is given separately
fn strip_place(message: &str) -> String {
    message
        .rsplit_once(" at line ")
        .map_or(message, |(text, _)| text)
        .to_owned()
}

/// The same tree in JSON, which has no infinite numbers.
fn to_json(value: toml::Value, at: &str) -> Result<serde_json::Value, ScenarioError> {
    Ok(match value {
        toml::Value::String(text) => text.into(),
        toml::Value::Integer(n) => n.into(),
        toml::Value::Float(n) if !n.is_finite() => {
            return Err(ScenarioError::Field {
                at: at.to_owned(),
                message: format!("{n} is not allowed; expected a finite number"),
            });
        }
        toml::Value::Float(n) => n.into(),
        toml::Value::Boolean(flag) => flag.into(),
        toml::Value::Datetime(date) => date.to_string().into(),
        toml::Value::Array(list) => {
            let item = |(i, value)| to_json(value, &format!("{at}[{i}]"));
            let items: Result<Vec<_>, _> = list.into_iter().enumerate().map(item).collect();
            items?.into()
        }
        toml::Value::Table(table) => {
            let entry = |(key, value): (String, toml::Value)| {
                let dot = if at.is_empty() { "" } else { "." };
                let value = to_json(value, &format!("{at}{dot}{key}"))?;
                Ok::<_, ScenarioError>((key, value))
            };
            let entries: Result<_, _> = table.into_iter().map(entry).collect();
            serde_json::Value::Object(entries?)
        }
    })
}
