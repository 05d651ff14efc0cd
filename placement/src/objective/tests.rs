use super::*;
use crate::{
    cell::Cell,
    devices::{DeviceNeed, DeviceSet},
    request::{Job, Request},
    resources::Resources,
};

fn constants() -> Constants {
    let mut constants = Constants::default();
    for name in ["alpha", "beta", "gamma", "delta"] {
        constants.set(name, 0.25);
    }
    constants
}

fn value(text: &str) -> Option<f64> {
    let objective = Objective::parse(text, &constants()).unwrap_or_else(|e| panic!("{text}: {e}"));
    let mut cell = Cell::new("c", Resources::new(1000, 4000, 10));
    cell.available = Resources::new(250, 1000, 10);
    let mut gpus = DeviceSet::new(2, 1_000);
    cell.total.devices.insert("gpu".into(), gpus.clone());
    gpus.free = vec![1_000, 400];
    cell.available.devices.insert("gpu".into(), gpus);
    cell.available.extra.insert("seats".into(), 5);
    cell.counts.apps = [("7".to_owned(), 3)].into();
    cell.attributes_mut().cached_blobs = vec!["b".into(), "b".into(), "c".into()];
    cell.attributes_mut().stacks = vec!["linux".into()];
    let mut request = Request::new("7", 100, 200);
    request.instances = 4;
    request.source_blob = Some("b".into());
    request.stack = Some("linux".into());
    request.extra.insert("seats".into(), 2);
    let half = DeviceNeed::new(1, Some(500));
    request.devices.insert("gpu".into(), half);
    let job = Job {
        request: request.into(),
        index: 2,
    };
    let facts = JobFacts::new(&job, objective.azs(3));
    objective.value(&Facts {
        job: &facts,
        request: &job.request,
        cell: &cell,
        zone: 2.0,
    })
}

#[test]
fn values() {
    for (text, expected) in [
        ("1 + 2 * 3", Some(7.0)),
        ("(1 + 2) * 3", Some(9.0)),
        ("10 - 3 - 2", Some(5.0)),
        ("2 * 7 mod 4", Some(2.0)),
        ("-7 mod 3", Some(2.0)),
        ("7 mod AZs", Some(1.0)),
        ("--2", Some(2.0)),
        ("1.5e2 + .5", Some(150.5)),
        (
            "ai.InstanceNumber + ai.TotalInstances + ai.AppID",
            Some(13.0),
        ),
        ("ai.RequiredMemoryMB + ai.RequiredDiskMB", Some(300.0)),
        ("r.AvailableMemoryMB / r.TotalMemoryMB", Some(0.25)),
        ("r.AvailableDiskMB / r.TotalDiskMB", Some(0.25)),
        ("r.AvailZoneNumber", Some(2.0)),
        ("r.Available.memory / r.Total.memory", Some(0.25)),
        ("r.Available.disk - ai.Required.disk", Some(800.0)),
        ("r.Available.containers + r.Total.cpu", Some(10.0)),
        // two devices of 1,000, of which one has 400 free; half of one is requested
        ("r.Available.gpu", Some(1_400.0)),
        ("r.Total.gpu", Some(2_000.0)),
        ("ai.Required.gpu", Some(500.0)),
        ("r.Available.seats + 2 * ai.Required.seats", Some(9.0)),
        ("r.Available.other + r.Total.other", Some(0.0)),
        ("r.Stack", Some(1.0)),
        ("count(ai.AppID, r.RunningAppIDs)", Some(3.0)),
        ("count(ai.AppSourceBlobID, r.CachedBlobIDs)", Some(2.0)),
        ("count(ai.Stack, r.CachedBlobIDs)", Some(0.0)),
        ("alpha + beta", Some(0.5)),
        ("1 / 0", None),
        ("0 / 0", None),
        // (2 + 7 + 2) mod 3 + 1 + 0.25 * 2 + 0.25 * 0.25 * 2 + 0.25 * (1 - 3/4)
        (Objective::DEFAULT, Some(3.0 + 0.5 + 0.125 + 0.0625)),
    ] {
        assert_eq!(value(text), expected, "{text}");
    }
}

