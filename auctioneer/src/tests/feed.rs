use std::{collections::BTreeSet, sync::Arc, time::Duration};

use placement::{Job, Request};

use super::world::TestCell;
use crate::{
    Counters,
    feed::{Debit, Feed, MAX_APPS, MAX_REPORT_BYTES, Received, ReportKind},
};
use shared::InstanceId;
use shared::{AuctionId, Incarnation, clock::CellTime};

/// A feed with a clock, for a sequence of reports.
pub(super) struct Bench {
    pub(super) feed: Feed,
    pub(super) counters: Counters,
    pub(super) now_ms: u64,
}

impl Bench {
    pub(super) fn new() -> Self {
        let mut feed = Feed::default();
        feed.evidence(0);
        Self {
            feed,
            counters: Counters::default(),
            now_ms: 0,
        }
    }

    pub(super) fn receive(&mut self, cell: &TestCell) -> Received {
        let name = cell.cell.cell.clone();
        self.receive_on(&name, &cell.report(None))
    }

    pub(super) fn receive_on(&mut self, subject: &str, body: &[u8]) -> Received {
        self.feed.evidence(self.now_ms);
        let counters = &mut self.counters;
        self.feed.receive(
            self.now_ms,
            ReportKind::Advert,
            Some(subject),
            body,
            counters,
        )
    }

    pub(super) fn pass(&mut self, ms: u64) -> Vec<Arc<str>> {
        let end_ms = self.now_ms + ms;
        let mut lost = Vec::new();
        while self.now_ms < end_ms {
            self.now_ms = end_ms.min(self.now_ms + 1_000);
            self.feed.evidence(self.now_ms);
            let expired = self.feed.expire(self.now_ms, &mut self.counters);
            lost.extend(expired.into_iter().map(|cell| cell.name));
        }
        lost
    }

    pub(super) fn free(&self) -> i64 {
        self.feed.pool().get("c").unwrap().available.memory_mb
    }

    pub(super) fn debit(&mut self, instance: u128, memory_mb: i64) {
        let expires_ms = self
            .feed
            .expires_ms("c", self.now_ms, Duration::from_secs(5));
        self.feed.debit(
            "c",
            Debit {
                instance: InstanceId::from_u128(instance),
                job: Job {
                    request: Arc::new(Request::new("app", memory_mb, 1)),
                    index: 0,
                },
                devices: None,
                answered_seq: None,
                expires_ms,
            },
        );
    }
}

