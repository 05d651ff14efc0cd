use std::collections::HashSet;

use super::*;
use crate::{Cell, DeviceNeed, DeviceSet, Resources, Stamp, Trait};

fn lrp(app: &str) -> Request {
    Request::new(app, 10, 10)
}

fn task(id: &str) -> Request {
    Request {
        id: id.into(),
        kind: Kind::Task,
        ..lrp("t")
    }
}

fn job(request: &Arc<Request>, index: u32) -> Job {
    Job {
        request: Arc::clone(request),
        index,
    }
}

/// Returns the positions that are decided, and the duplicates with what they duplicate.
fn taken(jobs: &[Job]) -> (Vec<u32>, Vec<(u32, u32)>) {
    let batch = Batch::new(jobs, Order::Asked, None);
    (batch.order, batch.duplicates)
}

#[test]
fn the_same_index_of_an_app_is_one_job_in_whatever_order() {
    let (one, again, other) = (lrp("a").into(), lrp("a").into(), lrp("b").into());
    for (indices, order, duplicates) in [
        (vec![0, 1, 2], vec![0, 1, 2], vec![]),
        (vec![0, 1, 1, 2], vec![0, 1, 3], vec![(2, 1)]),
        (vec![1, 0, 1, 0], vec![0, 1], vec![(2, 0), (3, 1)]),
        (vec![u32::MAX, u32::MAX], vec![0], vec![(1, 0)]),
        (vec![5, 3, 4, 5], vec![0, 1, 2], vec![(3, 0)]),
    ] {
        let jobs: Vec<Job> = indices.iter().map(|i| job(&one, *i)).collect();
        assert_eq!(taken(&jobs), (order, duplicates), "{indices:?}");
    }
    let jobs = [job(&one, 0), job(&other, 0), job(&again, 0)];
    assert_eq!(taken(&jobs), (vec![0, 1], vec![(2, 0)]));
}

#[test]
fn tasks_are_the_same_by_request_id_and_without_one_only_as_themselves() {
    let (a, again, b) = (task("a").into(), task("a").into(), task("b").into());
    let jobs = [job(&a, 0), job(&b, 0), job(&again, 0), job(&a, 1)];
    assert_eq!(taken(&jobs), (vec![0, 1, 3], vec![(2, 0)]));
    let (one, other) = (task("").into(), task("").into());
    let jobs = [job(&one, 0), job(&other, 0), job(&one, 0)];
    assert_eq!(taken(&jobs), (vec![0, 1], vec![(2, 0)]));
    // an LRP and a task of the same app are different work
    let mut named = lrp("t");
    named.id = "a".into();
    let jobs = [job(&named.into(), 0), job(&a, 0)];
    assert_eq!(taken(&jobs), (vec![0, 1], vec![]));
}

#[test]
fn diego_takes_first_instances_then_tasks_then_the_rest() {
    let sized = |memory_mb, request: Request| {
        Arc::new(Request {
            memory_mb,
            ..request
        })
    };
    let (small, large) = (sized(1, lrp("s")), sized(2, lrp("l")));
    let (small_task, large_task) = (sized(1, task("a")), sized(2, task("b")));
    let jobs = [
        job(&small, 2),
        job(&large, 2),
        job(&small, 1),
        job(&small_task, 3),
        job(&large_task, 9),
        job(&small, 0),
        job(&large, 0),
    ];
    let batch = Batch::new(&jobs, Order::Diego, None);
    assert_eq!(batch.order, [6, 5, 4, 3, 2, 1, 0]);
}

fn make_droplet(request: &mut Request) {
    request.run = Some(crate::Run {
        droplet: Some(Arc::default()),
        ..crate::Run::default()
    });
}

fn make_staging(request: &mut Request) {
    request.run = Some(crate::Run {
        staging: Some(Arc::default()),
        ..crate::Run::default()
    });
}

