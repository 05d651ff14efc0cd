use super::*;
use crate::{
    devices::{DeviceNeed, DeviceSet},
    expected::{ExpectedSize, Size},
    resources::{Resource, Resources},
};

fn gpus(free: &[i64]) -> DeviceSet {
    DeviceSet {
        free: free.to_vec(),
        ..DeviceSet::new(u32::try_from(free.len()).unwrap_or(0), 1_000)
    }
}

/// Creates a cell with this much cpu, and gpus with this much free.
fn cell(cpu_millis: i64, free: &[i64]) -> Cell {
    let mut total = Resources {
        memory_mb: 1_000,
        cpu_millis,
        ..Resources::default()
    };
    total.devices.insert("gpu".into(), gpus(free));
    Cell::new("a", total)
}

fn asks(cpu_millis: i64, count: u32, amount: i64) -> Request {
    let mut request = Request::new("web", 0, 0);
    request.cpu_millis = cpu_millis;
    if count > 0 {
        let need = DeviceNeed::new(count, Some(amount));
        request.devices.insert("gpu".into(), need);
    }
    request
}

fn work(requests: &[(f64, Request)]) -> ExpectedWork {
    let size = |(share, request): &(f64, Request)| ExpectedSize {
        share: *share,
        size: Size::of(request),
    };
    ExpectedWork::exactly(requests.iter().map(size).collect())
}

fn gpu() -> ResourceName {
    ResourceName::Named("gpu".into())
}

#[track_caller]
fn assert_close(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-9, "{value}, not {expected}");
}

/// Calculated by hand from the definition of the paper.
#[test]
fn what_each_size_cannot_use_of_devices() {
    let cell = cell(8_000, &[1_000, 600, 300]);
    let free = Free::of(&cell);
    for (request, unusable) in [
        // two devices have less than 700 free
        (asks(4_000, 1, 700), 900.0),
        (asks(4_000, 1, 300), 0.0),
        (asks(4_000, 2, 600), 300.0),
        // it does not fit: too little cpu, too few devices
        (asks(9_000, 1, 300), 1_900.0),
        (asks(4_000, 2, 1_000), 1_900.0),
        // it asks for none
        (asks(4_000, 0, 0), 1_900.0),
    ] {
        let alone = work(&[(1.0, request.clone())]);
        assert_close(free.fragment(&gpu(), &alone), unusable);
    }
    let mixed = work(&[(3.0, asks(4_000, 1, 700)), (1.0, asks(9_000, 1, 300))]);
    assert_close(free.fragment(&gpu(), &mixed), 0.75 * 900.0 + 0.25 * 1_900.0);
    assert_close(free.fragment(&gpu(), &ExpectedWork::default()), 0.0);
}

#[test]
fn other_models_are_of_no_use() {
    let mut cell = cell(8_000, &[1_000, 400]);
    let mut wants = asks(1_000, 1, 500);
    if let Some(need) = wants.devices.get_mut("gpu") {
        need.models = vec!["A".into()];
    }
    let expected = work(&[(1.0, wants)]);
    assert_close(Free::of(&cell).fragment(&gpu(), &expected), 1_400.0);
    for set in cell.available.devices.values_mut() {
        set.model = Some("A".into());
    }
    assert_close(Free::of(&cell).fragment(&gpu(), &expected), 400.0);
}

#[test]
fn of_memory_the_remainder_is_lost() {
    let mut cell = cell(8_000, &[1_000]);
    let memory = ResourceName::Amount(Resource::Memory);
    let fragment = |cell: &Cell, memory_mb: i64, cpu_millis: i64| {
        let mut request = Request::new("web", memory_mb, 0);
        request.cpu_millis = cpu_millis;
        Free::of(cell).fragment(&memory, &work(&[(1.0, request)]))
    };
    assert_close(fragment(&cell, 300, 0), 100.0);
    assert_close(fragment(&cell, 500, 0), 0.0);
    // there is cpu for only two
    assert_close(fragment(&cell, 300, 4_000), 400.0);
    assert_close(fragment(&cell, 1_001, 0), 1_000.0);
    // what nobody asks for, nobody misses
    assert_close(fragment(&cell, 0, 1), 0.0);
    cell.available.memory_mb = -5;
    assert_close(fragment(&cell, 1, 0), 0.0);
}

#[test]
fn sizes_count_by_what_they_ask_for() {
    let cell = cell(8_000, &[]);
    let asks = |memory_mb| Request::new("web", memory_mb, 0);
    // of 1,200 asked for, 600 are as 600 (400 left), and 600 as 300 (100 left)
    let expected = work(&[(1.0, asks(600)), (2.0, asks(300)), (9.0, asks(0))]);
    let memory = ResourceName::Amount(Resource::Memory);
    assert_close(Free::of(&cell).fragment(&memory, &expected), 250.0);
}

