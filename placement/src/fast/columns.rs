//! A batch's view of the cells as columns: one value per cell and column, by name. The columnar
//! engine reads these, and a placement changes one cell's values in them.

use std::collections::HashMap;

use crate::{
    Cell, Draw, Job, Policy, Request,
    batch::{Ask, Batch},
    objective::Objective,
    resources::MAX_AMOUNT,
    stages::{
        dates,
        filter::{self, Now},
        locality::{self, Item},
    },
    tie,
};

use super::rows::{Holders, Row};

mod debits;

/// No rack.
pub(super) const NO_RACK: u32 = u32::MAX;
/// Most blobs and stacks that are kept as columns at a time.
const MAX_KEPT: usize = 512;

/// Amounts and what else debits change, by position.
pub(super) struct Columns<'a> {
    pub(super) cells: &'a [Cell],
    pub(super) draw: &'a Draw,
    /// By position: the cell's slot. Positions are in the order of names.
    pub(super) slots: Vec<u32>,
    position_of: Vec<u32>,
    /// Whether the cell counts in zones and racks.
    pub(super) counted: Vec<bool>,
    pub(super) rows: Vec<Row>,
    pub(super) capped: Vec<u32>,
    pub(super) uncapped: Vec<u32>,
    pub(super) instances: Vec<u64>,
    pub(super) zones: Vec<u32>,
    pub(super) zone_count: usize,
    pub(super) racks: Vec<u32>,
    rack_count: usize,
    pub(super) lots: Vec<u64>,
    /// Available and total MiB as the objective language sees them; unlimited is [`MAX_AMOUNT`].
    pub(super) memory: Vec<f64>,
    pub(super) disk: Vec<f64>,
    pub(super) total_memory: Vec<f64>,
    pub(super) total_disk: Vec<f64>,
    pub(super) zone_numbers: Vec<f64>,
    /// How many zones the counted cells have.
    pub(super) zones_counted: usize,
    pub(super) ranks: Vec<u32>,
    holders: &'a Holders,
    apps: Vec<Option<AppCells>>,
    /// Positions of the batch's apps in `apps`.
    app_numbers: HashMap<&'a str, u32>,
    /// Which cells hold instances of each owner, and of each tag, where the batch asks for it.
    owners: HashMap<String, Counts>,
    tags: HashMap<String, Counts>,
    pub(super) blobs: HashMap<String, Vec<f64>>,
    pub(super) stacks: HashMap<String, Vec<f64>>,
    extras: HashMap<(u32, String), i64>,
    /// Positions by free memory and by free disk, once a term asked for them.
    pub(super) by_memory: Option<Vec<u32>>,
    pub(super) by_disk: Option<Vec<u32>>,
    /// Platform stamps and planned reboots in ms, once a term asked for them.
    pub(super) platforms: Option<Vec<Option<f64>>>,
    pub(super) reboots: Option<Reboots>,
}

/// Planned reboots: never is infinite.
pub(super) struct Reboots {
    pub(super) at: Vec<f64>,
    /// Positions, the latest first.
    pub(super) latest_first: Vec<u32>,
}

/// How many instances of something cells hold: position and count, by position.
type Counts = Vec<(u32, u32)>;

/// One app's instances: by position, those of this batch included.
#[derive(Default)]
pub(super) struct AppCells {
    pub(super) counts: Counts,
    pub(super) zones: Vec<u64>,
}

/// The pool's parts that columns are made from.
pub(crate) struct Source<'a> {
    pub(crate) cells: &'a [Cell],
    pub(crate) rows: &'a [Row],
    pub(crate) hashes: &'a [u64],
    pub(crate) holders: &'a Holders,
    /// All slots by name.
    pub(crate) by_name: &'a mut dyn Iterator<Item = (&'a str, u32)>,
}

