//! The cells of a world, and the messages of auctioneers and cells.

use std::time::Duration;

use placement::{Kind, Request, Span};
use shared::{
    Incarnation, InstanceId, VERSION,
    wire::{
        Event, EventInstance, Instance, InstanceOutcome, InstanceState, InstancesAnswer, Outcome,
        StartReply, instance_id, kind,
    },
};
use testkit::lists;

use super::world::{Held, SimCell, TTL, World};
use crate::{CellHeard, ManagerInput, QuestionId, WaveId};

impl World {
    pub(super) fn cell(&mut self, name: &str) -> &mut SimCell {
        self.cells.get_mut(name).unwrap()
    }

    pub(super) fn advertise(&mut self, name: &str) {
        let cell = &self.cells[name];
        let heard = CellHeard {
            cell: name.into(),
            incarnation: Incarnation::from_u128(cell.incarnation),
            seq: cell.seq,
            ttl: Span(Duration::from_millis(TTL)),
            draining: cell.draining,
            leaving: cell.leaving,
            recent: cell.held.keys().copied().take(64).collect(),
        };
        self.give(ManagerInput::Cell(heard));
    }

    /// Returns the present list of a cell.
    pub(super) fn list_of(&self, name: &str) -> InstancesAnswer {
        let cell = &self.cells[name];
        let instances = cell.held.iter().map(|(id, held)| Instance {
            request: Some(held.request.parse().unwrap()),
            state: held.state,
            age_ms: self.now - held.since_ms,
            ready: cell.unready.contains(id).then_some(false),
            restarts: held.restarts,
            ..lists::instance(*id, "A", held.index)
        });
        InstancesAnswer {
            incarnation: Incarnation::from_u128(cell.incarnation),
            seq: cell.seq,
            ..lists::list(name, instances.collect())
        }
    }

    pub(super) fn list(&mut self, name: &str, question: Option<QuestionId>) {
        let mut list = self.list_of(name);
        for instance in &mut list.instances {
            let app = &self.cells[name].held[&instance.instance];
            instance.app = app_of(&app.request, instance.index, instance.instance);
        }
        let list = Box::new(list);
        self.give(ManagerInput::Listed { question, list });
    }

    /// Gives a cell an instance without reporting it yet.
    pub(super) fn add(
        &mut self,
        cell: &str,
        request: &str,
        index: u32,
        state: InstanceState,
    ) -> InstanceId {
        let id = instance_id(request, "A", Kind::Lrp, index);
        let since_ms = self.now;
        let cell = self.cell(cell);
        cell.seq += 1;
        let held = Held {
            request: request.into(),
            index,
            state,
            since_ms,
            restarts: 0,
        };
        cell.held.insert(id, held);
        id
    }

    /// Has an auctioneer say that cells accepted these.
    pub(super) fn placed(&mut self, request: &str, on: &[(u32, &str)]) {
        self.outcome(request, on, Outcome::Placed, None);
    }

    pub(super) fn outcome(
        &mut self,
        request: &str,
        on: &[(u32, &str)],
        outcome: Outcome,
        reason: Option<&str>,
    ) {
        let one = |(index, cell): &(u32, &str)| InstanceOutcome {
            index: Some(*index),
            indices: None,
            instance: None,
            outcome,
            cell: (!cell.is_empty()).then(|| (*cell).into()),
            reason: reason.map(str::to_owned),
            tally: Vec::new(),
            duplicate_of: None,
        };
        let reply = StartReply {
            v: VERSION,
            id: request.parse().unwrap(),
            app: "A".into(),
            outcome,
            auction: None,
            claim: None,
            instances: on.iter().map(one).collect(),
            warnings: Vec::new(),
        };
        self.give(ManagerInput::Outcome {
            wave: WaveId::parse(request).unwrap(),
            answer: Ok(Box::new(reply)),
        });
    }

    /// Carries out a start: a cell accepts each index and runs it.
    pub(super) fn runs(&mut self, request: &str, on: &[(u32, &str)]) {
        self.placed(request, on);
        for (index, cell) in on {
            self.add(cell, request, *index, InstanceState::Running);
        }
        let names: std::collections::BTreeSet<&str> = on.iter().map(|(_, cell)| *cell).collect();
        for cell in names {
            self.advertise(cell);
            self.list(cell, None);
        }
    }

    /// Changes the state of an instance, which its cell reports.
    pub(super) fn becomes(&mut self, cell: &str, id: InstanceId, state: InstanceState) {
        let now = self.now;
        let sim = self.cell(cell);
        sim.seq += 1;
        let held = sim.held.get_mut(&id).expect("an instance");
        let again = state == InstanceState::Starting || held.state == InstanceState::Restarting;
        held.restarts += u32::from(again);
        (held.state, held.since_ms) = (state, now);
        self.list(cell, None);
    }

