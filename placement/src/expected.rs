//! The expected work: sizes of instances with their shares, given in a policy's file or learnt from the last requests.
//! The score `fragmentation` measures what it could not use.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    devices::DeviceNeed,
    fast_map::FastMap,
    request::Request,
    resources::{Amounts, Resource},
    worth::{Worth, Worths},
};

/// The most requests from which the expected work is learnt.
pub const MAX_LEARNT_REQUESTS: usize = 4_096;
/// The most sizes of expected work.
pub const MAX_EXPECTED_SIZES: usize = 256;
/// Sizes are taken in order of frequency until they make up this share of all instances, and of the memory, disk and
/// cpu that these ask for. Rare sizes would cost as much to evaluate as frequent ones.
const COVERED: f64 = 0.95;
/// The expected work is replaced when this share of its instances, or of an amount, is of other sizes. Every score depends on it, so replacing it
/// for the random fluctuations of a steady load would cost more than it is worth.
const MOVED: f64 = 0.1;
/// The most instances that one request counts for.
const MAX_WEIGHT: u64 = 1_000;

/// What one instance needs: the part of a request that determines whether it fits a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Size {
    /// MiB.
    #[serde(default)]
    pub memory_mb: i64,
    /// MiB.
    #[serde(default)]
    pub disk_mb: i64,
    /// Thousandths of a core.
    #[serde(default)]
    pub cpu_millis: i64,
    /// Named resources.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, i64>,
    /// Devices, by set name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, DeviceNeed>,
}

/// Instances of one size among those expected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectedSize {
    /// Its share, above 0, of the sum of all shares, which is 1 if they are learnt.
    pub share: f64,
    /// What one instance needs.
    #[serde(flatten)]
    pub size: Size,
}

/// The expected work: the most frequent sizes with their shares, the most frequent first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ExpectedWork {
    sizes: Vec<ExpectedSize>,
    /// The sum of the shares.
    #[serde(skip)]
    all: f64,
    /// What parts of devices are worth to it.
    #[serde(skip)]
    worths: Worths,
}

/// The last requests, from which the expected work is learnt. Bounded; the same requests in the same order give the
/// same expected work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    /// The last requests: the number of their size, and the number of instances that they count for.
    last: VecDeque<(u32, u64)>,
    numbers: FastMap<Size, u32>,
    /// By number: the size, and its instances among `last`; a number with 0 instances is free.
    counts: Vec<(Size, u64)>,
    unused: Vec<u32>,
    /// Requests since the expected work was last computed.
    news: usize,
    work: ExpectedWork,
    /// Counts how often it was replaced.
    version: u64,
}

impl Size {
    /// Returns what one instance of the request needs.
    pub fn of(request: &Request) -> Self {
        Self {
            memory_mb: request.memory_mb,
            disk_mb: request.disk_mb,
            cpu_millis: request.cpu_millis,
            extra: request.extra.clone(),
            devices: request.devices.clone(),
        }
    }

    /// Returns the amounts; always one container.
    pub(crate) fn amounts(&self) -> Amounts {
        Amounts::from_fn(|resource| match resource {
            Resource::Memory => self.memory_mb,
            Resource::Disk => self.disk_mb,
            Resource::Containers => 1,
            Resource::Cpu => self.cpu_millis,
        })
    }
}

impl Size {
    /// Returns what so many instances ask for of each amount; of containers that is how many they are.
    fn asked(&self, instances: f64) -> [f64; Resource::ALL.len()] {
        let amounts = self.amounts();
        Resource::ALL.map(|resource| instances * amounts[resource] as f64)
    }
}

fn add(a: [f64; Resource::ALL.len()], b: [f64; Resource::ALL.len()]) -> [f64; Resource::ALL.len()] {
    std::array::from_fn(|at| a[at] + b[at])
}

