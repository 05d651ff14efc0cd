//! Stored requests in the check: how they end, and that a broken rule is detected.

use shared::wire::TaskState::{self, Cancelled, Failed, Placed, Succeeded};

use super::{breaks::rewrite, fails, script};
use crate::{
    bucket::{StateAnswer, TASKS},
    check::{
        CheckReport, invariants,
        script::{Fault, Script, ScriptRequest, ScriptTask, What},
        world::World,
    },
};

/// Returns a script with two auctioneers, two cells of 200 MiB, two managers, these stored requests, and these steps.
fn stored(seed: u64, tasks: Vec<ScriptTask>, steps: &[(u64, What)]) -> Script {
    Script {
        seed,
        managers: 2,
        cells: vec![200, 200],
        requests: Vec::new(),
        tasks,
        ..script(steps)
    }
}

fn task(n: usize, memory_mb: i64) -> ScriptTask {
    ScriptTask {
        id: format!("t{n}"),
        instances: None,
        memory_mb,
        takes_ms: 500,
        exit_code: 0,
        retries: 0,
        timeout_ms: None,
        queue_timeout_ms: 120_000,
    }
}

/// Returns how each stored request ended, after checking that every promise holds.
fn ends(script: &Script) -> Vec<TaskState> {
    let (violation, timeline) = invariants::play(script, true, &mut CheckReport::default());
    assert_eq!(violation, None, "{}", timeline.join("\n"));
    let mut world = World::begun(script, false);
    while world.goes_on(&mut CheckReport::default()) {}
    world.ends().values().map(|end| end.state).collect()
}

#[test]
fn stored_requests_end_as_they_should() {
    let fails = ScriptTask {
        exit_code: 1,
        retries: 2,
        ..task(1, 10)
    };
    let slow = ScriptTask {
        takes_ms: 30_000,
        timeout_ms: Some(5_000),
        ..task(2, 10)
    };
    let cancelled = ScriptTask {
        takes_ms: 30_000,
        ..task(3, 10)
    };
    let durable = ScriptTask {
        instances: Some(3),
        ..task(4, 10)
    };
    let large = ScriptTask {
        queue_timeout_ms: 5_000,
        ..task(5, 300)
    };
    let tasks = vec![task(0, 10), fails, slow, cancelled, durable, large];
    let submits = (0..tasks.len()).map(|n| (5_000, What::Submit(n)));
    let cancel = [(9_000, What::Cancel(3))];
    let steps: Vec<(u64, What)> = submits.chain(cancel).collect();
    let expected = [Succeeded, Failed, Failed, Cancelled, Placed, Failed];
    assert_eq!(ends(&stored(1, tasks, &steps)), expected);
}

/// The task finds no room according to one auctioneer, while the other one is suspended with its first attempt or a
/// later one. Then there is room, and the suspended one resumes.
#[test]
fn an_auctioneer_that_stood_still_starts_no_attempt_that_was_given_up() {
    for seed in 0..40 {
        let tasks: Vec<ScriptTask> = (0..4).map(|n| task(n, 100)).collect();
        let mut steps = vec![
            (4_000, What::Ask(0)),
            (10_000, fails(0, Fault::Freeze, 35_000)),
            (35_000, fails(2, Fault::Restart, 300)),
        ];
        steps.extend((0..4).map(|n| (10_100 + 50 * n as u64, What::Submit(n))));
        let mut script = stored(seed, tasks, &steps);
        script.requests = vec![ScriptRequest {
            id: "r0".to_owned(),
            app: "app0".to_owned(),
            instances: 2,
            memory_mb: 150,
            queue_timeout_ms: 0,
        }];
        let ends = ends(&script);
        assert_eq!(ends.len(), 4, "seed {seed}");
    }
}

#[test]
fn what_is_broken_for_stored_requests_is_seen() {
    let script = || stored(1, vec![task(0, 10)], &[(5_000, What::Submit(0))]);
    let whole = script();
    assert_eq!(ends(&whole), [TaskState::Succeeded]);
    // an answer claims that a task found no room, although it runs
    let mut world = World::begun(&whole, true);
    world.meddle(|now_ms, m| {
        now_ms > 10_000
            || rewrite(m, "inbox.*.wave.*", |body| {
                for instance in body["instances"].as_array_mut().into_iter().flatten() {
                    instance["outcome"] = "unplaced".into();
                    instance["indices"] = "0".into();
                }
            })
    });
    let (seen, timeline) = invariants::play_world(world, &mut CheckReport::default());
    let seen = seen.unwrap_or_else(|| panic!("{}", timeline.join("\n")));
    assert_eq!(seen.invariant, "a task runs at most once", "{seen:?}");
    // no watch shows what is stored
    let mut world = World::begun(&whole, true);
    world.meddle_state(
        |answer| !matches!(answer, StateAnswer::Shown { key, .. } if key.starts_with(TASKS)),
    );
    let (seen, timeline) = invariants::play_world(world, &mut CheckReport::default());
    let seen = seen.unwrap_or_else(|| panic!("{}", timeline.join("\n")));
    // the manager stores it again and again
    let either = ["stored requests have an outcome", "managers rest"];
    assert!(either.contains(&seen.invariant), "{seen:?}");
}

#[test]
fn what_only_the_watch_says_of_a_write_is_enough() {
    let script = stored(1, vec![task(0, 10)], &[(5_000, What::Submit(0))]);
    let mut world = World::begun(&script, true);
    world.meddle_state(
        |answer| !matches!(answer, StateAnswer::Ended { write, .. } if write.0 >> 63 == 1),
    );
    let (seen, timeline) = invariants::play_world(world, &mut CheckReport::default());
    assert_eq!(seen, None, "{}", timeline.join("\n"));
}

/// Two durable requests of one app that begin at the same moment are placed as the same instances, and their results
/// say so.
#[test]
fn what_is_placed_as_another_request_s_instance_is_told() {
    let durable = |n| ScriptTask {
        instances: Some(2),
        ..task(n, 10)
    };
    let steps = [(5_000, What::Submit(0)), (5_000, What::Submit(1))];
    let of_seed = |seed| stored(seed, vec![durable(0), durable(1)], &steps);
    let shares = |seed: &u64| {
        let script = of_seed(*seed);
        let mut world = World::begun(&script, false);
        while world.goes_on(&mut CheckReport::default()) {}
        let mut told = world.bucket().tasks().filter_map(|(_, record)| record.why);
        told.any(|why| why.contains("of stored request t"))
    };
    let seed = (0..20)
        .find(shares)
        .expect("two that begin in the same moment");
    assert_eq!(ends(&of_seed(seed)), [Placed, Placed]);
}

#[test]
fn what_is_placed_as_an_instance_that_never_was_is_seen() {
    let durable = ScriptTask {
        instances: Some(1),
        ..task(0, 300)
    };
    let script = stored(1, vec![durable], &[(5_000, What::Submit(0))]);
    let mut world = World::begun(&script, true);
    world.meddle(|_, m| {
        rewrite(m, "inbox.*.wave.*", |body| {
            for instance in body["instances"].as_array_mut().into_iter().flatten() {
                instance["outcome"] = "placed".into();
                instance["duplicate_of"] = "nobody".into();
            }
        })
    });
    let (seen, timeline) = invariants::play_world(world, &mut CheckReport::default());
    let seen = seen.unwrap_or_else(|| panic!("{}", timeline.join("\n")));
    assert_eq!(seen.invariant, "results are kept and true", "{seen:?}");
}
