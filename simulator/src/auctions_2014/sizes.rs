//! The sizes of the messages of 2014: a JSON envelope with a number to match answers by, and the
//! JSON payload in base64.

use placement::{Cell, Request};
use serde::Serialize;
use serde_json::json;

/// `CorrelationID` was a random positive number of 63 bits, which usually has 19 digits.
const CORRELATION_ID: i64 = i64::MAX;
/// Instances were named by a random UUID.
const INSTANCE_GUID: &str = "7d3bd1a2-5c0e-4f7a-9f3e-0d6f4f1f2a3b";
/// A bid with the usual number of digits.
const BID: f64 = 0.123_456_789_012_345_67;
/// The error of a cell that lacks resources.
const NO_ROOM: &str = "insufficient resources for instance";

/// Returns the size of a message with a payload of this size, in bytes.
fn envelope(payload: usize) -> u64 {
    let empty = length(&json!({"CorrelationID": CORRELATION_ID, "Payload": ""}));
    empty + (payload.div_ceil(3) * 4) as u64
}

fn length(value: &impl Serialize) -> u64 {
    serde_json::to_vec(value).map_or(0, |bytes| bytes.len() as u64)
}

fn wrapped(value: &impl Serialize) -> u64 {
    let bytes = serde_json::to_vec(value).map_or(0, |bytes| bytes.len());
    envelope(bytes)
}

/// Returns the size in bytes of a request about an instance: for a bid, a reservation or a release.
pub(super) fn info(request: &Request, index: u32) -> u64 {
    wrapped(&json!({
        "ProcessGuid": request.app,
        "InstanceGuid": INSTANCE_GUID,
        "DiskMB": request.disk_mb,
        "MemoryMB": request.memory_mb,
        "Index": index,
    }))
}

/// Returns the size in bytes of the whole auction, for the cell that runs it.
pub(super) fn run(request: &Request, index: u32) -> u64 {
    wrapped(&json!({
        "DesiredLRP": request,
        "InstanceGuid": INSTANCE_GUID,
        "Index": index,
        "State": 1,
    }))
}

/// Returns the size in bytes of an order to stop an instance.
pub(super) fn stop(request: &Request, index: u32) -> u64 {
    wrapped(&json!({
        "ProcessGuid": request.app,
        "InstanceGuid": INSTANCE_GUID,
        "Index": index,
    }))
}

/// Answers of a cell, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answers {
    pub(super) bid: u64,
    pub(super) no_room: u64,
    /// After a release, a run or a stop.
    pub(super) ok: u64,
}

pub(super) fn answers(cell: &Cell) -> Answers {
    Answers {
        bid: wrapped(&json!({"Rep": cell.cell, "Bid": BID, "Error": ""})),
        no_room: wrapped(&json!({"Rep": cell.cell, "Bid": 0, "Error": NO_ROOM})),
        ok: envelope("ok".len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_is_its_frame_and_the_payload_in_base64() {
        let frame = r#"{"CorrelationID":9223372036854775807,"Payload":""}"#.len() as u64;
        for (payload, base64) in [(0, 0), (1, 4), (2, 4), (3, 4), (4, 8), (300, 400)] {
            assert_eq!(envelope(payload), frame + base64);
        }
        let payload =
            r#"{"ProcessGuid":"red","InstanceGuid":"","DiskMB":1,"MemoryMB":2,"Index":3}"#;
        let info = info(&Request::new("red", 2, 1), 3);
        assert_eq!(info, envelope(payload.len() + INSTANCE_GUID.len()));
    }
}
