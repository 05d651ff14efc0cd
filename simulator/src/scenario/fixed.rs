//! The workloads that draw nothing: requests and stops at given times.

use std::sync::Arc;

use placement::{Request, ScenarioError, Span};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{millis, read};
use crate::demand::{Demand, What};

/// The most apps of one entry.
const MAX_APPS: u32 = 10_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    at: Span,
    #[serde(default)]
    start: Option<Map<String, Value>>,
    #[serde(default)]
    apps: Option<Map<String, Value>>,
    #[serde(default)]
    stop: Option<Stop>,
    #[serde(default)]
    lifetime: Option<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Stop {
    app: String,
    #[serde(default)]
    indices: Vec<u32>,
}

pub(super) fn demands(workload: &[Value], _seed: u64) -> Result<Vec<Demand>, ScenarioError> {
    let mut demands = Vec::new();
    for (i, entry) in workload.iter().enumerate() {
        let at = format!("workload[{i}]");
        let entry: Entry = read::table(entry.clone(), &at)?;
        let at_ms = millis(entry.at);
        let lifetime_ms = entry.lifetime.map(millis);
        let mut start = |request: Request| {
            demands.push(Demand {
                at_ms,
                what: What::Start {
                    request: Arc::new(request),
                    lifetime_ms,
                },
            });
        };
        match (entry.start, entry.apps, entry.stop) {
            (Some(fields), None, None) => {
                let mut request = request(fields, &format!("{at}.start"))?;
                if request.id.is_empty() {
                    request.id = format!("w{i}");
                }
                start(request);
            }
            (None, Some(fields), None) => apps(i, fields, &format!("{at}.apps"), start)?,
            (None, None, Some(stop)) => {
                placement::check_name("app", &stop.app)
                    .map_err(|e| read::invalid(&format!("{at}.stop"), &e))?;
                demands.push(Demand {
                    at_ms,
                    what: What::Stop {
                        app: stop.app,
                        indices: stop.indices,
                    },
                });
            }
            _ => {
                let expected = "exactly one of \"start\", \"apps\" and \"stop\"";
                return Err(read::wrong(&at, &workload[i], expected));
            }
        }
    }
    Ok(demands)
}

fn apps(
    entry: usize,
    mut fields: Map<String, Value>,
    at: &str,
    mut start: impl FnMut(Request),
) -> Result<(), ScenarioError> {
    let count = fields.remove("count").unwrap_or_else(|| 1.into());
    let count = (count.as_u64().and_then(|n| u32::try_from(n).ok()))
        .filter(|n| (1..=MAX_APPS).contains(n))
        .ok_or_else(|| {
            read::wrong(
                &format!("{at}.count"),
                &count,
                "a number from 1 to 10000000",
            )
        })?;
    let name = fields
        .remove("name")
        .unwrap_or_else(|| format!("w{entry}-{{n}}").into());
    let Some(name) = name
        .as_str()
        .filter(|name| count == 1 || name.contains("{n}"))
    else {
        return Err(read::wrong(
            &format!("{at}.name"),
            &name,
            "a name with {n} in it",
        ));
    };
    fields.insert("app".into(), name.replace("{n}", "0").into());
    let template = request(fields, at)?;
    for n in 0..count {
        let mut request = template.clone();
        request.app = name.replace("{n}", &n.to_string());
        request.id = format!("w{entry}-{n}");
        start(request);
    }
    Ok(())
}

fn request(mut fields: Map<String, Value>, at: &str) -> Result<Request, ScenarioError> {
    fields.entry("disk_mb").or_insert_with(|| 0.into());
    let request: Request = read::table(Value::Object(fields), at)?;
    request.check().map_err(|e| read::invalid(at, &e))?;
    Ok(request)
}
