//! Messages of cells: advertisements, lists of instances and events; and what their silence means.

use std::sync::Arc;

use placement::Kind;
use shared::{
    InstanceId,
    clock::millis,
    wire::{Event, Instance, InstanceState, InstancesAnswer, instance_id, kind},
};

use crate::{
    bucket,
    cells::ListPart,
    clocks::ttl_ms,
    crashes::{Crash, ended},
    ids::{AppId, CellId, QuestionId, WaveId},
    instances::{Life, Managed},
    io::CellHeard,
    parts::Parts,
};

/// How often the leases of cells are looked at.
const LOOK_MS: u64 = 500;

/// Handles an advertisement of a cell.
pub(crate) fn advertised(parts: &mut Parts, heard_cell: &CellHeard) {
    let now = parts.clocks.moment();
    let Some(id) = parts.places.find(&heard_cell.cell, now) else {
        parts.counters.dropped_cells += 1;
        return;
    };
    // checked first: the withdrawal of an earlier incarnation must not remove the present one
    if !meets(parts, id, heard_cell.incarnation) {
        return;
    }
    if heard_cell.ttl.0.is_zero() {
        return left(parts, id);
    }
    parts.hear(&heard_cell.cell);
    let place = parts.places.get_mut(id);
    place.ttl_ms = ttl_ms(heard_cell.ttl);
    let drain = (heard_cell.draining, heard_cell.leaving);
    if (place.draining, place.leaving) != drain {
        (place.draining, place.leaving) = drain;
        touch_apps_of(parts, id);
        parts.room();
    }
    for instance in &heard_cell.recent {
        let found = parts.fleet.get_mut(instance);
        // an instance of another cell cannot have been accepted here
        if let Some(found) = found.filter(|found| found.cell == Some(id)) {
            found.was_there(heard_cell.seq);
        }
    }
}

/// Returns whether a message of this incarnation of a cell counts. If the incarnation is new, all that ran before is
/// gone.
fn meets(parts: &mut Parts, id: CellId, incarnation: shared::Incarnation) -> bool {
    let now = parts.clocks.moment();
    let (counts, renewed) = parts.places.get_mut(id).meets(incarnation, now);
    if !counts {
        parts.counters.dropped_former += 1;
    }
    if renewed {
        let mut gone = instances_of(parts, id);
        parts.tasks.cell_renewed();
        // instances that were sent to the cell and that it has never reported may belong to the new incarnation
        gone.retain(|id| parts.fleet.get(id).is_some_and(Managed::is_heard));
        for instance in gone {
            parts.leave(&instance);
        }
        parts.ask();
        parts.room();
    }
    counts
}

/// Returns the instances of a cell in a deterministic order.
fn instances_of(parts: &Parts, id: CellId) -> Vec<InstanceId> {
    let mut all: Vec<InstanceId> = parts.places.get(id).instances.iter().copied().collect();
    all.sort_unstable();
    all
}

fn touch_apps_of(parts: &mut Parts, id: CellId) {
    for instance in instances_of(parts, id) {
        if let Some(instance) = parts.fleet.get(&instance) {
            parts.apps.touch(instance.app);
        }
    }
}

/// Handles the withdrawal of a cell. If it was drained it has nothing left; otherwise its instances are ending.
fn left(parts: &mut Parts, id: CellId) {
    let drained = parts.places.get(id).draining;
    let now = parts.clocks.moment();
    parts.places.left(id, now);
    let name = Arc::clone(&parts.places.get(id).name);
    parts.tasks.cell_left(parts.now_ms, &name, drained);
    if drained {
        for instance in instances_of(parts, id) {
            parts.leave(&instance);
        }
    } else {
        lost(parts, id);
    }
}

/// Handles the loss of a cell: its instances may still run, and are replaced.
fn lost(parts: &mut Parts, id: CellId) {
    let now_ms = parts.now_ms;
    for instance in instances_of(parts, id) {
        if let Some(instance) = parts.fleet.get_mut(&instance) {
            (instance.suspect, instance.since_ms) = (true, now_ms);
            parts.apps.touch(instance.app);
        }
    }
}

