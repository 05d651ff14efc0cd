use std::time::Duration;

use placement::Resources;
use shared::{
    AuctionId, Incarnation, InstanceId,
    clock::CellTime,
    wire::{CellStart, InstanceState, Work, to_bytes},
};

use super::*;
use crate::ledger::{EndReason, ExecutorOrder, InstanceChange};

const LIFE: Incarnation = Incarnation::from_u128(1);

fn seconds(seconds: u64) -> Span {
    Span(Duration::from_secs(seconds))
}

fn machine() -> CellMachine {
    machine_since(0)
}

fn machine_since(now_ms: u64) -> CellMachine {
    let ledger = Ledger::new(
        Cell::new("a", Resources::new(1_000, 1_000, 10)),
        LIFE,
        "127.0.0.1",
    );
    let settings = CellSettings {
        cadence: Cadence::default(),
        drain_deadline: seconds(30),
        seed: 1,
    };
    CellMachine::new(ledger, settings, now_ms)
}

fn work(id: u128) -> Work {
    Work::new(InstanceId::from_u128(id), "web", 100, 10)
}

fn start(machine: &mut CellMachine, now_ms: u64, ids: &[u128]) {
    let start = CellStart {
        v: shared::VERSION,
        auction: AuctionId::nil(),
        incarnation: LIFE,
        expires_ms: CellTime::from_ms(now_ms + 5_000),
        work: ids.iter().map(|id| work(*id)).collect(),
    };
    let answer = machine.start(now_ms, &to_bytes(&start)).unwrap();
    assert_eq!(answer.accepted.len(), ids.len());
}

fn report(machine: &mut CellMachine, now_ms: u64, id: u128, change: InstanceChange) {
    let report = ExecutorReport {
        instance: InstanceId::from_u128(id),
        attempt: 0,
        change,
    };
    machine.take(now_ms, CellInput::Report(report));
}

fn running(machine: &mut CellMachine, now_ms: u64, id: u128) {
    let (pid, port) = (Some(7), None);
    report(machine, now_ms, id, InstanceChange::Running { pid, port });
}

fn tick(machine: &mut CellMachine, now_ms: u64) -> Vec<String> {
    machine.take(now_ms, CellInput::Tick);
    run(machine, now_ms)
}

/// Runs until there is nothing to do, like a driver.
fn run(machine: &mut CellMachine, now_ms: u64) -> Vec<String> {
    let mut said = Vec::new();
    loop {
        let outputs = machine.run(now_ms);
        if outputs.is_empty() {
            return said;
        }
        said.extend(outputs.iter().map(text));
    }
}

fn text(output: &CellOutput) -> String {
    match output {
        CellOutput::Advertise(advert) => {
            assert_eq!(advert.ttl, seconds(15));
            format!(
                "advertise {}",
                advert.cell.counts.apps.values().sum::<u32>()
            )
        }
        CellOutput::AdvertiseChange(change) => {
            assert_eq!(change.ttl, seconds(15));
            format!("advertise change {:?}", change.change.apps)
        }
        CellOutput::Withdraw(advert) => format!("withdraw, ttl {:?}", advert.ttl.0),
        CellOutput::Result(result) => format!("result: {}", result.ended),
        CellOutput::Execute(ExecutorOrder::Launch { work, attempt }) => {
            format!("launch {} {attempt}", work.instance)
        }
        CellOutput::Execute(ExecutorOrder::End {
            instance,
            attempt,
            at_once,
        }) => {
            let how = if *at_once { "kill" } else { "end" };
            format!("{how} {instance} {attempt}")
        }
        CellOutput::Execute(ExecutorOrder::Check { instance, of, .. }) => {
            format!("check {of:?} of {instance}")
        }
        CellOutput::Event(event) => format!("event {} {}", event.kind, event.count),
        CellOutput::AskNamesake => "ask who has our name".to_owned(),
    }
}

fn id(number: u128) -> String {
    InstanceId::from_u128(number).to_string()
}

