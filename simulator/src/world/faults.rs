//! Begins and ends faults.

use std::{collections::BTreeMap, sync::Arc};

use auctioneer::AuctioneerInput;
use placement::Request;
use rep::CellInput;
use shared::{clock::millis, wire::Instance};

use super::{ALERT_MS, Event, World, client::Lost};
use crate::scenario::{FaultKind, Target};

impl World<'_> {
    pub(super) fn fault(&mut self, fault: usize, begins: bool) {
        let scenario = self.scenario;
        let fault = &scenario.faults[fault];
        match &fault.target {
            Target::Cells(names) => {
                for name in names {
                    let Some(c) = self.by_name.get(name).copied() else {
                        continue;
                    };
                    match (fault.kind, begins) {
                        (FaultKind::CellLost | FaultKind::ZoneLost, true) => self.cell_lost(c),
                        (FaultKind::CellLost | FaultKind::ZoneLost, false) => self.cell_returns(c),
                        (FaultKind::CellDrain, true) => self.drain_begins(c, fault.deadline_ms),
                        (FaultKind::CellDrain, false) => self.drain_is_over(c),
                        (_, true) => self.cell_cut(c),
                        (_, false) => self.cell_joined(c),
                    }
                }
            }
            Target::Auctioneer(n) if begins => {
                self.nodes[*n].machine = None;
                self.nodes[*n].joined = false;
                self.nodes[*n].life += 1; // messages in transit to it are lost
            }
            Target::Auctioneer(n) => {
                if !self.nodes[*n].is_up() {
                    self.start_auctioneer(*n);
                }
            }
            Target::Manager(m) if begins => self.end_manager(*m),
            Target::Manager(m) => {
                if self.managers[*m].driver.is_none() {
                    self.start_manager(*m);
                }
            }
            Target::All => self.nats(begins),
        }
        self.alert();
    }

    /// In aggregated mode, lets pool time pass for a while.
    fn alert(&mut self) {
        let was = self.alert_ms;
        self.alert_ms = self.now_ms() + ALERT_MS + 2 * millis(self.scenario.cadence.ttl().0);
        if self.aggregated && was <= self.now_ms() {
            for n in 0..self.nodes.len() {
                let life = self.nodes[n].life;
                self.at(self.now_us, Event::Echo(n, life));
            }
        }
    }

    pub(super) fn cell_lost(&mut self, c: usize) {
        if self.cells[c].down == 0 {
            self.count_silence(c, self.cells[c].advertised_ms);
        }
        self.cells[c].down += 1;
        if self.cells[c].down > 1 {
            return;
        }
        let now_ms = self.now_ms();
        self.down_since.insert(c, now_ms);
        self.lose_instances(c);
        self.cells[c].die(now_ms);
        self.note_runs(c);
        self.measure(c);
    }

    /// Counts the instances of a cell as lost, and has the client ask for them again if it is configured to.
    pub(super) fn lose_instances(&mut self, c: usize) {
        let held = self.cells[c].ledger().current_instances(self.now_ms());
        self.client.lost += held.len() as u64;
        if let Some(after_ms) = self.scenario.restart_lost_after_ms {
            let lost = self.by_request(held);
            if !lost.is_empty() {
                self.ask_again(after_ms, lost);
            }
        }
    }

    /// Groups lost instances by the request that asked for them.
    fn by_request(&mut self, held: Vec<Instance>) -> Vec<Lost> {
        let mut lost: BTreeMap<(String, String), Lost> = BTreeMap::new();
        for instance in held {
            let asked = self.client.lost(instance.instance);
            let (request, index, lifetime_ms) = asked.unwrap_or_else(|| {
                let size = (instance.memory_mb, instance.disk_mb);
                let mut request = Request::new(instance.app.as_str(), size.0, size.1);
                request.kind = instance.kind;
                (Arc::new(request), instance.index, None)
            });
            let key = (request.app.clone(), request.id.clone());
            let entry = lost.entry(key).or_insert_with(|| Lost {
                request,
                indices: Vec::new(),
                lifetime_ms,
            });
            if !entry.indices.contains(&index) {
                entry.indices.push(index);
            }
        }
        lost.into_values().collect()
    }

    pub(super) fn cell_returns(&mut self, c: usize) {
        self.cells[c].down -= 1;
        if self.cells[c].down > 0 {
            return;
        }
        let now_ms = self.now_ms();
        if let Some(since_ms) = self.down_since.remove(&c) {
            self.down_ms += now_ms - since_ms;
        }
        self.cells[c].advertised_ms = now_ms;
        self.start_cell(c);
    }

    fn cell_cut(&mut self, c: usize) {
        self.count_silence(c, self.cells[c].advertised_ms);
        self.cells[c].advertised_ms = self.now_ms();
        self.cells[c].cut += 1;
        self.tally.reach(self.now_us, c, false);
    }

    /// Reconnects a cell. Auctioneers may have removed it.
    fn cell_joined(&mut self, c: usize) {
        self.cells[c].cut -= 1;
        self.cells[c].advertised_ms = self.now_ms();
        if self.cells[c].cut == 0 {
            self.tally.reach(self.now_us, c, true);
            self.settle(c, CellInput::Reconnected);
        }
    }

    fn nats(&mut self, goes: bool) {
        if goes {
            self.away += 1;
            for n in 0..self.nodes.len() {
                self.step(n, Some(AuctioneerInput::Connected(false)));
            }
            self.managers_connected(false);
            return;
        }
        self.away -= 1;
        if self.away > 0 {
            return;
        }
        for n in 0..self.nodes.len() {
            self.step(n, Some(AuctioneerInput::Connected(true)));
            if self.nodes[n].is_up() {
                self.discover(n);
            }
        }
        self.managers_connected(true);
        for c in 0..self.cells.len() {
            self.settle(c, CellInput::Reconnected);
        }
    }
}
