//! Filters: each keeps or drops a cell on its own, and gives the reason.

use std::{collections::BTreeMap, time::Duration};

use super::{locality, score::ties};
use crate::{
    cell::Cell, context::Now, devices::FreeDevices, policy::Filter, request::Request,
    resources::Resource, run::Form, times::Stamp,
};

/// Why a filter dropped a cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Why {
    pub(crate) needs: Option<f64>,
    pub(crate) has: Option<f64>,
    pub(crate) reason: Option<String>,
    /// For a set of devices: how close the cell comes.
    pub(crate) devices: Option<FreeDevices>,
}

impl Why {
    pub(crate) fn text(reason: impl Into<String>) -> Self {
        Self {
            needs: None,
            has: None,
            reason: Some(reason.into()),
            devices: None,
        }
    }

    fn amount(needs: i64, has: i64) -> Self {
        Self {
            needs: Some(needs as f64),
            has: Some(has as f64),
            reason: None,
            devices: None,
        }
    }
}

const DAY_MS: f64 = 86_400_000.0;

/// Returns whether the cell is kept.
pub(crate) fn keeps(filter: &Filter, cell: &Cell, request: &Request, now: Now<'_>) -> bool {
    match filter {
        Filter::Droplets => cell.runs(request.form()),
        Filter::Evacuating => !cell.evacuating,
        Filter::Running => cell.status == "running",
        Filter::Stack => {
            let wanted = request.stack.as_ref();
            wanted.is_none_or(|stack| cell.stacks.contains(stack))
        }
        Filter::VolumeDrivers => subset(&request.volume_drivers, &cell.volume_drivers),
        Filter::PlacementTags => tags_match(cell, request),
        Filter::Amount(resource) => short_amount(*resource, cell, request).is_none(),
        Filter::Extra => cell.available.has_extras(request),
        Filter::VolumesFrom => subset(&request.volumes_from, &cell.volumes),
        Filter::Reserved => !cell.reserved,
        Filter::ControlPlane => !cell.control_plane,
        Filter::ContainerCount { limit } => containers(cell) < u64::from(*limit),
        Filter::Capness => {
            let other = if request.cpu_millis > 0 {
                cell.counts.cpu_uncapped
            } else {
                cell.counts.cpu_capped
            };
            other == 0
        }
        Filter::Networks => missing_network(cell, request).is_none(),
        Filter::Platform => platform_matches(cell, request),
        Filter::Traits => traits_match(cell, request),
        Filter::Sick => !sick(cell),
        Filter::OvercommitRatios => wrong_ratio(cell, request).is_none(),
        Filter::RebootWithin { days, batch } => {
            let soon = days.is_some_and(|days| {
                let planned = cell.planned_reboot_ms(now.ms);
                planned.is_some_and(|at| (at - now.ms) as f64 <= days * DAY_MS)
            });
            !soon && (batch.is_none() || cell.reboot_batch != *batch)
        }
        Filter::Locality => !request.strict || locality::strict_why(cell, request, now).is_none(),
    }
}

/// Returns why the cell was dropped. Only called for a filter that dropped it.
pub(crate) fn why(filter: &Filter, cell: &Cell, request: &Request, now: Now<'_>) -> Why {
    match filter {
        Filter::Droplets => Why::text(does_not_run(request.form())),
        Filter::Evacuating => Why::text("evacuating"),
        Filter::Running => Why::text(format!("status is {:?}", cell.status)),
        Filter::Stack => {
            let wanted = request.stack.as_deref().unwrap_or_default();
            Why::text(format!("has no stack {wanted:?}"))
        }
        Filter::VolumeDrivers => {
            let wanted = short_list(&request.volume_drivers);
            Why::text(format!(
                "lacks some of the required volume drivers: {wanted}"
            ))
        }
        Filter::PlacementTags => Why::text(tags_why(cell, request)),
        Filter::Amount(resource) => {
            let (needs, has) = short_amount(*resource, cell, request).unwrap_or_default();
            Why::amount(needs, has)
        }
        Filter::Extra => {
            let short = shortages(filter, cell, request).into_iter().next();
            let (name, (needs, has)) = short.unwrap_or_default();
            Why {
                devices: free_devices(cell, &name, request),
                reason: Some(name),
                ..Why::amount(needs, has)
            }
        }
        Filter::VolumesFrom => {
            let wanted = short_list(&request.volumes_from);
            Why::text(format!("lacks some of the required volumes: {wanted}"))
        }
        Filter::Reserved => Why::text("reserved"),
        Filter::ControlPlane => Why::text("a control plane cell"),
        // as free places, so that more is better, as in every tally
        Filter::ContainerCount { limit } => Why {
            needs: Some(1.0),
            has: Some(f64::from(*limit) - containers(cell) as f64),
            reason: Some(format!("has the maximum number of instances ({limit})")),
            devices: None,
        },
        Filter::Capness => Why::text(if request.cpu_millis > 0 {
            "holds instances without a cpu cap"
        } else {
            "holds instances with a cpu cap"
        }),
        Filter::Networks => Why::text(missing_network(cell, request).unwrap_or_default()),
        Filter::Platform => {
            let wanted = limits(request);
            Why::text(match &cell.platform {
                Some(own) => format!("platform is {} {}{wanted}", own.version, own.stamp),
                None => format!("has no platform{wanted}"),
            })
        }
        Filter::Traits => {
            let wanted = serde_json::to_string(&request.traits).unwrap_or_default();
            let wanted = shortened(&wanted);
            Why::text(format!(
                "its traits are not exactly those required: {wanted}"
            ))
        }
        Filter::Sick => Why::text("the last two starts within 24 hours failed"),
        Filter::OvercommitRatios => Why::text(wrong_ratio(cell, request).unwrap_or_default()),
        Filter::RebootWithin { days, batch } => reboot_why(*days, batch.as_deref(), cell, now),
        Filter::Locality => Why::text(locality::strict_why(cell, request, now).unwrap_or_default()),
    }
}