/// Looks at the leases of cells. Only the holder of the lease concludes anything from silence.
pub(crate) fn look(parts: &mut Parts) {
    if parts.now_ms < parts.next_look_ms {
        return;
    }
    parts.next_look_ms = parts.now_ms + LOOK_MS;
    let looked = parts.places.look(parts.clocks.moment());
    if let Some((silent, all)) = looked.many {
        let mut event = Event::app(kind::MANY_CELLS_SILENT, "manager");
        event.count = silent;
        event.reason = Some(format!(
            "{silent} of {all} cells are silent: their instances are replaced if this lasts for one more ttl; while no cell is heard, nothing is replaced"
        ));
        parts.tell(event);
    }
    for id in looked.lost {
        parts.counters.cells_lost += 1;
        let name = Arc::clone(&parts.places.get(id).name);
        parts.tasks.cell_lost(parts.now_ms, &name);
        lost(parts, id);
    }
    for id in looked.forgotten {
        for instance in instances_of(parts, id) {
            parts.leave(&instance);
        }
    }
    if parts.settling.is_none() && parts.may_act() {
        let places = &parts.places;
        let is_here = |cell: &str| places.is_here(cell);
        parts.tasks.look_for_cells(parts.now_ms, is_here);
    }
    parts.apps.sweep(parts.now_ms);
}

/// Handles one message of a list of instances.
pub(crate) fn listed(parts: &mut Parts, question: Option<QuestionId>, list: &InstancesAnswer) {
    let now = parts.clocks.moment();
    let Some(id) = parts.places.find(&list.cell, now) else {
        parts.counters.dropped_cells += 1;
        return;
    };
    if !meets(parts, id, list.incarnation) {
        return;
    }
    let asked_ms = question.and_then(|question| parts.asked_ms(question));
    let numbers = (list.seq, list.part, list.parts);
    let place = parts.places.get_mut(id);
    let part = place.list_part(parts.now_ms, numbers, asked_ms);
    let serial = place.list;
    parts.hear(&list.cell);
    if part == ListPart::Old {
        parts.counters.dropped_old_lists += 1;
        return;
    }
    for instance in &list.instances {
        one_listed(parts, id, (list.seq, serial), instance);
    }
    for (app, instances) in parts.bucket.gone.take_met() {
        parts.stop(&app, &instances);
    }
    match part {
        ListPart::Complete { asked_ms } => unlisted(parts, id, (list.seq, serial), asked_ms),
        ListPart::Broken => parts.ask(),
        ListPart::Old | ListPart::Incomplete => {}
    }
}

/// Handles instances that were known on a cell and are missing from its complete list.
fn unlisted(parts: &mut Parts, id: CellId, (seq, serial): (u64, u32), asked_ms: Option<u64>) {
    let mut gone = Vec::new();
    let mut doubtful = false;
    for instance in &parts.places.get(id).instances {
        let Some(known) = parts.fleet.get(instance) else {
            continue;
        };
        if known.list == serial {
            continue;
        }
        if known.is_disproved(seq, asked_ms) {
            gone.push(*instance);
        } else {
            doubtful |= known.doubt_ms <= parts.now_ms;
        }
    }
    let place = parts.places.get_mut(id);
    place.answered_ms = place.answered_ms.max(asked_ms.unwrap_or(0));
    let name = Arc::clone(&place.name);
    parts.tasks.complete(parts.now_ms, &name, serial, asked_ms);
    gone.sort_unstable();
    for instance in gone {
        parts.leave(&instance);
        parts.room();
    }
    if doubtful {
        parts.ask();
    }
}

fn life_of(state: InstanceState) -> Option<Life> {
    match state {
        InstanceState::Starting => Some(Life::Starting),
        InstanceState::Running => Some(Life::Running),
        InstanceState::Restarting => Some(Life::Restarting),
        InstanceState::Stopping => Some(Life::Stopping),
        InstanceState::Exited | InstanceState::Crashed => None,
    }
}

