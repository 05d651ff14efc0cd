//! Policies: data, not code. An ordered list of named stages over the known cells.

mod coverage;
mod expected;
mod expression;
mod node;
mod parse;
mod presets;
mod show;

use std::sync::Arc;

pub use parse::PolicyError;

use crate::{
    decision::Rating, expected::ExpectedWork, fragmentation::Fragments, grouping::Grouping,
    objective::Objective, request::Kind, resource_name::ResourceName, resources::Resource,
    times::Span,
};

/// An ordered list of named stages, and the order of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    pub(crate) name: String,
    pub(crate) order: Order,
    pub(crate) bids: bool,
    pub(crate) max_in_flight: u32,
    /// The limit of starting instances per cell: work that such a cell wins waits; 0 = no limit.
    pub(crate) max_starting_per_cell: u32,
    /// How long such work may wait if its request has no queue timeout.
    pub(crate) max_deferral: Span,
    pub(crate) combine: Combine,
    pub(crate) stages: Vec<Stage>,
    pub(crate) pick: Pick,
    /// The expected work given by the policy; none if it is learnt from requests.
    pub(crate) expected: Option<Arc<ExpectedWork>>,
}

/// The order in which a batch's jobs are decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The order of the requests.
    Asked,
    /// Diego's order: first instances, tasks, the rest; the largest memory first in each.
    Diego,
    /// The largest dominant share first. For each resource, an instance asks for a share of what all cells have; the
    /// largest of these is its dominant share.
    LargestFirst,
}

/// How score terms are combined into one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    /// Weight times term, added in the order of the stages.
    Sum,
    /// Term to the power of its weight, multiplied, and scaled to 0..1 after each term.
    Product,
}

/// One stage before the pick.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stage {
    pub(crate) step: Step,
    /// Only for jobs of this kind.
    pub(crate) kind: Option<Kind>,
}

/// The kinds of stages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Filter(Filter),
    Narrow(Narrow),
    Score(Score),
}

/// Keeps or drops each cell on its own.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Filter {
    /// Precedes all stages of every policy; cannot be named in policies.
    Droplets,
    Evacuating,
    Running,
    Stack,
    VolumeDrivers,
    PlacementTags,
    /// Enough of one resource.
    Amount(Resource),
    /// Enough of each extra resource.
    Extra,
    VolumesFrom,
    Reserved,
    ControlPlane,
    ContainerCount {
        limit: u32,
    },
    Capness,
    Networks,
    Platform,
    Traits,
    Sick,
    OvercommitRatios,
    RebootWithin {
        days: Option<f64>,
        batch: Option<String>,
    },
    Locality,
}

/// Keeps a subset of the remaining cells, which is never empty if there are any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Narrow {
    ZoneFewest,
    AppFewest,
    /// The groups with the fewest instances of the app.
    Fewest(Grouping),
    UpperHalfMemory,
    Locality,
}

/// One score term and its weight.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Score {
    pub(crate) term: Term,
    pub(crate) weight: f64,
    pub(crate) mode: Mode,
}

/// What a score term measures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Term {
    Resources,
    /// Like [`Term::Resources`], for other resources than Diego's.
    Used {
        of: Arc<[ResourceName]>,
        /// Whether the shares are squared, so that a full cell costs more than two half-full ones.
        squared: bool,
    },
    /// By how much the placement reduces what the expected work could not use of a resource; see
    /// [`crate::fragmentation`].
    Fragmentation {
        fragments: Fragments,
        /// The number of steps of the score; 0 if it is the gradient itself.
        steps: u32,
        /// Where the cells have room for more than this many instances of the typical size, the score counts less; see
        /// [`crate::scarcity`].
        scarce_below: Option<f64>,
    },
    Starting,
    AppInstances,
    /// Instances of the app in the cell's group.
    GroupInstances(Grouping),
    Tasks,
    /// The share of the request's preferences that the cell meets.
    Preferred,
    Index {
        raw: bool,
    },
    Memory,
    Disk,
    Platform,
    Reboot,
    Owner,
    Random,
    Hardware,
    Objective(Arc<Objective>),
}

/// How a term's values become numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The rank among the remaining cells: the best gets the weight, the worst 0.
    Rank,
    /// A share in 0..1 times the weight.
    Ratio,
    /// The value itself times the weight.
    Raw,
}

