//! `health`: checks whether a cluster, or one part of it, is up.

use std::time::Duration;

use anyhow::anyhow;
use bytes::Bytes;
use serde_json::{Value, json};
use shared::{
    ask::gather,
    permissions,
    wire::{AppList, AppListed},
};

use super::{instances, one_cell};
use crate::{
    cluster::{Cluster, Peer},
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
    /// With --role auctioneer or manager: the one of this name [default: $VENDUE_AUCTIONEER or $VENDUE_MANAGER,
    /// else any]
    #[arg(long)]
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
    /// A manager answers, and knows the stored apps
    Manager,
}

const TIMEOUT: Duration = Duration::from_secs(2);

/// The results, limited to what was checked.
#[derive(Debug, Default, serde::Serialize)]
struct Health {
    /// The auctioneer that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    auctioneer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<String>,
    /// Number of cells that the auctioneer knows, or that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    cells: Option<usize>,
    /// The cell that was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    cell: Option<String>,
    /// The manager that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    manager: Option<String>,
    /// Number of stored apps.
    #[serde(skip_serializing_if = "Option::is_none")]
    apps: Option<usize>,
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
            self.manager.as_ref().map(|name| format!("manager {name}")),
            self.apps.map(|apps| output::counted(apps, "app")),
            self.nats.as_ref().map(|version| format!("NATS {version}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&parts.join(", "))
    }
}

impl HealthArgs {
    /// Returns the requested name, by default that of the program which this container runs.
    fn named(&self, variable: &str) -> Option<String> {
        let name = self.name.clone().or_else(|| std::env::var(variable).ok());
        name.filter(|name| !name.is_empty())
    }
}

/// Returns exit code 0 if it is up, 1 if not.
pub(crate) async fn health(global: &Global, args: &HealthArgs) -> anyhow::Result<Exit> {
    let cluster = Cluster::connect(global).await?;
    let nats = || Some(cluster.bus.client.server_info().version);
    let found = match args.role {
        Some(Role::Nats) => Health {
            nats: nats(),
            ..Health::default()
        },
        Some(Role::Auctioneer) => match args.named("VENDUE_AUCTIONEER") {
            Some(name) => auctioneer_named(&cluster, name).await?,
            None => auctioneer(&cluster).await?,
        },
        Some(Role::Manager) => match args.named("VENDUE_MANAGER") {
            Some(name) => manager_named(&cluster, name).await?,
            None => manager(&cluster).await?,
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

async fn auctioneer_named(cluster: &Cluster, name: String) -> anyhow::Result<Health> {
    let info = service(cluster, permissions::Role::Auctioneer, &name).await?;
    Ok(Health {
        auctioneer: Some(name),
        policy: info["metadata"]["policy"].as_str().map(Into::into),
        ..Health::default()
    })
}

/// Asks any manager. One that does not know the stored apps yet does not answer.
async fn manager(cluster: &Cluster) -> anyhow::Result<Health> {
    let question = AppList {
        limit: Some(1),
        ..AppList::default()
    };
    let subject = cluster.subjects.app_list();
    let listed: AppListed = cluster
        .ask(Peer::Manager, subject, &question, TIMEOUT)
        .await?;
    Ok(Health {
        manager: Some(listed.manager),
        apps: Some(listed.total),
        ..Health::default()
    })
}

async fn manager_named(cluster: &Cluster, name: String) -> anyhow::Result<Health> {
    service(cluster, permissions::Role::Manager, &name).await?;
    Ok(Health {
        manager: Some(name),
        ..Health::default()
    })
}

/// Returns the information of the service of this role and name. Requests go to any service of a role, so only this
/// tells whether a particular one accepts them.
async fn service(cluster: &Cluster, role: permissions::Role, name: &str) -> anyhow::Result<Value> {
    let subject = format!("$SRV.INFO.{}", cluster.subjects.service(role));
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
    let info = found.ok_or_else(|| anyhow!("no {role} named {name} answers"))?;
    if info["endpoints"].as_array().is_none_or(Vec::is_empty) {
        return Err(anyhow!("{name} is there, but takes no requests yet"));
    }
    Ok(info)
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
