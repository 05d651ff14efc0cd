//! Runs a manager.

use std::path::PathBuf;

use serde::Deserialize;
use shared::{
    Subjects,
    nats::{NatsOptions, TlsOptions},
    shutdown,
};
use toml::{Table, Value};

use super::{
    connection::{self, Connection},
    roles::from_table,
};
use crate::{
    cluster::{connect, nats_options, short_name},
    context::{Exit, Global, Usage},
};

#[derive(Debug, clap::Args)]
pub(crate) struct ManagerArgs {
    /// TOML file with settings named like these flags; flags replace what is in it
    #[arg(long, env = "VENDUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Manager name, unique in the cluster [default: the credentials' name, else a random one]
    #[arg(long, env = "VENDUE_MANAGER")]
    name: Option<String>,
    /// The bucket of the apps; NAME-lease and NAME-tasks are beside it [default: PREFIX-apps]
    #[arg(long, env = "VENDUE_BUCKET", value_name = "NAME")]
    bucket: Option<String>,
    /// Number of replicas of new buckets: 1, 3 or 5 [default: 1]
    #[arg(long, env = "VENDUE_REPLICAS", value_name = "COUNT")]
    replicas: Option<u32>,
    #[command(flatten)]
    state: StateArgs,
}

/// The connection to the account that has JetStream, where that is another one.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Connection for the stored state, where it differs")]
#[allow(clippy::struct_field_names)] // each is the name of its flag
struct StateArgs {
    /// Address of the server with JetStream [default: as --nats]
    #[arg(long, env = "VENDUE_STATE_NATS", value_name = "URL")]
    state_nats: Option<String>,
    /// As --context
    #[arg(long, env = "VENDUE_STATE_CONTEXT", value_name = "NAME")]
    state_context: Option<String>,
    /// As --creds
    #[arg(long, env = "VENDUE_STATE_CREDS", value_name = "FILE")]
    state_creds: Option<PathBuf>,
    /// As --nkey
    #[arg(long, env = "VENDUE_STATE_NKEY", value_name = "FILE")]
    state_nkey: Option<PathBuf>,
    /// As --tls-ca [default: as --tls-ca]
    #[arg(long, env = "VENDUE_STATE_TLS_CA", value_name = "FILE")]
    state_tls_ca: Option<PathBuf>,
    /// As --tls-cert
    #[arg(long, env = "VENDUE_STATE_TLS_CERT", value_name = "FILE")]
    state_tls_cert: Option<PathBuf>,
    /// As --tls-key
    #[arg(long, env = "VENDUE_STATE_TLS_KEY", value_name = "FILE")]
    state_tls_key: Option<PathBuf>,
    /// As --tls-first
    #[arg(long, env = "VENDUE_STATE_TLS_FIRST")]
    state_tls_first: bool,
    /// As --inbox-prefix
    #[arg(long, env = "VENDUE_STATE_INBOX_PREFIX", value_name = "SUBJECT")]
    state_inbox_prefix: Option<String>,
}

/// A manager's file, with the flags on top.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ManagerFile {
    name: Option<String>,
    bucket: Option<String>,
    replicas: Option<u32>,
    state_nats: Option<String>,
    state_context: Option<String>,
    state_creds: Option<PathBuf>,
    state_nkey: Option<PathBuf>,
    state_tls_ca: Option<PathBuf>,
    state_tls_cert: Option<PathBuf>,
    state_tls_key: Option<PathBuf>,
    #[serde(default)]
    state_tls_first: bool,
    state_inbox_prefix: Option<String>,
}

impl ManagerArgs {
    /// Returns the given flags as keys of the file.
    fn table(&self) -> Table {
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let path = |path: &Option<PathBuf>| {
            let path = path.as_ref();
            path.map(|path| Value::from(path.display().to_string()))
        };
        let state = &self.state;
        let given = [
            ("name", text(&self.name)),
            ("bucket", text(&self.bucket)),
            ("replicas", self.replicas.map(|n| i64::from(n).into())),
            ("state-nats", text(&state.state_nats)),
            ("state-context", text(&state.state_context)),
            ("state-creds", path(&state.state_creds)),
            ("state-nkey", path(&state.state_nkey)),
            ("state-tls-ca", path(&state.state_tls_ca)),
            ("state-tls-cert", path(&state.state_tls_cert)),
            ("state-tls-key", path(&state.state_tls_key)),
            (
                "state-tls-first",
                state.state_tls_first.then(|| true.into()),
            ),
            ("state-inbox-prefix", text(&state.state_inbox_prefix)),
        ];
        let given = given.into_iter();
        given
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect()
    }
}

