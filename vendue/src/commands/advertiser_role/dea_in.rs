//! `advertiser dea-in`: the DEAs of an estate as cells.

use std::{path::PathBuf, time::Duration};

use advertiser::dea_in::{DeaInConfig, DeaInError};
use placement::{Invalid, Span};
use serde::Deserialize;
use shared::{Subjects, clock::millis, nats::Echo, shutdown};
use toml::Table;

use super::estate::EstateArgs;
use crate::{
    cluster::{connect, nats_options, short_name},
    commands::{
        connection::{self, Connection},
        rep_role::settings::span,
        roles::from_table,
    },
    context::{Exit, Global, Usage},
};

/// The settings of a bridge, as flags and as keys of its file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct DeaInSettings {
    /// Name of the bridge; its cells are NAME-0, NAME-1 and so on [default: the credentials' name, else dea]
    #[arg(long, env = "VENDUE_BRIDGE")]
    name: Option<String>,
    /// How many cells there are at most, as `auth add-bridge` was told [default: 100]
    #[arg(long, env = "VENDUE_SLOTS", value_name = "COUNT")]
    slots: Option<usize>,
    /// How long an advertisement of a DEA counts, in whole seconds; many Cloud Controllers were deployed with 15s
    /// [default: 10s]
    #[arg(long, env = "VENDUE_EXPIRY", value_name = "TIME", value_parser = span)]
    expiry: Option<Span>,
    /// How long after its start only DEAs whose instances name their cell become cells, so that each is the cell that it was:
    /// a little more than between two heartbeats of a DEA [default: 11s]
    #[arg(long, env = "VENDUE_SETTLE", value_name = "TIME", value_parser = span)]
    settle: Option<Span>,
}

#[derive(Debug, clap::Args)]
pub(super) struct DeaInArgs {
    /// TOML file with settings named like these flags; flags replace what is in it
    #[arg(long, env = "VENDUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: DeaInSettings,
    #[command(flatten)]
    estate: EstateArgs,
}

/// What a file of a bridge may hold besides its connection to the cluster.
const KEYS: [&str; 4] = ["name", "slots", "expiry", "settle"];

const DEFAULT_NAME: &str = "dea";
const DEFAULT_SLOTS: usize = 100;
const DEFAULT_EXPIRY: Duration = Duration::from_secs(10);
const DEFAULT_SETTLE: Duration = Duration::from_secs(11);

impl DeaInSettings {
    fn config(&self, name: String) -> Result<DeaInConfig, Invalid> {
        let expiry = self.expiry.unwrap_or(Span(DEFAULT_EXPIRY));
        if expiry.0.subsec_nanos() != 0 {
            return Err(Invalid::new("expiry", expiry, "whole seconds"));
        }
        let config = DeaInConfig {
            name,
            slots: self.slots.unwrap_or(DEFAULT_SLOTS),
            expiry_s: expiry.0.as_secs(),
            settle_ms: millis(self.settle.map_or(DEFAULT_SETTLE, |settle| settle.0)),
        };
        config.check()?;
        Ok(config)
    }
}

impl DeaInArgs {
    /// How the file says that the cluster is reached, and the settings with the flags over those of the file.
    fn merged(&self) -> anyhow::Result<(Connection, DeaInSettings, EstateArgs)> {
        let Some(file) = &self.config else {
            let (settings, estate) = (self.settings.clone(), self.estate.clone());
            return Ok((Connection::default(), settings, estate));
        };
        let (connection, mut table) = connection::read::<Table>(file)?;
        let own: Table = KEYS
            .iter()
            .filter_map(|key| table.remove_entry(*key))
            .collect();
        let in_file: DeaInSettings = from_table(own, self.config.as_ref())?;
        // what is left is of the estate, or unknown
        let estate: EstateArgs = from_table(table, self.config.as_ref())?;
        let flags = self.settings.clone();
        let settings = DeaInSettings {
            name: flags.name.or(in_file.name),
            slots: flags.slots.or(in_file.slots),
            expiry: flags.expiry.or(in_file.expiry),
            settle: flags.settle.or(in_file.settle),
        };
        Ok((connection, settings, self.estate.clone().over(estate)))
    }
}

/// Runs a bridge until it is stopped.
pub(super) async fn dea_in(global: &Global, args: &DeaInArgs) -> anyhow::Result<Exit> {
    let (connection, settings, estate) = args.merged()?;
    let global = connection.under(global);
    let mut options = nats_options(&global, "", true);
    let name = match settings.name.clone() {
        Some(name) => name,
        None => shared::nats::identity(&options)
            .map_err(Usage::because)?
            .unwrap_or_else(|| DEFAULT_NAME.to_owned()),
    };
    // before anything is said of the connections
    let config = settings.config(name).map_err(|mut invalid| {
        invalid.field = format!("--{}", invalid.field);
        Usage::because(invalid)
    })?;
    let subjects = Subjects::new(global.prefix.as_str()).map_err(Usage::because)?;
    let shutdown = shutdown::on_signals()?;
    options.name = short_name(&config.name);
    options.identity = Some(config.name.clone());
    options.echo = Echo::None;
    let of_estate = estate.options(&short_name(&config.name));
    connection::warn_of_open_files(&options, args.config.as_ref())?;
    connection::warn_of_open_files(&of_estate, args.config.as_ref())?;
    let cluster = connect(&options).await?;
    let estate = connect(&of_estate).await?;
    let ended = advertiser::dea_in::run(config, (estate, cluster), subjects, shutdown).await;
    ended.map_err(|error| match error {
        DeaInError::Config(invalid) => Usage::because(invalid),
        other => other.into(),
    })?;
    tracing::info!("bridge stopped");
    Ok(Exit::Ok)
}
