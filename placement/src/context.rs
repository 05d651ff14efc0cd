//! What a plan depends on besides cells, jobs and policy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::decision::Explain;

/// What a plan depends on besides cells, jobs and policy: the same context gives the same
/// decisions.
#[derive(Clone, Debug, Default)]
pub struct PlanContext {
    /// Determines ties and samples.
    pub seed: u64,
    /// The auction's id: in another auction the same jobs are drawn differently.
    pub auction: u128,
    /// Milliseconds since the Unix epoch, for dates that operators set (a planned reboot).
    pub now_ms: i64,
    /// Whether to pick the first finalist by name instead of drawing (scenario `pick: "first"`).
    pub first: bool,
    /// Cells left out of this auction (no bid, or no responders).
    pub absent: BTreeSet<Arc<str>>,
    /// Cells left out of this auction because their advertisement expired.
    pub expired: BTreeSet<Arc<str>>,
    /// Where named instances run, for `near` and `far` of `instance:UUID`: instance id to cell.
    pub instances: BTreeMap<String, Arc<str>>,
    /// How much to explain.
    pub explain: Explain,
}

impl PlanContext {
    /// Returns whether no cell of the pool is left out of this auction.
    pub(crate) fn has_all_cells(&self) -> bool {
        self.absent.is_empty() && self.expired.is_empty()
    }
}

/// What a stage depends on besides cells and the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now<'a> {
    /// Milliseconds since the Unix epoch.
    pub(crate) ms: i64,
    /// Where named instances run: instance id to cell.
    pub(crate) instances: &'a BTreeMap<String, std::sync::Arc<str>>,
}

impl<'a> Now<'a> {
    pub(crate) fn of(context: &'a PlanContext) -> Self {
        Self {
            ms: context.now_ms,
            instances: &context.instances,
        }
    }
}
