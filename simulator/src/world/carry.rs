//! Carries out an auctioneer's outputs.

use auctioneer::{Announcement, AuctioneerInput, AuctioneerOutput, ReplyKey, StopId};
use shared::{
    AuctionId,
    wire::{BidRequest, kind, to_bytes},
};

use super::{
    World,
    messages::{Message, ToCell},
    traffic::Kind,
};

impl World<'_> {
    pub(super) fn carry_out(&mut self, n: usize, output: AuctioneerOutput) {
        match output {
            AuctioneerOutput::AskBids { auction } => self.ask_bids(n, auction),
            AuctioneerOutput::AskState { cell } => {
                self.counts.sent(Kind::StateRequest, 1);
                if let Some(c) = self.by_name.get(&cell).copied() {
                    self.send_cell(n, c, 0, ToCell::State);
                }
            }
            AuctioneerOutput::AskInstances { lookup, body } => {
                self.counts.sent(Kind::InstancesRequest, 1);
                for c in 0..self.cells.len() {
                    let body = body.clone();
                    let bytes = body.len() as u64;
                    self.send_cell(n, c, bytes, ToCell::Instances { lookup, body });
                }
            }
            AuctioneerOutput::Start {
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
            AuctioneerOutput::EndDuplicates { cell, body } => {
                self.counts.sent(Kind::Stop, 1);
                let bytes = body.len() as u64;
                let stop = StopId::NOBODYS;
                if let Some(c) = self.by_name.get(&cell).copied() {
                    self.send_cell(n, c, bytes, ToCell::Stop { stop, body });
                }
            }
            AuctioneerOutput::StopCells { stop, body } => {
                self.counts.sent(Kind::Stop, 1);
                for c in 0..self.cells.len() {
                    let body = body.clone();
                    let bytes = body.len() as u64;
                    self.send_cell(n, c, bytes, ToCell::Stop { stop, body });
                }
            }
            AuctioneerOutput::Reply { to, body } => self.reply(to, body, false),
            AuctioneerOutput::ReplyError { to, error } => {
                let body = to_bytes(&error.body());
                self.reply(to, body, true);
            }
            AuctioneerOutput::Event(event) => self.node_event(&event),
            AuctioneerOutput::Outcome { id, body } => {
                self.client.outcome(self.now_us, id.as_str(), &body);
                self.counts.sent(Kind::Outcome, 1);
                let bytes = body.len() as u64;
                self.send_all_nodes(Kind::Outcome, bytes, &AuctioneerInput::Outcome { id, body });
            }
            AuctioneerOutput::AuctionHeld { .. } | AuctioneerOutput::Dropped { .. } => {}
        }
    }

    fn reply(&mut self, to: ReplyKey, body: bytes::Bytes, error: bool) {
        if let Some(wave) = self.waves.take(to) {
            return self.reply_to_manager(wave, &body);
        }
        let message = usize::try_from(to.number()).unwrap_or(usize::MAX);
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

    /// Sends an event of an auctioneer; other auctioneers read only those that announce requests.
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
        let claim = event.auction.unwrap_or(AuctionId::nil());
        let announcement = Announcement { claim, ids };
        let input = AuctioneerInput::Announced(announcement);
        self.send_all_nodes(Kind::Event, bytes, &input);
    }

    /// Asks every cell for a bid. Cells whose last report the auctioneer has, and to which no message is in transit,
    /// would answer "unchanged": these bids are aggregated, see [`super::idle`].
    fn ask_bids(&mut self, n: usize, auction: AuctionId) {
        self.counts.sent(Kind::BidRequest, 1);
        let request = BidRequest {
            v: shared::VERSION,
            auction,
        };
        let bytes = to_bytes(&request).len() as u64;
        let simulated = self.aggregate_bids(n, auction, bytes);
        for c in simulated {
            self.send_cell(n, c, bytes, ToCell::Bid { auction });
        }
    }
}