#[test]
fn the_gradient_prefers_what_nobody_else_could_use() {
    let expected = work(&[(1.0, asks(1_000, 1, 700))]);
    let score = |free: &[i64]| {
        let cell = cell(8_000, free);
        let fragments = Fragments {
            of: gpu(),
            packed: false,
            fed_by: None,
        };
        let free = Free::of(&cell);
        let before = fragments.on(&free, &expected);
        gradient(&fragments, before, &free, &asks(1_000, 1, 300), &expected)
    };
    // 300 that nothing else could use
    assert_close(score(&[300, 1_000]), 0.3);
    // half a device is broken off, and the rest is of no use
    assert_close(score(&[900, 1_000]), -0.6);
    assert_close(score(&[1_000, 1_000]), 0.0);
}

#[test]
fn what_the_cpu_cannot_feed_counts_as_well() {
    // two devices for every 6,000 of cpu; sizes that ask for none do not count
    let expected = work(&[
        (1.0, asks(1_000, 1, 1_000)),
        (1.0, asks(2_000, 1, 500)),
        (1.0, asks(3_000, 1, 500)),
        (5.0, asks(9_000, 0, 0)),
    ]);
    let unfed = |cpu_millis| {
        let cell = cell(cpu_millis, &[1_000, 1_000, 500]);
        Free::of(&cell).unfed(&gpu(), Resource::Cpu, &expected)
    };
    // for 1,000 of devices the three sizes need 2,000 less and 500 and 1,500 more than 3 for each: for all that is free
    // the variance is (4 + 0.25 + 2.25) / 2,000 * 2,500 = 8.125 million, and the mean of what is needed is 7,500
    let bound = |spare: f64| ((8_125_000.0 + spare * spare).sqrt() - spare) / 6.0;
    assert_close(unfed(6_000), bound(-1_500.0));
    assert_close(unfed(9_000), bound(1_500.0));
    assert_close(unfed(0), 2_500.0);
    let fragments = Fragments {
        of: gpu(),
        packed: false,
        fed_by: Some(Resource::Cpu),
    };
    let cell = cell(6_000, &[1_000, 1_000, 500]);
    let free = Free::of(&cell);
    let alone = free.fragment(&gpu(), &expected);
    assert_close(fragments.on(&free, &expected), alone + bound(-1_500.0));
}

/// If every instance needs as much for what it takes, chance changes nothing.
#[test]
fn what_is_certainly_fed_does_not_count() {
    let expected = work(&[(1.0, asks(2_000, 1, 1_000)), (3.0, asks(1_000, 1, 500))]);
    for (cpu_millis, expected_unfed) in [(5_000, 0.0), (9_000, 0.0), (4_000, 500.0)] {
        let cell = cell(cpu_millis, &[1_000, 1_000, 500]);
        let unfed = Free::of(&cell).unfed(&gpu(), Resource::Cpu, &expected);
        assert_close(unfed, expected_unfed);
    }
}

/// Two of 470 fill a device well, so that half of one is worth that; 320 has 650 as its partner.
#[test]
fn packed_counts_what_the_best_packing_would_waste() {
    let expected = work(&[
        (6.0, asks(0, 1, 1_000)),
        (3.0, asks(0, 1, 470)),
        (2.0, asks(0, 1, 650)),
        (1.0, asks(0, 1, 320)),
    ]);
    let by_size = Fragments {
        of: gpu(),
        packed: false,
        fed_by: None,
    };
    let packed = Fragments {
        packed: true,
        ..by_size.clone()
    };
    let score = |fragments: &Fragments, free: &[i64]| {
        let cell = cell(8_000, free);
        let free = Free::of(&cell);
        let before = fragments.on(&free, &expected);
        gradient(fragments, before, &free, &asks(0, 1, 320), &expected)
    };
    let cell = cell(8_000, &[1_000, 530, 350]);
    // half of the device on which 470 fits, and the whole one
    assert_close(packed.on(&Free::of(&cell), &expected), 1_880.0 - 1_500.0);
    // beside 650 it uses what is of no other use, on a whole device it leaves room for 650; beside 470 it takes the
    // place of another 470
    assert_close(score(&packed, &[350]), 0.32);
    assert_close(score(&packed, &[1_000]), 0.32);
    assert_close(score(&packed, &[530]), 0.32 - 0.5);
    // a single size at a time, nothing speaks against that place
    assert!(score(&by_size, &[530]) > score(&by_size, &[1_000]));
    let tokens = Fragments {
        of: ResourceName::Named("tokens".into()),
        ..packed
    };
    assert_close(tokens.on(&Free::of(&cell), &expected), 0.0);
}

#[test]
fn steps_make_scores_equal() {
    assert_close(score(0.0, 100), 0.5);
    assert_close(score(0.3, 100), 0.57);
    assert_close(score(0.31, 100), 0.57);
    assert_close(score(-0.6, 100), 0.35);
    assert_close(score(-0.6, 0), -0.6);
}
