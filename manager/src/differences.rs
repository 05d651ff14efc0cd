//! The differences between two records of an app, field by field and without environment variables' values.

use std::collections::{BTreeMap, BTreeSet};

use placement::{cut, shown_url};
use serde_json::{Map, Value};
use shared::wire::FieldChange;

use crate::{definition::AppDefinition, stored::AppRecord};

/// Maximum number of differences that are listed.
const MAX_LISTED: usize = 100;
/// Length in bytes of JSON beyond which a value is cut.
const MAX_VALUE: usize = 400;
/// Stands for the value of an environment variable and for the content of a droplet or its staging.
const HIDDEN: &str = "(hidden)";
/// Prefixes of fields that hold credentials.
const SECRETS: [&str; 3] = ["run.env.", "run.droplet.", "run.staging."];
/// A field that may contain credentials.
const SOURCE: &str = "run.source.url";

/// The differences between two records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// The first changes, in the order of their fields.
    pub changes: Vec<FieldChange>,
    /// Whether there are more.
    pub more: bool,
}

impl Differences {
    /// Compares two records of one app.
    pub(crate) fn between(before: &AppRecord, after: &AppRecord) -> Self {
        Self::of(&of_record(before), &of_record(after))
    }

    /// Compares two definitions of one app.
    pub fn of_definitions(before: &AppDefinition, after: &AppDefinition) -> Self {
        Self::of(&fields(&before.written()), &fields(&after.written()))
    }

    fn of(before: &BTreeMap<String, Value>, after: &BTreeMap<String, Value>) -> Self {
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let differ = names
            .into_iter()
            .filter(|name| before.get(*name) != after.get(*name));
        let mut changes: Vec<FieldChange> = differ
            .take(MAX_LISTED + 1)
            .map(|name| FieldChange {
                field: cut(name).into_owned(),
                before: before.get(name).map(|value| told(name, value)),
                after: after.get(name).map(|value| told(name, value)),
            })
            .collect();
        let more = changes.len() > MAX_LISTED;
        changes.truncate(MAX_LISTED);
        Self { changes, more }
    }
}

fn of_record(record: &AppRecord) -> BTreeMap<String, Value> {
    let mut all = fields(&record.definition.written());
    for (field, set) in [
        ("stopped", record.stopped),
        ("paused", record.paused),
        ("deleted", record.deleted),
    ] {
        all.insert(field.into(), set.into());
    }
    all
}

/// Returns every value that is not an object, under its path.
fn fields(map: &Map<String, Value>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    let mut rest: Vec<(String, &Value)> = map.iter().map(|(k, v)| (k.clone(), v)).collect();
    while let Some((path, value)) = rest.pop() {
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                rest.extend(inner.iter().map(|(k, v)| (format!("{path}.{k}"), v)));
            }
            other => _ = all.insert(path, other.clone()),
        }
    }
    all
}

/// Returns a value as it is reported.
fn told(name: &str, value: &Value) -> Value {
    if SECRETS.iter().any(|secret| name.starts_with(secret)) {
        return HIDDEN.into();
    }
    if name == SOURCE {
        return shown_url(value.as_str().unwrap_or_default()).into();
    }
    let text = value.to_string();
    if text.len() > MAX_VALUE {
        return cut(&text).into_owned().into();
    }
    value.clone()
}
