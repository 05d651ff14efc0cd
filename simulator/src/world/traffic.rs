//! Counts the messages by kind.

use std::collections::BTreeMap;

use crate::outcome::Traffic;

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Advertisement,
    Discover,
    Echo,
    Heartbeat,
    BidRequest,
    Bid,
    StateRequest,
    State,
    Start,
    StartAnswer,
    Request,
    Reply,
    StopRequest,
    StopReply,
    Stop,
    StopAnswer,
    InstancesRequest,
    Instances,
    Event,
    Outcome,
    Command,
    CommandReply,
    ManagerRequest,
    ManagerReply,
    ManagerStop,
    BucketWrite,
    BucketAnswer,
    BucketValue,
    GrantRequest,
    GrantAnswer,
}

const NAMES: [&str; 30] = [
    "advertisement",
    "discover",
    "echo",
    "heartbeat",
    "bid request",
    "bid",
    "state request",
    "state",
    "start",
    "start answer",
    "request",
    "reply",
    "stop request",
    "stop reply",
    "stop",
    "stop answer",
    "instances request",
    "instances",
    "event",
    "outcome",
    "command",
    "command reply",
    "manager request",
    "manager reply",
    "manager stop",
    "bucket write",
    "bucket answer",
    "bucket value",
    "grant request",
    "grant answer",
];

/// The counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts([Traffic; NAMES.len()]);

impl Counts {
    /// Counts messages sent.
    pub(super) fn sent(&mut self, kind: Kind, count: u64) {
        self.0[kind as usize].sent += count;
    }

    /// Counts deliveries and their total size in bytes.
    pub(super) fn delivered(&mut self, kind: Kind, count: u64, bytes: u64) {
        let traffic = &mut self.0[kind as usize];
        traffic.delivered += count;
        traffic.bytes += bytes;
    }

    /// Returns the kinds that occurred, by name, and their sum.
    pub(super) fn by_name(&self) -> (BTreeMap<String, Traffic>, Traffic) {
        let mut sum = Traffic::default();
        let mut named = BTreeMap::new();
        for (name, traffic) in NAMES.iter().zip(&self.0) {
            if *traffic == Traffic::default() {
                continue;
            }
            sum.sent += traffic.sent;
            sum.delivered += traffic.delivered;
            sum.bytes += traffic.bytes;
            named.insert((*name).to_owned(), *traffic);
        }
        (named, sum)
    }
}

/// Returns the size of a message as JSON, in bytes.
pub(super) fn written(message: &impl serde::Serialize) -> u64 {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // wire structs hold only strings, numbers and lists, so this cannot fail
    let _ = serde_json::to_writer(&mut count, message);
    count.0
}
