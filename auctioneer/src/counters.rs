//! What was done and what was dropped, counted; shown in the service's STATS.

use serde::Serialize;

/// Counts since the start of this auctioneer. Whatever it drops or refuses is here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Reports of cells received: advertisements, bids and states.
    pub reports: u64,
    /// Of these, reports that only renewed a lease.
    pub renewed: u64,
    /// Dropped: not a valid message, or of another version.
    pub dropped_malformed: u64,
    /// Dropped: advertised on another cell's subject.
    pub dropped_wrong_subject: u64,
    /// Dropped: larger than any cell's report may be, or of more apps.
    pub dropped_too_large: u64,
    /// Dropped: an older version of a cell than the one known.
    pub dropped_old_seq: u64,
    /// Dropped: an incarnation that was replaced or has left.
    pub dropped_old_incarnation: u64,
    /// Dropped: as many cells are known as may be.
    pub dropped_pool_full: u64,
    /// Bids that say "unchanged" of a report that was not received; the cell's state was asked for.
    pub missed_reports: u64,
    /// Cells heard for the first time.
    pub cells_joined: u64,
    /// Cells that withdrew, or whose advertisement expired.
    pub cells_lost: u64,
    /// Bid deadlines that a cell missed.
    pub missed_bids: u64,
    /// Requests accepted.
    pub requests: u64,
    /// Requests' messages that were rejected whole or in part.
    pub rejected: u64,
    /// Of the requests, those seen before.
    pub repeats: u64,
    /// Requests rejected because too much was waiting.
    pub overloaded: u64,
    /// Auctions held.
    pub auctions: u64,
    /// Jobs that took part in them.
    pub jobs: u64,
    /// Start messages sent to cells.
    pub starts_sent: u64,
    /// Instances that cells accepted.
    pub accepted: u64,
    /// Instances that cells refused.
    pub refused: u64,
    /// Start messages without a subscriber.
    pub no_responders: u64,
    /// Start messages that were not answered in time.
    pub unanswered: u64,
    /// Unknown instances that a late answer or a later report settled.
    pub settled_late: u64,
    /// Answers that belong to nothing.
    pub stray_answers: u64,
    /// Messages to us that the client dropped because they came too fast.
    pub dropped_too_fast: u64,
    /// Messages of ours that the client did not take.
    pub dropped_unsent: u64,
    /// Remembered outcomes dropped early because there were too many.
    pub dropped_outcomes: u64,
}
