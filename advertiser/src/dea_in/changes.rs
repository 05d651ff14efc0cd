//! The instances of a bridge's cells: answers to their starts, changes of state, ends and stops.

use shared::{
    InstanceId, WaveId,
    wire::{Acceptance, Event, InstanceState, Refusal, Stop, StopAnswer, Stopped, kind},
};
use uuid::Uuid;

use super::{
    cells::{CellService, CellsOutput, DeaCells, MAX_STOPPED, STOPPED_MS},
    held::{Held, instance_called},
};
use crate::dea::{BridgeAnswer, BridgeInput, BridgeInstanceState};

impl DeaCells {
    /// Stops matching instances on a cell.
    pub(crate) fn stop(
        &mut self,
        now_ms: u64,
        name: &str,
        stop: &Stop,
        out: &mut Vec<CellsOutput>,
    ) -> StopAnswer {
        let mut stopped = Vec::new();
        if let Some(cell) = self.cells.get(name) {
            let matches = |held: &&Held| {
                *held.app == *stop.app
                    && (stop.indices.is_empty() || stop.indices.contains(&held.index))
                    && (stop.instances.is_empty() || stop.instances.contains(&held.instance))
                    && stop.claim.is_none_or(|claim| held.claim() == Some(claim))
            };
            let all = cell.held.values().filter(matches);
            stopped.extend(all.map(|held| Stopped {
                instance: held.instance,
                index: held.index,
                cell: None,
            }));
            // a stop may overtake its start
            let unknown = stop
                .instances
                .iter()
                .filter(|id| !cell.held.contains_key(id));
            let room = MAX_STOPPED.saturating_sub(self.stopped.len());
            let until_ms = now_ms + STOPPED_MS;
            if stop.claim.is_none() {
                self.stopped
                    .extend(unknown.take(room).map(|id| (*id, until_ms)));
            }
        }
        for one in &stopped {
            self.stop_one(now_ms, name, one.instance, out);
        }
        StopAnswer {
            v: shared::VERSION,
            cell: name.to_owned(),
            stopped,
        }
    }

    pub(super) fn stop_one(
        &mut self,
        now_ms: u64,
        name: &str,
        instance: InstanceId,
        out: &mut Vec<CellsOutput>,
    ) {
        let cell = self.cells.get_mut(name);
        let Some(held) = cell.and_then(|cell| cell.held.get_mut(&instance)) else {
            return;
        };
        held.enter(now_ms, InstanceState::Stopping);
        let id = held.id.clone();
        self.touch(now_ms, name);
        let told = self.bridge.handle(
            now_ms,
            BridgeInput::Stop {
                cell: name,
                id: &id,
            },
        );
        self.carry_out(now_ms, told, out);
    }

    /// Makes a cell take no new work, or take work again.
    pub(crate) fn serve(
        &mut self,
        now_ms: u64,
        name: &str,
        service: CellService,
    ) -> Vec<CellsOutput> {
        let Some(cell) = self.cells.get_mut(name) else {
            return Vec::new();
        };
        let before = std::mem::replace(&mut cell.service, service);
        self.due_ms = self.due_ms.min(cell.next_ms());
        let kind = match service {
            CellService::Open => kind::CELL_UNCORDONED,
            CellService::Cordoned => kind::CELL_CORDONED,
            CellService::Draining(_) => kind::CELL_DRAINING,
        };
        let mut out = Vec::new();
        if before != service {
            let event = Event {
                count: cell.held.len(),
                ..Event::cell(kind, name)
            };
            out.extend(self.advertise(now_ms, name));
            out.push(CellsOutput::Event {
                cell: name.to_owned(),
                event: Box::new(event),
            });
        }
        out
    }

