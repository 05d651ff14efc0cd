//! What a cell says, from its ledger: pure functions of the ledger, the time and what was asked. The
//! shell speaks with them over NATS, the simulator in virtual time.

use bytes::Bytes;
use placement::Span;
use shared::wire::{
    Acceptance, Advert, Bid, CellStart, Instance, Instances, InstancesAnswer, Stop, StopAnswer,
    WireError, code, parse, to_bytes,
};
use shared::{AuctionId, clock::CellTime};

use crate::ledger::{Ledger, check_work};

/// The most instances in one start for a cell.
const MAX_WORK: usize = 10_000;
/// The most ids or indices in one question.
const MAX_FILTER: usize = 100_000;

/// The cell's whole word: an advertisement, the answer to a question for its state, or, with an
/// auction, a bid. It holds for `ttl`; 0 = the cell leaves.
pub fn state(ledger: &Ledger, now_ms: u64, ttl: Span, auction: Option<AuctionId>) -> Advert {
    Advert {
        v: shared::VERSION,
        auction,
        incarnation: ledger.incarnation(),
        seq: ledger.seq(),
        clock_ms: CellTime::from_ms(now_ms),
        ttl,
        recent: ledger.recent(now_ms),
        cell: ledger.cell().clone(),
    }
}

/// The answer to a bid request: "unchanged" when the last advertisement, of the version
/// `advertised`, still holds, else the whole word.
pub fn bid(
    ledger: &Ledger,
    now_ms: u64,
    ttl: Span,
    advertised: Option<u64>,
    auction: AuctionId,
) -> Bytes {
    if advertised == Some(ledger.seq()) {
        to_bytes(&unchanged(ledger, now_ms, auction))
    } else {
        to_bytes(&state(ledger, now_ms, ttl, Some(auction)))
    }
}

/// The bid that says "my last advertisement still holds".
pub fn unchanged(ledger: &Ledger, now_ms: u64, auction: AuctionId) -> Bid {
    Bid {
        v: shared::VERSION,
        auction,
        cell: ledger.cell().cell.clone(),
        incarnation: ledger.incarnation(),
        seq: ledger.seq(),
        clock_ms: CellTime::from_ms(now_ms),
        unchanged: true,
    }
}

/// Takes or refuses the instances of a start; an error when it makes no sense.
pub fn start(ledger: &mut Ledger, now_ms: u64, body: &[u8]) -> Result<Acceptance, WireError> {
    let start: CellStart = parse(body, &mut Vec::new())?;
    bounded("work", start.work.len(), MAX_WORK)?;
    for (i, work) in start.work.iter().enumerate() {
        check_work(work).map_err(|mut invalid| {
            invalid.field = format!("work[{i}].{}", invalid.field);
            WireError::from(invalid)
        })?;
    }
    Ok(ledger.start(now_ms, &start))
}

/// Tells what matches to stop; an error when the question makes no sense.
pub fn stop(ledger: &mut Ledger, now_ms: u64, body: &[u8]) -> Result<StopAnswer, WireError> {
    let stop = Stop::read(body)?;
    bounded("indices", stop.indices.len(), MAX_FILTER)?;
    bounded("instances", stop.instances.len(), MAX_FILTER)?;
    Ok(ledger.stop(now_ms, &stop))
}

/// What is held and what ended lately, in messages of at most `most` bytes. A question without a
/// body asks for everything.
pub fn instances(
    ledger: &Ledger,
    now_ms: u64,
    body: &[u8],
    most: usize,
) -> Result<Vec<InstancesAnswer>, WireError> {
    let filter: Instances = parse(or_empty(body), &mut Vec::new())?;
    bounded("ids", filter.ids.len(), MAX_FILTER)?;
    Ok(split(ledger, ledger.instances(now_ms, &filter), most))
}

/// As few messages as hold all of it; at least one, and each of at most `most` bytes.
pub fn split(ledger: &Ledger, instances: Vec<Instance>, most: usize) -> Vec<InstancesAnswer> {
    let cell = ledger.cell();
    let part = |instances| InstancesAnswer {
        v: shared::VERSION,
        cell: cell.cell.clone(),
        zone: cell.zone.clone(),
        incarnation: ledger.incarnation(),
        instances,
        more: true,
    };
    let mut parts = Vec::new();
    let (mut some, mut size) = (Vec::new(), 0);
    for instance in instances {
        let one = to_bytes(&instance).len() + 1;
        if size + one > most && !some.is_empty() {
            parts.push(part(std::mem::take(&mut some)));
            size = 0;
        }
        size += one;
        some.push(instance);
    }
    parts.push(InstancesAnswer {
        more: false,
        ..part(some)
    });
    parts
}

/// A question without a body asks for everything.
pub(crate) fn or_empty(body: &[u8]) -> &[u8] {
    if body.is_empty() { b"{}" } else { body }
}

pub(crate) fn bounded(field: &str, count: usize, most: usize) -> Result<(), WireError> {
    if count <= most {
        return Ok(());
    }
    Err(WireError {
        code: code::INVALID_REQUEST.into(),
        field: Some(field.into()),
        message: format!("{field}: {count} entries; expected at most {most}"),
    })
}
