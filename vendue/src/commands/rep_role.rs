//! Running a rep: its settings, from flags and from a TOML file with the same names, and its program.

mod print;
mod settings;

use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;
use shared::{Subjects, nats::NatsOptions, shutdown};
use toml::Table;

use self::settings::RepSettings;
use crate::{
    cluster::{connect, nats_options, short_name},
    context::{Exit, Global, Usage},
    output,
};

/// What a rep is started with.
#[derive(Debug, clap::Args)]
pub(crate) struct RepArgs {
    /// TOML file with settings named like these flags; flags replace what is in it
    #[arg(long, env = "VENDUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the settings as a complete commented file for --config, and exit
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    settings: RepSettings,
}

impl RepArgs {
    /// The file with the flags over it.
    fn merged(&self) -> anyhow::Result<RepSettings> {
        let file = match &self.config {
            None => RepSettings::default(),
            Some(file) => read(file)?,
        };
        let mut table = Table::try_from(file)?;
        table.extend(Table::try_from(self.settings.clone())?);
        Ok(RepSettings::deserialize(table)?)
    }
}

fn read(file: &std::path::Path) -> anyhow::Result<RepSettings> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string());
    let text = text.map_err(|e| Usage::because(format_args!("{e:#}")))?;
    let settings = toml::from_str(&text).map_err(|e| {
        Usage::because(format_args!(
            "{}: {}",
            file.display(),
            e.to_string().trim_end()
        ))
    })?;
    Ok(settings)
}

/// Runs a cell until it is stopped or drained.
pub(crate) async fn rep(global: &Global, args: &RepArgs) -> anyhow::Result<Exit> {
    let mut settings = args.merged()?;
    if args.print_config {
        output::say(settings.print()?.trim_end())?;
        return Ok(Exit::Ok);
    }
    let global = in_cluster(global, settings.nats.take(), settings.prefix.take());
    let config = settings.config()?;
    // before anything is said of the connection
    rep::validate(&config).map_err(unusable)?;
    let subjects = Subjects::new(global.prefix.as_str()).map_err(Usage::because)?;
    let shutdown = shutdown::on_signals()?;
    let options = NatsOptions {
        identity: Some(config.cell.clone()),
        ..nats_options(&global, &short_name(&format!("rep-{}", config.cell)), true)
    };
    if std::env::args().any(|word| has_credentials(&word)) {
        tracing::warn!(
            "the command line has credentials, and every process of this machine can read it: \
             use NATS_URL, --creds or the file of --config"
        );
    }
    let bus = connect(&options).await?;
    let (cell, zone, url) = (&config.cell, &config.zone, &bus.url);
    tracing::info!(cell, zone, url, "starting rep");
    let ended = rep::run(config, bus, subjects, shutdown).await;
    let ended = ended.map_err(rep_error)?;
    tracing::info!(reason = ended.reason(), "rep stopped");
    Ok(Exit::Ok)
}

/// Whether an argument is an address with a token, or with a user and a password.
fn has_credentials(word: &str) -> bool {
    let address = word.split_once("://").map(|(_, address)| address);
    address.is_some_and(|address| address.contains('@'))
}

/// The file's address and prefix count where no flag and no variable says otherwise.
fn in_cluster(global: &Global, nats: Option<String>, prefix: Option<String>) -> Global {
    let mut global = global.clone();
    if global.url().is_none() && global.context.is_none() {
        global.nats = nats;
    }
    if global.prefix == DEFAULT_PREFIX {
        global.prefix = prefix.unwrap_or(global.prefix);
    }
    global
}

const DEFAULT_PREFIX: &str = "vendue";

/// What is wrong with the settings, named as the flags are.
fn unusable(error: rep::RepError) -> anyhow::Error {
    match error {
        rep::RepError::Config(mut invalid) => {
            if let Some(flag) = flag_of(&invalid.field) {
                flag.clone_into(&mut invalid.field);
            }
            Usage::because(invalid)
        }
        rep::RepError::Executor(error) => Usage::because(error),
        other => other.into(),
    }
}

/// The flag that sets this field of a rep's configuration.
fn flag_of(field: &str) -> Option<&'static str> {
    Some(match field {
        "cell" => "--cell",
        "zone" => "--zone",
        "total.memory_mb" => "--memory",
        "total.disk_mb" => "--disk",
        "total.containers" => "--containers",
        "total.cpu_millis" => "--cpu",
        "address" => "--address",
        "interval" => "--interval",
        "heartbeat" => "--heartbeat",
        "attributes_file" => "--attributes-file",
        "executor.ports" => "--ports",
        "executor.users" => "--users",
        "executor.memory_if_zero" => "--memory-if-zero",
        "executor.disk_if_zero" => "--disk-if-zero",
        "executor.max_processes" => "--max-processes",
        "executor.max_files" => "--max-files",
        _ => return None,
    })
}

/// A configuration that no cell may have is bad usage.
pub(crate) fn rep_error(error: rep::RepError) -> anyhow::Error {
    match error {
        rep::RepError::Config(invalid) => Usage::because(invalid),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests;
