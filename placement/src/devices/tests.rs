use proptest::prelude::*;

use super::*;
use crate::{Cell, Request, Resources};

fn set(free: &[i64]) -> DeviceSet {
    DeviceSet {
        free: free.to_vec(),
        ..DeviceSet::new(u32::try_from(free.len()).unwrap(), 1000)
    }
}

fn numbers(set: &DeviceSet, need: &DeviceNeed) -> Option<Vec<u32>> {
    set.choose(need).map(|share| share.numbers)
}

/// A number of devices, an amount of each, and the devices that should be given.
type Given<'a> = (u32, Option<i64>, Option<&'a [u32]>);

#[test]
fn a_share_goes_where_least_is_left_and_whole_devices_come_from_0_on() {
    let some = set(&[1000, 300, 250, 1000, 250]);
    let table: [Given<'_>; 9] = [
        (1, Some(100), Some(&[2])),
        (2, Some(100), Some(&[2, 4])),
        (3, Some(100), Some(&[1, 2, 4])),
        (1, Some(260), Some(&[1])),
        (1, Some(301), Some(&[0])),
        (1, None, Some(&[0])),
        (2, Some(1000), Some(&[0, 3])),
        (3, None, None),
        (1, Some(1001), None),
    ];
    for (count, amount, expected) in table {
        let need = DeviceNeed::new(count, amount);
        let chosen = numbers(&some, &need);
        assert_eq!(chosen.as_deref(), expected, "{need:?}");
        assert_eq!(some.enough(&need) >= count, expected.is_some(), "{need:?}");
    }
    let share = some.choose(&DeviceNeed::new(1, None)).unwrap();
    assert_eq!(share.amount, 1000, "all of a device");
}

#[test]
fn a_model_serves_if_it_is_named_or_any_does() {
    let mut need = DeviceNeed::new(1, Some(500));
    let of = |model: Option<&str>| DeviceSet {
        model: model.map(Into::into),
        ..set(&[1000])
    };
    assert!(of(None).choose(&need).is_some() && of(Some("a")).choose(&need).is_some());
    need.models = vec!["a".into(), "b".into()];
    for (model, serves) in [(Some("a"), true), (Some("c"), false), (None, false)] {
        let set = of(model);
        assert_eq!(set.choose(&need).is_some(), serves, "{model:?}");
        assert_eq!(set.enough(&need) > 0, serves, "{model:?}");
        assert_eq!(set.room(&need, 9), if serves { 2 } else { 0 }, "{model:?}");
    }
}

#[test]
fn what_is_given_back_leaves_the_set_as_it_was() {
    let mut resources = Resources::new(100, 100, 10);
    let full = DeviceSet::new(2, 1000);
    resources.devices.insert("gpu".into(), full.clone());
    let mut request = Request::new("web", 1, 1);
    request
        .devices
        .insert("gpu".into(), DeviceNeed::new(1, Some(300)));
    let first = resources.choose_devices(&request);
    resources.debit(&request, first.as_deref());
    assert_eq!(resources.devices["gpu"].free, [700, 1000]);
    let second = resources.choose_devices(&request);
    resources.debit(&request, second.as_deref());
    assert_eq!(resources.devices["gpu"].free, [400, 1000]);
    assert_eq!(resources.devices["gpu"].sum_free(), 1400);
    assert_eq!(resources.lacks_devices(&second.clone().unwrap()), []);
    let too_much = DeviceShare {
        amount: 500,
        numbers: vec![0, 1],
    };
    let wanted: DeviceShares = [("gpu".to_owned(), too_much)].into();
    assert_eq!(
        resources.lacks_devices(&wanted),
        [("gpu".to_owned(), 500, 400)]
    );
    resources.credit(&request, first.as_deref());
    resources.credit(&request, second.as_deref());
    assert_eq!(resources.devices["gpu"], full);
}

#[test]
fn what_no_device_is_there_for_is_not_chosen_and_lacks() {
    let mut request = Request::new("web", 1, 1);
    request
        .devices
        .insert("gpu".into(), DeviceNeed::new(2, None));
    let mut resources = Resources::new(100, 100, 10);
    assert_eq!(resources.choose_devices(&request), None);
    assert_eq!(resources.lacks(&request), [("gpu".to_owned(), 2, 0)]);
    resources.devices.insert("gpu".into(), set(&[1000, 10]));
    assert_eq!(resources.choose_devices(&request), None);
    assert_eq!(resources.lacks(&request), [("gpu".to_owned(), 2, 1)]);
    assert!(!resources.fits(&request));
    let nothing: DeviceShares = [(
        "gpu".to_owned(),
        DeviceShare {
            amount: 5,
            numbers: Vec::new(),
        },
    )]
    .into();
    assert_eq!(resources.lacks_devices(&nothing).len(), 1, "nobody chose");
}