fn one_listed(parts: &mut Parts, cell: CellId, (seq, serial): (u64, u32), listed: &Instance) {
    let id = listed.instance;
    let life = life_of(listed.state);
    if parts.fleet.get(&id).is_none() {
        let name = Arc::clone(&parts.places.get(cell).name);
        parts.tasks.listed(parts.now_ms, &name, serial, listed);
        let Some(life) = life else {
            return;
        };
        if !adopt(parts, cell, listed, life) {
            return;
        }
        parts.counters.adopted += 1;
    }
    let now_ms = parts.now_ms;
    let Some(known) = parts.fleet.get_mut(&id) else {
        return;
    };
    let Some(life) = life else {
        // either its end says that it was stopped, or its event was missed
        let crashed = listed.ended.as_deref() != Some("stopped");
        let ran = known.life == Life::Running;
        let ran_ms = if ran {
            now_ms.saturating_sub(known.since_ms + listed.age_ms)
        } else {
            0
        };
        let how = listed.ended.as_deref();
        return ended(parts, id, crashed.then_some(Crash { ran_ms, how }));
    };
    known.was_there(seq);
    known.list = serial;
    let is_here = known.cell == Some(cell) && !known.suspect;
    if is_here && known.is_past(listed.restarts, life) {
        return;
    }
    known.restarts = listed.restarts;
    let unready = listed.ready == Some(false);
    let becomes_ready = known.life == life && known.unready && !unready;
    let since_ms = if becomes_ready {
        now_ms
    } else {
        now_ms.saturating_sub(listed.age_ms)
    };
    let is_new = known.life != life || known.unready != unready;
    if is_new || known.suspect || known.cell != Some(cell) {
        (known.life, known.suspect, known.since_ms) = (life, false, since_ms);
        known.unready = unready;
        let app = known.app;
        parts.apps.touch(app);
        parts.put_on(id, cell);
    }
}

/// Adopts an instance that this manager has not started: it belongs to a wave of an earlier manager, or its state was
/// lost. Returns false if it is not of this bucket.
fn adopt(parts: &mut Parts, cell: CellId, listed: &Instance, life: Life) -> bool {
    let wave = listed.request.as_ref();
    let Some(wave) = wave.and_then(|id| WaveId::parse(id.as_str())) else {
        return false;
    };
    if parts.bucket.id != Some(wave.bucket) || listed.kind != Kind::Lrp {
        return false;
    }
    let found = parts.apps.of_uid(wave.uid);
    let Some((app, record)) = found.and_then(|id| Some((id, parts.apps.get(id)?))) else {
        if !parts.may_act() || !parts.bucket.gone.meet(cell, listed, &wave) {
            parts.places.get_mut(cell).orphans += 1;
        }
        return false;
    };
    let own = instance_id(&wave.to_string(), &record.name, Kind::Lrp, listed.index);
    // anybody may start something under such an id; only an instance id that follows from it proves a wave
    if own != listed.instance || listed.index >= placement::MAX_INSTANCES {
        parts.counters.dropped_false_ids += 1;
        return false;
    }
    let (stored, present) = (record.record.version, record.record.uid == wave.uid);
    let numbers = (listed.index, wave.version, wave.wave);
    let mut instance = Managed::asked(app, wave.uid, numbers, parts.now_ms);
    (instance.cell, instance.life, instance.restarts) = (Some(cell), life, listed.restarts);
    instance.unready = listed.ready == Some(false);
    instance.since_ms = parts.now_ms.saturating_sub(listed.age_ms);
    parts.enter(listed.instance, instance);
    if present && wave.version > stored {
        newer_runs(parts, app, wave.version);
    }
    true
}

/// Handles that a newer version runs than is known to be stored. While the bucket is being read, what is stored is
/// unknown.
fn newer_runs(parts: &mut Parts, id: AppId, version: u32) {
    if parts.bucket.ready {
        return bucket::went_back(parts, id, version);
    }
    if let Some(app) = parts.apps.get_mut(id) {
        app.acted = app.acted.max(version);
    }
}

