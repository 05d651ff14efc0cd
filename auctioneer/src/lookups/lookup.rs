//! A question to the cells that not all of them have answered yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shared::{
    AuctionId, InstanceId, RequestId, VERSION,
    wire::{IdPrefixes, InstanceState, Instances, InstancesAnswer, RunningIds},
};

use super::duplicates::Holder;
use crate::{ids::TicketId, ticket::Begun};

/// The most instances asked for by id in one question; a larger request is asked for by app.
pub(super) const ASKED_BY_ID: usize = 4_096;

#[derive(Debug, Default)]
pub(super) struct Lookup {
    pub(super) missing: BTreeSet<Arc<str>>,
    /// The requests that wait for the answers.
    pub(super) tickets: Vec<TicketId>,
    /// Whether it asks for the requests' own instances, or for those that they name.
    pub(super) own: bool,
    /// The watched requests that it asks for as well.
    pub(super) watches: Vec<RequestId>,
    /// The instances that it asks for, with their apps and the cells that hold them.
    pub(super) instances: BTreeMap<InstanceId, (Arc<str>, Vec<Holder>)>,
    /// Prefixes of ids that two cells have listed; nothing else is known of these instances.
    pub(super) suspects: BTreeSet<u64>,
    pub(super) asked_ms: u64,
    pub(super) until_ms: u64,
    /// How often its time was up while requests kept waiting.
    pub(super) rounds: u32,
}

impl Lookup {
    /// Returns whether this many more instances can be asked for; an empty question takes any number.
    pub(super) fn has_room_for(&self, count: usize) -> bool {
        self.is_empty() || self.instances.len() + self.suspects.len() + count <= ASKED_BY_ID
    }

    /// Returns whether it asks for nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.instances.is_empty() && self.suspects.is_empty()
    }

    pub(super) fn add(&mut self, begun: &Begun) {
        let instances = begun.instances.iter();
        let nowhere = instances.map(|id| (*id, (Arc::clone(&begun.app), Vec::new())));
        self.instances.extend(nowhere);
    }

    /// Returns the question for the cells, which may answer with more than these instances.
    pub(super) fn question(&self) -> Instances {
        let mut apps = self.instances.values().map(|(app, _)| app);
        let first = apps.next();
        let one_app =
            first.filter(|first| apps.all(|app| app == *first) && self.suspects.is_empty());
        let mut question = Instances {
            v: VERSION,
            app: one_app.map(|app| app.as_ref().to_owned()),
            ..Instances::default()
        };
        // a larger number belongs to one request, and so to one app
        if self.instances.len() <= ASKED_BY_ID {
            let ids = self.instances.keys().map(IdPrefixes::<3>::prefix);
            let suspects = self.suspects.iter().copied().map(RunningIds::short);
            question.id_prefixes = ids.chain(suspects).collect::<Vec<u64>>().into();
        }
        question
    }

    /// Records what a cell holds of what was asked for.
    pub(super) fn found(&mut self, answer: &InstancesAnswer) {
        for held in &answer.instances {
            let id = held.instance;
            if self.suspects.contains(&RunningIds::prefix(&id)) {
                let nowhere = || (held.app.as_str().into(), Vec::new());
                self.instances.entry(id).or_insert_with(nowhere);
            }
            // prefixes of ids are short, so cells also report instances that were not asked for
            if let Some((_, holders)) = self.instances.get_mut(&id) {
                holders.push(Holder {
                    ended: has_ended(held.state),
                    claim: held.claim.unwrap_or(AuctionId::nil()),
                    cell: answer.cell.as_str().into(),
                    request: held.request.clone(),
                });
            }
        }
    }
}

fn has_ended(state: InstanceState) -> bool {
    use InstanceState as Is;
    matches!(state, Is::Exited | Is::Crashed | Is::Stopping)
}