#[test]
fn invalid_reports_are_dropped_and_counted() {
    let good = TestCell::new("c", 100);
    let text = |cell: &TestCell| String::from_utf8(cell.report(None).to_vec()).unwrap();
    let no_ttl = text(&good).replace(r#""ttl":"15s","#, "");
    let other_version = text(&good).replace(r#""v":1,"#, r#""v":2,"#);
    let mut many_apps = good.clone();
    let apps = (0..=MAX_APPS).map(|n| (format!("a{n}"), 1));
    many_apps.cell.counts.apps = apps.collect();
    let mut negative = good.clone();
    negative.cell.total.memory_mb = -1;
    let padded = format!("{}{}", text(&good), " ".repeat(MAX_REPORT_BYTES));
    let mut expected = Counters::default();
    let mut bench = Bench::new();
    for (what, subject, body, count) in [
        ("garbage", "c", "garbage".to_owned(), "malformed"),
        ("another JSON", "c", "[1,2]".to_owned(), "malformed"),
        ("an empty body", "c", String::new(), "malformed"),
        ("no ttl", "c", no_ttl, "malformed"),
        ("v: 2 is not allowed", "c", other_version, "malformed"),
        ("a negative total", "c", text(&negative), "malformed"),
        ("another cell's subject", "d", text(&good), "wrong_subject"),
        ("too many apps", "c", text(&many_apps), "too_large"),
        ("too many bytes", "c", padded, "too_large"),
    ] {
        let mut received = bench.receive_on(subject, body.as_bytes());
        let error = received.error.take().map(|error| error.to_string());
        assert_eq!(received, Received::default(), "{what}");
        assert_eq!(error.is_some(), count == "malformed", "{what}");
        if let (true, Some(error)) = (what.starts_with("v:"), error) {
            assert!(error.starts_with(what), "{error}");
        }
        expected.reports += 1;
        match count {
            "malformed" => expected.dropped_malformed += 1,
            "wrong_subject" => expected.dropped_wrong_subject += 1,
            _ => expected.dropped_too_large += 1,
        }
        assert_eq!(bench.counters, expected, "{what}");
        assert!(bench.feed.pool().is_empty(), "{what}");
    }
}

#[test]
fn the_same_version_only_renews_the_lease() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    assert!(bench.receive(&cell).joined);
    let version = bench.feed.version();
    bench.pass(10_000);
    // the same version with different content: it is not read again
    cell.cell.available.memory_mb = 7;
    cell.clock_ms = CellTime::from_ms(11_000);
    assert!(!bench.receive(&cell).joined);
    assert_eq!((bench.free(), bench.counters.renewed), (100, 1));
    assert_eq!(
        bench.feed.version(),
        version,
        "nothing new for waiting work"
    );
    assert_eq!(
        bench
            .feed
            .expires_ms("c", bench.now_ms + 3, Duration::from_secs(5)),
        CellTime::from_ms(11_000 + 3 + 5_000)
    );
    assert!(bench.pass(14_699).is_empty(), "renewed at 10 s");
    assert_eq!(bench.pass(1).len(), 1, "gone before its ttl is over");
    assert_eq!(bench.counters.cells_lost, 1);
}

/// Many reports without news that were taken as one input have the same effect as the single reports.
#[test]
fn cells_without_news_are_renewed_together_as_each_by_itself() {
    let renewed = |together: bool| {
        let mut bench = Bench::new();
        let mut cell = TestCell::new("c", 100);
        bench.receive(&cell);
        bench.pass(10_000);
        cell.clock_ms = CellTime::from_ms(10_000);
        if together {
            bench.feed.renew_all(bench.now_ms, true, &BTreeSet::new());
        } else {
            bench.receive(&cell);
        }
        let known = bench
            .feed
            .cells()
            .next()
            .map(|(_, known)| bench.feed.left_ms(known));
        assert_eq!(known, Some(14_700));
        assert!(bench.pass(14_699).is_empty());
        bench.pass(1).len()
    };
    assert_eq!((renewed(true), renewed(false)), (1, 1));
    let mut bench = Bench::new();
    bench.receive(&TestCell::new("c", 100));
    bench.pass(10_000);
    let but = BTreeSet::from([Arc::from("c")]);
    bench.feed.renew_all(bench.now_ms, true, &but);
    assert_eq!(bench.pass(4_700).len(), 1, "an exception is not renewed");
}

#[test]
fn old_versions_and_old_incarnations_are_refused() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    cell.seq = 5;
    bench.receive(&cell);
    let mut older = cell.clone();
    older.seq = 4;
    older.cell.available.memory_mb = 1;
    assert_eq!(bench.receive(&older), Received::default());
    assert_eq!((bench.counters.dropped_old_seq, bench.free()), (1, 100));

    let mut reborn = cell.clone();
    reborn.incarnation = Incarnation::from_u128(99);
    reborn.seq = 1;
    reborn.cell.available.memory_mb = 50;
    assert!(!bench.receive(&reborn).joined, "the same cell");
    assert_eq!(bench.free(), 50);
    cell.seq = 1_000;
    assert_eq!(bench.receive(&cell), Received::default(), "it was replaced");
    assert_eq!(
        (bench.counters.dropped_old_incarnation, bench.free()),
        (1, 50)
    );
    // two reps of one name: the younger one keeps the name
    for _ in 0..5 {
        bench.receive(&reborn);
        bench.receive(&cell);
    }
    assert_eq!(bench.feed.get("c").unwrap().incarnation, reborn.incarnation);
    assert_eq!(bench.counters.dropped_old_incarnation, 6);
    // after one ttl it is no longer late: either the message that replaced it was forged, or it is back
    bench.pass(14_999);
    assert_eq!(bench.receive(&cell), Received::default());
    bench.pass(1);
    bench.receive(&cell);
    assert_eq!(bench.feed.get("c").unwrap().incarnation, cell.incarnation);
}

/// Two reps of one name: the later one leaves, and the earlier one keeps running and has advertised all the time.
#[test]
fn a_cell_is_heard_again_as_soon_as_what_replaced_it_has_left() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    bench.receive(&cell);
    let mut second = cell.clone();
    second.incarnation = Incarnation::from_u128(99);
    bench.receive(&second);
    cell.seq += 1;
    assert_eq!(bench.receive(&cell), Received::default(), "it was replaced");
    second.ttl_ms = 0;
    assert!(bench.receive(&second).left.is_some());
    assert!(bench.receive(&cell).joined);
    second.ttl_ms = 15_000;
    assert_eq!(bench.receive(&second), Received::default(), "it has left");
    assert_eq!(bench.feed.get("c").unwrap().incarnation, cell.incarnation);
}