/// How the winner is chosen from the remaining cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pick {
    Lowest,
    Highest,
    Sample,
    FirstOf { fraction: f64, highest: bool },
}

impl Policy {
    /// Returns the filters that a policy's file may name.
    pub fn filters() -> Vec<&'static str> {
        Filter::ALL.iter().map(Filter::name).collect()
    }

    /// Returns the policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the auctioneer asks all cells for a bid before a batch (otherwise the pool alone decides).
    pub fn wants_bids(&self) -> bool {
        self.bids
    }

    /// Returns how long deferred work may wait if its request has no queue timeout.
    pub fn max_deferral(&self) -> Span {
        self.max_deferral
    }

    /// Returns a stable hash of everything in the policy: auctioneers with different hashes log a warning.
    pub fn hash(&self) -> u64 {
        crate::random::mix(crate::random::hash_text(&self.to_toml()))
    }

    /// Returns whether the highest score wins; none if the policy does not score.
    pub fn highest_wins(&self) -> Option<bool> {
        match self.pick {
            Pick::Lowest => Some(false),
            Pick::Highest => Some(true),
            Pick::Sample => None,
            Pick::FirstOf { highest, .. } => Some(highest),
        }
    }

    /// Returns a number of this policy as a rating; none if it rates no cell.
    pub(crate) fn rating(&self, number: f64) -> Option<Rating> {
        let rate = if self.highest_wins()? {
            Rating::Score
        } else {
            Rating::Cost
        };
        Some(rate(number))
    }

    /// Returns how the winner is picked, as written in policy files: `lowest`, `highest`, `sample` or `first-of`.
    pub fn pick_name(&self) -> &'static str {
        match self.pick {
            Pick::Lowest => "lowest",
            Pick::Highest => "highest",
            Pick::Sample => "sample",
            Pick::FirstOf { .. } => "first-of",
        }
    }

    /// Returns whether a score depends on the expected work.
    pub fn expects(&self) -> bool {
        self.stages.iter().any(|stage| match &stage.step {
            Step::Score(score) => matches!(score.term, Term::Fragmentation { .. }),
            _ => false,
        })
    }

    /// Returns whether a score depends on the expected work and the policy's file does not give it, so that the pool
    /// learns it ([`crate::Pool::learn`]).
    pub fn learns(&self) -> bool {
        self.expected.is_none() && self.expects()
    }

    /// Returns the expected work, if the policy's file gives it.
    pub fn expected(&self) -> Option<&ExpectedWork> {
        self.expected.as_deref()
    }

    /// Returns whether a request may have its own objective.
    pub fn has_objective(&self) -> bool {
        self.objective().is_some()
    }

    /// Returns the objective that a request's own replaces.
    pub(crate) fn objective(&self) -> Option<&Arc<Objective>> {
        self.stages.iter().find_map(|stage| match &stage.step {
            Step::Score(Score {
                term: Term::Objective(objective),
                ..
            }) => Some(objective),
            _ => None,
        })
    }

    /// Returns whether `near` and `far` of a request have an effect.
    pub fn has_locality(&self) -> bool {
        let steps = [
            Step::Filter(Filter::Locality),
            Step::Narrow(Narrow::Locality),
        ];
        self.stages.iter().any(|stage| steps.contains(&stage.step))
    }

    /// Returns whether a score depends on the cell's rank by index in its zone.
    pub(crate) fn ranks_cells(&self) -> bool {
        let ranks = |stage: &Stage| match &stage.step {
            Step::Score(score) => score.term == Term::Index { raw: false },
            _ => false,
        };
        self.stages.iter().any(ranks)
    }

    /// Returns whether evacuating cells are left out entirely under this policy.
    pub(crate) fn ignores_evacuating(&self) -> bool {
        let evacuating = Step::Filter(Filter::Evacuating);
        self.stages.iter().any(|stage| stage.step == evacuating)
    }

    /// Returns all stages. The first one is the same in every policy: whatever a policy prefers, no droplet goes to a
    /// cell that cannot run it, no staging to one that stages no apps, and nothing else to a DEA.
    pub(crate) fn all_stages(&self) -> impl Iterator<Item = &Stage> {
        static FIRST: Stage = Stage {
            step: Step::Filter(Filter::Droplets),
            kind: None,
        };
        std::iter::once(&FIRST).chain(&self.stages)
    }

    /// Returns the stages for a job of this kind.
    pub(crate) fn stages_for(&self, kind: Kind) -> impl Iterator<Item = &Stage> {
        self.all_stages()
            .filter(move |stage| stage.kind.is_none_or(|k| k == kind))
    }
}