#[test]
fn an_instance_that_starts_at_once_is_advertised_once_as_running() {
    let mut machine = machine();
    assert_eq!(machine.next_ms(), Some(0));
    assert_eq!(tick(&mut machine, 0), ["advertise 0"]);
    assert!(machine.is_advertised());
    start(&mut machine, 1_000, &[1]);
    assert!(!machine.is_advertised());
    let launch = format!("launch {} 0", id(1));
    let first = machine.run(1_000);
    assert_eq!(first.iter().map(text).collect::<Vec<_>>(), [launch]);
    running(&mut machine, 1_000, 1);
    let next = machine.run(1_000);
    let [CellOutput::AdvertiseChange(change)] = &next[..] else {
        panic!("{next:?}");
    };
    let change = &change.change;
    assert_eq!((change.starting, change.apps["web"]), (0, 1));
    assert!(machine.is_advertised());
    assert!(machine.run(1_000).is_empty());
    // its event is collected for 100 ms
    assert_eq!(machine.next_ms(), Some(1_100));
    assert!(run(&mut machine, 1_099).is_empty());
    assert_eq!(run(&mut machine, 1_100), ["event running 1"]);
}

#[test]
fn a_bid_is_unchanged_only_if_the_last_advertisement_was_sent() {
    let mut machine = machine();
    let auction = AuctionId::from_u128(9);
    let full = |machine: &CellMachine| match machine.bid(5, auction).unwrap() {
        CellBid::Full(advert) => {
            assert_eq!(advert.auction, Some(auction));
            true
        }
        CellBid::Change(_) => panic!("a change since what?"),
        CellBid::Unchanged(bid) => {
            assert_eq!((bid.auction, bid.seq), (auction, machine.ledger().seq()));
            false
        }
    };
    assert!(full(&machine), "nothing is advertised yet");
    tick(&mut machine, 0);
    assert!(!full(&machine));
    machine.take(1, CellInput::NotSent);
    assert!(full(&machine));
    machine.take(2, CellInput::Reconnected);
    assert_eq!(run(&mut machine, 2), ["advertise 0"]);
    assert!(!full(&machine));
    start(&mut machine, 3, &[1]);
    assert!(full(&machine), "its state is another one");
}

