//! What the free part of a device is worth to the expected work.
//!
//! Suppose that the instances of the expected work, in the expected proportions, were packed onto as few devices as
//! possible. Then each size would have a *price*, the part of a device that one more instance would cost: the prices of
//! all instances that fit one device together are never more than 1, and the expected work is as expensive as that
//! allows. (They are the dual of the cutting-stock problem, and are found as Gilmore and Gomory found them: the revised
//! simplex method, whose columns are found by filling a knapsack.) A free part is *worth* the highest sum of the prices
//! of instances that fit it together. A whole device is worth 1; what is left beside an instance for which there is
//! no partner is worth little or nothing, although smaller instances that have better places might fit it.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use crate::devices::DeviceNeed;

/// A device is divided into so many parts. What is free is rounded down, what is asked for is rounded up.
const PARTS: usize = 1_000;
/// The most amounts that are distinguished, and the most steps of the simplex method. Prices that are not yet the best
/// after that are still prices that no device exceeds.
const MAX_AMOUNTS: usize = 64;
const MAX_STEPS: usize = 256;
/// Below this, a number is a rounding error of 0.
const NEARLY_0: f64 = 1e-9;
/// The most kinds of devices whose worth is kept.
const MAX_KINDS: usize = 64;

/// What is worth how much on the devices of one kind.
#[derive(Debug)]
pub(crate) struct Worth {
    each: i64,
    /// By the number of free parts.
    of_parts: Vec<f64>,
}

/// The worth by the name of the set and what each device has. It is calculated when it is first asked for, because
/// only the cells know what their devices have. Copies share it, as they are of the same expected work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Worths(Arc<Mutex<Vec<Kind>>>);

type Kind = (String, i64, Arc<Worth>);

/// It follows from the sizes.
impl PartialEq for Worths {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Worths {
    /// Returns the worth of devices of this kind to work of which such shares need such devices, which must be the same
    /// in all calls.
    pub(crate) fn of<'n>(
        &self,
        name: &str,
        each: i64,
        needs: impl Iterator<Item = (f64, &'n DeviceNeed)>,
    ) -> Arc<Worth> {
        let mut kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = kinds.iter();
        if let Some((.., worth)) = known.find(|(of, has, _)| *has == each && of == name) {
            return Arc::clone(worth);
        }
        if kinds.len() >= MAX_KINDS {
            kinds.clear();
        }
        let worth = Arc::new(Worth::of(&wanted(each, needs), each));
        kinds.push((name.to_owned(), each, Arc::clone(&worth)));
        worth
    }
}

/// Returns the amounts, in parts, that are needed of such devices, the largest first, each with how many devices it is
/// needed on; the most demanded ones, if there are too many.
fn wanted<'n>(each: i64, needs: impl Iterator<Item = (f64, &'n DeviceNeed)>) -> Vec<(usize, f64)> {
    let mut shares: BTreeMap<usize, f64> = BTreeMap::new();
    for (share, need) in needs {
        let amount = need.amount.unwrap_or(each);
        if (1..=each).contains(&amount) {
            let devices = share * f64::from(need.count);
            *shares.entry(parts(amount, each, true)).or_default() += devices;
        }
    }
    let mut wanted: Vec<(usize, f64)> = shares.into_iter().rev().collect();
    if wanted.len() > MAX_AMOUNTS {
        let demand = |(parts, share): &(usize, f64)| *parts as f64 * share;
        wanted.sort_by(|a, b| demand(b).total_cmp(&demand(a)));
        wanted.truncate(MAX_AMOUNTS);
        wanted.sort_by_key(|(parts, _)| Reverse(*parts));
    }
    wanted
}

/// Returns how many parts of a device an amount is.
fn parts(amount: i64, each: i64, up: bool) -> usize {
    let (amount, each) = (i128::from(amount), i128::from(each.max(1)));
    let more = if up { each - 1 } else { 0 };
    let parts = (amount * PARTS as i128 + more) / each;
    usize::try_from(parts).unwrap_or(0).min(PARTS)
}

