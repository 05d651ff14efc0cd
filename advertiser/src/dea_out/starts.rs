//! Starts of a Cloud Controller, as they are sent to cells.

use std::{sync::Arc, time::Duration};

use placement::Run;
use shared::{
    RequestId,
    clock::CellTime,
    wire::{Acceptance, CellStart, Work, to_bytes},
};
use uuid::Uuid;

use super::cells::{OutCells, OutOutput, REQUEST_PREFIX, Sent, instance_of, key_of, stop_of};
use crate::dea::{DeaStart, DropletRun, FacadeEvent, FacadeInput, FacadeRoom, Hidden};

/// How long to wait for an answer before a start is sent again. To the cell it is the same start.
const AGAIN_MS: u64 = 2_000;
/// How many times it is sent.
const TIMES: u32 = 4;
/// For how long a cell may accept it, on the cell's own clock.
const EXPIRES: Duration = Duration::from_secs(5);

impl OutCells {
    /// Sends an instance of a Cloud Controller to the cell.
    pub(super) fn start(
        &mut self,
        now_ms: u64,
        name: &str,
        key: &str,
        start: &DeaStart,
        out: &mut Vec<OutOutput>,
    ) {
        let Some(instance) = instance_of(key) else {
            return;
        };
        let limits = start.limits;
        let mut work = Work::new(instance, &start.droplet, limits.mem, limits.disk);
        work.index = start.index;
        work.run = Some(Arc::new(Run {
            droplet: Some(Arc::new(DropletRun::of_start(start).to_droplet())),
            ..Run::default()
        }));
        self.send(now_ms, name, key, work, out);
    }

    /// Sends an instance to the cell until the cell answers.
    pub(super) fn send(
        &mut self,
        now_ms: u64,
        name: &str,
        key: &str,
        mut work: Work,
        out: &mut Vec<OutOutput>,
    ) {
        let request = format!("{REQUEST_PREFIX}{}-{key}", self.config.name);
        work.request = RequestId::new(&request).ok();
        if let Some(cell) = self.cells.get_mut(name) {
            let sent = Sent {
                app: work.app.clone(),
                work,
                times: 0,
                due_ms: now_ms,
                stopped: false,
            };
            cell.sent.insert(key.to_owned(), sent);
        }
        self.send_again(now_ms, name, out);
    }

    /// Sends starts that are due, for the first time or again. A start that was sent often enough is given up, and
    /// stopped in case it runs.
    pub(super) fn send_again(&mut self, now_ms: u64, name: &str, out: &mut Vec<OutOutput>) {
        let Some(cell) = self.cells.get_mut(name) else {
            return;
        };
        let mut given_up = Vec::new();
        let (shown_ms, at_ms) = cell.clock;
        let clock = CellTime::from_ms(shown_ms.saturating_add(now_ms.saturating_sub(at_ms)));
        for (key, sent) in &mut cell.sent {
            if sent.due_ms > now_ms {
                continue;
            }
            if sent.times == TIMES || sent.stopped {
                given_up.push(key.clone());
                continue;
            }
            sent.times += 1;
            sent.due_ms = now_ms + AGAIN_MS;
            let body = to_bytes(&CellStart {
                v: shared::VERSION,
                auction: Uuid::new_v5(&self.run, key.as_bytes()).into(),
                incarnation: cell.incarnation,
                expires_ms: clock.after(EXPIRES),
                work: vec![sent.work.clone()],
            });
            out.push(OutOutput::Start {
                cell: name.to_owned(),
                body: Hidden(body.to_vec()),
            });
        }
        for key in given_up {
            self.counters.unanswered += 1;
            let app = cell_app(self, name, &key);
            if let (Some(app), Some(instance)) = (app, instance_of(&key)) {
                out.push(stop_of(name, &app, instance));
            }
            self.not_accepted(now_ms, name, &key, "the cell has not answered", out);
        }
    }

    /// Handles a cell's answer to a start.
    pub(crate) fn answered(&mut self, now_ms: u64, answer: &Acceptance) -> Vec<OutOutput> {
        let mut out = Vec::new();
        let name = answer.cell.as_str();
        let Some(cell) = self.cells.get(name) else {
            return out;
        };
        let fresh = cell.incarnation == answer.incarnation;
        let facade = cell.facade.as_ref().filter(|_| fresh);
        if let Some(memory) = facade.map(|facade| facade.room().memory) {
            // what was accepted is already subtracted
            let room = FacadeRoom {
                memory,
                available_memory: answer.available.memory_mb,
                available_disk: answer.available.disk_mb,
            };
            self.tell(now_ms, name, FacadeInput::Room(room), &mut out);
        }
        for instance in &answer.accepted {
            self.accepted(now_ms, name, &key_of(*instance), &mut out);
        }
        for refusal in &answer.refused {
            let key = key_of(refusal.instance);
            self.not_accepted(now_ms, name, &key, &refusal.reason, &mut out);
        }
        out
    }

    pub(super) fn accepted(
        &mut self,
        now_ms: u64,
        name: &str,
        key: &str,
        out: &mut Vec<OutOutput>,
    ) {
        let cell = self.cells.get_mut(name);
        let Some(cell) = cell.filter(|cell| cell.sent.contains_key(key)) else {
            return;
        };
        cell.sent.remove(key);
        cell.accepted.insert(key.to_owned(), now_ms);
        self.counters.started += 1;
        self.happened(now_ms, name, key, FacadeEvent::Accepted, out);
    }

    fn not_accepted(
        &mut self,
        now_ms: u64,
        name: &str,
        key: &str,
        reason: &str,
        out: &mut Vec<OutOutput>,
    ) {
        let cell = self.cells.get_mut(name);
        if cell.is_none_or(|cell| cell.sent.remove(key).is_none()) {
            return;
        }
        self.counters.refused += 1;
        let lacking = reason.strip_prefix("insufficient resources: ");
        let description = match lacking {
            // disk is named first if both are short, as DEAs do
            Some(names) if names.contains("disk") => "Not enough disk resource available.".into(),
            Some(_) => "Not enough memory resource available.".into(),
            None => placement::cut(reason).into_owned(),
        };
        let crashed = FacadeEvent::Crashed {
            exit_status: -1,
            description,
        };
        self.happened(now_ms, name, key, crashed, out);
    }
}

fn cell_app(cells: &OutCells, name: &str, key: &str) -> Option<String> {
    let sent = cells.cells.get(name)?.sent.get(key)?;
    Some(sent.app.clone())
}
