//! Slots: the cells that stand for DEAs.

use std::{collections::BTreeMap, sync::Arc};

use placement::{Cell, MAX_AMOUNT, Resources, check_name};

use super::{
    Bridge, BridgeAnswer, BridgeInstanceState, BridgeOutput,
    instances::{Tracked, changed},
};
use crate::dea::{DEFAULT_ZONE, Dea, DeaAdvertisement, DeaHeartbeat, DeaLimits, DeaState};

/// How long a start that no advertisement shows is believed: three advertisements.
const DEBIT_MS: u64 = 15_000;

/// A DEA's place among the cells.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) dea: String,
    /// When its last heartbeat arrived, or the DEA got the slot.
    pub(super) beat_ms: u64,
    /// The cluster's instances there, by id.
    pub(super) instances: BTreeMap<Arc<str>, Tracked>,
}

impl Slot {
    /// Returns what was started since the last advertisement.
    fn debits(&self) -> impl Iterator<Item = (&Tracked, DeaLimits)> {
        let instances = self.instances.values();
        instances.filter_map(|tracked| Some((tracked, *tracked.debit.as_deref()?)))
    }
}

impl Bridge {
    pub(super) fn cell_name(&self, slot: usize) -> String {
        format!("{}-{slot}", self.options.name)
    }

    pub(super) fn slot_named(&self, cell: &str) -> Option<usize> {
        let rest = cell.strip_prefix(&self.options.name)?;
        let slot: usize = rest.strip_prefix('-')?.parse().ok()?;
        // rejects other ways of writing the number
        (self.cell_name(slot) == cell && slot < self.slots.len()).then_some(slot)
    }

    /// Returns the DEA's slot, or gives it the first free one.
    fn slot_for(&mut self, now_ms: u64, dea: &str) -> Option<usize> {
        if let Some(slot) = self.by_dea.get(dea) {
            return Some(*slot);
        }
        if self.settles_ms.is_some() {
            return None;
        }
        let slot = self.slots.iter().position(Option::is_none)?;
        self.give(now_ms, slot, dea);
        Some(slot)
    }

    /// Gives a DEA without a slot the one that its instances name, if that is free.
    pub(super) fn give_back(&mut self, now_ms: u64, beat: &DeaHeartbeat) {
        if self.by_dea.contains_key(&beat.dea) || self.estate.dea(&beat.dea).is_none() {
            return;
        }
        let mut named = beat.droplets.iter();
        let named = named.find_map(|instance| self.parts(&instance.version));
        let named = named.map(|(slot, _)| slot);
        if let Some(slot) = named.filter(|slot| self.slots.get(*slot).is_some_and(Option::is_none))
        {
            self.give(now_ms, slot, &beat.dea);
        }
    }

    fn give(&mut self, now_ms: u64, slot: usize, dea: &str) {
        self.slots[slot] = Some(Slot {
            dea: dea.to_owned(),
            beat_ms: now_ms,
            instances: BTreeMap::new(),
        });
        self.by_dea.insert(dea.to_owned(), slot);
    }

    /// Handles an advertisement, which includes everything that the DEA knew of when it sent it.
    pub(super) fn advertised(&mut self, now_ms: u64, dea: &str, out: &mut Vec<BridgeOutput>) {
        let Some(at) = self.slot_for(now_ms, dea) else {
            return;
        };
        if let Some(slot) = &mut self.slots[at] {
            for tracked in slot.instances.values_mut() {
                if tracked.state.is_some() || now_ms.saturating_sub(tracked.sent_ms) >= DEBIT_MS {
                    tracked.debit = None;
                }
            }
        }
        self.drop_uncounted(now_ms, at, out);
        self.advertise(now_ms, dea, out);
    }

    pub(super) fn advertise(&self, now_ms: u64, dea: &str, out: &mut Vec<BridgeOutput>) {
        let slot = self.by_dea.get(dea);
        if let Some(cell) = slot.and_then(|slot| self.cell_of(*slot, now_ms)) {
            out.push(BridgeOutput::Advertise(Box::new(cell)));
        }
    }

    /// Handles that a DEA is no longer heard: its instances are lost, and its slot is free.
    pub(super) fn forgotten(&mut self, dea: &str, out: &mut Vec<BridgeOutput>) {
        let Some(at) = self.by_dea.remove(dea) else {
            return;
        };
        let cell = self.cell_name(at);
        let slot = self.slots[at].take();
        for (id, tracked) in slot.into_iter().flat_map(|slot| slot.instances) {
            if self.by_instance.get(&id) == Some(&at) {
                self.by_instance.remove(&id);
            }
            self.answer(&id, BridgeAnswer::Unknown, out);
            if !tracked.has_ended() {
                out.push(changed(&cell, &id, &tracked, BridgeInstanceState::Lost));
            }
        }
        out.push(BridgeOutput::Withdraw(cell));
    }

    /// Returns what the cell of a slot has left now; none if its DEA has not advertised.
    pub(super) fn cell_of(&self, slot: usize, now_ms: u64) -> Option<Cell> {
        let held = self.slots.get(slot)?.as_ref()?;
        let dea = self.estate.dea(&held.dea)?;
        let advertisement = dea.advertisement.as_ref()?;
        let mut cell = cell(self.cell_name(slot), advertisement, dea);
        cell.evacuating = !dea.is_live(now_ms);
        // a DEA that is only silent may come back, so what it runs stays
        cell.cordoned = cell.evacuating && dea.state != DeaState::ShutDown;
        for (tracked, limits) in held.debits() {
            cell.available.memory_mb -= limits.mem;
            if let Some(disk) = &mut cell.available.disk_mb {
                *disk -= limits.disk;
            }
            *cell
                .counts
                .apps
                .entry((*tracked.app).to_owned())
                .or_insert(0) += 1;
        }
        Some(cell)
    }

    /// Returns whether the DEA of a slot takes work.
    pub(super) fn takes_work(&self, slot: usize, now_ms: u64) -> bool {
        let held = self.slots[slot].as_ref();
        let dea = held.and_then(|held| self.estate.dea(&held.dea));
        dea.is_some_and(|dea| dea.state == DeaState::Live && dea.is_live(now_ms))
    }
}

/// Returns a DEA as a cell. The most memory that it ever had left is taken as its total.
fn cell(name: String, advertisement: &DeaAdvertisement, dea: &Dea) -> Cell {
    let available = advertisement.available();
    let total = Resources {
        memory_mb: dea
            .most_memory_mb
            .max(available.memory_mb)
            .clamp(1, MAX_AMOUNT),
        disk_mb: available.disk_mb.map(|disk| disk.max(1)),
        ..Resources::default()
    };
    let mut cell = Cell::new(name, total);
    cell.available = available;
    cell.counts.apps.clone_from(&advertisement.app_id_to_count);
    let attributes = cell.attributes_mut();
    attributes.zone = zone(advertisement.zone());
    attributes.stacks = advertisement.stacks.names().to_vec();
    (attributes.droplets, attributes.droplets_only) = (true, true);
    attributes.dea = Some(advertisement.id.clone());
    cell
}

/// Returns a zone name that the cluster accepts.
fn zone(name: &str) -> String {
    if check_name("zone", name).is_ok() {
        return name.to_owned();
    }
    let fine = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let kept: String = name.chars().filter(|c| fine(*c)).take(128).collect();
    if kept.is_empty() {
        return DEFAULT_ZONE.to_owned();
    }
    kept
}
