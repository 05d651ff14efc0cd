//! TLS: the files of a connection, and advice when it fails.

use std::{
    error::Error,
    fs::File,
    io,
    path::{Path, PathBuf},
};

use async_nats::{
    ConnectError, ConnectErrorKind, ConnectOptions,
    rustls::{self, AlertDescription, CertificateError},
};

use super::{BusError, ServerOf};

/// How a connection uses TLS. Whether it does is decided by the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// A file with the authorities that sign servers' certificates, as PEM; if none, the system's.
    pub ca: Option<PathBuf>,
    /// A file with our certificate, as PEM.
    pub cert: Option<PathBuf>,
    /// A file with the key of our certificate, as PEM.
    pub key: Option<PathBuf>,
    /// Whether to start with TLS, before the server says anything.
    pub first: bool,
}

impl TlsOptions {
    /// Merges these options with the other's, which apply where these give nothing. A certificate and its key stay
    /// together.
    pub(super) fn or(&self, other: Self) -> Self {
        let own = self.cert.is_some() || self.key.is_some();
        let pair = if own { self } else { &other };
        Self {
            cert: pair.cert.clone(),
            key: pair.key.clone(),
            ca: self.ca.clone().or(other.ca),
            first: self.first || other.first,
        }
    }

    /// Adds these options to a connection's. An error names the file that cannot be read.
    pub(super) fn apply(self, mut connect: ConnectOptions) -> Result<ConnectOptions, BusError> {
        if let Some(ca) = self.ca {
            readable("the file of TLS authorities", &ca)?;
            connect = connect.add_root_certificates(ca).require_tls(true);
        }
        connect = match (self.cert, self.key) {
            (Some(cert), Some(key)) => {
                readable("the file of the TLS certificate", &cert)?;
                readable("the file of the TLS key", &key)?;
                connect.add_client_certificate(cert, key)
            }
            (None, None) => connect,
            (cert, _) => {
                let (there, missing) = match cert {
                    Some(_) => ("certificate", "key"),
                    None => ("key", "certificate"),
                };
                return Err(BusError::Options {
                    what: format!("TLS {there}"),
                    why: format!("given without its {missing}; expected both files"),
                });
            }
        };
        Ok(if self.first {
            connect.tls_first()
        } else {
            connect
        })
    }
}

fn readable(what: &str, file: &Path) -> Result<(), BusError> {
    let opened = File::open(file).map(drop);
    opened.map_err(|e| BusError::Options {
        what: format!("{what} {}", file.display()),
        why: e.to_string(),
    })
}

/// Returns what may help when a connection fails; `first` tells whether it started with TLS.
pub(super) fn advice(error: &ConnectError, first: bool, of: ServerOf) -> &'static str {
    if let Some(tls) = tls_error(error) {
        return tls_advice(tls, first);
    }
    let text = error.to_string();
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication
            if of == ServerOf::Deas =>
        {
            "the server wants other credentials: put them into the address \
             (--dea-server nats://USER:PASSWORD@HOST:PORT), or use --dea-nkey, --dea-creds or --dea-context"
        }
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            "the server wants other credentials: put the token into the address \
             (--nats nats://TOKEN@HOST:PORT), or use --nkey, --creds or --context"
        }
        ConnectErrorKind::Tls => {
            "check the files of --tls-ca, --tls-cert and --tls-key, or those of the context"
        }
        // it waits for us to begin, and then gives up
        ConnectErrorKind::Io if text.contains("expected INFO, got nothing") => {
            "the server says nothing: if it begins with TLS, use --tls-first (tls_first in a context)"
        }
        ConnectErrorKind::TimedOut => {
            "the server says nothing: if it begins with TLS, use --tls-first (tls_first in a context); \
             else check the address"
        }
        _ if of == ServerOf::Deas => {
            "is the NATS server of the DEAs running there? --dea-server or VENDUE_DEA_SERVER says where it is"
        }
        _ => {
            "is a NATS server running there? `vendue up` starts one with a whole cluster; \
             --nats or NATS_URL says where another is"
        }
    }
}

fn tls_advice(error: &rustls::Error, first: bool) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => {
                "the server's certificate is not valid at this time: renew it, or correct this machine's clock"
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "the server's certificate is for another name: use that one in the address"
            }
            _ => {
                "the server's certificate is not from an authority that is trusted here: \
                 --tls-ca (NATS_CA, ca in a context) names the file of the right one"
            }
        },
        rustls::Error::AlertReceived(
            AlertDescription::CertificateRequired | AlertDescription::NoCertificate,
        ) => {
            "the server wants a certificate of the client: --tls-cert and --tls-key \
             (NATS_CERT and NATS_KEY, cert and key in a context)"
        }
        rustls::Error::AlertReceived(_) => {
            "the server refuses our certificate, or wants one: check --tls-cert and --tls-key"
        }
        _ if first => "the server does not begin with TLS: leave out --tls-first",
        _ => "the server does not speak TLS: an address without tls://, and no --tls-ca",
    }
}

/// Returns the TLS library's error, from anywhere in the chain.
fn tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        // the source of an I/O error skips the error that it wraps
        let held = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .and_then(|held| held.downcast_ref::<rustls::Error>());
        let found = held.or_else(|| error.downcast_ref());
        if found.is_some() {
            return found;
        }
        next = error.source();
    }
    None
}