/// Incarnations are public: anybody may claim to have that of a cell.
#[test]
fn the_incarnation_of_a_cell_in_the_words_of_another_one_means_nothing() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    bench.receive(&cell);
    let mut thief = TestCell::new("thief", 1);
    for (incarnation, ttl_ms) in [
        (cell.incarnation, 15_000),
        (Incarnation::from_u128(99), 15_000),
        (cell.incarnation, 15_000),
        (cell.incarnation, 0),
    ] {
        (thief.incarnation, thief.ttl_ms, thief.seq) = (incarnation, ttl_ms, thief.seq + 1);
        bench.receive(&thief);
    }
    (cell.seq, cell.cell.available.memory_mb) = (cell.seq + 1, 50);
    bench.receive(&cell);
    assert_eq!(bench.free(), 50);
    cell.ttl_ms = 0;
    assert!(bench.receive(&cell).left.is_some(), "its own word counts");
    cell.ttl_ms = 15_000;
    assert_eq!(
        bench.receive(&cell),
        Received::default(),
        "it has withdrawn"
    );
}

#[test]
fn a_ttl_of_0_removes_at_once() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    bench.receive(&cell);
    let mut other = cell.clone();
    other.incarnation = Incarnation::from_u128(99);
    other.ttl_ms = 0;
    assert!(
        bench.receive(&other).left.is_none(),
        "another incarnation cannot say it"
    );
    cell.ttl_ms = 0;
    assert!(bench.receive(&cell).left.is_some());
    assert!(bench.feed.pool().is_empty());
    let counters = &bench.counters;
    assert_eq!((counters.cells_joined, counters.cells_lost), (1, 1));
    cell.ttl_ms = 15_000;
    assert_eq!(
        bench.receive(&cell),
        Received::default(),
        "its late reports count no more"
    );
    assert!(bench.feed.pool().is_empty());
    // a withdrawal was forged: the cell keeps advertising
    bench.pass(15_000);
    assert!(bench.receive(&cell).joined);
}

#[test]
fn nothing_expires_while_messages_do_not_flow() {
    let mut bench = Bench::new();
    bench.receive(&TestCell::new("c", 100));
    bench.pass(10_000);
    for blackout_ms in [60_000, 3_600_000] {
        bench.now_ms += blackout_ms;
        assert!(
            bench
                .feed
                .expire(bench.now_ms, &mut bench.counters)
                .is_empty()
        );
        // first one whole ttl of evidence
        assert!(
            bench.pass(1_000 + 14_000).is_empty(),
            "{blackout_ms} ms of silence"
        );
    }
    bench.feed.interrupted();
    assert!(bench.pass(1_000 + 14_000).is_empty());
    assert_eq!(bench.pass(2_000).len(), 1);
}

#[test]
fn a_restarted_cell_owes_nothing() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    bench.receive(&cell);
    bench.debit(1, 30);
    cell.incarnation = Incarnation::from_u128(99);
    bench.receive(&cell);
    assert_eq!(bench.free(), 100);
}

#[test]
fn an_unchanged_bid_after_a_missed_report_asks_for_the_state() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    bench.receive(&cell);
    let auction = AuctionId::from_u128(5);
    let bid = |bench: &mut Bench, cell: &TestCell| {
        let body = cell.unchanged(auction);
        bench.feed.receive(
            bench.now_ms,
            ReportKind::Bid,
            None,
            &body,
            &mut bench.counters,
        )
    };
    let received = bid(&mut bench, &cell);
    assert_eq!(received.from, Some(("c".into(), Some(auction))));
    cell.seq = 2;
    let received = bid(&mut bench, &cell);
    assert_eq!(
        (received.from, received.ask_state),
        (None, Some("c".into()))
    );
    let stranger = TestCell::new("d", 100);
    assert_eq!(bid(&mut bench, &stranger).ask_state, Some("d".into()));
    assert_eq!(bench.counters.missed_reports, 2);
}