#[test]
fn faults_and_where_they_are() {
    let nested = format!("{}1{}", "(".repeat(33), ")".repeat(33));
    let long = vec!["1"; 129].join("+");
    for (text, column, part) in [
        ("", 1, "ends here"),
        ("1 +", 4, "ends here"),
        ("1 2", 3, "expected an operator"),
        ("(1", 3, "expected ')'"),
        ("1 + $", 5, "unexpected character"),
        ("r.Memory", 1, "unknown attribute"),
        ("1 + ai.Nothing", 5, "expected one of RequiredDiskMB"),
        ("1 + r.Available.", 5, "names no resource"),
        ("wrong + 1", 1, "unknown name \"wrong\""),
        ("r.RunningAppIDs + 1", 1, "is a list"),
        ("ai.AppSourceBlobID", 1, "is a string"),
        ("5 mod (1 + 1)", 7, "the modulus is computed"),
        ("5 mod r.Stack", 7, "the modulus is computed"),
        ("5 mod 0", 7, "the modulus is 0"),
        ("count(1, r.CachedBlobIDs)", 7, "first argument"),
        (
            "count(ai.InstanceNumber, r.CachedBlobIDs)",
            7,
            "first argument",
        ),
        ("count(ai.AppID, ai.AppID)", 17, "second argument"),
        ("sin(1)", 1, "unknown name \"sin\""),
        ("\"text\"", 1, "unexpected character"),
        ("1e999", 1, "too large"),
        (&nested, 33, "more than 32 levels"),
        (&long, 258, "more than 256 nodes"),
    ] {
        let error = Objective::parse(text, &constants()).unwrap_err();
        assert!(error.message.contains(part), "{text}: {error}");
        assert_eq!(error.column, column, "{text}: {error}");
    }
    let deep = format!("{}1{}", "(".repeat(32), ")".repeat(32));
    assert!(Objective::parse(&deep, &constants()).is_ok());
    assert!(Objective::parse(&vec!["1"; 128].join("+"), &constants()).is_ok());
}

#[test]
fn the_caret_is_below_the_error() {
    let error = Objective::parse("1 +\n  r.Nothing", &constants()).unwrap_err();
    assert_eq!(error.picture(), "  r.Nothing\n  ^");
}

#[test]
fn weights_of_the_default_sum_to_one() {
    let mut heavy = constants();
    heavy.set("alpha", 0.5);
    let error = Objective::parse(Objective::DEFAULT, &heavy).unwrap_err();
    assert!(error.message.contains("sum to 1"), "{error}");
    heavy.set("beta", 0.5);
    heavy.set("gamma", 0.25);
    heavy.set("delta", -0.25);
    assert!(Objective::parse(Objective::DEFAULT, &heavy).is_err());
    // another expression may use any weights
    assert!(Objective::parse("alpha * r.Stack", &heavy).is_ok());
}

/// Test values of the documented hash.
#[test]
fn apps_as_numbers() {
    for (app, number) in [
        ("0", 0.0),
        ("42", 42.0),
        ("9007199254740991", 9_007_199_254_740_991.0),
        // 2^53 and above: the hash
        ("9007199254740992", f64::from(eval_hash("9007199254740992"))),
        ("web", f64::from(eval_hash("web"))),
        ("a", 3_826_002_220.0),
        ("foobar", 3_214_735_720.0),
    ] {
        assert_eq!(eval::app_number(app).to_bits(), number.to_bits(), "{app}");
    }
}

fn eval_hash(text: &str) -> u32 {
    let mut hash: u32 = 2_166_136_261;
    for byte in text.bytes() {
        hash = (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    }
    hash
}

#[test]
fn the_tree_is_shown() {
    let objective = Objective::parse("alpha * (1 - r.Stack)", &constants()).unwrap();
    let expected = "multiply\n  alpha = 0.25\n  subtract\n    1\n    r.Stack\n";
    assert_eq!(objective.tree(), expected);
    // each name as it is written
    for name in [
        "r.AvailableMemoryMB",
        "r.Available.gpu",
        "r.Total.memory",
        "ai.Required.cpu",
        "r.TotalDiskMB",
        "r.AvailZoneNumber",
        "ai.RequiredMemoryMB",
        "ai.AppID",
        "count(ai.AppID, r.RunningAppIDs)",
        "count(ai.AppSourceBlobID, r.CachedBlobIDs)",
        "count(ai.Stack, r.RunningAppIDs)",
    ] {
        let objective = Objective::parse(name, &constants()).unwrap();
        assert_eq!(objective.tree(), format!("{name}\n"));
    }
}
