//! A cell's answers: functions of its state, the time and the request.

use placement::{Span, check_name};
use shared::{
    AuctionId,
    clock::{CellTime, millis},
    wire::{
        Acceptance, Advert, Bid, CellStart, Change, Cordon, CordonAnswer, Drain, DrainAnswer,
        Event, Instance, Instances, InstancesAnswer, RunningIds, Stop, StopAnswer, WireError, code,
        kind, parse, parse_strict,
    },
};

use super::{CellMachine, CellOutput};
use crate::ledger::{Lacks, check_work};
use advertiser::{StateVersion, Trigger};

/// The most instances in one start for a cell.
const MAX_WORK: usize = 10_000;
/// The most ids or indices in one request.
const MAX_FILTER: usize = 100_000;

/// A cell's answer to a bid request.
#[derive(Clone, Debug, PartialEq)]
pub enum CellBid {
    /// The last advertisement is still accurate.
    Unchanged(Bid),
    /// What has changed.
    Change(Box<Change>),
    /// The full state.
    Full(Box<Advert>),
}

impl CellMachine {
    /// Returns the cell's full state: an advertisement, the answer to `.state` or, with an auction, a bid.
    pub fn state(&self, now_ms: u64, auction: Option<AuctionId>) -> Advert {
        Advert {
            v: shared::VERSION,
            auction,
            incarnation: self.ledger.incarnation(),
            seq: self.ledger.seq(),
            clock_ms: CellTime::from_ms(now_ms),
            ttl: self.advertiser.ttl(),
            recent: self.ledger.recent(now_ms),
            leaving: self.ledger.is_leaving(),
            cell: self.ledger.cell().clone(),
        }
    }

    /// Returns the answer to a bid request. A cell that has withdrawn does not answer, because a bid would bring it
    /// back.
    pub fn bid(&self, now_ms: u64, auction: AuctionId) -> Option<CellBid> {
        if self.advertiser.has_left() {
            return None;
        }
        if self.is_advertised() {
            return Some(CellBid::Unchanged(self.unchanged(now_ms, auction)));
        }
        // not since the last advertisement: bids come another way, and may overtake it
        let before = self.advertiser.advertised_before();
        if let Some(StateVersion(before)) = before
            && let Some(change) = self.change(now_ms, Some(auction), before)
        {
            return Some(CellBid::Change(Box::new(change)));
        }
        Some(CellBid::Full(Box::new(self.state(now_ms, Some(auction)))))
    }

    /// Returns what has changed since this version, if that is known and is not too much.
    pub(super) fn change(
        &self,
        now_ms: u64,
        auction: Option<AuctionId>,
        since: u64,
    ) -> Option<Change> {
        let (change, recent) = self.ledger.changes_since(since)?;
        Some(Change {
            v: shared::VERSION,
            auction,
            incarnation: self.ledger.incarnation(),
            seq: self.ledger.seq(),
            since,
            clock_ms: CellTime::from_ms(now_ms),
            ttl: self.advertiser.ttl(),
            recent,
            leaving: self.ledger.is_leaving(),
            cell: self.ledger.cell().cell.clone(),
            change,
        })
    }

    /// Returns the bid of a cell whose last advertisement is still accurate.
    pub fn unchanged(&self, now_ms: u64, auction: AuctionId) -> Bid {
        Bid {
            v: shared::VERSION,
            auction,
            cell: self.ledger.cell().cell.clone(),
            incarnation: self.ledger.incarnation(),
            seq: self.ledger.seq(),
            clock_ms: CellTime::from_ms(now_ms),
            unchanged: true,
        }
    }

    /// Accepts or refuses the instances of a start; an error if it is malformed.
    pub fn start(&mut self, now_ms: u64, body: &[u8]) -> Result<Acceptance, WireError> {
        self.start_unless(now_ms, body, &|_| None)
    }

    /// Like [`CellMachine::start`], but refuses new instances for which `lacks` returns a reason.
    pub fn start_unless(
        &mut self,
        now_ms: u64,
        body: &[u8],
        lacks: Lacks<'_>,
    ) -> Result<Acceptance, WireError> {
        let start: CellStart = parse(body, &mut Vec::new())?;
        // before each item is checked: checking a long list would take the rep's time
        bounded("work", start.work.len(), MAX_WORK)?;
        for (i, work) in start.work.iter().enumerate() {
            check_work(work).map_err(|mut invalid| {
                invalid.field = format!("work[{i}].{}", invalid.field);
                WireError::from(invalid)
            })?;
        }
        Ok(self.ledger.start_unless(now_ms, &start, lacks))
    }

