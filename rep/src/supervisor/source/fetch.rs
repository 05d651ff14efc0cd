//! The step that fetches a source.

use std::{
    fs::File,
    io::{self, Read},
    sync::Arc,
    time::Duration,
};

use async_nats::rustls::crypto::ring;
use placement::RunSource;
use rustix::stdio;
use ureq::{
    Agent, Error,
    tls::{Certificate, RootCerts, TlsConfig},
};

/// The most redirects.
const REDIRECTS: u32 = 5;
/// The longest address, bytes; requests have shorter ones.
const MAX_URL: u64 = 4_096;

/// Writes what is at the address on standard input, of so many bytes at most, to standard output.
pub(super) fn run(most_bytes: u64, timeout: Duration) -> Result<(), String> {
    let mut url = String::new();
    let read = io::stdin().take(MAX_URL).read_to_string(&mut url);
    read.map_err(|e| e.to_string())?;
    let source = RunSource {
        url,
        sha256: String::new(),
    };
    let shown = source.shown_url();
    let about = |why: &str| format!("run.source.url: {shown}: {why}");
    let agent = agent(timeout);
    let response = agent.get(&source.url).call();
    let mut response = response.map_err(|e| about(&said(&e)))?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(about(&format!("HTTP {status}; expected 200")));
    }
    let stdout = stdio::stdout().try_clone_to_owned();
    let mut to = File::from(stdout.map_err(|e| e.to_string())?);
    let body = response.body_mut().as_reader();
    let copied = io::copy(&mut body.take(most_bytes + 1), &mut to);
    let copied = copied.map_err(|e| about(&cut_off(e)))?;
    if copied > most_bytes {
        let mib = most_bytes >> 20;
        let text = format!(
            "more than {mib} MiB; expected at most the instance's disk limit: ask for more disk_mb"
        );
        return Err(about(&text));
    }
    Ok(())
}

/// Trusts the certificates that the system trusts. Nothing of the environment chooses a proxy.
fn agent(timeout: Duration) -> Agent {
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots()))
        .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
    let config = Agent::config_builder()
        .max_redirects(REDIRECTS)
        .http_status_as_error(false)
        .timeout_global(Some(timeout))
        .proxy(None)
        .tls_config(tls.build())
        .user_agent(concat!("vendue/", env!("CARGO_PKG_VERSION")))
        .build();
    Agent::new_with_config(config)
}

fn roots() -> Vec<Certificate<'static>> {
    let found = rustls_native_certs::load_native_certs().certs;
    let own = |der| Certificate::from_der(der).to_owned();
    found.iter().map(|der| own(der.as_ref())).collect()
}

/// What went wrong, without any address: a redirect's may have credentials, too.
fn said(error: &Error) -> String {
    match error {
        Error::TooManyRedirects => {
            format!("more than {REDIRECTS} redirects; expected {REDIRECTS} at most")
        }
        Error::HostNotFound => {
            "its host is not known; expected one that the cell can resolve".into()
        }
        Error::Timeout(_) => {
            "not there in time; expected a faster server, or a longer --source-timeout of the cell"
                .into()
        }
        Error::Io(e) => format!("{e}; expected a server that answers"),
        Error::BadUri(_) => "an address that is none; expected http or https".into(),
        other => {
            let text = other.to_string();
            if text.contains("://") {
                "cannot be fetched".into()
            } else {
                text
            }
        }
    }
}

/// Why the content ended too early.
fn cut_off(error: io::Error) -> String {
    let text = error.to_string();
    match error
        .into_inner()
        .and_then(|inner| inner.downcast::<Error>().ok())
    {
        Some(inner) => said(&inner),
        None => text,
    }
}
