//! What a cell accepts, refuses and stops.

use placement::Run;

use super::*;

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
        incarnation: Incarnation::nil(),
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
    assert_eq!(ledger.cell().counts.starting, 10);
}

#[test]
fn a_cell_with_more_of_the_app_than_expected_refuses() {
    // reserved before; (id, believed) pairs of the start; answers
    type Case = (
        &'static [u128],
        &'static [(u128, u32)],
        &'static [&'static str],
    );
    let cases: [Case; 8] = [
        (&[], &[(1, 0), (2, 1), (3, 2)], &["+", "+", "+"]),
        (&[9], &[(1, 0)], &["changed"]),
        (&[9], &[(1, 1)], &["+"]),
        // fewer than believed is fine: some have ended
        (&[], &[(1, 5)], &["+"]),
        // the first is wrong by one, and then the second is right
        (&[9], &[(1, 0), (2, 1)], &["changed", "+"]),
        // a repeat of instances that are all or partly reserved
        (&[1, 2], &[(1, 0), (2, 1), (3, 2)], &["+", "+", "+"]),
        (&[2], &[(1, 0), (2, 1), (3, 2)], &["+", "+", "+"]),
        // the same twice in one start
        (&[], &[(1, 0), (1, 0), (2, 1)], &["+", "+", "+"]),
    ];
    for (entry, asked, expected) in cases {
        let mut ledger = ledger();
        ledger.start(0, &start(entry.iter().map(|id| work(*id, "a")).collect()));
        let asked: Vec<Work> = asked
            .iter()
            .map(|(id, believed)| believing(*believed, work(*id, "a")))
            .collect();
        assert_eq!(
            answers(&mut ledger, 0, &start(asked.clone())),
            expected,
            "{entry:?} {asked:?}"
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
    // expired, for another incarnation, while draining: it is accepted because it is reserved
    let late = CellStart {
        expires_ms: CellTime::from_ms(0),
        incarnation: Incarnation::nil(),
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
    let until = |expires_ms: u64| CellStart {
        expires_ms: CellTime::from_ms(expires_ms),
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
    // stopping an app names no ids: later starts are new work
    ledger.stop(20, &stop("b", &[]));
    assert_eq!(answers(&mut ledger, 30, &start(vec![work(3, "b")])), ["+"]);
    // a start that was reserved and stopped, and is sent again
    ledger.stop(40, &stop("a", &[2]));
    ledger.report(50, ends(2, 0, 143));
    assert_eq!(
        answers(&mut ledger, 60, &start(vec![work(2, "a")])),
        ["stopped"]
    );
}

#[test]
fn a_stop_lists_what_matches() {
    // app, indices, ids; indices of the stopped instances
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
fn invalid_work() {
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
        (
            "run.env",
            Work {
                run: Some(Arc::new(placement::Run {
                    command: vec!["x".into()],
                    env: BTreeMap::from([("A=B".to_owned(), String::new())]),
                    ..placement::Run::default()
                })),
                ..work(1, "a")
            },
        ),
        (
            "devices.gpu.numbers",
            Work {
                devices: BTreeMap::from([(
                    "gpu".to_owned(),
                    placement::DeviceShare {
                        amount: 1,
                        numbers: vec![1, 0],
                    },
                )]),
                ..work(1, "a")
            },
        ),
        (
            "extra",
            Work {
                extra: BTreeMap::from([(String::new(), 1)]),
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

#[test]
fn work_without_a_limit_is_refused_where_each_instance_needs_one() {
    let no_memory = Work {
        memory_mb: 0,
        ..work(1, "a")
    };
    let no_disk = Work {
        disk_mb: 0,
        ..work(2, "a")
    };
    let works = start(vec![no_memory, no_disk, work(3, "a")]);
    let refused =
        |field: &str| format!("{field} is 0: this cell takes no instance without a limit");
    let (no_memory, no_disk) = (refused("memory_mb"), refused("disk_mb"));
    for (memory, disk, expected) in [
        (false, false, ["+", "+", "+"]),
        (true, false, [&no_memory, "+", "+"]),
        (false, true, ["+", &no_disk, "+"]),
        (true, true, [&no_memory, &no_disk, "+"]),
    ] {
        let mut ledger = ledger();
        ledger.needs_size(memory, disk);
        assert_eq!(answers(&mut ledger, 0, &works), expected);
    }
}

#[test]
fn a_cell_takes_only_the_forms_that_it_runs() {
    let with = |n: u128, run: Run| Work {
        run: Some(Arc::new(run)),
        ..task(n)
    };
    let works = || {
        let droplet = Run {
            droplet: Some(Arc::default()),
            ..Run::default()
        };
        let staging = Run {
            staging: Some(Arc::default()),
            ..Run::default()
        };
        vec![with(1, Run::default()), with(2, droplet), with(3, staging)]
    };
    let (only, none, stages) = (
        "the cell runs only droplets",
        "the cell runs no droplets",
        "the cell stages no apps",
    );
    for (droplets, droplets_only, staging, expected) in [
        (false, false, false, ["+", none, stages]),
        (true, false, false, ["+", "+", stages]),
        (true, true, false, [only, "+", stages]),
        (false, false, true, ["+", none, "+"]),
    ] {
        let mut cell = Cell::new("a", placement::Resources::new(1_000, 1_000, 10));
        let attributes = cell.attributes_mut();
        attributes.droplets = droplets;
        attributes.droplets_only = droplets_only;
        attributes.staging = staging;
        let mut ledger = Ledger::new(cell, LIVES, "127.0.0.1");
        assert_eq!(answers(&mut ledger, 0, &start(works())), expected);
    }
}
