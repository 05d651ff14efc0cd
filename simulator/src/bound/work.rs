//! The work of a scenario in classes, and the cells that could hold it at the end of a run in groups.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use placement::{Cell, Kind, Policy, Request, Resource, ResourceName, Resources, Size};

use super::{
    INSTANCES,
    relaxation::{self, Group},
    room::Room,
};
use crate::{
    demand::{Demand, DemandAction},
    scenario::{FaultKind, Scenario},
};

/// With more pairs of a class and a group of cells than this, all cells are treated as one that takes any fraction of
/// an instance: a higher bound, but found at once.
pub(super) const MOST_PAIRS: usize = 2_000;

/// What is counted about the work.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Measure {
    /// Each instance as 1.
    Instances,
    /// The requested amount of a resource; for a set of devices, `each` is what one device has.
    Amount { of: ResourceName, each: i64 },
}

impl Measure {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Instances => INSTANCES,
            Self::Amount { of, .. } => of.name(),
        }
    }

    /// Returns the value of one instance.
    pub(super) fn of(&self, request: &Request) -> f64 {
        match self {
            Self::Instances => 1.0,
            Self::Amount { of, each } => wanted(of, request, *each) as f64,
        }
    }
}

/// Instances that every cell treats alike.
#[derive(Clone, Debug)]
struct Class<'d> {
    request: &'d Request,
    /// Number of those that are still there at the end, if they were placed.
    staying: u64,
    /// The others.
    leaving: u64,
}

/// The work and the cells.
pub(super) struct Work<'d> {
    classes: Vec<Class<'d>>,
    measures: Vec<Measure>,
    /// The cells as they are at the end without this work, for work that stays until then.
    groups: Vec<Group>,
    /// By class: whether some cell could have taken it while that cell was empty.
    fits_somewhere: Vec<bool>,
}

impl<'d> Work<'d> {
    pub(super) fn of(
        scenario: &Scenario,
        demands: &'d [Demand],
        policy: &Policy,
        most_pairs: usize,
    ) -> Self {
        let classes = classes(scenario, demands);
        let cells = &scenario.base.cells;
        let takes = |cell: &Cell, room: &Room, class: &Class<'_>| {
            room.has(class.request) && !policy.never_fits(cell, class.request)
        };
        let fits = |class: &Class<'_>| {
            let mut cells = cells.iter();
            cells.any(|cell| takes(cell, &Room::of(&cell.total), class))
        };
        let fits_somewhere = classes.iter().map(fits).collect();
        let ending = stopped_apps(demands);
        let mut groups: BTreeMap<(Room, Vec<bool>), u32> = BTreeMap::new();
        for cell in cells {
            let mut room = Room::of(&cell.total);
            let running = scenario.base.running.get(&cell.cell).into_iter().flatten();
            for job in running.filter(|job| stays_from_before(&job.request, &ending)) {
                room.debit(&job.request);
            }
            let taken = classes
                .iter()
                .map(|class| takes(cell, &room, class))
                .collect();
            *groups.entry((room, taken)).or_default() += 1;
        }
        Self {
            measures: measures(&classes, cells),
            groups: grouped(groups, &classes, most_pairs),
            fits_somewhere,
            classes,
        }
    }

    /// Returns what is counted: instances, and each resource that the work asks for.
    pub(super) fn measures(&self) -> &[Measure] {
        &self.measures
    }

    /// Returns the most that any policy can place, by this measure.
    pub(super) fn at_most(&self, measure: &Measure) -> f64 {
        let values: Vec<f64> = self.classes.iter().map(|c| measure.of(c.request)).collect();
        let counts: Vec<f64> = self.classes.iter().map(|c| c.staying as f64).collect();
        let staying = relaxation::at_most(&self.groups, &counts, &values);
        let leaving = self.classes.iter().zip(&values).zip(&self.fits_somewhere);
        let leaving = leaving.filter(|(_, fits)| **fits);
        let leaving: f64 = leaving
            .map(|((c, value), _)| c.leaving as f64 * value)
            .sum();
        // the placed value is a multiple of the values' divisor; the margin is for rounding
        let divisor = values
            .iter()
            .fold(0.0, |a, b| common_divisor(a, *b))
            .max(1.0);
        (((staying + leaving) * (1.0 + 1e-9) + 1e-6) / divisor).floor() * divisor
    }
}

