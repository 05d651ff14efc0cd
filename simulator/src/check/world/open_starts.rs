//! Start requests that are to be answered, and since when.

use std::collections::BTreeMap;

use crate::check::bus::{Message, Subscription};

/// Start requests that reached an auctioneer which has not failed since: faults of others must not keep it from
/// answering in time. Requests to failed auctioneers may be lost; they are repeated at the end of a run.
#[derive(Debug, Default)]
pub(in crate::check) struct OpenStarts {
    /// By the number of the client's message: the node that it reached, and when.
    open: BTreeMap<u64, (usize, u64)>,
}

impl OpenStarts {
    /// Records a message that reached a node at which nothing fails now.
    pub(super) fn arrived(&mut self, now_ms: u64, node: usize, message: &Message) {
        if message.subject == "start"
            && let Some(number) = message.reply.as_deref().and_then(number_of)
        {
            self.open.entry(number).or_insert((node, now_ms));
        } else if Subscription::to("inbox.client.*").matches(&message.subject)
            && let Some(number) = number_of(&message.subject)
        {
            self.open.remove(&number);
        }
    }

    /// Removes the requests of a node that may lose something from now on, or is gone.
    pub(super) fn fails(&mut self, node: usize) {
        self.open.retain(|_, (at, _)| *at != node);
    }

    /// Returns a message that has waited for longer than this, with its node.
    pub(in crate::check) fn late(&self, now_ms: u64, most_ms: u64) -> Option<(u64, usize)> {
        let late = |(_, (_, since_ms)): &(&u64, &(usize, u64))| now_ms > since_ms + most_ms;
        let (number, (node, _)) = self.open.iter().find(late)?;
        Some((*number, *node))
    }
}

/// Returns the last token of the subject on which the client hears the answer.
fn number_of(subject: &str) -> Option<u64> {
    // managers ask too
    subject.strip_prefix("inbox.client.")?.parse().ok()
}
