//! The shell of a bridge: subscriptions, timers, answers.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use async_nats::{
    Message, Subscriber,
    service::{Service, ServiceExt},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream::SelectAll};
use placement::{Span, check_name};
use serde_json::json;
use shared::{
    AnswerTo, Subjects,
    clock::{Clock, millis, wall_ms},
    may_answer,
    nats::{Bus, BusError, PermissionViolation, in_time, is_no_responders, new_inbox},
    permissions::{Permissions, Role},
    shutdown::CancellationToken,
    telemetry::Seldom,
    wire::{
        BidRequest, Cordon, CordonAnswer, Drain, DrainAnswer, Instances, InstancesAnswer, Stop,
        WireError, code, parse, parse_strict, read_nothing, to_bytes,
    },
};
use tokio::time::{sleep_until, timeout};

use super::{
    DeaInConfig, DeaInError,
    cells::{CellService, CellsOutput, DeaBid, DeaCells},
};
use crate::{
    dea::{BridgeInput, Estate, subjects as deas},
    outbox::Outbox,
};

/// How long another bridge of the same name has to answer.
const NAME_WAIT: Duration = Duration::from_millis(500);
/// The deadline of a drain that gives none.
const DRAIN_DEADLINE: Duration = Duration::from_secs(600);
/// The most ids or indices in one request.
const MAX_FILTER: usize = 100_000;
/// The part of max_payload that an answer leaves for its subject and headers.
const MARGIN: usize = 4_096;
/// How often what the bridge counts is shown anew.
const SHOW_MS: u64 = 1_000;

/// What a message of the cluster is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topic {
    Discover,
    Bid,
    Instances,
    StopAll,
    Start,
    Stop,
    State,
    Drain,
    Cordon,
    Uncordon,
    Unknown,
}

/// What one cell is asked.
const OF_CELL: [(&str, Topic); 8] = [
    ("start", Topic::Start),
    ("stop", Topic::Stop),
    ("state", Topic::State),
    ("drain", Topic::Drain),
    ("cordon", Topic::Cordon),
    ("uncordon", Topic::Uncordon),
    ("set", Topic::Unknown),
    ("logs", Topic::Unknown),
];

struct Shell {
    name: String,
    cells: DeaCells,
    subjects: Subjects,
    clock: Clock,
    wall_ms: u64,
    to_deas: Outbox,
    to_cluster: Outbox,
    cluster: Bus,
    estate: Bus,
    /// Where DEAs reply to questions.
    inbox: String,
    /// Who waits for the answer to a start.
    asked: HashMap<u64, String>,
    ticket: u64,
    malformed: u64,
    forbidden: u64,
    seldom: Seldom,
    shown: Shown,
    show_ms: u64,
}

/// What the bridge says of itself.
type Shown = Arc<Mutex<serde_json::Value>>;

/// Runs a bridge until it is told to end.
pub(super) async fn run(
    config: &DeaInConfig,
    estate: Bus,
    cluster: Bus,
    subjects: Subjects,
    ending: CancellationToken,
) -> Result<(), DeaInError> {
    for bus in [&estate, &cluster] {
        tokio::select! {
            () = connected(bus) => {}
            () = ending.cancelled() => return Ok(()),
        }
    }
    ask_for_the_name(config, &cluster, &subjects).await?;
    let (heard, inbox, replies) = listen_to_deas(&estate).await?;
    let asked = listen_to_cluster(config, &cluster, &subjects).await?;
    let shown = Shown::default();
    let service = be_service(&cluster, &subjects, &config.name, Arc::clone(&shown)).await?;
    let _ = timeout(shared::nats::PUBLISH_TIMEOUT, estate.client.flush()).await;
    let _ = timeout(shared::nats::PUBLISH_TIMEOUT, cluster.client.flush()).await;
    let wall_ms = u64::try_from(wall_ms()).unwrap_or_default();
    let mut shell = Shell {
        name: config.name.clone(),
        cells: DeaCells::new(config.options(), wall_ms)?,
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
    // who was there before this bridge says so at once
    shell.to_deas.publish(deas::LOCATE, "");
    shell.to_deas.publish(deas::HEALTH_MANAGER_START, "");
    let (name, slots) = (&config.name, config.slots);
    tracing::info!(name, slots, estate = estate.url, cluster = cluster.url, "ready");
    let cells: Vec<String> = config.cells().collect();
    let permissions = Role::Bridge.permissions_for(&subjects, name, &cells);
    let ended = live(&mut shell, (estate, permissions), (heard, replies, asked), ending).await;
    let now_ms = shell.now_ms();
    let last = shell.cells.leave(now_ms);
    shell.carry_out(last);
    shell.to_cluster.flush().await;
    shell.to_deas.flush().await;
    let _ = service.stop().await;
    ended
}

async fn connected(bus: &Bus) {
    let mut connected = bus.connected.clone();
    // an error means that the client is gone; the next request reports it
    let _ = connected.wait_for(|connected| *connected).await;
}

/// Asks whether the first cell is there: another bridge of the same name would answer for it.
async fn ask_for_the_name(
    config: &DeaInConfig,
    cluster: &Bus,
    subjects: &Subjects,
) -> Result<(), DeaInError> {
    let first = format!("{}-0", config.name);
    let subject = subjects.cell(&first, "state");
    let inbox = new_inbox(&cluster.client);
    let answers = cluster.client.subscribe(inbox.clone()).await;
    let mut answers = answers.map_err(BusError::subscribe)?;
    in_time(cluster.client.publish_with_reply(subject, inbox, Bytes::new())).await?;
    match timeout(NAME_WAIT, answers.next()).await {
        Ok(Some(answer)) if !is_no_responders(&answer) => Err(DeaInError::NameTaken(first)),
        _ => Ok(()),
    }
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
        for (what, _) in OF_CELL {
            let (subject, queue) = (subjects.cell(&cell, what), Subjects::CELL_QUEUE);
            let messages = cluster.client.queue_subscribe(subject, queue.into()).await;
            asked.push(messages.map_err(BusError::subscribe)?);
        }
    }
    Ok(asked)
}