impl ExpectedWork {
    /// Returns the work that these instances make up, each with a weight above 0: the most frequent sizes that cover 95
    /// % of the instances and of each amount that they ask for, at most [`MAX_EXPECTED_SIZES`].
    pub fn of(weighted: impl IntoIterator<Item = (Size, f64)>) -> Self {
        let mut by_size: BTreeMap<Size, f64> = BTreeMap::new();
        for (size, weight) in weighted {
            *by_size.entry(size).or_default() += weight;
        }
        let mut sizes: Vec<(Size, f64)> = by_size.into_iter().collect();
        // a stable sort: equal weights stay in the order of the sizes
        sizes.sort_by(|a, b| b.1.total_cmp(&a.1));
        let asked = |sizes: &[(Size, f64)]| {
            let asked = sizes.iter().map(|(size, weight)| size.asked(*weight));
            asked.fold([0.0; Resource::ALL.len()], add)
        };
        let (all, mut covered) = (asked(&sizes), asked(&[]));
        let enough = sizes.iter().position(|(size, weight)| {
            covered = add(covered, size.asked(*weight));
            let amounts = covered.iter().zip(all);
            amounts
                .into_iter()
                .all(|(part, all)| *part >= COVERED * all)
        });
        sizes.truncate(enough.map_or(0, |last| last + 1).min(MAX_EXPECTED_SIZES));
        let taken: f64 = sizes.iter().map(|(_, weight)| weight).sum();
        let sizes = sizes.into_iter().map(|(size, weight)| ExpectedSize {
            share: weight / taken,
            size,
        });
        Self::exactly(sizes.collect())
    }

    /// Returns exactly these sizes, with shares of any sum.
    pub(crate) fn exactly(sizes: Vec<ExpectedSize>) -> Self {
        let all = sizes.iter().map(|expected| expected.share).sum();
        Self {
            sizes,
            all,
            worths: Worths::default(),
        }
    }

    /// Returns whether more than a tenth of the instances, or of what they ask for, is of other sizes.
    fn differs_from(&self, other: &Self) -> bool {
        let mut shares: BTreeMap<&Size, [f64; Resource::ALL.len()]> = BTreeMap::new();
        for (work, sign) in [(self, 1.0), (other, -1.0)] {
            let asked = work.sizes.iter().map(|e| e.size.asked(e.share));
            let all = asked.fold([0.0; Resource::ALL.len()], add);
            for expected in &work.sizes {
                let asked = expected.size.asked(sign * expected.share);
                let shares = shares.entry(&expected.size).or_default();
                for ((share, asked), all) in shares.iter_mut().zip(asked).zip(all) {
                    *share += if all > 0.0 { asked / all } else { 0.0 };
                }
            }
        }
        let shares = shares
            .values()
            .map(|shares| shares.map(|share| share.max(0.0)));
        let moved = shares.fold([0.0; Resource::ALL.len()], add);
        moved.iter().any(|moved| *moved > MOVED) || self.sizes.is_empty() != other.sizes.is_empty()
    }

    /// Returns the sum of the shares.
    pub(crate) fn all(&self) -> f64 {
        self.all
    }

    /// Returns what parts of devices are worth of which each has so much.
    pub(crate) fn worth(&self, name: &str, each: i64) -> Arc<Worth> {
        let sizes = self.sizes.iter();
        let needs = sizes.filter_map(|e| Some((e.share, e.size.devices.get(name)?)));
        self.worths.of(name, each, needs)
    }

    /// Returns the sizes, the most frequent first.
    pub fn sizes(&self) -> &[ExpectedSize] {
        &self.sizes
    }
}

impl Arrivals {
    /// Adds a request; the oldest is forgotten if there are too many.
    pub(crate) fn add(&mut self, request: &Request) {
        let size = Size::of(request);
        let instances = request
            .indices
            .as_ref()
            .map_or(u64::from(request.instances), |i| i.len() as u64);
        let weight = instances.clamp(1, MAX_WEIGHT);
        let number = self.number(size);
        self.counts[number as usize].1 += weight;
        self.last.push_back((number, weight));
        if self.last.len() > MAX_LEARNT_REQUESTS {
            self.forget();
        }
        self.news += 1;
        // recomputed after every sixteenth of what is remembered, which costs little per request
        if self.news > self.last.len() / 16 {
            self.news = 0;
            let counts = self.counts.iter().filter(|(_, count)| *count > 0);
            let work = ExpectedWork::of(counts.map(|(size, count)| (size.clone(), *count as f64)));
            if self.work.differs_from(&work) {
                self.version += 1;
                self.work = work;
            }
        }
    }

    fn number(&mut self, size: Size) -> u32 {
        if let Some(number) = self.numbers.get(&size) {
            return *number;
        }
        let number = self.unused.pop().unwrap_or_else(|| {
            self.counts.push((Size::default(), 0));
            // there are fewer sizes than remembered requests
            u32::try_from(self.counts.len() - 1).unwrap_or(u32::MAX)
        });
        self.counts[number as usize].0 = size.clone();
        self.numbers.insert(size, number);
        number
    }

