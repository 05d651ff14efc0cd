//! One call into the state machine: its time, what is counted, and what is to be done.

use bytes::Bytes;
use shared::wire::{Event, WireError};

use crate::{counters::Counters, ids::ReplyKey, io::AuctioneerOutput};

/// What every part of the machine needs to take part in a call.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The time of this call.
    pub(crate) now_ms: u64,
    /// The largest message that the server takes, bytes.
    pub(crate) max_payload: usize,
    pub(crate) counters: Counters,
    /// What is to be done since the machine was run last, in order.
    pub(crate) out: Vec<AuctioneerOutput>,
}

impl Turn {
    pub(crate) fn event(&mut self, event: Event) {
        self.out.push(AuctioneerOutput::Event(Box::new(event)));
    }

    /// A reply, where somebody waits for one.
    pub(crate) fn reply(&mut self, to: Option<ReplyKey>, answer: Result<Bytes, WireError>) {
        let Some(to) = to else {
            return;
        };
        self.out.push(match answer {
            Ok(body) => AuctioneerOutput::Reply { to, body },
            Err(error) => AuctioneerOutput::ReplyError {
                to,
                error: Box::new(error),
            },
        });
    }
}
