//! What a ledger reports about itself and its instances.

use super::*;

fn ids(instances: &[Instance]) -> Vec<u128> {
    instances.iter().map(|i| i.instance.as_u128()).collect()
}

#[test]
fn adopted_work_is_reserved_without_being_judged_and_changes_the_version() {
    let mut ledger = ledger();
    let seq = ledger.seq();
    let huge = Work {
        memory_mb: 5_000,
        ..work(2, "b")
    };
    ledger.adopt([work(1, "a"), huge].into_iter());
    assert_eq!((ledger.instance_count(), ledger.seq()), (2, seq + 2));
    assert_eq!(ledger.cell().available.memory_mb, 1_000 - 100 - 5_000);
    assert!(ledger.recent(0).is_empty(), "no auctioneer waits for it");
    assert_eq!(ledger.incarnation(), LIVES);
}

#[test]
fn instances_are_found_by_app_and_by_id_reserved_or_ended() {
    let mut ledger = ledger();
    let all = vec![work(1, "a"), work(2, "a"), work(3, "b")];
    answers(&mut ledger, 0, &start(all));
    ledger.report(10, ends(2, 0, 0));
    let find = |app: Option<&str>, ids_of: &[u128]| {
        let filter = Instances {
            app: app.map(str::to_owned),
            ids: ids_of.iter().copied().map(InstanceId::from_u128).collect(),
            ..Instances::default()
        };
        ids(&ledger.find_instances(20, &filter))
    };
    assert_eq!(find(None, &[]), [1, 3, 2]);
    assert_eq!(find(Some("a"), &[]), [1, 2]);
    assert_eq!(find(None, &[2, 3, 9]), [3, 2]);
    assert_eq!(find(Some("a"), &[2, 3]), [2]);
    assert!(find(Some("c"), &[1]).is_empty());
    assert_eq!(ids(&ledger.current_instances(20)), [1, 3]);
}

#[test]
fn the_last_64_accepted_ids_are_repeated_for_a_minute() {
    let mut ledger = Ledger::new(
        Cell::new("a", Resources::new(100_000, 100_000, 1_000)),
        LIVES,
        "",
    );
    let all = (1..=70).map(|id| work(id, "a")).collect();
    answers(&mut ledger, 0, &start(all));
    let expected: Vec<InstanceId> = (7..=70).map(InstanceId::from_u128).collect();
    assert_eq!(ledger.recent(RECENT_MS - 1), expected);
    assert!(ledger.recent(RECENT_MS).is_empty());
    answers(&mut ledger, 10, &start(vec![work(71, "a")]));
    let last = ledger.recent(RECENT_MS);
    assert_eq!(last, [InstanceId::from_u128(71)]);
    assert_eq!(ledger.recent(11).len(), RECENT);
}

#[test]
fn a_changed_refusal_has_the_expected_and_the_real_count() {
    let mut ledger = ledger();
    answers(&mut ledger, 0, &start(vec![work(1, "a"), work(2, "a")]));
    let refused = ledger
        .start(1, &start(vec![believing(1, work(3, "a"))]))
        .refused;
    assert_eq!(refused[0].reason, reason::CHANGED);
    assert_eq!((refused[0].needs, refused[0].has), (Some(1), Some(2)));
}

#[test]
fn repeats_later_in_a_message_count_one_by_one() {
    let mut ledger = ledger();
    let held: Vec<Work> = (1..=3).map(|id| work(id, "a")).collect();
    answers(&mut ledger, 0, &start(held.clone()));
    // after two repeats one is still to come, so the auctioneer assumed two
    let message = vec![
        held[0].clone(),
        held[1].clone(),
        believing(2, work(4, "a")),
        held[2].clone(),
    ];
    assert_eq!(answers(&mut ledger, 1, &start(message)), ["+"; 4]);
    // with none to come, it must have known all three
    let message = vec![held[0].clone(), held[1].clone(), held[2].clone()];
    let message = [message, vec![believing(3, work(5, "a"))]].concat();
    assert_eq!(answers(&mut ledger, 2, &start(message))[3], reason::CHANGED);
}

#[test]
fn the_end_of_an_instance_is_reported_as_text_and_number() {
    let told = |change: EndReason| {
        let mut ledger = ledger();
        ledger.start(0, &start(vec![task(1)]));
        ledger.report(5, runs(1, 0));
        ledger.report(10, report(1, 0, InstanceChange::Ended(change)));
        let found = ledger.find_instances(20, &Instances::default());
        (
            found[0].ended.clone().unwrap(),
            found[0].exit_code,
            found[0].signal,
        )
    };
    assert_eq!(told(EndReason::Exit(0)), ("exit 0".into(), Some(0), None));
    assert_eq!(told(EndReason::Exit(3)), ("exit 3".into(), Some(3), None));
    assert_eq!(
        told(EndReason::Signal(9)),
        ("signal 9".into(), None, Some(9))
    );
    let over = "over its memory limit".to_owned();
    assert_eq!(told(EndReason::Over(Limit::Memory)), (over, None, None));
    let long = EndReason::Failed("x".repeat(500));
    assert_eq!(told(long), ("x".repeat(MAX_ENDED_CHARS), None, None));
}

#[test]
fn an_lrp_that_failed_soon_is_not_healthy_however_old_the_cell_is() {
    let mut ledger = ledger();
    let mut now_ms = 4_000;
    ledger.start(now_ms, &start(vec![work(1, "a")]));
    ledger.report(now_ms, ends(1, 0, 1));
    for (attempt, wait_ms) in [(1, 1_000), (2, 2_000)] {
        now_ms += HEALTHY_MS - 1;
        ledger.report(now_ms - HEALTHY_MS + 1, runs(1, attempt));
        ledger.report(now_ms, ends(1, attempt, 1));
        assert_eq!(ledger.next_ms(), Some(now_ms + wait_ms));
        now_ms += wait_ms;
        ledger.tick(now_ms);
    }
}

#[test]
fn restarts_are_as_documented() {
    let page = include_str!("../../../../docs/INSTANCES.md");
    let [0, first, second, third] = RESTART_DELAYS_MS.map(|ms| ms / 1_000) else {
        panic!("the first restart is not immediate");
    };
    let delays = format!("started again at once, then after {first}, {second} and {third} s");
    assert!(page.contains(&delays), "{delays}");
    for text in ["`exit 1`", "`signal 9`", "`over its memory limit`"] {
        assert!(page.contains(text), "{text}");
    }
}
