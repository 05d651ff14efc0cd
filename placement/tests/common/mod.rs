//! Random cells, requests and policies from a seed, small enough that ties and shortages are common.
// each test binary uses a part, and a test may panic
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::format_push_string
)]
#![allow(clippy::too_many_lines)] // a long list of choices is the point

mod policies;

pub use policies::policy;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use placement::{
    Cell, DeviceNeed, DeviceSet, Droplet, Explain, Job, Kind, Plan, PlanContext, Platform, Pool,
    RecentStart, Request, Resources, Run, Span, Staging, Trait, random::SplitMix64,
};

/// Choices that are the same everywhere for the same seed.
pub struct Dice(SplitMix64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    pub fn roll(&mut self) -> u64 {
        self.0.draw()
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    pub fn small(&mut self, n: u32) -> u32 {
        u32::try_from(self.below(u64::from(n))).unwrap()
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn of<T: Clone>(&mut self, items: &[T]) -> T {
        items[usize::try_from(self.below(items.len() as u64)).unwrap()].clone()
    }

    fn some(&mut self, items: &[&str], one_in: u64) -> Vec<String> {
        let mut chosen = Vec::new();
        for item in items {
            if self.one_in(one_in) {
                chosen.push((*item).to_owned());
            }
        }
        chosen
    }
}

const APPS: [&str; 6] = ["a", "b", "c", "web", "7", "db"];
const OWNERS: [&str; 3] = ["acme", "bob", "eve"];
const STAMPS: [&str; 4] = [
    "20260101T000000Z",
    "20260301T000000Z",
    "20250601T120000Z",
    "unreadable",
];
const DATES: [&str; 4] = [
    "2026-06-05T00:00:00Z",
    "2026-06-20",
    "2026-09-01T00:00:00Z",
    "2026-01-15",
];

/// 2026-06-01.
pub const NOW_MS: i64 = 1_780_272_000_000;

fn trait_value(dice: &mut Dice) -> Trait {
    match dice.below(3) {
        0 => Trait::Flag(dice.one_in(2)),
        1 => Trait::Word(dice.of(&["x", "y"]).into()),
        _ => Trait::Words(vec!["x".into(), dice.of(&["y", "z"]).into()]),
    }
}

pub fn cell(dice: &mut Dice, name: &str, rich: bool) -> Cell {
    let size = dice.of(&[1000, 1000, 2000, 4096]);
    let total = Resources {
        memory_mb: size,
        disk_mb: (!dice.one_in(12)).then_some(size * 4),
        containers: (!dice.one_in(12)).then_some(10),
        cpu_millis: if dice.one_in(3) { 0 } else { 4000 },
        extra: if dice.one_in(4) {
            [("gpu".to_owned(), 2)].into()
        } else {
            BTreeMap::new()
        },
        devices: devices(dice),
    };
    let mut cell = Cell::new(name, total);
    if dice.one_in(20) {
        match dice.below(3) {
            0 => cell.total.memory_mb = 0,
            1 => cell.total.disk_mb = Some(0),
            _ => cell.total.containers = Some(0),
        }
    }
    cell.attributes_mut().zone = dice.of(&["z1", "z2", "z3"]).into();
    if dice.one_in(6) {
        cell.attributes_mut().zone_number = Some(dice.small(5));
    }
    cell.index = dice.small(8);
    cell.attributes_mut().stacks = dice.some(&["linux", "windows"], 2);
    if dice.one_in(2) {
        cell.attributes_mut().stacks = vec!["linux".into()];
    }
    cell.attributes_mut().placement_tags = dice.some(&["iso"], 8);
    cell.attributes_mut().optional_placement_tags = dice.some(&["ssd", "iso"], 6);
    cell.attributes_mut().volume_drivers = dice.some(&["nfs", "smb"], 3);
    cell.attributes_mut().droplets = dice.one_in(3);
    cell.attributes_mut().droplets_only = cell.droplets && dice.one_in(3);
    cell.attributes_mut().staging = cell.index.is_multiple_of(3);
    cell.evacuating = dice.one_in(12);
    cell.attributes_mut().cached_blobs = dice.some(&["blob1", "blob2"], 3);
    amounts(dice, &mut cell);
    if rich {
        enrich(dice, &mut cell);
    }
    cell
}

fn devices(dice: &mut Dice) -> BTreeMap<String, DeviceSet> {
    let mut sets = BTreeMap::new();
    for name in ["card", "chip"] {
        if dice.one_in(3) {
            let mut set = DeviceSet::new(1 + dice.small(4), dice.of(&[1000, 1000, 700]));
            set.model = dice.one_in(2).then(|| dice.of(&["m1", "m2"]).to_owned());
            sets.insert(name.to_owned(), set);
        }
    }
    sets
}

/// Returns what is free of a set, which may include an overcommitted device.
fn free_devices(dice: &mut Dice, total: &DeviceSet) -> DeviceSet {
    let mut set = total.clone();
    if dice.one_in(2) {
        let some = |dice: &mut Dice| set.each - 100 * i64::from(dice.small(12));
        set.free = (0..set.count).map(|_| some(dice)).collect();
        if set.free.iter().all(|free| *free == set.each) {
            set.free.clear();
        }
    }
    set
}

/// Changes what one advertisement changes compared to the previous one.
pub fn amounts(dice: &mut Dice, cell: &mut Cell) {
    let take = |dice: &mut Dice, total: i64| total - 100 * i64::from(dice.small(12));
    cell.available.memory_mb = take(dice, cell.total.memory_mb);
    cell.available.disk_mb = cell.total.disk_mb.map(|total| take(dice, total));
    cell.available.containers = cell
        .total
        .containers
        .map(|total| total - i64::from(dice.small(11)));
    let sets = cell.total.devices.iter();
    cell.available.devices = sets
        .map(|(name, set)| (name.clone(), free_devices(dice, set)))
        .collect();
    cell.counts.starting = if dice.one_in(2) { 0 } else { dice.small(3) };
    cell.counts.tasks = if dice.one_in(2) { 0 } else { dice.small(3) };
    cell.counts.apps.clear();
    for app in APPS {
        if dice.one_in(5) {
            cell.counts.apps.insert(app.into(), 1 + dice.small(3));
        }
    }
}

/// Changes what may differ besides amounts without making it a cell of another class.
pub fn counts(dice: &mut Dice, cell: &mut Cell) {
    cell.attributes_mut().rack = dice
        .one_in(2)
        .then(|| dice.of(&["r1", "r2", "r3"]).to_owned());
    cell.attributes_mut().host = dice.one_in(2).then(|| dice.of(&["h1", "h2"]).to_owned());
    cell.attributes_mut().hardware_priority = i64::from(dice.small(4)) - 1;
    cell.attributes_mut().cached_blobs = dice.some(&["blob1", "blob2", "blob1"], 3);
    if dice.one_in(4) {
        cell.attributes_mut().zone_number = dice.one_in(2).then(|| dice.small(5));
    }
    cell.counts.owners.clear();
    for owner in OWNERS {
        if dice.one_in(4) {
            cell.counts.owners.insert(owner.into(), dice.small(4));
        }
    }
    cell.counts.tags.clear();
    for tag in ["role=db", "role=web"] {
        if dice.one_in(5) {
            cell.counts.tags.insert(tag.into(), dice.small(3));
        }
    }
    (cell.counts.cpu_capped, cell.counts.cpu_uncapped) = match dice.below(4) {
        0 => (2, 0),
        1 => (0, 2),
        _ => (0, 0),
    };
}

fn enrich(dice: &mut Dice, cell: &mut Cell) {
    if dice.one_in(10) {
        cell.attributes_mut().status = dice.of(&["offline", "rebooting"]).into();
    }
    cell.attributes_mut().reserved = dice.one_in(15);
    cell.attributes_mut().control_plane = dice.one_in(15);
    for network in ["external", "admin"] {
        if !dice.one_in(4) {
            cell.attributes_mut()
                .networks
                .insert(network.into(), dice.of(&["up", "up", "up", "down"]).into());
        }
    }
    if dice.one_in(6) {
        cell.attributes_mut()
            .traits
            .insert("ssd".into(), trait_value(dice));
    }
    if !dice.one_in(8) {
        let version = dice.of(&["7.0", "7.1", "6.5"]).to_owned();
        let stamp = dice.of(&STAMPS).into();
        cell.attributes_mut().platform = Some(Platform { version, stamp });
    }
    if dice.one_in(2) {
        cell.attributes_mut().next_reboot = dice.of(&DATES).parse().ok();
    }
    if dice.one_in(2) {
        cell.attributes_mut().last_boot = "2026-02-01T00:00:00Z".parse().ok();
    }
    counts(dice, cell);
    if dice.one_in(6) {
        cell.attributes_mut().reboot_batch = Some("b7".into());
    }
    if dice.one_in(2) {
        cell.attributes_mut()
            .overcommit
            .insert("memory".into(), dice.of(&[1.0, 1.001, 2.0]));
    }
    cell.attributes_mut().volumes = dice.some(&["v1", "v2"], 2);
    for hours in [1, 3, 30] {
        if dice.one_in(6) {
            cell.recent_starts.push(RecentStart {
                age: Span(Duration::from_secs(hours * 3_600)),
                failed: !dice.one_in(3),
            });
        }
    }
}

/// Returns the run of a request that starts droplets.
pub fn droplet() -> Run {
    let uri = ("uri".to_owned(), "http://a/d".into());
    Run {
        droplet: Some(Arc::new(Droplet([uri].into_iter().collect()))),
        ..Run::default()
    }
}

/// Returns the run of a request that stages an app.
pub fn staging() -> Run {
    let addresses = ["download_uri", "upload_uri"];
    let addresses = addresses.map(|name| (name.to_owned(), "http://a/d".into()));
    Run {
        staging: Some(Arc::new(Staging(addresses.into_iter().collect()))),
        ..Run::default()
    }
}

pub fn request(dice: &mut Dice, rich: bool) -> Request {
    let memory = dice.of(&[100, 100, 200, 300, 700, 5000]);
    let mut request = Request::new(dice.of(&APPS), memory, dice.of(&[100, 300, 2000, 0]));
    request.instances = 1 + dice.small(4);
    if dice.one_in(5) {
        request.kind = Kind::Task;
        request.instances = 1;
        if dice.one_in(2) {
            request.id = format!("task-{}", dice.below(3));
        }
    }
    if dice.one_in(4) {
        request.cpu_millis = dice.of(&[100, 1500, 9000]);
    }
    if dice.one_in(6) {
        request.extra.insert("gpu".into(), i64::from(dice.small(3)));
    }
    for name in ["card", "card", "chip"] {
        if dice.one_in(8) {
            let amount = dice.of(&[None, Some(100), Some(300), Some(700), Some(1000)]);
            let mut need = DeviceNeed::new(1 + dice.small(3), amount);
            need.models = dice.some(&["m1", "m2"], 6);
            request.devices.insert(name.into(), need);
        }
    }
    if !dice.one_in(3) {
        request.stack = Some(dice.of(&["linux", "linux", "windows", "none"]).into());
    }
    if request.kind == Kind::Lrp && dice.one_in(6) {
        request.run = Some(droplet());
    }
    if request.kind == Kind::Task && memory == 200 {
        request.run = Some(staging());
    }
    request.placement_tags = dice.some(&["iso", "ssd"], 12);
    request.volume_drivers = dice.some(&["nfs", "smb"], 10);
    if dice.one_in(2) {
        request.source_blob = Some(dice.of(&["blob1", "blob2", "blob3"]).into());
    }
    request.exclude_cells = dice.some(&["cell-0", "cell-1", "cell-99"], 12);
    if rich {
        if dice.one_in(2) {
            request.owner = Some(dice.of(&OWNERS).into());
        }
        if dice.one_in(4) {
            request.networks = vec![dice.some(&["external", "admin", "none"], 2)];
            request.networks.retain(|any| !any.is_empty());
        }
        if dice.one_in(10) {
            request.traits.insert("ssd".into(), trait_value(dice));
        }
        if dice.one_in(3) {
            request.prefer.placement_tags = dice.some(&["iso", "ssd"], 2);
            if dice.one_in(2) {
                request
                    .prefer
                    .traits
                    .insert("ssd".into(), trait_value(dice));
            }
        }
        if dice.one_in(8) {
            request
                .min_platform
                .insert("7.0".into(), "20260201T000000Z".into());
        }
        if dice.one_in(8) {
            request
                .max_platform
                .insert("7.0".into(), "20260201T000000Z".into());
        }
        request.volumes_from = dice.some(&["v1", "v2"], 12);
        let items = [
            "app:web",
            "app:db",
            "tag:role=db",
            "rack:r1",
            "app:ghost",
            "instance:i1",
        ];
        request.near = dice.some(&items, 16);
        request.far = dice.some(&items, 16);
        request.strict = dice.one_in(3);
        if dice.one_in(3) {
            request
                .tags
                .insert("role".into(), dice.of(&["db", "web"]).into());
        }
        if dice.one_in(12) {
            request.overcommit.insert("memory".into(), 1.0);
        }
    }
    request
}

pub fn draw(dice: &mut Dice, pool: &Pool) -> PlanContext {
    let mut draw = PlanContext {
        seed: dice.roll(),
        auction: u128::from(dice.roll()),
        now_ms: NOW_MS,
        first: dice.one_in(5),
        explain: if dice.one_in(2) {
            Explain::Finalists
        } else {
            Explain::Winner
        },
        ..PlanContext::default()
    };
    for cell in pool.cells() {
        if dice.one_in(25) {
            draw.absent.insert(cell.cell.as_str().into());
        }
        if dice.one_in(40) {
            draw.expired.insert(cell.cell.as_str().into());
        }
        if dice.one_in(20) {
            draw.instances
                .insert("i1".into(), cell.cell.as_str().into());
        }
    }
    draw
}

pub fn jobs(dice: &mut Dice, requests: u64, rich: bool) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for _ in 0..requests {
        let mut one = request(dice, rich);
        if dice.one_in(8) {
            one.objective = Some("r.AvailableMemoryMB + ai.InstanceNumber".into());
        }
        let one = Arc::new(one);
        jobs.extend(one.jobs());
        if dice.one_in(10) {
            jobs.extend(one.jobs());
        }
    }
    jobs
}

pub fn pool(dice: &mut Dice, cells: u64, rich: bool) -> Pool {
    let mut pool = Pool::default();
    for i in 0..cells {
        pool.put(cell(dice, &format!("cell-{i}"), rich));
    }
    pool
}

/// Compares both plans value by value.
pub fn assert_same(fast: &Plan, plain: &Plan, context: &str) {
    assert_eq!(fast.decisions.len(), plain.decisions.len(), "{context}");
    for (a, b) in fast.decisions.iter().zip(&plain.decisions) {
        assert_eq!(a, b, "{context}");
    }
}
