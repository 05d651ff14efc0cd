//! Groups of cells, and their running instances.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Duration};

use placement::{
    Cell, Counts, Job, Request,
    random::{hash_text, mix},
};
use serde_json::{Map, Value};

use super::{ScenarioError, wrong};

/// The most cells of a group, and the most instances on one of its cells.
const MAX_COUNT: u64 = 100_000;

/// Cells and their running instances.
#[derive(Debug, Default)]
pub(super) struct Expanded {
    /// The groups' cells.
    pub(super) cells: Vec<Cell>,
    /// By position in `cells`: the age of the cell's advertisement.
    pub(super) ages: BTreeMap<usize, Duration>,
    /// By cell: each instance with its size.
    pub(super) running: BTreeMap<String, Vec<Job>>,
}

/// Removes `groups`, and `running` of each entry of `cells`, from a scenario.
pub(super) fn expand(json: &mut Value) -> Result<Expanded, ScenarioError> {
    let Some(file) = json.as_object_mut() else {
        return Ok(Expanded::default()); // it is refused where the file is read
    };
    let seed = file.get("seed").and_then(Value::as_u64).unwrap_or(0);
    let mut expanded = Expanded::default();
    let mut names = Names::default();
    if let Some(cells) = file.get_mut("cells").and_then(Value::as_array_mut) {
        for (i, cell) in cells.iter_mut().enumerate() {
            let at = format!("cells[{i}]");
            if let Some(age) = take_age(cell, &at)? {
                expanded.ages.insert(i, age);
            }
            take_running(cell, &at, seed, &mut names, &mut expanded)?;
        }
    }
    let Some(groups) = file.remove("groups") else {
        return Ok(expanded);
    };
    file.entry("cells")
        .or_insert_with(|| Value::Array(Vec::new()));
    let Value::Array(groups) = groups else {
        return Err(wrong(
            "groups",
            &short(&groups),
            "a list of groups of cells",
        ));
    };
    for (i, group) in groups.into_iter().enumerate() {
        one(
            group,
            &format!("groups[{i}]"),
            seed,
            &mut names,
            &mut expanded,
        )?;
    }
    Ok(expanded)
}

/// The age of a cell's advertisement, if the file has it; advertisements themselves do not.
fn take_age(cell: &mut Value, at: &str) -> Result<Option<Duration>, ScenarioError> {
    let Some(age) = cell.as_object_mut().and_then(|fields| fields.remove("age")) else {
        return Ok(None);
    };
    let read = age
        .as_str()
        .and_then(|text| humantime::parse_duration(text).ok());
    let expected = "a duration such as \"2h\"";
    let wrong = || {
        wrong(
            &format!("{at}.age"),
            age.as_str().unwrap_or(&short(&age)),
            expected,
        )
    };
    read.map(Some).ok_or_else(wrong)
}

/// The `running` of one cell: without `available`, that is what the instances leave.
fn take_running(
    cell: &mut Value,
    at: &str,
    seed: u64,
    names: &mut Names,
    expanded: &mut Expanded,
) -> Result<(), ScenarioError> {
    let Some(fields) = cell.as_object_mut() else {
        return Ok(());
    };
    let Some(running) = fields.remove("running") else {
        return Ok(());
    };
    for field in ["available", "apps"] {
        if let Some(value) = fields.get(field) {
            let at = format!("{at}.{field}");
            return Err(wrong(
                &at,
                &short(value),
                "no such field beside \"running\"",
            ));
        }
    }
    all_is_available(fields);
    let mut full: Cell = read(Value::Object(fields.clone()), at)?;
    let running = entries(running, &format!("{at}.running"))?;
    let jobs = hold(&running, &mut full, seed, names);
    let written = serde_json::to_value(&full).map_err(|e| ScenarioError::Field {
        at: at.into(),
        message: e.to_string(),
    })?;
    for field in ["available"].into_iter().chain(Counts::FIELDS) {
        if let Some(value) = written.get(field) {
            fields.insert(field.into(), value.clone());
        }
    }
    expanded.running.insert(full.cell, jobs);
    Ok(())
}

fn one(
    group: Value,
    at: &str,
    seed: u64,
    names: &mut Names,
    expanded: &mut Expanded,
) -> Result<(), ScenarioError> {
    let Value::Object(mut fields) = group else {
        return Err(wrong(at, &short(&group), "a table"));
    };
    let count = match fields.remove("count") {
        None => 1,
        Some(count) => (count.as_u64().filter(|n| (1..=MAX_COUNT).contains(n)))
            .ok_or_else(|| wrong_count(&format!("{at}.count"), &count))?,
    };
    let zone = fields
        .get("zone")
        .and_then(Value::as_str)
        .unwrap_or("default")
        .to_owned();
    let prefix = match fields.remove("prefix") {
        None => format!("{zone}-cell"),
        Some(Value::String(prefix)) => prefix,
        Some(other) => {
            return Err(wrong(
                &format!("{at}.prefix"),
                &short(&other),
                "a prefix for the cells' names",
            ));
        }
    };
    let running = match fields.remove("running") {
        None => Vec::new(),
        Some(running) => entries(running, &format!("{at}.running"))?,
    };
    for field in ["cell", "available", "apps", "age"] {
        if let Some(value) = fields.get(field) {
            let at = format!("{at}.{field}");
            return Err(wrong(
                &at,
                &short(value),
                "no such field in a group of cells",
            ));
        }
    }
    let first = fields.get("index").and_then(Value::as_u64).unwrap_or(0);
    fields.insert("cell".into(), format!("{prefix}-0").into());
    all_is_available(&mut fields);
    let template: Cell = read(Value::Object(fields), at)?;
    for n in 0..count {
        let mut cell = template.clone();
        cell.cell = format!("{prefix}-{n}");
        cell.index = u32::try_from(first + n).unwrap_or(u32::MAX);
        let jobs = hold(&running, &mut cell, seed, names);
        if !jobs.is_empty() {
            expanded.running.insert(cell.cell.clone(), jobs);
        }
        expanded.cells.push(cell);
    }
    Ok(())
}

