//! The cluster's instances on DEAs, as reported by heartbeats, replies and ends.

use std::{collections::BTreeSet, sync::Arc};

use super::{Bridge, BridgeAnswer, BridgeOutput, bytes};
use crate::dea::{
    DeaExited, DeaFilter, DeaHeartbeat, DeaInstance, DeaInstanceState, DeaLimits, DeaStart, Hidden,
    subjects,
};

/// After this long (three heartbeats), an instance that was sent and is in no heartbeat does not exist. No heartbeat
/// shows it before it is starting.
const GRACE_MS: u64 = 30_000;

/// The state of an instance as seen by the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BridgeInstanceState {
    /// It is on its way.
    Starting,
    /// It runs.
    Running,
    /// It ended as it was asked to.
    Stopped,
    /// It failed.
    Crashed {
        /// The exit code; -1 if there is none.
        exit_status: i64,
        /// Why, in words; empty if unknown.
        description: String,
    },
    /// It is gone, for an unknown reason.
    Lost,
}

/// An instance of the cluster on a DEA. There are many, so each takes little memory.
#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) app: Box<str>,
    pub(super) index: u32,
    /// When its start was sent, or when it was first heard of if another bridge sent it.
    pub(super) sent_ms: u64,
    /// The resources that it takes and that no advertisement shows yet.
    pub(super) debit: Option<Box<DeaLimits>>,
    /// The slot that its droplet's version names; the rest of the version is the instance's id.
    named: usize,
    /// The state that the DEA last reported; none if it was only sent.
    pub(super) state: Option<DeaInstanceState>,
    stopping: bool,
}

impl Tracked {
    pub(super) fn sent(now_ms: u64, start: &DeaStart, slot: usize) -> Self {
        Self {
            app: start.droplet.as_str().into(),
            index: start.index,
            sent_ms: now_ms,
            debit: Some(Box::new(start.limits)),
            named: slot,
            state: None,
            stopping: false,
        }
    }

    fn heard(now_ms: u64, instance: &DeaInstance, named: usize) -> Self {
        Self {
            app: instance.droplet.as_str().into(),
            index: instance.index,
            sent_ms: now_ms,
            debit: None,
            named,
            state: None,
            stopping: false,
        }
    }

    /// Returns whether it no longer runs, though its DEA still lists it.
    pub(super) fn has_ended(&self) -> bool {
        matches!(
            self.state,
            Some(DeaInstanceState::Crashed | DeaInstanceState::Stopped)
        )
    }
}

/// Returns the output that tells the cluster the state of an instance.
pub(super) fn changed(
    cell: &str,
    id: &str,
    tracked: &Tracked,
    state: BridgeInstanceState,
) -> BridgeOutput {
    BridgeOutput::Instance {
        cell: cell.to_owned(),
        id: id.to_owned(),
        app: (*tracked.app).to_owned(),
        index: tracked.index,
        state,
    }
}

/// Returns the state as told to the cluster; some states only matter to DEAs.
fn told(state: DeaInstanceState) -> Option<BridgeInstanceState> {
    match state {
        DeaInstanceState::Born | DeaInstanceState::Starting | DeaInstanceState::Resuming => {
            Some(BridgeInstanceState::Starting)
        }
        DeaInstanceState::Running | DeaInstanceState::Evacuating => {
            Some(BridgeInstanceState::Running)
        }
        DeaInstanceState::Crashed => Some(BridgeInstanceState::Crashed {
            exit_status: -1,
            description: String::new(),
        }),
        DeaInstanceState::Stopped => Some(BridgeInstanceState::Stopped),
        DeaInstanceState::Stopping => None,
    }
}

impl Bridge {
    pub(super) fn tracked(&self, id: &str) -> Option<&Tracked> {
        self.tracked_on(*self.by_instance.get(id)?, id)
    }

    fn tracked_on(&self, slot: usize, id: &str) -> Option<&Tracked> {
        self.slots[slot].as_ref()?.instances.get(id)
    }