    /// Returns how many instances a cell holds.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.cells.get(name).map_or(0, |cell| cell.held.len())
    }

    /// Returns how many of them a manager keeps running.
    pub(crate) fn managed(&self, name: &str) -> usize {
        let held = self.cells.get(name).into_iter();
        let held = held.flat_map(|cell| cell.held.values());
        let requests = held.filter_map(Held::request);
        requests
            .filter(|request| WaveId::parse(request.as_str()).is_some())
            .count()
    }

    /// Handles what became of an instance that was sent.
    pub(super) fn answered(
        &mut self,
        now_ms: u64,
        id: &str,
        answer: &BridgeAnswer,
        out: &mut Vec<CellsOutput>,
    ) {
        match answer {
            BridgeAnswer::Placed => self.counters.placed += 1,
            BridgeAnswer::Refused { .. } => self.counters.refused += 1,
            BridgeAnswer::Unknown => self.counters.unknown += 1,
        }
        for ticket in self.tickets.remove(id).unwrap_or_default() {
            let Some(waiting) = self.waiting.get_mut(&ticket) else {
                continue;
            };
            let Some(instance) = waiting.open.remove(id) else {
                continue;
            };
            let name = waiting.cell.clone();
            match answer {
                BridgeAnswer::Placed => waiting.accepted.push(instance),
                BridgeAnswer::Refused { reason } => waiting.refused.push(Refusal {
                    instance,
                    reason: reason.clone(),
                    needs: None,
                    has: None,
                }),
                // instances that are missing in the answer are unknown
                BridgeAnswer::Unknown => {}
            }
            if let Some(cell) = self.cells.get_mut(&name) {
                match answer {
                    BridgeAnswer::Placed => cell.accepted(instance),
                    BridgeAnswer::Refused { .. } => _ = cell.held.remove(&instance),
                    BridgeAnswer::Unknown => {}
                }
            }
            self.touch(now_ms, &name);
            self.finish(now_ms, ticket, out);
        }
    }

    /// Answers a start once all of its instances are decided.
    pub(super) fn finish(&mut self, now_ms: u64, ticket: u64, out: &mut Vec<CellsOutput>) {
        if self.waiting.get(&ticket).is_none_or(|w| !w.open.is_empty()) {
            return;
        }
        let Some(waiting) = self.waiting.remove(&ticket) else {
            return;
        };
        let shown = self.shown(now_ms, &waiting.cell);
        let cell = self.cells.get(&waiting.cell);
        let count = |app: String| {
            let count = shown.as_ref().map_or(0, |shown| shown.count_of(&app));
            (app, count)
        };
        let apps = waiting.apps.into_iter().map(count).collect();
        let answer = Acceptance {
            v: shared::VERSION,
            cell: waiting.cell,
            incarnation: cell.map_or_else(|| Uuid::nil().into(), |cell| cell.incarnation),
            seq: cell.map_or(0, |cell| cell.seq),
            available: shown
                .as_ref()
                .map(|c| c.available.clone())
                .unwrap_or_default(),
            apps,
            accepted: waiting.accepted,
            refused: waiting.refused,
        };
        out.push(CellsOutput::Answer {
            ticket,
            answer: Box::new(answer),
        });
    }

    /// Handles a change of an instance's state.
    pub(super) fn changed(
        &mut self,
        now_ms: u64,
        name: &str,
        (id, app, index): (&str, &str, u32),
        state: &BridgeInstanceState,
        out: &mut Vec<CellsOutput>,
    ) {
        let Some((instance, _)) = instance_called(id, app, index) else {
            self.counters.misnamed += 1;
            return;
        };
        let cell = self.meet(now_ms, name);
        let has_ended = !matches!(
            state,
            BridgeInstanceState::Starting | BridgeInstanceState::Running
        );
        if has_ended && !cell.held.contains_key(&instance) {
            return; // it ended before this bridge was there
        }
        let held = cell.held.entry(instance);
        let held = held.or_insert_with(|| Held::heard(now_ms, id, instance, (app, index)));
        let stopping = held.state == InstanceState::Stopping;
        let kind = match state {
            BridgeInstanceState::Starting => None,
            BridgeInstanceState::Running if stopping => None,
            BridgeInstanceState::Running => {
                held.enter(now_ms, InstanceState::Running);
                Some(kind::RUNNING)
            }
            BridgeInstanceState::Stopped => Some(kind::STOPPED),
            _ => Some(kind::CRASHED),
        };
        if has_ended {
            held.end(now_ms, state);
        }
        if let Some(kind) = kind {
            out.push(CellsOutput::Event {
                cell: name.to_owned(),
                event: Box::new(held.event(now_ms, name, kind)),
            });
        }
        if !has_ended {
            // its start may have been answered as unknown, which this settles
            cell.accepted(instance);
        } else if let Some(held) = cell.held.remove(&instance) {
            cell.has_ended(now_ms, held.describe(now_ms));
        }
        self.touch(now_ms, name);
    }
}