/// A service of one endpoint, which answers with what the bridge counts.
async fn be_service(
    cluster: &Bus,
    subjects: &Subjects,
    name: &str,
    shown: Shown,
) -> Result<Service, BusError> {
    let refused = |e: async_nats::Error| BusError::Refused(e.to_string());
    let stats = Arc::clone(&shown);
    let service = cluster
        .client
        .service_builder()
        .description("bridge: makes cells of DEAs")
        .metadata(HashMap::from([("name".to_owned(), name.to_owned())]))
        .stats_handler(move |_, _| read(&stats))
        .start(subjects.service(Role::Bridge), env!("CARGO_PKG_VERSION"))
        .await
        .map_err(refused)?;
    let endpoint = service.endpoint_builder().name("state");
    let endpoint = endpoint.queue_group(Subjects::CELL_QUEUE);
    let mut endpoint = endpoint
        .add(subjects.bridge_state(name))
        .await
        .map_err(refused)?;
    tokio::spawn(async move {
        while let Some(request) = endpoint.next().await {
            let reply = request.message.reply.as_ref();
            if reply.is_some_and(|reply| may_answer(reply)) {
                // whoever asked may be gone
                let _ = request.respond(Ok(to_bytes(&read(&shown)))).await;
            }
        }
    });
    Ok(service)
}

