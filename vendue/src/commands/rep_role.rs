//! Runs a rep: its settings, from flags and from a TOML file with the same names, and its program.

mod print;
pub(crate) mod settings;

use std::path::PathBuf;

use serde::Deserialize;
use shared::{
    Subjects,
    nats::{Echo, NatsOptions},
    shutdown,
};
use toml::Table;

use self::settings::RepSettings;
use crate::{
    cluster::{connect, nats_options, short_name},
    commands::connection::{self, Connection},
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
    /// Returns how the file says that NATS is reached, and its settings with the flags on top.
    fn merged(&self) -> anyhow::Result<(Connection, RepSettings)> {
        let (connection, file) = match &self.config {
            None => Default::default(),
            Some(file) => connection::read::<RepSettings>(file)?,
        };
        let mut table = Table::try_from(file)?;
        table.extend(Table::try_from(self.settings.clone())?);
        Ok((connection, RepSettings::deserialize(table)?))
    }
}

/// Runs a cell until it is stopped or drained.
pub(crate) async fn rep(global: &Global, args: &RepArgs) -> anyhow::Result<Exit> {
    let (connection, settings) = args.merged()?;
    if args.print_config {
        let connection = connection.with_flags(global);
        output::say(settings.print(&connection)?.trim_end())?;
        return Ok(Exit::Ok);
    }
    let global = connection.under(global);
    let config = settings.config()?;
    // before any message about the connection
    rep::validate(&config).map_err(unusable)?;
    let subjects = Subjects::new(global.prefix.as_str()).map_err(Usage::because)?;
    let ending = shutdown::gently_on_sigterm()?;
    let options = NatsOptions {
        identity: Some(config.cell.clone()),
        // it must hear the advertisements of others under its name, but not its own
        echo: Echo::None,
        ..nats_options(&global, &short_name(&format!("rep-{}", config.cell)), true)
    };
    if std::env::args().any(|word| has_credentials(&word)) {
        tracing::warn!(
            "the command line has credentials, and every process of this machine can read it: \
             use NATS_URL, --creds or the file of --config"
        );
    }
    connection::warn_of_open_files(&options, args.config.as_ref())?;
    let bus = connect(&options).await?;
    let (cell, zone, url) = (&config.cell, &config.zone, &bus.url);
    tracing::info!(cell, zone, url, "starting rep");
    let ended = rep::run(config, bus, subjects, ending).await;
    let ended = ended.map_err(rep_error)?;
    tracing::info!(reason = ended.reason(), "rep stopped");
    Ok(Exit::Ok)
}

/// Returns whether an argument is an address with a token, or with a user and a password.
fn has_credentials(word: &str) -> bool {
    let address = word.split_once("://").map(|(_, address)| address);
    address.is_some_and(|address| address.contains('@'))
}

/// Describes what is wrong with the settings, in terms of the flags.
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

/// Returns the flag that sets this field of a rep's configuration.
fn flag_of(field: &str) -> Option<&'static str> {
    Some(match field {
        "cell" => "--cell",
        "zone" => "--zone",
        "total.memory_mb" => "--memory",
        "total.disk_mb" => "--disk",
        "total.containers" => "--containers",
        "total.cpu_millis" => "--cpu",
        "executor.device_env" => "--device-env",
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

/// Turns an invalid configuration into bad usage.
pub(crate) fn rep_error(error: rep::RepError) -> anyhow::Error {
    match error {
        rep::RepError::Config(invalid) => Usage::because(invalid),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests;
