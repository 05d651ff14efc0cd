//! Sends the machine's outputs.

use std::{
    sync::{PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use placement::cut;
use shared::{
    VERSION,
    nats::{self, BusError, in_time},
    wire::{BidRequest, Event, WireError, kind, time_now, to_bytes},
};

use super::{Shell, service::Waiting, tokens::Asked};
use crate::{
    ids::{EchoToken, ReplyKey},
    io::AuctioneerOutput,
    pool_time::ECHO_MS,
};

/// Publishes evidence that messages arrive, to ourselves, ten times a second.
pub(super) async fn echo(shell: Shell, token: EchoToken) {
    // a separate client, because our main connection does not receive what it publishes itself
    let client = shell.bus.to_itself.clone();
    let subject = shell.subjects.echo(&shell.name);
    let token = Bytes::from(token.to_string());
    nats::echo(client, subject, token, Duration::from_millis(ECHO_MS)).await;
}

impl Shell {
    /// Sends all outputs. If the client accepts no more because the connection is down or blocked, the rest is dropped
    /// and counted: late starts would expire, late answers would not be awaited, and waiting here would block
    /// everything else.
    pub(super) async fn send_all(&self, mut outputs: Vec<AuctioneerOutput>) {
        // messages for observers come last: whoever waits for a start, a bid or an answer does not wait for them
        outputs.sort_by_key(AuctioneerOutput::is_for_observers);
        if outputs.is_empty() {
            return;
        }
        let time = time_now();
        let mut outputs = outputs.into_iter();
        while let Some(output) = outputs.next() {
            match self.send(output, &time).await {
                Ok(()) => {}
                Err(BusError::Timeout) => {
                    let count = 1 + outputs.len() as u64;
                    self.unsent.fetch_add(count, Ordering::Relaxed);
                    tracing::warn!(count, "dropped: the NATS client is not accepting messages");
                    return;
                }
                Err(error) => {
                    self.unsent.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%error, "dropped: message not sent");
                }
            }
        }
    }

    /// Sends one output; events carry `time`.
    async fn send(&self, output: AuctioneerOutput, time: &str) -> Result<(), BusError> {
        let subjects = &self.subjects;
        match output {
            AuctioneerOutput::AskBids { auction } => {
                let v = VERSION;
                let body = to_bytes(&BidRequest { v, auction });
                self.ask_all(subjects.bid(), Asked::Bid, body).await
            }
            AuctioneerOutput::AskState { cell } => {
                self.ask("state", &cell, Asked::State, Bytes::new()).await
            }
            AuctioneerOutput::AskInstances { lookup, body } => {
                self.ask_all(subjects.instances(), Asked::Instances(lookup), body)
                    .await
            }
            AuctioneerOutput::Start {
                dispatch,
                cell,
                body,
            } => self.ask("start", &cell, Asked::Start(dispatch), body).await,
            AuctioneerOutput::EndDuplicates { cell, body } => {
                let subject = subjects.cell(&cell, "stop");
                in_time(self.bus.client.publish(subject, body)).await
            }
            AuctioneerOutput::StopCells { stop, body } => {
                self.ask_all(subjects.cells_stop(), Asked::Stop(stop), body)
                    .await
            }
            AuctioneerOutput::Reply { to, body } => self.reply(to, body, None).await,
            AuctioneerOutput::ReplyError { to, error } => {
                self.reply(to, to_bytes(&error.body()), Some(&error)).await
            }
            AuctioneerOutput::Event(mut event) => {
                self.log_cell(&event);
                event.stamp_at(&self.name, time);
                let subject = subjects.event(&event.kind, event.about(), &event.by);
                in_time(self.bus.client.publish(subject, to_bytes(&*event))).await
            }
            AuctioneerOutput::Outcome { id, body } => {
                in_time(self.bus.client.publish(subjects.outcome(id.as_str()), body)).await
            }
            AuctioneerOutput::Dropped { cell, error } => {
                self.log_dropped(cell.as_deref().unwrap_or("a cell"), &error);
                Ok(())
            }
            AuctioneerOutput::AuctionHeld {
                auction,
                seed,
                jobs,
                cells,
                placed,
                queued,
                unplaced,
            } => {
                if self.auction_is_logged() {
                    tracing::info!(%auction, seed, jobs, cells, placed, queued, unplaced, "auction");
                } else {
                    tracing::debug!(%auction, seed, jobs, cells, placed, queued, unplaced, "auction");
                }
                Ok(())
            }
        }
    }

    /// Returns whether one more auction is to be logged; first logs how many were left out.
    fn auction_is_logged(&self) -> bool {
        let (logged, left_out) = self.auctions.next(Instant::now());
        if left_out > 0 {
            tracing::info!(left_out, "auctions not logged; level debug has them all");
        }
        logged
    }

    /// Logs a cell that joined or was lost, within limits: whoever may advertise can cause many of both.
    fn log_cell(&self, event: &Event) {
        let cell = event.about();
        let (limit, lost) = match event.kind.as_str() {
            kind::CELL_JOINED => (&self.joined, false),
            kind::CELL_LOST => (&self.lost, true),
            _ => return,
        };
        let (logged, left_out) = limit.next(Instant::now());
        if left_out > 0 {
            let what = if lost { "lost" } else { "joined" };
            tracing::warn!(left_out, "cells {what}, and not logged; see the events");
        }
        match (logged, lost) {
            (true, true) => {
                let apps = format!("{:?}", event.apps);
                let (reason, apps) = (event.reason.as_deref(), cut(&apps));
                let (instances, tasks) = (event.count, event.tasks);
                tracing::warn!(cell, reason, instances, %apps, tasks, "cell lost");
            }
            (true, false) => tracing::info!(cell, "cell joined"),
            (false, _) => tracing::debug!(cell, lost, "cell joined or lost"),
        }
    }

    /// Logs a message that could not be used.
    pub(super) fn log_dropped(&self, from: &str, error: &WireError) {
        let (logged, left_out) = self.dropped.next(Instant::now());
        if logged {
            tracing::warn!(from, %error, left_out, "dropped: malformed message");
        }
    }

    /// Asks every cell; each answers below its own subject.
    async fn ask_all(&self, subject: String, asked: Asked, body: Bytes) -> Result<(), BusError> {
        let headers = self.tokens.headers(asked);
        in_time(self.bus.client.publish_with_headers(subject, headers, body)).await
    }

    /// Asks one cell. It answers below its own subject, too, where nobody else may publish; the server also reports
    /// there if there are no responders.
    async fn ask(&self, what: &str, cell: &str, asked: Asked, body: Bytes) -> Result<(), BusError> {
        let subject = self.subjects.cell(cell, what);
        let to = self.tokens.to(asked);
        let to = to.map_err(|invalid| BusError::Refused(invalid.to_string()))?;
        let reply = self.subjects.cell_answer(cell, &to);
        in_time(self.bus.client.publish_with_reply(subject, reply, body)).await
    }

    /// Answers a request that could not be parsed.
    pub(super) async fn refuse(&self, to: Option<ReplyKey>, error: &WireError) {
        if let Some(to) = to
            && let Err(error) = self.reply(to, to_bytes(&error.body()), Some(error)).await
        {
            tracing::warn!(%error, "dropped: message not sent");
        }
    }

    /// Answers a request; errors also go into the headers of NATS services.
    async fn reply(
        &self,
        to: ReplyKey,
        body: Bytes,
        error: Option<&WireError>,
    ) -> Result<(), BusError> {
        let request = {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.remove(&to)
        };
        let headers = error.map(WireError::headers).unwrap_or_default();
        match request {
            None => Ok(()),
            Some(Waiting::Endpoint(request)) => {
                in_time(request.respond_with_headers(Ok(body), headers)).await
            }
            Some(Waiting::Broadcast(subject)) => {
                in_time(self.bus.client.publish_with_headers(subject, headers, body)).await
            }
        }
    }
}
