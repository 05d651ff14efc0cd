//! How a role reaches NATS, as the file with its settings may specify it.

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use shared::nats::{self, NatsOptions};
use toml::{
    Spanned, Table,
    de::{DeTable, Deserializer},
};

use crate::context::{Global, Usage};

/// Each key is the flag of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Connection {
    nats: Option<String>,
    prefix: Option<String>,
    context: Option<String>,
    creds: Option<PathBuf>,
    nkey: Option<PathBuf>,
    tls_ca: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    tls_first: bool,
    inbox_prefix: Option<String>,
}

const DEFAULT_PREFIX: &str = "vendue";

impl Connection {
    /// Returns every key, with its default or an example.
    pub(crate) fn example() -> Self {
        let text = |text: &str| Some(text.to_owned());
        let path = |path: &str| Some(PathBuf::from(path));
        Self {
            nats: text("nats://127.0.0.1:4222"),
            prefix: text(DEFAULT_PREFIX),
            context: text("cell-a"),
            creds: path("/etc/vendue/cell-a.creds"),
            nkey: path("/etc/vendue/cell-a.nk"),
            tls_ca: path("/etc/vendue/ca.pem"),
            tls_cert: path("/etc/vendue/cell-a.pem"),
            tls_key: path("/etc/vendue/cell-a.key"),
            tls_first: true,
            inbox_prefix: text("_INBOX.cell-a"),
        }
    }

    /// Returns the keys that are set as a table.
    pub(crate) fn table(&self) -> anyhow::Result<Table> {
        Ok(Table::try_from(self)?)
    }

    /// Returns these settings with the flags on top.
    pub(crate) fn with_flags(self, global: &Global) -> Self {
        let flags = global.clone();
        let prefix = Some(flags.prefix).filter(|prefix| prefix != DEFAULT_PREFIX);
        Self {
            nats: flags.nats.or(self.nats),
            prefix: prefix.or(self.prefix),
            context: flags.context.or(self.context),
            creds: flags.creds.or(self.creds),
            nkey: flags.nkey.or(self.nkey),
            tls_ca: flags.tls_ca.or(self.tls_ca),
            tls_cert: flags.tls_cert.or(self.tls_cert),
            tls_key: flags.tls_key.or(self.tls_key),
            tls_first: flags.tls_first || self.tls_first,
            inbox_prefix: flags.inbox_prefix.or(self.inbox_prefix),
        }
    }

    /// Returns the effective settings: the flags, else the environment, else these. A context named by a flag brings
    /// its own settings, and one in the file is not used for a server named elsewhere.
    pub(crate) fn under(self, global: &Global) -> Global {
        let mut all = global.clone();
        if all.prefix == DEFAULT_PREFIX {
            all.prefix = self.prefix.unwrap_or(all.prefix);
        }
        if global.context.is_some() {
            return all;
        }
        let tls = global.tls();
        let elsewhere = global.url().is_some();
        all.nats = global.url().or(self.nats);
        all.creds = global.creds().or(self.creds);
        all.nkey = global.nkey().or(self.nkey);
        all.tls_ca = tls.ca.or(self.tls_ca);
        // a certificate and its key belong together
        let own = tls.cert.is_some() || tls.key.is_some();
        (all.tls_cert, all.tls_key) = if own {
            (tls.cert, tls.key)
        } else {
            (self.tls_cert, self.tls_key)
        };
        all.tls_first = tls.first || self.tls_first;
        all.inbox_prefix = global.inbox_prefix().or(self.inbox_prefix);
        all.context = self.context.filter(|_| !elsewhere);
        all
    }
}

/// Warns of files with the role's secrets that every user of the machine may read, as instances run as users of it. The
/// settings file is one of them if its address contains a token or a password.
pub(crate) fn warn_of_open_files(
    options: &NatsOptions,
    settings: Option<&PathBuf>,
) -> anyhow::Result<()> {
    let mut files = nats::secret_files(options).map_err(Usage::because)?;
    files.extend(settings.filter(|_| options.url.contains('@')).cloned());
    for file in files.iter().filter(|file| nats::is_open_to_all(file)) {
        let file = file.display();
        tracing::warn!(%file, "every user of this machine can read the file with our credentials: chmod 600 {file}");
    }
    Ok(())
}

/// Reads a role's file: how it reaches NATS, and its own settings. An error shows the line.
pub(crate) fn read<T: DeserializeOwned>(file: &Path) -> anyhow::Result<(Connection, T)> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string());
    let text = text.map_err(|e| Usage::because(format_args!("{e:#}")))?;
    parse(&text).map_err(|mut error| {
        error.set_input(Some(&text));
        let error = error.to_string();
        Usage::because(format_args!("{}: {}", file.display(), error.trim_end()))
    })
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<(Connection, T), toml::de::Error> {
    let mut settings = DeTable::parse(text)?;
    let mut of_connection = DeTable::new();
    for key in Connection::example().table().unwrap_or_default().keys() {
        of_connection.extend(settings.get_mut().remove_entry(key.as_str()));
    }
    let of_connection = Spanned::new(settings.span(), of_connection);
    let connection = Connection::deserialize(Deserializer::from(of_connection))?;
    Ok((connection, T::deserialize(Deserializer::from(settings))?))
}
