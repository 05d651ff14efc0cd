use placement::Resources;
use proptest::prelude::*;

use super::*;

const LIVES: Uuid = Uuid::from_u128(1);

fn ledger() -> Ledger {
    let total = Resources::new(1_000, 1_000, 10);
    Ledger::new(Cell::new("a", total), LIVES, "127.0.0.1")
}

fn work(id: u128, app: &str) -> Work {
    Work {
        instance: Uuid::from_u128(id),
        kind: Kind::Lrp,
        app: app.into(),
        index: u32::try_from(id % 1_000).unwrap(),
        memory_mb: 100,
        disk_mb: 10,
        cpu_millis: 0,
        extra: BTreeMap::new(),
        owner: None,
        tags: BTreeMap::new(),
        believed: None,
        run: None,
    }
}

fn task(id: u128) -> Work {
    Work {
        kind: Kind::Task,
        ..work(id, "job")
    }
}

fn believing(believed: u32, work: Work) -> Work {
    Work {
        believed: Some(believed),
        ..work
    }
}

/// A start good until 5,000.
fn start(work: Vec<Work>) -> CellStart {
    CellStart {
        v: 1,
        auction: Uuid::nil(),
        incarnation: LIVES,
        expires_ms: 5_000,
        work,
    }
}

fn stop(app: &str, ids: &[u128]) -> Stop {
    Stop {
        v: 1,
        app: app.into(),
        indices: Vec::new(),
        instances: ids.iter().copied().map(Uuid::from_u128).collect(),
    }
}

fn report(id: u128, attempt: u32, what: What) -> Report {
    Report {
        instance: Uuid::from_u128(id),
        attempt,
        what,
    }
}

fn runs(id: u128, attempt: u32) -> Report {
    let (pid, port) = (Some(7), None);
    report(id, attempt, What::Running { pid, port })
}

fn ends(id: u128, attempt: u32, code: i32) -> Report {
    report(id, attempt, What::Ended(How::Exit(code)))
}

/// What became of each: `+` accepted, else the reason.
fn answers(ledger: &mut Ledger, now_ms: u64, start: &CellStart) -> Vec<String> {
    let answer = ledger.start(now_ms, start);
    start
        .work
        .iter()
        .map(|work| {
            let refused = answer.refused.iter().find(|r| r.instance == work.instance);
            let taken = || {
                assert!(answer.accepted.contains(&work.instance));
                "+".into()
            };
            refused.map_or_else(taken, |refusal| refusal.reason.clone())
        })
        .collect()
}

fn state_of(ledger: &Ledger, now_ms: u64, id: u128) -> InstanceState {
    let all = ledger.instances(now_ms, &Instances::default());
    let id = Uuid::from_u128(id);
    all.iter().rfind(|i| i.instance == id).unwrap().state
}

/// Kinds of what is told, and the launches and ends asked for.
fn summary(ledger: &mut Ledger) -> Vec<String> {
    let summary = |action: &Action| match action {
        Action::Launch { attempt, .. } => format!("launch {attempt}"),
        Action::End { attempt, .. } => format!("end {attempt}"),
        Action::Tell { kind, reason, .. } => match reason {
            Some(reason) => format!("{kind}: {reason}"),
            None => (*kind).to_owned(),
        },
    };
    ledger.take_actions().iter().map(summary).collect()
}

#[test]
fn each_reason_for_a_refusal() {
    let large = Work {
        memory_mb: 1_001,
        disk_mb: 1_001,
        ..work(1, "a")
    };
    let gpu = Work {
        extra: [("gpu".to_owned(), 1)].into(),
        ..work(1, "a")
    };
    let other_life = CellStart {
        incarnation: Uuid::nil(),
        ..start(vec![work(1, "a")])
    };
    for (now_ms, start, reason, needs, has) in [
        (5_001, start(vec![work(1, "a")]), "stale", None, None),
        (0, other_life, "restarted", None, None),
        (
            0,
            start(vec![large]),
            "insufficient resources: disk, memory",
            Some(1_001),
            Some(1_000),
        ),
        (
            0,
            start(vec![gpu]),
            "insufficient resources: gpu",
            Some(1),
            Some(0),
        ),
    ] {
        let mut ledger = ledger();
        let before = (ledger.seq(), ledger.cell().clone());
        let answer = ledger.start(now_ms, &start);
        assert!(answer.accepted.is_empty());
        let refusal = &answer.refused[0];
        assert_eq!(
            (refusal.reason.as_str(), refusal.needs, refusal.has),
            (reason, needs, has)
        );
        assert_eq!((ledger.seq(), ledger.cell().clone()), before, "{reason}");
        assert_eq!(ledger.take_actions(), []);
    }
    let mut ledger = ledger();
    assert_eq!(
        answers(&mut ledger, 5_000, &start(vec![work(1, "a")])),
        ["+"]
    );
}

