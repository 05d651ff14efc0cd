//! Test cells: clients that speak the protocol and behave as a test wants.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use async_nats::{Client, Message};
use bytes::Bytes;
use futures_util::{StreamExt, stream::select_all};
use placement::{Cell, Request, Resources, Span};
use serde_json::json;
use shared::wire::{Acceptance, Advert, Bid, BidRequest, CellStart, Refusal, Work, to_bytes};
use shared::{AnswerTo, AuctionId, Incarnation, InstanceId, Subjects, clock::CellTime};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::harness::Cluster;

/// How the cell reacts to a start.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Starts {
    /// Accepts what fits.
    #[default]
    Accept,
    /// Accepts what fits, but its answer is held back until [`HandCell::answer_late`].
    AnswerLate,
    /// Refuses with this reason.
    Refuse(String),
}

pub(crate) struct State {
    pub(crate) cell: Cell,
    pub(crate) incarnation: Incarnation,
    pub(crate) seq: u64,
    pub(crate) starts: Starts,
    /// The ttl of its advertisements.
    pub(crate) ttl: Duration,
    /// Whether it bids.
    pub(crate) bids: bool,
    /// The cell below whose subject it answers broadcasts, if not its own.
    pub(crate) speaks_as: Option<String>,
    /// Whether its answers to starts and stops are invalid messages.
    pub(crate) is_unreadable: bool,
    pub(crate) starts_received: Vec<CellStart>,
    pub(crate) bids_received: usize,
    pub(crate) discovers_received: usize,
    held: Vec<Work>,
    recent: Vec<InstanceId>,
    late: Vec<(async_nats::Subject, Bytes)>,
    since: Instant,
}

/// A cell. When dropped, it disappears without withdrawing.
pub(crate) struct HandCell {
    pub(crate) state: Arc<Mutex<State>>,
    client: Client,
    subject: String,
    task: JoinHandle<()>,
}

impl Drop for HandCell {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HandCell {
    /// Starts a cell with this much memory that has advertised.
    pub(crate) async fn start(cluster: &Cluster, name: &str, memory_mb: i64) -> Self {
        let client = cluster.server.client().await;
        let subjects = cluster.subjects.clone();
        let state = State {
            cell: Cell::new(name, Resources::new(memory_mb, 1_000_000, 1_000)),
            incarnation: Uuid::new_v4().into(),
            seq: 1,
            starts: Starts::default(),
            ttl: Duration::from_secs(15),
            bids: true,
            speaks_as: None,
            is_unreadable: false,
            starts_received: Vec::new(),
            bids_received: 0,
            discovers_received: 0,
            held: Vec::new(),
            recent: Vec::new(),
            late: Vec::new(),
            since: Instant::now(),
        };
        let state = Arc::new(Mutex::new(state));
        let mut subscriptions = Vec::new();
        for subject in [
            subjects.discover(),
            subjects.bid(),
            subjects.instances(),
            subjects.cells_stop(),
            subjects.cell(name, "start"),
            subjects.cell(name, "state"),
        ] {
            subscriptions.push(client.subscribe(subject).await.unwrap());
        }
        let advert = subjects.cell(name, "advert");
        client.flush().await.unwrap();
        let (of_task, publisher, subject) = (Arc::clone(&state), client.clone(), advert.clone());
        let task = tokio::spawn(async move {
            let mut messages = select_all(subscriptions);
            while let Some(message) = messages.next().await {
                let answer = of_task.lock().unwrap().handle(&message, &subject);
                if let Some((to, body)) = answer {
                    publisher.publish(to, body).await.unwrap();
                }
            }
        });
        let cell = Self {
            state,
            client,
            subject: advert,
            task,
        };
        cell.advertise().await;
        cell
    }

    pub(crate) async fn advertise(&self) {
        let report = self.state.lock().unwrap().report(None);
        self.client
            .publish(self.subject.clone(), report)
            .await
            .unwrap();
        self.client.flush().await.unwrap();
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    pub(crate) fn get<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock().unwrap())
    }

    /// Sends the answers that were held back.
    pub(crate) async fn answer_late(&self) {
        let late = std::mem::take(&mut self.state.lock().unwrap().late);
        assert!(!late.is_empty(), "nothing was held back");
        for (to, body) in late {
            self.client.publish(to, body).await.unwrap();
        }
    }
}

impl State {
    pub(crate) fn report(&self, auction: Option<AuctionId>) -> Bytes {
        to_bytes(&Advert {
            v: shared::VERSION,
            auction,
            incarnation: self.incarnation,
            seq: self.seq,
            clock_ms: self.clock_ms(),
            ttl: Span(self.ttl),
            recent: self.recent.clone(),
            leaving: false,
            cell: self.cell.clone(),
        })
    }

