//! The roles: what runs until it is told to end.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use serde::{Deserialize, de::DeserializeOwned};
use shared::{Subjects, nats, shutdown};
use toml::{Table, Value};

use super::{policy, run::pair};
use crate::{
    cluster::{nats_options, short_name},
    context::{Exit, Global, Usage},
};

#[derive(Debug, clap::Args)]
pub(crate) struct RepArgs {
    /// A TOML file; what the command line says comes on top of it
    #[arg(long, env = "VENDUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The cell's name, its own in the cluster
    #[arg(long, env = "VENDUE_CELL", value_name = "NAME")]
    cell: Option<String>,
    /// Its availability zone
    #[arg(long, env = "VENDUE_ZONE")]
    zone: Option<String>,
    /// MiB of memory to promise
    #[arg(long, env = "VENDUE_MEMORY", value_name = "MIB")]
    memory: Option<i64>,
    /// MiB of disk to promise [default: unlimited]
    #[arg(long, env = "VENDUE_DISK", value_name = "MIB")]
    disk: Option<i64>,
    /// How many instances [default: unlimited]
    #[arg(long, env = "VENDUE_CONTAINERS", value_name = "N")]
    containers: Option<i64>,
    /// Thousandths of a core to promise [default: none]
    #[arg(long, env = "VENDUE_CPU", value_name = "MILLIS")]
    cpu: Option<i64>,
    /// A named resource to promise, such as gpu=4; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = pair)]
    extra: Vec<(String, String)>,
    /// A root filesystem it offers; may be repeated
    #[arg(long = "stack", value_name = "STACK")]
    stacks: Vec<String>,
    /// A placement tag it demands; may be repeated
    #[arg(long = "placement-tag", value_name = "TAG")]
    placement_tags: Vec<String>,
    /// The rack it stands in
    #[arg(long)]
    rack: Option<String>,
    /// Where changes by `vendue cells set` are kept over a restart
    #[arg(long, env = "VENDUE_ATTRIBUTES", value_name = "FILE")]
    attributes: Option<PathBuf>,
    /// Where instances with a port can be reached [default: 127.0.0.1]
    #[arg(long, env = "VENDUE_ADDRESS")]
    address: Option<String>,
    /// How often it advertises [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    interval: Option<Duration>,
    /// How long its word holds [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
    /// How long an instance may take to end when asked [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    grace: Option<Duration>,
    /// The user that instances run as; as root: nobody, unless said
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,
    /// Run nothing, only pretend to: for load tests
    #[arg(long)]
    simulated: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AuctioneerArgs {
    /// A TOML file; what the command line says comes on top of it
    #[arg(long, env = "VENDUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Its name, its own in the cluster [default: one of its own making]
    #[arg(long, env = "VENDUE_AUCTIONEER")]
    name: Option<String>,
    /// How it decides: a preset's name or a file
    #[arg(long, env = "VENDUE_POLICY", value_name = "NAME|FILE")]
    policy: Option<String>,
}

/// An auctioneer's file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuctioneerFile {
    name: Option<String>,
    policy: Option<String>,
}

impl RepArgs {
    fn config(&self) -> anyhow::Result<rep::Config> {
        let mut table = read_table(self.config.as_ref())?;
        put(&mut table, &["cell"], self.cell.as_deref());
        put(&mut table, &["zone"], self.zone.as_deref());
        put(&mut table, &["address"], self.address.as_deref());
        let totals = [
            ("memory_mb", self.memory),
            ("disk_mb", self.disk),
            ("containers", self.containers),
            ("cpu_millis", self.cpu),
        ];
        for (name, amount) in totals {
            put(&mut table, &["total", name], amount);
        }
        for (name, amount) in &self.extra {
            let amount: i64 = amount.parse().map_err(|_| {
                Usage::because(format_args!("--extra {name}={amount}: expected a number"))
            })?;
            put(&mut table, &["total", "extra", name], Some(amount));
        }
        for (name, time) in [
            ("interval", self.interval),
            ("ttl", self.ttl),
            ("grace", self.grace),
        ] {
            let text = time.map(|t| humantime::format_duration(t).to_string());
            put(&mut table, &[name], text);
        }
        let list = |list: &[String]| (!list.is_empty()).then(|| list.to_vec());
        put(&mut table, &["attributes", "stacks"], list(&self.stacks));
        let tags = list(&self.placement_tags);
        put(&mut table, &["attributes", "placement_tags"], tags);
        put(&mut table, &["attributes", "rack"], self.rack.as_deref());
        let file = self.attributes.as_ref().map(|f| f.display().to_string());
        put(&mut table, &["attributes_file"], file);
        if self.simulated {
            put(&mut table, &["executor", "kind"], Some("simulated"));
        } else if let Some(user) = self.run_as.as_deref() {
            put(&mut table, &["executor", "kind"], Some("process"));
            put(&mut table, &["executor", "run_as"], Some(user));
        }
        if !table.contains_key("cell") {
            return Err(Usage::because("a cell needs a name: --cell NAME"));
        }
        if !table.contains_key("total") {
            let text = "a cell needs to know what it may promise: --memory MIB";
            return Err(Usage::because(text));
        }
        from_table(table, self.config.as_ref())
    }
}