#[test]
fn without_a_command_only_pretending_cells_start_it() {
    let mut ledger = ledger();
    ledger.needs_run(true);
    let mut run = work(1, "a");
    assert!(answers(&mut ledger, 0, &start(vec![run.clone()]))[0].starts_with("nothing to run"));
    run.run = Some(Arc::new(placement::Run {
        command: vec!["true".into()],
        ..placement::Run::default()
    }));
    assert_eq!(answers(&mut ledger, 0, &start(vec![run])), ["+"]);
}

#[test]
fn what_fits_is_taken_in_the_order_given() {
    let mut ledger = ledger();
    let many = start((1..=12).map(|id| work(id, "a")).collect());
    let answers = answers(&mut ledger, 0, &many);
    assert_eq!(answers.iter().filter(|a| *a == "+").count(), 10);
    assert_eq!(answers[10], "insufficient resources: containers, memory");
    assert_eq!(ledger.cell().available.memory_mb, 0);
    assert_eq!(ledger.cell().starting, 10);
}

#[test]
fn a_cell_that_holds_more_than_believed_refuses() {
    // held before, the start's (id, believed) pairs, the answers
    type Case = (
        &'static [u128],
        &'static [(u128, u32)],
        &'static [&'static str],
    );
    let cases: [Case; 8] = [
        (&[], &[(1, 0), (2, 1), (3, 2)], &["+", "+", "+"]),
        (&[9], &[(1, 0)], &["changed"]),
        (&[9], &[(1, 1)], &["+"]),
        // fewer than believed is fine: something has ended
        (&[], &[(1, 5)], &["+"]),
        // the first is wrong by one, the second then right
        (&[9], &[(1, 0), (2, 1)], &["changed", "+"]),
        // a repeat of what is held already, whole or in part
        (&[1, 2], &[(1, 0), (2, 1), (3, 2)], &["+", "+", "+"]),
        (&[2], &[(1, 0), (2, 1), (3, 2)], &["+", "+", "+"]),
        // the same twice in one start
        (&[], &[(1, 0), (1, 0), (2, 1)], &["+", "+", "+"]),
    ];
    for (held, asked, expected) in cases {
        let mut ledger = ledger();
        ledger.start(0, &start(held.iter().map(|id| work(*id, "a")).collect()));
        let asked: Vec<Work> = asked
            .iter()
            .map(|(id, believed)| believing(*believed, work(*id, "a")))
            .collect();
        assert_eq!(
            answers(&mut ledger, 0, &start(asked.clone())),
            expected,
            "{held:?} {asked:?}"
        );
    }
    // another app, and a task of the same name, do not count
    let mut ledger = ledger();
    ledger.start(
        0,
        &start(vec![
            work(1, "b"),
            Work {
                app: "a".into(),
                ..task(2)
            },
        ]),
    );
    assert_eq!(
        answers(&mut ledger, 0, &start(vec![believing(0, work(3, "a"))])),
        ["+"]
    );
}

#[test]
fn an_instance_id_is_never_started_twice() {
    let mut ledger = ledger();
    let first = start(vec![work(1, "a")]);
    assert_eq!(answers(&mut ledger, 0, &first), ["+"]);
    assert_eq!(summary(&mut ledger), ["launch 0"]);
    let seq = ledger.seq();
    // late, for another life, while draining: it is held, so it is accepted
    let late = CellStart {
        expires_ms: 0,
        incarnation: Uuid::nil(),
        ..first.clone()
    };
    assert_eq!(answers(&mut ledger, 9_000, &late), ["+"]);
    assert_eq!((ledger.seq(), summary(&mut ledger).len()), (seq, 0));
    assert_eq!(ledger.cell().count_of("a"), 1);
}

