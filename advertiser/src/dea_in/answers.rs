//! The answers of a bridge's cells to messages of the cluster.

use std::time::{Duration, Instant};

use async_nats::Message;
use bytes::Bytes;
use placement::{Span, check_name};
use shared::{
    AnswerTo,
    clock::millis,
    may_answer,
    wire::{
        BidRequest, Cordon, CordonAnswer, Drain, DrainAnswer, Instances, Stop, WireError, code,
        parse, parse_strict, read_nothing, to_bytes,
    },
};

use super::{
    cells::{CellService, DeaCells},
    queries::DeaBid,
    shell::{OF_CELL, Shell, Topic},
};

/// The deadline of a drain that gives none.
const DRAIN_DEADLINE: Duration = Duration::from_secs(600);
/// The most ids or indices in one request.
const MAX_FILTER: usize = 100_000;

impl Shell {
    /// A message of the cluster.
    pub(super) fn asked(&mut self, message: &Message) {
        let subject = message.subject.as_str();
        let of_all = [
            (self.subjects.discover(), Topic::Discover),
            (self.subjects.bid(), Topic::Bid),
            (self.subjects.instances(), Topic::Instances),
            (self.subjects.cells_stop(), Topic::StopAll),
        ];
        let done = if let Some((_, topic)) = of_all.iter().find(|(known, _)| known == subject) {
            self.of_all(*topic, message)
        } else {
            let cell = self.subjects.cell_of(subject).map(str::to_owned);
            let what = subject.rsplit('.').next().unwrap_or_default();
            let topic = OF_CELL.iter().find(|(known, _)| *known == what);
            match (cell, topic) {
                (Some(cell), Some((_, topic))) => self.of_cell(*topic, &cell, message),
                _ => Ok(()),
            }
        };
        let Err(error) = done else {
            return;
        };
        self.malformed += 1;
        if let Some(times) = self.seldom.happened(Instant::now(), 1) {
            tracing::warn!(subject, %error, times, "malformed message");
        }
        // not to a broadcast: every cell would say it
        if let Some(cell) = self.subjects.cell_of(subject)
            && let Some(to) = self.answer_to(message, cell)
        {
            self.to_cluster.error(to, &error);
        }
    }

    /// A question to all cells: each answers.
    fn of_all(&mut self, topic: Topic, message: &Message) -> Result<(), WireError> {
        let (now_ms, body) = (self.now_ms(), &message.payload[..]);
        if topic == Topic::Discover {
            read_nothing(body)?;
            let out = self.cells.advertise_all(now_ms);
            self.carry_out(out);
            return Ok(());
        }
        let names: Vec<String> = self.cells.names().cloned().collect();
        match topic {
            Topic::Bid => {
                let request: BidRequest = parse(body, &mut Vec::new())?;
                for name in names {
                    let body = match self.cells.bid(now_ms, &name, request.auction) {
                        Some(DeaBid::Unchanged(bid)) => to_bytes(&bid),
                        Some(DeaBid::Full(advert)) => to_bytes(&advert),
                        None => continue,
                    };
                    self.answer(message, &name, body);
                }
            }
            Topic::Instances => {
                let filter = instances_filter(body)?;
                for name in names {
                    let list = self.cells.instances(now_ms, &name, &filter);
                    for part in list
                        .map(|list| list.split(self.max_bytes()))
                        .unwrap_or_default()
                    {
                        self.answer(message, &name, to_bytes(&part));
                    }
                }
            }
            _ => {
                let stop = read_stop(body)?;
                for name in names {
                    self.stop(now_ms, &name, &stop, message);
                }
            }
        }
        Ok(())
    }

