//! `up`: runs a whole cluster in one process, with a private nats-server.

mod connections;
mod manager;

use std::{path::PathBuf, time::Duration};

use anyhow::anyhow;
use nats_server::{Options, Port, Server, USUAL_PORT};
use placement::{Policy, Resources};
use serde_json::json;
use shared::{
    Subjects,
    nats::{Echo, NatsOptions},
    shutdown::{self, CancellationToken},
};
use tokio::{task::JoinSet, time::timeout};

use super::{instances, rep_role, roles};
use crate::{
    auth::server_config,
    cluster::{Cluster, nats_options, short_name},
    context::{Exit, Format, Global, Usage},
    output::{self, counted, note},
};
use connections::{AUCTIONEER, Connections, Keys, OPERATOR};

#[derive(Debug, clap::Args)]
pub(crate) struct UpArgs {
    /// How many cells
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    cells: u32,
    /// In how many zones
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    zones: u32,
    /// Memory of each cell: MiB, or with a unit such as 512M or 2G
    #[arg(long, default_value = "1024", value_name = "SIZE", value_parser = shared::size::parse_mib)]
    cell_memory: i64,
    /// Disk of each cell: MiB, or with a unit
    #[arg(long, default_value = "4096", value_name = "SIZE", value_parser = shared::size::parse_mib)]
    cell_disk: i64,
    /// How many instances each cell takes
    #[arg(long, default_value_t = 64, value_name = "N")]
    cell_containers: i64,
    /// Thousandths of a core of each cell
    #[arg(long, default_value_t = 4000, value_name = "MILLIS")]
    cell_cpu: i64,
    /// A stack that every cell offers; may be repeated
    #[arg(long = "cell-stack", value_name = "STACK")]
    cell_stacks: Vec<String>,
    /// The auctioneer's policy: a preset's name or a file
    #[arg(long, default_value = roles::DEFAULT_POLICY, value_name = "NAME|FILE")]
    policy: String,
    /// The port of the private server, 0 = any [default: 4222 when free, else any]
    #[arg(long)]
    port: Option<u16>,
    /// Let everybody on this machine use the private server
    #[arg(long)]
    no_auth: bool,
    /// Keep the apps of `vendue app` in this directory, those of --secure apart from others [default: one
    /// that is removed at the end]
    #[arg(long, value_name = "DIR", conflicts_with = "no_manager")]
    data: Option<PathBuf>,
    /// Run no manager: `vendue app` does not work
    #[arg(long)]
    no_manager: bool,
    /// Give every program a key of its own and only the permissions of its role, as `vendue auth` does
    #[arg(long, conflicts_with = "no_auth")]
    secure: bool,
    /// The user that all instances run as; only root may name one [default: for root one for each
    /// instance]
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,
    /// How long an instance may take to end when asked
    #[arg(long, value_name = "TIME", default_value = "10s",
          value_parser = humantime::parse_duration)]
    grace: Duration,
    /// End when standard input does: for programs that start a cluster of their own
    #[arg(long, hide = true)]
    until_stdin_ends: bool,
}

/// How one of the roles ended.
type Ended = (String, anyhow::Result<()>);