#[test]
fn a_task_is_remembered_until_its_start_has_expired() {
    let mut ledger = ledger();
    let once = start(vec![task(1)]);
    ledger.start(0, &once);
    ledger.report(10, runs(1, 0));
    ledger.report(20, ends(1, 0, 0));
    assert_eq!(summary(&mut ledger), ["launch 0", "running", "exited"]);
    assert_eq!(answers(&mut ledger, 5_000, &once), ["+"]);
    assert_eq!(summary(&mut ledger), [""; 0]);
    assert_eq!(answers(&mut ledger, 5_001, &once), ["stale"]);
    assert_eq!(ledger.cell().available, ledger.cell().total);
}

#[test]
fn a_repeat_that_expires_later_is_remembered_longer() {
    let until = |expires_ms| CellStart {
        expires_ms,
        ..start(vec![task(1)])
    };
    let mut ledger = ledger();
    ledger.start(0, &until(5_000));
    ledger.start(100, &until(9_000)); // while it runs
    ledger.report(200, ends(1, 0, 0));
    assert_eq!(answers(&mut ledger, 8_000, &until(9_000)), ["+"]);
    assert_eq!(answers(&mut ledger, 8_500, &until(13_000)), ["+"]); // when it is gone
    assert_eq!(answers(&mut ledger, 12_000, &until(13_000)), ["+"]);
    assert_eq!(summary(&mut ledger), ["launch 0", "exited"]);
}

#[test]
fn a_start_that_was_stopped_by_name_does_not_come_back() {
    let mut ledger = ledger();
    assert_eq!(ledger.stop(0, &stop("a", &[1])).stopped, []);
    assert_eq!(
        answers(&mut ledger, 10, &start(vec![work(1, "a"), work(2, "a")])),
        ["stopped", "+"]
    );
    // an app's stop names nobody: later starts are new work
    ledger.stop(20, &stop("b", &[]));
    assert_eq!(answers(&mut ledger, 30, &start(vec![work(3, "b")])), ["+"]);
    // one that was held, stopped and is sent again
    ledger.stop(40, &stop("a", &[2]));
    ledger.report(50, ends(2, 0, 143));
    assert_eq!(
        answers(&mut ledger, 60, &start(vec![work(2, "a")])),
        ["stopped"]
    );
}

#[test]
fn a_stop_tells_what_matches() {
    // app, indices, ids; the indices of what is told to stop
    type Case = (
        &'static str,
        &'static [u32],
        &'static [u128],
        &'static [u32],
    );
    let cases: [Case; 6] = [
        ("a", &[], &[], &[1, 2]),
        ("a", &[2, 7], &[], &[2]),
        ("a", &[], &[1, 3], &[1]),
        ("a", &[2], &[1], &[]),
        ("b", &[], &[], &[3]),
        ("c", &[], &[], &[]),
    ];
    for (app, indices, ids, expected) in cases {
        let mut ledger = ledger();
        ledger.start(0, &start(vec![work(1, "a"), work(2, "a"), work(3, "b")]));
        let stop = Stop {
            indices: indices.to_vec(),
            ..stop(app, ids)
        };
        let told: Vec<u32> = ledger
            .stop(1, &stop)
            .stopped
            .iter()
            .map(|s| s.index)
            .collect();
        assert_eq!(told, expected, "{app} {indices:?} {ids:?}");
        let again: Vec<u32> = ledger
            .stop(2, &stop)
            .stopped
            .iter()
            .map(|s| s.index)
            .collect();
        assert_eq!(again, expected, "again");
        let ended = summary(&mut ledger)
            .iter()
            .filter(|a| *a == "end 0")
            .count();
        assert_eq!(ended, expected.len(), "each is ended once");
    }
}

