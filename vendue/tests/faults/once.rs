//! One id runs once, whichever auctioneer gets it, and whatever is restarted, frozen or cut off.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;
use shared::wire::{Outcome, StartReply, to_bytes};
use testkit::{Link, NatsServer, eventually};

use crate::parts::{Observer, Part, shown};

/// Cells with room for everything, each as a process.
const CELLS: [&str; 3] = ["z1-a", "z1-b", "z2-a"];

struct Once {
    server: NatsServer,
    observer: Observer,
    reps: Vec<Part>,
}

impl Once {
    async fn start() -> Self {
        let server = NatsServer::start().await;
        let observer = Observer::of(&server).await;
        let more = ["--simulated", "--ttl", "1m"];
        let reps = CELLS.map(|name| Part::rep(&server.url(), name, &more));
        Self {
            server,
            observer,
            reps: reps.into(),
        }
    }

    /// Starts a cluster with two auctioneers that accept requests.
    async fn with_two_auctioneers() -> (Self, Part, Part) {
        let once = Self::start().await;
        let url = once.server.url();
        let (first, second) = (once.auctioneer(&url).await, once.auctioneer(&url).await);
        (once, first, second)
    }

    /// Starts one more auctioneer, and waits until it accepts requests.
    async fn auctioneer(&self, url: &str) -> Part {
        let before = self.auctioneers().await;
        let part = Part::auctioneer(url, "dea");
        eventually("one more auctioneer", async || {
            (self.auctioneers().await > before).then_some(())
        })
        .await;
        part
    }

    /// Returns the number of auctioneers that accept requests.
    async fn auctioneers(&self) -> usize {
        let mut count = 0;
        let subject = format!("$SRV.INFO.{}-auctioneer", self.observer.subjects.prefix());
        let heard = |message: async_nats::Message| {
            let info: serde_json::Value = serde_json::from_slice(&message.payload).unwrap();
            let endpoints = info["endpoints"].as_array().map_or(0, Vec::len);
            count += usize::from(endpoints > 0);
            false
        };
        let wait = Duration::from_millis(300);
        shared::ask::gather(&self.observer.client, subject, "".into(), wait, None, heard)
            .await
            .unwrap();
        count
    }

    /// Asks until there is an answer, as a stopped auctioneer does not answer what it received.
    async fn ask(&self, id: &str) -> StartReply {
        eventually("an answer", async || {
            self.observer.start(id, "web", 1).await
        })
        .await
    }

    /// Returns the cells on which the app runs.
    async fn runs(&self) -> Vec<String> {
        self.observer.holders(CELLS.len(), "web").await
    }

    /// Waits until it runs once, where all auctioneers say. Two of them may both have started it; until one instance is
    /// left, an answer may name the cell where it is killed.
    async fn settles(&self, id: &str) {
        eventually("it to run once, where all say", async || {
            let replies = futures_util::future::join_all((0..6).map(|_| self.ask(id))).await;
            let runs = self.runs().await;
            let mut cells = replies.iter().flat_map(|reply| &reply.instances[0].cell);
            (runs.len() == 1 && cells.all(|cell| **cell == *runs[0])).then_some(())
        })
        .await;
    }

    /// Checks that it runs once, and that the auctioneers say where.
    async fn runs_once(&self, id: &str) {
        let replies: Vec<StartReply> =
            futures_util::future::join_all((0..6).map(|_| self.ask(id))).await;
        let runs = self.runs().await;
        assert_eq!(runs.len(), 1, "{runs:?}");
        for reply in &replies {
            assert_eq!(reply.outcome, Outcome::Placed, "{}", shown(reply));
            assert_eq!(reply.instances[0].cell.as_deref(), Some(runs[0].as_str()));
        }
    }
}

#[tokio::test]
async fn an_auctioneer_that_was_restarted_asks_the_cells() {
    let (once, _first, mut second) = Once::with_two_auctioneers().await;
    once.ask("r").await;
    second.signal(Signal::TERM);
    assert!(second.ended().await);
    let _second = once.auctioneer(&once.server.url()).await;
    once.runs_once("r").await;
}