#[test]
fn a_missing_responder_counts_for_an_interval_or_until_a_report() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    bench.receive(&cell);
    bench.feed.absent("c", bench.now_ms);
    assert_eq!(bench.feed.get("c").unwrap().absent_until_ms, 5_000);
    bench.now_ms = 10;
    cell.seq += 1;
    bench.receive(&cell);
    assert_eq!(bench.feed.get("c").unwrap().absent_until_ms, 0);
}

#[test]
fn the_largest_reports_are_read() {
    for (bytes, taken) in [(MAX_REPORT_BYTES, true), (MAX_REPORT_BYTES + 1, false)] {
        let mut bench = Bench::new();
        let mut body = TestCell::new("c", 100).report(None).to_vec();
        body.resize(bytes, b' ');
        assert_eq!(bench.receive_on("c", &body).joined, taken, "{bytes} bytes");
        assert_eq!(bench.counters.dropped_too_large, u64::from(!taken));
    }
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    cell.cell.counts.apps = (0..MAX_APPS).map(|n| (format!("a{n}"), 1)).collect();
    assert!(bench.receive(&cell).joined);
}

#[test]
fn a_report_is_valid_for_as_long_as_the_operator_allows() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    for (asked_ms, valid_ms) in [(59_000, 59_000), (60_000, 60_000), (3_600_000, 60_000)] {
        (cell.seq, cell.ttl_ms) = (cell.seq + 1, asked_ms);
        bench.receive(&cell);
        assert_eq!(bench.feed.get("c").unwrap().ttl_ms, valid_ms);
    }
}

#[test]
fn a_report_that_was_never_written_out_counts_the_same() {
    let (mut written, mut parsed) = (Bench::new(), Bench::new());
    let mut cell = TestCell::new("c", 100);
    let mut reports = vec![cell.clone(), cell.clone()];
    cell.seq = 2;
    cell.cell.available.memory_mb = 60;
    cell.recent = [InstanceId::from_u128(1)].into();
    reports.push(cell.clone());
    cell.seq = 1;
    reports.push(cell.clone());
    (cell.seq, cell.ttl_ms) = (3, 0);
    reports.push(cell);
    for (n, report) in reports.iter().enumerate() {
        let received = written.receive(report);
        let received_parsed = parsed.feed.receive_parsed(
            parsed.now_ms,
            ReportKind::Advert,
            Arc::new(report.advert(None)),
            None,
            &mut parsed.counters,
        );
        assert_eq!(received, received_parsed, "report {n}");
        assert_eq!(written.counters, parsed.counters, "report {n}");
        for bench in [&mut written, &mut parsed] {
            if n == 0 {
                bench.debit(1, 30);
            }
        }
    }
    assert!(written.feed.pool().is_empty() && parsed.feed.pool().is_empty());
}

#[test]
fn a_report_without_a_clock_leaves_the_clock_that_is_known() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    bench.receive(&cell);
    let clock_ms = cell.clock_ms;
    bench.now_ms = 500;
    cell.clock_ms = CellTime::default();
    bench.receive(&cell);
    let known = bench.feed.get("c").unwrap();
    assert_eq!((known.clock_ms, known.reported_at_ms), (clock_ms, 0));
}

#[test]
fn the_clock_of_a_rep_begins_with_its_first_report() {
    let mut bench = Bench::new();
    bench.now_ms = 100_000;
    let mut cell = TestCell::new("c", 100);
    cell.clock_ms = CellTime::default();
    bench.receive(&cell);
    let expires_ms = bench.feed.expires_ms("c", 101_000, Duration::from_secs(5));
    assert_eq!(expires_ms, CellTime::from_ms(6_000));
}

/// Its ttl is 15 s, so a difference of up to 5 s may come from late messages.
#[test]
fn a_rep_that_has_run_for_longer_by_more_than_a_third_of_the_ttl_was_replaced() {
    for (age_ms, dropped) in [(6_000, false), (6_001, true), (100_000, true), (0, false)] {
        let mut bench = Bench::new();
        let cell = TestCell::new("c", 100);
        assert_eq!(cell.clock_ms, CellTime::from_ms(1_000));
        bench.receive(&cell);
        let mut other = cell.clone();
        other.incarnation = Incarnation::from_u128(99);
        other.clock_ms = CellTime::from_ms(age_ms);
        bench.receive(&other);
        let known = bench.feed.get("c").unwrap().incarnation;
        assert_eq!(known == cell.incarnation, dropped, "{age_ms}");
        let counted = bench.counters.dropped_old_incarnation;
        assert_eq!(counted, u64::from(dropped), "{age_ms}");
    }
}