    /// Stops matching instances; an error if the request is malformed.
    pub fn stop(&mut self, now_ms: u64, body: &[u8]) -> Result<StopAnswer, WireError> {
        let stop = Stop::read(body)?;
        bounded("indices", stop.indices.len(), MAX_FILTER)?;
        bounded("instances", stop.instances.len(), MAX_FILTER)?;
        Ok(self.ledger.stop(now_ms, &stop))
    }

    /// Accepts no new work from now on, ends the instances after the deadline, and advertises that at once. The driver
    /// fills in whether the drain survives a restart.
    pub fn drain(&mut self, now_ms: u64, body: &[u8]) -> Result<DrainAnswer, WireError> {
        let drain = Drain::read(body)?;
        let deadline: Span = drain.deadline.unwrap_or(self.drain_deadline);
        let held = self.ledger.held();
        if self.ledger.drain(now_ms, millis(deadline.0), drain.exit) {
            self.tell_of_drain(now_ms);
        }
        Ok(DrainAnswer {
            v: shared::VERSION,
            cell: self.ledger.cell().cell.clone(),
            instances: held.instances,
            managed: held.managed,
            tasks: held.tasks,
            deadline,
            exit: drain.exit,
            kept: false,
        })
    }

    pub(super) fn tell_of_drain(&mut self, now_ms: u64) {
        self.advertise(now_ms, Trigger::AtOnce);
        self.tell_of_cell(kind::CELL_DRAINING);
    }

    fn tell_of_cell(&mut self, kind: &str) {
        let event = Event {
            count: self.ledger.instance_count(),
            ..Event::cell(kind, &self.ledger.cell().cell)
        };
        self.out.push(CellOutput::Event(Box::new(event)));
    }

    /// Accepts no new work from now on, keeps what runs, and advertises it at once.
    pub fn cordon(&mut self, now_ms: u64, body: &[u8]) -> Result<CordonAnswer, WireError> {
        Cordon::read(body)?;
        let news = self.ledger.cordon();
        self.is_cordoned(now_ms, news, kind::CELL_CORDONED)
    }

    /// Accepts work again, and advertises it at once.
    pub fn uncordon(&mut self, now_ms: u64, body: &[u8]) -> Result<CordonAnswer, WireError> {
        Cordon::read(body)?;
        let news = self.ledger.uncordon();
        self.is_cordoned(now_ms, news, kind::CELL_UNCORDONED)
    }

    fn is_cordoned(
        &mut self,
        now_ms: u64,
        news: Option<bool>,
        kind: &str,
    ) -> Result<CordonAnswer, WireError> {
        let Some(news) = news else {
            let message = "the rep is ending: start it again first";
            return Err(WireError::new(code::SHUTTING_DOWN, message));
        };
        if news {
            self.advertise(now_ms, Trigger::AtOnce);
            self.tell_of_cell(kind);
        }
        let cell = self.ledger.cell();
        Ok(CordonAnswer {
            v: shared::VERSION,
            cell: cell.cell.clone(),
            cordoned: cell.evacuating,
            instances: self.ledger.instance_count(),
            kept: false,
        })
    }

    /// Returns current and recently ended instances, in messages of at most `max_bytes`. An empty body asks for all.
    pub fn instances(
        &self,
        now_ms: u64,
        body: &[u8],
        max_bytes: usize,
    ) -> Result<Vec<InstancesAnswer>, WireError> {
        let body = if body.is_empty() { b"{}" } else { body };
        let filter: Instances = parse_strict(body, "app, ids, id_prefixes or ids_only")?;
        if let Some(app) = &filter.app {
            check_name("app", app)?;
        }
        bounded("ids", filter.ids.len(), MAX_FILTER)?;
        bounded("id_prefixes", filter.id_prefixes.len(), MAX_FILTER)?;
        if filter.ids_only {
            let ids = self.ledger.running_ids(&filter);
            let list = InstancesAnswer {
                ids,
                ..self.list(Vec::new())
            };
            return Ok(list.split(max_bytes));
        }
        let found = self.ledger.find_instances(now_ms, &filter);
        Ok(self.split(found, max_bytes))
    }

    /// Splits these into as few messages as possible, but at least one, of at most `max_bytes` each.
    pub fn split(&self, instances: Vec<Instance>, max_bytes: usize) -> Vec<InstancesAnswer> {
        self.list(instances).split(max_bytes)
    }

    /// Returns these in one message.
    fn list(&self, instances: Vec<Instance>) -> InstancesAnswer {
        let cell = self.ledger.cell();
        InstancesAnswer {
            v: shared::VERSION,
            cell: cell.cell.clone(),
            zone: cell.zone.clone(),
            incarnation: self.ledger.incarnation(),
            seq: self.ledger.seq(),
            part: 1,
            parts: 1,
            instances,
            ids: RunningIds::default(),
            more: false,
        }
    }
}

/// Rejects a list that is too long.
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