/// Handles an event of a cell.
pub(crate) fn told(parts: &mut Parts, event: &Event) {
    let Some(cell) = event.app.as_ref().and(event.cell.as_deref()) else {
        return draining(parts, event);
    };
    let Some(on) = parts.places.find(cell, parts.clocks.moment()) else {
        parts.counters.dropped_cells += 1;
        return;
    };
    // handled before the cell counts as back, as the event may be about an instance that is thought lost
    for one in &event.instances {
        let ends = [kind::STOPPED, kind::EXITED, kind::CRASHED];
        if ends.contains(&event.kind.as_str()) {
            // room is free, whoever started the instance
            parts.tasks.room(parts.now_ms);
        }
        let Some(id) = one.instance else {
            continue;
        };
        let crash = Crash {
            ran_ms: one.ran.map_or(0, |ran| millis(ran.0)),
            how: one.ended.as_deref(),
        };
        let attempt = (id, one.restarts.unwrap_or(0));
        match event.kind.as_str() {
            kind::RUNNING => alive(parts, attempt, on, Life::Running),
            kind::READY => readiness(parts, attempt, on, true),
            kind::NOT_READY => readiness(parts, attempt, on, false),
            kind::RESTARTED => alive(parts, attempt, on, Life::Starting),
            kind::CRASHED if !one.is_final => alive(parts, attempt, on, Life::Restarting),
            kind::STOPPED => ended(parts, id, None),
            kind::EXITED | kind::CRASHED if one.is_final => ended(parts, id, Some(crash)),
            _ => {}
        }
    }
    parts.hear(cell);
}

fn draining(parts: &mut Parts, event: &Event) {
    let Some(cell) = event.cell.as_deref() else {
        return;
    };
    let Some(id) = parts.hear(cell) else {
        return;
    };
    if event.kind == kind::CELL_DRAINING && !parts.places.get(id).draining {
        parts.places.get_mut(id).draining = true;
        touch_apps_of(parts, id);
    }
    if event.kind == kind::CELL_UNCORDONED {
        // advertisements say nothing new of a cell that was only cordoned
        parts.room();
    }
}

/// Handles that an instance, in the attempt after this many restarts, is in this state.
fn alive(parts: &mut Parts, (id, restarts): (InstanceId, u32), cell: CellId, life: Life) {
    let now_ms = parts.now_ms;
    let Some(known) = parts.fleet.get_mut(&id) else {
        return;
    };
    // for a lost cell only lists count, as an event may be an old one
    if known.suspect || known.is_past(restarts, life) {
        return;
    }
    let is_new = (known.life, known.restarts) != (life, restarts);
    known.restarts = restarts;
    if !is_new {
        return;
    }
    let template = parts.apps.get(known.app);
    let template = template.and_then(|app| app.template(known.version));
    let has_check = template.is_some_and(|template| template.ready.is_some());
    (known.life, known.since_ms) = (life, now_ms);
    known.unready = life == Life::Running && has_check;
    parts.apps.touch(known.app);
    if known.cell.is_none() {
        // the auctioneer's answer may come later or never; without a cell, the instance's end would go unnoticed
        known.doubt_ms = now_ms;
        parts.put_on(id, cell);
    }
}

/// Handles that a running instance has become ready or is no longer ready.
fn readiness(parts: &mut Parts, (id, restarts): (InstanceId, u32), cell: CellId, ready: bool) {
    let known = parts.fleet.get(&id);
    if known.is_none_or(|known| known.is_past(restarts, Life::Running)) {
        return;
    }
    if ready {
        // the event that it runs may arrive after this one
        alive(parts, (id, restarts), cell, Life::Running);
    }
    let now_ms = parts.now_ms;
    let Some(known) = parts.fleet.get_mut(&id) else {
        return;
    };
    if known.life == Life::Running && !known.suspect && known.unready == ready {
        (known.unready, known.since_ms) = (!ready, now_ms);
        parts.apps.touch(known.app);
    }
}