impl<'a> Columns<'a> {
    #[allow(clippy::needless_pass_by_value)] // the iterator in it is used up
    pub(super) fn new(source: Source<'a>, policy: &Policy, draw: &'a Draw, apps: usize) -> Self {
        let cells = source.cells;
        let there = |name: &str| !draw.absent.contains(name) && !draw.expired.contains(name);
        let slots: Vec<u32> = source
            .by_name
            .filter(|(name, _)| there(name))
            .map(|(_, slot)| slot)
            .collect();
        let cell = |slot: &u32| &cells[*slot as usize];
        let ignored = |cell: &Cell| policy.ignores_evacuating() && cell.evacuating;
        let counted: Vec<bool> = slots.iter().map(|slot| !ignored(cell(slot))).collect();
        let mut position_of = vec![u32::MAX; cells.len()];
        for (position, slot) in (0..).zip(&slots) {
            position_of[*slot as usize] = position;
        }
        let rows: Vec<Row> = slots
            .iter()
            .map(|slot| source.rows[*slot as usize])
            .collect();
        let lots = tie::Lots::new(draw.seed, draw.auction);
        let lot = |slot: &u32| lots.of_cell(source.hashes[*slot as usize]);
        let amount = |amount: Option<i64>| amount.unwrap_or(MAX_AMOUNT) as f64;
        let column = |value: &dyn Fn(&Cell) -> f64| slots.iter().map(|s| value(cell(s))).collect();
        let mut columns = Self {
            cells,
            draw,
            counted,
            capped: slots.iter().map(|slot| cell(slot).cpu_capped).collect(),
            uncapped: slots.iter().map(|slot| cell(slot).cpu_uncapped).collect(),
            instances: slots
                .iter()
                .map(|slot| filter::containers(cell(slot)))
                .collect(),
            zones: Vec::new(),
            zone_count: 0,
            racks: Vec::new(),
            rack_count: 0,
            lots: slots.iter().map(lot).collect(),
            memory: rows.iter().map(|row| row.memory as f64).collect(),
            disk: column(&|cell| amount(cell.available.disk_mb)),
            total_memory: column(&|cell| cell.total.memory_mb as f64),
            total_disk: column(&|cell| amount(cell.total.disk_mb)),
            zone_numbers: Vec::new(),
            zones_counted: 0,
            ranks: Vec::new(),
            rows,
            position_of,
            holders: source.holders,
            apps: std::iter::repeat_with(|| None).take(apps).collect(),
            app_numbers: HashMap::new(),
            owners: HashMap::new(),
            tags: HashMap::new(),
            blobs: HashMap::new(),
            stacks: HashMap::new(),
            extras: HashMap::new(),
            by_memory: None,
            by_disk: None,
            platforms: None,
            reboots: None,
            slots,
        };
        columns.number_zones(policy.ranks_cells());
        columns.number_racks();
        columns
    }

    fn number_zones(&mut self, by_rank: bool) {
        let cells = self.cells;
        // zones by number, in the order in which they are met, and whether any of their cells counts
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut counts: Vec<bool> = Vec::new();
        for (slot, counted) in self.slots.iter().zip(&self.counted) {
            let zone = cells[*slot as usize].zone.as_str();
            let next = u32::try_from(counts.len()).unwrap_or(u32::MAX);
            let number = *numbers.entry(zone).or_insert(next);
            if number == next {
                counts.push(false);
            }
            counts[number as usize] |= counted;
            self.zones.push(number);
        }
        self.zone_count = counts.len();
        let mut names: Vec<(&str, u32)> = numbers.into_iter().collect();
        names.sort_unstable();
        let mut ranks = vec![0.0; counts.len()];
        for (_, number) in names {
            // as many counted zones come before it, and one
            ranks[number as usize] = self.zones_counted as f64 + 1.0;
            self.zones_counted += usize::from(counts[number as usize]);
        }
        let number = |(slot, zone): (&u32, &u32)| {
            let given = cells[*slot as usize].zone_number;
            given.map_or(ranks[*zone as usize], f64::from)
        };
        self.zone_numbers = self.slots.iter().zip(&self.zones).map(number).collect();
        if by_rank {
            let counted = self
                .slots
                .iter()
                .zip(&self.counted)
                .filter(|(_, counted)| **counted);
            let ranks = super::ranks(cells, counted.map(|(slot, _)| *slot).collect());
            self.ranks = self
                .slots
                .iter()
                .map(|slot| ranks[*slot as usize])
                .collect();
        }
    }

