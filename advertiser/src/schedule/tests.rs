use proptest::prelude::*;

use super::*;

fn span(ms: u64) -> Span {
    Span(Duration::from_millis(ms))
}

fn cadence() -> Cadence {
    Cadence::new(span(5_000), span(15_000)).unwrap()
}

fn schedule() -> Schedule {
    Schedule::new(cadence(), "z1-cell-0", 7, 0)
}

/// Runs until `until_ms` with inputs at their times; returns when it advertised.
fn run(schedule: &mut Schedule, inputs: &[(u64, Input)], until_ms: u64) -> Vec<u64> {
    let mut sent = Vec::new();
    let mut inputs = inputs.iter().peekable();
    loop {
        let input_at = inputs.peek().map_or(u64::MAX, |(at, _)| *at);
        let due = schedule.next_ms().unwrap_or(u64::MAX);
        let now = input_at.min(due);
        if now > until_ms {
            return sent;
        }
        let input = if input_at <= due {
            inputs.next().map_or(Input::Tick, |(_, input)| *input)
        } else {
            Input::Tick
        };
        if schedule.handle(now, input) == Some(Output::Advertise) {
            sent.push(now);
        }
    }
}

#[test]
fn an_interval_over_half_the_ttl_is_refused() {
    for (interval, ttl, fine) in [
        (5_000, 15_000, true),
        (5_000, 10_000, true),
        (5_001, 10_000, false),
        (5_000, 0, false),
        (0, 15_000, false),
        (10, 20, true),
    ] {
        let made = Cadence::new(span(interval), span(ttl));
        assert_eq!(made.is_ok(), fine, "interval {interval} ttl {ttl}");
        if let Err(e) = made {
            assert_eq!(e.field, "interval");
        }
    }
}

#[test]
fn it_is_heard_at_once_and_then_within_every_interval() {
    let sent = run(&mut schedule(), &[], 60_000);
    assert_eq!(sent[0], 0);
    let gaps: Vec<u64> = sent.windows(2).map(|w| w[1] - w[0]).collect();
    assert!(gaps.iter().all(|gap| (4_500..=5_000).contains(gap)));
    assert!(
        gaps.iter().any(|gap| *gap != gaps[0]),
        "no jitter: {gaps:?}"
    );
}

#[test]
fn changes_are_told_at_once_but_not_more_often_than_every_100_ms() {
    let changes: Vec<_> = [1_000, 1_010, 1_099, 1_100, 1_300]
        .map(|at| (at, Input::Changed))
        .to_vec();
    let sent = run(&mut schedule(), &changes, 2_000);
    assert_eq!(sent, [0, 1_000, 1_100, 1_300]);
    // one that comes with an advertisement just sent is told by the next one
    let sent = run(
        &mut schedule(),
        &[(1_000, Input::Changed), (1_001, Input::Changed)],
        2_000,
    );
    assert_eq!(sent, [0, 1_000, 1_100]);
}

#[test]
fn discover_is_answered_once_within_250_ms() {
    let asked: Vec<_> = (0..10).map(|i| (1_000 + i, Input::Discover)).collect();
    let sent = run(&mut schedule(), &asked, 4_000);
    assert_eq!(sent.len(), 2, "{sent:?}");
    assert!((1_000..1_250).contains(&sent[1]));
}

#[test]
fn a_change_answers_a_discover_too() {
    let inputs = [(1_000, Input::Discover), (1_000, Input::Changed)];
    let sent = run(&mut schedule(), &inputs, 4_000);
    assert_eq!(sent, [0, 1_000]);
}

#[test]
fn cells_spread_their_answers() {
    let delays: std::collections::BTreeSet<u64> = (0..100)
        .map(|i| Schedule::new(cadence(), &format!("cell-{i}"), 1, 0).answer_delay_ms)
        .collect();
    assert!(delays.len() > 50, "{delays:?}");
    assert!(delays.iter().all(|delay| *delay < ANSWER_MS));
}

#[test]
fn who_has_left_says_nothing_more() {
    let mut schedule = schedule();
    assert_eq!(schedule.handle(0, Input::Tick), Some(Output::Advertise));
    assert_eq!(schedule.handle(10, Input::Leave), Some(Output::Withdraw));
    for input in [
        Input::Tick,
        Input::Changed,
        Input::AtOnce,
        Input::Discover,
        Input::Leave,
    ] {
        assert_eq!(schedule.handle(100_000, input), None);
    }
    assert_eq!(schedule.next_ms(), None);
}

proptest! {
    /// Whatever is asked and changed: no silence longer than an interval, no answer storm.
    #[test]
    fn never_silent_and_never_a_storm(
        gaps in prop::collection::vec((0..400_u64, 0..2_usize), 0..200),
        seed in any::<u64>(),
    ) {
        let mut at = 0;
        let inputs: Vec<_> = gaps
            .iter()
            .map(|(gap, kind)| {
                at += gap;
                (at, [Input::Changed, Input::Discover][*kind])
            })
            .collect();
        let mut schedule = Schedule::new(cadence(), "cell", seed, 0);
        let end = at + 20_000;
        let sent = run(&mut schedule, &inputs, end);
        for pair in sent.windows(2) {
            prop_assert!(pair[1] - pair[0] <= 5_000);
        }
        // the two limits together: at most one per 100 ms and one more per 250 ms
        for (i, first) in sent.iter().enumerate() {
            let in_a_second = sent[i..].iter().take_while(|at| **at < first + 1_000).count();
            prop_assert!(in_a_second <= 15, "{} in a second", in_a_second);
        }
        // every change is told within 100 ms, every discover answered within 500 ms
        for (at, input) in &inputs {
            let within = if *input == Input::Changed { 100 } else { 2 * ANSWER_MS };
            prop_assert!(sent.iter().any(|s| s >= at && *s <= at + within), "{:?} at {}", input, at);
        }
    }
}
