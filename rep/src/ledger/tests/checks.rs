//! Health and readiness.

use std::time::Duration;

use placement::{CheckKind, HealthCheck, Span};

use super::*;

const PORT: Option<u16> = Some(8_080);

fn http() -> HealthCheck {
    HealthCheck {
        kind: CheckKind::Http,
        path: "/up".into(),
        ..HealthCheck::default()
    }
}

fn with(health: Option<HealthCheck>, ready: Option<HealthCheck>) -> Work {
    Work {
        health: health.map(Arc::new),
        ready: ready.map(Arc::new),
        ..work(1, "a")
    }
}

/// Creates a ledger whose only instance has had a process since 100.
fn begun(work: Work) -> Ledger {
    let mut ledger = ledger();
    ledger.start(0, &start(vec![work]));
    exists(&mut ledger, 100, 0);
    ledger
}

fn exists(ledger: &mut Ledger, now_ms: u64, attempt: u32) {
    let (pid, port) = (Some(7), PORT);
    ledger.report(
        now_ms,
        report(1, attempt, InstanceChange::Running { pid, port }),
    );
    ledger.tick(now_ms);
}

fn result(ledger: &mut Ledger, now_ms: u64, of: CheckOf, failure: Option<&str>) {
    let attempt = ledger.current_instances(now_ms)[0].restarts;
    let failure = failure.map(str::to_owned);
    ledger.report(
        now_ms,
        report(1, attempt, InstanceChange::Checked { of, failure }),
    );
}

fn passes(ledger: &mut Ledger, now_ms: u64, of: CheckOf) {
    result(ledger, now_ms, of, None);
}

fn fails(ledger: &mut Ledger, now_ms: u64, of: CheckOf) {
    result(ledger, now_ms, of, Some("HTTP 503"));
}

fn shown(ledger: &Ledger, now_ms: u64) -> Instance {
    let all = ledger.find_instances(now_ms, &Instances::default());
    all.last().unwrap().clone()
}

/// Lets time pass until the next check, which must be due then.
fn next_check(ledger: &mut Ledger, due_ms: u64) {
    assert_eq!(ledger.next_ms(), Some(due_ms));
    ledger.tick(due_ms - 1);
    assert_eq!(summary(ledger), [""; 0]);
    ledger.tick(due_ms);
}

#[test]
fn an_instance_with_a_check_runs_when_it_passes() {
    let mut ledger = begun(with(Some(http()), None));
    assert_eq!(summary(&mut ledger), ["launch 0", "check Health 8080"]);
    assert_eq!(ledger.cell().counts.starting, 1);
    fails(&mut ledger, 150, CheckOf::Health);
    assert_eq!(state_of(&ledger, 150, 1), InstanceState::Starting);
    // every 2 s until it is healthy
    next_check(&mut ledger, 2_150);
    assert_eq!(summary(&mut ledger), ["check Health 8080"]);
    passes(&mut ledger, 2_160, CheckOf::Health);
    assert_eq!(summary(&mut ledger), ["running"]);
    let found = shown(&ledger, 2_160);
    assert_eq!((found.state, found.port), (InstanceState::Running, PORT));
    assert_eq!((found.age_ms, found.ready), (0, None));
    assert_eq!(ledger.cell().counts.starting, 0);
    // and every interval from then on
    next_check(&mut ledger, 32_160);
    assert_eq!(summary(&mut ledger), ["check Health 8080"]);
}

#[test]
fn an_instance_that_is_not_healthy_in_time_has_failed() {
    let mut ledger = begun(with(Some(http()), None));
    summary(&mut ledger);
    fails(&mut ledger, 200, CheckOf::Health);
    // its start time limit counts from the start
    ledger.tick(59_999);
    assert_eq!(state_of(&ledger, 59_999, 1), InstanceState::Starting);
    ledger.tick(60_000);
    assert_eq!(summary(&mut ledger).last().unwrap(), "end 0");
    assert_eq!(state_of(&ledger, 60_000, 1), InstanceState::Restarting);
    assert_eq!(ledger.cell().counts.starting, 0);
    assert_eq!(ledger.next_ms(), None, "nothing is checked any more");
    // however it exits when it is told to end
    ledger.report(60_500, ends(1, 0, 0));
    assert_eq!(
        summary(&mut ledger),
        ["crashed: starts again at once", "launch 1", "restarted"]
    );
    let found = shown(&ledger, 60_500);
    let why = "not healthy within 1m: GET /up: HTTP 503";
    assert_eq!(found.ended.as_deref(), Some(why));
    assert_eq!(
        (found.exit_code, found.state),
        (None, InstanceState::Starting)
    );
    // each start gets the full time
    exists(&mut ledger, 60_600, 1);
    summary(&mut ledger);
    passes(&mut ledger, 120_499, CheckOf::Health);
    assert_eq!(summary(&mut ledger), ["running"]);
}

