//! `advertiser dea-out`: makes DEAs of an estate from cells.

use std::path::PathBuf;

use advertiser::dea_out::{DeaOutConfig, DeaOutError};
use placement::Span;
use serde::Deserialize;
use shared::{clock::millis, size::parse_mib};

use super::{
    ends::{self, Ways},
    estate::EstateArgs,
};
use crate::{
    commands::rep_role::settings::{size, span},
    context::{Exit, Global, Usage},
};

/// The settings of the facades, as flags and as keys of their file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct DeaOutSettings {
    /// Name of the program in the cluster [default: the credentials' name, else dea-out]
    #[arg(long, env = "VENDUE_FACADE")]
    name: Option<String>,
    /// Cells to make DEAs of; each must have the attribute `droplets`
    #[arg(long, env = "VENDUE_CELLS", value_name = "CELL", value_delimiter = ',')]
    cells: Vec<String>,
    /// How often a DEA advertises [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    advertise: Option<Span>,
    /// How often a DEA sends a heartbeat [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    heartbeat: Option<Span>,
    /// How often the routes of an instance are registered [default: 20s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    register: Option<Span>,
    /// Longest ttl of a cell's advertisement that is believed [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = span)]
    max_ttl: Option<Span>,
    /// Least memory that the staging of an app takes [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_mib)]
    #[serde(deserialize_with = "size")]
    staging_memory: Option<i64>,
    /// Least disk that the staging of an app takes [default: 2G]
    #[arg(long, value_name = "SIZE", value_parser = parse_mib)]
    #[serde(deserialize_with = "size")]
    staging_disk: Option<i64>,
    /// How long the staging of an app may take [default: 15m]
    #[arg(long, value_name = "TIME", value_parser = span)]
    staging_time: Option<Span>,
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

/// The keys of a file besides its connections to the cluster and the estate.
const KEYS: [&str; 9] = [
    "name",
    "cells",
    "advertise",
    "heartbeat",
    "register",
    "max-ttl",
    "staging-memory",
    "staging-disk",
    "staging-time",
];
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
        set(&mut config.max_ttl_ms, self.max_ttl);
        set(&mut config.staging_ms, self.staging_time);
        let set = |mb: &mut i64, given: Option<i64>| *mb = given.unwrap_or(*mb);
        set(&mut config.staging_memory_mb, self.staging_memory);
        set(&mut config.staging_disk_mb, self.staging_disk);
        config.check()?;
        Ok(config)
    }
}

impl DeaOutArgs {
    /// Returns the flags on top of the settings in the file.
    fn settings(&self, in_file: DeaOutSettings) -> DeaOutSettings {
        let flags = self.settings.clone();
        let given = Some(flags.cells).filter(|cells| !cells.is_empty());
        DeaOutSettings {
            name: flags.name.or(in_file.name),
            cells: given.unwrap_or(in_file.cells),
            advertise: flags.advertise.or(in_file.advertise),
            heartbeat: flags.heartbeat.or(in_file.heartbeat),
            register: flags.register.or(in_file.register),
            max_ttl: flags.max_ttl.or(in_file.max_ttl),
            staging_memory: flags.staging_memory.or(in_file.staging_memory),
            staging_disk: flags.staging_disk.or(in_file.staging_disk),
            staging_time: flags.staging_time.or(in_file.staging_time),
        }
    }
}

/// Makes DEAs of cells until it is stopped.
pub(super) async fn dea_out(global: &Global, args: &DeaOutArgs) -> anyhow::Result<Exit> {
    let file = args.config.as_ref();
    let (connection, in_file, estate) = ends::read_file(file, &KEYS)?;
    let settings = args.settings(in_file);
    let ways = Ways::new(global, connection, args.estate.clone().over(estate), file);
    let name = ways.name(settings.name.as_ref(), DEFAULT_NAME)?;
    let config = settings.config(&name).map_err(ends::invalid_flag)?;
    let ends = ways.connect(&name).await?;
    let sides = (ends.estate, ends.cluster);
    let ended = advertiser::dea_out::run(config, sides, ends.subjects, ends.shutdown).await;
    ended.map_err(|error| match error {
        DeaOutError::Config(invalid) => Usage::because(invalid),
        other => other.into(),
    })?;
    tracing::info!("facades stopped");
    Ok(Exit::Ok)
}