impl ManagerFile {
    /// Returns whether the stored state is reached in another way than everything else.
    fn has_own_connection(&self) -> bool {
        self.state_nats.is_some()
            || self.state_context.is_some()
            || self.state_creds.is_some()
            || self.state_nkey.is_some()
            || self.state_tls_ca.is_some()
            || self.state_tls_cert.is_some()
            || self.state_tls_key.is_some()
            || self.state_tls_first
            || self.state_inbox_prefix.is_some()
    }

    /// Returns how the stored state is reached. Credentials are for one account, so those of the first connection are
    /// not mixed with others, but its address and its authorities are used.
    fn state_options(self, first: &NatsOptions) -> NatsOptions {
        let elsewhere = self.state_nats.is_some() || self.state_context.is_some();
        let (url, context) = if elsewhere {
            (self.state_nats.unwrap_or_default(), self.state_context)
        } else {
            (first.url.clone(), first.context.clone())
        };
        NatsOptions {
            url,
            context,
            creds: self.state_creds,
            nkey: self.state_nkey,
            tls: TlsOptions {
                ca: self.state_tls_ca.or_else(|| first.tls.ca.clone()),
                cert: self.state_tls_cert,
                key: self.state_tls_key,
                first: self.state_tls_first || first.tls.first,
            },
            inbox_prefix: self.state_inbox_prefix,
            name: format!("{}-state", first.name),
            patient: true,
            ..NatsOptions::default()
        }
    }
}

/// Turns an invalid configuration into bad usage.
pub(crate) fn manager_error(error: manager::ManagerError) -> anyhow::Error {
    match error {
        manager::ManagerError::Config(invalid) => Usage::because(invalid),
        other => other.into(),
    }
}

/// Runs a manager until it is stopped.
pub(crate) async fn manager(global: &Global, args: &ManagerArgs) -> anyhow::Result<Exit> {
    let (connection, mut table) = match &args.config {
        None => (Connection::default(), Table::new()),
        Some(file) => connection::read(file)?,
    };
    let global = &connection.under(global);
    table.extend(args.table());
    let file: ManagerFile = from_table(table, args.config.as_ref())?;
    let mut options = nats_options(global, "", true);
    let name = match &file.name {
        Some(name) => Some(name.clone()),
        None => shared::nats::identity(&options).map_err(Usage::because)?,
    };
    let name = name.unwrap_or_else(|| short_name("manager"));
    // before any message about the connection
    placement::check_name("--name", &name).map_err(Usage::because)?;
    let subjects = Subjects::new(global.prefix.as_str()).map_err(Usage::because)?;
    let bucket = file.bucket.clone();
    let bucket = manager::BucketConfig {
        name: bucket.unwrap_or_else(|| subjects.apps_bucket()),
        replicas: file.replicas.unwrap_or(1) as usize,
    };
    bucket.check().map_err(Usage::because)?;
    let shutdown = shutdown::on_signals()?;
    options.name = short_name(&name);
    options.identity = Some(name.clone());
    connection::warn_of_open_files(&options, args.config.as_ref())?;
    let state = file
        .has_own_connection()
        .then(|| file.state_options(&options));
    let bus = connect(&options).await?;
    let state = match state {
        Some(options) => {
            connection::warn_of_open_files(&options, None)?;
            connect(&options).await?
        }
        None => bus.clone(),
    };
    tracing::info!(
        name,
        bucket = bucket.name,
        url = bus.url,
        state = state.url,
        "starting manager"
    );
    let config = manager::ManagerConfig { name, bucket };
    let ended = manager::run(config, bus, state, subjects, shutdown).await;
    ended.map_err(manager_error)?;
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> ManagerFile {
        from_table(text.parse().unwrap(), None).unwrap()
    }

    #[test]
    fn credentials_of_the_first_connection_are_not_used_for_the_state() {
        let first = NatsOptions {
            url: "nats://token@one".into(),
            nkey: Some("first.nk".into()),
            tls: TlsOptions {
                ca: Some("ca.pem".into()),
                cert: Some("cert.pem".into()),
                ..TlsOptions::default()
            },
            ..NatsOptions::default()
        };
        let same = file("state-nkey = \"state.nk\"").state_options(&first);
        assert_eq!(
            (same.url.as_str(), same.nkey),
            (first.url.as_str(), Some("state.nk".into()))
        );
        assert_eq!((same.tls.ca, same.tls.cert), (first.tls.ca.clone(), None));
        let other = file("state-context = \"state\"").state_options(&first);
        assert_eq!(
            (other.url.as_str(), other.context.as_deref()),
            ("", Some("state"))
        );
        assert_eq!(other.nkey, None);
        assert!(!file("name = \"m\"").has_own_connection());
    }
}
