//! `health`: whether a cluster, or one part of it, is there.

use std::time::Duration;

use anyhow::anyhow;
use bytes::Bytes;
use serde_json::{Value, json};
use shared::ask::gather;

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

/// Exit code 0 when it is there, 1 when not.
pub(crate) async fn health(global: &Global, args: &HealthArgs) -> anyhow::Result<Exit> {
    let cluster = Cluster::connect(global).await?;
    let found = match args.role {
        Some(Role::Nats) => json!({"nats": cluster.bus.client.server_info().version}),
        Some(Role::Auctioneer) => match &args.name {
            Some(name) => auctioneer_named(&cluster, name).await?,
            None => auctioneer(&cluster).await?,
        },
        Some(Role::Rep) => rep(&cluster, args.cell.as_deref()).await?,
        None => {
            let mut found = auctioneer(&cluster).await?;
            if found["cells"] == 0 {
                return Err(anyhow!("an auctioneer answers, but it knows no cell"));
            }
            found["nats"] = cluster.bus.client.server_info().version.into();
            found
        }
    };
    match cluster.format {
        Format::Json => output::json(&found)?,
        Format::Table => output::say(format_args!("healthy {found}"))?,
    }
    Ok(Exit::Ok)
}

async fn auctioneer(cluster: &Cluster) -> anyhow::Result<Value> {
    let pool = instances::pool(cluster, TIMEOUT).await?;
    Ok(json!({"auctioneer": pool.auctioneer, "policy": pool.policy, "cells": pool.total}))
}

/// Requests go to any auctioneer: whether a certain one takes them, its service information says.
async fn auctioneer_named(cluster: &Cluster, name: &str) -> anyhow::Result<Value> {
    // a service's name may hold no dots
    let prefix = cluster.subjects.prefix().replace('.', "-");
    let subject = format!("$SRV.INFO.{prefix}-auctioneer");
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
    Ok(json!({"auctioneer": name, "policy": info["metadata"]["policy"]}))
}

async fn rep(cluster: &Cluster, cell: Option<&str>) -> anyhow::Result<Value> {
    let Some(cell) = cell else {
        let answers = instances::held(cluster, Some("none")).await?;
        return Ok(json!({"cells": answers.cells}));
    };
    placement::check_name("--cell", cell).map_err(Usage::because)?;
    let question = json!({"v": shared::VERSION});
    let state: Value = one_cell::ask(cluster, cell, "state", &question, TIMEOUT).await?;
    Ok(json!({"cell": state["cell"], "seq": state["seq"]}))
}
