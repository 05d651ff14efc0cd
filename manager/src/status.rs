//! What is told about an app. The environment and the command of its instances are not in it.

use serde::Serialize;

use crate::{apps::App, ids::AppUid, instances::Life, parts::Parts, stored::RolloutPhase};

/// An app as the manager sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AppStatus {
    /// Its name.
    pub app: String,
    /// This creation of it.
    pub uid: AppUid,
    /// The version that is wanted.
    pub version: u32,
    /// How many instances are wanted.
    pub wanted: u32,
    /// Indices with a running instance.
    pub running: u32,
    /// Indices with one that is on its way.
    pub starting: u32,
    /// Indices that wait after a crash.
    pub crashed: u32,
    /// Indices that are not started again.
    pub given_up: u32,
    /// Instances on cells that are lost: they may run.
    pub suspect: u32,
    /// It is stopped.
    pub stopped: bool,
    /// It was deleted, and its instances are ending.
    pub deleted: bool,
    /// The rollout waits.
    pub paused: bool,
    /// How the rollout of this version ended; none while it goes on.
    pub rollout: Option<RolloutPhase>,
    /// Why the rollout failed.
    pub failed: Option<String>,
    /// Indices that run this version for long enough.
    pub complete: u32,
    /// Why something of it was not placed last.
    pub unplaced: Option<String>,
    /// What is stored is older than what ran: it is left alone until it is put again.
    pub went_back: bool,
}

/// The status of an app.
pub(crate) fn status(app: &App, parts: &Parts) -> AppStatus {
    let record = &app.record;
    let wanted = record.definition.instances;
    let mut status = AppStatus {
        app: app.name.to_string(),
        uid: record.uid,
        version: record.version,
        wanted,
        running: 0,
        starting: 0,
        crashed: 0,
        given_up: 0,
        suspect: 0,
        stopped: record.stopped,
        deleted: record.deleted,
        paused: record.paused,
        rollout: app.phase(),
        failed: app.rollout.as_ref().and_then(|r| r.reason.clone()),
        complete: app.progress.0,
        unplaced: app.unplaced.clone(),
        went_back: app.went_back,
    };
    for slot in app.slots.iter().take(wanted as usize) {
        let held = || slot.held.iter().filter_map(|id| parts.fleet.get(id));
        status.suspect += u32::try_from(held().filter(|one| one.suspect).count()).unwrap_or(0);
        let mut present = held().filter(|one| !one.suspect).peekable();
        if present.peek().is_none() {
            status.given_up += u32::from(slot.given_up);
            status.crashed += u32::from(slot.crashes > 0 && !slot.given_up);
        } else if present.any(|one| one.life == Life::Running) {
            status.running += 1;
        } else {
            status.starting += 1;
        }
    }
    status
}