    /// Handles an instance that was found on a DEA, in a reply or a heartbeat.
    pub(super) fn seen(
        &mut self,
        now_ms: u64,
        dea: &str,
        instance: &DeaInstance,
        out: &mut Vec<BridgeOutput>,
    ) {
        let Some((named, id)) = self.parts(&instance.version) else {
            return; // somebody else's
        };
        let Some(at) = self.by_dea.get(dea).copied() else {
            return;
        };
        let cell = self.cell_name(at);
        let Some(slot) = &mut self.slots[at] else {
            return;
        };
        if !slot.instances.contains_key(id) {
            let tracked = Tracked::heard(now_ms, instance, named);
            let id: Arc<str> = id.into();
            slot.instances.insert(Arc::clone(&id), tracked);
            self.by_instance.insert(id, at);
        }
        let Some(tracked) = slot.instances.get_mut(id) else {
            return;
        };
        if self.by_instance.get(id) != Some(&at) {
            self.by_instance.insert(id.into(), at);
        }
        let before = tracked.state.replace(instance.state).and_then(told);
        let ended = tracked.has_ended();
        let now = told(instance.state);
        let change = now.filter(|now| before.as_ref() != Some(now));
        let change = change.map(|now| changed(&cell, id, tracked, now));
        let refused = ended && self.asking.contains_key(id);
        let answer = if refused {
            let reason = "crashed".to_owned();
            BridgeAnswer::Refused { reason }
        } else {
            BridgeAnswer::Placed
        };
        self.answer(id, answer, out);
        out.extend(change.filter(|_| !refused));
    }

    /// Handles a heartbeat, which lists what a DEA has: the cluster's instances there that are not listed have ended.
    pub(super) fn heartbeat(
        &mut self,
        now_ms: u64,
        beat: &DeaHeartbeat,
        out: &mut Vec<BridgeOutput>,
    ) {
        self.give_back(now_ms, beat);
        for instance in &beat.droplets {
            self.seen(now_ms, &beat.dea, instance, out);
        }
        let Some(at) = self.by_dea.get(&beat.dea).copied() else {
            return;
        };
        if let Some(slot) = &mut self.slots[at] {
            slot.beat_ms = now_ms;
        }
        let listed = beat.droplets.iter();
        let listed: BTreeSet<&str> = listed.filter_map(|i| self.id_of(&i.version)).collect();
        self.drop_unlisted(now_ms, at, |id, _| listed.contains(id), out);
        let Some(slot) = &self.slots[at] else {
            return;
        };
        // those that were to be stopped and keep running did not hear it
        let deaf = slot.instances.iter().filter(|(id, tracked)| {
            tracked.stopping && !tracked.has_ended() && listed.contains::<str>(id)
        });
        out.extend(deaf.map(|(id, tracked)| self.stop_of(id, tracked)));
    }

    /// Handles an advertisement of a DEA that sends no heartbeats: until the end of 2014 one without instances sent none,
    /// and from March 2016 they were not sent over NATS. The instances of an app that it does not count have ended.
    pub(super) fn drop_uncounted(&mut self, now_ms: u64, at: usize, out: &mut Vec<BridgeOutput>) {
        let Some(slot) = &self.slots[at] else {
            return;
        };
        let is_silent = now_ms.saturating_sub(slot.beat_ms) >= GRACE_MS;
        let dea = self.estate.dea(&slot.dea).filter(|_| is_silent);
        // counts that could not be read say nothing
        let dea = dea.filter(|dea| dea.odd.count == 0);
        let Some(counts) = dea.and_then(|dea| Some(&dea.advertisement.as_ref()?.app_id_to_count))
        else {
            return;
        };
        let counted: BTreeSet<String> = counts.keys().cloned().collect();
        let is_there = |_: &str, tracked: &Tracked| {
            let is_young = now_ms.saturating_sub(tracked.sent_ms) < GRACE_MS;
            is_young || counted.contains(&*tracked.app)
        };
        self.drop_unlisted(now_ms, at, is_there, out);
    }

    /// Ends the instances of a slot that are not there according to its DEA.
    fn drop_unlisted(
        &mut self,
        now_ms: u64,
        at: usize,
        is_there: impl Fn(&str, &Tracked) -> bool,
        out: &mut Vec<BridgeOutput>,
    ) {
        let cell = self.cell_name(at);
        let Some(slot) = &mut self.slots[at] else {
            return;
        };
        let (asking, by_instance) = (&self.asking, &mut self.by_instance);
        slot.instances.retain(|id, tracked| {
            let is_young = now_ms.saturating_sub(tracked.sent_ms) < GRACE_MS;
            // these are in no heartbeat while they are on their way
            let unborn = matches!(tracked.state, None | Some(DeaInstanceState::Born));
            let waits = asking.contains_key(&**id) || (unborn && is_young && !tracked.stopping);
            if waits || is_there(id, tracked) {
                return true;
            }
            let state = if tracked.stopping {
                BridgeInstanceState::Stopped
            } else {
                BridgeInstanceState::Lost
            };
            if !tracked.has_ended() {
                out.push(changed(&cell, id, tracked, state));
            }
            if by_instance.get(id) == Some(&at) {
                by_instance.remove(id);
            }
            false
        });
    }