/// Starts a cluster, says what to type, and takes it down when told to.
pub(crate) async fn up(global: &Global, args: &UpArgs) -> anyhow::Result<Exit> {
    let subjects = Subjects::new(global.prefix.as_str()).map_err(Usage::because)?;
    let cells = args.configs();
    let policy = super::policy_file::load_to_run(&args.policy)?;
    let shutdown = shutdown::on_signals()?;
    let (connections, mut server, _data) = prepare(global, args, &cells).await?;
    if args.until_stdin_ends {
        tokio::spawn(end_with_stdin(shutdown.clone()));
    }
    let cluster = Cluster {
        bus: connections.connect("up", None, Echo::All).await?,
        subjects,
        format: global.output,
    };
    let stop_roles = CancellationToken::new();
    let mut roles = JoinSet::new();
    let auctioneer = auctioneer_of(server.is_none(), policy);
    spawn(
        &mut roles,
        &stop_roles,
        &cluster.subjects,
        &connections,
        auctioneer,
        cells,
    )
    .await?;
    let no_manager = CancellationToken::new();
    if args.no_manager {
        no_manager.cancel();
    } else {
        let config = manager::config(server.is_none(), &cluster.subjects);
        let buses = connections.connect_manager(&config.name).await?;
        let (stop, failed) = (stop_roles.clone(), no_manager.clone());
        let run = manager::run(config, buses, cluster.subjects.clone(), stop, failed);
        roles.spawn(async move { ("manager".to_owned(), run.await) });
    }
    let ending = connections.options.ending.clone();
    let access = Access {
        port: server.as_ref().map(Server::port),
        url: connections.options.url.clone(),
        key: connections.key(OPERATOR),
    };
    let works = async {
        ready(&cluster, args.cells).await?;
        manager::until_ready(&cluster.bus, &cluster.subjects, &no_manager).await;
        // the cluster works even if nobody can read this
        let _ = access.announce(args, global, !no_manager.is_cancelled());
        std::future::pending().await
    };
    let done = tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        never = works => never,
        ended = watch(&mut roles, server.as_mut()) => ended,
    };
    note("stopping: the cells end their instances");
    stop_roles.cancel();
    shut_down_roles(&mut roles, args.grace).await;
    if let Some(mut server) = server {
        // connections outlive their last user for some time; none may warn about a server that is gone
        ending.cancel();
        server.stop().await;
    }
    done.map(|()| Exit::Ok)
}

/// Returns the settings of the cluster's auctioneer; on a shared server it has a unique name.
fn auctioneer_of(joins: bool, policy: Policy) -> auctioneer::AuctioneerConfig {
    let name = if joins {
        short_name("auctioneer")
    } else {
        AUCTIONEER.to_owned()
    };
    auctioneer::AuctioneerConfig {
        single: false,
        name,
        policy,
        limits: auctioneer::Limits::default(),
    }
}

/// Returns the private server, unless another one is joined, how to connect to it, and where it stores apps.
async fn prepare(
    global: &Global,
    args: &UpArgs,
    cells: &[rep::RepConfig],
) -> anyhow::Result<(Connections, Option<Server>, Option<manager::Data>)> {
    let joins = global.nats.is_some() || global.context.is_some();
    if joins && args.secure {
        return Err(Usage::because(
            "--secure: it makes keys for a private server, and with --nats or --context none is started; \
             expected one or the other (`vendue auth` makes keys for a server of your own)",
        ));
    }
    if joins && args.data.is_some() {
        return Err(Usage::because(
            "--data: a private server stores apps there, and with --nats or --context none is started; \
             expected one or the other (a server of your own has its directory in its configuration)",
        ));
    }
    let keys = || Keys::make(global, cells, !args.no_manager);
    let keys = args.secure.then(keys).transpose()?;
    let stores = !joins && !args.no_manager;
    let data = stores.then(|| manager::Data::at(args.data.as_deref()));
    let data = data.transpose()?;
    let server = if joins {
        None
    } else {
        Some(start(args, keys.as_ref(), data.as_ref()).await?)
    };
    let options = options(global, server.as_ref());
    Ok((Connections { options, keys }, server, data))
}

/// Returns how to reach the private server, or the one that is joined.
fn options(global: &Global, server: Option<&Server>) -> NatsOptions {
    match server {
        Some(server) => NatsOptions {
            url: server.url(),
            patient: true,
            ..NatsOptions::default()
        },
        None => nats_options(global, "", false),
    }
}

/// Starts every role, each with its own connection.
async fn spawn(
    roles: &mut JoinSet<Ended>,
    stop: &CancellationToken,
    subjects: &Subjects,
    connections: &Connections,
    auctioneer: auctioneer::AuctioneerConfig,
    cells: Vec<rep::RepConfig>,
) -> anyhow::Result<()> {
    let connected = connections.connect("auctioneer", Some(&auctioneer.name), Echo::ToItself);
    let bus = connected.await?;
    let run = auctioneer::run(auctioneer, bus, subjects.clone(), stop.clone());
    roles.spawn(async move { ("auctioneer".to_owned(), run.await.map_err(Into::into)) });
    for config in cells {
        let what = format!("rep-{}", config.cell);
        let bus = connections.connect(&what, Some(&config.cell), Echo::None);
        let bus = bus.await?;
        let name = format!("cell {}", config.cell);
        let run = rep::run(config, bus, subjects.clone(), stop.clone());
        roles.spawn(async move { (name, run.await.map(drop).map_err(rep_role::rep_error)) });
    }
    Ok(())
}

