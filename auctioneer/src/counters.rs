//! Counters of what was done and dropped, reported in the service's STATS.

use serde::Serialize;

/// Counts since the start of this auctioneer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Cell reports received: advertisements, bids and answers to `.state`.
    pub reports: u64,
    /// Reports that only renewed a lease.
    pub renewed: u64,
    /// Messages dropped: invalid, or of another version.
    pub dropped_malformed: u64,
    /// Messages dropped: the body names another sender than the subject.
    pub dropped_wrong_subject: u64,
    /// Answers not sent: the request asked for them on a subject that is no inbox.
    pub dropped_reply_subject: u64,
    /// Operations refused by the server's permissions.
    pub dropped_not_permitted: u64,
    /// Reports dropped: too large, or with too many apps.
    pub dropped_too_large: u64,
    /// Reports dropped: an older version than the known one.
    pub dropped_old_seq: u64,
    /// Reports dropped: the incarnation was replaced or has withdrawn.
    pub dropped_old_incarnation: u64,
    /// Reports dropped: the pool is full.
    pub dropped_pool_full: u64,
    /// Cells that never answered and were removed from a full pool to make room for one that does.
    pub cells_displaced: u64,
    /// Bids "unchanged" since a report that was not received; the cell was asked for its state.
    pub missed_reports: u64,
    /// Cells that joined.
    pub cells_joined: u64,
    /// Cells that withdrew or expired.
    pub cells_lost: u64,
    /// Bid deadlines that a cell missed.
    pub missed_bids: u64,
    /// Requests accepted.
    pub requests: u64,
    /// Messages with start requests that were rejected, wholly or in part.
    pub rejected: u64,
    /// Requests that repeated an earlier one.
    pub repeats: u64,
    /// Requests that gave way to another auctioneer's request with the same id.
    pub gave_way: u64,
    /// Instances that ran twice and of which one copy was ended.
    pub duplicates_ended: u64,
    /// How often all cells were asked what they run, for a comparison.
    pub comparisons: u64,
    /// Ids of running instances that were not compared, because there were too many.
    pub dropped_ids: u64,
    /// Requests rejected because too much was waiting.
    pub overloaded: u64,
    /// Auctions held.
    pub auctions: u64,
    /// Jobs in those auctions.
    pub jobs: u64,
    /// Start messages sent to cells.
    pub starts_sent: u64,
    /// Instances that cells accepted.
    pub accepted: u64,
    /// Instances that cells refused.
    pub refused: u64,
    /// Start messages without responders.
    pub no_responders: u64,
    /// Start messages that were not answered in time.
    pub unanswered: u64,
    /// Unknown instances settled by a late answer or a later report.
    pub settled_late: u64,
    /// Answers that could not be parsed or that match nothing.
    pub stray_answers: u64,
    /// Received messages that the client dropped because they arrived too fast.
    pub dropped_too_fast: u64,
    /// Messages that the client did not accept for sending.
    pub dropped_unsent: u64,
    /// Events about joined or lost cells that were not published: there were too many about cells that have never
    /// answered.
    pub dropped_cell_events: u64,
    /// How often it was granted to accept requests (`--single`).
    pub grants: u64,
    /// 1 while that grant is held.
    pub granted: u8,
    /// Remembered outcomes dropped early for lack of space.
    pub dropped_outcomes: u64,
}