impl Filter {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Droplets => "droplets",
            Self::Evacuating => "evacuating",
            Self::Running => "running",
            Self::Stack => "stack",
            Self::VolumeDrivers => "volume-drivers",
            Self::PlacementTags => "placement-tags",
            Self::Amount(resource) => resource.name(),
            Self::Extra => "extra",
            Self::VolumesFrom => "volumes-from",
            Self::Reserved => "reserved",
            Self::ControlPlane => "control-plane",
            Self::ContainerCount { .. } => "container-count",
            Self::Capness => "capness",
            Self::Networks => "networks",
            Self::Platform => "platform",
            Self::Traits => "traits",
            Self::Sick => "sick",
            Self::OvercommitRatios => "overcommit-ratios",
            Self::RebootWithin { .. } => "reboot-within",
            Self::Locality => "locality",
        }
    }

    /// Returns whether it compares an amount: consecutive filters of this sort fail together, with one text.
    pub(crate) fn is_resource(&self) -> bool {
        matches!(self, Self::Amount(_) | Self::Extra)
    }

    /// Every filter that a policy may name, with default parameters, in the order of docs/POLICIES.md.
    pub(crate) const ALL: [Self; 22] = [
        Self::Evacuating,
        Self::Running,
        Self::Stack,
        Self::VolumeDrivers,
        Self::PlacementTags,
        Self::Amount(Resource::Memory),
        Self::Amount(Resource::Disk),
        Self::Amount(Resource::Containers),
        Self::Amount(Resource::Cpu),
        Self::Extra,
        Self::VolumesFrom,
        Self::Reserved,
        Self::ControlPlane,
        Self::ContainerCount { limit: 224 },
        Self::Capness,
        Self::Networks,
        Self::Platform,
        Self::Traits,
        Self::Sick,
        Self::OvercommitRatios,
        Self::RebootWithin {
            days: None,
            batch: None,
        },
        Self::Locality,
    ];
}

impl Narrow {
    /// All, with default parameters.
    pub(crate) const ALL: [Self; 5] = [
        Self::ZoneFewest,
        Self::AppFewest,
        Self::Fewest(Grouping::Rack),
        Self::UpperHalfMemory,
        Self::Locality,
    ];

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::ZoneFewest => "zone-fewest",
            Self::AppFewest => "app-fewest",
            Self::Fewest(_) => "fewest",
            Self::UpperHalfMemory => "upper-half-memory",
            Self::Locality => "locality",
        }
    }
}

impl Term {
    /// Every term that needs no text of its own, with default parameters; only the objective needs one.
    pub(crate) const PLAIN: [Self; 13] = [
        Self::Resources,
        Self::Starting,
        Self::AppInstances,
        Self::Tasks,
        Self::Preferred,
        Self::Index { raw: false },
        Self::Memory,
        Self::Disk,
        Self::Platform,
        Self::Reboot,
        Self::Owner,
        Self::Random,
        Self::Hardware,
    ];
    pub(crate) const OBJECTIVE: &'static str = "objective";
    pub(crate) const FRAGMENTATION: &'static str = "fragmentation";

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Resources | Self::Used { .. } => "resources",
            Self::Fragmentation { .. } => Self::FRAGMENTATION,
            Self::Starting => "starting",
            Self::AppInstances | Self::GroupInstances(_) => "app-instances",
            Self::Tasks => "tasks",
            Self::Preferred => "preferred",
            Self::Index { .. } => "index",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Platform => "platform",
            Self::Reboot => "reboot",
            Self::Owner => "owner",
            Self::Random => "random",
            Self::Hardware => "hardware",
            Self::Objective(_) => Self::OBJECTIVE,
        }
    }

    /// Returns whether the term may be a rank or a ratio; the others have only one meaning.
    pub(crate) fn has_mode(&self) -> bool {
        matches!(
            self,
            Self::Memory
                | Self::Disk
                | Self::Platform
                | Self::Reboot
                | Self::Owner
                | Self::Random
                | Self::Hardware
        )
    }
}

#[cfg(test)]
mod tests;
