//! The room of a cell, and the shares of it that instances take.

use std::collections::{BTreeMap, BTreeSet};

use placement::{DeviceNeed, Request, Resource, ResourceName, Resources};

/// Maximum number of stepped rows of a resource; see [`rows_of`].
const MOST_STEPS: usize = 8;
/// Above this number of instances of a size on a cell, the fraction of one more is not worth a row.
const MOST_ON_A_CELL: i64 = 64;

/// The room of a cell in amounts of which each instance takes its share: those of every cell and named ones, and for
/// each set of devices the sum and the number of devices of which more than half is taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Room {
    amounts: BTreeMap<ResourceName, i64>,
    sets: BTreeMap<String, Set>,
}

/// A set of devices of a cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Set {
    count: i64,
    each: i64,
    model: Option<String>,
    /// The sum over all devices.
    free: i64,
    /// Number of devices of which no instance has more than half.
    halves: i64,
}

impl Set {
    /// Returns how much of the sum the need takes, and on how many devices it takes more than half.
    fn shares(&self, need: &DeviceNeed) -> (i64, i64) {
        let count = i64::from(need.count);
        let amount = need.amount.unwrap_or(self.each);
        (
            count * amount,
            if 2 * amount > self.each { count } else { 0 },
        )
    }

    /// Returns the sum of this many such sets.
    fn times(&self, cells: i64) -> Self {
        Self {
            count: self.count * cells,
            free: self.free.max(0) * cells,
            halves: self.halves.max(0) * cells,
            model: None,
            ..self.clone()
        }
    }

    /// Returns the sum of both; none if their devices differ in size.
    fn plus(&self, other: &Self) -> Option<Self> {
        (self.each == other.each).then(|| Self {
            count: self.count + other.count,
            free: self.free + other.free,
            halves: self.halves + other.halves,
            ..self.clone()
        })
    }

    fn serves(&self, need: &DeviceNeed) -> bool {
        let model = self.model.as_ref();
        let of_model = need.models.is_empty() || model.is_some_and(|m| need.models.contains(m));
        let (sum, halves) = self.shares(need);
        let fits = need.amount.unwrap_or(self.each) <= self.each;
        of_model
            && fits
            && i64::from(need.count) <= self.count
            && sum <= self.free
            && halves <= self.halves
    }
}

impl Room {
    /// Returns all of a cell; unlimited resources are left out.
    pub(super) fn of(total: &Resources) -> Self {
        let limited = |of: Resource| Some((ResourceName::Amount(of), total.get(of)?));
        let extra = total.extra.iter();
        let extra = extra.map(|(name, amount)| (ResourceName::Named(name.clone()), *amount));
        let set = |(name, set): (&String, &placement::DeviceSet)| {
            let count = i64::from(set.count);
            let set = Set {
                count,
                each: set.each,
                model: set.model.clone(),
                free: count * set.each,
                halves: count,
            };
            (name.clone(), set)
        };
        let amounts = Resource::ALL.into_iter().filter_map(limited);
        Self {
            amounts: amounts.chain(extra).collect(),
            sets: total.devices.iter().map(set).collect(),
        }
    }

    /// Subtracts an instance that is there in any case.
    pub(super) fn debit(&mut self, request: &Request) {
        for (of, free) in &mut self.amounts {
            *free -= of.wanted(request, &Resources::default());
        }
        for (name, need) in &request.devices {
            if let Some(set) = self.sets.get_mut(name) {
                let (sum, halves) = set.shares(need);
                set.free -= sum;
                set.halves -= halves;
            }
        }
    }

    /// Returns whether one instance fits by itself.
    pub(super) fn has(&self, request: &Request) -> bool {
        let fits = |(of, free): (&ResourceName, &i64)| {
            let wanted = of.wanted(request, &Resources::default());
            wanted <= 0 || wanted <= *free
        };
        let missing = |(name, wanted): (&String, &i64)| {
            *wanted > 0
                && !self
                    .amounts
                    .contains_key(&ResourceName::Named(name.clone()))
        };
        let served = |(name, need): (&String, &DeviceNeed)| {
            need.count == 0 || self.sets.get(name).is_some_and(|set| set.serves(need))
        };
        self.amounts.iter().all(fits)
            && !request.extra.iter().any(missing)
            && request.devices.iter().all(served)
    }

