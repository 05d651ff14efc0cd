//! Answers about work that waits for an auction or for room.

use std::{collections::BTreeMap, sync::Arc};

use placement::Unplaced;
use shared::{
    VERSION,
    wire::{QueuedAnswer, QueuedGroup, QueuedRequest, format_indices, to_bytes},
};

use crate::ticket::{State, Ticket, because};

/// Groups in one answer: the default and the maximum.
pub(crate) const MAX_GROUPS: usize = 500;
/// Bytes reserved in an answer for everything besides its groups.
const ENVELOPE_BYTES: usize = 512;

/// Returns the waiting work of these requests, by app, then by request. The answer fits into `max_bytes`.
pub(crate) fn answer<'t>(
    auctioneer: &str,
    tickets: impl Iterator<Item = &'t Ticket>,
    asked: &QueuedRequest,
    now_ms: u64,
    max_bytes: usize,
) -> QueuedAnswer {
    let mut tickets: Vec<&Ticket> = tickets
        .filter(|t| asked.app.as_ref().is_none_or(|app| *app == t.request.app))
        .collect();
    tickets.sort_unstable_by(|a, b| (&a.app, &a.id).cmp(&(&b.app, &b.id)));
    let mut answer = QueuedAnswer {
        v: VERSION,
        auctioneer: auctioneer.to_owned(),
        count: 0,
        queued: Vec::new(),
        more: false,
    };
    let limit = asked.limit.unwrap_or(MAX_GROUPS).clamp(1, MAX_GROUPS);
    let mut bytes = ENVELOPE_BYTES + auctioneer.len();
    for ticket in tickets {
        for (count, group) in groups(ticket, now_ms) {
            // counts groups that are not listed, too: it is the total that waits
            answer.count += count;
            // once one group is left out, all later ones are: the list has no gaps
            answer.more |= answer.queued.len() >= limit;
            if !answer.more {
                bytes += to_bytes(&group).len() + 1;
                answer.more = bytes > max_bytes;
            }
            if !answer.more {
                answer.queued.push(group);
            }
        }
    }
    answer
}

/// Returns the waiting instances of one request, grouped by reason, with their number.
fn groups(ticket: &Ticket, now_ms: u64) -> Vec<(usize, QueuedGroup)> {
    let mut by_reason: BTreeMap<String, (Arc<Unplaced>, u64, Vec<u32>)> = BTreeMap::new();
    for instance in &ticket.instances {
        let (why, until_ms) = match &instance.state {
            State::Held(why) => (Arc::clone(why), ticket.queue_end_ms),
            State::Waiting => (
                because("waits for the next auction"),
                ticket.queue_end_ms.max(ticket.deadline_ms),
            ),
            _ => continue,
        };
        let group = by_reason.entry(why.reason.clone());
        let (_, _, indices) = group.or_insert((why, until_ms, Vec::new()));
        indices.push(instance.index);
    }
    let group = |(why, until_ms, indices): (Arc<Unplaced>, u64, Vec<u32>)| {
        let group = QueuedGroup {
            request: ticket.id.clone(),
            app: ticket.request.app.clone(),
            kind: ticket.request.kind,
            reason: why.reason.clone(),
            tally: why.tally.clone(),
            waited_ms: now_ms.saturating_sub(ticket.asked_ms),
            left_ms: until_ms.saturating_sub(now_ms),
            indices: String::new(),
        };
        (indices, group)
    };
    by_reason
        .into_values()
        .map(group)
        .map(|(indices, group)| {
            let count = indices.len();
            let indices = format_indices(indices);
            (count, QueuedGroup { indices, ..group })
        })
        .collect()
}
