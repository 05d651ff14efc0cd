//! The figures of a run, computed from the world at its end.

use std::collections::{BTreeMap, BTreeSet};

use placement::{Cell, Kind, ResourceName};

use super::{
    SimCell, WARM_UP_US, World, cell,
    packing::{self, PackingSteps},
};
use crate::{
    bound,
    measure::{LOAD_BOUNDS, ROUNDS_BOUNDS, WAIT_BOUNDS_MS},
    outcome::{Balance, Bounds, CellEnd, Figures, Histogram, InstanceEnd, Kept, SimRun, Spread},
};

/// Up to this number of instances, each has its own entry.
const MAX_SINGLE: usize = 20_000;
/// Maximum number of reasons for unplaced instances that are listed.
const MAX_REASONS: usize = 20;

/// The instances at the end: by cell, by zone and by app.
#[derive(Default)]
struct Held {
    per_cell: Vec<f64>,
    per_zone: BTreeMap<String, f64>,
    apps: BTreeMap<String, App>,
    platforms: BTreeMap<String, f64>,
    reboot_hits: f64,
}

#[derive(Default)]
struct App {
    instances: u64,
    sharing: bool,
    zones: BTreeMap<String, u64>,
}

impl World<'_> {
    /// Returns the result. `simulated` says that the roles were simulated, so that aggregated messages must be added.
    pub(super) fn figures(&mut self, simulated: bool) -> SimRun {
        if simulated {
            self.count_rest();
        }
        let virtual_ms = (self.now_us - WARM_UP_US) / 1_000;
        self.meter.advance(virtual_ms);
        let held = self.held();
        let (messages, traffic) = self.counts.by_name();
        let demand_of = self.packing.as_ref().map(PackingSteps::name);
        let (packing, demand_steps) = self.packing();
        let spare_cells = self.spare_cells(virtual_ms);
        let hours = virtual_ms as f64 / 3_600_000.0;
        let price = self.scenario.price_per_cell_hour;
        let zones: BTreeSet<&str> = self
            .cells
            .iter()
            .map(|c| c.ledger().cell().zone.as_str())
            .collect();
        let figures = Figures {
            virtual_ms,
            asked: self.client.asked,
            placed: self.client.placed,
            unplaced: self.client.unplaced,
            waiting: self.client.waiting(),
            lost: self.client.lost,
            wait_ms: Spread::of(&mut self.client.waits_ms),
            rounds: Spread::of(&mut self.client.rounds),
            auctions: self.nodes.iter().map(|node| node.auctions).sum(),
            messages,
            traffic,
            distribution: self.distribution(),
            distribution_before: self.samples.distribution_before,
            sd_of_share: self.sd_of_share(),
            most_starting: self.samples.most_starting,
            per_cell: Balance::of(&held.per_cell),
            per_zone: Balance::of(&held.per_zone.values().copied().collect::<Vec<_>>()),
            apps_sharing_cells: count(&held.apps, |app| {
                app.sharing && app.instances <= held.per_cell.len() as u64
            }),
            apps_sharing_zones: count(&held.apps, |app| app.uneven(zones.len())),
            stranded_mb: self.meter.stranded_mb(),
            largest_fit_mb: self.meter.largest_fit_mb(),
            empty_cells: self.meter.empty_cells(),
            spare_cells,
            saved: price.map(|price| price * spare_cells as f64 * hours),
            packing,
            bounds: Some(self.bounds()),
            most_even: None,
            kept: self.kept(),
            extra: self.extra(&held),
        };
        let loads = self.loads();
        let (cells, apps) = self.cells_at_the_end();
        let mut run = SimRun {
            policy: self.label.to_owned(),
            figures,
            cells,
            apps,
            wait_histogram: Histogram::of(&WAIT_BOUNDS_MS, self.client.waits_ms.iter().copied()),
            rounds_histogram: Histogram::of(&ROUNDS_BOUNDS, self.client.rounds.iter().copied()),
            load_histogram: Histogram::of(&LOAD_BOUNDS, loads),
            series: std::mem::take(&mut self.samples.series),
            refusals: self.refusals(),
            demand_of: demand_of.unwrap_or_default(),
            demand_steps,
            notes: self.notes(),
        };
        bound::add_balance(&mut run);
        run
    }

    /// Returns the share of memory used on each cell that is up.
    fn loads(&self) -> Vec<f64> {
        let up = self.cells.iter().filter(|cell| cell.down == 0);
        let share = |cell: &SimCell| {
            cell.used_mb() as f64 / cell.ledger().cell().total.memory_mb.max(1) as f64
        };
        up.map(share).collect()
    }

    /// Returns, for each resource, the standard deviation of the share used on the cells that are up and have it.
    fn sd_of_share(&self) -> BTreeMap<String, f64> {
        let up = self.cells.iter().filter(|cell| cell.down == 0);
        let cells: Vec<&Cell> = up.map(|cell| cell.ledger().cell()).collect();
        let sd_of = |of: ResourceName| {
            let shares = cells.iter().filter_map(|cell| of.used_share(cell));
            let shares: Vec<f64> = shares.collect();
            (!shares.is_empty()).then(|| (of.name().to_owned(), Balance::of(&shares).sd))
        };
        let resources = packing::resources(cells.iter().map(|cell| &cell.total));
        resources.into_iter().filter_map(sd_of).collect()
    }

    fn bounds(&mut self) -> Bounds {
        if self.scenario.managers > 0 {
            let kept = self.tally.figures(self.now_us);
            return bound::of_managers(&kept);
        }
        let placed = self.client.placed_of_each();
        bound::of_requests(self.scenario, self.demands, self.policy, placed)
    }

    fn kept(&mut self) -> Option<Kept> {
        if self.managers.is_empty() {
            return None;
        }
        Some(Kept {
            refused_commands: self.refused_commands,
            moved: self.operator.moved,
            failed_moves: self.operator.failed,
            traffic: self.managers_traffic,
            ..self.tally.figures(self.now_us)
        })
    }

    fn refusals(&self) -> Vec<(String, u64)> {
        let mut reasons: Vec<(String, u64)> = self.client.reasons.clone().into_iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        reasons.truncate(MAX_REASONS);
        reasons
    }

    fn extra(&self, held: &Held) -> BTreeMap<String, f64> {
        let mut extra: BTreeMap<String, f64> = self.samples.devices.figures().collect();
        if self.client.repeats > 0 {
            extra.insert("repeated requests".into(), self.client.repeats as f64);
        }
        if self.client.stopped > 0 {
            extra.insert("stopped".into(), self.client.stopped as f64);
        }
        for (platform, instances) in &held.platforms {
            extra.insert(format!("instances on platform {platform}"), *instances);
        }
        if self
            .cells
            .iter()
            .any(|c| c.ledger().cell().next_reboot.is_some())
        {
            extra.insert(
                "instances on cells that will reboot".into(),
                held.reboot_hits,
            );
        }
        extra
    }

    fn held(&self) -> Held {
        let mut all = Held::default();
        for node in self.cells.iter().filter(|node| node.down == 0) {
            let cell = node.ledger().cell();
            let count = node.ledger().instance_count() as f64;
            all.per_cell.push(count);
            *all.per_zone.entry(cell.zone.clone()).or_default() += count;
            if let Some(platform) = &cell.platform {
                *all.platforms.entry(platform.stamp.to_string()).or_default() += count;
            }
            if cell.next_reboot.is_some() {
                all.reboot_hits += count;
            }
            for (app, instances) in &cell.counts.apps {
                let entry = all.apps.entry(app.clone()).or_default();
                entry.instances += u64::from(*instances);
                entry.sharing |= *instances > 1;
                *entry.zones.entry(cell.zone.clone()).or_default() += u64::from(*instances);
            }
        }
        all
    }

    /// Counts the cells that were always empty after the first tenth of the run. If in some sample the largest size
    /// would have fitted on none of the others, one cell is left out.
    fn spare_cells(&self, virtual_ms: u64) -> u64 {
        let from_ms = virtual_ms / 10;
        let spare = |cell: &SimCell| cell.down == 0 && cell.busy_ms <= from_ms + WARM_UP_US / 1_000;
        let count = self.cells.iter().filter(|cell| spare(cell)).count() as u64;
        let fits = |c: usize| !spare(&self.cells[c]);
        if count == 0 || self.samples.largest_always_fits(from_ms, fits) {
            return count;
        }
        count - 1
    }

    /// Returns the cells by zone and name, and the apps on them.
    fn cells_at_the_end(&self) -> (Vec<CellEnd>, Vec<String>) {
        let total: usize = self
            .cells
            .iter()
            .map(|cell| cell.ledger().instance_count())
            .sum();
        let mut apps: Vec<String> = Vec::new();
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        let mut order: Vec<&SimCell> = self.cells.iter().collect();
        order.sort_by_key(|node| (node.ledger().cell().zone.clone(), natural(&node.name)));
        let mut cells = Vec::with_capacity(order.len());
        for node in order {
            let mut instances: Vec<InstanceEnd> = Vec::new();
            let mut held = node.ledger().current_instances(0);
            held.sort_by(|a, b| (&a.app, a.index, a.instance).cmp(&(&b.app, b.index, b.instance)));
            for instance in held {
                let app = *numbers.entry(instance.app.clone()).or_insert_with(|| {
                    apps.push(instance.app.clone());
                    u32::try_from(apps.len() - 1).unwrap_or(u32::MAX)
                });
                let before = cell::was_before(instance.instance);
                if total > MAX_SINGLE
                    && let Some(last) = instances.last_mut()
                    && (last.app, last.before) == (app, before)
                {
                    last.count += 1;
                    last.memory_mb += instance.memory_mb;
                    continue;
                }
                instances.push(InstanceEnd {
                    app,
                    index: instance.index,
                    count: 1,
                    memory_mb: instance.memory_mb,
                    before,
                    task: instance.kind == Kind::Task,
                });
            }
            let cell = node.ledger().cell();
            cells.push(CellEnd {
                cell: cell.cell.clone(),
                zone: cell.zone.clone(),
                memory_mb: cell.total.memory_mb,
                used_mb: node.used_mb(),
                gone: node.down > 0,
                instances,
            });
        }
        (cells, apps)
    }
}

impl App {
    /// Returns whether its fullest and emptiest zone differ by more than one.
    fn uneven(&self, zones: usize) -> bool {
        let most = self.zones.values().max().copied().unwrap_or(0);
        let least = if self.zones.len() < zones {
            0
        } else {
            self.zones.values().min().copied().unwrap_or(0)
        };
        most > least + 1
    }
}

fn count(apps: &BTreeMap<String, App>, is: impl Fn(&App) -> bool) -> u64 {
    apps.values().filter(|app| is(app)).count() as u64
}

/// Splits a name so that numbers in it sort as numbers: `cell-2` before `cell-10`.
fn natural(name: &str) -> (String, u64) {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (head, number) = name.split_at(name.len() - digits);
    (head.to_owned(), number.parse().unwrap_or(0))
}
