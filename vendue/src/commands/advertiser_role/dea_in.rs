//! `advertiser dea-in`: makes cells of the DEAs of an estate.

use std::{path::PathBuf, time::Duration};

use advertiser::dea_in::{DeaInConfig, DeaInError};
use placement::{Invalid, Span};
use serde::Deserialize;
use shared::clock::millis;

use super::{
    ends::{self, Ways},
    estate::EstateArgs,
};
use crate::{
    commands::rep_role::settings::span,
    context::{Exit, Global, Usage},
};

/// The settings of a bridge, as flags and as keys of its file.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct DeaInSettings {
    /// Name of the bridge; its cells are NAME-0, NAME-1 and so on [default: the credentials' name, else dea]
    #[arg(long, env = "VENDUE_BRIDGE")]
    name: Option<String>,
    /// How many cells there are at most; not more than `auth add-bridge` was given [default: 100]
    #[arg(long, env = "VENDUE_SLOTS", value_name = "COUNT")]
    slots: Option<usize>,
    /// How long an advertisement of a DEA is valid, in whole seconds; many Cloud Controllers were deployed with 15s
    /// [default: 10s]
    #[arg(long, env = "VENDUE_EXPIRY", value_name = "TIME", value_parser = span)]
    expiry: Option<Span>,
    /// How long after its start a bridge makes cells only of DEAs whose heartbeats name the cell that they were; a
    /// little longer than the heartbeat interval of DEAs [default: 11s]
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

/// The keys of a bridge's file besides its connection to the cluster.
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
    /// Returns the flags on top of the settings in the file.
    fn settings(&self, in_file: DeaInSettings) -> DeaInSettings {
        let flags = self.settings.clone();
        DeaInSettings {
            name: flags.name.or(in_file.name),
            slots: flags.slots.or(in_file.slots),
            expiry: flags.expiry.or(in_file.expiry),
            settle: flags.settle.or(in_file.settle),
        }
    }
}

/// Runs a bridge until it is stopped.
pub(super) async fn dea_in(global: &Global, args: &DeaInArgs) -> anyhow::Result<Exit> {
    let file = args.config.as_ref();
    let (connection, in_file, estate) = ends::read_file(file, &KEYS)?;
    let settings = args.settings(in_file);
    let ways = Ways::new(global, connection, args.estate.clone().over(estate), file);
    let name = ways.name(settings.name.as_ref(), DEFAULT_NAME)?;
    // before any message about the connections
    let config = settings.config(name).map_err(ends::invalid_flag)?;
    let ends = ways.connect(&config.name).await?;
    let sides = (ends.estate, ends.cluster);
    let ended = advertiser::dea_in::run(config, sides, ends.subjects, ends.shutdown).await;
    ended.map_err(|error| match error {
        DeaInError::Config(invalid) => Usage::because(invalid),
        other => other.into(),
    })?;
    tracing::info!("bridge stopped");
    Ok(Exit::Ok)
}
