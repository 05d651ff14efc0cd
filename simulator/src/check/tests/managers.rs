//! Managers in the check: what they keep running, and that a broken rule is detected.

use serde_json::Value;

use super::{
    breaks::{is, rewrite},
    fails, script,
};
use crate::{
    bucket::StateAnswer,
    check::{
        CheckReport, Violation,
        cell::CellNode,
        invariants,
        script::{BucketFault, Fault, Script, What},
        world::{Meddle, MeddleState, World},
    },
};

/// The first node of the managers; two auctioneers and two cells come before them.
const M0: usize = 4;

/// Returns a script with two managers, which are told of one app of two instances, and these steps.
fn managed(seed: u64, steps: &[(u64, What)]) -> Script {
    let put =
        r#"put {"app":"m0","instances":2,"memory_mb":50,"disk_mb":1,"run":{"command":["sleep"]}}"#;
    let mut all = vec![(4_000, command(put))];
    all.extend(steps.iter().cloned());
    Script {
        seed,
        managers: 2,
        apps: vec!["m0".to_owned()],
        requests: Vec::new(),
        ..script(&all)
    }
}

fn command(text: &str) -> What {
    What::Command {
        app: "m0".to_owned(),
        text: text.to_owned(),
    }
}

fn bucket(fault: BucketFault, for_ms: u64) -> What {
    What::Bucket { fault, for_ms }
}

/// Returns a script in which both managers are restarted.
fn restarts(seed: u64) -> Script {
    let restart = |n| (20_000, fails(M0 + n, Fault::Restart, 1_000));
    managed(seed, &[restart(0), restart(1)])
}

/// Returns a script in which the app is scaled down.
fn scaled(seed: u64) -> Script {
    managed(seed, &[(20_000, command("scale 1"))])
}

/// How a rule is broken.
enum Broken {
    Messages(Meddle),
    Bucket(MeddleState),
}

/// A rule, how it is broken, in which run that is detected, and as what.
struct Case {
    rule: &'static str,
    broken: Broken,
    run: fn(u64) -> Script,
    promise: &'static str,
}

const CASES: [Case; 5] = [
    Case {
        rule: "a cell names the request of each instance",
        broken: Broken::Messages(|_, m| {
            let without = |body: &mut Value| {
                for instance in body["instances"].as_array_mut().into_iter().flatten() {
                    instance["request"] = Value::Null;
                }
            };
            rewrite(m, "cell.*.heartbeat", without) && rewrite(m, "inbox.*.found.*", without)
        }),
        run: restarts,
        promise: "what is wanted runs",
    },
    Case {
        rule: "a list has all instances of its cell",
        broken: Broken::Messages(|now_ms, m| {
            now_ms < 20_000
                || rewrite(m, "cell.*.heartbeat", |body| {
                    body["instances"] = Value::Array(Vec::new());
                })
        }),
        run: |seed| managed(seed, &[]),
        promise: "one of an index",
    },
    Case {
        rule: "what is not wanted is stopped",
        broken: Broken::Messages(|_, m| !is(m, "cell.*.stop")),
        run: scaled,
        promise: "what is wanted runs",
    },
    Case {
        rule: "a watch shows what is stored",
        broken: Broken::Bucket(
            |answer| !matches!(answer, StateAnswer::Shown { key, .. } if key.starts_with("app.")),
        ),
        run: scaled,
        promise: "what is wanted runs",
    },
    Case {
        rule: "writes are answered",
        broken: Broken::Bucket(|answer| !matches!(answer, StateAnswer::Ended { .. })),
        run: scaled,
        promise: "what is wanted runs",
    },
];

fn play(script: &Script, broken: Option<&Broken>) -> (Option<Violation>, Vec<String>) {
    let mut world = World::begun(script, true);
    match broken {
        Some(Broken::Messages(meddle)) => world.meddle(*meddle),
        Some(Broken::Bucket(meddle)) => world.meddle_state(*meddle),
        None => {}
    }
    invariants::play_world(world, &mut CheckReport::default())
}

#[test]
fn every_broken_rule_of_managers_is_seen() {
    for case in &CASES {
        let script = (case.run)(1);
        let (unbroken, timeline) = play(&script, None);
        assert_eq!(unbroken, None, "{}: {}", case.rule, timeline.join("\n"));
        let (seen, timeline) = play(&script, Some(&case.broken));
        let seen = seen.unwrap_or_else(|| panic!("{}: {}", case.rule, timeline.join("\n")));
        assert_eq!(seen.invariant, case.promise, "{}: {seen:?}", case.rule);
    }
}

/// Returns how many managed instances run at the end, after checking that every promise holds.
fn instances_after(script: &Script) -> usize {
    let mut world = World::begun(script, true);
    let mut report = CheckReport::default();
    while world.goes_on(&mut report) {}
    let (violation, timeline) = play(script, None);
    assert_eq!(violation, None, "{}", timeline.join("\n"));
    let cells = world.all::<CellNode>();
    cells.map(|cell| cell.processes.len()).sum()
}

#[test]
fn what_happens_to_the_bucket_stops_nothing() {
    for fault in [
        BucketFault::Recreated { with_lease: true },
        BucketFault::Recreated { with_lease: false },
        BucketFault::Emptied,
        BucketFault::StateDeleted,
        BucketFault::WatchesEnd,
        BucketFault::Purged { with_lease: true },
        BucketFault::Purged { with_lease: false },
    ] {
        let script = managed(1, &[(20_000, bucket(fault, 0))]);
        assert_eq!(instances_after(&script), 2, "{fault:?}");
    }
}

/// A watch that begins while a server is behind shows old values first.
#[test]
fn what_a_server_that_is_behind_shows_stops_nothing() {
    for seed in 1..=4 {
        let steps = [
            (20_000, bucket(BucketFault::FailsOver, 20_000)),
            (28_000, command("scale 3")),
            (30_000, bucket(BucketFault::WatchesEnd, 0)),
        ];
        assert_eq!(instances_after(&managed(seed, &steps)), 3, "seed {seed}");
    }
}

/// An app is put while the server is behind: its managers are shown a bucket without it, and later the app again.
#[test]
fn an_app_that_is_shown_late_is_not_started_again() {
    for seed in 1..=4 {
        let mut script = managed(
            seed,
            &[
                (18_000, bucket(BucketFault::FailsOver, 40_000)),
                (33_000, bucket(BucketFault::WatchesEnd, 0)),
            ],
        );
        script.steps[0].at_ms = 26_000;
        assert_eq!(instances_after(&script), 2, "seed {seed}");
    }
}

#[test]
fn a_lost_cell_and_a_lost_manager_are_made_up_for() {
    let script = managed(
        1,
        &[
            (20_000, fails(2, Fault::Freeze, 60_000)),
            (21_000, fails(M0, Fault::Restart, 30_000)),
            (22_000, fails(M0 + 1, Fault::NoBucket, 3_000)),
            (70_000, bucket(BucketFault::Down, 5_000)),
        ],
    );
    assert_eq!(instances_after(&script), 2);
}
