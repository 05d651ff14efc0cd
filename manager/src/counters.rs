//! Counters for the statistics of the service.

/// What a manager has done and dropped since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ManagerCounters {
    /// Instances whose start was requested.
    pub asked: u64,
    /// Instances told to stop.
    pub stopped: u64,
    /// Starts that were sent again because nobody answered.
    pub repeated: u64,
    /// Starts without an effect that were begun again under another id.
    pub given_up: u64,
    /// Crashes counted.
    pub crashed: u64,
    /// Instances found that this manager did not start.
    pub adopted: u64,
    /// Instances moved to another cell.
    pub moved: u64,
    /// Moves that failed.
    pub moves_failed: u64,
    /// Cells lost.
    pub cells_lost: u64,
    /// Stops that were put off because there were too many.
    pub braked: u64,
    /// Writes that lost against another writer.
    pub conflicts: u64,
    /// Values and keys of the bucket that could not be read.
    pub dropped_unreadable: u64,
    /// Messages of a former incarnation of a cell.
    pub dropped_former: u64,
    /// Cells for which there was no room.
    pub dropped_cells: u64,
    /// Lists that were older than what is known.
    pub dropped_old_lists: u64,
    /// Instances whose id does not follow from their request.
    pub dropped_false_ids: u64,
    /// Commands that were refused because too many were waiting.
    pub dropped_commands: u64,
}