    fn of_cell(&mut self, topic: Topic, cell: &str, message: &Message) -> Result<(), WireError> {
        let (now_ms, body) = (self.now_ms(), &message.payload[..]);
        let is_there = self.cells.names().any(|name| name == cell);
        match topic {
            Topic::Start if is_there => self.start(now_ms, cell, message)?,
            Topic::Start => {
                let answer = DeaCells::refusal_without_cell(cell, body)?;
                self.answer(message, cell, to_bytes(&answer));
            }
            Topic::Stop => {
                let stop = read_stop(body)?;
                self.stop(now_ms, cell, &stop, message);
            }
            Topic::State => {
                read_nothing(body)?;
                let state = self
                    .cells
                    .state(now_ms, cell, None)
                    .ok_or_else(|| no_dea(cell))?;
                self.answer(message, cell, to_bytes(&state));
            }
            _ if !is_there => return Err(no_dea(cell)),
            Topic::Drain => {
                let drain = Drain::read(body)?;
                let deadline = drain.deadline.unwrap_or(Span(DRAIN_DEADLINE));
                let until_ms = now_ms.saturating_add(millis(deadline.0));
                self.serve(now_ms, cell, CellService::Draining(until_ms));
                let answer = DrainAnswer {
                    v: shared::VERSION,
                    cell: cell.to_owned(),
                    instances: self.cells.count(cell),
                    managed: 0,
                    tasks: 0,
                    deadline,
                    exit: false,
                    kept: false,
                };
                self.answer(message, cell, to_bytes(&answer));
            }
            Topic::Cordon | Topic::Uncordon => {
                Cordon::read(body)?;
                let cordoned = topic == Topic::Cordon;
                let service = if cordoned {
                    CellService::Cordoned
                } else {
                    CellService::Open
                };
                self.serve(now_ms, cell, service);
                let answer = CordonAnswer {
                    v: shared::VERSION,
                    cell: cell.to_owned(),
                    cordoned,
                    instances: self.cells.count(cell),
                    kept: false,
                };
                self.answer(message, cell, to_bytes(&answer));
            }
            _ => {
                let message = format!("{cell} is a DEA, which knows no such request");
                return Err(WireError::new(code::INVALID_REQUEST, message));
            }
        }
        Ok(())
    }

    fn start(&mut self, now_ms: u64, cell: &str, message: &Message) -> Result<(), WireError> {
        self.ticket += 1;
        let ticket = self.ticket;
        // one who wants no answer gets none
        if let Some(reply) = self.answer_to(message, cell) {
            self.asked.insert(ticket, reply);
        }
        let started = self.cells.start(now_ms, cell, ticket, &message.payload);
        if started.is_err() {
            self.asked.remove(&ticket);
        }
        self.carry_out(started?);
        Ok(())
    }

    fn stop(&mut self, now_ms: u64, cell: &str, stop: &Stop, message: &Message) {
        let mut out = Vec::new();
        let answer = self.cells.stop(now_ms, cell, stop, &mut out);
        self.carry_out(out);
        self.answer(message, cell, to_bytes(&answer));
    }

    fn serve(&mut self, now_ms: u64, cell: &str, service: CellService) {
        let out = self.cells.serve(now_ms, cell, service);
        self.carry_out(out);
    }

    fn answer(&mut self, message: &Message, cell: &str, body: Bytes) {
        if let Some(to) = self.answer_to(message, cell) {
            self.to_cluster.publish(to, body);
        }
    }

    /// Where a cell's answer to a message goes: below its own subject where the message says so, else to its reply
    /// subject, if that is an inbox.
    fn answer_to(&mut self, message: &Message, cell: &str) -> Option<String> {
        if let Ok(Some(to)) = AnswerTo::of(message) {
            return Some(self.subjects.cell_answer(cell, &to));
        }
        let reply = message.reply.as_deref()?;
        if may_answer(reply) || self.subjects.is_answer_of_cell(reply, cell) {
            return Some(reply.to_owned());
        }
        self.forbidden += 1;
        None
    }
}

fn no_dea(cell: &str) -> WireError {
    let message = format!("{cell}: no DEA has this slot now");
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
    let filter: Instances = parse_strict(body, "app, ids or id_prefixes")?;
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