/// Turns the groups into rows, or merges them into one if there are too many pairs.
fn grouped(
    rooms: BTreeMap<(Room, Vec<bool>), u32>,
    classes: &[Class<'_>],
    most_pairs: usize,
) -> Vec<Group> {
    let requests: Vec<&Request> = classes.iter().map(|class| class.request).collect();
    if rooms.len() * classes.len() > most_pairs {
        let takes = |k: usize| rooms.keys().any(|(_, takes)| takes[k]);
        let all = rooms.iter().map(|((room, _), cells)| (room, *cells));
        return vec![Group {
            cells: 1.0,
            takes: (0..classes.len()).map(takes).collect(),
            rows: Room::sum(all).rows(&requests, false),
        }];
    }
    let group = |((room, takes), cells): ((Room, Vec<bool>), u32)| Group {
        cells: f64::from(cells),
        rows: room.rows(&requests, true),
        takes,
    };
    rooms.into_iter().map(group).collect()
}

/// Returns the greatest common divisor of whole numbers.
fn common_divisor(a: f64, b: f64) -> f64 {
    if b < 0.5 { a } else { common_divisor(b, a % b) }
}

/// Returns how much of a resource a job asks for.
fn wanted(of: &ResourceName, request: &Request, each: i64) -> i64 {
    if let ResourceName::Named(name) = of
        && let Some(need) = request.devices.get(name)
    {
        return i64::from(need.count) * need.amount.unwrap_or(each);
    }
    of.wanted(request, &Resources::default())
}

/// Returns the measures of the work. A set of devices is counted only if all cells that have it agree on the size of a
/// device; otherwise the sum would depend on where work is placed.
fn measures(classes: &[Class<'_>], cells: &[Cell]) -> Vec<Measure> {
    let amounts = [Resource::Memory, Resource::Disk, Resource::Cpu].map(ResourceName::Amount);
    let mut names: BTreeSet<ResourceName> = BTreeSet::new();
    for class in classes {
        let devices = class.request.devices.keys();
        let named = class.request.extra.keys().chain(devices);
        names.extend(named.cloned().map(ResourceName::Named));
    }
    let amount = |of: ResourceName| {
        let sets = cells
            .iter()
            .filter_map(|cell| cell.total.devices.get(of.name()));
        let each: BTreeSet<i64> = sets.map(|set| set.each).collect();
        let is_set = classes
            .iter()
            .any(|c| c.request.devices.contains_key(of.name()));
        let each = match each.first() {
            Some(each_one) if each.len() == 1 => *each_one,
            _ if is_set => return None,
            _ => 0,
        };
        let asked = |class: &Class<'_>| wanted(&of, class.request, each) > 0;
        let is_asked = classes.iter().any(asked);
        is_asked.then_some(Measure::Amount { of, each })
    };
    let amounts = amounts.into_iter().chain(names).filter_map(amount);
    [Measure::Instances].into_iter().chain(amounts).collect()
}

/// The stopped indices of each app; an empty list means all.
type Stopped<'d> = HashMap<&'d str, Vec<&'d [u32]>>;

fn stopped_apps(demands: &[Demand]) -> Stopped<'_> {
    let mut stopped: Stopped<'_> = HashMap::new();
    for demand in demands {
        if let DemandAction::Stop { app, indices } = &demand.action {
            stopped.entry(app).or_default().push(indices);
        }
    }
    stopped
}

fn stays_from_before(request: &Request, stopped: &Stopped<'_>) -> bool {
    request.kind == Kind::Lrp && !stopped.contains_key(request.app.as_str())
}

/// The properties that two jobs of one class have in common.
type Key<'d> = (Size, Kind, Vec<&'d [String]>, Option<&'d str>, String);

fn key(request: &Request) -> Key<'_> {
    let lists = vec![
        &request.placement_tags[..],
        &request.volume_drivers,
        &request.volumes_from,
        &request.exclude_cells,
    ];
    let rare = (
        &request.traits,
        &request.min_platform,
        &request.max_platform,
    );
    let is_plain = rare.0.is_empty() && rare.1.is_empty() && rare.2.is_empty();
    let rare = if is_plain {
        String::new()
    } else {
        serde_json::to_string(&rare).unwrap_or_default()
    };
    let stack = request.stack.as_deref();
    (Size::of(request), request.kind, lists, stack, rare)
}

/// Groups the requests of a scenario by what they ask for.
fn classes<'d>(scenario: &Scenario, demands: &'d [Demand]) -> Vec<Class<'d>> {
    let ends = |fault: &crate::scenario::Fault| {
        use FaultKind::{CellDrain, CellLost, ZoneLost};
        matches!(fault.kind, CellLost | CellDrain | ZoneLost)
    };
    let all_may_end = scenario.faults.iter().any(ends);
    let stopped = stopped_apps(demands);
    let before = scenario.base.running.values().flatten();
    let before: BTreeSet<&str> = before.map(|job| job.request.app.as_str()).collect();
    let mut requests_of: HashMap<&str, u32> = HashMap::new();
    for request in demands.iter().filter_map(Demand::request) {
        *requests_of.entry(&request.app).or_default() += 1;
    }
    let mut seen: HashMap<&str, BTreeSet<u32>> = HashMap::new();
    let mut classes: BTreeMap<Key<'d>, Class<'d>> = BTreeMap::new();
    for demand in demands {
        let DemandAction::Start {
            request,
            lifetime_ms,
        } = &demand.action
        else {
            continue;
        };
        let app = request.app.as_str();
        let may_end = all_may_end || lifetime_ms.is_some() || request.kind != Kind::Lrp;
        let all = indices(request).count() as u64;
        let staying = if may_end || before.contains(app) {
            0
        } else if requests_of[app] == 1 && !stopped.contains_key(app) {
            all
        } else {
            // two requests for one index share one instance, which is counted once
            let stops = stopped.get(app).map_or(&[][..], Vec::as_slice);
            let seen = seen.entry(app).or_default();
            let stays = |index: &u32| {
                let ends = |stop: &&[u32]| stop.is_empty() || stop.contains(index);
                seen.insert(*index) && !stops.iter().any(ends)
            };
            indices(request).filter(stays).count() as u64
        };
        let class = classes.entry(key(request)).or_insert(Class {
            request,
            staying: 0,
            leaving: 0,
        });
        class.staying += staying;
        class.leaving += all - staying;
    }
    classes.into_values().collect()
}

fn indices(request: &Request) -> Box<dyn Iterator<Item = u32> + '_> {
    match &request.indices {
        Some(indices) => Box::new(indices.iter().copied()),
        None => Box::new(0..request.instances),
    }
}