    fn number_racks(&mut self) {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        for slot in &self.slots {
            let next = u32::try_from(numbers.len()).unwrap_or(NO_RACK);
            let rack = self.cells[*slot as usize].rack.as_deref();
            self.racks
                .push(rack.map_or(NO_RACK, |rack| *numbers.entry(rack).or_insert(next)));
        }
        self.rack_count = numbers.len();
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The cell as it was before the batch.
    pub(super) fn cell(&self, position: u32) -> &'a Cell {
        &self.cells[self.slots[position as usize] as usize]
    }

    pub(super) fn position(&self, slot: u32) -> Option<u32> {
        let position = self.position_of[slot as usize];
        (position != u32::MAX).then_some(position)
    }

    pub(super) fn now(&self) -> Now<'a> {
        Now {
            ms: self.draw.now_ms,
            instances: &self.draw.instances,
        }
    }

    /// Where the app runs.
    pub(super) fn app(&mut self, ask: Ask, app: &str) -> &AppCells {
        self.app_cells(ask.app, app)
    }

    fn app_cells(&mut self, number: u32, app: &str) -> &mut AppCells {
        let at = number as usize;
        if self.apps[at].is_none() {
            let mut found = AppCells {
                zones: vec![0; self.zone_count],
                ..AppCells::default()
            };
            for (slot, count) in self.holders.of(app) {
                let Some(position) = self.position(*slot) else {
                    continue;
                };
                found.counts.push((position, *count));
                if self.counted[position as usize] {
                    found.zones[self.zones[position as usize] as usize] += u64::from(*count);
                }
            }
            found.counts.sort_unstable();
            self.apps[at] = Some(found);
        }
        self.apps[at].get_or_insert_default()
    }

    /// Learns who holds what the batch's jobs will look at, before the first debit.
    pub(super) fn learn(&mut self, jobs: &'a [Job], batch: &Batch<'a>) {
        self.app_numbers = batch.apps.iter().copied().zip(0..).collect();
        let requests = || jobs.iter().map(|job| &*job.request);
        let any_owner = requests().any(|request| request.owner.is_some());
        let mut items = requests().flat_map(|request| request.near.iter().chain(&request.far));
        let any_tag = items.any(|item| item.starts_with("tag:"));
        if !any_owner && !any_tag {
            return;
        }
        for (position, slot) in (0..).zip(&self.slots) {
            let cell = &self.cells[*slot as usize];
            for (owner, count) in cell.owners.iter().filter(|(_, n)| any_owner && **n > 0) {
                self.owners
                    .entry(owner.clone())
                    .or_default()
                    .push((position, *count));
            }
            for (tag, count) in cell.tags.iter().filter(|(_, n)| any_tag && **n > 0) {
                self.tags
                    .entry(tag.clone())
                    .or_default()
                    .push((position, *count));
            }
        }
    }

    /// Which cells hold instances of the owner.
    pub(super) fn owner(&self, owner: &str) -> &[(u32, u32)] {
        self.owners.get(owner).map_or(&[], Vec::as_slice)
    }

    /// How many of the items each cell holds.
    pub(super) fn held(&mut self, items: &[String]) -> Vec<u32> {
        let mut held = vec![0; self.len()];
        for item in items {
            self.for_holders(item, &mut |position| held[position as usize] += 1);
        }
        held
    }

    fn for_holders(&mut self, item: &str, found: &mut dyn FnMut(u32)) {
        match Item::parse(item) {
            Some(Item::App(app)) => {
                for (position, _) in self.app_counts(app) {
                    found(position);
                }
            }
            Some(Item::Tag(tag)) => {
                for (position, _) in self.tags.get(tag).into_iter().flatten() {
                    found(*position);
                }
            }
            Some(Item::Rack(_) | Item::Instance(_)) => {
                let now = self.now();
                let holds = |slot: u32| locality::holds(&self.cells[slot as usize], item, now);
                let positions = (0..).zip(&self.slots).filter(|(_, slot)| holds(**slot));
                positions.for_each(|(position, _)| found(position));
            }
            None => {}
        }
    }

    /// Where an app runs that need not be one of the batch's: positions and counts.
    pub(super) fn app_counts(&mut self, app: &str) -> Vec<(u32, u32)> {
        if let Some(number) = self.app_numbers.get(app).copied() {
            return self.app_cells(number, app).counts.clone();
        }
        let holders = self.holders.of(app).iter();
        let found = holders.filter_map(|(slot, n)| Some((self.position(*slot)?, *n)));
        let mut found: Counts = found.collect();
        found.sort_unstable();
        found
    }

    /// The cell with this batch's debits, as far as an objective can see.
    pub(super) fn as_it_is(
        &mut self,
        position: u32,
        objective: &Objective,
        request: &Request,
    ) -> Cell {
        let (cell, at) = (self.cell(position), position as usize);
        let mut seen = Cell::new("", cell.total.clone());
        seen.available.memory_mb = self.rows[at].memory;
        seen.available.disk_mb = cell.available.disk_mb.map(|_| self.rows[at].disk);
        seen.stacks.clone_from(&cell.stacks);
        seen.cached_blobs.clone_from(&cell.cached_blobs);
        for app in objective.counted_apps(request) {
            let counts = self.app_counts(app);
            if let Ok(found) = counts.binary_search_by_key(&position, |(p, _)| *p) {
                seen.apps.insert(app.to_owned(), counts[found].1);
            }
        }
        seen
    }

    /// Platform stamps in ms; none = unreadable.
    pub(super) fn platforms(&mut self) -> &[Option<f64>] {
        let (slots, cells) = (&self.slots, self.cells);
        self.platforms.get_or_insert_with(|| {
            let stamp = |slot: &u32| {
                let platform = cells[*slot as usize].platform.as_ref();
                platform
                    .and_then(|p| dates::stamp_ms(&p.stamp))
                    .map(|ms| ms as f64)
            };
            slots.iter().map(stamp).collect()
        })
    }

    /// Planned reboots.
    pub(super) fn reboots(&mut self) -> &Reboots {
        let (slots, cells, now_ms) = (&self.slots, self.cells, self.draw.now_ms);
        self.reboots.get_or_insert_with(|| {
            let at = |slot: &u32| {
                let planned = dates::planned_reboot_ms(&cells[*slot as usize], now_ms);
                planned.map_or(f64::INFINITY, |ms| ms as f64)
            };
            let at: Vec<f64> = slots.iter().map(at).collect();
            let mut latest_first: Vec<u32> = (0..).take(at.len()).collect();
            latest_first.sort_by(|a, b| at[*b as usize].total_cmp(&at[*a as usize]));
            Reboots { at, latest_first }
        })
    }

    /// A column of ones and zeros, or of counts, made once.
    pub(super) fn blob(&mut self, blob: &str) -> &[f64] {
        if !self.blobs.contains_key(blob) {
            let count = |slot: &u32| {
                let blobs = &self.cells[*slot as usize].cached_blobs;
                blobs.iter().filter(|b| *b == blob).count() as f64
            };
            let counts = self.slots.iter().map(count).collect();
            make_room(&mut self.blobs);
            self.blobs.insert(blob.to_owned(), counts);
        }
        &self.blobs[blob]
    }

    /// 1 where the cell offers the stack.
    pub(super) fn stack(&mut self, stack: &str) -> &[f64] {
        if !self.stacks.contains_key(stack) {
            let offers = |slot: &u32| {
                let stacks = &self.cells[*slot as usize].stacks;
                f64::from(stacks.iter().any(|s| s == stack))
            };
            let column = self.slots.iter().map(offers).collect();
            make_room(&mut self.stacks);
            self.stacks.insert(stack.to_owned(), column);
        }
        &self.stacks[stack]
    }
}

/// Columns that can be made again at any time are few at a time.
fn make_room<T>(columns: &mut HashMap<String, Vec<T>>) {
    if columns.len() >= MAX_KEPT {
        columns.clear();
    }
}

/// Positions by a value, lowest first.
pub(super) fn order_by(rows: &[Row], value: impl Fn(&Row) -> i64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..).take(rows.len()).collect();
    order.sort_by_key(|position| value(&rows[*position as usize]));
    order
}
