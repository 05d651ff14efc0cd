//! Checks docs/PROTOCOL.md: every example is read without unknown fields and written again unchanged, every subject
//! that the code can form is in the document, and every message has an example.

#![allow(clippy::unwrap_used)] // a test may panic

use placement::Request;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use shared::{Subjects, wire};

const DOCUMENT: &str = include_str!("../../docs/PROTOCOL.md");

fn examples() -> Vec<(&'static str, &'static str)> {
    let fences = DOCUMENT.split("```json ").skip(1);
    fences
        .filter_map(|f| {
            f.split_once('\n')
                .map(|(n, rest)| (n, rest.split("```").next().unwrap()))
        })
        .collect()
}

fn same<T: DeserializeOwned + Serialize>(name: &str, text: &str) {
    let mut unknown = Vec::new();
    let value: T = wire::parse(text.as_bytes(), &mut unknown)
        .unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
    assert!(unknown.is_empty(), "{name}: {unknown:?}");
    let given: Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&value).unwrap(), given, "{name}");
}

/// Advertisements and bids are read in two steps, never as one struct.
fn advert(text: &str) {
    let envelope = wire::Envelope::parse(text.as_bytes(), Some("z1-cell-0")).unwrap();
    let cell = wire::parse_cell(text.as_bytes()).unwrap();
    let again = wire::Advert {
        v: shared::VERSION,
        auction: envelope.auction,
        incarnation: envelope.incarnation,
        seq: envelope.seq,
        clock_ms: envelope.clock_ms,
        ttl: envelope.ttl.unwrap(),
        recent: envelope.recent,
        leaving: false,
        cell,
    };
    let given: Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), given);
}

fn bid(text: &str) {
    let envelope = wire::Envelope::parse(text.as_bytes(), None).unwrap();
    assert!(envelope.unchanged && envelope.ttl.is_none());
    let again = wire::Bid {
        v: shared::VERSION,
        auction: envelope.auction.unwrap(),
        cell: envelope.cell,
        incarnation: envelope.incarnation,
        seq: envelope.seq,
        clock_ms: envelope.clock_ms,
        unchanged: true,
    };
    let given: Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), given);
}

fn change(text: &str) {
    let (envelope, change) = wire::parse_change(text.as_bytes()).unwrap();
    let same = wire::Envelope::parse(text.as_bytes(), Some("z1-cell-0")).unwrap();
    assert_eq!(envelope, same);
    assert!(wire::parse_cell(text.as_bytes()).is_err());
    let again = wire::Change {
        v: shared::VERSION,
        auction: envelope.auction,
        incarnation: envelope.incarnation,
        seq: envelope.seq,
        since: envelope.since.unwrap(),
        clock_ms: envelope.clock_ms,
        ttl: envelope.ttl.unwrap(),
        recent: envelope.recent,
        leaving: false,
        cell: envelope.cell,
        change,
    };
    let given: Value = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_value(&again).unwrap(), given);
}

macro_rules! check {
    ($name:ident, $text:ident: $($kind:ident)*) => {
        match $name {
            "Request" => same::<Request>($name, $text),
            "Advert" => advert($text),
            "Change" => change($text),
            "Bid" => bid($text),
            $(stringify!($kind) => same::<wire::$kind>($name, $text),)*
            other => panic!("no such message: {other}"),
        }
    };
}

#[test]
fn every_example_is_what_the_programs_read_and_write() {
    let examples = examples();
    for (name, text) in &examples {
        let (name, text) = (*name, *text);
        check!(name, text: ErrorBody StartReply StartReplies PlaceExtra Stop StopAnswer StopReply
            BidRequest CapacityAnswer CellSet CellSetAnswer CellStart Acceptance Instances InstancesAnswer Page PoolAnswer ExplainRequest
            ExplainAnswer PlaceAnswer QueuedRequest QueuedAnswer Drain DrainAnswer Cordon CordonAnswer Logs LogsAnswer LogLine Event
            AppPut AppScale AppRestart AppAction AppLook AppList AppChanged AppListed AppShown AppHistory AppExport AppImport AppImported AppMove AppMoved
            TaskStored TaskShown TaskList TaskListed TaskResult GrantRequest GrantAnswer);
    }
    assert!(
        examples.len() >= 30,
        "an example has gone: {}",
        examples.len()
    );
}

#[test]
fn every_subject_is_documented() {
    let s = Subjects::new("vendue").unwrap();
    let subjects = [
        s.start(),
        s.place(),
        s.explain(),
        s.stop(),
        s.pool(),
        s.capacity(),
        s.queued(),
        s.discover(),
        s.bid(),
        s.instances(),
        s.cells_stop(),
        s.cell("<cell>", "advert"),
        s.cell("<cell>", "start"),
        s.cell("<cell>", "heartbeat"),
        s.cell("<cell>", "answer.<asker>.<n>"),
        s.event("<kind>", "<app or cell>", "<cell or auctioneer>"),
        s.outcome("<request id>"),
        s.log("<app>", "<index>", "<cell>"),
        s.echo("<auctioneer>"),
        s.app("<verb>", "<app>"),
        s.app_list(),
        s.app_import(),
        s.manager_echo("<manager>"),
        s.grant("<auctioneer>"),
    ];
    for subject in subjects {
        assert!(
            DOCUMENT.contains(&format!("| `{subject}`")),
            "{subject} has no row"
        );
    }
}

#[test]
fn the_documented_namespace_gives_the_instance_ids() {
    let namespace = uuid::Uuid::parse_str("6f3c2a9e-1d5b-4c70-9b64-76e0d1a28f35").unwrap();
    let expected = uuid::Uuid::new_v5(&namespace, b"r-1/web/lrp/0");
    assert_eq!(
        wire::instance_id("r-1", "web", placement::Kind::Lrp, 0),
        expected.into()
    );
}
