//! The `[[workload]]` tables of a scenario, and the demands that they describe.
//!
//! A table is of one of four kinds: `start` (one request), `stop`, `apps` (many apps at once) and `arrivals` (apps over
//! time). Every table and every app has its own random stream, derived from the scenario's seed: adding a table, or a
//! draw for one app, changes no other.

mod amount;
mod generate;
mod template;

pub use amount::Amount;
pub use generate::{MAX_DEMANDS, MAX_INSTANCES, demands};
pub use template::Template;

use std::{collections::BTreeSet, time::Duration};

use placement::{Invalid, Kind, Request, Span};
use serde::Deserialize;

use crate::random::Distribution;

/// One table; it has exactly one of `start`, `stop`, `apps` and `arrivals`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadTable {
    /// When `start`, `stop` and `apps` are made; default 0.
    #[serde(default)]
    pub at: Option<Span>,
    /// One request, as in `place`; it gets an id if it has none.
    #[serde(default, deserialize_with = "template::strict")]
    pub start: Option<Request>,
    /// Instances to stop.
    #[serde(default)]
    pub stop: Option<InstancesToStop>,
    /// Apps that arrive at the same time.
    #[serde(default)]
    pub apps: Option<Apps>,
    /// When apps arrive.
    #[serde(default)]
    pub arrivals: Option<Arrivals>,
    /// The apps of `arrivals`.
    #[serde(default)]
    pub app: Option<Template>,
    /// How long each app lives from its request (for a task: each instance from its start); without it, until the end.
    #[serde(default)]
    pub lifetime: Option<Distribution>,
    /// How each app grows and shrinks while it lives.
    #[serde(default)]
    pub scale: Option<Scale>,
}

/// Which instances of an app to stop.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstancesToStop {
    /// The app.
    pub app: String,
    /// The indices; all if absent or empty.
    #[serde(default)]
    pub indices: Vec<u32>,
}

/// Apps that arrive at the same time: a [`Template`] with `count`.
#[derive(Clone, Debug, PartialEq)]
pub struct Apps {
    /// The number of apps, 1 to 1,000,000.
    pub count: u32,
    /// The app.
    pub template: Template,
}

/// When apps arrive. The first arrives one interval after `from`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// From one arrival to the next; 1 ms or more on average.
    pub every: Distribution,
    /// When the intervals begin; default 0.
    #[serde(default)]
    pub from: Option<Span>,
    /// No app arrives at this time or later; default the scenario's duration.
    #[serde(default)]
    pub until: Option<Span>,
    /// How many apps arrive at a time, 1 or more; default 1.
    #[serde(default)]
    pub apps: Option<Amount>,
    /// The maximum number of apps in all.
    #[serde(default)]
    pub count: Option<u32>,
}

/// How an app grows and shrinks while it lives.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// From one change to the next; 1 ms or more on average.
    pub every: Distribution,
    /// Number of instances that are started (with the next indices) or, if below 0, stopped (those with the highest
    /// indices; one always stays).
    pub by: Amount,
}

impl WorkloadTable {
    /// Rejects fields that do not go together and values out of bounds. `at` is the table's path (`workload[2]`);
    /// `duration` says whether the scenario has one.
    pub(crate) fn check(&self, at: &str, duration: bool) -> Result<(), Invalid> {
        self.check_kind(at)?;
        check_time(&format!("{at}.at"), self.at)?;
        if let Some(start) = &self.start {
            start.check().map_err(|e| under(at, "start", e))?;
        }
        if let Some(stop) = &self.stop {
            placement::check_name("stop.app", &stop.app).map_err(|e| under(at, "", e))?;
        }
        if let Some(apps) = &self.apps {
            apps.template.check(&format!("{at}.apps"), apps.count > 1)?;
        }
        if let (Some(arrivals), Some(app)) = (&self.arrivals, &self.app) {
            arrivals.check(at, duration)?;
            app.check(&format!("{at}.app"), true)?;
        }
        self.check_scale(at, duration)
    }