fn read(shown: &Shown) -> serde_json::Value {
    shown.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The main loop: each event is handled as it comes, without blocking.
async fn live(
    shell: &mut Shell,
    (estate, permissions): (Bus, Permissions),
    (mut heard, mut replies, mut asked): (SelectAll<Subscriber>, Subscriber, SelectAll<Subscriber>),
    ending: CancellationToken,
) -> Result<(), DeaInError> {
    let (cluster, mut connected) = (shell.cluster.clone(), shell.cluster.connected.clone());
    connected.mark_unchanged();
    let of_cluster = |violation: &PermissionViolation| permissions.needs(violation);
    // DEAs are only asked and told: whatever is refused there makes the bridge useless
    let of_estate = |_: &PermissionViolation| true;
    let mut refused = pin!(cluster.violations.first(of_cluster));
    let mut refused_there = pin!(estate.violations.first(of_estate));
    let mut ending = pin!(ending.cancelled());
    loop {
        let wake = shell.instant();
        tokio::select! {
            biased;
            () = &mut ending => return Ok(()),
            violation = &mut refused => return Err(DeaInError::NotPermitted(violation)),
            violation = &mut refused_there => return Err(DeaInError::NotPermitted(violation)),
            () = sleep_until(wake) => shell.tick(),
            Some(message) = replies.next() => {
                let now_ms = shell.now_ms();
                let out = shell.cells.hear(now_ms, BridgeInput::Found(&message.payload));
                shell.carry_out(out);
            }
            Some(message) = asked.next() => shell.asked(&message),
            Some(message) = heard.next() => {
                let (now_ms, subject) = (shell.now_ms(), message.subject.as_str());
                let heard = BridgeInput::Heard { subject, body: &message.payload };
                let out = shell.cells.hear(now_ms, heard);
                shell.carry_out(out);
            }
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
    fn now_ms(&self) -> u64 {
        self.wall_ms + self.clock.now_ms()
    }

    /// When something is due.
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

    /// What is shown to whoever asks the bridge itself.
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
        let mut place = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        *place = shown;
    }

    fn carry_out(&mut self, out: Vec<CellsOutput>) {
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
                CellsOutput::Answer { ticket, answer } => {
                    if let Some(reply) = self.asked.remove(&ticket) {
                        self.to_cluster.publish(reply, to_bytes(&answer));
                    }
                }
            }
        }
    }

    /// The largest size of an answer's message.
    fn max_bytes(&self) -> usize {
        let most = match self.cluster.client.max_payload() {
            0 => 1 << 20, // not connected yet
            most => most,
        };
        most.saturating_sub(MARGIN)
    }

    /// A message of the cluster.
    fn asked(&mut self, message: &Message) {
        let subject = message.subject.as_str();
        let of_all = [
            (self.subjects.discover(), Topic::Discover),
            (self.subjects.bid(), Topic::Bid),
            (self.subjects.instances(), Topic::Instances),
            (self.subjects.cells_stop(), Topic::StopAll),
        ];
        let done = if let Some((_, topic)) = of_all.iter().find(|(known, _)| known == subject) {
            self.of_all(*topic, message)
        } else {
            let cell = self.subjects.cell_of(subject).map(str::to_owned);
            let what = subject.rsplit('.').next().unwrap_or_default();
            let topic = OF_CELL.iter().find(|(known, _)| *known == what);
            match (cell, topic) {
                (Some(cell), Some((_, topic))) => self.of_cell(*topic, &cell, message),
                _ => Ok(()),
            }
        };
        let Err(error) = done else {
            return;
        };
        self.malformed += 1;
        if let Some(times) = self.seldom.happened(Instant::now(), 1) {
            tracing::warn!(subject, %error, times, "malformed message");
        }
        // not to a broadcast: every cell would say it
        if let Some(cell) = self.subjects.cell_of(subject)
            && let Some(to) = self.answer_to(message, &cell.to_owned())
        {
            self.to_cluster.error(to, &error);
        }
    }

    /// A question to all cells: each answers.
    fn of_all(&mut self, topic: Topic, message: &Message) -> Result<(), WireError> {
        let (now_ms, body) = (self.now_ms(), &message.payload[..]);
        if topic == Topic::Discover {
            read_nothing(body)?;
            let out = self.cells.advertise_all(now_ms);
            self.carry_out(out);
            return Ok(());
        }
        let names: Vec<String> = self.cells.names().cloned().collect();
        match topic {
            Topic::Bid => {
                let request: BidRequest = parse(body, &mut Vec::new())?;
                for name in names {
                    let body = match self.cells.bid(now_ms, &name, request.auction) {
                        Some(DeaBid::Unchanged(bid)) => to_bytes(&bid),
                        Some(DeaBid::Full(advert)) => to_bytes(&advert),
                        None => continue,
                    };
                    self.answer(message, &name, body);
                }
            }
            Topic::Instances => {
                let filter = instances_filter(body)?;
                for name in names {
                    let list = self.cells.instances(now_ms, &name, &filter);
                    for part in list.map(|list| list.split(self.max_bytes())).unwrap_or_default() {
                        self.answer(message, &name, to_bytes::<InstancesAnswer>(&part));
                    }
                }
            }
            _ => {
                let stop = read_stop(body)?;
                for name in names {
                    self.stop(now_ms, &name, &stop, message);
                }
            }
        }
        Ok(())
    }

    fn of_cell(&mut self, topic: Topic, cell: &str, message: &Message) -> Result<(), WireError> {
        let (now_ms, body) = (self.now_ms(), &message.payload[..]);
        let is_there = self.cells.names().any(|name| name == cell);
        match topic {
            Topic::Start if is_there => self.start(now_ms, cell, message)?,
            Topic::Start => {
                let answer = DeaCells::refusal_without_cell(cell, body)?;
                self.answer(message, cell, to_bytes(&answer));
            }
            Topic::Stop => {
                let stop = read_stop(body)?;
                self.stop(now_ms, cell, &stop, message);
            }
            Topic::State => {
                read_nothing(body)?;
                let state = self.cells.state(now_ms, cell, None).ok_or_else(|| no_dea(cell))?;
                self.answer(message, cell, to_bytes(&state));
            }
            _ if !is_there => return Err(no_dea(cell)),
            Topic::Drain => {
                let drain = Drain::read(body)?;
                let deadline = drain.deadline.unwrap_or(Span(DRAIN_DEADLINE));
                let until_ms = now_ms.saturating_add(millis(deadline.0));
                self.serve(now_ms, cell, CellService::Draining(until_ms));
                let answer = DrainAnswer {
                    v: shared::VERSION,
                    cell: cell.to_owned(),
                    instances: self.cells.count(cell),
                    managed: 0,
                    tasks: 0,
                    deadline,
                    exit: false,
                    kept: false,
                };
                self.answer(message, cell, to_bytes(&answer));
            }
            Topic::Cordon | Topic::Uncordon => {
                Cordon::read(body)?;
                let cordoned = topic == Topic::Cordon;
                let service = if cordoned { CellService::Cordoned } else { CellService::Open };
                self.serve(now_ms, cell, service);
                let answer = CordonAnswer {
                    v: shared::VERSION,
                    cell: cell.to_owned(),
                    cordoned,
                    instances: self.cells.count(cell),
                    kept: false,
                };
                self.answer(message, cell, to_bytes(&answer));
            }
            _ => {
                let message = format!("{cell} is a DEA, which knows no such request");
                return Err(WireError::new(code::INVALID_REQUEST, message));
            }
        }
        Ok(())
    }

    fn start(&mut self, now_ms: u64, cell: &str, message: &Message) -> Result<(), WireError> {
        self.ticket += 1;
        let ticket = self.ticket;
        // one who wants no answer gets none
        if let Some(reply) = self.answer_to(message, cell) {
            self.asked.insert(ticket, reply);
        }
        let started = self.cells.start(now_ms, cell, ticket, &message.payload);
        if started.is_err() {
            self.asked.remove(&ticket);
        }
        self.carry_out(started?);
        Ok(())
    }

    fn stop(&mut self, now_ms: u64, cell: &str, stop: &Stop, message: &Message) {
        let mut out = Vec::new();
        let answer = self.cells.stop(now_ms, cell, stop, &mut out);
        self.carry_out(out);
        self.answer(message, cell, to_bytes(&answer));
    }

    fn serve(&mut self, now_ms: u64, cell: &str, service: CellService) {
        let out = self.cells.serve(now_ms, cell, service);
        self.carry_out(out);
    }

    fn answer(&mut self, message: &Message, cell: &str, body: Bytes) {
        if let Some(to) = self.answer_to(message, cell) {
            self.to_cluster.publish(to, body);
        }
    }

    /// Where a cell's answer to a message goes: below its own subject where the message says so, else to its reply
    /// subject, if that is an inbox.
    fn answer_to(&mut self, message: &Message, cell: &str) -> Option<String> {
        if let Ok(Some(to)) = AnswerTo::of(message) {
            return Some(self.subjects.cell_answer(cell, &to));
        }
        let reply = message.reply.as_deref()?;
        if may_answer(reply) || self.subjects.is_answer_of_cell(reply, cell) {
            return Some(reply.to_owned());
        }
        self.forbidden += 1;
        None
    }
}

fn no_dea(cell: &str) -> WireError {
    let message = format!("{cell}: no DEA has this slot now");
    WireError::new(code::NOT_FOUND, message)
}

fn read_stop(body: &[u8]) -> Result<Stop, WireError> {
    let stop = Stop::read(body)?;
    bounded("indices", stop.indices.len())?;
    bounded("instances", stop.instances.len())?;
    Ok(stop)
}

fn instances_filter(body: &[u8]) -> Result<Instances, WireError> {
    let body = if body.is_empty() { b"{}" } else { body };
    let filter: Instances = parse_strict(body, "app, ids or id_prefixes")?;
    if let Some(app) = &filter.app {
        check_name("app", app)?;
    }
    bounded("ids", filter.ids.len())?;
    bounded("id_prefixes", filter.id_prefixes.len())?;
    Ok(filter)
}

fn bounded(field: &str, count: usize) -> Result<(), WireError> {
    if count <= MAX_FILTER {
        return Ok(());
    }
    let message = format!("{field}: {count} entries; expected at most {MAX_FILTER}");
    Err(WireError::new(code::INVALID_REQUEST, message))
}
