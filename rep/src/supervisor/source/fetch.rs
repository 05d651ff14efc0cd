//! The step that fetches a source.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_nats::rustls::{self, crypto::ring};
use placement::RunSource;
use rustix::stdio;
use ureq::{
    Agent, Error,
    tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem},
};

/// The most redirects that are followed.
const REDIRECTS: u32 = 5;
/// The longest address, in bytes; those of requests are shorter.
const MAX_URL: u64 = 4_096;
/// The most bytes of additional authorities: together with the address they fit into a pipe, so that writing them never
/// blocks.
const MAX_AUTHORITIES: u64 = 32 << 10;

/// Returns the certificates in a file of authorities.
pub(super) fn read_authorities(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let opened = File::open(file).map_err(|e| e.to_string())?;
    let read = opened.take(MAX_AUTHORITIES + 1).read_to_string(&mut text);
    read.map_err(|e| e.to_string())?;
    if text.len() as u64 > MAX_AUTHORITIES {
        return Err(format!("more than {MAX_AUTHORITIES} bytes"));
    }
    Ok(text)
}

/// Checks that a file of authorities contains a certificate, and nothing that cannot be read.
pub(crate) fn check_authorities(file: &Path) -> Result<(), String> {
    match certificates(&read_authorities(file)?)?.len() {
        0 => Err("no certificate".into()),
        _ => Ok(()),
    }
}

fn certificates(text: &str) -> Result<Vec<Certificate<'static>>, String> {
    let mut found = Vec::new();
    for item in parse_pem(text.as_bytes()) {
        if let PemItem::Certificate(certificate) = item.map_err(|e| e.to_string())? {
            found.push(certificate);
        }
    }
    Ok(found)
}

/// Fetches from the address in the first line of standard input, and writes at most `most_bytes` to standard output.
/// The other lines are certificates of authorities.
pub(super) fn run(most_bytes: u64, timeout: Duration) -> Result<(), String> {
    let mut text = String::new();
    let most = MAX_URL + MAX_AUTHORITIES;
    let read = io::stdin().take(most).read_to_string(&mut text);
    read.map_err(|e| e.to_string())?;
    let (url, authorities) = text.split_once('\n').unwrap_or((text.as_str(), ""));
    let source = RunSource {
        url: url.to_owned(),
        sha256: String::new(),
    };
    let shown = source.shown_url();
    let about = |why: &str| format!("run.source.url: {shown}: {why}");
    let own = certificates(authorities).map_err(|e| format!("--source-ca of the cell: {e}"))?;
    let agent = agent(timeout, own);
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

/// Returns a client that trusts these certificates and those that the system trusts. It takes no proxy from the
/// environment.
fn agent(timeout: Duration, mut roots: Vec<Certificate<'static>>) -> Agent {
    roots.extend(roots_of_the_system());
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
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

fn roots_of_the_system() -> Vec<Certificate<'static>> {
    let found = rustls_native_certs::load_native_certs().certs;
    let own = |der| Certificate::from_der(der).to_owned();
    found.iter().map(|der| own(der.as_ref())).collect()
}

/// Describes an error without any address, as a redirect's address may contain credentials, too.
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
        Error::Rustls(e) => untrusted(e),
        Error::Io(e) => match e.get_ref().and_then(|inner| inner.downcast_ref()) {
            Some(e) => untrusted(e),
            None => format!("{e}; expected a server that answers"),
        },
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

/// Describes a TLS error, which is mostly about the server's certificate.
fn untrusted(error: &rustls::Error) -> String {
    format!(
        "{error}; expected a certificate for this host, of an authority that the cell's system or its --source-ca has"
    )
}

/// Describes why the content ended too early.
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
