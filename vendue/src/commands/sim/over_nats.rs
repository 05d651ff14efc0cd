//! `sim --over nats`: the real roles with simulated executors on a real nats-server, in real time. One more connection
//! hears what crosses the server, and the figures follow from that.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use anyhow::{Context, bail};
use async_nats::{Client, Subscriber};
use futures_util::StreamExt;
use nats_server::{Options, Server};
use placement::{Attributes, Cell, Policy};
use rep::{ExecutorKind, SimulatedConfig};
use shared::{AuctionId, clock::CellTime};
use shared::{
    Subjects,
    nats::{Bus, Echo, NatsOptions},
    shutdown::CancellationToken,
    wire::{Acceptance, CellStart, Page, PoolAnswer, to_bytes},
};
use simulator::{
    Observer, RunSettings,
    demand::{Demand, DemandAction},
    outcome::SimRun,
    scenario::Scenario,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::progress::Bar;
use crate::{
    cluster::{connect, nats_options, short_name},
    commands::instances,
    context::Global,
    output::note,
};

/// Maximum number of cells: each is a whole rep with its subscriptions.
const MAX_CELLS: usize = 2_000;
/// Number of cells that share a connection.
const CELLS_A_CONNECTION: usize = 50;
/// Maximum number of instances in one start of those that run before the first request.
const WORK_A_START: usize = 500;
/// How long the roles have to get to know each other.
const WARM_UP: Duration = Duration::from_secs(60);
/// A run without a duration ends at the latest this long after its last demand, …
const LONGEST: Duration = Duration::from_secs(60);
/// … and this long after its last outcome.
const SETTLE: Duration = Duration::from_secs(1);
/// The time within which auctioneers hear of a cell's change.
const HEARD: Duration = Duration::from_millis(500);
/// The inbox for answers to the client: the last tokens of their subjects are `reply.N`.
const REPLIES: &str = "_INBOX.sim.reply";

/// Rejects what does not work in real time.
pub(super) fn check(scenario: &Scenario, demands: &[Demand]) -> Result<(), String> {
    if !scenario.faults.is_empty() {
        return Err("faults: --over nats plays none; only in-process".into());
    }
    if scenario.restart_lost_after_ms.is_some() {
        return Err(
            "restart_lost_after: --over nats has no health manager; only in-process".into(),
        );
    }
    if scenario.single {
        return Err("single: --over nats runs no manager to grant it; only in-process".into());
    }
    if scenario.managers > 0 {
        return Err("managers: --over nats runs none; only in-process".into());
    }
    if scenario.base.cells.len() > MAX_CELLS {
        let cells = scenario.base.cells.len();
        return Err(format!(
            "{cells} cells; --over nats takes at most {MAX_CELLS}"
        ));
    }
    let lives = |demand: &Demand| {
        matches!(
            &demand.action,
            DemandAction::Start {
                lifetime_ms: Some(_),
                ..
            }
        )
    };
    if demands.iter().any(lives) {
        return Err(
            "a lifetime of single instances: --over nats cannot end them; only in-process".into(),
        );
    }
    Ok(())
}

/// Runs one policy. Ends early if `end` is set: then the second value is true.
pub(super) async fn play(
    global: &Global,
    scenario: &Scenario,
    label: &str,
    policy: &Policy,
    demands: &[Demand],
    settings: RunSettings,
    end: &AtomicBool,
) -> anyhow::Result<(SimRun, bool)> {
    let mut server = Server::start(Options::default()).await?;
    let mut global = global.clone();
    (global.nats, global.creds, global.context) = (Some(server.url()), None, None);
    let shutdown = CancellationToken::new();
    let mut roles = JoinSet::new();
    let cluster = Cluster::start(
        &global,
        scenario,
        policy,
        settings.seed,
        &mut roles,
        &shutdown,
    );
    let played = async {
        let cluster = cluster.await?;
        let observer = Observer::new(
            scenario,
            label,
            policy,
            demands,
            settings,
            cluster.subjects.prefix(),
        );
        cluster.hold(&observer).await?;
        cluster.watch(scenario, label, observer, end).await
    };
    let played = Box::pin(played).await;
    shutdown.cancel();
    while let Some(ended) = roles.join_next().await {
        if let Ok(Err(error)) = ended {
            note(format_args!("a role ended: {error:#}"));
        }
    }
    server.stop().await;
    played
}

struct Cluster {
    client: Client,
    subjects: Subjects,
    cells: usize,
    auctioneers: usize,
}

impl Cluster {
    async fn start(
        global: &Global,
        scenario: &Scenario,
        policy: &Policy,
        seed: u64,
        roles: &mut JoinSet<anyhow::Result<()>>,
        shutdown: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let subjects = Subjects::new(global.prefix.as_str())?;
        let bus = |what: &str, echo: Echo| {
            let options = NatsOptions {
                echo,
                ..nats_options(global, &short_name(what), true)
            };
            async move { connect(&options).await }
        };
        for n in 0..scenario.auctioneers {
            let config = auctioneer::AuctioneerConfig {
                single: false,
                limits: auctioneer::Limits::default(),
                name: format!("auctioneer-{n}"),
                policy: policy.clone(),
            };
            let (bus, subjects, end) = (
                bus("sim-auctioneer", Echo::ToItself).await?,
                subjects.clone(),
                shutdown.clone(),
            );
            roles.spawn(async move { Ok(auctioneer::run(config, bus, subjects, end).await?) });
        }
        for cells in scenario.base.cells.chunks(CELLS_A_CONNECTION) {
            let shared: Bus = bus("sim-cells", Echo::None).await?;
            for cell in cells {
                let config = config(cell, scenario, seed);
                let (bus, subjects, end) = (shared.clone(), subjects.clone(), shutdown.clone());
                roles.spawn(async move {
                    rep::run(config, bus, subjects, end).await?;
                    Ok(())
                });
            }
        }
        let cluster = Self {
            client: bus("sim", Echo::All).await?.client,
            subjects,
            cells: scenario.base.cells.len(),
            auctioneers: scenario.auctioneers as usize,
        };
        let (client, subjects) = (&cluster.client, &cluster.subjects);
        let (cells, auctioneers) = (cluster.cells, cluster.auctioneers);
        instances::until_known(client, subjects, cells, auctioneers, WARM_UP).await?;
        Ok(cluster)
    }

    async fn page(&self, offset: usize) -> anyhow::Result<PoolAnswer> {
        let page = Page {
            v: shared::VERSION,
            offset,
            limit: None,
        };
        let answer = self
            .client
            .request(self.subjects.pool(), to_bytes(&page))
            .await?;
        Ok(serde_json::from_slice(&answer.payload)?)
    }

    /// Starts the instances that run before the first request.
    async fn hold(&self, observer: &Observer<'_>) -> anyhow::Result<()> {
        if observer.running().is_empty() {
            return Ok(());
        }
        let mut incarnations = std::collections::BTreeMap::new();
        let mut offset = Some(0);
        while let Some(at) = offset {
            let page = self.page(at).await?;
            incarnations.extend(page.cells.into_iter().map(|c| (c.cell.cell, c.incarnation)));
            offset = page.next;
        }
        for (cell, works) in observer.running() {
            let incarnation = *incarnations.get(cell).context("a cell that nobody knows")?;
            for work in works.chunks(WORK_A_START) {
                let start = CellStart {
                    v: shared::VERSION,
                    auction: AuctionId::nil(),
                    incarnation,
                    expires_ms: CellTime::from_ms(u64::MAX),
                    work: work.to_vec(),
                };
                let subject = self.subjects.cell(cell, "start");
                let answer = self.client.request(subject, to_bytes(&start)).await?;
                let answer: Acceptance = serde_json::from_slice(&answer.payload)?;
                if let Some(refusal) = answer.refused.first() {
                    bail!(
                        "{cell} does not take what runs there already: {}",
                        refusal.reason
                    );
                }
            }
        }
        // cells advertise a change within 100 ms
        sleep(HEARD).await;
        Ok(())
    }

    /// Makes the demands, and passes what crosses the server to the observer.
    async fn watch(
        &self,
        scenario: &Scenario,
        label: &str,
        mut observer: Observer<'_>,
        end: &AtomicBool,
    ) -> anyhow::Result<(SimRun, bool)> {
        let mut heard: Subscriber = self.client.subscribe(">").await?;
        self.client.flush().await?;
        let begin = Instant::now();
        let lasts = scenario.duration_ms.map(Duration::from_millis);
        let at_us = || u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut bar = Bar::new(label);
        let (mut replies, mut done, mut last) = (0_u64, None, begin);
        loop {
            let next = observer
                .next_demand_us()
                .map(|us| begin + Duration::from_micros(us));
            done = if observer.is_done() {
                done.or(Some(Instant::now()))
            } else {
                None
            };
            let over = match (lasts, done) {
                (Some(lasts), _) => begin + lasts,
                (None, Some(done)) => done + SETTLE,
                (None, None) => next.unwrap_or(last) + LONGEST,
            };
            if end.load(Ordering::Relaxed) || Instant::now() >= over {
                bar.clear();
                let interrupted = end.load(Ordering::Relaxed);
                return Ok((observer.finish(at_us()), interrupted));
            }
            // wake at least now and then, to check whether to end
            let wake = over
                .min(next.unwrap_or(over))
                .min(Instant::now() + Duration::from_millis(100));
            tokio::select! {
                biased;
                message = heard.next() => {
                    let message = message.context("the connection was closed")?;
                    observer.message(at_us(), &message.subject, &message.payload);
                }
                () = sleep_until(wake) => {}
            }
            if next.is_some_and(|next| Instant::now() >= next) {
                last = Instant::now();
                for message in observer.demand(at_us()) {
                    replies += 1;
                    let subject = match message.subject {
                        "stop" => self.subjects.stop(),
                        _ => self.subjects.start(),
                    };
                    let reply = format!("{REPLIES}.{replies}");
                    self.client
                        .publish_with_reply(subject, reply, message.body)
                        .await?;
                }
            }
            bar.show(observer.progress());
        }
    }
}

/// Returns the configuration of a rep for this cell.
fn config(cell: &Cell, scenario: &Scenario, seed: u64) -> rep::RepConfig {
    let mut config =
        rep::RepConfig::new(cell.cell.as_str(), cell.zone.as_str(), cell.total.clone());
    config.index = cell.index;
    // the zone is a setting of its own at the top level
    config.attributes = Attributes {
        zone: Attributes::default().zone,
        ..(*cell.attributes).clone()
    };
    config.executor = ExecutorKind::Simulated(SimulatedConfig {
        start: scenario.start_takes,
        ..SimulatedConfig::default()
    });
    config.service = false;
    config.seed = seed;
    config
}
