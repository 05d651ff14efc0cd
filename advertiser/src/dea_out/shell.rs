//! The shell of the facades: subscriptions, timers, answers.

use std::{collections::BTreeMap, pin::pin, sync::atomic::Ordering, time::Duration};

use async_nats::{Client, Message, Subscriber};
use futures_util::{
    FutureExt, StreamExt,
    stream::{AbortHandle, Abortable, SelectAll, abortable},
};
use serde_json::json;
use shared::{
    Subjects,
    clock::{Clock, wall_ms},
    may_answer,
    nats::{Bus, BusError, PermissionViolation, is_no_responders, new_inbox},
    permissions::{Permissions, Role},
    shutdown::CancellationToken,
    wire::{
        Acceptance, Envelope, Event, InstancesAnswer, TaskResult, kind, parse, parse_cell,
        parse_change, read, to_bytes,
    },
};
use tokio::{
    task::unconstrained,
    time::{sleep_until, timeout},
};

use super::{
    DeaOutConfig, DeaOutError,
    cells::{OutCells, OutOutput, ttl_ms},
};
use crate::{
    outbox::{self, Outbox},
    shown::{Asks, Shown, is_answered},
};

/// How often the published counters are refreshed.
const SHOW_MS: u64 = 1_000;
/// How long stopping everything may take at the end.
const LAST: Duration = Duration::from_secs(2);

struct Shell {
    name: String,
    cells: OutCells,
    subjects: Subjects,
    clock: Clock,
    wall_ms: u64,
    estate: Bus,
    cluster: Bus,
    to_estate: Outbox,
    to_cluster: Outbox,
    /// The subject for answers of cells.
    inbox: String,
    /// The subscriptions in the estate, each with a handle that ends it.
    listened: BTreeMap<String, AbortHandle>,
    heard: SelectAll<Abortable<Subscriber>>,
    malformed: u64,
    forbidden: u64,
    shown: Shown,
    show_ms: u64,
}

pub(super) async fn run(
    config: DeaOutConfig,
    estate: Bus,
    cluster: Bus,
    subjects: Subjects,
    ending: CancellationToken,
) -> Result<(), DeaOutError> {
    for bus in [&estate, &cluster] {
        tokio::select! {
            () = outbox::connected(bus) => {}
            () = ending.cancelled() => return Ok(()),
        }
    }
    if is_answered(&cluster.client, subjects.facade_state(&config.name)).await? {
        return Err(DeaOutError::NameTaken(config.name));
    }
    let inbox = new_inbox(&cluster.client);
    let answers = listen(&cluster.client, &inbox).await?;
    let heard = listen_to_cells(&config, &cluster.client, &subjects).await?;
    let (shown, asks) = Shown::new();
    let subject = subjects.facade_state(&config.name);
    let about = (Role::Facade, "facade: makes DEAs of cells");
    let service = shown.serve(&cluster, &subjects, about, subject).await?;
    let _ = timeout(shared::nats::PUBLISH_TIMEOUT, cluster.client.flush()).await;
    let permissions = Role::Facade.permissions_for(&subjects, &config.name, &config.cells);
    let (name, cells) = (config.name.clone(), config.cells.len());
    tracing::info!(
        name,
        cells,
        estate = estate.url,
        cluster = cluster.url,
        "ready"
    );
    let mut shell = Shell {
        name,
        cells: OutCells::new(config, uuid::Uuid::new_v4()),
        clock: Clock::start(),
        wall_ms: u64::try_from(wall_ms()).unwrap_or_default(),
        to_estate: Outbox::new(estate.client.clone()),
        to_cluster: Outbox::new(cluster.client.clone()),
        estate,
        cluster,
        inbox,
        listened: BTreeMap::new(),
        heard: SelectAll::new(),
        malformed: 0,
        forbidden: 0,
        shown,
        show_ms: 0,
        subjects,
    };
    // cells that were there before report at once
    let discover = shell.subjects.discover();
    shell.to_cluster.publish(discover, "");
    let ended = live(&mut shell, permissions, (heard, answers), asks, ending).await;
    let now_ms = shell.now_ms();
    let last = shell.cells.shut_down(now_ms);
    let _ = timeout(LAST, shell.carry_out(last)).await;
    shell.to_estate.flush().await;
    shell.to_cluster.flush().await;
    let _ = service.stop().await;
    ended
}

