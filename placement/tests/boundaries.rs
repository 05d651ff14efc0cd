//! The boundary of each filter, and its reason for cells on the wrong side of it.
#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::Arc;

use placement::{Cell, Plan, PlanContext, Policy, Pool, Request, Verdict};
use serde_json::{Value, json};

/// 2026-06-01.
const NOW_MS: i64 = 1_780_272_000_000;

fn merged(mut base: Value, more: &Value) -> Value {
    for (key, value) in more.as_object().unwrap() {
        base[key] = value.clone();
    }
    base
}

fn plan(filter: &str, cells: &[Value], request: &Value) -> Plan {
    let text = format!("name = \"t\"\n[[stage]]\n{filter}\n[[stage]]\npick = \"sample\"");
    let policy = Policy::parse(&text).unwrap();
    let mut pool = Pool::default();
    for (number, cell) in cells.iter().enumerate() {
        let whole = json!({"cell": format!("c{number:02}"), "total": {"memory_mb": 100}, "available": {"memory_mb": 100}});
        let cell: Cell = serde_json::from_value(merged(whole, cell)).unwrap();
        pool.put(cell);
    }
    let request = merged(json!({"app": "a", "memory_mb": 1, "disk_mb": 1}), request);
    let request: Request = serde_json::from_value(request).unwrap();
    let context = PlanContext {
        now_ms: NOW_MS,
        ..PlanContext::default()
    };
    let jobs = Arc::new(request).jobs();
    let plan = pool.plan_plainly(&jobs, &policy, &context);
    let fast = pool.plan(&jobs, &policy, &context);
    assert_eq!(fast.decisions, plan.decisions, "the engines differ");
    plan
}

/// Returns whether the filter keeps the cell.
fn keeps(filter: &str, cell: &Value, request: &Value) -> bool {
    let plan = plan(filter, std::slice::from_ref(cell), request);
    matches!(plan.decisions[0].verdict, Verdict::Placed { .. })
}

