//! Faults caused on purpose: on a real server, with separate processes.
//!
//! Each test's name says what must survive. Times are upper bounds, several times as long as measured; the measured
//! times are printed.

#![allow(clippy::unwrap_used)] // a test may panic

mod chaos;
mod once;
mod parts;
mod tasks;

use std::time::{Duration, Instant};

use parts::{Observer, Part, TTL, is_alive, pids, shown};
use rustix::process::Signal;
use shared::wire::{InstanceState, Outcome, kind};
use testkit::{Link, NatsServer, eventually};

async fn cluster(names: &[&str], policy: &str) -> (NatsServer, Observer, Vec<Part>, Part) {
    let server = NatsServer::start().await;
    let observer = Observer::of(&server).await;
    let reps = names
        .iter()
        .map(|n| Part::simulated(&server.url(), n))
        .collect();
    let auctioneer = Part::auctioneer(&server.url(), policy);
    observer.cells(names).await;
    (server, observer, reps, auctioneer)
}

#[tokio::test]
async fn an_auctioneer_that_was_killed_comes_back_warm() {
    let (server, observer, _reps, auctioneer) = cluster(&["z1-a", "z1-b", "z2-a"], "diego").await;
    observer.placed("r-1", "web", 3).await;
    auctioneer.kill();
    assert!(observer.pool().await.is_err(), "nobody is left to answer");
    let killed = Instant::now();
    let _auctioneer = Part::auctioneer(&server.url(), "diego");
    let first = eventually("an answer", async || observer.start("r-2", "api", 3).await).await;
    let took = killed.elapsed();
    println!("served again after {took:?}");
    // without prior knowledge, it would not know the cells
    assert_eq!(first.outcome, Outcome::Placed, "{}", shown(&first));
    assert_eq!(observer.pool().await.unwrap().len(), 3);
    assert!(
        took < Duration::from_millis(4500),
        "three times the promised 1.5 s: {took:?}"
    );
}

#[tokio::test]
async fn instances_survive_twenty_seconds_without_a_server() {
    let mut server = NatsServer::start().await;
    let observer = Observer::of(&server).await;
    let names = ["z1-a", "z2-a"];
    let _reps: Vec<_> = names
        .iter()
        .map(|n| Part::rep(&server.url(), n, &[]))
        .collect();
    let _auctioneer = Part::auctioneer(&server.url(), "diego");
    observer.cells(&names).await;
    observer.placed("r-1", "web", 4).await;
    let running = |i: &shared::wire::Instance| i.state == InstanceState::Running;
    let before = eventually("four processes", async || {
        let found = observer.instances(2).await;
        (found.len() == 4 && found.values().all(running)).then_some(found)
    })
    .await;
    let mut events = observer.events().await;
    server.stop();
    tokio::time::sleep(Duration::from_secs(20)).await; // the fault itself, not a wait
    let back = Instant::now();
    server.restart().await;
    let reply = observer.placed("r-2", "api", 2).await;
    let took = back.elapsed();
    println!("placed again {took:?} after the server's return");
    assert_eq!(reply.outcome, Outcome::Placed);
    assert!(
        took < Duration::from_secs(6),
        "three times the promised 2 s: {took:?}"
    );
    let after = observer.instances(2).await;
    for (id, was) in &before {
        let is = after
            .get(id)
            .unwrap_or_else(|| panic!("{id} is lost: {after:?}"));
        assert_eq!(
            (is.pid, is.restarts, is.state),
            (was.pid, 0, InstanceState::Running)
        );
    }
    assert_eq!(after.len(), 6, "something was started twice: {after:?}");
    // several ttls of traffic after the return: anything that was going to be declared lost has been
    let last = observer.placed("r-3", "last", 1).await;
    assert_eq!(last.outcome, Outcome::Placed);
    events.wait(kind::PLACED, "last").await;
    assert_eq!(events.count(kind::CELL_LOST), 0);
}

#[tokio::test]
async fn a_cell_that_is_killed_leaves_the_pool_within_its_ttl_and_no_process() {
    let server = NatsServer::start().await;
    let observer = Observer::of(&server).await;
    let dying = Part::rep(&server.url(), "z1-a", &[]);
    let _other = Part::simulated(&server.url(), "z2-a");
    let _auctioneer = Part::auctioneer(&server.url(), "diego");
    observer.cells(&["z1-a", "z2-a"]).await;
    observer.placed("r-1", "web", 4).await;
    let there = eventually("processes", async || {
        let mut found = observer.instances(2).await;
        found.retain(|_, i| i.pid.is_some());
        (found.len() == 2).then_some(found)
    })
    .await;
    let mut events = observer.events().await;
    let killed = Instant::now();
    dying.kill();
    eventually("its processes to end", async || {
        !pids(&there).into_iter().any(is_alive)
    })
    .await;
    let lost = events.wait(kind::CELL_LOST, "z1-a").await;
    println!(
        "lost after {:?} (ttl {TTL:?}): {:?}",
        killed.elapsed(),
        lost.reason
    );
    observer.cells(&["z2-a"]).await;
}

