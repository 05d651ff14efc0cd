use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// What happens to a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Happens {
    Change,
    Discover,
    AtOnce,
}

fn span(ms: u64) -> Span {
    Span(Duration::from_millis(ms))
}

fn cadence() -> Cadence {
    Cadence::new(span(5_000), span(15_000)).unwrap()
}

fn advertiser() -> Advertiser {
    Advertiser::new(cadence(), "z1-cell-0", 7, StateVersion(1), 0)
}

/// Runs until `until_ms`; returns the times of advertisements.
fn run(advertiser: &mut Advertiser, happens: &[(u64, Happens)], until_ms: u64) -> Vec<u64> {
    let mut version = advertiser.version;
    let mut sent = Vec::new();
    let mut happens = happens.iter().peekable();
    // far more than any of these tests needs: reaching this limit is a failure
    for _ in 0..100_000 {
        let happens_at = happens.peek().map_or(u64::MAX, |(at, _)| *at);
        let due_ms = advertiser.next_ms().unwrap_or(u64::MAX);
        let now = happens_at.min(due_ms);
        if now > until_ms {
            return sent;
        }
        let next = happens
            .next_if(|(at, _)| *at <= due_ms)
            .map(|(_, what)| *what);
        let due = match next {
            None => advertiser.handle(now, version, Trigger::Tick),
            Some(Happens::Discover) => advertiser.handle(now, version, Trigger::Discover),
            Some(Happens::AtOnce) => advertiser.handle(now, version, Trigger::AtOnce),
            Some(Happens::Change) => {
                version.0 += 1;
                advertiser.update(now, version)
            }
        };
        if let Some(Due::Advertisement | Due::Change(_)) = due {
            sent.push(now);
            assert!(advertiser.is_advertised(version));
        }
    }
    panic!("timers that never end: {:?}", advertiser.next_ms());
}

#[test]
fn it_advertises_at_once_and_then_within_every_interval() {
    let sent = run(&mut advertiser(), &[], 60_000);
    assert_eq!(sent[0], 0);
    let gaps: Vec<u64> = sent.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.iter().all(|gap| (4_500..=5_000).contains(gap)));
    assert!(
        gaps.iter().any(|gap| *gap != gaps[0]),
        "no jitter: {gaps:?}"
    );
}

#[test]
fn changes_are_advertised_at_once_but_at_most_every_100_ms() {
    let changes: Vec<_> = [1_000, 1_010, 1_099, 1_100, 1_300]
        .map(|at| (at, Happens::Change))
        .to_vec();
    let sent = run(&mut advertiser(), &changes, 2_000);
    assert_eq!(sent, [0, 1_000, 1_100, 1_300]);
    // a change right after an advertisement is covered by the next one
    let sent = run(
        &mut advertiser(),
        &[(1_000, Happens::Change), (1_001, Happens::Change)],
        2_000,
    );
    assert_eq!(sent, [0, 1_000, 1_100]);
}

#[test]
fn a_change_alone_is_advertised_without_the_rest_until_half_an_interval_has_passed() {
    let mut advertiser = advertiser();
    let mut dues = Vec::new();
    let version = StateVersion;
    dues.push(advertiser.handle(0, version(1), Trigger::Tick));
    assert_eq!(advertiser.advertised_before(), None);
    dues.push(advertiser.update(200, version(2)));
    assert_eq!(advertiser.advertised_before(), Some(version(1)));
    dues.push(advertiser.update(2_499, version(4)));
    assert_eq!(advertiser.advertised_before(), Some(version(2)));
    dues.push(advertiser.update(2_600, version(5)));
    dues.push(advertiser.update(2_800, version(6)));
    // whoever asks, and whoever must know at once, gets everything
    dues.push(advertiser.handle(2_850, version(6), Trigger::AtOnce));
    advertiser.handle(2_900, version(6), Trigger::Discover);
    advertiser.update(2_901, version(7));
    dues.push(advertiser.handle(3_150, version(7), Trigger::Tick));
    dues.push(advertiser.update(3_300, version(8)));
    let whole = Some(Due::Advertisement);
    let change = |from| Some(Due::Change(version(from)));
    assert_eq!(
        dues,
        [
            whole,
            change(1),
            change(2),
            whole,
            change(5),
            whole,
            whole,
            change(7)
        ]
    );
}