    fn clock_ms(&self) -> CellTime {
        CellTime::from_ms(1 + u64::try_from(self.since.elapsed().as_millis()).unwrap())
    }

    fn handle(&mut self, message: &Message, advert: &str) -> Option<(async_nats::Subject, Bytes)> {
        let body = &message.payload;
        match message.subject.rsplit('.').next()? {
            "discover" => {
                self.discovers_received += 1;
                Some((advert.into(), self.report(None)))
            }
            "bid" => {
                self.bids_received += 1;
                let asked: BidRequest = serde_json::from_slice(body).unwrap();
                let bid = self.bid(asked.auction);
                self.bids.then_some((self.answer_to(message)?, bid))
            }
            "state" => Some((message.reply.clone()?, self.report(None))),
            "instances" => Some((self.answer_to(message)?, self.instances())),
            "stop" | "start" if self.is_unreadable => {
                let to = self.answer_to(message).or_else(|| message.reply.clone());
                Some((to?, Bytes::from_static(b"{\"v\":1}")))
            }
            "stop" => Some((self.answer_to(message)?, self.stop(body))),
            _ => self.start(message),
        }
    }

    /// Returns the subject on which a broadcast is answered.
    fn answer_to(&self, message: &Message) -> Option<async_nats::Subject> {
        let to = AnswerTo::of(message).unwrap()?;
        let subjects = Subjects::new("vendue").unwrap();
        let speaks_as = self.speaks_as.as_ref().unwrap_or(&self.cell.cell);
        Some(subjects.cell_answer(speaks_as, &to).into())
    }

    fn bid(&self, auction: AuctionId) -> Bytes {
        if self.seq > 1 {
            return self.report(Some(auction));
        }
        to_bytes(&Bid {
            v: shared::VERSION,
            auction,
            cell: self.cell.cell.clone(),
            incarnation: self.incarnation,
            seq: self.seq,
            clock_ms: self.clock_ms(),
            unchanged: true,
        })
    }

    fn start(&mut self, message: &Message) -> Option<(async_nats::Subject, Bytes)> {
        let start: CellStart = serde_json::from_slice(&message.payload).unwrap();
        self.starts_received.push(start.clone());
        let mut accepted = Vec::new();
        let mut refused = Vec::new();
        for work in start.work {
            let refusal = match &self.starts {
                Starts::Refuse(reason) => Some(reason.clone()),
                _ => self.take(&work),
            };
            match refusal {
                None => accepted.push(work.instance),
                Some(reason) => refused.push(Refusal {
                    instance: work.instance,
                    reason,
                    needs: None,
                    has: None,
                }),
            }
        }
        let answer = to_bytes(&Acceptance {
            v: shared::VERSION,
            cell: self.cell.cell.clone(),
            incarnation: self.incarnation,
            seq: self.seq,
            available: self.cell.available.clone(),
            apps: self.cell.counts.apps.clone(),
            accepted,
            refused,
        });
        let reply = message.reply.clone()?;
        if self.starts == Starts::AnswerLate {
            self.late.push((reply, answer));
            return None;
        }
        Some((reply, answer))
    }

    /// Accepts the instance, or returns the reason for refusing it.
    fn take(&mut self, work: &Work) -> Option<String> {
        if self.held.iter().any(|held| held.instance == work.instance) {
            return None;
        }
        let request = Request::new(&work.app, work.memory_mb, work.disk_mb);
        if !self.cell.available.fits(&request) {
            return Some("insufficient resources: memory".into());
        }
        self.cell.debit(&request, None);
        self.seq += 1;
        self.recent.push(work.instance);
        if self.recent.len() > 64 {
            self.recent.remove(0);
        }
        self.held.push(work.clone());
        None
    }

    fn instances(&self) -> Bytes {
        let instance = |work: &Work| {
            json!({
                "instance": work.instance, "app": work.app, "index": work.index, "state": "running",
                "age_ms": 1, "memory_mb": work.memory_mb, "disk_mb": work.disk_mb,
            })
        };
        to_bytes(&json!({
            "v": 1, "cell": self.cell.cell, "zone": "default", "incarnation": self.incarnation,
            "instances": self.held.iter().map(instance).collect::<Vec<_>>(),
        }))
    }

    fn stop(&mut self, body: &[u8]) -> Bytes {
        let stop: shared::wire::Stop = serde_json::from_slice(body).unwrap();
        let (gone, kept): (Vec<Work>, Vec<Work>) =
            self.held.drain(..).partition(|work| work.app == stop.app);
        self.held = kept;
        let stopped = gone
            .iter()
            .map(|w| json!({ "instance": w.instance, "index": w.index }));
        to_bytes(&json!({
            "v": 1, "cell": self.cell.cell, "stopped": stopped.collect::<Vec<_>>(),
        }))
    }
}
