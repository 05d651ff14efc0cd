//! What a plan depends on besides cells, jobs and policy.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use crate::decision::Explain;

/// What a plan depends on besides cells, jobs and policy: the same context decides the same way.
#[derive(Clone, Debug, Default)]
pub struct PlanContext {
    /// Decides ties and samples.
    pub seed: u64,
    /// The auction's id: the same jobs in another auction draw differently.
    pub auction: u128,
    /// Milliseconds since the Unix epoch, for dates that operators set (a planned reboot).
    pub now_ms: i64,
    /// Take the smallest cell id among the finalists instead of drawing (scenario `pick: "first"`).
    pub first: bool,
    /// Cells that do not exist for this auction (gave no bid, were just unreachable).
    pub absent: BTreeSet<Arc<str>>,
    /// Cells that do not exist for this auction because their advertisement expired.
    pub expired: BTreeSet<Arc<str>>,
    /// Where named instances run, for `near` and `far` of `instance:UUID`: instance id to cell.
    pub instances: BTreeMap<String, Arc<str>>,
    /// How much to explain.
    pub explain: Explain,
}

impl PlanContext {
    /// Whether every cell of the pool exists for this auction.
    pub(crate) fn has_all_cells(&self) -> bool {
        self.absent.is_empty() && self.expired.is_empty()
    }
}

/// What a stage looks at besides cells and the request.
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
