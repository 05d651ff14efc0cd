//! An auctioneer's answer about the instances of a request that is not a task.

use std::collections::BTreeMap;

use shared::{
    AttemptId,
    wire::{InstanceOutcome, Outcome, format_indices, parse_indices},
};

/// Indices by the request with which they share instances.
pub(super) type Shared = BTreeMap<String, Vec<u32>>;

/// An answer, counted by index.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answered {
    pub(super) placed: u32,
    pub(super) unknown: u32,
    /// Indices that were not placed, in order.
    pub(super) left: Vec<u32>,
    /// Why these were not placed.
    pub(super) reason: Option<String>,
    /// The placed indices that are instances of other requests.
    pub(super) shared: Shared,
}

impl Answered {
    /// Reads an answer. Returns none while something is queued: that is answered later, or asked for.
    pub(super) fn read(outcomes: &[InstanceOutcome]) -> Option<Self> {
        let mut answered = Self::default();
        for outcome in outcomes {
            answered.add(outcome)?;
        }
        answered.left.sort_unstable();
        Some(answered)
    }

    fn add(&mut self, outcome: &InstanceOutcome) -> Option<()> {
        let group = outcome.indices.as_deref();
        let group = group.and_then(|text| parse_indices(text, placement::MAX_INSTANCES as usize));
        let indices = outcome.index.into_iter().chain(group.into_iter().flatten());
        for index in indices {
            match outcome.outcome {
                Outcome::Placed => {
                    self.placed += 1;
                    if let Some(first) = &outcome.duplicate_of {
                        let shared = self.shared.entry(first.to_string()).or_default();
                        shared.push(index);
                    }
                }
                Outcome::Unknown => self.unknown += 1,
                Outcome::Queued => return None,
                Outcome::Unplaced => {
                    self.left.push(index);
                    self.reason.clone_from(&outcome.reason);
                }
            }
        }
        Some(())
    }
}

/// Describes, for users, which instances belong to other requests; none if all of them are its own.
pub(super) fn told(shared: &Shared) -> Option<String> {
    let one = |(request, indices): (&String, &Vec<u32>)| {
        let which = format_indices(indices.iter().copied());
        let (index, instance) = match indices.len() {
            1 => ("index", "is the instance"),
            _ => ("indices", "are the instances"),
        };
        // users know a stored request by its own id, not by the ids of its attempts
        let request = AttemptId::parse(request).map_or_else(
            || format!("request {request}"),
            |attempt| format!("stored request {}", attempt.id),
        );
        format!("{index} {which} {instance} of {request}")
    };
    let all: Vec<String> = shared.iter().map(one).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
