//! A web server with TLS and its own certificate authority, and instances made from its content.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    sync::Arc,
    thread,
    time::Duration,
};

use async_nats::rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use base64::prelude::{BASE64_STANDARD, Engine};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rep::{ExecutorKind, RepConfig};
use shared::wire::InstanceState;
use testkit::NatsServer;

use crate::{
    apart::open_directory,
    harness::{Cell, process_config},
    sources::{ended, sum, task},
};

const BODY: &[u8] = b"#!/bin/sh\nexit 5\n";

/// Answers every request over TLS with [`BODY`]; returns the port and the authority's certificate. It runs until the
/// test program ends.
fn serve() -> (u16, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let config = Arc::clone(&config);
            thread::spawn(move || answer(stream.unwrap(), config));
        }
    });
    let text = BASE64_STANDARD.encode(authority.der());
    (
        port,
        format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"),
    )
}

fn answer(stream: TcpStream, config: Arc<ServerConfig>) {
    let connection = ServerConnection::new(config).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        // a client that does not trust the certificate disconnects
        if !matches!(stream.read(&mut byte), Ok(1)) {
            return;
        }
        request.push(byte[0]);
    }
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        BODY.len()
    );
    let _ = stream.write_all(&[head.as_bytes(), BODY].concat());
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

fn trusting(file: Option<PathBuf>) -> RepConfig {
    let mut config = process_config("a");
    if let ExecutorKind::Process(process) = &mut config.executor {
        process.source_timeout = placement::Span(Duration::from_secs(60));
        process.source_ca = file;
    }
    config
}

#[tokio::test]
async fn a_server_of_an_authority_that_the_cell_was_told_of_is_trusted() {
    let server = NatsServer::start().await;
    let (port, authority) = serve();
    let files = open_directory();
    let ca = files.path().join("ca.pem");
    fs::write(&ca, authority).unwrap();
    let work = || {
        let url = format!("https://127.0.0.1:{port}/run");
        task(&["./source"], url, sum(BODY))
    };
    let cell = Cell::start(&server, trusting(Some(ca))).await;
    let done = ended(&cell, work()).await;
    assert_eq!(done.ended.as_deref(), Some("exit 5"));
    cell.end().await;
    let cell = Cell::start(&server, trusting(None)).await;
    let refused = ended(&cell, work()).await;
    assert_eq!(refused.state, InstanceState::Crashed);
    let why = refused.ended.unwrap();
    let said = format!("run.source.url: https://127.0.0.1:{port}/run: ");
    assert!(
        why.starts_with(&said) && why.contains("--source-ca"),
        "{why}"
    );
    cell.end().await;
}

#[test]
fn a_file_without_certificates_is_refused_at_the_start() {
    let files = open_directory();
    for (name, text) in [
        ("none.pem", Some("no certificate")),
        (
            "broken.pem",
            Some("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"),
        ),
        ("long.pem", Some(&*"x".repeat(40_000))),
        ("nosuch.pem", None),
    ] {
        let path = files.path().join(name);
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        let error = rep::validate(&trusting(Some(path))).unwrap_err();
        let error = format!("{error:?}");
        assert!(error.contains(name), "{error}");
    }
}
