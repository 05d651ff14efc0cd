//! A batch of jobs: the order in which they are decided, which of them are the same instance, and which are alike.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hash, Hasher},
    sync::Arc,
};

use crate::{
    fast_map::FastMap,
    policy::Order,
    random,
    request::{Job, Kind, Request},
    totals::Totals,
};

/// The jobs to decide, in order, and what they have in common.
pub(crate) struct Batch<'a> {
    /// Positions in the order of decision.
    pub(crate) order: Vec<u32>,
    /// Duplicates, each with the position of the job it duplicates.
    pub(crate) duplicates: Vec<(u32, u32)>,
    /// By position: its group.
    group_of: Vec<u32>,
    groups: Vec<JobGroup>,
    /// The names of the apps, in the order of their first jobs.
    pub(crate) apps: Vec<&'a str>,
    /// One request per shape.
    pub(crate) shapes: Vec<&'a Request>,
}

/// What the jobs of one request share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobGroup {
    /// Position of its app in [`Batch::apps`].
    pub(crate) app: u32,
    /// Position of its shape in [`Batch::shapes`].
    pub(crate) shape: u32,
    /// The stable hash of the app's name.
    pub(crate) app_hash: u64,
    /// Whether the request excludes cells by name.
    pub(crate) excludes: bool,
}

/// Hashes small integers. Clients cannot choose these, because names are interned first.
#[derive(Default)]
pub(crate) struct IntHasher(u64);

impl Hasher for IntHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }
}

pub(crate) type IntMap<K, V> = HashMap<K, V, BuildHasherDefault<IntHasher>>;

impl<'a> Batch<'a> {
    /// Creates a batch. `totals` is what all cells have, for the order of dominant shares.
    pub(crate) fn new(jobs: &'a [Job], order: Order, totals: Option<&Totals>) -> Self {
        let mut batch = Self {
            order: Vec::with_capacity(jobs.len()),
            duplicates: Vec::new(),
            group_of: Vec::with_capacity(jobs.len()),
            groups: Vec::new(),
            apps: Vec::new(),
            shapes: Vec::new(),
        };
        batch.read_groups(jobs);
        batch.drop_duplicates(jobs);
        if order == Order::Diego {
            batch
                .order
                .sort_by_cached_key(|position| diego_place(&jobs[*position as usize]));
        }
        if let Some(totals) = totals {
            // a stable sort: equal shares keep their order of arrival
            let share = |position: &u32| totals.dominant_share(&jobs[*position as usize].request);
            let mut shares: Vec<(f64, u32)> =
                batch.order.iter().map(|at| (share(at), *at)).collect();
            shares.sort_by(|a, b| b.0.total_cmp(&a.0));
            batch.order = shares.into_iter().map(|(_, position)| position).collect();
        }
        batch
    }

    /// Returns what the job at this position has in common with others.
    pub(crate) fn group(&self, position: u32) -> JobGroup {
        self.groups[self.group_of[position as usize] as usize]
    }

    fn read_groups(&mut self, jobs: &'a [Job]) {
        let mut apps: FastMap<&str, u32> = FastMap::default();
        let mut shapes: IntMap<u64, Vec<u32>> = IntMap::default();
        let mut last: Option<&Arc<Request>> = None;
        for job in jobs {
            let request = &job.request;
            if !last.is_some_and(|last| Arc::ptr_eq(last, request)) {
                last = Some(request);
                let app = *apps.entry(&request.app).or_insert_with(|| {
                    self.apps.push(&request.app);
                    count(self.apps.len()) - 1
                });
                let alike = shapes.entry(shape_hash(request)).or_default();
                let same = |shape: &&u32| same_shape(self.shapes[**shape as usize], request);
                let shape = alike.iter().find(same).copied().unwrap_or_else(|| {
                    self.shapes.push(request);
                    alike.push(count(self.shapes.len()) - 1);
                    count(self.shapes.len()) - 1
                });
                self.groups.push(JobGroup {
                    app,
                    shape,
                    app_hash: random::hash_text(&request.app),
                    excludes: !request.exclude_cells.is_empty(),
                });
            }
            self.group_of.push(count(self.groups.len()) - 1);
        }
    }