impl UpArgs {
    fn configs(&self) -> Vec<rep::RepConfig> {
        let total = Resources {
            cpu_millis: self.cell_cpu,
            ..Resources::new(self.cell_memory, self.cell_disk, self.cell_containers)
        };
        // separate ranges of ports, so that no two cells of this machine assign the same one
        let (first, last) = (61_001, 65_535);
        let share = u16::try_from((last - first) / self.cells).unwrap_or(u16::MAX);
        let mut configs = Vec::new();
        for n in 0..self.cells {
            let zone = format!("z{}", n % self.zones + 1);
            let name = format!("{zone}-cell-{}", n / self.zones);
            let mut config = rep::RepConfig::new(name, zone, total.clone());
            config.index = n / self.zones;
            config.attributes.stacks.clone_from(&self.cell_stacks);
            config.grace = placement::Span(self.grace);
            let start = u16::try_from(first).unwrap_or(0) + u16::try_from(n).unwrap_or(0) * share;
            config.executor = rep::ExecutorKind::Process(rep::ProcessConfig {
                run_as: self.run_as.clone(),
                ports: (start, start + share.saturating_sub(1)),
                ..rep::ProcessConfig::default()
            });
            configs.push(config);
        }
        configs
    }
}

async fn start(
    args: &UpArgs,
    keys: Option<&Keys>,
    data: Option<&manager::Data>,
) -> anyhow::Result<Server> {
    if std::env::var_os("NATS_URL").is_some_and(|url| !url.is_empty()) {
        note("NATS_URL is set, but `up` starts a server of its own; --nats URL joins one");
    }
    let token = !args.no_auth && keys.is_none();
    let token = token.then(|| uuid::Uuid::new_v4().simple().to_string());
    let port = match args.port {
        None => Port::Usual,
        Some(0) => Port::Any,
        Some(port) => Port::Fixed(port),
    };
    let permissions = keys.map(|keys| server_config(keys.directory.roster()));
    let mut config = permissions.transpose()?.unwrap_or_default();
    config.extend(data.map(manager::Data::config));
    let options = Options {
        port,
        token,
        config,
        ..Options::default()
    };
    Server::start(options).await.map_err(|error| match error {
        nats_server::Error::NotFound(_) => {
            anyhow!("{error}\nor join a server that runs already: `vendue up --nats URL`")
        }
        nats_server::Error::PortInUse(_) => {
            anyhow!("{error}; another --port, or --port 0 for any free one")
        }
        other => other.into(),
    })
}

async fn end_with_stdin(shutdown: CancellationToken) {
    // an error ends it too
    let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
    shutdown.cancel();
}

/// Waits until the auctioneer knows all our cells.
async fn ready(cluster: &Cluster, cells: u32) -> anyhow::Result<()> {
    let (client, subjects) = (&cluster.bus.client, &cluster.subjects);
    let cells = usize::try_from(cells)?;
    let waiting = instances::until_known(client, subjects, cells, 1, Duration::from_secs(20));
    output::with_progress("waiting for the cells", waiting).await
}