impl Worth {
    fn of(wanted: &[(usize, f64)], each: i64) -> Self {
        let mut basis = Basis::of(wanted);
        let mut knapsack = Knapsack::fill(wanted, &basis.prices());
        for _ in 0..MAX_STEPS {
            if knapsack.worth[PARTS] <= 1.0 + NEARLY_0 || !basis.enter(&knapsack.content(wanted)) {
                break;
            }
            knapsack = Knapsack::fill(wanted, &basis.prices());
        }
        // divided by this, no device is worth more than 1, even if the steps did not suffice
        let most = knapsack.worth[PARTS].max(NEARLY_0);
        let mut of_parts = knapsack.worth;
        for worth in &mut of_parts {
            *worth /= most;
        }
        Self { each, of_parts }
    }

    /// Returns what so much of a device is worth, in the unit of what is free.
    pub(crate) fn of_free(&self, free: i64) -> f64 {
        self.each as f64 * self.of_parts[parts(free, self.each, false)]
    }
}

/// Ways to fill a device, one for each amount, of which so many devices are used that all amounts are had.
struct Basis {
    /// The inverse of the matrix whose columns are the ways.
    inverse: Vec<Vec<f64>>,
    /// How many devices are filled each way.
    devices: Vec<f64>,
}

impl Basis {
    /// Fills each device with a single amount.
    fn of(wanted: &[(usize, f64)]) -> Self {
        let many = |parts: usize| (PARTS / parts) as f64;
        let row = |at: usize| {
            let mut row = vec![0.0; wanted.len()];
            row[at] = 1.0 / many(wanted[at].0);
            row
        };
        let devices = wanted.iter().map(|(parts, share)| share / many(*parts));
        Self {
            inverse: (0..wanted.len()).map(row).collect(),
            devices: devices.collect(),
        }
    }

    /// Returns the part of a device that each amount costs.
    fn prices(&self) -> Vec<f64> {
        let columns = 0..self.inverse.len();
        let price = |column: usize| self.inverse.iter().map(|row| row[column]).sum();
        columns.map(price).collect()
    }

    /// Takes a better way to fill a device, in place of that which is first not used any more; returns whether there
    /// was one.
    fn enter(&mut self, way: &[f64]) -> bool {
        let product = |row: &Vec<f64>| row.iter().zip(way).map(|(a, b)| a * b).sum();
        let uses: Vec<f64> = self.inverse.iter().map(product).collect();
        let lasts = |at: usize| self.devices[at] / uses[at];
        let used = (0..uses.len()).filter(|at| uses[*at] > NEARLY_0);
        let Some(leaves) = used.min_by(|a, b| lasts(*a).total_cmp(&lasts(*b))) else {
            return false;
        };
        let devices = lasts(leaves);
        let row: Vec<f64> = self.inverse[leaves]
            .iter()
            .map(|value| value / uses[leaves])
            .collect();
        for (at, uses) in uses.iter().enumerate().filter(|(at, _)| *at != leaves) {
            self.devices[at] = (self.devices[at] - devices * uses).max(0.0);
            for (value, entered) in self.inverse[at].iter_mut().zip(&row) {
                *value -= uses * entered;
            }
        }
        self.devices[leaves] = devices;
        self.inverse[leaves] = row;
        true
    }
}

/// Devices of each size up to a whole one, filled with the highest sum of prices.
struct Knapsack {
    /// The sum, by the number of parts.
    worth: Vec<f64>,
    /// The amount that was added last; none if a part was left empty.
    last: Vec<Option<usize>>,
}

impl Knapsack {
    fn fill(wanted: &[(usize, f64)], prices: &[f64]) -> Self {
        let (mut worth, mut last) = (vec![0.0_f64; PARTS + 1], vec![None; PARTS + 1]);
        for parts in 1..=PARTS {
            let mut best = (worth[parts - 1], None);
            for (at, ((amount, _), price)) in wanted.iter().zip(prices).enumerate() {
                // not for a rounding error
                if *amount <= parts && worth[parts - amount] + price > best.0 + NEARLY_0 / 1e3 {
                    best = (worth[parts - amount] + price, Some(at));
                }
            }
            (worth[parts], last[parts]) = best;
        }
        Self { worth, last }
    }

    /// Returns how many of each amount a whole device has.
    fn content(&self, wanted: &[(usize, f64)]) -> Vec<f64> {
        let mut content = vec![0.0; wanted.len()];
        let mut parts = PARTS;
        while parts > 0 {
            match self.last[parts] {
                Some(at) => {
                    content[at] += 1.0;
                    parts -= wanted[at].0;
                }
                None => parts -= 1,
            }
        }
        content
    }
}

#[cfg(test)]
mod tests;
