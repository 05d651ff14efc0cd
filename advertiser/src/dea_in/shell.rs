//! The shell of a bridge: subscriptions, timers, answers.

use std::{collections::HashMap, pin::pin, sync::atomic::Ordering};

use async_nats::{Message, Subscriber};
use futures_util::{FutureExt, StreamExt, stream::SelectAll};
use serde_json::json;
use shared::{
    Subjects,
    clock::{Clock, wall_ms},
    nats::{Bus, BusError, PermissionViolation, new_inbox},
    permissions::{Permissions, Role},
    shutdown::CancellationToken,
    telemetry::Seldom,
    wire::to_bytes,
};
use tokio::time::{sleep_until, timeout};

use super::{
    DeaInConfig, DeaInError,
    cells::{CellsOutput, DeaCells},
};
use crate::{
    dea::{BridgeInput, Estate, subjects as deas},
    outbox::{self, Outbox},
    shown::{Asks, Shown, is_answered},
};

/// The part of max_payload that an answer reserves for its subject and headers.
const MARGIN: usize = 4_096;
/// The most messages of DEAs that are handled before a reply.
const MAX_BEFORE: usize = 1_000;
/// How often the published counters are refreshed.
const SHOW_MS: u64 = 1_000;

pub(super) struct Shell {
    pub(super) name: String,
    pub(super) cells: DeaCells,
    pub(super) subjects: Subjects,
    pub(super) clock: Clock,
    pub(super) wall_ms: u64,
    pub(super) to_deas: Outbox,
    pub(super) to_cluster: Outbox,
    pub(super) cluster: Bus,
    pub(super) estate: Bus,
    /// The subject for replies of DEAs.
    pub(super) inbox: String,
    /// The reply subjects of starts that are not answered yet.
    pub(super) asked: HashMap<u64, String>,
    pub(super) ticket: u64,
    pub(super) malformed: u64,
    pub(super) forbidden: u64,
    pub(super) seldom: Seldom,
    pub(super) shown: Shown,
    pub(super) show_ms: u64,
}

/// Runs a bridge until it is told to end.
pub(super) async fn run(
    config: &DeaInConfig,
    estate: Bus,
    cluster: Bus,
    subjects: Subjects,
    ending: CancellationToken,
) -> Result<(), DeaInError> {
    if !are_connected([&estate, &cluster], &ending).await {
        return Ok(());
    }
    let first = format!("{}-0", config.name);
    if is_answered(&cluster.client, subjects.cell(&first, "state")).await? {
        return Err(DeaInError::NameTaken(first));
    }
    let (heard, inbox, replies) = listen_to_deas(&estate).await?;
    let asked = listen_to_cluster(config, &cluster, &subjects).await?;
    let (shown, asks) = Shown::new();
    let subject = subjects.bridge_state(&config.name);
    let about = (Role::Bridge, "bridge: makes cells of DEAs");
    let service = shown.serve(&cluster, &subjects, about, subject).await?;
    let _ = timeout(shared::nats::PUBLISH_TIMEOUT, estate.client.flush()).await;
    let _ = timeout(shared::nats::PUBLISH_TIMEOUT, cluster.client.flush()).await;
    let wall_ms = u64::try_from(wall_ms()).unwrap_or_default();
    let mut shell = Shell {
        name: config.name.clone(),
        cells: DeaCells::new(config.options(subjects.prefix()), wall_ms)?,
        clock: Clock::start(),
        wall_ms,
        to_deas: Outbox::new(estate.client.clone()),
        to_cluster: Outbox::new(cluster.client.clone()),
        cluster: cluster.clone(),
        estate: estate.clone(),
        inbox,
        asked: HashMap::new(),
        ticket: 0,
        malformed: 0,
        forbidden: 0,
        seldom: Seldom::new(),
        shown,
        show_ms: 0,
        subjects: subjects.clone(),
    };
    // DEAs that were there before this bridge report at once
    shell.to_deas.publish(deas::LOCATE, "");
    shell.to_deas.publish(deas::HEALTH_MANAGER_START, "");
    let (name, slots) = (&config.name, config.slots);
    tracing::info!(
        name,
        slots,
        estate = estate.url,
        cluster = cluster.url,
        "ready"
    );
    let cells: Vec<String> = config.cells().collect();
    let permissions = Role::Bridge.permissions_for(&subjects, name, &cells);
    let ended = live(
        &mut shell,
        (estate, permissions),
        (heard, replies, asked),
        asks,
        ending,
    )
    .await;
    let now_ms = shell.now_ms();
    let last = shell.cells.leave(now_ms);
    shell.carry_out(last);
    shell.to_cluster.flush().await;
    shell.to_deas.flush().await;
    let _ = service.stop().await;
    ended
}

