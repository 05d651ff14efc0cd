//! What was done and what was dropped, counted; shown in the service's STATS.

use serde::Serialize;

/// Counts since the start of this auctioneer. Whatever it drops or refuses is here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Words of cells heard: advertisements, bids and states.
    pub heard: u64,
    /// Of these, words that only renewed a lease.
    pub renewed: u64,
    /// Dropped: not a valid word of a cell.
    pub malformed: u64,
    /// Dropped: advertised on another cell's subject.
    pub wrong_subject: u64,
    /// Dropped: larger than any cell's word may be, or of more apps.
    pub too_large: u64,
    /// Dropped: an older version of a cell than the one known.
    pub old_seq: u64,
    /// Dropped: an incarnation that was replaced or has left.
    pub old_incarnation: u64,
    /// Dropped: as many cells are known as may be.
    pub pool_full: u64,
    /// Bids that say "unchanged" of a word that was not heard; the cell's state was asked for.
    pub missed_words: u64,
    /// Cells heard for the first time.
    pub cells_joined: u64,
    /// Cells that left, or were not heard for their ttl.
    pub cells_lost: u64,
    /// Bid deadlines that a cell missed.
    pub missed_bids: u64,
    /// Requests taken.
    pub requests: u64,
    /// Messages to the door that were turned away whole or in part.
    pub rejected: u64,
    /// Of the requests, those seen before.
    pub repeats: u64,
    /// Requests turned away because too much was waiting.
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
    /// Start messages that nobody listened for.
    pub no_responders: u64,
    /// Start messages that were not answered in time.
    pub unanswered: u64,
    /// Unknown instances that a late answer or a later word settled.
    pub settled_late: u64,
    /// Answers that could not be read, or belong to nothing.
    pub stray_answers: u64,
    /// Messages to us that the client dropped because they came too fast.
    pub dropped: u64,
    /// Messages of ours that the client did not take.
    pub unsent: u64,
    /// Remembered outcomes dropped early because there were too many.
    pub forgotten: u64,
}