#[test]
fn a_bid_says_what_has_changed_since_the_advertisement_before_the_last_one() {
    let mut machine = machine();
    let bid = |machine: &CellMachine, now_ms| {
        let auction = AuctionId::from_u128(9);
        match machine.bid(now_ms, auction).unwrap() {
            CellBid::Change(change) => {
                assert_eq!(change.auction, Some(auction));
                let apps = change.change.apps.clone();
                let recent: Vec<String> = change.recent.iter().map(ToString::to_string).collect();
                Some((change.since, change.seq, recent, apps))
            }
            CellBid::Full(_) => None,
            CellBid::Unchanged(bid) => panic!("{bid:?}"),
        }
    };
    tick(&mut machine, 0);
    start(&mut machine, 500, &[1]);
    assert_eq!(bid(&machine, 500), None, "there is one advertisement only");
    run(&mut machine, 500);
    start(&mut machine, 510, &[2]);
    let web = |count| [("web".to_owned(), count)].into();
    let since_first = (1, 3, vec![id(1), id(2)], web(2));
    assert_eq!(bid(&machine, 510), Some(since_first));
    tick(&mut machine, 600);
    start(&mut machine, 610, &[3]);
    let since_second = (2, 4, vec![id(2), id(3)], web(3));
    assert_eq!(bid(&machine, 610), Some(since_second));
    // what is not counted is not told as a change
    machine.cordon(620, br#"{"v":1}"#).unwrap();
    machine.uncordon(620, br#"{"v":1}"#).unwrap();
    start(&mut machine, 630, &[4]);
    assert_eq!(bid(&machine, 630), None);
}

/// Managers have less time when the rep ends than when an operator drains the cell.
#[test]
fn a_rep_that_ends_says_so_at_once_also_while_it_drains() {
    for drains_before in [false, true] {
        let mut machine = machine();
        tick(&mut machine, 0);
        start(&mut machine, 1_000, &[1]);
        running(&mut machine, 1_000, 1);
        run(&mut machine, 1_000);
        run(&mut machine, 1_100);
        if drains_before {
            machine.drain(1_500, b"{}").unwrap();
            run(&mut machine, 1_500);
        }
        assert!(!machine.state(1_500, None).leaving);
        machine.take(2_000, CellInput::LeaveGently(10_000));
        let told = machine
            .out
            .iter()
            .any(|output| matches!(output, CellOutput::Advertise(advert) if advert.leaving));
        assert!(told, "{drains_before}");
    }
}

#[test]
fn a_drain_is_advertised_at_once_and_ends_everything_at_its_deadline() {
    let mut machine = machine();
    tick(&mut machine, 0);
    start(&mut machine, 1_000, &[1, 2]);
    running(&mut machine, 1_000, 1);
    running(&mut machine, 1_000, 2);
    run(&mut machine, 1_000);
    run(&mut machine, 1_100);
    let answer = machine.drain(2_000, b"{}").unwrap();
    assert_eq!((answer.instances, answer.deadline), (2, seconds(30)));
    let said = run(&mut machine, 2_000);
    assert_eq!(said, ["advertise 2", "event cell-draining 2"]);
    assert!(machine.ledger().cell().evacuating);
    // a second drain causes no event, but its deadline counts
    let answer = machine.drain(2_001, br#"{"deadline":"5s"}"#).unwrap();
    assert_eq!(answer.deadline, seconds(5));
    assert!(run(&mut machine, 2_001).is_empty());
    assert_eq!(tick(&mut machine, 6_900), ["advertise 2"]);
    assert!(tick(&mut machine, 7_000).is_empty());
    assert_eq!(machine.next_ms(), Some(7_001));
    let ends = [format!("end {} 0", id(1)), format!("end {} 0", id(2))];
    assert_eq!(tick(&mut machine, 7_001), ends);
    report(
        &mut machine,
        7_010,
        1,
        InstanceChange::Ended(EndReason::Signal(15)),
    );
    assert!(!machine.ledger().is_drained());
    assert_eq!(run(&mut machine, 7_010), [r#"advertise change {"web": 1}"#]);
    report(
        &mut machine,
        7_020,
        2,
        InstanceChange::Ended(EndReason::Signal(15)),
    );
    assert!(machine.ledger().is_drained());
    // on close, ended instances are reported before the withdrawal
    let said: Vec<String> = machine.close(7_020).iter().map(text).collect();
    assert_eq!(said, ["event stopped 2", "withdraw, ttl 0ns"]);
}

#[test]
fn the_end_of_an_instance_is_published_before_a_heartbeat_without_it() {
    let mut machine = machine();
    tick(&mut machine, 0);
    start(&mut machine, 1_000, &[1]);
    run(&mut machine, 1_000);
    running(&mut machine, 1_000, 1);
    let ended = InstanceChange::Ended(EndReason::Exit(0));
    report(&mut machine, 1_050, 1, ended);
    assert!(machine.current_instances(1_050).is_empty());
    // without a heartbeat, events are collected for 100 ms
    let said: Vec<String> = machine.before_heartbeat(1_050).iter().map(text).collect();
    assert_eq!(said, ["event running 1", "event exited 1"]);
    assert!(machine.before_heartbeat(1_050).is_empty());
}

#[test]
fn shutdown_withdraws_first_and_ends_bidding() {
    let mut machine = machine();
    tick(&mut machine, 0);
    start(&mut machine, 1_000, &[1]);
    run(&mut machine, 1_000);
    machine.take(2_000, CellInput::Leave);
    let said = run(&mut machine, 2_000);
    assert_eq!(said, ["withdraw, ttl 0ns", &format!("end {} 0", id(1))]);
    assert_eq!(machine.bid(2_001, AuctionId::nil()), None);
    assert_eq!(machine.state(2_001, None).ttl, Span::default());
    for input in [CellInput::Discover, CellInput::Reconnected, CellInput::Tick] {
        machine.take(100_000, input);
    }
    assert!(run(&mut machine, 100_000).is_empty());
    report(
        &mut machine,
        100_001,
        1,
        InstanceChange::Ended(EndReason::Exit(0)),
    );
    let said: Vec<String> = machine.close(100_001).iter().map(text).collect();
    assert_eq!(said, ["event stopped 1"], "it has withdrawn already");
}

#[test]
fn what_operators_change_is_advertised_at_once() {
    let mut machine = machine();
    tick(&mut machine, 0);
    let mut cell = machine.ledger().cell().clone();
    machine.describe(10, &cell);
    assert!(run(&mut machine, 10).is_empty(), "nothing changed");
    let seq = machine.ledger().seq();
    cell.attributes_mut().zone = "z9".into();
    machine.describe(10, &cell);
    assert_eq!(run(&mut machine, 10), ["advertise 0"]);
    assert_eq!(machine.ledger().cell().zone, "z9");
    assert_eq!(machine.ledger().seq(), seq + 1, "it is news to everybody");
}

#[test]
fn discover_is_answered_within_a_while() {
    let mut machine = machine();
    tick(&mut machine, 0);
    let regular_ms = machine.next_ms().unwrap();
    machine.take(1_000, CellInput::Discover);
    assert!(run(&mut machine, 1_000).is_empty());
    let answer_ms = machine.next_ms().unwrap();
    assert!(answer_ms < 1_250 && answer_ms < regular_ms, "{answer_ms}");
    assert_eq!(tick(&mut machine, answer_ms), ["advertise 0"]);
}

#[test]
fn malformed_messages_change_nothing() {
    let mut machine = machine();
    start(&mut machine, 0, &[1]);
    run(&mut machine, 0);
    for body in [
        r#"{"app":"web","index":0}"#,
        r#"{"app":"web","indices":[]}"#,
    ] {
        assert!(machine.stop(1, body.as_bytes()).is_err(), "{body}");
    }
    assert!(machine.drain(1, br#"{"deadline":5}"#).is_err());
    assert!(machine.start(1, b"{}").is_err());
    assert!(machine.instances(1, br#"{"ids":1}"#, 1_000).is_err());
    let says = "ap: \"web\" is not allowed; expected app, ids, id_prefixes or ids_only";
    let misspelt = machine.instances(1, br#"{"ap":"web"}"#, 1_000);
    assert_eq!(misspelt.unwrap_err().message, says);
    let instances = machine.current_instances(1);
    assert_eq!(instances[0].state, InstanceState::Starting);
    assert!(run(&mut machine, 1).is_empty());
    let stopped = machine.stop(3, br#"{"app":"web"}"#).unwrap();
    assert_eq!(stopped.stopped.len(), 1);
    assert_eq!(run(&mut machine, 3), [format!("end {} 0", id(1))]);
}

/// Auctioneers compare what cells run: instances that are being stopped do not count.
#[test]
fn ids_are_listed_of_what_has_not_ended() {
    let mut machine = machine();
    let [a, b, c] = [1, 2, 3].map(|n: u128| n << 80);
    start(&mut machine, 0, &[a, b, c]);
    running(&mut machine, 1, a);
    let stop = format!(r#"{{"app":"web","instances":["{}"]}}"#, work(b).instance);
    machine.stop(2, stop.as_bytes()).unwrap();
    report(
        &mut machine,
        3,
        c,
        InstanceChange::Ended(EndReason::Exit(1)),
    );
    let asked = br#"{"ids_only":true}"#;
    let answers = machine.instances(4, asked, 1_000).unwrap();
    let [answer] = &answers[..] else {
        panic!("{answers:?}");
    };
    assert!(answer.instances.is_empty());
    // c is being restarted
    assert_eq!(answer.ids.numbers(), [1, 3]);
    let of_another_app = machine.instances(4, br#"{"app":"db","ids_only":true}"#, 1_000);
    assert!(of_another_app.unwrap()[0].ids.is_empty());
    // in as many messages as necessary
    let answers = machine.instances(4, asked, 8).unwrap();
    let parts = answers
        .iter()
        .map(|a| (a.part, a.parts, a.more, a.ids.numbers()));
    let parts: Vec<_> = parts.collect();
    assert_eq!(parts, [(1, 2, true, &[1][..]), (2, 2, false, &[3][..])]);
}

#[test]
fn lists_are_bounded_and_the_error_names_the_field() {
    assert_eq!(bounded("work", 10, 10), Ok(()));
    let error = bounded("work", 11, 10).unwrap_err();
    assert_eq!(error.field.as_deref(), Some("work"));
    assert_eq!(error.message, "work: 11 entries; expected at most 10");
}

#[test]
fn a_start_with_invalid_work_names_the_field() {
    let mut machine = machine();
    let start = CellStart {
        v: shared::VERSION,
        auction: AuctionId::nil(),
        incarnation: LIFE,
        expires_ms: CellTime::from_ms(5_000),
        work: vec![
            work(1),
            Work {
                memory_mb: -1,
                ..work(2)
            },
        ],
    };
    let error = machine.start(0, &to_bytes(&start)).unwrap_err();
    assert_eq!(error.field.as_deref(), Some("work[1].memory_mb"));
    assert_eq!(machine.ledger().instance_count(), 0);
}

#[test]
fn instances_are_split_over_messages_and_all_but_the_last_have_more() {
    let mut machine = machine();
    start(&mut machine, 0, &[1, 2, 3]);
    let one = to_bytes(&machine.current_instances(0)[0]).len() + 1;
    for (max_bytes, counts) in [
        (3 * one, vec![3]),
        (3 * one - 1, vec![2, 1]),
        (2 * one, vec![2, 1]),
        (one, vec![1, 1, 1]),
        (1, vec![1, 1, 1]),
    ] {
        let messages = machine.instances(0, b"", max_bytes).unwrap();
        let found: Vec<usize> = messages.iter().map(|m| m.instances.len()).collect();
        assert_eq!(found, counts, "{max_bytes}");
        let more: Vec<bool> = messages.iter().map(|m| m.more).collect();
        let last = more.len() - 1;
        assert!(more[..last].iter().all(|more| *more) && !more[last]);
    }
    let none = machine.instances(0, br#"{"app":"x"}"#, 1_000).unwrap();
    assert_eq!((none.len(), none[0].instances.len()), (1, 0));
}

#[test]
fn ages_of_two_reps_of_one_name_are_compared_not_their_times() {
    let from = |age_s: u64| Envelope {
        v: shared::VERSION,
        cell: "a".into(),
        auction: None,
        incarnation: Incarnation::from_u128(9),
        seq: 1,
        since: None,
        clock_ms: CellTime::from_ms(age_s * 1_000),
        ttl: Some(seconds(15)),
        recent: Vec::new(),
        unchanged: false,
    };
    let asks = |machine: &mut CellMachine, now_s: u64, age_s: u64| {
        machine.take(now_s * 1_000, CellInput::Advertised(from(age_s)));
        let said = run(machine, now_s * 1_000);
        said.contains(&"ask who has our name".to_owned())
    };
    let mut machine = machine_since(1_000_000);
    // 9 s old: still new, while the other one was there before
    assert!(asks(&mut machine, 1_009, 500));
    assert_eq!(machine.namesake(), None, "not before it answers");
    machine.take(1_010_000, CellInput::NamesakeAnswered(from(501)));
    assert_eq!(machine.namesake(), Some(Incarnation::from_u128(9)));

    let mut machine = machine_since(1_000_000);
    // 100 s old: the other one is older and leaves itself
    assert!(!asks(&mut machine, 1_100, 500));
    assert!(!asks(&mut machine, 1_108, 508));
    assert!(!asks(&mut machine, 1_116, 516));
}