async fn listen(client: &Client, subject: &str) -> Result<Subscriber, BusError> {
    let messages = client.subscribe(subject.to_owned()).await;
    messages.map_err(BusError::subscribe)
}

/// What cells publish.
struct OfCells {
    lists: SelectAll<Subscriber>,
    /// Everything but lists.
    others: SelectAll<Subscriber>,
}

async fn listen_to_cells(
    config: &DeaOutConfig,
    client: &Client,
    subjects: &Subjects,
) -> Result<OfCells, BusError> {
    let (mut lists, mut others) = (SelectAll::new(), SelectAll::new());
    for cell in &config.cells {
        lists.push(listen(client, &subjects.cell(cell, "heartbeat")).await?);
        for what in ["advert", "result"] {
            others.push(listen(client, &subjects.cell(cell, what)).await?);
        }
        for kind in kind::OF_CELLS {
            others.push(listen(client, &subjects.event(kind, "*", cell)).await?);
        }
    }
    Ok(OfCells { lists, others })
}

/// The main loop: handles each event as it arrives.
async fn live(
    shell: &mut Shell,
    permissions: Permissions,
    (mut heard, mut answers): (OfCells, Subscriber),
    mut asks: Asks,
    ending: CancellationToken,
) -> Result<(), DeaOutError> {
    let (cluster, estate) = (shell.cluster.clone(), shell.estate.clone());
    let of_cluster = |violation: &PermissionViolation| permissions.needs(violation);
    // an estate may forbid answering questions and announcing routes
    let of_estate = |violation: &PermissionViolation| {
        let subject = violation.subject.as_str();
        !may_answer(subject) && !subject.starts_with("router.")
    };
    let mut refused = pin!(cluster.violations.first(of_cluster));
    let mut refused_there = pin!(estate.violations.first(of_estate));
    let mut ending = pin!(ending.cancelled());
    loop {
        let wake = shell.instant();
        tokio::select! {
            biased;
            () = &mut ending => return Ok(()),
            violation = &mut refused => return Err(DeaOutError::NotPermitted(violation)),
            violation = &mut refused_there => return Err(DeaOutError::NotPermitted(violation)),
            () = sleep_until(wake) => shell.tick().await,
            Some(done) = asks.recv() => {
                shell.show(shell.now_ms());
                let _ = done.send(());
            }
            Some(message) = answers.next() => shell.answered(&message).await,
            Some(message) = heard.others.next() => shell.told(&message).await,
            Some(list) = heard.lists.next() => {
                // subscriptions keep no order among each other: what the cell published before its list comes first,
                // so that an instance whose end was announced is not taken for a lost one
                while let Some(Some(earlier)) = unconstrained(heard.others.next()).now_or_never() {
                    shell.told(&earlier).await;
                }
                shell.told(&list).await;
            }
            Some(message) = shell.heard.next(), if !shell.heard.is_empty() => {
                shell.heard(&message).await;
            }
        }
    }
}

impl Shell {
    fn now_ms(&self) -> u64 {
        self.wall_ms + self.clock.now_ms()
    }

    fn instant(&self) -> tokio::time::Instant {
        let now_ms = self.now_ms();
        let next_ms = self.cells.next_ms(now_ms).min(self.show_ms);
        // timers cannot be arbitrarily far in the future
        let next_ms = next_ms.min(now_ms + 60_000);
        self.clock.instant(next_ms.saturating_sub(self.wall_ms))
    }

    async fn tick(&mut self) {
        let now_ms = self.now_ms();
        let out = self.cells.tick(now_ms);
        self.carry_out(out).await;
        if self.show_ms <= now_ms {
            self.show_ms = now_ms + SHOW_MS;
            self.show(now_ms);
        }
    }

    fn show(&self, now_ms: u64) {
        let counters = self.cells.counters();
        let lost = [&self.cluster, &self.estate].map(|bus| bus.dropped.load(Ordering::Relaxed));
        let refused = [&self.cluster, &self.estate].map(|bus| bus.violations.count());
        self.shown.put(json!({
            "v": 1,
            "facade": self.name,
            "deas": self.cells.deas(now_ms),
            "starts_accepted": counters.started,
            "starts_refused": counters.refused,
            "starts_unanswered": counters.unanswered,
            "apps_staged": counters.staged,
            "apps_not_staged": counters.not_staged,
            "left_over_stopped": counters.left_over,
            "dropped_malformed": self.malformed + counters.malformed,
            "dropped_beyond_bound": counters.dropped,
            "dropped_reply_subject": self.forbidden,
            "dropped_unsent": self.to_cluster.unsent() + self.to_estate.unsent(),
            "dropped_slow_consumer": lost.iter().sum::<u64>(),
            "dropped_not_permitted": refused.iter().sum::<u64>(),
        }));
    }