    fn check_kind(&self, at: &str) -> Result<(), Invalid> {
        let there = [
            ("start", self.start.is_some()),
            ("stop", self.stop.is_some()),
            ("apps", self.apps.is_some()),
            ("arrivals", self.arrivals.is_some()),
        ];
        let named: Vec<&str> = there
            .iter()
            .filter(|(_, is)| *is)
            .map(|(n, _)| *n)
            .collect();
        let [kind] = named[..] else {
            let value = if named.is_empty() {
                "none of these".to_owned()
            } else {
                named.join(" and ")
            };
            let expected = "exactly one of start, stop, apps and arrivals";
            return Err(Invalid::new(at, value, expected));
        };
        let only = |field: &str, given: bool, kinds: &[&str]| {
            if !given || kinds.contains(&kind) {
                return Ok(());
            }
            let expected = format!("this field only beside {}", kinds.join(", "));
            Err(Invalid::new(
                format!("{at}.{field}"),
                format!("beside {kind}"),
                expected,
            ))
        };
        only("at", self.at.is_some(), &["start", "stop", "apps"])?;
        only("app", self.app.is_some(), &["arrivals"])?;
        only(
            "lifetime",
            self.lifetime.is_some(),
            &["start", "apps", "arrivals"],
        )?;
        only(
            "scale",
            self.scale.is_some(),
            &["start", "apps", "arrivals"],
        )?;
        if kind == "arrivals" && self.app.is_none() {
            return Err(Invalid::new(
                format!("{at}.app"),
                "nothing",
                "the apps that arrive: a table",
            ));
        }
        Ok(())
    }

    fn check_scale(&self, at: &str, duration: bool) -> Result<(), Invalid> {
        let Some(scale) = &self.scale else {
            return Ok(());
        };
        check_interval(&format!("{at}.scale.every"), &scale.every)?;
        let field = format!("{at}.scale");
        if !duration && self.lifetime.is_none() {
            let expected =
                "a lifetime in this table or a duration of the scenario, so that it ends";
            return Err(Invalid::new(field, "without an end", expected));
        }
        let template = self
            .app
            .as_ref()
            .or(self.apps.as_ref().map(|a| &a.template));
        let request = self.start.as_ref().or(template.map(|t| &t.request));
        match request {
            Some(request) if request.kind == Kind::Task => Err(Invalid::new(
                field,
                "of a task",
                "no scale: only LRPs can be scaled",
            )),
            Some(request) if request.indices.is_some() => Err(Invalid::new(
                field,
                "of indices",
                "no indices: scale applies to all instances",
            )),
            _ => Ok(()),
        }
    }
}

impl Arrivals {
    fn check(&self, at: &str, duration: bool) -> Result<(), Invalid> {
        check_interval(&format!("{at}.arrivals.every"), &self.every)?;
        check_time(&format!("{at}.arrivals.from"), self.from)?;
        check_time(&format!("{at}.arrivals.until"), self.until)?;
        if self.until.is_none() && self.count.is_none() && !duration {
            let expected = "a time, a count, or a duration of the scenario, so that it ends";
            return Err(Invalid::new(
                format!("{at}.arrivals.until"),
                "nothing",
                expected,
            ));
        }
        match &self.apps {
            Some(apps) if apps.low() < 1 => {
                let field = format!("{at}.arrivals.apps");
                Err(Invalid::new(
                    field,
                    apps.low(),
                    "1 or more apps at each arrival",
                ))
            }
            _ => Ok(()),
        }
    }
}

fn check_interval(field: &str, every: &Distribution) -> Result<(), Invalid> {
    if every.mean().as_millis() >= 1 {
        return Ok(());
    }
    let value = format!("{:?} on average", every.mean());
    Err(Invalid::new(
        field,
        value,
        "an interval of 1ms or more on average",
    ))
}

/// The latest time of a scenario: a hundred years.
const LATEST: Duration = Duration::from_secs(100 * 365 * 86_400);

fn check_time(field: &str, time: Option<Span>) -> Result<(), Invalid> {
    match time {
        Some(Span(time)) if time > LATEST => Err(Invalid::new(
            field,
            format!("{time:?}"),
            "at most a hundred years",
        )),
        _ => Ok(()),
    }
}

/// Returns warnings about tables without effect because they come at or after the end of the scenario, and about stops
/// of apps that are not among `apps`.
pub(crate) fn warnings(
    tables: &[WorkloadTable],
    duration_ms: Option<u64>,
    apps: &BTreeSet<&str>,
) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, table) in tables.iter().enumerate() {
        let at = table.at.unwrap_or_default().0;
        let end = duration_ms.map(Duration::from_millis);
        if table.arrivals.is_none()
            && let Some(end) = end.filter(|end| at >= *end)
        {
            warnings.push(format!(
                "workload[{i}].at: {} is not before the end of the scenario ({}); nothing of this \
                 table is asked for",
                placement::Span(at),
                placement::Span(end)
            ));
        } else if let Some(stop) = &table.stop
            && !apps.contains(stop.app.as_str())
        {
            warnings.push(format!(
                "workload[{i}].stop.app: nothing starts {:?} and it runs on no cell; this stop ends \
                 nothing",
                stop.app
            ));
        }
    }
    warnings
}

/// Prefixes an error's field with the table's path.
fn under(at: &str, field: &str, mut e: Invalid) -> Invalid {
    let dot = if field.is_empty() { "" } else { "." };
    e.field = format!("{at}.{field}{dot}{}", e.field);
    e
}

#[cfg(test)]
mod tests;