#[test]
fn failures_in_a_row_end_what_runs() {
    let mut ledger = begun(with(Some(http()), None));
    passes(&mut ledger, 100, CheckOf::Health);
    let mut now_ms = 100;
    let mut check = |ledger: &mut Ledger, passed: bool| {
        summary(ledger);
        now_ms += 30_000;
        next_check(ledger, now_ms);
        assert_eq!(summary(ledger), ["check Health 8080"]);
        if passed {
            passes(ledger, now_ms, CheckOf::Health);
        } else {
            fails(ledger, now_ms, CheckOf::Health);
        }
    };
    for passed in [false, false, true, false, false] {
        check(&mut ledger, passed);
        assert_eq!(summary(&mut ledger), [""; 0]);
    }
    check(&mut ledger, false);
    assert_eq!(summary(&mut ledger), ["end 0"]);
    assert_eq!(shown(&ledger, 180_100).port, None);
    ledger.report(180_600, ends(1, 0, 143));
    let told = last_ran(&mut ledger);
    assert_eq!(told, Some(180_500), "it ran until it had ended");
    let found = shown(&ledger, 180_600);
    assert_eq!(
        found.ended.as_deref(),
        Some("not healthy: GET /up: HTTP 503")
    );
}

/// Returns how long the instance had run, according to the first event of a crash.
fn last_ran(ledger: &mut Ledger) -> Option<u128> {
    let actions = ledger.take_actions();
    let crashed = actions.iter().find_map(|action| match action {
        Action::Event { kind, instance, .. } if *kind == kind::CRASHED => Some(instance.ran),
        _ => None,
    });
    crashed.flatten().map(|ran| ran.0.as_millis())
}

#[test]
fn who_was_healthy_for_long_starts_anew_also_if_its_end_takes_long() {
    for (ran_ms, attempts) in [(HEALTHY_MS, 8), (HEALTHY_MS - 1, 5)] {
        let once = HealthCheck {
            failures: 1,
            interval: Span(Duration::from_millis(ran_ms)),
            ..http()
        };
        let mut ledger = begun(with(Some(once), None));
        let mut now_ms = 100;
        let mut attempt = 0;
        while attempt < 8 && ledger.instance_count() == 1 {
            passes(&mut ledger, now_ms, CheckOf::Health);
            now_ms += ran_ms;
            ledger.tick(now_ms);
            fails(&mut ledger, now_ms, CheckOf::Health);
            now_ms += 9_000;
            ledger.report(now_ms, ends(1, attempt, 0));
            now_ms += 4_000;
            ledger.tick(now_ms);
            attempt += 1;
            if ledger.instance_count() == 1 {
                exists(&mut ledger, now_ms, attempt);
            }
        }
        assert_eq!(attempt, attempts, "after {ran_ms} ms each");
    }
}

#[test]
fn a_stop_of_what_is_being_ended_as_unhealthy_is_a_stop() {
    for (claim, ordered) in [(None, vec![]), (Some(AuctionId::nil()), vec!["end 0"])] {
        let mut ledger = begun(with(Some(http()), None));
        ledger.tick(60_000);
        summary(&mut ledger);
        let stop = Stop {
            claim,
            ..stop("a", &[1])
        };
        assert_eq!(ledger.stop(60_001, &stop).stopped.len(), 1);
        assert_eq!(summary(&mut ledger), ordered);
        assert_eq!(state_of(&ledger, 60_001, 1), InstanceState::Stopping);
        ledger.report(60_100, ends(1, 0, 143));
        assert_eq!(summary(&mut ledger), ["stopped"]);
        assert_eq!(ledger.instance_count(), 0);
    }
}

