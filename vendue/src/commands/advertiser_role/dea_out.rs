//! `advertiser dea-out`: cells as DEAs of an estate.

use std::path::PathBuf;

use advertiser::dea_out::{DeaOutConfig, DeaOutError};
use placement::Span;
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

/// The settings of the facades, as flags and as keys of their file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct DeaOutSettings {
    /// Name in the cluster [default: the credentials' name, else dea-out]
    #[arg(long, env = "VENDUE_FACADE")]
    name: Option<String>,
    /// The cells of which DEAs are made; each must run droplets (its attribute `droplets`)
    #[arg(long, env = "VENDUE_CELLS", value_name = "CELL", value_delimiter = ',')]
    cells: Vec<String>,
    /// How often a DEA advertises [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    advertise: Option<Span>,
    /// How often a DEA sends a heartbeat [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    heartbeat: Option<Span>,
    /// How often routers are told of an instance [default: 20s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    register: Option<Span>,
}

#[derive(Debug, clap::Args)]
pub(super) struct DeaOutArgs {
    /// TOML file with settings named like these flags; flags replace what is in it
    #[arg(long, env = "VENDUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    settings: DeaOutSettings,
    #[command(flatten)]
    estate: EstateArgs,
}

/// What a file may hold besides its connection to the cluster and that to the estate.
const KEYS: [&str; 5] = ["name", "cells", "advertise", "heartbeat", "register"];
const DEFAULT_NAME: &str = "dea-out";

impl DeaOutSettings {
    fn config(&self, name: &str) -> Result<DeaOutConfig, placement::Invalid> {
        let mut config = DeaOutConfig::new(name, self.cells.clone());
        let set = |ms: &mut u64, given: Option<Span>| {
            *ms = given.map_or(*ms, |span: Span| millis(span.0));
        };
        set(&mut config.advertise_ms, self.advertise);
        set(&mut config.heartbeat_ms, self.heartbeat);
        set(&mut config.register_ms, self.register);
        config.check()?;
        Ok(config)
    }
}

impl DeaOutArgs {
    fn merged(&self) -> anyhow::Result<(Connection, DeaOutSettings, EstateArgs)> {
        let Some(file) = &self.config else {
            let (settings, estate) = (self.settings.clone(), self.estate.clone());
            return Ok((Connection::default(), settings, estate));
        };
        let (connection, mut table) = connection::read::<Table>(file)?;
        let own: Table = KEYS
            .iter()
            .filter_map(|key| table.remove_entry(*key))
            .collect();
        let in_file: DeaOutSettings = from_table(own, self.config.as_ref())?;
        // what is left is of the estate, or unknown
        let estate: EstateArgs = from_table(table, self.config.as_ref())?;
        let flags = self.settings.clone();
        let given = Some(flags.cells).filter(|cells| !cells.is_empty());
        let settings = DeaOutSettings {
            name: flags.name.or(in_file.name),
            cells: given.unwrap_or(in_file.cells),
            advertise: flags.advertise.or(in_file.advertise),
            heartbeat: flags.heartbeat.or(in_file.heartbeat),
            register: flags.register.or(in_file.register),
        };
        Ok((connection, settings, self.estate.clone().over(estate)))
    }
}

/// Makes cells DEAs until it is stopped.
pub(super) async fn dea_out(global: &Global, args: &DeaOutArgs) -> anyhow::Result<Exit> {
    let (connection, settings, estate) = args.merged()?;
    let global = connection.under(global);
    let mut options = nats_options(&global, "", true);
    let name = match settings.name.clone() {
        Some(name) => name,
        None => shared::nats::identity(&options)
            .map_err(Usage::because)?
            .unwrap_or_else(|| DEFAULT_NAME.to_owned()),
    };
    let config = settings.config(&name).map_err(|mut invalid| {
        invalid.field = format!("--{}", invalid.field);
        Usage::because(invalid)
    })?;
    let subjects = Subjects::new(global.prefix.as_str()).map_err(Usage::because)?;
    let shutdown = shutdown::on_signals()?;
    options.name = short_name(&name);
    options.identity = Some(name.clone());
    options.echo = Echo::None;
    let of_estate = estate.options(&short_name(&name));
    connection::warn_of_open_files(&options, args.config.as_ref())?;
    connection::warn_of_open_files(&of_estate, args.config.as_ref())?;
    let cluster = connect(&options).await?;
    let estate = connect(&of_estate).await?;
    let ended = advertiser::dea_out::run(config, (estate, cluster), subjects, shutdown).await;
    ended.map_err(|error| match error {
        DeaOutError::Config(invalid) => Usage::because(invalid),
        other => other.into(),
    })?;
    tracing::info!("facades stopped");
    Ok(Exit::Ok)
}