#[test]
fn how_near_devices_come_is_told_in_words() {
    let near = |free: &[i64], count, amount: i64| {
        let need = DeviceNeed::new(count, Some(amount));
        set(free).nearest(&need)
    };
    let mut all = near(&[200, 200, 50], 1, 300);
    assert_eq!(all.to_string(), "2 devices have 200 free, none has 300");
    all.merge(near(&[200, 100], 1, 300));
    assert_eq!(all.to_string(), "3 devices have 200 free, none has 300");
    all.merge(near(&[-5], 1, 300));
    all.merge(FreeDevices::default());
    assert_eq!((all.most, all.devices), (200, 3));
    all.merge(near(&[250], 1, 300));
    assert_eq!(all.to_string(), "one device has 250 free, none has 300");
    let few = near(&[300, 300, 0], 3, 300);
    assert_eq!(few.to_string(), "no cell has enough devices with 300 free");
    assert_eq!(
        FreeDevices::default().to_string(),
        "there is no such device"
    );
}

#[test]
fn what_no_cell_can_have_is_rejected() {
    let cell = |total: DeviceSet, available: DeviceSet| {
        let mut cell = Cell::new("a", Resources::new(100, 100, 10));
        cell.total.devices.insert("gpu".into(), total);
        cell.available.devices.insert("gpu".into(), available);
        cell.check().err().map(|e| e.to_string())
    };
    let two = DeviceSet::new(2, 1000);
    assert_eq!(cell(two.clone(), set(&[-3, 1000])), None);
    for (total, available, begins) in [
        (
            DeviceSet::new(0, 1),
            two.clone(),
            "total.devices.gpu.count: 0",
        ),
        (
            DeviceSet::new(257, 1),
            two.clone(),
            "total.devices.gpu.count: 257",
        ),
        (
            DeviceSet::new(2, 0),
            two.clone(),
            "total.devices.gpu.each: 0",
        ),
        (set(&[1, 1]), two.clone(), "total.devices.gpu.free: a list"),
        (
            two.clone(),
            set(&[1001, 0]),
            "available.devices.gpu.free: 1001",
        ),
        (
            two.clone(),
            set(&[0]),
            "available.devices.gpu: a set of 1 × 1000",
        ),
        (
            two.clone(),
            DeviceSet {
                free: vec![0],
                ..two.clone()
            },
            "available.devices.gpu.free: 1 amounts",
        ),
    ] {
        let said = cell(total, available).unwrap();
        assert!(said.starts_with(begins), "{said}");
    }
}

#[test]
fn what_nobody_can_need_is_rejected() {
    let request = |name: &str, need: DeviceNeed| {
        let mut request = Request::new("web", 1, 1);
        request.extra.insert("seat".into(), 1);
        request.devices.insert(name.into(), need);
        request.check().err().map(|e| e.to_string())
    };
    assert_eq!(request("gpu", DeviceNeed::new(1, None)), None);
    for (name, need, begins) in [
        ("gpu", DeviceNeed::new(0, None), "devices.gpu.count: 0"),
        ("gpu", DeviceNeed::new(1, Some(0)), "devices.gpu.amount: 0"),
        ("seat", DeviceNeed::new(1, Some(1)), "devices.seat: a need"),
        ("GPU", DeviceNeed::new(1, Some(1)), "devices: \"GPU\""),
        ("cpu", DeviceNeed::new(1, Some(1)), "devices: \"cpu\""),
    ] {
        let said = request(name, need).unwrap();
        assert!(said.starts_with(begins), "{said}");
    }
    for numbers in [vec![1, 1], vec![2, 1], vec![MAX_DEVICES]] {
        let share = DeviceShare { amount: 1, numbers };
        let given = [("gpu".to_owned(), share)].into();
        let said = check_device_shares("devices", &given);
        let said = said.unwrap_err().to_string();
        assert!(said.starts_with("devices.gpu.numbers: ["), "{said}");
    }
}

proptest! {
    /// There is room for as many as get their devices one after the other, and none of these is overcommitted.
    #[test]
    fn the_room_is_what_can_be_given_one_after_the_other(
        free in prop::collection::vec(-50_i64..=200, 1..6),
        count in 1_u32..4,
        amount in 1_i64..120,
    ) {
        let need = DeviceNeed::new(count, Some(amount));
        let full = DeviceSet { each: 200, ..set(&free) };
        let mut left = full.clone();
        let mut given = 0;
        while let Some(share) = left.choose(&need) {
            prop_assert!(share.numbers.iter().all(|number| left.free(*number) >= amount));
            left.apply(&share, -1);
            given += 1;
        }
        prop_assert_eq!(full.room(&need, 1000), given);
        prop_assert_eq!(full.room(&need, 2), given.min(2));
    }
}

proptest! {
    #[test]
    fn what_is_counted_is_what_is_given_one_by_one(
        free in proptest::collection::vec(-3_i64..=10, 1..6),
        count in 1_u32..4,
        amount in proptest::option::of(1_i64..12),
        other_model in proptest::bool::weighted(0.2),
        most in 0_i64..20,
    ) {
        let set = DeviceSet { free: free.clone(), ..DeviceSet::new(u32::try_from(free.len()).unwrap(), 10) };
        let mut need = DeviceNeed::new(count, amount);
        if other_model {
            need.models = vec!["A".into()];
        }
        prop_assert_eq!(set.room(&need, most), set.room_one_by_one(&need, most));
    }
}
