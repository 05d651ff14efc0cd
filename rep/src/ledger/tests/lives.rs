//! The lives of accepted instances.

use super::*;

#[test]
fn an_lrp_is_started_again_at_once_after_1_2_and_4_seconds_and_then_given_up() {
    let mut ledger = ledger();
    ledger.start(0, &start(vec![work(1, "a")]));
    ledger.report(0, runs(1, 0));
    ledger.report(0, ends(1, 0, 1));
    assert_eq!(state_of(&ledger, 0, 1), InstanceState::Starting);
    let mut now_ms = 0;
    for (attempt, wait_ms) in [(1, 1_000), (2, 2_000), (3, 4_000)] {
        ledger.report(now_ms, runs(1, attempt));
        ledger.report(now_ms, ends(1, attempt, 1));
        assert_eq!(ledger.next_ms(), Some(now_ms + wait_ms));
        assert_eq!(state_of(&ledger, now_ms, 1), InstanceState::Restarting);
        ledger.tick(now_ms + wait_ms - 1);
        assert_eq!(state_of(&ledger, now_ms, 1), InstanceState::Restarting);
        assert_eq!(
            ledger.cell().available.memory_mb,
            900,
            "its promise is kept"
        );
        now_ms += wait_ms;
        ledger.tick(now_ms);
        assert_eq!(state_of(&ledger, now_ms, 1), InstanceState::Starting);
    }
    ledger.report(now_ms, ends(1, 4, 1));
    assert_eq!(state_of(&ledger, now_ms, 1), InstanceState::Crashed);
    assert_eq!(ledger.cell().available, ledger.cell().total);
    assert_eq!(ledger.next_ms(), None);
    assert_eq!(
        summary(&mut ledger),
        [
            "launch 0",
            "running",
            "crashed: starts again at once",
            "launch 1",
            "restarted",
            "running",
            "crashed: starts again in 1 s",
            "launch 2",
            "restarted",
            "running",
            "crashed: starts again in 2 s",
            "launch 3",
            "restarted",
            "running",
            "crashed: starts again in 4 s",
            "launch 4",
            "restarted",
            "crashed: not started again",
        ]
    );
}

#[test]
fn who_ran_for_long_starts_anew() {
    let mut ledger = ledger();
    ledger.start(0, &start(vec![work(1, "a")]));
    let mut now_ms = 0;
    for attempt in 0..10 {
        ledger.report(now_ms, runs(1, attempt));
        now_ms += HEALTHY_MS;
        ledger.report(now_ms, ends(1, attempt, 1));
        assert_eq!(state_of(&ledger, now_ms, 1), InstanceState::Starting);
    }
    let shown = &ledger.current_instances(now_ms)[0];
    assert_eq!((shown.state, shown.restarts), (InstanceState::Starting, 10));
}

#[test]
fn each_kind_of_end_is_reported() {
    let cases = [
        (work(1, "a"), EndReason::Exit(0), "exited"),
        (
            work(1, "a"),
            EndReason::Over(Limit::Memory),
            "crashed: starts again at once",
        ),
        (task(1), EndReason::Exit(0), "exited"),
        (task(1), EndReason::Exit(1), "crashed"),
        (task(1), EndReason::Signal(9), "crashed"),
        (
            task(1),
            EndReason::Failed("no such program".into()),
            "crashed",
        ),
    ];
    for (work, how, told) in cases {
        let mut ledger = ledger();
        ledger.start(0, &start(vec![work]));
        ledger.report(0, report(1, 0, InstanceChange::Ended(how.clone())));
        assert_eq!(summary(&mut ledger)[..2], ["launch 0", told]);
        let shown = &ledger.find_instances(0, &Instances::default())[0];
        assert_eq!(shown.ended, Some(how.to_string()));
    }
}

#[test]
fn the_end_of_a_managers_task_is_told_with_whether_its_command_ran() {
    let lost = EndReason::Failed(format!("{SUPERVISOR_LOST} (signal 9)"));
    let none = EndReason::Failed("no such program".into());
    for (id, runs_first, how, expected) in [
        (
            "t-0000000b-1-x",
            true,
            EndReason::Exit(3),
            Some((true, Some(3))),
        ),
        ("t-0000000b-1-x", false, none.clone(), Some((false, None))),
        ("t-0000000b-1-x", false, lost, Some((true, None))),
        ("t-0000000b-1-x", true, none, Some((true, None))),
        ("r-1", true, EndReason::Exit(3), None),
    ] {
        let mut ledger = ledger();
        let mut work = task(1);
        work.request = id.parse().ok();
        ledger.start(0, &start(vec![work]));
        if runs_first {
            ledger.report(0, runs(1, 0));
        }
        ledger.report(0, report(1, 0, InstanceChange::Ended(how)));
        let told = ledger
            .take_actions()
            .into_iter()
            .find_map(|action| match action {
                Action::Result(result) => Some((result.began, result.exit_code)),
                _ => None,
            });
        assert_eq!(told, expected, "{id}");
    }
}

/// Returns the last event that is not about a restart: its kind, how long the instance ran in milliseconds, and whether
/// it is final.
fn last_event(ledger: &mut Ledger) -> (&'static str, Option<u128>, bool) {
    let events = ledger
        .take_actions()
        .into_iter()
        .filter_map(|action| match action {
            Action::Event { kind, instance, .. } => {
                let ran_ms = instance.ran.map(|ran| ran.0.as_millis());
                Some((kind, ran_ms, instance.is_final))
            }
            Action::Execute(_) | Action::Result(_) => None,
        });
    let ends = events.filter(|(kind, ..)| *kind != kind::RESTARTED);
    ends.last().expect("an event")
}

