//! When a run is over, and notes on how it ended.

use shared::clock::millis;

use super::{Progress, WARM_UP_US, World};
use crate::demand::Demand;

/// How long a run without a duration continues after the last outcome, in microseconds.
const SETTLE_US: u64 = 1_000_000;
/// How much longer it continues at most while messages are in transit, in microseconds.
const MAX_SETTLE_US: u64 = 60_000_000;
/// A run without a duration ends when nothing has changed for this time plus the longest time that one of its requests
/// may wait, in milliseconds.
const STALLED_MS: u64 = 3_600_000;

/// Determines when a run without a duration is over.
#[derive(Debug, Default)]
pub(super) struct Ending {
    /// Since when everything has its outcome.
    done_us: Option<u64>,
    /// The clients' activity at the last change, and the time of that.
    activity: u64,
    changed_us: u64,
    /// Number of begins and ends of faults that are still to come.
    pub(super) faults_left: usize,
    /// How long nothing may change, in microseconds.
    stalled_after_us: u64,
    stalled: bool,
}

impl Ending {
    /// Creates it for these demands.
    pub(super) fn new(demands: &[Demand]) -> Self {
        Self {
            stalled_after_us: 1_000 * (STALLED_MS + longest_wait_ms(demands)),
            ..Self::default()
        }
    }
}

impl World<'_> {
    /// Returns whether every request has had its outcome for a while.
    pub(super) fn is_done(&mut self, next_us: u64) -> bool {
        if !self.client.is_done() {
            self.ending.done_us = None;
            return false;
        }
        let done_us = *self.ending.done_us.get_or_insert(self.now_us);
        // many cells advertise all the time, so that some message is always in transit
        let settled_us = done_us + SETTLE_US;
        next_us > settled_us && (self.in_flight == 0 || next_us > settled_us + MAX_SETTLE_US)
    }

    /// Returns whether something has no outcome and nothing is left that could change that: only periodic timers
    /// (advertisements, echoes, clients that repeat requests) keep the clock running.
    pub(super) fn is_stalled(&mut self, next_us: u64) -> bool {
        let activity = self.client.activity();
        let ending = &mut self.ending;
        if activity != ending.activity || ending.faults_left > 0 || self.client.has_more_to_ask() {
            ending.activity = activity;
            ending.changed_us = self.now_us;
            return false;
        }
        ending.stalled = next_us > ending.changed_us + ending.stalled_after_us;
        ending.stalled
    }

    /// How far the run is.
    pub(super) fn progress(&self, end_us: Option<u64>) -> Progress {
        let last_ms = self.demands.last().map_or(0, |demand| demand.at_ms);
        Progress {
            virtual_ms: self.now_us.saturating_sub(WARM_UP_US) / 1_000,
            end_ms: end_us.map_or(last_ms, |end_us| (end_us - WARM_UP_US) / 1_000),
            placed: self.client.placed,
            asked: self.client.asked,
        }
    }

    /// Returns notes on how the run ended.
    pub(super) fn notes(&self) -> Vec<String> {
        if !self.ending.stalled {
            return self.command_notes.clone();
        }
        let quiet = std::time::Duration::from_micros(self.ending.stalled_after_us);
        vec![format!(
            "Ended after {} of virtual time in which nothing changed: {}, and nothing is left that could \
             change that. Give the scenario a duration, or its faults an end.",
            placement::Span(quiet),
            match self.client.waiting() {
                0 => "a message has no answer".to_owned(),
                1 => "1 instance has no outcome".to_owned(),
                n => format!("{n} instances have no outcome"),
            }
        )]
    }
}

/// Returns the longest time in milliseconds that one of these requests may wait for its outcome.
fn longest_wait_ms(demands: &[Demand]) -> u64 {
    let waits = demands.iter().filter_map(Demand::request).map(|request| {
        let deadline_ms = request
            .deadline
            .map_or(auctioneer::DEFAULT_DEADLINE_MS, |span| millis(span.0));
        deadline_ms.saturating_add(request.queue_timeout.map_or(0, |span| millis(span.0)))
    });
    waits.max().unwrap_or(0).min(1 << 50)
}