/// Its advertisement is the answer, too: who asked may not know what has changed.
#[test]
fn a_change_before_the_answer_to_a_discover_is_advertised_with_the_rest() {
    let mut advertiser = advertiser();
    assert!(advertiser.answer_delay_ms > 0, "its answer comes later");
    advertiser.handle(0, StateVersion(1), Trigger::Tick);
    let asked = advertiser.handle(1_000, StateVersion(1), Trigger::Discover);
    assert_eq!(asked, None);
    let change = advertiser.update(1_000, StateVersion(2));
    assert_eq!(change, Some(Due::Advertisement));
    let next = advertiser.update(1_100, StateVersion(3));
    assert_eq!(next, Some(Due::Change(StateVersion(2))));
}

#[test]
fn after_an_advertisement_that_was_not_sent_the_next_one_is_whole() {
    let mut advertiser = advertiser();
    advertiser.handle(0, StateVersion(1), Trigger::Tick);
    let change = advertiser.update(200, StateVersion(2));
    assert_eq!(change, Some(Due::Change(StateVersion(1))));
    advertiser.not_sent();
    assert_eq!(advertiser.advertised_before(), None);
    let next = advertiser.update(400, StateVersion(3));
    assert_eq!(next, Some(Due::Advertisement));
    assert_eq!(advertiser.advertised_before(), None);
}

#[test]
fn discover_is_answered_once_within_250_ms() {
    let asked: Vec<_> = (0..10).map(|i| (1_000 + i, Happens::Discover)).collect();
    let sent = run(&mut advertiser(), &asked, 4_000);
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!((1_000..1_250).contains(&sent[1]));
}

#[test]
fn an_urgent_advertisement_is_not_delayed() {
    let sent = run(
        &mut advertiser(),
        &[(1, Happens::AtOnce), (2, Happens::AtOnce)],
        4_000,
    );
    assert_eq!(sent, [0, 1, 2]);
}

#[test]
fn a_change_answers_a_discover_too() {
    let inputs = [(1_000, Happens::Discover), (1_000, Happens::Change)];
    let sent = run(&mut advertiser(), &inputs, 4_000);
    assert_eq!(sent, [0, 1_000]);
}

#[test]
fn cells_spread_their_answers() {
    let delays: std::collections::BTreeSet<u64> = (0..100)
        .map(|i| {
            Advertiser::new(cadence(), &format!("cell-{i}"), 1, StateVersion(1), 0).answer_delay_ms
        })
        .collect();
    assert!(delays.len() > 50, "{delays:?}");
    assert!(delays.iter().all(|delay| *delay < ANSWER_MS));
}

#[test]
fn a_withdrawn_cell_does_not_advertise() {
    let mut advertiser = advertiser();
    assert!(!advertiser.has_advertised() && !advertiser.has_left());
    let due = advertiser.handle(0, StateVersion(1), Trigger::Tick);
    assert_eq!(due, Some(Due::Advertisement));
    assert_eq!(advertiser.ttl(), span(15_000));
    let due = advertiser.handle(10, StateVersion(2), Trigger::Leave);
    assert_eq!(due, Some(Due::Withdrawal));
    assert!(advertiser.has_left() && advertiser.is_advertised(StateVersion(2)));
    assert_eq!(advertiser.ttl(), Span::default(), "valid no longer");
    for trigger in [
        Trigger::Tick,
        Trigger::AtOnce,
        Trigger::Discover,
        Trigger::Leave,
    ] {
        assert_eq!(advertiser.handle(100_000, StateVersion(2), trigger), None);
    }
    assert_eq!(advertiser.update(100_000, StateVersion(3)), None);
    assert_eq!(
        (advertiser.next_ms(), advertiser.next_news_ms()),
        (None, None)
    );
}

#[test]
fn bids_rely_only_on_an_advertisement_that_was_sent() {
    let mut advertiser = advertiser();
    assert!(!advertiser.is_advertised(StateVersion(1)));
    advertiser.handle(0, StateVersion(1), Trigger::Tick);
    assert!(
        advertiser.is_advertised(StateVersion(1)) && !advertiser.is_advertised(StateVersion(2))
    );
    assert!(advertiser.has_advertised());
    advertiser.not_sent();
    assert!(!advertiser.is_advertised(StateVersion(1)) && !advertiser.has_advertised());
    advertiser.handle(10, StateVersion(4), Trigger::AtOnce);
    assert!(advertiser.is_advertised(StateVersion(4)));
    assert_eq!(
        advertiser.update(20, StateVersion(4)),
        None,
        "known from the last one"
    );
    assert_eq!(advertiser.next_news_ms(), None);
}

