//! The cells of one auction as the plain engine sees them: those of the pool, less the debits of this batch.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use crate::{
    cell::Cell,
    context::{Now, PlanContext},
    devices::DeviceShares,
    expected::ExpectedWork,
    free::Free,
    policy::Policy,
    random,
    request::Job,
    resource_name::ResourceName,
    scarcity::MeanFree,
    tie,
};

/// The pool's cells, by slot and by name.
#[derive(Clone, Copy)]
pub(crate) struct PoolCells<'a> {
    pub(crate) by_name: &'a BTreeMap<Arc<str>, u32>,
    pub(crate) names: &'a [Arc<str>],
    pub(crate) cells: &'a [Cell],
    /// The expected work, for scores that measure fragmentation.
    pub(crate) expected: &'a ExpectedWork,
}

/// The cells of one auction. Slots are positions in the pool.
pub(crate) struct AuctionView<'a> {
    names: &'a [Arc<str>],
    base: &'a [Cell],
    /// Cells that got work in this batch, with that work debited.
    changed: HashMap<u32, Cell>,
    /// All cells except the absent ones, by name.
    live: Vec<u32>,
    /// Those that count for zones, racks and starts in flight: not evacuating ones, if the policy filters those.
    counted: Vec<u32>,
    /// Cells that are left out of this auction, with the name of the stage that reports them.
    left_out: Vec<(&'static str, Vec<u32>)>,
    /// By slot: the cell's rank by index in its zone.
    ranks: Vec<u32>,
    /// By slot: the zone's number in the objective language.
    zone_numbers: Vec<u32>,
    zones: usize,
    lots: tie::Lots,
    /// The expected work.
    pub(crate) expected: &'a ExpectedWork,
    now_ms: i64,
    instances: &'a BTreeMap<String, Arc<str>>,
}

impl<'a> AuctionView<'a> {
    pub(crate) fn new(pool: PoolCells<'a>, policy: &Policy, context: &'a PlanContext) -> Self {
        let PoolCells {
            by_name,
            names,
            cells: base,
            expected,
        } = pool;
        let (mut live, mut absent, mut expired) = (Vec::new(), Vec::new(), Vec::new());
        for slot in by_name.values().copied() {
            let name = &names[slot as usize];
            if context.expired.contains(name) {
                expired.push(slot);
            } else if context.absent.contains(name) {
                absent.push(slot);
            } else {
                live.push(slot);
            }
        }
        let mut counted = live.clone();
        if policy.ignores_evacuating() {
            counted.retain(|slot| !base[*slot as usize].evacuating);
        }
        let mut view = Self {
            names,
            base,
            changed: HashMap::new(),
            live,
            counted,
            left_out: vec![("expired", expired), ("absent", absent)],
            ranks: Vec::new(),
            zone_numbers: vec![0; base.len()],
            zones: 0,
            lots: tie::Lots::new(context.seed, context.auction),
            expected,
            now_ms: context.now_ms,
            instances: &context.instances,
        };
        view.left_out.retain(|(_, cells)| !cells.is_empty());
        view.number_zones();
        view
    }

    fn number_zones(&mut self) {
        self.ranks = ranks(self.base, self.counted.clone());
        let zones: BTreeSet<&str> = self
            .counted
            .iter()
            .map(|s| self.base[*s as usize].zone.as_str())
            .collect();
        self.zones = zones.len();
        for slot in &self.live {
            let cell = &self.base[*slot as usize];
            let before = zones.range(..cell.zone.as_str()).count() + 1;
            let number = cell
                .zone_number
                .unwrap_or(u32::try_from(before).unwrap_or(u32::MAX));
            self.zone_numbers[*slot as usize] = number;
        }
    }

    pub(crate) fn cell(&self, slot: u32) -> &Cell {
        self.changed.get(&slot).unwrap_or(&self.base[slot as usize])
    }

    pub(crate) fn name(&self, slot: u32) -> &Arc<str> {
        &self.names[slot as usize]
    }

    /// Returns the mean of what the cells of this auction had free of the resource when the batch began.
    pub(crate) fn mean_free(&self, of: &ResourceName) -> MeanFree {
        let cells = self.live.iter().map(|slot| &self.base[*slot as usize]);
        MeanFree::of(cells.map(|cell| of.limited(&Free::of(cell))))
    }

    /// Returns all cells of this auction, by name.
    pub(crate) fn live(&self) -> &[u32] {
        &self.live
    }

    /// Returns the cells that count for zones, racks and starts in flight, by name.
    pub(crate) fn counted(&self) -> &[u32] {
        &self.counted
    }

    /// Returns the cells that are left out of this auction, by reason.
    pub(crate) fn left_out(&self) -> &[(&'static str, Vec<u32>)] {
        &self.left_out
    }

    pub(crate) fn now(&self) -> Now<'_> {
        Now {
            ms: self.now_ms,
            instances: self.instances,
        }
    }

    /// Returns the cell's rank by `index` among the cells of its zone.
    pub(crate) fn rank(&self, slot: u32) -> u32 {
        self.ranks[slot as usize]
    }

    pub(crate) fn zone_number(&self, slot: u32) -> f64 {
        f64::from(self.zone_numbers[slot as usize])
    }

    /// Returns how many zones the counted cells have.
    pub(crate) fn zones(&self) -> usize {
        self.zones
    }

    /// Returns the job's point on the circle of lots.
    pub(crate) fn point(&self, job: &Job) -> tie::Point {
        self.lots
            .of_job(random::hash_text(&job.request.app), job.index)
    }

    /// Returns the cell's lot.
    pub(crate) fn lot(&self, slot: u32) -> tie::Lot {
        self.lots
            .of_cell(random::hash_text(&self.names[slot as usize]))
    }

    /// Takes the job's resources from the cell, for the jobs that follow, and returns the devices that it gets.
    pub(crate) fn debit(&mut self, slot: u32, job: &Job) -> Option<Box<DeviceShares>> {
        let base = &self.base[slot as usize];
        let cell = self.changed.entry(slot).or_insert_with(|| base.clone());
        let given = cell.available.choose_devices(&job.request);
        cell.debit(&job.request, given.as_deref());
        given
    }
}

/// Returns, by slot, the rank by index among the counted cells of the zone; ties are broken by name.
pub(crate) fn ranks(cells: &[Cell], mut counted: Vec<u32>) -> Vec<u32> {
    counted.sort_by_key(|slot| cells[*slot as usize].index);
    let mut ranks = vec![0; cells.len()];
    let mut next: HashMap<&str, u32> = HashMap::new();
    for slot in counted {
        let rank = next.entry(&cells[slot as usize].zone).or_insert(0);
        ranks[slot as usize] = *rank;
        *rank += 1;
    }
    ranks
}