    fn forget(&mut self) {
        let Some((number, weight)) = self.last.pop_front() else {
            return;
        };
        let (size, count) = &mut self.counts[number as usize];
        *count -= weight;
        if *count == 0 {
            self.numbers.remove(size);
            self.unused.push(number);
        }
    }

    /// Returns the expected work according to what is remembered.
    pub(crate) fn expected(&self) -> &ExpectedWork {
        &self.work
    }

    /// Returns the version, which changes when the expected work does.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns how many requests are remembered.
    pub(crate) fn len(&self) -> usize {
        self.last.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(memory_mb: i64) -> Size {
        Size {
            memory_mb,
            ..Size::default()
        }
    }

    fn shares(work: &ExpectedWork) -> Vec<(i64, f64)> {
        let share = |expected: &ExpectedSize| {
            let rounded = (expected.share * 1000.0).round() / 1000.0;
            (expected.size.memory_mb, rounded)
        };
        work.sizes().iter().map(share).collect()
    }

    #[test]
    fn the_most_frequent_sizes_make_up_most_of_the_work() {
        let of = |weighted: &[(i64, f64)]| {
            let weighted = weighted.iter().map(|(mb, weight)| (size(*mb), *weight));
            shares(&ExpectedWork::of(weighted))
        };
        let work = of(&[(11, 30.0), (12, 40.0), (13, 20.0), (14, 6.0), (10, 4.0)]);
        assert_eq!(
            work,
            [(12, 0.417), (11, 0.313), (13, 0.208), (14, 0.063)],
            "the others are less than 5 % of the instances and of the memory"
        );
        let work = of(&[(2, 50.0), (4, 30.0), (8, 16.0), (16, 4.0)]);
        assert_eq!(work.len(), 4, "few instances, but 15 % of the memory");
        assert_eq!(ExpectedWork::of([]), ExpectedWork::default());
        let many = (0..1_000).map(|mb| (size(mb), 1.0));
        assert_eq!(ExpectedWork::of(many).sizes().len(), MAX_EXPECTED_SIZES);
    }

    #[test]
    fn chance_differences_are_no_other_work() {
        let mut arrivals = Arrivals::default();
        let mut add = |mb: i64| {
            arrivals.add(&Request::new("a", mb, 0));
            arrivals.version()
        };
        let mut version = 0;
        for n in 0..4_000 {
            version = add(10 * (n % 10));
        }
        assert!(version < 40, "drawn up {version} times");
        // the same sizes in nearly the same proportions
        let same = (0..1_000).map(|n| add(if n % 20 == 5 { 0 } else { 10 * (n % 10) }));
        assert_eq!(same.last(), Some(version));
        let other = (0..1_000).map(|_| add(5)).last();
        assert!(other > Some(version));
    }

    #[test]
    fn few_large_instances_are_other_work() {
        let mut arrivals = Arrivals::default();
        let mut add = |mb: i64, requests: usize| {
            let add = |_| arrivals.add(&Request::new("a", mb, 0));
            (0..requests).for_each(add);
            arrivals.version()
        };
        let version = add(1, 2_000);
        // 6 % of the instances, and nearly all memory
        assert!(add(1_000, 130) > version);
    }

    #[test]
    fn the_last_requests_are_remembered_and_no_more() {
        let mut arrivals = Arrivals::default();
        let mut request = Request::new("a", 10, 0);
        request.instances = 3;
        arrivals.add(&request);
        arrivals.add(&Request::new("b", 20, 0));
        assert_eq!(shares(arrivals.expected()), [(10, 0.75), (20, 0.25)]);
        for n in 0..2 * MAX_LEARNT_REQUESTS {
            let mb = 100 + i64::try_from(n % 2).unwrap_or(0);
            arrivals.add(&Request::new("c", mb, 0));
        }
        let expected = shares(arrivals.expected());
        assert_eq!(expected.len(), 2);
        assert!(
            expected
                .iter()
                .all(|(_, share)| (share - 0.5).abs() < MOVED)
        );
        assert_eq!(arrivals.len(), MAX_LEARNT_REQUESTS);
        assert_eq!((arrivals.numbers.len(), arrivals.counts.len()), (2, 4));
    }
}