/// Waits until something ends that should last.
async fn watch(roles: &mut JoinSet<Ended>, mut server: Option<&mut Server>) -> anyhow::Result<()> {
    loop {
        let server_ended = async {
            match &mut server {
                Some(server) => server.ended().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = server_ended => {
                let log = server.map(|s| s.log()).unwrap_or_default();
                let status = status?.map_or_else(String::new, |status| format!(" ({status})"));
                return Err(anyhow!("nats-server ended{status}:\n{log}"));
            }
            ended = roles.join_next() => match ended {
                Some(Ok((name, Ok(())))) => note(format_args!("{name} exited cleanly")),
                Some(Ok((name, Err(e)))) => return Err(e.context(name)),
                Some(Err(e)) => return Err(anyhow!("a role panicked: {e}")),
                None => return Ok(()),
            },
        }
    }
}

/// Waits for the roles to end: for their grace period and a little more.
async fn shut_down_roles(roles: &mut JoinSet<Ended>, grace: Duration) {
    let all = async {
        while let Some(ended) = roles.join_next().await {
            match ended {
                Ok((name, Err(e))) => note(format_args!("{name}: {e:#}")),
                Ok((name, Ok(()))) => tracing::debug!(name, "ended"),
                Err(e) => note(format_args!("a role panicked: {e}")),
            }
        }
    };
    let again = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    tokio::select! {
        ended = timeout(grace + Duration::from_secs(5), output::with_progress("waiting for the cells", all)) => {
            if ended.is_err() {
                note("some cells did not end in time; what they ran is killed");
            }
        }
        () = again => note("second Ctrl-C: killing the remaining instances"),
    }
    roles.abort_all();
}

/// Where the cluster is, and the key that gives access to it.
struct Access {
    /// The private server's port.
    port: Option<u16>,
    /// The address for clients.
    url: String,
    /// The key for the user's commands, with --secure.
    key: Option<PathBuf>,
}

impl Access {
    /// Says where the cluster is and what to type.
    fn announce(&self, args: &UpArgs, global: &Global, managed: bool) -> anyhow::Result<()> {
        if global.output == Format::Json {
            let mut line = json!({
                "v": shared::VERSION, "nats": self.url, "prefix": global.prefix, "policy": args.policy,
                "cells": args.cells, "zones": args.zones.min(args.cells), "manager": managed, "pid": std::process::id(),
            });
            if let Some(key) = &self.key {
                line["nkey"] = json!(key);
            }
            return output::json_line(&line);
        }
        // first, and alone on its line, so that it can be copied
        if global.context.is_none() {
            let key = self.key.as_ref();
            let key = key.map_or(String::new(), |key| format!(" NATS_NKEY={}", key.display()));
            output::say(format_args!("export NATS_URL={}{key}", self.url))?;
        }
        if global.prefix != "vendue" {
            output::say(format_args!("export VENDUE_PREFIX={}", global.prefix))?;
        }
        if let Some(port) = self.port {
            if args.port.is_none() && port != USUAL_PORT {
                output::say(format_args!(
                    "port {USUAL_PORT} is taken: the server listens on {port}"
                ))?;
            }
            output::say(format_args!("nats-server listens on 127.0.0.1:{port}"))?;
        }
        let (cells, zones) = (args.cells, args.zones.min(args.cells));
        let policy = &args.policy;
        let manager = if managed { "one manager, " } else { "" };
        output::say(format_args!(
            "one auctioneer (policy {policy}), {manager}{} in {}",
            counted(usize::try_from(cells)?, "cell"),
            counted(usize::try_from(zones)?, "zone"),
        ))?;
        suggest(global, self.key.is_some())?;
        note("Ctrl-C stops everything");
        Ok(())
    }
}

/// Commands to type in another terminal, after the exports.
fn suggest(global: &Global, secure: bool) -> anyhow::Result<()> {
    // as this one was typed, since it need not be in PATH
    let mut vendue = std::env::args().next().unwrap_or_else(|| "vendue".into());
    let mut nats = "nats".to_owned();
    let prefix = &global.prefix;
    if secure {
        nats += &format!(" --inbox-prefix _INBOX.{OPERATOR}");
    }
    if let Some(context) = &global.context {
        vendue += &format!(" --context {context}");
        nats += &format!(" --context {context}");
        output::say("in another terminal:")?;
    } else {
        output::say("in another terminal, after the line that begins with export:")?;
    }
    let hello = r#"{"app":"hello","memory_mb":16,"disk_mb":16,"run":{"command":["sleep","600"]}}"#;
    output::say(format_args!(
        "{vendue} run web --memory 64M --disk 64M --instances 3 --port -- vendue web"
    ))?;
    output::say(format_args!("{vendue} ps"))?;
    output::say(format_args!("{nats} request {prefix}.start '{hello}'"))?;
    Ok(())
}
