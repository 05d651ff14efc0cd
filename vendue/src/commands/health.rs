//! `health`: whether a cluster, or one part of it, is there.

use std::time::Duration;

use anyhow::anyhow;
use bytes::Bytes;
use serde_json::{Value, json};
use shared::{ask::gather, permissions};

use super::{instances, one_cell};
use crate::{
    cluster::Cluster,
    context::{Exit, Format, Global, Usage},
    output,
};

#[derive(Debug, clap::Args)]
pub(crate) struct HealthArgs {
    /// What must be there [default: an auctioneer and a cell]
    #[arg(long, value_enum)]
    role: Option<Role>,
    /// With --role rep: this cell [default: any]
    #[arg(long, env = "VENDUE_CELL")]
    cell: Option<String>,
    /// With --role auctioneer: the one of this name [default: any]
    #[arg(long, env = "VENDUE_AUCTIONEER")]
    name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Role {
    /// The NATS server answers us
    Nats,
    /// An auctioneer answers
    Auctioneer,
    /// The cell answers
    Rep,
}

const TIMEOUT: Duration = Duration::from_secs(2);

/// What was found; only what was looked for.
#[derive(Debug, Default, serde::Serialize)]
struct Health {
    /// The auctioneer that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    auctioneer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    /// How many cells the auctioneer knows, or answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    cells: Option<usize>,
    /// The cell that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    cell: Option<String>,
    /// The NATS server's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    nats: Option<String>,
}

impl std::fmt::Display for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            self.auctioneer
                .as_ref()
                .map(|name| format!("auctioneer {name}")),
            self.policy.as_ref().map(|name| format!("policy {name}")),
            self.cells.map(|cells| output::counted(cells, "cell")),
            self.cell.as_ref().map(|name| format!("cell {name}")),
            self.nats.as_ref().map(|version| format!("NATS {version}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

/// Exit code 0 when it is there, 1 when not.
pub(crate) async fn health(global: &Global, args: &HealthArgs) -> anyhow::Result<Exit> {
    let cluster = Cluster::connect(global).await?;
    let nats = || Some(cluster.bus.client.server_info().version);
    let found = match args.role {
        Some(Role::Nats) => Health {
            nats: nats(),
            ..Health::default()
        },
        Some(Role::Auctioneer) => match &args.name {
            Some(name) => auctioneer_named(&cluster, name).await?,
            None => auctioneer(&cluster).await?,
        },
        Some(Role::Rep) => rep(&cluster, args.cell.as_deref()).await?,
        None => {
            let mut found = auctioneer(&cluster).await?;
            if found.cells == Some(0) {
                return Err(anyhow!("an auctioneer answers, but it knows no cell"));
            }
            found.nats = nats();
            found
        }
    };
    match cluster.format {
        Format::Json => output::document(&found)?,
        Format::Table => output::say(format_args!("healthy: {found}"))?,
    }
    Ok(Exit::Ok)
}

async fn auctioneer(cluster: &Cluster) -> anyhow::Result<Health> {
    let pool = instances::pool(cluster, TIMEOUT).await?;
    Ok(Health {
        auctioneer: Some(pool.auctioneer),
        policy: Some(pool.policy),
        cells: Some(pool.total),
        ..Health::default()
    })
}

/// Requests go to any auctioneer: whether a certain one takes them, its service information says.
async fn auctioneer_named(cluster: &Cluster, name: &str) -> anyhow::Result<Health> {
    let service = cluster.subjects.service(permissions::Role::Auctioneer);
    let subject = format!("$SRV.INFO.{service}");
    let mut found = None;
    let take = |message: async_nats::Message| {
        let info: Value = serde_json::from_slice(&message.payload).unwrap_or_default();
        if info["metadata"]["name"] == name {
            found = Some(info);
        }
        found.is_some()
    };
    let client = &cluster.bus.client;
    gather(client, subject, Bytes::new(), TIMEOUT, None, take).await?;
    let info = found.ok_or_else(|| anyhow!("no auctioneer named {name} answers"))?;
    if info["endpoints"].as_array().is_none_or(Vec::is_empty) {
        return Err(anyhow!("{name} is there, but takes no requests yet"));
    }
    Ok(Health {
        auctioneer: Some(name.to_owned()),
        policy: info["metadata"]["policy"].as_str().map(Into::into),
        ..Health::default()
    })
}

async fn rep(cluster: &Cluster, cell: Option<&str>) -> anyhow::Result<Health> {
    let Some(cell) = cell else {
        let answers = instances::held(cluster, Some("none")).await?;
        return Ok(Health {
            cells: Some(answers.cells.len()),
            ..Health::default()
        });
    };
    placement::check_name("--cell", cell).map_err(Usage::invalid)?;
    let question = json!({"v": shared::VERSION});
    let state: Value = one_cell::ask(cluster, cell, "state", &question, TIMEOUT).await?;
    Ok(Health {
        cell: state["cell"].as_str().map(Into::into),
        ..Health::default()
    })
}