    /// Returns the rooms of cells, each with the number of such cells, added up as if they were one cell. What some
    /// cell has without limit is without limit; a set whose devices differ in size is left out.
    pub(super) fn sum<'r>(rooms: impl Iterator<Item = (&'r Self, u32)> + Clone) -> Self {
        let all: i64 = rooms.clone().map(|(_, cells)| i64::from(cells)).sum();
        let mut limited: BTreeMap<&ResourceName, (i64, i64)> = BTreeMap::new();
        let mut sets: BTreeMap<&String, Option<Set>> = BTreeMap::new();
        for (room, cells) in rooms {
            let cells = i64::from(cells);
            for (of, free) in &room.amounts {
                let (sum, count) = limited.entry(of).or_default();
                *sum += cells * (*free).max(0);
                *count += cells;
            }
            for (name, set) in &room.sets {
                let more = set.times(cells);
                let sum = sets.entry(name).or_insert_with(|| Some(set.times(0)));
                *sum = sum.take().and_then(|sum| sum.plus(&more));
            }
        }
        // a cell without an amount of a named resource has none of it
        let is_limited =
            |of: &ResourceName, count: i64| count == all || matches!(of, ResourceName::Named(_));
        let amounts = limited.into_iter();
        let amounts = amounts.filter(|(of, (_, count))| is_limited(of, *count));
        let sets = sets.into_iter();
        Self {
            amounts: amounts.map(|(of, (sum, _))| (of.clone(), sum)).collect(),
            sets: sets
                .filter_map(|(name, set)| Some((name.clone(), set?)))
                .collect(),
        }
    }

    /// Returns the rows of a cell with this room; see [`rows_of`].
    pub(super) fn rows(&self, requests: &[&Request], steps: bool) -> Vec<Vec<f64>> {
        let mut rows = Vec::new();
        for (of, free) in &self.amounts {
            let wanted = |request: &&Request| of.wanted(request, &Resources::default());
            let sizes: Vec<i64> = requests.iter().map(wanted).collect();
            rows.extend(rows_of(*free, &sizes, steps));
        }
        for (name, set) in &self.sets {
            let shares = |request: &&Request| {
                let need = request.devices.get(name);
                need.map_or((0, 0), |need| set.shares(need))
            };
            let (sums, halves): (Vec<i64>, Vec<i64>) = requests.iter().map(shares).unzip();
            rows.extend(rows_of(set.free, &sums, steps));
            rows.extend(rows_of(set.halves, &halves, steps));
        }
        rows
    }
}

/// Returns rows of shares that add up to at most 1 on a cell with `room`, for instances of these sizes: the sizes
/// themselves and, for each of some numbers k, the share x of each under Lueker's dual feasible function u(k): x if (k
/// + 1) x is whole, else ⌊(k + 1) x⌋ / k. There, an instance of which k but not k + 1 fit counts as 1/k.
fn rows_of(room: i64, sizes: &[i64], steps: bool) -> Vec<Vec<f64>> {
    let fits = |size: &&i64| **size > 0 && **size <= room;
    let on_a_cell: BTreeSet<i64> = sizes.iter().filter(fits).map(|size| room / size).collect();
    if on_a_cell.is_empty() {
        return Vec::new();
    }
    let share = |size: &i64| {
        if room > 0 {
            *size as f64 / room as f64
        } else {
            0.0
        }
    };
    let plain: Vec<f64> = sizes.iter().map(share).collect();
    if !steps {
        return vec![plain];
    }
    let steps = [1].into_iter().chain(on_a_cell);
    let steps = steps.filter(|k| *k <= MOST_ON_A_CELL);
    let steps: BTreeSet<i64> = steps.take(MOST_STEPS).collect();
    let stepped = |k: i64| -> Vec<f64> {
        let share = |size: &i64| {
            let times = (k + 1) * size;
            if times % room == 0 {
                *size as f64 / room as f64
            } else {
                (times / room) as f64 / k as f64
            }
        };
        sizes.iter().map(share).collect()
    };
    let mut rows = vec![plain];
    for row in steps.into_iter().map(stepped) {
        // a row that is nowhere above another one adds nothing
        let adds = |known: &Vec<f64>| row.iter().zip(known).any(|(a, b)| a > b);
        if rows.iter().all(adds) {
            rows.push(row);
        }
    }
    rows
}