#[test]
fn next_ms_is_when_something_is_due() {
    let mut advertiser = advertiser();
    assert_eq!(advertiser.next_ms(), Some(0));
    assert_eq!(advertiser.next_news_ms(), None, "an interval is no news");
    advertiser.handle(0, StateVersion(1), Trigger::Tick);
    let regular_ms = advertiser.next_ms().unwrap();
    assert!((4_500..=5_000).contains(&regular_ms), "{regular_ms}");
    assert_eq!(
        advertiser.update(50, StateVersion(2)),
        None,
        "too soon after the last"
    );
    assert_eq!(advertiser.next_news_ms(), Some(100));
    assert_eq!(advertiser.next_ms(), Some(100));
    assert_eq!(
        advertiser.handle(100, StateVersion(2), Trigger::Tick),
        Some(Due::Change(StateVersion(1)))
    );
    advertiser.handle(110, StateVersion(2), Trigger::Discover);
    let answer_ms = 110 + advertiser.answer_delay_ms;
    assert_eq!(advertiser.next_news_ms(), Some(answer_ms));
    assert_eq!(advertiser.next_ms(), Some(answer_ms));
}

#[test]
fn a_second_discover_is_answered_250_ms_after_the_first_answer() {
    let mut advertiser = advertiser();
    advertiser.handle(0, StateVersion(1), Trigger::Tick);
    advertiser.handle(1_000, StateVersion(1), Trigger::Discover);
    let first_ms = 1_000 + advertiser.answer_delay_ms;
    assert_eq!(advertiser.next_ms(), Some(first_ms));
    advertiser.handle(first_ms, StateVersion(1), Trigger::Tick);
    // asked again at once: not answered before the answers of all cells are over
    advertiser.handle(first_ms + 1, StateVersion(1), Trigger::Discover);
    let due_ms = (first_ms + 1 + advertiser.answer_delay_ms).max(first_ms + ANSWER_MS);
    assert_eq!(advertiser.next_ms(), Some(due_ms));
}

#[test]
fn the_delay_and_the_jitter_of_a_cell_follow_from_its_name_and_the_seed() {
    // frozen: a change here changes every figure ever simulated
    let delay =
        |cell, seed| Advertiser::new(cadence(), cell, seed, StateVersion(1), 0).answer_delay_ms;
    assert_eq!([delay("a", 0), delay("b", 0), delay("a", 1)], [236, 71, 53]);
    assert_eq!(
        run(&mut advertiser(), &[], 16_000),
        [0, 4_548, 9_308, 13_938]
    );
}

#[test]
fn reps_of_old_advertise_no_changes() {
    let cadence = cadence().with_on_change(span(5_000));
    assert!(!cadence.advertises_changes());
    assert!(cadence.with_on_change(span(4_999)).advertises_changes());
    assert!(Cadence::default().advertises_changes());
    let mut old = Advertiser::new(
        cadence.with_on_change(span(60_000)),
        "a",
        1,
        StateVersion(1),
        0,
    );
    let sent = run(&mut old, &[(1_000, Happens::Change)], 4_000);
    assert_eq!(sent, [0]);
    assert!((cadence.mean_interval_ms() - 4_750.0).abs() < 1e-9);
}

proptest! {
    /// Whatever questions and changes occur: no silence longer than an interval, and no storm of answers.
    #[test]
    fn advertisements_are_neither_too_rare_nor_too_frequent(
        gaps in prop::collection::vec((0..400_u64, 0..2_usize), 0..200),
        seed in any::<u64>(),
    ) {
        let mut at = 0;
        let inputs: Vec<_> = gaps
            .iter()
            .map(|(gap, kind)| {
                at += gap;
                (at, [Happens::Change, Happens::Discover][*kind])
            })
            .collect();
        let mut advertiser = Advertiser::new(cadence(), "cell", seed, StateVersion(1), 0);
        let end = at + 20_000;
        let sent = run(&mut advertiser, &inputs, end);
        for pair in sent.windows(2) {
            prop_assert!(pair[1] - pair[0] <= 5_000);
        }
        // both limits combined: at most one per 100 ms, and one more per 250 ms
        for (i, first) in sent.iter().enumerate() {
            let in_a_second = sent[i..].iter().take_while(|at| **at < first + 1_000).count();
            prop_assert!(in_a_second <= 15, "{} in a second", in_a_second);
        }
        // every change is advertised within 100 ms, every discover answered within 500 ms
        for (at, what) in &inputs {
            let within = if *what == Happens::Change { 100 } else { 2 * ANSWER_MS };
            prop_assert!(sent.iter().any(|s| s >= at && *s <= at + within), "{:?} at {}", what, at);
        }
    }
}