/// Returns why the filter dropped the cell: reason, needs, best.
fn why(filter: &str, cell: &Value, request: &Value) -> (Option<String>, Option<f64>, Option<f64>) {
    match &plan(filter, std::slice::from_ref(cell), request).decisions[0].verdict {
        Verdict::Unplaced(why) => {
            let row = &why.tally[0];
            (row.reason.clone(), row.needs, row.best)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_total_of_0_never_fits_even_nothing() {
    let none = json!({"total": {"memory_mb": 0, "disk_mb": 0}, "available": {"memory_mb": 0, "disk_mb": 0}});
    let nothing = json!({"memory_mb": 0, "disk_mb": 0});
    assert!(!keeps("filter = \"memory\"", &none, &nothing));
    assert!(!keeps("filter = \"disk\"", &none, &nothing));
    assert_eq!(
        why("filter = \"memory\"", &none, &nothing),
        (None, Some(0.0), Some(0.0))
    );
}

#[test]
fn what_is_exactly_enough_fits() {
    let cell = json!({"total": {"memory_mb": 100, "disk_mb": 50, "containers": 1, "cpu_millis": 30, "extra": {"gpu": 2}},
        "available": {"memory_mb": 100, "disk_mb": 50, "containers": 1, "cpu_millis": 30, "extra": {"gpu": 2}}});
    let exactly = json!({"memory_mb": 100, "disk_mb": 50, "cpu_millis": 30, "extra": {"gpu": 2}});
    let above = json!({"memory_mb": 101, "disk_mb": 51, "cpu_millis": 31, "extra": {"gpu": 3}});
    for (name, needs) in [
        ("memory", 101.0),
        ("disk", 51.0),
        ("cpu", 31.0),
        ("extra", 3.0),
    ] {
        let filter = format!("filter = \"{name}\"");
        assert!(keeps(&filter, &cell, &exactly), "{name}");
        let (reason, needed, best) = why(&filter, &cell, &above);
        assert_eq!((needed, best), (Some(needs), Some(needs - 1.0)), "{name}");
        let named = (name == "extra").then_some("gpu");
        assert_eq!(reason.as_deref(), named, "{name}");
    }
    assert!(keeps("filter = \"containers\"", &cell, &exactly));
}

#[test]
fn a_planned_reboot_is_within_the_days_or_not() {
    let filter = "filter = \"reboot-within\"\ndays = 3\nbatch = \"b1\"";
    let at = |date: &str| json!({ "next_reboot": date });
    assert!(!keeps(filter, &at("2026-06-04T00:00:00Z"), &json!({})));
    assert!(keeps(filter, &at("2026-06-04T00:00:01Z"), &json!({})));
    let (reason, needs, left) = why(filter, &at("2026-06-02T12:00:00Z"), &json!({}));
    assert_eq!((needs, left), (Some(3.0), Some(1.5)));
    assert!(reason.unwrap().contains("within 3 days"));
    // the batch drops by itself, whatever is planned
    let batch = json!({"reboot_batch": "b1", "next_reboot": "2026-09-01T00:00:00Z"});
    assert!(!keeps(filter, &batch, &json!({})));
    let (reason, needs, left) = why(filter, &batch, &json!({}));
    assert_eq!((needs, left), (None, None));
    assert!(reason.unwrap().contains("reboot batch \"b1\""));
    assert!(keeps(filter, &json!({"reboot_batch": "b2"}), &json!({})));
    let days_only = "filter = \"reboot-within\"\ndays = 3";
    assert!(keeps(days_only, &batch, &json!({})));
}

#[test]
fn cpu_caps_do_not_mix() {
    let filter = "filter = \"capness\"";
    let (capped, uncapped) = (json!({"cpu_capped": 1}), json!({"cpu_uncapped": 1}));
    let (with, without) = (json!({"cpu_millis": 1}), json!({}));
    assert!(keeps(filter, &capped, &with) && keeps(filter, &uncapped, &without));
    let (reason, ..) = why(filter, &uncapped, &with);
    assert_eq!(reason.as_deref(), Some("holds instances without a cpu cap"));
    let (reason, ..) = why(filter, &capped, &without);
    assert_eq!(reason.as_deref(), Some("holds instances with a cpu cap"));
}

#[test]
fn platform_limits_include_their_own_stamp_and_pass_versions_beyond() {
    let filter = "filter = \"platform\"";
    let cell =
        |version: &str, stamp: &str| json!({"platform": {"version": version, "stamp": stamp}});
    let own = cell("7.0", "20260301T000000Z");
    let limits = |key: &str, version: &str, stamp: &str| json!({ key: { version: stamp } });
    for (stamp, least, most) in [
        ("20260301T000000Z", true, true),
        ("20260302T000000Z", false, true),
        ("20260228T000000Z", true, false),
    ] {
        let (min, max) = (
            limits("min_platform", "7.0", stamp),
            limits("max_platform", "7.0", stamp),
        );
        assert_eq!(keeps(filter, &own, &min), least, "at least {stamp}");
        assert_eq!(keeps(filter, &own, &max), most, "at most {stamp}");
    }
    // versions that the limits do not list
    let stamp = "20260301T000000Z";
    let (newer, older) = (cell("8.0", stamp), cell("6.5", stamp));
    let (min, max) = (
        limits("min_platform", "7.0", stamp),
        limits("max_platform", "7.0", stamp),
    );
    assert!(keeps(filter, &newer, &min) && !keeps(filter, &older, &min));
    assert!(keeps(filter, &older, &max) && !keeps(filter, &newer, &max));
}

/// Nothing between two listed versions is excluded, and a limit for something that is no version has no effect.
#[test]
fn platform_limits_keep_out_only_what_lies_beyond_them() {
    let filter = "filter = \"platform\"";
    let cell =
        |version: &str| json!({"platform": {"version": version, "stamp": "20260301T000000Z"}});
    let late = "20270101T000000Z";
    let min = json!({"min_platform": {"7.0": late, "8.0": late}});
    let max = json!({"max_platform": {"7.0": late, "8.0": late}});
    for (version, least, most) in [
        ("6.5", false, true),
        ("7.0", false, true),
        ("7.5", true, true),
        ("8.0", false, true),
        ("8.5", true, false),
    ] {
        assert_eq!(keeps(filter, &cell(version), &min), least, "{version}");
        assert_eq!(keeps(filter, &cell(version), &max), most, "{version}");
    }
    for no_version in ["7", "7.", ".0", "7.x", "x.0", ""] {
        let limit = json!({"min_platform": {no_version: late}, "max_platform": {no_version: ""}});
        assert!(keeps(filter, &cell("1.0"), &limit), "{no_version:?}");
    }
}

#[test]
fn a_named_resource_of_which_there_is_just_enough_is_not_lacking() {
    let cell = json!({"available": {"memory_mb": 100, "extra": {"gpu": 2, "npu": 1}},
        "total": {"memory_mb": 100, "extra": {"gpu": 2, "npu": 1}}});
    let cells = [cell.clone(), cell];
    let request = json!({"extra": {"gpu": 2, "npu": 2}});
    let plan = plan("filter = \"extra\"", &cells, &request);
    let Verdict::Unplaced(why) = &plan.decisions[0].verdict else {
        panic!("{plan:?}");
    };
    assert_eq!(why.reason, "insufficient resources: npu");
}

#[test]
fn overcommit_ratios_are_compared_to_two_decimals() {
    let filter = "filter = \"overcommit-ratios\"";
    let cell = json!({"overcommit": {"cpu": 1.5}});
    let wants = |ratio: f64| json!({"overcommit": {"cpu": ratio}});
    assert!(keeps(filter, &cell, &wants(1.5)) && keeps(filter, &cell, &wants(1.504)));
    assert!(!keeps(filter, &cell, &wants(1.51)) && !keeps(filter, &cell, &wants(1.49)));
    // none and 0 are equal
    assert!(keeps(filter, &json!({}), &wants(0.0)) && !keeps(filter, &json!({}), &wants(0.01)));
}

#[test]
fn draining_cells_are_no_cells() {
    let cell = json!({"evacuating": true});
    let plan = plan("filter = \"evacuating\"", &[cell], &json!({}));
    let Verdict::Unplaced(why) = &plan.decisions[0].verdict else {
        panic!("{plan:?}");
    };
    assert_eq!(why.reason, "unable to communicate to compatible cells");
}

/// Eight reasons are listed separately; a ninth is counted with the others that have no row.
#[test]
fn very_many_reasons_are_grouped() {
    let cells: Vec<Value> = (0..12)
        .chain(0..8)
        .map(|n| json!({"status": format!("s{n:02}")}))
        .collect();
    let plan = plan("filter = \"running\"", &cells, &json!({}));
    let Verdict::Unplaced(why) = &plan.decisions[0].verdict else {
        panic!("{plan:?}");
    };
    let count = |reason: &str| {
        let row = why
            .tally
            .iter()
            .find(|row| row.reason.as_deref() == Some(reason));
        row.map(|row| row.cells)
    };
    assert_eq!(why.tally.len(), 9);
    assert_eq!(count("status is \"s03\""), Some(2));
    assert_eq!(count("other reasons"), Some(4));
}

/// What the cells have free of one set says nothing about another.
#[test]
fn grouped_reasons_name_no_devices() {
    let sets = || (0..12).map(|n| format!("d{n:02}"));
    let cells: Vec<Value> = sets()
        .map(|short| {
            let of = |name: &String| if *name == short { 50 } else { 200 };
            let all = |each: &dyn Fn(&String) -> Value| -> Value {
                let sets = sets().map(|name| (name.clone(), each(&name)));
                json!({"memory_mb": 100, "devices": sets.collect::<serde_json::Map<_, _>>()})
            };
            let total = all(&|_| json!({"count": 1, "each": 200}));
            let available = all(&|name| json!({"count": 1, "each": 200, "free": [of(name)]}));
            json!({"total": total, "available": available})
        })
        .collect();
    let needs = sets().map(|name| (name, json!({"count": 1, "amount": 100})));
    let needs: serde_json::Map<_, _> = needs.collect();
    let plan = plan("filter = \"extra\"", &cells, &json!({"devices": needs}));
    let Verdict::Unplaced(why) = &plan.decisions[0].verdict else {
        panic!("{plan:?}");
    };
    assert_eq!(why.tally.len(), 9, "{why:?}");
    for row in &why.tally {
        let is_other = row.reason.as_deref() == Some("other reasons");
        assert_eq!(row.devices.is_none(), is_other, "{row:?}");
    }
}
