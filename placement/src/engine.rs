//! The interface between the planner and the engines: decide one job, then debit its resources.

use crate::{
    batch::JobGroup, devices::DeviceShares, objective::Objective, request::Job, trace::Trace,
};

/// The result for one job.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// The winner's slot; none if no cell is left.
    pub(crate) winner: Option<u32>,
    /// The slots from which the winner was drawn, by name. An engine may omit them if only the winner is requested.
    pub(crate) finalists: Vec<u32>,
    /// The winner's cost or score, depending on the pick; none if the policy rates no cell.
    pub(crate) rating: Option<f64>,
    /// The record of each stage, if the engine keeps one, as the plain engine does.
    pub(crate) trace: Option<Box<Trace>>,
}

/// Decides the jobs of one batch, one after the other. All engines give the same [`Choice`]s for
/// the same seed; the plain engine ([`crate::plain`]) is the definition.
pub(crate) trait Engine {
    /// Chooses a cell for the job. `objective` is the request's own, if any.
    fn choose(&mut self, job: &Job, group: JobGroup, objective: Option<&Objective>) -> Choice;

    /// Debits the job's resources from the cell, for the jobs that follow, and returns the devices that it gets there.
    fn debit(&mut self, slot: u32, job: &Job, group: JobGroup) -> Option<Box<DeviceShares>>;

    /// Returns how many instances are starting on the cell, including those of this batch.
    fn starting(&self, slot: u32) -> u32;

    /// Reverts all debits of the batch.
    fn finish(self: Box<Self>);
}
