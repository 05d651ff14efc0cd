//! What every engine does, and the planner relies on: decide one job, then take its resources.

use crate::{batch::JobGroup, objective::Objective, request::Job, trace::Trace};

/// What one job got.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// The winner's slot; none when no cell is left.
    pub(crate) winner: Option<u32>,
    /// The slots that the winner was drawn from, by name. An engine may leave them out where the
    /// plan explains no more than the winner.
    pub(crate) finalists: Vec<u32>,
    /// The winner's cost or score, where the policy has one.
    pub(crate) value: Option<f64>,
    /// What happened stage by stage, from an engine that keeps track of it: the plain one.
    pub(crate) trace: Option<Box<Trace>>,
}

/// Decides the jobs of one batch, one after the other. All engines give the same [`Choice`]s, seed
/// for seed; the plain engine ([`crate::plain`]) is the definition.
pub(crate) trait Engine {
    /// Where the job goes. `objective` is the job's own one, where it brings one.
    fn choose(&mut self, job: &Job, group: JobGroup, objective: Option<&Objective>) -> Choice;

    /// Takes the job's resources from the cell, for the jobs after it.
    fn debit(&mut self, slot: u32, job: &Job, group: JobGroup);

    /// Leaves what the engine works on as it was before the batch.
    fn finish(self: Box<Self>);
}