#[tokio::test]
async fn a_cell_that_leaves_in_order_is_gone_at_once() {
    let server = NatsServer::start().await;
    let observer = Observer::of(&server).await;
    // its ttl alone would keep it for an hour
    let more = ["--ttl", "1h"];
    let url = server.url();
    let mut leaving = Part::rep(&url, "z1-a", &more);
    let _other = Part::simulated(&url, "z2-a");
    let _auctioneer = Part::auctioneer(&url, "diego");
    observer.cells(&["z1-a", "z2-a"]).await;
    observer.placed("r-1", "web", 2).await;
    let there = eventually("a process", async || {
        let mut found = observer.instances(2).await;
        found.retain(|_, i| i.pid.is_some());
        (found.len() == 1).then_some(found)
    })
    .await;
    leaving.signal(Signal::TERM);
    observer.cells(&["z2-a"]).await;
    assert!(leaving.ended().await);
    assert!(!pids(&there).into_iter().any(is_alive));
}

#[tokio::test]
async fn a_cell_that_is_cut_off_runs_nothing_late_and_comes_back() {
    let server = NatsServer::start().await;
    let observer = Observer::of(&server).await;
    let link = Link::to(server.port()).await;
    let _cut = Part::rep(&link.url(), "z1-a", &[]);
    let _auctioneer = Part::auctioneer(&server.url(), "dea");
    observer.cells(&["z1-a"]).await;
    let mut events = observer.events().await;
    link.block();
    // it is still in the pool, so the start is sent into the broken link
    let reply = observer.start("r-1", "late", 1).await.unwrap();
    assert_eq!(reply.outcome, Outcome::Unknown, "{}", shown(&reply));
    events.wait(kind::CELL_LOST, "z1-a").await;
    observer.cells(&[]).await;
    // longer than the five seconds for which a start is valid; the fault itself, not a wait
    tokio::time::sleep(Duration::from_secs(4)).await;
    link.unblock();
    observer.cells(&["z1-a"]).await;
    events.wait(kind::CELL_JOINED, "z1-a").await;
    let reply = observer.placed("r-2", "again", 1).await;
    assert_eq!(reply.outcome, Outcome::Placed);
    let apps: Vec<_> = observer
        .instances(1)
        .await
        .into_values()
        .map(|i| i.app)
        .collect();
    assert_eq!(apps, ["again"], "the late start was carried out");
}

#[tokio::test]
async fn a_disconnected_auctioneer_keeps_all_cells() {
    let server = NatsServer::start().await;
    let observer = Observer::of(&server).await;
    let link = Link::to(server.port()).await;
    let names = ["z1-a", "z2-a"];
    let _reps: Vec<_> = names
        .iter()
        .map(|n| Part::simulated(&server.url(), n))
        .collect();
    let _auctioneer = Part::auctioneer(&link.url(), "diego");
    observer.cells(&names).await;
    let mut events = observer.events().await;
    link.block();
    tokio::time::sleep(TTL * 2).await; // the fault itself, not a wait
    link.unblock();
    let reply = eventually("an answer", async || observer.start("r-1", "web", 2).await).await;
    assert_eq!(reply.outcome, Outcome::Placed, "{}", shown(&reply));
    events.wait(kind::PLACED, "web").await;
    assert_eq!(events.count(kind::CELL_LOST), 0);
}

#[tokio::test]
async fn a_frozen_cell_delays_one_batch() {
    let (_server, observer, reps, _auctioneer) = cluster(&["z1-a", "z1-b", "z2-a"], "diego").await;
    reps[0].signal(Signal::STOP);
    let first = observer.start("r-1", "one", 2).await.unwrap();
    assert_eq!(first.outcome, Outcome::Placed, "{}", shown(&first));
    // it is not waited for again; the auctioneer says so itself, while timing would prove nothing
    let silent = |pool: std::collections::BTreeMap<String, bool>| pool.get("z1-a").copied();
    assert_eq!(silent(observer.pool().await.unwrap()), Some(true));
    let second = observer.start("r-2", "two", 2).await.unwrap();
    assert_eq!(second.outcome, Outcome::Placed, "{}", shown(&second));
    reps[0].signal(Signal::CONT);
    eventually("it to be asked again", async || {
        let pool = observer.pool().await?;
        if silent(pool.clone()) == Some(false) {
            Ok(())
        } else {
            Err(format!("{pool:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_repeated_to_another_auctioneer_starts_nothing_twice() {
    let (server, observer, _reps, _first) = cluster(&["z1-a", "z1-b", "z2-a"], "diego").await;
    let _second = Part::auctioneer(&server.url(), "diego");
    let ping = format!("$SRV.PING.{}-auctioneer", observer.subjects.prefix());
    eventually("two auctioneers", async || {
        let mut count = 0;
        let asked = shared::ask::gather(
            &observer.client,
            ping.clone(),
            "".into(),
            Duration::from_secs(1),
            None,
            |_| {
                count += 1;
                count == 2
            },
        );
        asked.await.map_err(|e| e.to_string())?;
        if count == 2 {
            Ok(())
        } else {
            Err(format!("{count} auctioneers"))
        }
    })
    .await;
    let mut replies = Vec::new();
    // one of two answers each time, at random: the odds that all forty come from the same one are 2^-39
    for _ in 0..40 {
        replies.push(observer.start("r-1", "web", 3).await.unwrap());
    }
    let settled = observer.start("r-1", "web", 3).await.unwrap();
    for reply in &replies {
        let cells = |r: &shared::wire::StartReply| {
            r.instances
                .iter()
                .filter_map(|i| i.cell.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(reply.outcome, Outcome::Placed, "{}", shown(reply));
        assert_eq!(cells(reply), cells(&settled), "{}", shown(reply));
    }
    assert_eq!(observer.instances(3).await.len(), 3);
}
