//! Runs an auctioneer.

use std::{path::PathBuf, time::Duration};

use auctioneer::Limits;
use placement::{Invalid, Span};
use serde::{Deserialize, de::DeserializeOwned};
use shared::{Subjects, clock::millis, nats::Echo, shutdown};
use toml::{Table, Value};

use super::{
    connection::{self, Connection},
    policy_file,
    rep_role::settings::span,
};
use crate::{
    cluster::{nats_options, short_name},
    context::{Exit, Global, Usage},
};

#[derive(Debug, clap::Args)]
pub(crate) struct AuctioneerArgs {
    /// TOML file with settings named like these flags; flags replace what is in it
    #[arg(long, env = "VENDUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Auctioneer name, unique in the cluster [default: the credentials' name, else a random one]
    #[arg(long, env = "VENDUE_AUCTIONEER")]
    name: Option<String>,
    /// Policy: the name of a preset or a file [default: diego]
    #[arg(long, env = "VENDUE_POLICY", value_name = "NAME|FILE")]
    policy: Option<String>,
    /// The longest time that an advertisement is believed, at most 1h [default: 1m]
    #[arg(long, env = "VENDUE_MAX_TTL", value_name = "TIME", value_parser = span)]
    max_ttl: Option<Span>,
    /// The longest `queue_timeout` of a request, at most 24h [default: 1h]
    #[arg(long, env = "VENDUE_MAX_QUEUE_TIMEOUT", value_name = "TIME", value_parser = span)]
    max_queue_timeout: Option<Span>,
    /// Accept requests only while no other auctioneer with --single does: managers grant it to one at a time
    #[arg(long, env = "VENDUE_SINGLE")]
    single: bool,
}

/// An auctioneer's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct AuctioneerFile {
    name: Option<String>,
    policy: Option<String>,
    max_ttl: Option<Span>,
    max_queue_timeout: Option<Span>,
    #[serde(default)]
    single: bool,
}

impl AuctioneerFile {
    fn limits(&self) -> anyhow::Result<Limits> {
        let (usual, most) = (Limits::default(), Limits::MOST);
        let within = |name, span: Option<Span>, usual: u64, most: u64| {
            let Some(span) = span else { return Ok(usual) };
            let given = millis(span.0);
            if (1_000..=most).contains(&given) {
                return Ok(given);
            }
            let expected = format!("from 1s to {}", Span(Duration::from_millis(most)));
            Err(Usage::because(Invalid::new(
                name,
                span.to_string(),
                expected,
            )))
        };
        Ok(Limits {
            max_ttl_ms: within("max-ttl", self.max_ttl, usual.max_ttl_ms, most.max_ttl_ms)?,
            max_queue_ms: within(
                "max-queue-timeout",
                self.max_queue_timeout,
                usual.max_queue_ms,
                most.max_queue_ms,
            )?,
        })
    }
}

/// Turns an invalid configuration into bad usage.
pub(crate) fn auctioneer_error(error: auctioneer::AuctioneerError) -> anyhow::Error {
    match error {
        auctioneer::AuctioneerError::Config(invalid) => Usage::because(invalid),
        other => other.into(),
    }
}

/// Runs an auctioneer until it is stopped.
pub(crate) async fn auctioneer(global: &Global, args: &AuctioneerArgs) -> anyhow::Result<Exit> {
    let (connection, mut table) = match &args.config {
        None => (Connection::default(), Table::new()),
        Some(file) => connection::read(file)?,
    };
    let global = &connection.under(global);
    let span = |span: Option<Span>| span.map(|span| span.to_string());
    for (key, flag) in [
        ("name", args.name.clone()),
        ("policy", args.policy.clone()),
        ("max-ttl", span(args.max_ttl)),
        ("max-queue-timeout", span(args.max_queue_timeout)),
    ] {
        table.extend(flag.map(|value| (key.to_owned(), Value::from(value))));
    }
    if args.single {
        table.insert("single".to_owned(), true.into());
    }
    let file: AuctioneerFile = from_table(table, args.config.as_ref())?;
    let limits = file.limits()?;
    let mut options = nats_options(global, "", true);
    let name = match file.name {
        Some(name) => Some(name),
        None => shared::nats::identity(&options).map_err(Usage::because)?,
    };
    let config = auctioneer::AuctioneerConfig {
        name: name.unwrap_or_else(|| short_name("auctioneer")),
        policy: policy_file::load_to_run(file.policy.as_deref().unwrap_or(DEFAULT_POLICY))?,
        limits,
        single: file.single,
    };
    // before any message about the connection
    placement::check_name("--name", &config.name).map_err(Usage::because)?;
    let subjects = Subjects::new(global.prefix.as_str()).map_err(Usage::because)?;
    let shutdown = shutdown::on_signals()?;
    options.name = short_name(&config.name);
    options.identity = Some(config.name.clone());
    options.echo = Echo::ToItself;
    connection::warn_of_open_files(&options, args.config.as_ref())?;
    let bus = crate::cluster::connect(&options).await?;
    tracing::info!(
        name = config.name,
        policy = config.policy.name(),
        url = bus.url,
        "starting auctioneer"
    );
    let ended = auctioneer::run(config, bus, subjects, shutdown).await;
    ended.map_err(auctioneer_error)?;
    Ok(Exit::Ok)
}

/// The default policy.
pub(crate) const DEFAULT_POLICY: &str = "diego";

/// Reads a configuration; an error names the field.
pub(crate) fn from_table<T: DeserializeOwned>(
    table: Table,
    file: Option<&PathBuf>,
) -> anyhow::Result<T> {
    T::deserialize(table).map_err(|e| {
        let file = file.map_or("the command line".into(), |f| f.display().to_string());
        Usage::because(format_args!("{file}: {}", e.to_string().trim_end()))
    })
}
