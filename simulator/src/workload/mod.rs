//! The `[[workload]]` tables of a scenario, and the demands that they stand for.
//!
//! A table is of one of four kinds: `start` (one request), `stop`, `apps` (many apps at once) and
//! `arrivals` (apps that come over time). What is drawn comes from the scenario's seed, with a
//! stream of its own for every table and every app: a table that is added, or an app that draws
//! once more, leaves all others as they were.

mod amount;
mod generate;
mod template;

pub use amount::Amount;
pub use generate::{MAX_DEMANDS, MAX_INSTANCES, demands};
pub use template::Template;

use std::time::Duration;

use placement::{Invalid, Kind, Request, Span};
use serde::Deserialize;

use crate::random::Distribution;

/// One table; exactly one of `start`, `stop`, `apps` and `arrivals` is there.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// When, for `start`, `stop` and `apps`; default 0.
    #[serde(default)]
    pub at: Option<Span>,
    /// One request, as `place` knows it; an id is given where there is none.
    #[serde(default, deserialize_with = "template::strict")]
    pub start: Option<Request>,
    /// Instances that end.
    #[serde(default)]
    pub stop: Option<Stop>,
    /// Apps that come all at once.
    #[serde(default)]
    pub apps: Option<Apps>,
    /// When apps come, one after the other.
    #[serde(default)]
    pub arrivals: Option<Arrivals>,
    /// What comes with `arrivals`.
    #[serde(default)]
    pub app: Option<Template>,
    /// How long each app lives from when it is asked for (a task: each instance from when it
    /// began); absent: it runs on.
    #[serde(default)]
    pub lifetime: Option<Distribution>,
    /// How each app grows and shrinks while it lives.
    #[serde(default)]
    pub scale: Option<Scale>,
}

/// Instances that end.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// Of this app.
    pub app: String,
    /// Which; all when absent or empty.
    #[serde(default)]
    pub indices: Vec<u32>,
}

/// Apps that come all at once: a [`Template`] with `count`.
#[derive(Clone, Debug, PartialEq)]
pub struct Apps {
    /// How many, 1 to 1,000,000.
    pub count: u32,
    /// What each is.
    pub template: Template,
}

/// When apps come. The first comes one interval after `from`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// From one arrival to the next; 1 ms or more on average.
    pub every: Distribution,
    /// Not before; default 0.
    #[serde(default)]
    pub from: Option<Span>,
    /// Before this; default the scenario's duration.
    #[serde(default)]
    pub until: Option<Span>,
    /// How many apps come at each arrival, 1 or more; default 1.
    #[serde(default)]
    pub apps: Option<Amount>,
    /// No more apps than these in all.
    #[serde(default)]
    pub count: Option<u32>,
}

/// How an app grows and shrinks while it lives.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// From one change to the next; 1 ms or more on average.
    pub every: Distribution,
    /// Instances that are started (the next indices) or, below 0, stopped (the highest indices;
    /// one always stays).
    pub by: Amount,
}

impl Workload {
    /// Refuses what serde cannot see: fields that do not go together, and values out of bounds.
    /// `at` is the table's path (`workload[2]`), `duration` tells whether the scenario has one.
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
                "none of them".to_owned()
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
                "what arrives: a table",
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
            let expected = "a lifetime beside it, or the scenario's duration: else it has no end";
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
                "no scale: only an lrp is scaled",
            )),
            Some(request) if request.indices.is_some() => Err(Invalid::new(
                field,
                "of indices",
                "no indices: scale counts from all",
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
            let expected = "a time, or a count, or the scenario's duration: else it has no end";
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

/// No scenario names a later time: a hundred years.
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

/// Puts the table's path before an error's field.
fn under(at: &str, field: &str, mut e: Invalid) -> Invalid {
    let dot = if field.is_empty() { "" } else { "." };
    e.field = format!("{at}.{field}{dot}{}", e.field);
    e
}

#[cfg(test)]
mod tests;