/// Waits until both connections are up; returns false if the bridge is told to end before that.
async fn are_connected(both: [&Bus; 2], ending: &CancellationToken) -> bool {
    for bus in both {
        tokio::select! {
            () = outbox::connected(bus) => {}
            () = ending.cancelled() => return false,
        }
    }
    true
}

async fn listen_to_deas(
    estate: &Bus,
) -> Result<(SelectAll<Subscriber>, String, Subscriber), BusError> {
    let mut heard = SelectAll::new();
    for subject in Estate::SUBJECTS {
        let messages = estate.client.subscribe(subject).await;
        heard.push(messages.map_err(BusError::subscribe)?);
    }
    let inbox = new_inbox(&estate.client);
    let replies = estate.client.subscribe(inbox.clone()).await;
    Ok((heard, inbox, replies.map_err(BusError::subscribe)?))
}

async fn listen_to_cluster(
    config: &DeaInConfig,
    cluster: &Bus,
    subjects: &Subjects,
) -> Result<SelectAll<Subscriber>, BusError> {
    let mut asked = SelectAll::new();
    for subject in [
        subjects.discover(),
        subjects.bid(),
        subjects.instances(),
        subjects.cells_stop(),
    ] {
        let messages = cluster.client.subscribe(subject).await;
        asked.push(messages.map_err(BusError::subscribe)?);
    }
    for cell in config.cells() {
        // one subscription for each cell, not one for each topic: the client reserves several KiB for each
        let (subject, queue) = (subjects.cell(&cell, "*"), Subjects::CELL_QUEUE);
        let messages = cluster.client.queue_subscribe(subject, queue.into()).await;
        asked.push(messages.map_err(BusError::subscribe)?);
    }
    Ok(asked)
}

/// The main loop: handles each event as it arrives, without blocking.
async fn live(
    shell: &mut Shell,
    (estate, permissions): (Bus, Permissions),
    (mut heard, mut replies, mut asked): (SelectAll<Subscriber>, Subscriber, SelectAll<Subscriber>),
    mut asks: Asks,
    ending: CancellationToken,
) -> Result<(), DeaInError> {
    let (cluster, mut connected) = (shell.cluster.clone(), shell.cluster.connected.clone());
    connected.mark_unchanged();
    let of_cluster = |violation: &PermissionViolation| permissions.needs(violation);
    // an estate may reserve the right to make its DEAs speak; without the other permissions the bridge is useless
    let asides = [deas::LOCATE, deas::HEALTH_MANAGER_START];
    let of_estate = |violation: &PermissionViolation| !asides.contains(&violation.subject.as_str());
    let mut refused = pin!(cluster.violations.first(of_cluster));
    let mut refused_there = pin!(estate.violations.first(of_estate));
    let mut ending = pin!(ending.cancelled());
    let to_cluster = shell.to_cluster.clone();
    loop {
        let wake = shell.instant();
        // a new bridge hears of everything at once, and tells the cluster of each instance; without a connection it goes
        // on listening, and what cannot be sent is dropped
        let hears = to_cluster.has_room() || !*connected.borrow();
        tokio::select! {
            biased;
            () = &mut ending => return Ok(()),
            violation = &mut refused => return Err(DeaInError::NotPermitted(violation)),
            violation = &mut refused_there => return Err(DeaInError::NotPermitted(violation)),
            () = sleep_until(wake) => shell.tick(),
            Some(done) = asks.recv() => {
                shell.show(shell.now_ms());
                let _ = done.send(());
            }
            Some(message) = replies.next() => {
                shell.hear_what_came_before(&mut heard);
                let now_ms = shell.now_ms();
                let out = shell.cells.hear(now_ms, BridgeInput::Found(&message.payload));
                shell.carry_out(out);
            }
            Some(message) = asked.next() => shell.asked(&message),
            Some(message) = heard.next(), if hears => shell.heard(&message),
            () = to_cluster.room(), if !hears => {}
            Ok(()) = connected.changed() => {
                if *connected.borrow_and_update() {
                    let now_ms = shell.now_ms();
                    let out = shell.cells.advertise_all(now_ms);
                    shell.carry_out(out);
                }
            }
        }
    }
}

