//! Resident memory of the auctioneer after the load, of a rep without work, and of a supervisor.

use std::time::Duration;

use anyhow::Context;
use async_nats::client::Request;
use placement::{Kind, Run};
use serde_json::json;
use shared::proc;
use shared::wire::{Acceptance, CellStart, Envelope, Work, to_bytes};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::{part::Part, report::Memory};
use crate::{cluster::Cluster, context::Global, process_usage};

const CELL: &str = "bench-footprint";

/// Starts a rep as a separate process, measures it, and then the supervisor of an instance there.
pub(super) async fn measure(global: &Global, auctioneer: u32) -> anyhow::Result<Memory> {
    let url = global.url().context("no server")?;
    // its own cluster, so that nothing is placed there
    let prefix = "bench-footprint".to_owned();
    let rep = Part::start(
        &url,
        &[
            "rep".into(),
            format!("--cell={CELL}"),
            "--memory=64".into(),
            format!("--prefix={prefix}"),
        ],
    )?;
    let cluster = Cluster::connect(&Global {
        prefix,
        ..global.clone()
    })
    .await?;
    let envelope = state(&cluster).await?;
    let rep_kib = process_usage::resident_kib(rep.pid)?;
    let taken: Acceptance = request(&cluster, "start", &work(&envelope)).await?;
    anyhow::ensure!(
        taken.refused.is_empty(),
        "the rep refused: {:?}",
        taken.refused
    );
    let supervisor = child(rep.pid).await?;
    Ok(Memory {
        auctioneer_kib: process_usage::resident_kib(auctioneer)?,
        rep_kib,
        supervisor_kib: process_usage::resident_kib(supervisor)?,
    })
}

/// Asks until the rep answers.
async fn state(cluster: &Cluster) -> anyhow::Result<Envelope> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match request(cluster, "state", &json!({})).await {
            Ok(envelope) => return Ok(envelope),
            Err(e) if Instant::now() > end => return Err(e.context("the rep does not answer")),
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

async fn request<T: serde::de::DeserializeOwned>(
    cluster: &Cluster,
    what: &str,
    body: &impl serde::Serialize,
) -> anyhow::Result<T> {
    let subject = cluster.subjects.cell(CELL, what);
    let request = Request::new().payload(to_bytes(body));
    let answer = cluster.bus.client.send_request(subject, request).await?;
    Ok(serde_json::from_slice(&answer.payload)?)
}

fn work(envelope: &Envelope) -> CellStart {
    let run = Run {
        command: vec!["sleep".into(), "100".into()],
        ..Run::default()
    };
    CellStart {
        v: shared::VERSION,
        auction: Uuid::new_v4().into(),
        incarnation: envelope.incarnation,
        expires_ms: shared::clock::CellTime::from_ms(u64::MAX),
        work: vec![Work {
            kind: Kind::Task,
            run: Some(run.into()),
            ..Work::new(Uuid::new_v4().into(), "sleep", 8, 0)
        }],
    }
}

/// Returns the rep's child once that has a child of its own: then it is set up.
async fn child(rep: u32) -> anyhow::Result<u32> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let mut children = proc::children(rep).into_iter();
        if let Some(child) = children.find(|c| !proc::children(*c).is_empty()) {
            return Ok(child);
        }
        anyhow::ensure!(Instant::now() < end, "the rep started no supervisor");
        sleep(Duration::from_millis(20)).await;
    }
}