#[test]
fn an_event_of_an_end_says_how_long_the_instance_ran() {
    let mut ledger = ledger();
    ledger.start(0, &start(vec![work(1, "a")]));
    ledger.report(100, runs(1, 0));
    assert_eq!(last_event(&mut ledger), (kind::RUNNING, None, false));
    ledger.report(350, ends(1, 0, 1));
    // it is restarted
    assert_eq!(last_event(&mut ledger), (kind::CRASHED, Some(250), false));
    ledger.report(1_400, runs(1, 1));
    assert_eq!(last_event(&mut ledger), (kind::RUNNING, None, false));
    ledger.report(2_000, ends(1, 1, 0));
    assert_eq!(last_event(&mut ledger), (kind::EXITED, Some(600), true));
}

#[test]
fn reports_of_earlier_attempts_and_unknown_instances_are_ignored() {
    let mut ledger = ledger();
    ledger.start(0, &start(vec![work(1, "a")]));
    ledger.report(0, ends(1, 0, 1));
    ledger.tick(1_000);
    summary(&mut ledger);
    let before = (ledger.seq(), ledger.cell().clone());
    for late in [ends(1, 0, 1), runs(1, 0), runs(2, 0), ends(2, 0, 0)] {
        ledger.report(1_001, late);
    }
    assert_eq!((ledger.seq(), ledger.cell().clone()), before);
    assert_eq!(summary(&mut ledger), [""; 0]);
}

#[test]
fn a_stop_while_it_waits_to_be_started_again_ends_it_at_once() {
    let mut ledger = ledger();
    ledger.start(0, &start(vec![work(1, "a")]));
    ledger.report(0, ends(1, 0, 1));
    ledger.report(0, ends(1, 1, 1));
    assert_eq!(ledger.next_ms(), Some(1_000));
    ledger.stop(10, &stop("a", &[]));
    assert_eq!(ledger.instance_count(), 0);
    assert_eq!(ledger.next_ms(), None);
    assert_eq!(ledger.cell().available, ledger.cell().total);
    ledger.tick(10_000);
    assert_eq!(summary(&mut ledger).last().unwrap(), "stopped");
}

#[test]
fn drain_refuses_at_once_and_ends_at_the_deadline() {
    let mut ledger = ledger();
    ledger.start(0, &start(vec![work(1, "a"), work(2, "a")]));
    ledger.report(0, runs(1, 0));
    summary(&mut ledger);
    assert!(ledger.drain(100, 1_000, false));
    assert!(ledger.cell().evacuating);
    assert_eq!(
        answers(&mut ledger, 100, &start(vec![work(3, "a")])),
        ["draining"]
    );
    assert_eq!(ledger.next_ms(), Some(1_100));
    ledger.tick(1_099);
    assert_eq!(summary(&mut ledger), [""; 0]);
    // a second drain replaces the deadline
    assert!(!ledger.drain(1_099, 0, false));
    assert_eq!(summary(&mut ledger), ["end 0", "end 0"]);
    assert!(!ledger.is_drained());
    ledger.report(1_200, ends(1, 0, 143));
    ledger.report(1_200, ends(2, 0, 143));
    assert!(ledger.is_drained());
    assert_eq!(ledger.next_ms(), None);
}

#[test]
fn an_empty_cell_drains_at_once() {
    let mut ledger = ledger();
    ledger.drain(0, 60_000, false);
    assert!(ledger.is_drained());
}

#[test]
fn the_last_64_accepted_are_recent() {
    let mut ledger = Ledger::new(
        Cell::new("a", Resources::new(10_000, 10_000, 1_000)),
        LIVES,
        "",
    );
    for id in 1..=70 {
        ledger.start(0, &start(vec![work(id, "a")]));
    }
    let recent = ledger.recent(59_999);
    assert_eq!(recent.len(), 64);
    assert_eq!(
        (recent[0], recent[63]),
        (InstanceId::from_u128(7), InstanceId::from_u128(70))
    );
    assert!(ledger.recent(60_000).is_empty());
}

#[test]
fn what_ended_stays_visible_for_a_while_and_within_bounds() {
    let mut ledger = ledger();
    for id in 1..=1_100 {
        ledger.start(0, &start(vec![task(id)]));
        ledger.report(0, ends(id, 0, 0));
    }
    let all = ledger.find_instances(599_999, &Instances::default());
    assert_eq!(all.len(), 1_000);
    assert_eq!(all[0].age_ms, 599_999);
    assert_eq!(ledger.current_instances(0).len(), 0);
    assert_eq!(
        ledger.find_instances(600_000, &Instances::default()).len(),
        0
    );
}

#[test]
fn events_tell_of_restarts_and_of_the_port() {
    let mut ledger = ledger();
    ledger.start(0, &start(vec![work(1, "a")]));
    let (pid, port) = (Some(7), Some(8_080));
    ledger.report(0, report(1, 0, InstanceChange::Running { pid, port }));
    ledger.report(0, ends(1, 0, 1));
    ledger.tick(1_000);
    let told: Vec<_> = ledger
        .take_actions()
        .into_iter()
        .filter_map(|action| match action {
            Action::Event { kind, instance, .. } => Some((kind, instance.restarts, instance.port)),
            Action::Execute(_) | Action::Result(_) => None,
        })
        .collect();
    let expected = [
        (kind::RUNNING, None, port),
        (kind::CRASHED, None, None),
        (kind::RESTARTED, Some(1), None),
    ];
    assert_eq!(told, expected);
}
