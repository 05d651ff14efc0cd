//! How a bridge's cells handle messages of the cluster.

use std::time::Duration;

use bytes::Bytes;
use placement::{Span, check_name};
use shared::{
    clock::millis,
    wire::{
        BidRequest, Cordon, CordonAnswer, Drain, DrainAnswer, Instances, Stop, WireError, code,
        parse, parse_strict, read_nothing, to_bytes,
    },
};

use super::{
    cells::{CellService, CellsOutput, DeaCells},
    queries::DeaBid,
};

/// The deadline of a drain that does not give one.
const DRAIN_DEADLINE: Duration = Duration::from_secs(600);
/// The most ids or indices in one request.
const MAX_FILTER: usize = 100_000;

/// The topic of a message of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// All cells are to advertise.
    Discover,
    /// All cells are to bid.
    Bid,
    /// All cells are to list instances.
    Instances,
    /// All cells are to stop instances.
    StopAll,
    /// A cell is to start instances.
    Start,
    /// A cell is to stop instances.
    Stop,
    /// A cell is asked for its full state.
    State,
    /// A cell is to be emptied.
    Drain,
    /// A cell is to take no more work.
    Cordon,
    /// A cell is to take work again.
    Uncordon,
    /// Something that DEAs do not support.
    Unknown,
}

/// The requests to one cell, by the last token of the subject.
pub const OF_CELL: [(&str, Topic); 8] = [
    ("start", Topic::Start),
    ("stop", Topic::Stop),
    ("state", Topic::State),
    ("drain", Topic::Drain),
    ("cordon", Topic::Cordon),
    ("uncordon", Topic::Uncordon),
    ("set", Topic::Unknown),
    ("logs", Topic::Unknown),
];

/// A message of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Its topic.
    pub topic: Topic,
    /// The cell that it is for; none stands for all.
    pub cell: Option<&'a str>,
    /// Its body.
    pub body: &'a [u8],
    /// For a start, the number of its [`CellsOutput::Answer`].
    pub ticket: u64,
    /// The largest answer in bytes; longer lists are split.
    pub max_bytes: usize,
}

impl DeaCells {
    /// Handles a message of the cluster. The answers are [`CellsOutput::Reply`], one or more per cell; the answer to a
    /// start is a [`CellsOutput::Answer`], within 800 ms. An error is the answer of the cell that the message was for,
    /// if any.
    pub fn asked(
        &mut self,
        now_ms: u64,
        question: &Question<'_>,
    ) -> Result<Vec<CellsOutput>, WireError> {
        let mut out = Vec::new();
        match question.cell {
            Some(cell) => self.of_cell(now_ms, cell, question, &mut out)?,
            None => self.of_all(now_ms, question, &mut out)?,
        }
        Ok(out)
    }

    /// Handles a question to all cells, each of which answers.
    fn of_all(
        &mut self,
        now_ms: u64,
        question: &Question<'_>,
        out: &mut Vec<CellsOutput>,
    ) -> Result<(), WireError> {
        let body = question.body;
        let names: Vec<String> = self.names().cloned().collect();
        match question.topic {
            Topic::Discover => {
                read_nothing(body)?;
                out.extend(self.advertise_all(now_ms));
            }
            Topic::Bid => {
                let request: BidRequest = parse(body, &mut Vec::new())?;
                for name in names {
                    let bid = self.bid(now_ms, &name, request.auction);
                    out.extend(bid.map(|bid| match bid {
                        DeaBid::Unchanged(bid) => reply(&name, to_bytes(&bid)),
                        DeaBid::Full(advert) => reply(&name, to_bytes(&advert)),
                    }));
                }
            }
            Topic::Instances => {
                let filter = instances_filter(body)?;
                for name in names {
                    let list = self.instances(now_ms, &name, &filter);
                    let parts = list.map(|list| list.split(question.max_bytes));
                    let parts = parts.into_iter().flatten();
                    out.extend(parts.map(|part| reply(&name, to_bytes(&part))));
                }
            }
            _ => {
                let stop = read_stop(body)?;
                for name in names {
                    let answer = self.stop(now_ms, &name, &stop, out);
                    out.push(reply(&name, to_bytes(&answer)));
                }
            }
        }
        Ok(())
    }