#[test]
fn what_ends_is_not_checked_any_more() {
    type End = fn(&mut Ledger);
    let ways: [End; 3] = [
        |ledger| ledger.report(500, ends(1, 0, 0)),
        |ledger| {
            ledger.stop(500, &stop("a", &[]));
        },
        |ledger| {
            ledger.drain(500, 0, false);
        },
    ];
    for end in ways {
        let mut ledger = begun(with(Some(http()), Some(http())));
        passes(&mut ledger, 200, CheckOf::Health);
        ledger.tick(200);
        passes(&mut ledger, 300, CheckOf::Ready);
        assert_eq!(ledger.next_ms(), Some(30_200));
        end(&mut ledger);
        assert_eq!(ledger.next_ms(), None);
        summary(&mut ledger);
        // a late result
        for of in [CheckOf::Health, CheckOf::Ready] {
            let failure = None;
            ledger.report(600, report(1, 0, InstanceChange::Checked { of, failure }));
        }
        assert_eq!((summary(&mut ledger).len(), ledger.next_ms()), (0, None));
    }
}

#[test]
fn readiness_is_told_and_ends_nothing() {
    let ready = HealthCheck {
        failures: 2,
        ..http()
    };
    let mut ledger = begun(with(None, Some(ready)));
    assert_eq!(
        summary(&mut ledger),
        ["launch 0", "running", "check Ready 8080"]
    );
    assert_eq!(shown(&ledger, 100).ready, Some(false));
    fails(&mut ledger, 100, CheckOf::Ready);
    next_check(&mut ledger, 2_100);
    passes(&mut ledger, 2_100, CheckOf::Ready);
    assert_eq!(summary(&mut ledger), ["check Ready 8080", "ready"]);
    assert_eq!(shown(&ledger, 2_100).ready, Some(true));
    for (at_ms, told) in [
        (32_100, vec!["check Ready 8080"]),
        (
            62_100,
            vec!["check Ready 8080", "not-ready: GET /up: HTTP 503"],
        ),
        (64_100, vec!["check Ready 8080"]),
        (66_100, vec!["check Ready 8080"]),
    ] {
        next_check(&mut ledger, at_ms);
        fails(&mut ledger, at_ms, CheckOf::Ready);
        assert_eq!(summary(&mut ledger), told);
    }
    let found = shown(&ledger, 66_100);
    assert_eq!(
        (found.state, found.ready),
        (InstanceState::Running, Some(false))
    );
    next_check(&mut ledger, 68_100);
    passes(&mut ledger, 68_100, CheckOf::Ready);
    assert_eq!(summary(&mut ledger), ["check Ready 8080", "ready"]);
    ledger.report(68_200, ends(1, 0, 0));
    assert_eq!(shown(&ledger, 68_200).ready, None);
}

#[test]
fn readiness_is_looked_at_once_it_is_healthy() {
    let mut ledger = begun(with(Some(http()), Some(http())));
    assert_eq!(shown(&ledger, 100).ready, Some(false));
    assert_eq!(summary(&mut ledger), ["launch 0", "check Health 8080"]);
    passes(&mut ledger, 100, CheckOf::Health);
    ledger.tick(100);
    assert_eq!(summary(&mut ledger), ["running", "check Ready 8080"]);
}

#[test]
fn a_check_of_the_process_asks_nobody() {
    let process = HealthCheck::default();
    let mut ledger = begun(with(Some(process.clone()), Some(process)));
    assert_eq!(summary(&mut ledger), ["launch 0", "running", "ready"]);
    assert_eq!(ledger.next_ms(), None);
    assert_eq!(shown(&ledger, 100).ready, Some(true));
}

#[test]
fn a_check_of_a_fixed_port_goes_there() {
    let fixed = HealthCheck {
        port: Some(5_432),
        ..http()
    };
    let mut ledger = begun(with(Some(fixed), None));
    assert_eq!(summary(&mut ledger), ["launch 0", "check Health 5432"]);
}
