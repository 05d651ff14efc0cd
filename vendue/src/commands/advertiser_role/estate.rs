//! The connection to an estate: a different server than the cluster's, with its own credentials.

use std::path::PathBuf;

use serde::Deserialize;
use shared::nats::{Echo, NatsOptions, ServerOf, TlsOptions};

/// How the estate's server is reached.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[command(next_help_heading = "Connection to the DEAs")]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
#[allow(clippy::struct_field_names)] // each is the name of its flag
pub(super) struct EstateArgs {
    /// Address of the NATS server of the DEAs: nats://USER:PASSWORD@HOST:PORT [default: nats://127.0.0.1:4222]
    #[arg(
        long,
        env = "VENDUE_DEA_SERVER",
        value_name = "URL",
        hide_env_values = true
    )]
    dea_server: Option<String>,
    /// As --context
    #[arg(long, env = "VENDUE_DEA_CONTEXT", value_name = "NAME")]
    dea_context: Option<String>,
    /// As --creds
    #[arg(long, env = "VENDUE_DEA_CREDS", value_name = "FILE")]
    dea_creds: Option<PathBuf>,
    /// As --nkey
    #[arg(long, env = "VENDUE_DEA_NKEY", value_name = "FILE")]
    dea_nkey: Option<PathBuf>,
    /// As --tls-ca
    #[arg(long, env = "VENDUE_DEA_TLS_CA", value_name = "FILE")]
    dea_tls_ca: Option<PathBuf>,
    /// As --tls-cert
    #[arg(long, env = "VENDUE_DEA_TLS_CERT", value_name = "FILE")]
    dea_tls_cert: Option<PathBuf>,
    /// As --tls-key
    #[arg(long, env = "VENDUE_DEA_TLS_KEY", value_name = "FILE")]
    dea_tls_key: Option<PathBuf>,
}

impl EstateArgs {
    /// Its keys in a file.
    pub(super) const KEYS: [&'static str; 7] = [
        "dea-server",
        "dea-context",
        "dea-creds",
        "dea-nkey",
        "dea-tls-ca",
        "dea-tls-cert",
        "dea-tls-key",
    ];

    /// Returns these settings on top of those of a file.
    pub(super) fn over(self, file: Self) -> Self {
        Self {
            dea_server: self.dea_server.or(file.dea_server),
            dea_context: self.dea_context.or(file.dea_context),
            dea_creds: self.dea_creds.or(file.dea_creds),
            dea_nkey: self.dea_nkey.or(file.dea_nkey),
            dea_tls_ca: self.dea_tls_ca.or(file.dea_tls_ca),
            dea_tls_cert: self.dea_tls_cert.or(file.dea_tls_cert),
            dea_tls_key: self.dea_tls_key.or(file.dea_tls_key),
        }
    }

    /// Returns the connection options. Nothing of the cluster's connection is used, as credentials are for one server.
    pub(super) fn options(&self, name: &str) -> NatsOptions {
        NatsOptions {
            url: self.dea_server.clone().unwrap_or_default(),
            of: ServerOf::Deas,
            context: self.dea_context.clone(),
            creds: self.dea_creds.clone(),
            nkey: self.dea_nkey.clone(),
            tls: TlsOptions {
                ca: self.dea_tls_ca.clone(),
                cert: self.dea_tls_cert.clone(),
                key: self.dea_tls_key.clone(),
                ..TlsOptions::default()
            },
            name: format!("{name}-estate"),
            patient: true,
            // it knows what it said itself
            echo: Echo::None,
            ..NatsOptions::default()
        }
    }
}