#[test]
fn requests_share_a_shape_unless_a_filter_could_tell_them_apart() {
    let changes: [fn(&mut Request); 19] = [
        |r| r.kind = Kind::Task,
        |r| r.memory_mb += 1,
        |r| r.disk_mb += 1,
        |r| r.cpu_millis += 1,
        |r| {
            r.extra.insert("gpu".into(), 1);
        },
        |r| r.stack = Some("linux".into()),
        make_droplet,
        make_staging,
        |r| r.placement_tags.push("x".into()),
        |r| r.volume_drivers.push("nfs".into()),
        |r| r.networks.push(vec!["n".into()]),
        |r| drop(r.traits.insert("ssd".into(), Trait::Flag(true))),
        |r| drop(r.min_platform.insert("7.0".into(), Stamp::default())),
        |r| drop(r.max_platform.insert("7.0".into(), Stamp::default())),
        |r| r.volumes_from.push("v".into()),
        |r| r.near.push("app:x".into()),
        |r| r.far.push("app:x".into()),
        |r| r.strict = true,
        |r| {
            r.overcommit.insert("cpu".into(), 1.0);
        },
    ];
    let changed = changes.map(|change| {
        let mut request = lrp("a");
        change(&mut request);
        Arc::new(request)
    });
    let mut alike = lrp("b");
    alike.owner = Some("o".into());
    alike.tags.insert("k".into(), "v".into());
    let plain = [lrp("a").into(), alike.into()];
    let jobs: Vec<Job> = plain.iter().chain(&changed).map(|r| job(r, 0)).collect();
    let batch = Batch::new(&jobs, Order::Asked, None);
    let shapes = (0..).take(jobs.len()).map(|at| batch.group(at).shape);
    let expected = [0, 0].into_iter().chain(1..=19);
    assert!(
        shapes.eq(expected),
        "the first two alike, the others each by itself"
    );
    assert_eq!(batch.apps, ["a", "b"]);
    let (first, second) = (batch.group(0), batch.group(1));
    assert_eq!((first.app, second.app), (0, 1));
    assert_eq!(second.app_hash, random::hash_text("b"));
}

/// A table first looks at the low bits of a hash, and then at its highest seven.
#[test]
fn small_integers_hash_apart_in_the_bits_that_a_table_looks_at() {
    let hash = |words: &[u32]| {
        let mut hasher = IntHasher::default();
        for word in words {
            hasher.write_u32(*word);
        }
        hasher.finish()
    };
    let pairs = (0..64).flat_map(|a| (0..64).map(move |b| vec![a, b]));
    let multiples = (0..4096).map(|n| vec![n << 16]);
    let different = |values: &mut dyn Iterator<Item = u64>| values.collect::<HashSet<_>>().len();
    for (what, keys) in [
        ("pairs", pairs.collect::<Vec<_>>()),
        ("multiples of 2^16", multiples.collect()),
    ] {
        let hashes: Vec<u64> = keys.iter().map(|words| hash(words)).collect();
        assert_eq!(different(&mut hashes.iter().copied()), 4096, "{what}");
        // by chance, 3,970 of 2^16 numbers are hit
        let low = different(&mut hashes.iter().map(|hash| hash & 0xffff));
        assert!(low > 3_700, "{what}: {low} different low bits");
        let high = different(&mut hashes.iter().map(|hash| hash >> 57));
        assert_eq!(high, 128, "{what}");
    }
}

#[test]
fn requests_of_another_size_or_stack_or_neighbour_are_told_apart_by_their_hash() {
    let changes: [fn(&mut Request); 9] = [
        |_| (),
        |r| r.kind = Kind::Task,
        |r| r.memory_mb += 1,
        |r| r.cpu_millis += 1,
        |r| r.stack = Some("linux".into()),
        |r| r.stack = Some("linus".into()),
        make_droplet,
        |r| r.near.push("app:x".into()),
        |r| r.far.push("app:x".into()),
    ];
    let hashes: HashSet<u64> = changes
        .iter()
        .map(|change| {
            let mut request = lrp("a");
            change(&mut request);
            shape_hash(&request)
        })
        .collect();
    assert_eq!(hashes.len(), changes.len());
}

#[test]
fn the_largest_dominant_share_comes_first() {
    let mut cell = Cell::new("c", Resources::new(1_000, 1_000, 100));
    cell.total.cpu_millis = 10_000;
    let gpus = DeviceSet::new(4, 1_000);
    cell.total.devices.insert("gpu".into(), gpus);
    let mut other = cell.clone();
    // disk is unlimited somewhere, so no share of it counts
    other.total.disk_mb = None;
    let totals = Totals::of([cell, other].iter());
    let mut memory = lrp("memory");
    memory.memory_mb = 200;
    let mut cpu = lrp("cpu");
    cpu.cpu_millis = 4_000;
    let mut disk = lrp("disk");
    disk.disk_mb = 1_000;
    let mut gpu = lrp("gpu");
    gpu.devices.insert("gpu".into(), DeviceNeed::new(3, None));
    let requests = [memory, cpu, disk, gpu].map(Arc::new);
    let shares = requests
        .clone()
        .map(|request| totals.dominant_share(&request));
    for (share, expected) in shares.into_iter().zip([0.1, 0.2, 0.005, 0.375]) {
        assert!((share - expected).abs() < 1e-9, "{share}, not {expected}");
    }
    let mut jobs: Vec<Job> = requests.iter().map(|request| job(request, 0)).collect();
    // equal shares keep their order of arrival
    jobs.push(job(&requests[1], 1));
    let batch = Batch::new(&jobs, Order::LargestFirst, Some(&totals));
    assert_eq!(batch.order, [3, 1, 4, 0, 2]);
}