/// One cell, until told to end, or drained.
pub(crate) async fn rep(global: &Global, args: &RepArgs) -> anyhow::Result<Exit> {
    let config = args.config()?;
    let subjects = Subjects::new(global.prefix.as_str()).map_err(Usage::because)?;
    let shutdown = shutdown::on_signals()?;
    let options = nats_options(global, &short_name(&format!("rep-{}", config.cell)), true);
    let bus = crate::cluster::connect(&options).await?;
    let url = nats::without_secrets(&options.url);
    tracing::info!(cell = config.cell, zone = config.zone, url, "rep");
    let ended = rep::run(config, bus, subjects, shutdown).await;
    tracing::info!(how = ?ended.map_err(rep_error)?, "rep ended");
    Ok(Exit::Ok)
}

/// A configuration that no cell may have is bad usage.
pub(crate) fn rep_error(error: rep::RepError) -> anyhow::Error {
    match error {
        rep::RepError::Config(invalid) => Usage::because(invalid),
        other => other.into(),
    }
}

/// The same of an auctioneer.
pub(crate) fn auctioneer_error(error: auctioneer::AuctioneerError) -> anyhow::Error {
    match error {
        auctioneer::AuctioneerError::Config(invalid) => Usage::because(invalid),
        other => other.into(),
    }
}

/// One auctioneer, until told to end.
pub(crate) async fn auctioneer(global: &Global, args: &AuctioneerArgs) -> anyhow::Result<Exit> {
    let mut table = read_table(args.config.as_ref())?;
    put(&mut table, &["name"], args.name.as_deref());
    put(&mut table, &["policy"], args.policy.as_deref());
    let file: AuctioneerFile = from_table(table, args.config.as_ref())?;
    let config = auctioneer::Config {
        name: file.name.unwrap_or_else(|| short_name("auctioneer")),
        policy: policy::load_to_run(file.policy.as_deref().unwrap_or(DEFAULT_POLICY))?,
    };
    let subjects = Subjects::new(global.prefix.as_str()).map_err(Usage::because)?;
    let shutdown = shutdown::on_signals()?;
    let options = nats_options(global, &short_name(&config.name), true);
    let bus = crate::cluster::connect(&options).await?;
    let url = nats::without_secrets(&options.url);
    tracing::info!(
        name = config.name,
        policy = config.policy.name(),
        url,
        "auctioneer"
    );
    let ended = auctioneer::run(config, bus, subjects, shutdown).await;
    ended.map_err(auctioneer_error)?;
    Ok(Exit::Ok)
}

/// How placements are decided when nobody says otherwise.
pub(crate) const DEFAULT_POLICY: &str = "diego";

fn read_table(file: Option<&PathBuf>) -> anyhow::Result<Table> {
    let Some(file) = file else {
        return Ok(Table::new());
    };
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string());
    let text = text.map_err(|e| Usage::because(format_args!("{e:#}")))?;
    text.parse()
        .map_err(|e| Usage::because(format_args!("{}: {e}", file.display())))
}

/// Sets a value in nested tables; nothing when there is none.
fn put(table: &mut Table, path: &[&str], value: Option<impl Into<Value>>) {
    let (Some(value), [parents @ .., last]) = (value, path) else {
        return;
    };
    let mut inner = table;
    for parent in parents {
        let entry = inner.entry(*parent).or_insert(Value::Table(Table::new()));
        match entry {
            Value::Table(table) => inner = table,
            // not a table: let the file's own error say so
            _ => return,
        }
    }
    inner.insert((*last).to_owned(), value.into());
}

/// Reads a configuration; what is wrong names the field.
fn from_table<T: DeserializeOwned>(table: Table, file: Option<&PathBuf>) -> anyhow::Result<T> {
    T::deserialize(table).map_err(|e| {
        let file = file.map_or("the command line".into(), |f| f.display().to_string());
        Usage::because(format_args!("{file}: {}", e.to_string().trim_end()))
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        rep: RepArgs,
    }

    fn config(more: &[&str]) -> Result<rep::Config, String> {
        let line = Line::try_parse_from([&["rep", "--cell", "a"], more].concat());
        line.unwrap().rep.config().map_err(|e| e.to_string())
    }

    #[test]
    fn named_resources_are_promised_from_the_command_line() {
        let more = ["--memory", "64", "--extra", "gpu=4", "--extra", "fpga=1"];
        let total = config(&more).unwrap().total;
        assert_eq!((total.extra("gpu"), total.extra("fpga")), (4, 1));
        assert_eq!(total.disk_mb, None, "unlimited, as nobody said");
        let error = config(&["--memory", "64", "--extra", "gpu=x"]).unwrap_err();
        assert_eq!(error, "--extra gpu=x: expected a number");
    }

    #[test]
    fn only_what_a_cell_needs_is_asked_for() {
        let error = config(&[]).unwrap_err();
        assert!(error.ends_with("--memory MIB"), "{error}");
    }
}