#[tokio::test]
async fn an_auctioneer_that_was_cut_off_asks_the_cells() {
    let once = Once::start().await;
    let link = Link::to(once.server.port()).await;
    let _first = once.auctioneer(&once.server.url()).await;
    let _second = once.auctioneer(&link.url()).await;
    link.block();
    // the auctioneer that is not cut off gets one of these
    eventually("an answer", async || {
        let copies = (0..8).map(|_| Box::pin(once.observer.start("r", "web", 1)));
        futures_util::future::select_ok(copies).await.map(drop)
    })
    .await;
    link.unblock();
    once.runs_once("r").await;
}

/// Requests in a frozen auctioneer's socket reach it before the outcomes that are there as well.
#[tokio::test]
async fn an_auctioneer_that_was_frozen_starts_nothing_twice() {
    let (once, _first, second) = Once::with_two_auctioneers().await;
    for id in ["r1", "r2", "r3"] {
        second.signal(Signal::STOP);
        let copies =
            futures_util::future::join_all((0..6).map(|_| once.observer.start(id, "web", 1)));
        let frozen = async {
            tokio::time::sleep(Duration::from_secs(3)).await; // the fault itself, not a wait
            second.signal(Signal::CONT);
            // if the two disagree, they settle it within 2 s
            let end = Instant::now() + Duration::from_secs(2);
            while Instant::now() < end {
                once.runs().await;
            }
        };
        let (_, ()) = tokio::join!(copies, frozen);
        once.settles(id).await;
        once.observer.stop("web").await;
        eventually("nothing to run", async || {
            once.runs().await.is_empty().then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn what_a_frozen_cell_may_run_is_unknown_and_not_started_elsewhere() {
    let once = Once::start().await;
    let url = once.server.url();
    let auctioneer = once.auctioneer(&url).await;
    let cell = once.ask("r").await.instances[0].cell.clone().unwrap();
    auctioneer.kill();
    let _auctioneer = once.auctioneer(&url).await;
    let frozen = &once.reps[CELLS.iter().position(|name| **name == *cell).unwrap()];
    frozen.signal(Signal::STOP);
    let reply = once.ask("r").await;
    assert_eq!(reply.outcome, Outcome::Unknown, "{}", shown(&reply));
    assert_eq!(reply.instances[0].cell, Some(cell));
    frozen.signal(Signal::CONT);
    eventually("it to be found", async || {
        let reply = once.observer.start("r", "web", 1).await?;
        match reply.outcome {
            Outcome::Placed => Ok(()),
            _ => Err(shown(&reply).to_string()),
        }
    })
    .await;
    once.runs_once("r").await;
}

#[tokio::test]
async fn a_flood_of_announcements_pushes_no_outcome_out() {
    let once = Once::start().await;
    let url = once.server.url();
    let _auctioneer = once.auctioneer(&url).await;
    once.ask("r").await;
    let subject = once.observer.subjects.event("asked", "x", "a9");
    for part in 0..110 {
        let ids: Vec<String> = (0..1_000).map(|n| format!("x{part}-{n}")).collect();
        let event = json!({"v": 1, "kind": "asked", "by": "a9", "app": "x", "requests": ids,
            "auction": "0190b2c3-0000-7000-8000-000000000001"});
        let publish = once
            .observer
            .client
            .publish(subject.clone(), to_bytes(&event));
        publish.await.unwrap();
    }
    once.observer.client.flush().await.unwrap();
    once.runs_once("r").await;
}

/// Many copies at the same moment, at two auctioneers.
#[tokio::test]
async fn copies_at_two_auctioneers_in_one_moment_end_as_one() {
    let (once, _first, _second) = Once::with_two_auctioneers().await;
    for n in 0..10 {
        let id = format!("r{n}");
        let copies = (0..8).map(|_| once.observer.start(&id, "web", 1));
        futures_util::future::join_all(copies).await;
        once.settles(&id).await;
        once.observer.stop("web").await;
        eventually("nothing to run", async || {
            once.runs().await.is_empty().then_some(())
        })
        .await;
    }
}