fn reboot_why(days: Option<f64>, batch: Option<&str>, cell: &Cell, now: Now<'_>) -> Why {
    let planned = cell.planned_reboot_ms(now.ms);
    let left = planned.map(|at| (at - now.ms) as f64 / DAY_MS);
    match (days, left) {
        (Some(days), Some(left)) if left <= days => Why {
            needs: Some(days),
            has: Some((left * 10.0).floor() / 10.0),
            reason: Some(format!("its planned reboot is within {days} days")),
            devices: None,
        },
        _ => Why::text(format!(
            "is in the reboot batch {:?}",
            batch.unwrap_or_default()
        )),
    }
}

/// Returns the resources that the cell lacks, in Diego's words, with what is needed and what it has.
pub(crate) fn shortages(
    filter: &Filter,
    cell: &Cell,
    request: &Request,
) -> Vec<(String, (i64, i64))> {
    let short = |name: &str| {
        let amounts = shortage(filter, name, cell, request)?;
        Some((name.to_owned(), amounts))
    };
    match filter {
        Filter::Amount(resource) => short(resource.name()).into_iter().collect(),
        Filter::Extra => {
            let names = request.extra.keys().chain(request.devices.keys());
            names.filter_map(|name| short(name)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns what the filter needs of a resource, and the smaller amount that the cell has; none if that is enough. The
/// name distinguishes the resources of [`Filter::Extra`].
pub(crate) fn shortage(
    filter: &Filter,
    name: &str,
    cell: &Cell,
    request: &Request,
) -> Option<(i64, i64)> {
    match filter {
        Filter::Amount(resource) => short_amount(*resource, cell, request),
        Filter::Extra if request.devices.contains_key(name) => {
            cell.available.short_devices(name, request)
        }
        Filter::Extra => {
            let needs = request.extra.get(name).copied().unwrap_or(0);
            let has = cell.available.extra(name);
            (has < needs).then_some((needs, has))
        }
        _ => None,
    }
}

/// Returns how close the cell comes to the devices that the request needs from this set; none if it needs none.
pub(crate) fn free_devices(cell: &Cell, name: &str, request: &Request) -> Option<FreeDevices> {
    let need = request.devices.get(name)?;
    Some(FreeDevices::of(&cell.available.devices, name, need))
}

fn does_not_run(form: Form) -> &'static str {
    match form {
        Form::Command => "runs only droplets",
        Form::Droplet => "runs no droplets",
        Form::Staging => "stages no apps",
    }
}

/// Returns what is needed of the resource, and the smaller amount that the cell has; none if that is enough. A cell
/// with a total of 0 of a vital resource lacks it for every job.
fn short_amount(resource: Resource, cell: &Cell, request: &Request) -> Option<(i64, i64)> {
    if resource.is_vital() && cell.total.get(resource).is_some_and(|total| total <= 0) {
        return Some((request.amounts()[resource], 0));
    }
    let has = cell.available.get(resource)?;
    let needs = request.needs()[resource];
    (has < needs).then_some((needs, has))
}

fn subset(wanted: &[String], has: &[String]) -> bool {
    wanted.iter().all(|item| has.contains(item))
}

/// Counts instances of any kind on the cell.
pub(crate) fn containers(cell: &Cell) -> u64 {
    let lrps: u64 = cell.counts.apps.values().map(|n| u64::from(*n)).sum();
    lrps + u64::from(cell.counts.tasks)
}

/// Checks R ⊆ D and D ⊆ R ∪ O, for required, desired and optional tags.
fn tags_match(cell: &Cell, request: &Request) -> bool {
    let desired = &request.placement_tags;
    let known =
        |tag| cell.placement_tags.contains(tag) || cell.optional_placement_tags.contains(tag);
    subset(&cell.placement_tags, desired) && desired.iter().all(known)
}

fn tags_why(cell: &Cell, request: &Request) -> String {
    let desired = &request.placement_tags;
    let asked = short_list(desired);
    if subset(&cell.placement_tags, desired) {
        format!("lacks some of the requested placement tags: {asked}")
    } else if desired.is_empty() {
        "requires placement tags, and none were asked for".into()
    } else {
        format!("requires placement tags in addition to {asked}")
    }
}

/// How many characters of a requested value a reason repeats.
const MAX_REPEATED: usize = 120;

fn short_list(items: &[String]) -> String {
    shortened(&items.join(", "))
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= MAX_REPEATED {
        return text.to_owned();
    }
    let start: String = text.chars().take(MAX_REPEATED).collect();
    format!("{start}…")
}

/// Describes the limits of a request for the cell's platform version.
fn limits(request: &Request) -> String {
    let limit = |(what, limits): (&str, &BTreeMap<String, Stamp>)| {
        let pairs: Vec<String> = limits.iter().map(|(v, s)| format!("{v} {s}")).collect();
        (!pairs.is_empty()).then(|| format!("{what} {}", short_list(&pairs)))
    };
    let both = [
        ("at least", &request.min_platform),
        ("at most", &request.max_platform),
    ];
    let limits: Vec<String> = both.into_iter().filter_map(limit).collect();
    if limits.is_empty() {
        return String::new();
    }
    format!("; needs {}", limits.join(" and "))
}

fn missing_network(cell: &Cell, request: &Request) -> Option<String> {
    let up = |network: &String| {
        cell.networks
            .get(network)
            .is_some_and(|state| state == "up")
    };
    let missing = request.networks.iter().find(|any| !any.iter().any(up))?;
    let down = missing
        .iter()
        .find(|network| cell.networks.contains_key(*network));
    Some(match down {
        Some(network) => format!("network {network:?} is not up"),
        None => format!("has no network {}", crate::words::or(missing)),
    })
}

/// Applies Triton's rule: stamps are compared as text, and versions beyond the listed ones pass on their side.
fn platform_matches(cell: &Cell, request: &Request) -> bool {
    let none = crate::cell::Platform::default();
    let platform = cell.platform.as_ref().unwrap_or(&none);
    let version = platform.version.as_str();
    let listed = |limits: &BTreeMap<String, Stamp>| -> Vec<(String, Stamp)> {
        let sound = |key: &str| {
            let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            key.split_once('.')
                .is_some_and(|(a, b)| digits(a) && digits(b))
        };
        let pairs = limits.iter().filter(|(key, _)| sound(key));
        pairs
            .map(|(key, stamp)| (key.clone(), stamp.clone()))
            .collect()
    };
    let judge = |limits: Vec<(String, Stamp)>, min: bool| {
        // sorted by version as text, because they come from a BTreeMap
        let (Some(first), Some(last)) = (limits.first(), limits.last()) else {
            return true;
        };
        if let Some((_, stamp)) = limits.iter().find(|(key, _)| key == version) {
            let has = platform.stamp.as_str();
            return if min {
                has >= stamp.as_str()
            } else {
                has <= stamp.as_str()
            };
        }
        // it is none of the listed ones
        let outermost = if min { first } else { last };
        (version > outermost.0.as_str()) == min
    };
    judge(listed(&request.min_platform), true) && judge(listed(&request.max_platform), false)
}

/// Applies Triton's rule: exactly the wanted names, each with a matching value.
fn traits_match(cell: &Cell, request: &Request) -> bool {
    let wanted = &request.traits;
    wanted.len() == cell.traits.len()
        && wanted
            .iter()
            .all(|(name, value)| cell.traits.get(name).is_some_and(|has| has.matches(value)))
}

/// Returns whether the newest two starts of the last 24 hours both failed.
pub(crate) fn sick(cell: &Cell) -> bool {
    let day = Duration::from_secs(86_400);
    let mut recent: Vec<(Duration, bool)> = cell
        .recent_starts
        .iter()
        .map(|start| (start.age.0, start.failed))
        .filter(|(age, _)| *age <= day)
        .collect();
    recent.sort_unstable();
    recent.len() >= 2 && recent[..2].iter().all(|(_, failed)| *failed)
}

/// Returns a requested ratio that differs from the cell's, both rounded to two decimals; 0 and absent are equal.
fn wrong_ratio(cell: &Cell, request: &Request) -> Option<String> {
    let rounded = |ratio: f64| (ratio * 100.0).round();
    let differs = |(name, wanted): &(&String, &f64)| {
        let has = cell.overcommit.get(*name).copied().unwrap_or(0.0);
        !ties(rounded(has), rounded(**wanted))
    };
    let (name, _) = request.overcommit.iter().find(differs)?;
    Some(match cell.overcommit.get(name) {
        Some(has) => format!("overcommits {name} by {has}"),
        None => format!("has no overcommit ratio for {name}"),
    })
}