/// Nothing runs there yet. Without a total, the error is about the total.
fn all_is_available(fields: &mut Map<String, Value>) {
    if let Some(total) = fields.get("total").cloned() {
        fields.insert("available".into(), total);
    }
}

/// One entry of `running`: an instance's request, and the number on each cell.
struct Entry {
    count: RangeInclusive<u64>,
    request: Request,
}

/// Numbers for `{n}`, and the next index of each app.
#[derive(Default)]
struct Names {
    next: u64,
    indices: BTreeMap<String, u32>,
}

fn entries(running: Value, at: &str) -> Result<Vec<Entry>, ScenarioError> {
    let Value::Array(list) = running else {
        return Err(wrong(at, &short(&running), "a list of running instances"));
    };
    let mut entries = Vec::with_capacity(list.len());
    for (i, entry) in list.into_iter().enumerate() {
        let at = format!("{at}[{i}]");
        let Value::Object(mut fields) = entry else {
            return Err(wrong(&at, &short(&entry), "a table"));
        };
        let count = match fields.remove("count") {
            None => 1..=1,
            Some(count) => {
                range(&count).ok_or_else(|| wrong_count(&format!("{at}.count"), &count))?
            }
        };
        entries.push(Entry {
            count,
            request: entry_request(fields, &at)?,
        });
    }
    Ok(entries)
}

fn entry_request(mut fields: Map<String, Value>, at: &str) -> Result<Request, ScenarioError> {
    fields.entry("disk_mb").or_insert_with(|| 0.into());
    for field in ["id", "instances", "indices"] {
        if let Some(value) = fields.get(field) {
            let at = format!("{at}.{field}");
            return Err(wrong(
                &at,
                &short(value),
                "no such field here; use \"count\"",
            ));
        }
    }
    let request: Request = read(Value::Object(fields), at)?;
    let mut named = request.clone();
    named.app = request.app.replace("{n}", "0");
    named.check().map_err(|e| super::field(at, &e))?;
    Ok(request)
}

/// A number, or a range from which it is drawn.
fn range(value: &Value) -> Option<RangeInclusive<u64>> {
    if let Some(number) = value.as_u64() {
        return (number <= MAX_COUNT).then_some(number..=number);
    }
    let (low, high) = value.as_str()?.split_once("..")?;
    let (low, high): (u64, u64) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
    (low <= high && high <= MAX_COUNT).then_some(low..=high)
}

fn hold(running: &[Entry], cell: &mut Cell, seed: u64, names: &mut Names) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (i, entry) in running.iter().enumerate() {
        let (low, high) = (*entry.count.start(), *entry.count.end());
        let dice = mix(mix(seed ^ hash_text(&cell.cell)) ^ i as u64);
        let count = low + dice % (high - low + 1);
        let numbered = entry.request.app.contains("{n}");
        let mut shared = Arc::new(entry.request.clone());
        for _ in 0..count {
            let mut index = 0;
            if numbered {
                let mut own = entry.request.clone();
                own.app = own.app.replace("{n}", &names.next.to_string());
                names.next += 1;
                shared = Arc::new(own);
            } else {
                let next = names.indices.entry(shared.app.clone()).or_insert(0);
                index = *next;
                *next += 1;
            }
            let given = cell.available.choose_devices(&shared);
            cell.debit(&shared, given.as_deref());
            jobs.push(Job {
                request: Arc::clone(&shared),
                index,
            });
        }
    }
    cell.counts.starting = 0;
    jobs
}

/// Parses a table in which unknown fields are rejected.
fn read<T: serde::de::DeserializeOwned>(value: Value, at: &str) -> Result<T, ScenarioError> {
    let mut unknown = None;
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    let read = serde_ignored::deserialize(tracked, |path| {
        unknown.get_or_insert_with(|| path.to_string());
    });
    let read = read.map_err(|e: serde_json::Error| {
        let path = track.path().to_string();
        let at = if path == "." {
            at.into()
        } else {
            format!("{at}.{path}")
        };
        ScenarioError::Field {
            at,
            message: super::plain(&e),
        }
    })?;
    match unknown {
        None => Ok(read),
        Some(field) => Err(ScenarioError::Field {
            at: format!("{at}.{field}"),
            message: "no such field".into(),
        }),
    }
}

fn wrong_count(at: &str, value: &Value) -> ScenarioError {
    let expected = format!(
        "a number from 1 to {MAX_COUNT}, or, for running instances, a range such as \"78..80\""
    );
    wrong(at, &short(value), &expected)
}

fn short(value: &Value) -> String {
    value.to_string().chars().take(40).collect()
}
