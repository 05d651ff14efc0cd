//! The work that is expected: sizes of instances with their shares, given in a policy's file or learnt from the
//! requests that came last. The score `fragmentation` measures what it could not use.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::{
    devices::DeviceNeed,
    fast_map::FastMap,
    request::Request,
    resources::{Amounts, Resource},
};

/// The most requests from which the expected work is learnt: the last ones.
pub const MAX_LEARNT_REQUESTS: usize = 4_096;
/// The most sizes of expected work.
pub const MAX_EXPECTED_SIZES: usize = 256;
/// Sizes are taken from the most frequent on, until they are this share of all instances. What is rare would cost as
/// much to look at as what is frequent.
const COVERED: f64 = 0.95;
/// The expected work is drawn up anew when this share of it is of other sizes: every score depends on it, so that
/// the chance differences of a steady load would cost more than they tell.
const MOVED: f64 = 0.1;
/// The most instances for which one request counts.
const MAX_WEIGHT: u64 = 1_000;

/// What one instance needs: the part of a request that makes it fit a cell or not.
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
    /// Devices by the names of the sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, DeviceNeed>,
}

/// Instances of one size among those expected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExpectedSize {
    /// Its share, above 0: of the sum of all shares, which is 1 where they are learnt.
    pub share: f64,
    /// What one instance needs.
    #[serde(flatten)]
    pub size: Size,
}

/// The work that is expected: the most frequent sizes, by share, the largest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ExpectedWork {
    sizes: Vec<ExpectedSize>,
    /// The sum of the shares.
    #[serde(skip)]
    all: f64,
}

/// What was asked for last, from which the expected work is learnt. Bounded; the same requests in the same order
/// give the same expected work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    /// The last requests: the number of their size, and for how many instances they count.
    last: VecDeque<(u32, u64)>,
    numbers: FastMap<Size, u32>,
    /// By number: the size, and the instances among `last`; of 0 the number is free.
    counts: Vec<(Size, u64)>,
    unused: Vec<u32>,
    /// Requests since the expected work was last drawn up.
    news: usize,
    work: ExpectedWork,
    /// Counts how often it was drawn up.
    version: u64,
}

impl Size {
    /// What one instance of the request needs.
    pub fn of(request: &Request) -> Self {
        Self {
            memory_mb: request.memory_mb,
            disk_mb: request.disk_mb,
            cpu_millis: request.cpu_millis,
            extra: request.extra.clone(),
            devices: request.devices.clone(),
        }
    }

    /// The amounts; always one container.
    pub(crate) fn amounts(&self) -> Amounts {
        Amounts::from_fn(|resource| match resource {
            Resource::Memory => self.memory_mb,
            Resource::Disk => self.disk_mb,
            Resource::Containers => 1,
            Resource::Cpu => self.cpu_millis,
        })
    }
}

impl ExpectedWork {
    /// The work of which these are instances, each with a weight above 0: the most frequent sizes that make up 95 %
    /// of it, at most [`MAX_EXPECTED_SIZES`].
    pub fn of(weighted: impl IntoIterator<Item = (Size, f64)>) -> Self {
        let mut by_size: BTreeMap<Size, f64> = BTreeMap::new();
        for (size, weight) in weighted {
            *by_size.entry(size).or_default() += weight;
        }
        let all: f64 = by_size.values().sum();
        let mut sizes: Vec<(Size, f64)> = by_size.into_iter().collect();
        // stable: equal weights stay in the order of the sizes
        sizes.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut covered = 0.0;
        let enough = sizes.iter().position(|(_, weight)| {
            covered += weight;
            covered >= COVERED * all
        });
        sizes.truncate(enough.map_or(0, |last| last + 1).min(MAX_EXPECTED_SIZES));
        let taken: f64 = sizes.iter().map(|(_, weight)| weight).sum();
        let sizes = sizes.into_iter().map(|(size, weight)| ExpectedSize {
            share: weight / taken,
            size,
        });
        Self::exactly(sizes.collect())
    }

    /// All of these sizes, with shares of any sum.
    pub(crate) fn exactly(sizes: Vec<ExpectedSize>) -> Self {
        let all = sizes.iter().map(|expected| expected.share).sum();
        Self { sizes, all }
    }

    /// Whether more than a tenth of the work is of other sizes.
    fn differs_from(&self, other: &Self) -> bool {
        let mut shares: BTreeMap<&Size, f64> = BTreeMap::new();
        for expected in &self.sizes {
            *shares.entry(&expected.size).or_default() += expected.share / self.all;
        }
        for expected in &other.sizes {
            *shares.entry(&expected.size).or_default() -= expected.share / other.all;
        }
        shares.values().map(|share| share.max(0.0)).sum::<f64>() > MOVED
            || self.sizes.is_empty() != other.sizes.is_empty()
    }

    /// The sum of the shares.
    pub(crate) fn all(&self) -> f64 {
        self.all
    }

    /// The sizes, the most frequent first.
    pub fn sizes(&self) -> &[ExpectedSize] {
        &self.sizes
    }
}

impl Arrivals {
    /// One more request came; the oldest is forgotten if there are too many.
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
        // drawn up anew for each sixteenth of what is known: that costs little for each request
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
            // fewer than the requests that are remembered
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

    /// What is expected, from what is remembered.
    pub(crate) fn expected(&self) -> &ExpectedWork {
        &self.work
    }

    /// Other expected work has another version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// How many requests are remembered.
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
        let weighted = [(1, 30.0), (2, 40.0), (3, 20.0), (4, 6.0), (5, 4.0)];
        let work = ExpectedWork::of(weighted.map(|(mb, weight)| (size(mb), weight)));
        assert_eq!(
            shares(&work),
            [(2, 0.417), (1, 0.313), (3, 0.208), (4, 0.063)]
        );
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
        // one in twenty more of one size
        let same = (0..1_000).map(|n| add(if n % 20 == 0 { 0 } else { 10 * (n % 10) }));
        assert_eq!(same.last(), Some(version));
        let other = (0..1_000).map(|_| add(5)).last();
        assert!(other > Some(version));
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