impl Shell {
    pub(super) fn now_ms(&self) -> u64 {
        self.wall_ms + self.clock.now_ms()
    }

    /// Handles a message of a DEA.
    fn heard(&mut self, message: &Message) {
        let (now_ms, subject) = (self.now_ms(), message.subject.as_str());
        let body = &message.payload;
        let out = self
            .cells
            .hear(now_ms, BridgeInput::Heard { subject, body });
        self.carry_out(out);
    }

    /// Handles messages that arrived earlier: a DEA says why it refused an instance before it replies that the instance
    /// has crashed.
    fn hear_what_came_before(&mut self, heard: &mut SelectAll<Subscriber>) {
        for _ in 0..MAX_BEFORE {
            if !self.to_cluster.has_room() {
                return;
            }
            let Some(Some(message)) = heard.next().now_or_never() else {
                return;
            };
            self.heard(&message);
        }
    }

    /// Returns when something is due.
    fn instant(&self) -> tokio::time::Instant {
        let next_ms = self.cells.next_ms().min(self.show_ms);
        // timers cannot be arbitrarily far in the future
        let next_ms = next_ms.min(self.now_ms() + 60_000);
        self.clock.instant(next_ms.saturating_sub(self.wall_ms))
    }

    fn tick(&mut self) {
        let now_ms = self.now_ms();
        let out = self.cells.tick(now_ms);
        self.carry_out(out);
        if self.show_ms <= now_ms {
            self.show_ms = now_ms + SHOW_MS;
            self.show(now_ms);
        }
    }

    /// Updates what the bridge reports about itself.
    fn show(&mut self, now_ms: u64) {
        let (bridge, counters) = (self.cells.bridge(), self.cells.counters);
        let estate = bridge.estate();
        let lost = self.cluster.dropped.load(Ordering::Relaxed);
        let lost = lost + self.estate.dropped.load(Ordering::Relaxed);
        let shown = json!({
            "v": 1,
            "bridge": self.name,
            "deas": estate.deas().count(),
            "deas_live": estate.live(now_ms).count(),
            "deas_without_slot": bridge.without_slot(now_ms),
            "cells": self.cells.names().count(),
            "instances": self.cells.instances_held(),
            "heard": estate.heard,
            "starts_placed": counters.placed,
            "starts_refused": counters.refused,
            "starts_unknown": counters.unknown,
            "dropped_of_further_deas": estate.dropped,
            "dropped_malformed_of_deas": estate.senders.malformed() + estate.senders.of_others,
            "dropped_malformed": self.malformed,
            "dropped_misnamed": counters.misnamed,
            "dropped_reply_subject": self.forbidden,
            "dropped_unsent": self.to_cluster.unsent() + self.to_deas.unsent(),
            "dropped_slow_consumer": lost,
            "dropped_not_permitted": self.cluster.violations.count() + self.estate.violations.count(),
        });
        self.shown.put(shown);
    }

    pub(super) fn carry_out(&mut self, out: Vec<CellsOutput>) {
        for output in out {
            match output {
                CellsOutput::ToDeas { subject, body } => self.to_deas.publish(subject, body.0),
                CellsOutput::AskDeas { subject, body } => {
                    self.to_deas.ask(subject, &self.inbox, body);
                }
                CellsOutput::Advertise(advert) => {
                    let subject = self.subjects.cell(&advert.cell.cell, "advert");
                    self.to_cluster.publish(subject, to_bytes(&advert));
                }
                CellsOutput::Heartbeat(list) => {
                    let subject = self.subjects.cell(&list.cell, "heartbeat");
                    for part in list.split(self.max_bytes()) {
                        self.to_cluster.publish(subject.clone(), to_bytes(&part));
                    }
                }
                CellsOutput::Event { cell, mut event } => {
                    event.stamp(&cell);
                    let subject = self.subjects.event(&event.kind, event.about(), &event.by);
                    self.to_cluster.publish(subject, to_bytes(&event));
                }
                // only questions are replied to
                CellsOutput::Reply { .. } => {}
                CellsOutput::Answer { ticket, answer } => {
                    if let Some(reply) = self.asked.remove(&ticket) {
                        self.to_cluster.publish(reply, to_bytes(&answer));
                    }
                }
            }
        }
    }

    /// Returns the largest size of an answer.
    pub(super) fn max_bytes(&self) -> usize {
        let most = match self.cluster.client.max_payload() {
            0 => 1 << 20, // not connected yet
            most => most,
        };
        most.saturating_sub(MARGIN)
    }
}
