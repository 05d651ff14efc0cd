//! An app as decisions see it: each instance of an index with the properties that matter.

use shared::{InstanceId, clock::millis};

use crate::{
    apps::{App, Slot},
    cells::Places,
    clocks::Moment,
    ids::CellId,
    instances::{Fleet, Life},
    moves::Moves,
    rules::UpdateOrder,
    stored::RolloutPhase,
};

/// A stop that had no effect is sent again after this time.
pub(crate) const STOP_AGAIN_MS: u64 = 10_000;

/// What a decision looks at besides the app.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) now_ms: u64,
    pub(crate) moment: Moment,
    /// Whether what is not heard can be taken as absent.
    pub(crate) settled: bool,
    pub(crate) period: u32,
    pub(crate) fleet: &'a Fleet,
    pub(crate) places: &'a Places,
    pub(crate) moves: &'a Moves,
}

/// An instance at an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) id: InstanceId,
    pub(crate) version: u32,
    pub(crate) cell: Option<CellId>,
    pub(crate) life: Life,
    pub(crate) since_ms: u64,
    /// It runs and may be used.
    pub(crate) up: bool,
    pub(crate) suspect: bool,
    /// Whether it is to be replaced on another cell, because its own drains or because it is moved.
    pub(crate) draining: bool,
    /// Whether an operator moves it.
    pub(crate) moving: bool,
    /// Whether its cell's rep ends within a grace period.
    pub(crate) leaving: bool,
    pub(crate) stopping: bool,
    /// Whether its cell has been here without a break for a ttl.
    pub(crate) steady: bool,
}

impl Seen {
    /// Returns whether it occupies its index: no other instance is started because this one is missing.
    pub(crate) fn is_present(&self) -> bool {
        !self.suspect
    }

    /// Returns whether it is to stay.
    pub(crate) fn is_kept(&self) -> bool {
        !self.suspect && !self.draining && !self.stopping
    }

    /// Returns whether its cell has reported it.
    pub(crate) fn is_told(&self) -> bool {
        !matches!(self.life, Life::Asked | Life::Sent)
    }

    pub(crate) fn runs(&self) -> bool {
        self.life == Life::Running
    }

    /// Returns whether it has been up for this long.
    pub(crate) fn is_healthy(&self, now_ms: u64, for_ms: u64) -> bool {
        self.up && now_ms >= self.since_ms + for_ms
    }
}

impl Scene<'_> {
    fn seen(&self, id: InstanceId) -> Option<Seen> {
        let instance = self.fleet.get(&id)?;
        let place = instance.cell.map(|cell| self.places.get(cell));
        let moving = self.moves.is_leaving(id);
        let recently = instance.stop_ms > 0 && self.now_ms < instance.stop_ms + STOP_AGAIN_MS;
        Some(Seen {
            id,
            version: instance.version,
            cell: instance.cell,
            life: instance.life,
            since_ms: instance.since_ms,
            up: instance.is_up(),
            suspect: instance.suspect,
            draining: moving || place.is_some_and(|place| place.draining),
            moving,
            leaving: place.is_some_and(|place| place.leaving),
            stopping: recently || instance.life == Life::Stopping,
            steady: place.is_some_and(|place| self.moment.is_past(place.joined, place.ttl_ms)),
        })
    }

    /// Collects the instances of an index.
    pub(crate) fn at(&self, slot: &Slot, into: &mut Vec<Seen>) {
        into.clear();
        into.extend(slot.held.iter().filter_map(|id| self.seen(*id)));
    }

    /// Looks up one instance.
    pub(crate) fn one(&self, id: InstanceId) -> Option<Seen> {
        self.seen(id)
    }

    /// Returns whether an index where nothing is heard is known to be free.
    pub(crate) fn is_free(&self, app: &App, slot: &Slot) -> bool {
        self.settled || app.new_in == self.period || slot.free_in == self.period
    }
}

/// What the definition and the rollout say about versions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Versions {
    /// The wanted version.
    pub(crate) target: u32,
    /// The version before; none for the first.
    pub(crate) before: Option<u32>,
    reverted: bool,
    pub(crate) phase: Option<RolloutPhase>,
    pub(crate) paused: bool,
    pub(crate) stop_first: bool,
    pub(crate) max_in_flight: usize,
    pub(crate) min_healthy_ms: u64,
    pub(crate) deadline_ms: u64,
    pub(crate) start_timeout_ms: u64,
}

impl Versions {
    pub(crate) fn of(app: &App) -> Self {
        let (record, update) = (&app.record, &app.record.definition.update);
        let in_flight = record.in_flight.unwrap_or(update.max_in_flight);
        Self {
            target: record.version,
            before: record.before.as_ref().map(|before| before.version),
            reverted: record.reverted,
            phase: match app.failing {
                Some(_) if app.phase().is_none() => Some(RolloutPhase::Failed),
                _ => app.phase(),
            },
            paused: record.paused,
            stop_first: update.order == UpdateOrder::StopFirst,
            max_in_flight: in_flight as usize,
            min_healthy_ms: millis(update.min_healthy.0),
            deadline_ms: millis(update.deadline.0),
            start_timeout_ms: millis(record.definition.start_timeout().0),
        }
    }

    /// Returns whether an instance of this version is as wanted.
    pub(crate) fn conforms(&self, version: u32) -> bool {
        version == self.target || (self.reverted && self.before == Some(version))
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.phase == Some(RolloutPhase::Failed)
    }

    /// Returns whether a rollout from one version to another is in progress.
    pub(crate) fn rolls(&self) -> bool {
        self.phase.is_none() && self.before.is_some()
    }

    /// Returns the version for an index that has no instance, and whether starting it is a step of the rollout.
    pub(crate) fn for_missing(&self, slot: &Slot, nothing_left: bool) -> (u32, bool) {
        let Some(before) = self.before else {
            return (self.target, false);
        };
        match self.phase {
            Some(RolloutPhase::Done) => (self.target, false),
            // the mixed state is kept
            Some(RolloutPhase::Failed) if slot.version == self.target => (self.target, false),
            Some(RolloutPhase::Failed) => (before, false),
            None if nothing_left || slot.version == self.target => (self.target, false),
            // the version before failed here, so there is nothing to return to
            None if slot.rolling || slot.crashed_version == before => (self.target, true),
            None => (before, false),
        }
    }
}