#[test]
fn an_lrp_is_started_again_after_1_2_and_4_seconds_and_then_given_up() {
    let mut ledger = ledger();
    ledger.start(0, &start(vec![work(1, "a")]));
    let mut now_ms = 0;
    for (attempt, wait_ms) in [(0, 1_000), (1, 2_000), (2, 4_000)] {
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
    ledger.report(now_ms, ends(1, 3, 1));
    assert_eq!(state_of(&ledger, now_ms, 1), InstanceState::Crashed);
    assert_eq!(ledger.cell().available, ledger.cell().total);
    assert_eq!(ledger.next_ms(), None);
    assert_eq!(
        summary(&mut ledger),
        [
            "launch 0",
            "running",
            "crashed: starts again in 1 s",
            "launch 1",
            "restarted",
            "running",
            "crashed: starts again in 2 s",
            "launch 2",
            "restarted",
            "running",
            "crashed: starts again in 4 s",
            "launch 3",
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
        assert_eq!(ledger.next_ms(), Some(now_ms + 1_000));
        now_ms += 1_000;
        ledger.tick(now_ms);
    }
    let shown = &ledger.all_held(now_ms)[0];
    assert_eq!((shown.state, shown.restarts), (InstanceState::Starting, 10));
}

#[test]
fn how_the_kinds_of_ends_are_told() {
    let cases = [
        (work(1, "a"), How::Exit(0), "exited"),
        (
            work(1, "a"),
            How::OverMemory,
            "crashed: starts again in 1 s",
        ),
        (task(1), How::Exit(0), "exited"),
        (task(1), How::Exit(1), "crashed"),
        (task(1), How::Signal(9), "crashed"),
        (task(1), How::Failed("no such program".into()), "crashed"),
    ];
    for (work, how, told) in cases {
        let mut ledger = ledger();
        ledger.start(0, &start(vec![work]));
        ledger.report(0, report(1, 0, What::Ended(how.clone())));
        assert_eq!(summary(&mut ledger), ["launch 0", told]);
        let shown = &ledger.instances(0, &Instances::default())[0];
        assert_eq!(shown.ended, Some(how.to_string()));
    }
}

#[test]
fn reports_of_earlier_starts_and_of_strangers_are_ignored() {
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
    ledger.stop(10, &stop("a", &[]));
    assert_eq!(ledger.held(), 0);
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
    assert!(ledger.drain(100, 1_000));
    assert!(ledger.cell().evacuating);
    assert_eq!(
        answers(&mut ledger, 100, &start(vec![work(3, "a")])),
        ["draining"]
    );
    assert_eq!(ledger.next_ms(), Some(1_100));
    ledger.tick(1_099);
    assert_eq!(summary(&mut ledger), [""; 0]);
    // a second drain says when
    assert!(!ledger.drain(1_099, 0));
    assert_eq!(summary(&mut ledger), ["end 0", "end 0"]);
    assert!(!ledger.drained());
    ledger.report(1_200, ends(1, 0, 143));
    ledger.report(1_200, ends(2, 0, 143));
    assert!(ledger.drained());
    assert_eq!(ledger.next_ms(), None);
}

#[test]
fn an_empty_cell_drains_at_once() {
    let mut ledger = ledger();
    ledger.drain(0, 60_000);
    assert!(ledger.drained());
}

#[test]
fn the_last_64_accepted_are_told() {
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
        (Uuid::from_u128(7), Uuid::from_u128(70))
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
    let all = ledger.instances(599_999, &Instances::default());
    assert_eq!(all.len(), 1_000);
    assert_eq!(all[0].age_ms, 599_999);
    assert_eq!(ledger.all_held(0).len(), 0);
    assert_eq!(ledger.instances(600_000, &Instances::default()).len(), 0);
}

#[test]
fn work_that_no_cell_may_hold() {
    for (field, broken) in [
        (
            "app",
            Work {
                app: "a b".into(),
                ..work(1, "a")
            },
        ),
        (
            "memory_mb",
            Work {
                memory_mb: -1,
                ..work(1, "a")
            },
        ),
        (
            "disk_mb",
            Work {
                disk_mb: 1 << 31,
                ..work(1, "a")
            },
        ),
        (
            "run.command",
            Work {
                run: Some(Arc::default()),
                ..work(1, "a")
            },
        ),
    ] {
        assert_eq!(
            check_work(&broken).map_err(|e| e.field),
            Err(field.to_owned())
        );
    }
    assert_eq!(check_work(&work(1, "a")), Ok(()));
}

/// What can happen to a ledger; ids are few, so that things meet.
#[derive(Clone, Debug)]
enum Happens {
    Start(Vec<(u128, u32)>, u64),
    Stop(u32, Vec<u128>),
    Runs(u128, u32),
    Ends(u128, u32, i32),
    Drain(u64),
    Time(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    let id = || 0..24_u128;
    prop_oneof![
        6 => (prop::collection::vec((id(), 0..4_u32), 1..6), 0..8_000_u64)
            .prop_map(|(work, left)| Happens::Start(work, left)),
        2 => (0..3_u32, prop::collection::vec(id(), 0..3)).prop_map(|(a, ids)| Happens::Stop(a, ids)),
        4 => (id(), 0..3_u32).prop_map(|(id, attempt)| Happens::Runs(id, attempt)),
        4 => (id(), 0..5_u32, 0..2).prop_map(|(id, attempt, code)| Happens::Ends(id, attempt, code)),
        1 => (0..3_000_u64).prop_map(Happens::Drain),
        3 => (0..3_000_u64).prop_map(Happens::Time),
    ]
}

/// The work of an id is always the same; apps, sizes and kinds differ between ids.
fn work_of(id: u128, believed: u32) -> Work {
    let app = ["a", "b", "c"][usize::try_from(id % 3).unwrap()];
    Work {
        kind: if id.is_multiple_of(4) {
            Kind::Task
        } else {
            Kind::Lrp
        },
        memory_mb: 50 * i64::try_from(id % 7).unwrap(),
        cpu_millis: i64::try_from(id % 2).unwrap(),
        owner: id.is_multiple_of(5).then(|| "anna".into()),
        tags: [("role".to_owned(), app.to_owned())].into(),
        believed: (believed < 3).then_some(believed),
        ..work(id, app)
    }
}

/// The cell as it must be, counted anew from what is held.
fn recount(ledger: &Ledger) -> Cell {
    let mut cell = Cell::new("a", ledger.cell.total.clone());
    for held in ledger.held.values() {
        cell.debit(&request_of(&held.work));
    }
    let starting = |held: &&Held| held.state == InstanceState::Starting;
    cell.starting = u32::try_from(ledger.held.values().filter(starting).count()).unwrap();
    cell.evacuating = ledger.cell.evacuating;
    cell
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whatever happens in whatever order: never more promised than there is, the counts are those
    /// of what is held, seq grows with every change, no id runs twice, and repeats change nothing.
    #[test]
    fn holds_under_any_interleaving(all in prop::collection::vec(happens(), 1..120)) {
        let total = Resources { cpu_millis: 3, ..Resources::new(600, 200, 8) };
        let mut ledger = Ledger::new(Cell::new("a", total), LIVES, "");
        let mut now_ms = 0;
        let mut running: BTreeMap<Uuid, u32> = BTreeMap::new();
        for event in all {
            let (seq, cell) = (ledger.seq(), ledger.cell().clone());
            match event {
                Happens::Start(some, left_ms) => {
                    let expires_ms = (now_ms + left_ms).saturating_sub(1_000);
                    let work = some.iter().map(|(id, b)| work_of(*id, *b)).collect();
                    let start = CellStart { expires_ms, ..start(work) };
                    let first = ledger.start(now_ms, &start);
                    prop_assert_eq!(first.seq, ledger.seq());
                    let between = ledger.cell().clone();
                    let again = ledger.start(now_ms, &start);
                    for id in &first.accepted {
                        prop_assert!(again.accepted.contains(id), "accepted, then not");
                    }
                    // what was refused may be taken now (its believed count has come true), but
                    // what was accepted takes nothing more
                    if first.refused.is_empty() {
                        prop_assert_eq!(ledger.cell(), &between);
                    }
                }
                Happens::Stop(app, ids) => {
                    let app = ["a", "b", "c"][app as usize];
                    ledger.stop(now_ms, &stop(app, &ids));
                }
                Happens::Runs(id, attempt) => ledger.report(now_ms, runs(id, attempt)),
                Happens::Ends(id, attempt, code) => {
                    let id_of = Uuid::from_u128(id);
                    if running.get(&id_of) == Some(&attempt) {
                        running.remove(&id_of);
                    }
                    ledger.report(now_ms, ends(id, attempt, code));
                }
                Happens::Drain(after_ms) if now_ms > 20_000 => {
                    ledger.drain(now_ms, after_ms);
                }
                Happens::Drain(_) => {}
                Happens::Time(ms) => {
                    now_ms += ms;
                    ledger.tick(now_ms);
                }
            }
            for action in ledger.take_actions() {
                if let Action::Launch { work, attempt } = action {
                    let before = running.insert(work.instance, attempt);
                    prop_assert_eq!(before, None, "started while it runs");
                }
            }
            let now = ledger.cell();
            prop_assert!(now.available.memory_mb >= 0 && now.available.cpu_millis >= 0);
            prop_assert!(now.available.disk_mb >= Some(0) && now.available.containers >= Some(0));
            prop_assert_eq!(now, &recount(&ledger));
            prop_assert!(ledger.seq() >= seq);
            if *now != cell {
                prop_assert!(ledger.seq() > seq, "changed without saying so");
            }
            prop_assert!(ledger.recent(now_ms).len() <= RECENT);
        }
    }
}