    /// Handles the end of an instance. Its DEA continues to list it for a while if it crashed.
    pub(super) fn exited(&mut self, exited: &DeaExited, out: &mut Vec<BridgeOutput>) {
        let Some((named, id)) = self.parts(&exited.version) else {
            return;
        };
        // another DEA may have the same instance, with the number of its own slot in the version
        let has_it = |slot: &usize| {
            let slot = self.slots.get(*slot).and_then(Option::as_ref);
            let tracked = slot.and_then(|slot| slot.instances.get(id));
            tracked.is_some_and(|tracked| tracked.named == named)
        };
        let known = self.by_instance.get(id).copied();
        let Some(at) = [Some(named), known].into_iter().flatten().find(has_it) else {
            return;
        };
        let cell = self.cell_name(at);
        let found = self.slots[at].as_mut();
        let Some(tracked) = found.and_then(|slot| slot.instances.get_mut(id)) else {
            return;
        };
        // an evacuating DEA says this of instances that still run; heartbeats tell when they have ended
        if exited.reason.eq_ignore_ascii_case("DEA_EVACUATION") || tracked.has_ended() {
            return;
        }
        let told = ended(exited, tracked.stopping);
        let state = match told {
            BridgeInstanceState::Crashed { .. } => DeaInstanceState::Crashed,
            _ => DeaInstanceState::Stopped,
        };
        (tracked.state, tracked.debit) = (Some(state), None);
        let change = changed(&cell, id, tracked, told);
        if exited.is_refusal() && self.asking.contains_key(id) {
            let reason = lacking(exited);
            self.answer(id, BridgeAnswer::Refused { reason }, out);
            return;
        }
        // it had been placed
        self.answer(id, BridgeAnswer::Placed, out);
        out.push(change);
    }

    /// Has an instance stopped; heartbeats tell when that is done.
    pub(super) fn stop(&mut self, cell: &str, id: &str, out: &mut Vec<BridgeOutput>) {
        let Some(at) = self.slot_named(cell) else {
            return;
        };
        let found = self.slots[at].as_mut();
        let found = found.and_then(|slot| slot.instances.get_mut(id));
        if let Some(tracked) = found {
            tracked.stopping = true;
        }
        out.extend(self.tracked_on(at, id).map(|found| self.stop_of(id, found)));
    }

    /// Returns `dea.stop` for one instance.
    fn stop_of(&self, id: &str, tracked: &Tracked) -> BridgeOutput {
        let filter = DeaFilter {
            droplet: (*tracked.app).to_owned(),
            version: Some(self.version(tracked.named, id)),
            indices: vec![tracked.index],
            ..DeaFilter::default()
        };
        BridgeOutput::Publish {
            subject: subjects::STOP.to_owned(),
            body: Hidden(bytes(&filter)),
        }
    }
}

/// Returns what has become of an instance that has ended.
fn ended(exited: &DeaExited, stopping: bool) -> BridgeInstanceState {
    if stopping || exited.reason.eq_ignore_ascii_case("STOPPED") {
        BridgeInstanceState::Stopped
    } else if exited.is_crash() {
        BridgeInstanceState::Crashed {
            exit_status: exited.exit_status,
            description: without_credentials(&placement::cut(&exited.exit_description)),
        }
    } else {
        BridgeInstanceState::Lost
    }
}

/// Removes users and queries from the URLs in a text: DEAs report the address from which they could not fetch a
/// droplet.
fn without_credentials(text: &str) -> String {
    let words = text.split_inclusive(char::is_whitespace);
    words.map(url_without_credentials).collect()
}

fn url_without_credentials(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return word.to_owned();
    };
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let address = match rest.rsplit_once('@') {
        Some((_, address)) => format!("(hidden)@{address}"),
        None => rest.to_owned(),
    };
    // white space ends the query
    let end = query.map(|query| {
        let after = query.find(char::is_whitespace).unwrap_or(query.len());
        format!("?(hidden){}", &query[after..])
    });
    format!("{scheme}://{address}{}", end.unwrap_or_default())
}

/// Returns the resource that the DEA lacked.
fn lacking(exited: &DeaExited) -> String {
    let description = exited.exit_description.to_ascii_lowercase();
    let resource = if description.contains("disk") {
        "disk"
    } else {
        "memory"
    };
    format!("insufficient resources: {resource}")
}
