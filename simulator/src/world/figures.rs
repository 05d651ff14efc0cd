//! From the world at the end to the figures.

use std::collections::{BTreeMap, BTreeSet};

use placement::Kind;

use super::{WARM_UP_US, World, cell, sample};
use crate::outcome::{Balance, CellEnd, Figures, Histogram, InstanceEnd, Run, Spread};

/// Up to so many instances each has an entry of its own.
const EACH: usize = 20_000;
/// Reasons of refusals that are listed.
const REASONS: usize = 20;

/// Upper bounds of the classes of waits, milliseconds: those of the reports of 2014, with finer
/// ones below.
const WAITS_MS: [f64; 11] = [
    1.0, 10.0, 50.0, 250.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 20_000.0, 40_000.0,
];
/// Of auctions: 1 to 5, 6 to 10, 11 to 20, 21 to 40, more.
const ROUNDS: [f64; 8] = [2.0, 3.0, 4.0, 5.0, 6.0, 11.0, 21.0, 41.0];
/// Of load: tenths.
const LOADS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

/// What the instances that are held at the end say of each app: by cell and by zone.
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
    /// What was found.
    pub(super) fn figures(&mut self) -> Run {
        self.count_rest();
        let end = self.last_look();
        let held = self.held();
        let (messages, traffic) = self.counts.by_name();
        let virtual_ms = (self.now_us - WARM_UP_US) / 1_000;
        let spare_cells = self.spare_cells(virtual_ms);
        let hours = virtual_ms as f64 / 3_600_000.0;
        let price = self.scenario.price_per_cell_hour;
        let samples = &self.samples;
        let zones: BTreeSet<&str> = self
            .cells
            .iter()
            .map(|c| c.ledger.cell().zone.as_str())
            .collect();
        let figures = Figures {
            virtual_ms,
            asked: self.client.asked,
            placed: self.client.placed,
            refused: self.client.refused,
            waiting: self.client.waiting(),
            lost: self.client.lost,
            wait_ms: spread(&self.client.waits_ms),
            rounds: spread(&self.client.rounds),
            auctions: self.nodes.iter().map(|node| node.auctions).sum(),
            messages,
            traffic,
            distribution: sample::distribution(&self.cells),
            distribution_before: samples.distribution_before,
            per_cell: balance(&held.per_cell),
            per_zone: balance(&held.per_zone.values().copied().collect::<Vec<_>>()),
            apps_sharing_cells: count(&held.apps, |app| {
                app.sharing && app.instances <= held.per_cell.len() as u64
            }),
            apps_sharing_zones: count(&held.apps, |app| app.uneven(zones.len())),
            stranded_mb: samples.over_time(end.stranded_mb, |s| s.stranded_mb),
            largest_fit_mb: samples.over_time(end.largest_fit_mb, |s| s.largest_fit_mb),
            empty_cells: samples.over_time(end.empty_cells as f64, |s| s.empty_cells as f64),
            spare_cells,
            saved: price.map(|price| price * spare_cells as f64 * hours),
            extra: self.extra(&held),
        };
        let loads = self.cells.iter().filter(|cell| cell.down == 0);
        let loads: Vec<f64> = loads
            .map(|c| c.used_mb() as f64 / c.ledger.cell().total.memory_mb.max(1) as f64)
            .collect();
        let (cells, apps) = self.cells_at_the_end();
        Run {
            policy: self.label.to_owned(),
            figures,
            cells,
            apps,
            wait_histogram: histogram(&WAITS_MS, &self.client.waits_ms),
            rounds_histogram: histogram(&ROUNDS, &self.client.rounds),
            load_histogram: histogram(&LOADS, &loads),
            series: std::mem::take(&mut self.samples.series),
            refusals: self.refusals(),
        }
    }

    fn refusals(&self) -> Vec<(String, u64)> {
        let mut reasons: Vec<(String, u64)> = self.client.reasons.clone().into_iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
        reasons.truncate(REASONS);
        reasons
    }

    fn extra(&self, held: &Held) -> BTreeMap<String, f64> {
        let mut extra = BTreeMap::new();
        if self.client.repeats > 0 {
            extra.insert("requests asked again".into(), self.client.repeats as f64);
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
            .any(|c| c.ledger.cell().next_reboot.is_some())
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
            let cell = node.ledger.cell();
            let count = node.ledger.held() as f64;
            all.per_cell.push(count);
            *all.per_zone.entry(cell.zone.clone()).or_default() += count;
            if let Some(platform) = &cell.platform {
                *all.platforms.entry(platform.stamp.clone()).or_default() += count;
            }
            if cell.next_reboot.is_some() {
                all.reboot_hits += count;
            }
            for (app, instances) in &cell.apps {
                let entry = all.apps.entry(app.clone()).or_default();
                entry.instances += u64::from(*instances);
                entry.sharing |= *instances > 1;
                *entry.zones.entry(cell.zone.clone()).or_default() += u64::from(*instances);
            }
        }
        all
    }

    /// Cells that were empty all the time after the first tenth of the run. Where the largest size
    /// would at some look have fitted on none of the others, one is kept.
    fn spare_cells(&self, virtual_ms: u64) -> u64 {
        let from_ms = virtual_ms / 10;
        let spare =
            |cell: &cell::Node| cell.down == 0 && cell.busy_ms <= from_ms + WARM_UP_US / 1_000;
        let count = self.cells.iter().filter(|cell| spare(cell)).count() as u64;
        let fits = |c: usize| !spare(&self.cells[c]);
        if count == 0 || self.samples.largest_always_fits(from_ms, fits) {
            return count;
        }
        count - 1
    }

    /// The cells by zone and name, and the apps on them.
    fn cells_at_the_end(&self) -> (Vec<CellEnd>, Vec<String>) {
        let total: usize = self.cells.iter().map(|cell| cell.ledger.held()).sum();
        let mut apps: Vec<String> = Vec::new();
        let mut numbers: BTreeMap<String, u32> = BTreeMap::new();
        let mut order: Vec<&cell::Node> = self.cells.iter().collect();
        order.sort_by_key(|node| (node.ledger.cell().zone.clone(), natural(&node.name)));
        let mut cells = Vec::with_capacity(order.len());
        for node in order {
            let mut instances: Vec<InstanceEnd> = Vec::new();
            let mut held = node.ledger.all_held(0);
            held.sort_by(|a, b| (&a.app, a.index, a.instance).cmp(&(&b.app, b.index, b.instance)));
            for instance in held {
                let app = *numbers.entry(instance.app.clone()).or_insert_with(|| {
                    apps.push(instance.app.clone());
                    u32::try_from(apps.len() - 1).unwrap_or(u32::MAX)
                });
                let before = cell::was_before(instance.instance);
                if total > EACH
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
            let cell = node.ledger.cell();
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
    /// Whether its fullest and emptiest zone differ by more than one.
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

/// A name so that numbers in it sort as numbers: `cell-2` before `cell-10`.
fn natural(name: &str) -> (String, u64) {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    let (head, number) = name.split_at(name.len() - digits);
    (head.to_owned(), number.parse().unwrap_or(0))
}

/// Five numbers of a distribution. Percentiles are those of the nearest rank.
pub(crate) fn spread(values: &[f64]) -> Spread {
    if values.is_empty() {
        return Spread::default();
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    let rank = |percent: usize| sorted[(sorted.len() * percent).div_ceil(100).saturating_sub(1)];
    Spread {
        min: sorted[0],
        mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
        p50: rank(50),
        p99: rank(99),
        max: sorted[last],
    }
}

/// How evenly the values are spread.
pub(crate) fn balance(values: &[f64]) -> Balance {
    if values.is_empty() {
        return Balance::default();
    }
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    let max = values.iter().copied().fold(f64::MIN, f64::max);
    Balance {
        mean,
        sd: variance.sqrt(),
        min: values.iter().copied().fold(f64::MAX, f64::min),
        max,
        max_over_mean: if mean == 0.0 { 0.0 } else { max / mean },
    }
}

/// Counts by class.
pub(crate) fn histogram(bounds: &[f64], values: &[f64]) -> Histogram {
    let mut counts = vec![0; bounds.len() + 1];
    for value in values {
        counts[bounds.partition_point(|bound| bound <= value)] += 1;
    }
    Histogram {
        bounds: bounds.to_vec(),
        counts,
    }
}