    /// Ends an instance for good.
    pub(super) fn end(&mut self, cell: &str, id: InstanceId, what: &str, ran_ms: u64) {
        let sim = self.cell(cell);
        sim.seq += 1;
        let Some(held) = sim.held.remove(&id) else {
            return;
        };
        if sim.silent {
            return;
        }
        self.event(cell, what, held.index, id, (true, ran_ms));
    }

    pub(super) fn event(
        &mut self,
        cell: &str,
        what: &str,
        index: u32,
        id: InstanceId,
        (is_final, ran_ms): (bool, u64),
    ) {
        let held = self.cell(cell).held.get_mut(&id);
        let restarts = held.map_or(0, |held| {
            // it begins anew, and ends once in each attempt
            held.restarts += u32::from(what == kind::RESTARTED);
            if what == kind::CRASHED {
                held.state = InstanceState::Restarting;
            }
            held.restarts
        });
        self.told(cell, what, id, (index, restarts), (is_final, ran_ms));
    }

    /// An event about the attempt of index 0 after so many restarts.
    pub(super) fn attempt(&mut self, cell: &str, what: &str, id: InstanceId, restarts: u32) {
        self.told(cell, what, id, (0, restarts), (false, 0));
    }

    fn told(
        &mut self,
        cell: &str,
        what: &str,
        id: InstanceId,
        (index, restarts): (u32, u32),
        (is_final, ran_ms): (bool, u64),
    ) {
        let mut event = Event::app(what, "A");
        event.cell = Some(cell.into());
        event.instances = vec![EventInstance {
            index,
            instance: Some(id),
            is_final,
            restarts: (restarts > 0).then_some(restarts),
            ran: Some(Span(Duration::from_millis(ran_ms))),
            ended: (what == kind::CRASHED).then(|| "exit 1".into()),
            ..EventInstance::default()
        }];
        self.give(ManagerInput::Event(Box::new(event)));
    }

    /// Returns where an index runs: cell and id.
    pub(super) fn at(&self, index: u32) -> Vec<(String, InstanceId)> {
        let all = self.cells.iter().flat_map(|(name, cell)| {
            let held = cell
                .held
                .iter()
                .filter(move |(_, held)| held.index == index);
            held.map(move |(id, _)| (name.clone(), *id))
        });
        all.collect()
    }

    /// Returns the only instance of an index.
    pub(super) fn only(&self, index: u32) -> (String, InstanceId) {
        let at = self.at(index);
        assert_eq!(at.len(), 1, "index {index}: {at:?}");
        at[0].clone()
    }

    pub(super) fn start_somewhere(&mut self, request: &Request) {
        let indices = request.indices.clone().unwrap();
        if self.full {
            let on: Vec<(u32, &str)> = indices.iter().map(|index| (*index, "")).collect();
            return self.outcome(&request.id, &on, Outcome::Unplaced, Some("no room"));
        }
        let mut on = Vec::new();
        for index in indices {
            let free = self
                .cells
                .iter()
                .filter(|(_, cell)| !cell.silent && !cell.draining);
            let best = free.min_by_key(|(_, cell)| cell.held.len());
            let Some((name, _)) = best else {
                return;
            };
            let name = name.clone();
            let id = instance_id(&request.id, &request.app, Kind::Lrp, index);
            // the same id runs once
            if !self.cells.values().any(|cell| cell.held.contains_key(&id)) {
                let since_ms = self.now;
                let cell = self.cell(&name);
                cell.seq += 1;
                let held = Held {
                    request: request.id.clone(),
                    index,
                    state: InstanceState::Running,
                    since_ms,
                    restarts: 0,
                };
                cell.held.insert(id, held);
                on.push((index, name));
            }
        }
        let placed: Vec<(u32, &str)> = on.iter().map(|(i, name)| (*i, name.as_str())).collect();
        self.placed(&request.id, &placed);
        for (index, cell) in on {
            let id = instance_id(&request.id, &request.app, Kind::Lrp, index);
            self.event(&cell, kind::RUNNING, index, id, (false, 0));
        }
    }
}

fn app_of(request: &str, index: u32, id: InstanceId) -> String {
    let names = ["A", "B", "C"];
    let own = names
        .iter()
        .find(|app| instance_id(request, app, Kind::Lrp, index) == id);
    (*own.unwrap_or(&"A")).into()
}
