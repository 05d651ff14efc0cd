//! What `dea-in` and `dea-out` have in common before they run: a file of settings, a name, the connections to both
//! sides.

use std::path::PathBuf;

use placement::Invalid;
use serde::de::DeserializeOwned;
use shared::{
    Subjects,
    nats::{Bus, Echo, NatsOptions},
    shutdown::{self, CancellationToken},
};
use toml::Table;

use super::estate::EstateArgs;
use crate::{
    cluster::{connect, nats_options, short_name},
    commands::{
        connection::{self, Connection},
        roles::from_table,
    },
    context::{Global, Usage},
};

/// Reads a file: how the cluster is reached, the settings of these names, and how the estate is reached.
pub(super) fn read_file<T: DeserializeOwned + Default>(
    file: Option<&PathBuf>,
    names: &[&str],
) -> anyhow::Result<(Connection, T, EstateArgs)> {
    let Some(path) = file else {
        return Ok(Default::default());
    };
    let (connection, mut table) = connection::read::<Table>(path)?;
    let own = names.iter().filter_map(|name| table.remove_entry(*name));
    let own = from_table(own.collect(), file)?;
    // what is left belongs to the estate or is unknown
    if let Some(unknown) = table
        .keys()
        .find(|key| !EstateArgs::KEYS.contains(&key.as_str()))
    {
        let known: Vec<&str> = names.iter().copied().chain(EstateArgs::KEYS).collect();
        return Err(Usage::because(format_args!(
            "{}: unknown field {unknown:?}; expected one of {}, or a flag of the connection to the cluster such as nats",
            path.display(),
            known.join(", ")
        )));
    }
    Ok((connection, own, from_table(table, file)?))
}

/// Returns the error for an invalid setting, naming its flag.
pub(super) fn invalid_flag(mut invalid: Invalid) -> anyhow::Error {
    invalid.field = format!("--{}", invalid.field);
    Usage::because(invalid)
}

/// Connections to both sides.
pub(super) struct Ends {
    pub(super) estate: Bus,
    pub(super) cluster: Bus,
    pub(super) subjects: Subjects,
    pub(super) shutdown: CancellationToken,
}

/// How both sides are reached.
pub(super) struct Ways<'a> {
    cluster: NatsOptions,
    estate: EstateArgs,
    prefix: String,
    file: Option<&'a PathBuf>,
}

impl<'a> Ways<'a> {
    /// Combines the flags with the file, which supplies what the flags leave open.
    pub(super) fn new(
        global: &Global,
        in_file: Connection,
        estate: EstateArgs,
        file: Option<&'a PathBuf>,
    ) -> Self {
        let global = in_file.under(global);
        Self {
            cluster: nats_options(&global, "", true),
            estate,
            prefix: global.prefix,
            file,
        }
    }

    /// Returns the given name, else that of the credentials for the cluster, else the default.
    pub(super) fn name(&self, given: Option<&String>, default: &str) -> anyhow::Result<String> {
        if let Some(given) = given {
            return Ok(given.clone());
        }
        let of_credentials = shared::nats::identity(&self.cluster).map_err(Usage::because)?;
        Ok(of_credentials.unwrap_or_else(|| default.to_owned()))
    }

    /// Connects to both sides under this name.
    pub(super) async fn connect(mut self, name: &str) -> anyhow::Result<Ends> {
        let subjects = Subjects::new(self.prefix).map_err(Usage::because)?;
        let shutdown = shutdown::on_signals()?;
        self.cluster.name = short_name(name);
        self.cluster.identity = Some(name.to_owned());
        self.cluster.echo = Echo::None;
        let of_estate = self.estate.options(&short_name(name));
        for options in [&self.cluster, &of_estate] {
            connection::warn_of_open_files(options, self.file)?;
        }
        Ok(Ends {
            cluster: connect(&self.cluster).await?,
            estate: connect(&of_estate).await?,
            subjects,
            shutdown,
        })
    }
}
