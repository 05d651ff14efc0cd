//! Log lines about messages that strangers can send as often as they like.

use std::time::Instant;

use shared::telemetry::Seldom;

use crate::counters::Counters;

/// Counts, and how much of each was logged.
#[derive(Debug, Default)]
pub(super) struct DropNotices {
    wrong_subject: (u64, Seldom),
    reply_subject: (u64, Seldom),
    cell_events: (u64, Seldom),
}

impl DropNotices {
    /// Logs what was dropped since the last call.
    pub(super) fn look(&mut self, counters: &Counters) {
        if let Some(times) = more(&mut self.wrong_subject, counters.dropped_wrong_subject) {
            let why = "the body names another sender than the subject";
            tracing::warn!(times, why, "messages dropped");
        }
        if let Some(times) = more(&mut self.reply_subject, counters.dropped_reply_subject) {
            let why = "the reply subject is no inbox";
            tracing::warn!(times, why, "not answered");
        }
        if let Some(times) = more(&mut self.cell_events, counters.dropped_cell_events) {
            let why = "too many cells that have never answered joined or were lost";
            tracing::warn!(times, why, "events not published");
        }
    }
}

fn more((known, seldom): &mut (u64, Seldom), count: u64) -> Option<u64> {
    if count == *known {
        return None;
    }
    let times = count - std::mem::replace(known, count);
    seldom.happened(Instant::now(), times)
}