    fn of_cell(
        &mut self,
        now_ms: u64,
        cell: &str,
        question: &Question<'_>,
        out: &mut Vec<CellsOutput>,
    ) -> Result<(), WireError> {
        let body = question.body;
        let is_there = self.names().any(|name| name == cell);
        match question.topic {
            Topic::Start if is_there => {
                out.extend(self.start(now_ms, cell, question.ticket, body)?);
            }
            Topic::Start => {
                let answer = Self::refusal_without_cell(cell, body)?;
                let (ticket, answer) = (question.ticket, Box::new(answer));
                out.push(CellsOutput::Answer { ticket, answer });
            }
            Topic::Stop => {
                let stop = read_stop(body)?;
                let answer = self.stop(now_ms, cell, &stop, out);
                out.push(reply(cell, to_bytes(&answer)));
            }
            Topic::State => {
                read_nothing(body)?;
                let state = self.state(now_ms, cell, None);
                let state = state.ok_or_else(|| no_dea(cell))?;
                out.push(reply(cell, to_bytes(&state)));
            }
            _ if !is_there => return Err(no_dea(cell)),
            Topic::Drain => {
                let drain = Drain::read(body)?;
                let deadline = drain.deadline.unwrap_or(Span(DRAIN_DEADLINE));
                let until_ms = now_ms.saturating_add(millis(deadline.0));
                out.extend(self.serve(now_ms, cell, CellService::Draining(until_ms)));
                out.push(reply(cell, to_bytes(&self.drain_answer(cell, deadline))));
            }
            Topic::Cordon | Topic::Uncordon => {
                Cordon::read(body)?;
                let cordoned = question.topic == Topic::Cordon;
                let service = if cordoned {
                    CellService::Cordoned
                } else {
                    CellService::Open
                };
                out.extend(self.serve(now_ms, cell, service));
                out.push(reply(cell, to_bytes(&self.cordon_answer(cell, cordoned))));
            }
            _ => {
                let message = format!("{cell} is a DEA: it has no attributes to set and no logs");
                return Err(WireError::new(code::INVALID_REQUEST, message));
            }
        }
        Ok(())
    }

    fn drain_answer(&self, cell: &str, deadline: Span) -> DrainAnswer {
        DrainAnswer {
            v: shared::VERSION,
            cell: cell.to_owned(),
            instances: self.count(cell),
            managed: self.managed(cell),
            tasks: 0,
            deadline,
            exit: false,
            kept: false,
        }
    }

    fn cordon_answer(&self, cell: &str, cordoned: bool) -> CordonAnswer {
        CordonAnswer {
            v: shared::VERSION,
            cell: cell.to_owned(),
            cordoned,
            instances: self.count(cell),
            kept: false,
        }
    }
}

fn reply(cell: &str, body: Bytes) -> CellsOutput {
    CellsOutput::Reply {
        cell: cell.to_owned(),
        body,
    }
}

fn no_dea(cell: &str) -> WireError {
    let message = format!("{cell}: this slot has no DEA now");
    WireError::new(code::NOT_FOUND, message)
}

fn read_stop(body: &[u8]) -> Result<Stop, WireError> {
    let stop = Stop::read(body)?;
    bounded("indices", stop.indices.len())?;
    bounded("instances", stop.instances.len())?;
    Ok(stop)
}

fn instances_filter(body: &[u8]) -> Result<Instances, WireError> {
    let body = if body.is_empty() { b"{}" } else { body };
    let filter: Instances = parse_strict(body, "app, ids, id_prefixes or ids_only")?;
    if let Some(app) = &filter.app {
        check_name("app", app)?;
    }
    bounded("ids", filter.ids.len())?;
    bounded("id_prefixes", filter.id_prefixes.len())?;
    Ok(filter)
}

fn bounded(field: &str, count: usize) -> Result<(), WireError> {
    if count <= MAX_FILTER {
        return Ok(());
    }
    let message = format!("{field}: {count} entries; expected at most {MAX_FILTER}");
    Err(WireError::new(code::INVALID_REQUEST, message))
}