    async fn carry_out(&mut self, out: Vec<OutOutput>) {
        for output in out {
            match output {
                OutOutput::ToEstate { subject, body } => self.to_estate.publish(subject, body.0),
                OutOutput::Listen { subject } => self.listen(subject).await,
                OutOutput::Unlisten { subject } => {
                    // its subscription ends when it is next polled
                    if let Some(end) = self.listened.remove(&subject) {
                        end.abort();
                    }
                }
                OutOutput::Start { cell, body } => {
                    let subject = self.subjects.cell(&cell, "start");
                    self.to_cluster.ask(subject, &self.inbox, body.0);
                }
                OutOutput::Stop { cell, stop } => {
                    let subject = self.subjects.cell(&cell, "stop");
                    self.to_cluster.publish(subject, to_bytes(&stop));
                }
            }
        }
    }

    async fn listen(&mut self, subject: String) {
        if self.listened.contains_key(&subject) {
            return;
        }
        match listen(&self.estate.client, &subject).await {
            Ok(messages) => {
                let (messages, end) = abortable(messages);
                self.heard.push(messages);
                self.listened.insert(subject, end);
            }
            Err(error) => tracing::warn!(subject, %error, "cannot listen to the estate"),
        }
    }

    /// Handles a cell's answer to a start.
    async fn answered(&mut self, message: &Message) {
        if is_no_responders(message) {
            return; // it is sent again
        }
        let now_ms = self.now_ms();
        match parse::<Acceptance>(&message.payload, &mut Vec::new()) {
            Ok(answer) => {
                let out = self.cells.answered(now_ms, &answer);
                self.carry_out(out).await;
            }
            Err(error) => {
                self.malformed += 1;
                tracing::warn!(%error, "a cell's answer cannot be read");
            }
        }
    }

    /// Handles a message published by a cell.
    async fn told(&mut self, message: &Message) {
        let now_ms = self.now_ms();
        let (subject, body) = (message.subject.as_str(), &message.payload[..]);
        let out = if let Some(about) = self.subjects.event_of(subject) {
            let event: Option<Event> = read(body).ok();
            let event = event.filter(|event| event.agrees_with(about));
            event.map(|event| self.cells.event(now_ms, about.by, &event))
        } else if subject.ends_with(".result") {
            let result: Option<TaskResult> = read(body).ok();
            let by = self.subjects.cell_of(subject);
            let result = result.filter(|result| Some(result.cell.as_str()) == by);
            result.map(|result| self.cells.task_ended(now_ms, result))
        } else if subject.ends_with(".heartbeat") {
            let list: Option<InstancesAnswer> = read(body).ok();
            let by = self.subjects.cell_of(subject);
            let list = list.filter(|list| Some(list.cell.as_str()) == by);
            list.map(|list| self.cells.listed(now_ms, &list))
        } else {
            self.advertised(now_ms, subject, body)
        };
        match out {
            Some(out) => self.carry_out(out).await,
            None => self.malformed += 1,
        }
    }

    fn advertised(&mut self, now_ms: u64, subject: &str, body: &[u8]) -> Option<Vec<OutOutput>> {
        let envelope = Envelope::parse(body, self.subjects.cell_of(subject)).ok()?;
        let ttl_ms = ttl_ms(envelope.ttl);
        let about = (envelope.incarnation, envelope.clock_ms.as_ms(), ttl_ms);
        if envelope.since.is_some() {
            let (envelope, change) = parse_change(body).ok()?;
            return self.cells.changed(now_ms, about, &envelope.cell, &change);
        }
        let cell = parse_cell(body).ok()?;
        Some(self.cells.advertised(now_ms, about, &cell))
    }

    /// Handles a message of the estate.
    async fn heard(&mut self, message: &Message) {
        let reply = message.reply.as_deref();
        self.forbidden += u64::from(reply.is_some_and(|reply| !may_answer(reply)));
        let reply = reply.filter(|reply| may_answer(reply));
        let subject = message.subject.as_str();
        let out = self
            .cells
            .heard(self.now_ms(), subject, reply, &message.payload);
        self.carry_out(out).await;
    }
}
