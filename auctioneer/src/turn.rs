//! One call of the state machine: its time, counters and outputs.

use bytes::Bytes;
use shared::wire::{Event, WireError};

use crate::{counters::Counters, ids::ReplyKey, io::AuctioneerOutput};

/// What each part of the machine needs during a call.
#[derive(Debug)]
pub(crate) struct Turn {
    /// The time of this call.
    pub(crate) now_ms: u64,
    /// The largest message that the server accepts, in bytes.
    pub(crate) max_payload: usize,
    pub(crate) counters: Counters,
    /// The outputs since the machine was last run, in order.
    pub(crate) out: Vec<AuctioneerOutput>,
}

impl Turn {
    pub(crate) fn event(&mut self, event: Event) {
        self.out.push(AuctioneerOutput::Event(Box::new(event)));
    }

    /// Sends a reply if there is a reply subject.
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