    /// Drops jobs that are the same instance: same app and index of an LRP, or same request id and index of a task (a
    /// task without an id has no duplicates).
    fn drop_duplicates(&mut self, jobs: &'a [Job]) {
        let mut owners = Owners::default();
        // by owner: the last index plus one, as long as indices only increase, which is usual
        let mut rising: Vec<u32> = Vec::new();
        let mut first: IntMap<(u32, u32), u32> = IntMap::default();
        for (position, job) in jobs.iter().enumerate() {
            let position = count(position);
            let owner = owners.of(job, self.group(position));
            if rising.len() <= owner as usize {
                rising.resize(owner as usize + 1, 0);
            }
            let rises = job.index >= rising[owner as usize];
            if rises {
                rising[owner as usize] = job.index.saturating_add(1);
            }
            if first.is_empty() && rises && job.index < u32::MAX {
                self.order.push(position);
                continue;
            }
            if first.is_empty() {
                // from here on every job is looked up
                let mut owners = Owners::default();
                for (earlier, job) in (0..position).zip(jobs) {
                    let owner = owners.of(job, self.group(earlier));
                    first.insert((owner, job.index), earlier);
                }
            }
            let earlier = *first.entry((owner, job.index)).or_insert(position);
            if earlier == position {
                self.order.push(position);
            } else {
                self.duplicates.push((position, earlier));
            }
        }
    }
}

/// Numbers the owners of indices: apps, and requests of tasks.
#[derive(Default)]
struct Owners<'a> {
    tasks: FastMap<(&'a str, usize), u32>,
}

impl<'a> Owners<'a> {
    fn of(&mut self, job: &'a Job, group: JobGroup) -> u32 {
        match job.request.kind {
            Kind::Lrp => 2 * group.app,
            Kind::Task => {
                let id = job.request.id.as_str();
                let address = if id.is_empty() {
                    Arc::as_ptr(&job.request) as usize
                } else {
                    0
                };
                let next = count(self.tasks.len());
                2 * *self.tasks.entry((id, address)).or_insert(next) + 1
            }
        }
    }
}

/// Converts a count; batches have far fewer than 2^32 jobs.
fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Returns the sort key of Diego's order: first instances, then tasks, then the rest by index, each with the largest
/// memory first. The sort is stable, so ties keep their order of arrival.
fn diego_place(job: &Job) -> (u8, u32, std::cmp::Reverse<i64>) {
    let (group, index) = match (job.request.kind, job.index) {
        (Kind::Lrp, 0) => (0, 0),
        (Kind::Task, _) => (1, 0),
        (Kind::Lrp, index) => (2, index),
    };
    (group, index, std::cmp::Reverse(job.request.memory_mb))
}

fn shape_hash(request: &Request) -> u64 {
    let mut hasher = IntHasher::default();
    request.kind.hash(&mut hasher);
    request.amounts().hash(&mut hasher);
    request.stack.hash(&mut hasher);
    request.form().hash(&mut hasher);
    request.near.hash(&mut hasher);
    request.far.hash(&mut hasher);
    hasher.finish()
}

/// Returns whether no filter can distinguish the two requests, on any cell, and they prefer the same cells.
fn same_shape(a: &Request, b: &Request) -> bool {
    same_demands(a, b)
        && a.amounts() == b.amounts()
        && a.extra == b.extra
        && a.devices == b.devices
        && a.near == b.near
        && a.far == b.far
        && a.strict == b.strict
        && a.exclude_cells == b.exclude_cells
        && a.prefer == b.prefer
}

/// Returns whether no filter can distinguish the two requests, except filters that depend on debits.
pub(crate) fn same_demands(a: &Request, b: &Request) -> bool {
    std::ptr::eq(a, b)
        || (a.kind == b.kind
            && a.stack == b.stack
            && a.form() == b.form()
            && a.placement_tags == b.placement_tags
            && a.volume_drivers == b.volume_drivers
            && a.networks == b.networks
            && a.traits == b.traits
            && a.min_platform == b.min_platform
            && a.max_platform == b.max_platform
            && a.volumes_from == b.volumes_from
            && a.overcommit == b.overcommit)
}

#[cfg(test)]
mod tests;
