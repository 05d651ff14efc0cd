//! Carrying out what an auctioneer wants done.

use auctioneer::{Input, Output};
use shared::wire::{BidRequest, kind, to_bytes};

use super::{
    World,
    messages::{Message, ToCell},
    traffic::Kind,
};

impl World<'_> {
    pub(super) fn carry_out(&mut self, n: usize, output: Output) {
        match output {
            Output::AskBids { auction } => self.ask_bids(n, auction),
            Output::AskState { cell } => {
                self.counts.sent(Kind::StateRequest, 1);
                if let Some(c) = self.by_name.get(&cell).copied() {
                    self.send_cell(n, c, 0, ToCell::State);
                }
            }
            Output::AskInstances { query, body } => {
                self.counts.sent(Kind::InstancesRequest, 1);
                for c in 0..self.cells.len() {
                    let body = body.clone();
                    let bytes = body.len() as u64;
                    self.send_cell(n, c, bytes, ToCell::Instances { query, body });
                }
            }
            Output::Start {
                dispatch,
                cell,
                body,
            } => {
                self.counts.sent(Kind::Start, 1);
                let bytes = body.len() as u64;
                if let Some(c) = self.by_name.get(&cell).copied() {
                    self.send_cell(n, c, bytes, ToCell::Start { dispatch, body });
                }
            }
            Output::StopCells { query, body } => {
                self.counts.sent(Kind::Stop, 1);
                for c in 0..self.cells.len() {
                    let body = body.clone();
                    let bytes = body.len() as u64;
                    self.send_cell(n, c, bytes, ToCell::Stop { query, body });
                }
            }
            Output::Reply { to, body } => self.reply(to, body, false),
            Output::ReplyError { to, error } => {
                let body = to_bytes(&error.body());
                self.reply(to, body, true);
            }
            Output::Event(event) => self.node_event(&event),
            Output::Outcome { id, body } => {
                self.client.outcome(&id, &body);
                self.counts.sent(Kind::Outcome, 1);
                let bytes = body.len() as u64;
                let id = id.to_string();
                self.send_all_nodes(Kind::Outcome, bytes, &Input::Outcome { id, body });
            }
            Output::Held { .. } => {}
        }
    }

    fn reply(&mut self, to: u64, body: bytes::Bytes, error: bool) {
        let message = usize::try_from(to).unwrap_or(usize::MAX);
        let kind = self.client.reply_kind(message);
        self.counts.sent(kind, 1);
        if self.away > 0 {
            return;
        }
        let network = self.scenario.network;
        if network.loss > 0.0 && self.random.unit() < network.loss {
            return;
        }
        self.counts.delivered(kind, 1, body.len() as u64);
        let at_us = self.now_us + network.latency.sample_us(&mut self.random);
        self.fly(at_us, Message::Client(message, body, error));
    }

    /// Of all events auctioneers hear only which requests were begun.
    fn node_event(&mut self, event: &shared::wire::Event) {
        self.counts.sent(Kind::Event, 1);
        if event.kind == kind::UNPLACED {
            self.client.unplaced(event);
        }
        if event.kind != kind::ASKED {
            return;
        }
        let bytes = to_bytes(event).len() as u64;
        let ids = event
            .request
            .iter()
            .chain(&event.requests)
            .cloned()
            .collect();
        self.send_all_nodes(Kind::Event, bytes, &Input::Begun(ids));
    }

    /// Bids are asked of every cell. Those whose last word the auctioneer knows, and that nothing is
    /// on its way to, will say "unchanged": these bids are counted, see [`super::idle`].
    fn ask_bids(&mut self, n: usize, auction: uuid::Uuid) {
        self.counts.sent(Kind::BidRequest, 1);
        let request = BidRequest {
            v: shared::VERSION,
            auction,
        };
        let bytes = to_bytes(&request).len() as u64;
        let made = self.count_bids(n, auction, bytes);
        for c in made {
            self.send_cell(n, c, bytes, ToCell::Bid { auction });
        }
    }
}
