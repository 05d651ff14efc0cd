use super::*;
use crate::Request;

fn amounts(of: [i64; 4]) -> Amounts {
    Amounts(of)
}

#[test]
fn each_resource_has_a_place_a_name_and_a_field() {
    for (at, resource) in Resource::ALL.into_iter().enumerate() {
        assert_eq!(resource as usize, at);
    }
    let names = Resource::ALL.map(Resource::name);
    assert_eq!(names, ["memory", "disk", "containers", "cpu"]);
    assert_eq!(
        crate::devices::TAKEN,
        names,
        "no set of devices is called so"
    );
    let fields = Resource::ALL.map(Resource::field);
    assert_eq!(fields, ["memory_mb", "disk_mb", "containers", "cpu_millis"]);
    let vital = Resource::ALL.map(Resource::is_vital);
    assert_eq!(vital, [true, true, true, false]);
}

#[test]
fn what_is_unlimited_stays_so_and_covers_everything() {
    let mut have = amounts([10, Amounts::UNLIMITED, 2, 0]);
    assert!(have.covers(&amounts([10, 1 << 40, 2, 0])));
    assert!(have.covers(&Amounts::all(Amounts::NO_NEED)));
    for short in [[11, 0, 0, 0], [0, 0, 3, 0], [0, 0, 0, 1]] {
        assert!(!have.covers(&amounts(short)), "{short:?}");
    }
    have.debit(&amounts([11, 5, 1, 2]));
    assert_eq!(have, amounts([-1, Amounts::UNLIMITED, 1, -2]));
    let lower = have.lower(amounts([0, 7, 0, -3]));
    assert_eq!(lower, amounts([-1, 7, 0, -3]));
}

fn request() -> Request {
    let mut request = Request::new("a", 4, 3);
    request.cpu_millis = 2;
    request.extra.insert("gpu".into(), 1);
    request
}

#[test]
fn a_request_takes_one_place_and_needs_cpu_only_if_it_asks() {
    assert_eq!(request().amounts(), amounts([4, 3, 1, 2]));
    assert_eq!(request().needs(), amounts([4, 3, 1, 2]));
    let no_cpu = Request::new("a", 4, 3);
    assert_eq!(no_cpu.amounts()[Resource::Cpu], 0);
    assert_eq!(no_cpu.needs()[Resource::Cpu], Amounts::NO_NEED);
    let mut promised = Resources::new(4, 3, 1);
    promised.cpu_millis = -5;
    assert!(promised.fits(&no_cpu) && promised.lacks(&no_cpu).is_empty());
}

#[test]
fn debit_and_credit_are_opposites_for_every_resource() {
    let full = Resources {
        cpu_millis: 7,
        extra: [("gpu".to_owned(), 2)].into(),
        ..Resources::new(10, 10, 3)
    };
    let mut left = full.clone();
    left.debit(&request(), None);
    let expected = Resources {
        cpu_millis: 5,
        extra: [("gpu".to_owned(), 1)].into(),
        ..Resources::new(6, 7, 2)
    };
    assert_eq!(left, expected);
    left.credit(&request(), None);
    assert_eq!(left, full);
    let mut unlimited = Resources {
        memory_mb: 10,
        ..Resources::default()
    };
    unlimited.debit(&request(), None);
    assert_eq!((unlimited.disk_mb, unlimited.containers), (None, None));
    assert_eq!(unlimited.extra("gpu"), -1);
}

#[test]
fn what_is_lacking_is_named_in_order_with_its_numbers() {
    let lacking = |resources: &Resources| {
        let lacking = resources.lacks(&request());
        assert_eq!(lacking.is_empty(), resources.fits(&request()));
        lacking
    };
    let just = Resources {
        cpu_millis: 2,
        extra: [("gpu".to_owned(), 1)].into(),
        ..Resources::new(4, 3, 1)
    };
    assert_eq!(lacking(&just), []);
    let nothing = Resources::new(3, -2, 0);
    let named = [
        ("containers", 1, 0),
        ("cpu", 2, 0),
        ("disk", 3, -2),
        ("memory", 4, 3),
        ("gpu", 1, 0),
    ];
    let named = named.map(|(name, needs, has)| (name.to_owned(), needs, has));
    assert_eq!(lacking(&nothing), named);
}

#[test]
fn only_limited_amounts_are_listed_by_field() {
    let resources = Resources {
        memory_mb: 1,
        containers: Some(2),
        extra: [("gpu".to_owned(), 3)].into(),
        ..Resources::default()
    };
    let fields: Vec<(&str, i64)> = resources.fields().collect();
    assert_eq!(
        fields,
        [
            ("memory_mb", 1),
            ("containers", 2),
            ("cpu_millis", 0),
            ("gpu", 3)
        ]
    );
    assert_eq!(resources.get(Resource::Disk), None);
    assert_eq!(resources.amounts(), amounts([1, Amounts::UNLIMITED, 2, 0]));
}

/// The mean of three shares, calculated by hand.
#[test]
fn diegos_resource_term() {
    let used = |available, wanted, total| {
        used_after(&amounts(available), &amounts(wanted), &amounts(total))
    };
    let of = used([50, 100, 8, 0], [10, 0, 1, 99], [100, 100, 10, 1]);
    assert!((of - (0.6 + 0.0 + 0.3) / 3.0).abs() < 1e-12, "{of}");
    let unlimited = Amounts::UNLIMITED;
    let of = used(
        [50, unlimited, 8, 0],
        [10, 5, 1, 0],
        [100, 100, unlimited, 0],
    );
    assert!((of - 0.6 / 3.0).abs() < 1e-12, "{of}");
    assert!(!used([0, 1, 1, 0], [1, 0, 0, 0], [0, 1, 1, 0]).is_finite());
}

#[test]
fn what_is_written_reads_back_and_nothing_is_left_out_but_what_is_not_there() {
    let all = Resources {
        cpu_millis: 5,
        extra: [("gpu".to_owned(), 1)].into(),
        ..Resources::new(1, 2, 3)
    };
    let text = r#"{"memory_mb":1,"disk_mb":2,"containers":3,"cpu_millis":5,"extra":{"gpu":1}}"#;
    assert_eq!(serde_json::to_string(&all).unwrap(), text);
    assert_eq!(serde_json::from_str::<Resources>(text).unwrap(), all);
    let nothing = serde_json::to_string(&Resources::default()).unwrap();
    assert_eq!(nothing, r#"{"memory_mb":0}"#);
}
