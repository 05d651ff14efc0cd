//! Starts. DEAs do not acknowledge them, so all DEAs are asked for the instance, and the one that has it answers.

use std::sync::Arc;

use placement::check_name;

use super::{Bridge, BridgeAnswer, BridgeOutput, bytes, instances::Tracked};
use crate::dea::{DeaFilter, DeaFind, DeaStart, Hidden, subjects};

/// When the DEAs are asked again, in ms after the start. A DEA hears the first question right after the start, and
/// handles both in that order; the others are for messages that were lost or are late.
const ASK_AT_MS: [u64; 3] = [100, 300, 600];
/// When a start is answered at the latest, in ms after it.
const UNKNOWN_AT_MS: u64 = 800;
/// The most unanswered starts.
const MAX_ASKING: usize = 10_000;
/// The longest id: together with the rest of the version it must be a valid name.
const MAX_ID: usize = 100;

/// An unanswered start.
#[derive(Debug)]
pub(super) struct Asking {
    filter: DeaFilter,
    sent_ms: u64,
    /// How many times the DEAs were asked again.
    asked: usize,
}

impl Asking {
    /// Returns when it is asked for again or answered.
    fn due_ms(&self) -> u64 {
        self.sent_ms + ASK_AT_MS.get(self.asked).copied().unwrap_or(UNKNOWN_AT_MS)
    }

    fn question(&self) -> BridgeOutput {
        let find = DeaFind {
            filter: self.filter.clone(),
            ..DeaFind::default()
        };
        BridgeOutput::Ask {
            subject: subjects::FIND,
            body: bytes(&find),
        }
    }
}

impl Bridge {
    /// Sends a start to the cell's DEA, unless the cell cannot take it. A start of an existing instance is a repeat.
    pub(super) fn start(
        &mut self,
        now_ms: u64,
        (cell, id): (&str, &str),
        start: DeaStart,
        out: &mut Vec<BridgeOutput>,
    ) {
        if let Some(other) = self.holder(id).filter(|holder| holder != cell) {
            let answer = BridgeAnswer::Refused {
                reason: format!("{other} has it"),
            };
            let id = id.to_owned();
            return out.push(BridgeOutput::Answer { id, answer });
        }
        if self.asking.contains_key(id) {
            return; // the answer comes
        }
        if let Some(tracked) = self.tracked(id).filter(|tracked| !tracked.has_ended()) {
            let answer = match tracked.state {
                Some(_) => BridgeAnswer::Placed,
                None => BridgeAnswer::Unknown,
            };
            let id = id.to_owned();
            out.push(BridgeOutput::Answer { id, answer });
            return;
        }
        match self.check(now_ms, cell, id, &start) {
            Err(reason) => {
                let answer = BridgeAnswer::Refused { reason };
                out.push(BridgeOutput::Answer {
                    id: id.to_owned(),
                    answer,
                });
            }
            Ok(slot) => self.send(now_ms, slot, id, start, out),
        }
    }

    /// Returns the slot, or why the start is refused.
    fn check(&self, now_ms: u64, cell: &str, id: &str, start: &DeaStart) -> Result<usize, String> {
        if id.len() > MAX_ID || check_name("id", id).is_err() {
            return Err(format!(
                "id: {} bytes; expected 1 to {MAX_ID} of A-Z a-z 0-9 _ -",
                id.len()
            ));
        }
        let slot = self.slot_named(cell);
        let slot = slot
            .filter(|slot| self.takes_work(*slot, now_ms))
            .ok_or("draining")?;
        if self.asking.len() >= MAX_ASKING {
            return Err("overloaded".to_owned());
        }
        let room = self.cell_of(slot, now_ms).ok_or("draining")?.available;
        let limits = start.limits;
        if limits.mem < 0 || limits.disk < 0 {
            return Err("limits: a negative number; expected MB of 0 or more".to_owned());
        }
        let short = [
            ("disk", room.disk_mb.is_some_and(|disk| disk < limits.disk)),
            ("memory", room.memory_mb < limits.mem),
        ];
        let short: Vec<&str> = short
            .iter()
            .filter(|(_, short)| *short)
            .map(|(name, _)| *name)
            .collect();
        if short.is_empty() {
            return Ok(slot);
        }
        Err(format!("insufficient resources: {}", short.join(", ")))
    }

    fn send(
        &mut self,
        now_ms: u64,
        slot: usize,
        id: &str,
        mut start: DeaStart,
        out: &mut Vec<BridgeOutput>,
    ) {
        start.version = self.version(slot, id);
        let Some(held) = &mut self.slots[slot] else {
            return;
        };
        let tracked = Tracked::sent(now_ms, &start, slot);
        let key: Arc<str> = id.into();
        held.instances.insert(Arc::clone(&key), tracked);
        self.by_instance.insert(key, slot);
        out.push(BridgeOutput::Publish {
            subject: subjects::start(&held.dea),
            body: Hidden(bytes(&start)),
        });
        let asking = Asking {
            filter: DeaFilter {
                droplet: start.droplet,
                version: Some(start.version),
                indices: vec![start.index],
                ..DeaFilter::default()
            },
            sent_ms: now_ms,
            asked: 0,
        };
        out.push(asking.question());
        self.due.insert((asking.due_ms(), id.to_owned()));
        self.asking.insert(id.to_owned(), asking);
    }

    /// Asks for the starts that are due, and answers those whose time is up.
    pub(super) fn ask_again(&mut self, now_ms: u64, out: &mut Vec<BridgeOutput>) {
        while let Some((due_ms, _)) = self.due.first()
            && *due_ms <= now_ms
            && let Some((_, id)) = self.due.pop_first()
        {
            let Some(asking) = self.asking.get_mut(&id) else {
                continue;
            };
            if asking.asked == ASK_AT_MS.len() {
                self.answer(&id, BridgeAnswer::Unknown, out);
                continue;
            }
            asking.asked += 1;
            out.push(asking.question());
            self.due.insert((asking.due_ms(), id));
        }
    }

    /// Answers a start, unless it has been answered.
    pub(super) fn answer(&mut self, id: &str, answer: BridgeAnswer, out: &mut Vec<BridgeOutput>) {
        if let Some(asking) = self.asking.remove(id) {
            self.due.remove(&(asking.due_ms(), id.to_owned()));
            out.push(BridgeOutput::Answer {
                id: id.to_owned(),
                answer,
            });
        }
    }
}
