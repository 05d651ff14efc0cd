//! Connections with TLS, and the messages when they fail.

use std::{
    fs,
    path::{Path, PathBuf},
};

use base64::prelude::{BASE64_STANDARD, Engine};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use tempfile::TempDir;
use testkit::NatsServer;

use crate::common::{Finished, end, is_old_server, until, vendue};

/// A certificate authority, and the files that it has signed in a directory.
struct Authority {
    files: TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let files = tempfile::tempdir().unwrap();
        fs::write(
            files.path().join("ca.pem"),
            pem("CERTIFICATE", issuer.der()),
        )
        .unwrap();
        Self { files, issuer }
    }

    fn ca(&self) -> PathBuf {
        self.files.path().join("ca.pem")
    }

    /// Signs a certificate for a name; returns it with its key.
    fn sign(&self, name: &str, last_year: i32) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let path = |end: &str| self.files.path().join(format!("{name}-{last_year}.{end}"));
        fs::write(path("pem"), pem("CERTIFICATE", cert.der())).unwrap();
        fs::write(path("key"), pem("PRIVATE KEY", &key.serialize_der())).unwrap();
        (path("pem"), path("key"))
    }

    /// Returns the `tls` block of a server with a certificate for this name.
    fn tls(&self, name: &str, last_year: i32, more: &str) -> String {
        let (cert, key) = self.sign(name, last_year);
        format!(
            "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", {more} }}\n",
            cert.display(),
            key.display(),
            self.ca().display()
        )
    }
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

fn health(url: &str, args: &[&str]) -> Finished {
    let mut command = vendue();
    command.args(["health", "--role", "nats", "--nats", url]);
    end(command.args(args))
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_says_what_to_do() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (ca, wrong) = (authority.ca(), other.ca());
    let right = NatsServer::with_config(&authority.tls("127.0.0.1", 2090, "")).await;
    let url = right.url();
    // the server says that it wants TLS, so the address needs no other scheme
    for address in [url.clone(), url.replace("nats://", "tls://")] {
        health(&address, &["--tls-ca", text(&ca)]).expect(0, &["healthy"]);
    }
    health(&url, &[]).expect(1, &["not from an authority that is trusted", "--tls-ca"]);
    health(&url, &["--tls-ca", text(&wrong)]).expect(1, &["authority", "--tls-ca"]);
    health(&url, &["--tls-ca", text(&ca), "--tls-first"]).expect(1, &["leave out --tls-first"]);
    let by_name = url.replace("127.0.0.1", "localhost");
    health(&by_name, &["--tls-ca", text(&ca)]).expect(1, &["for another name"]);

    let expired = NatsServer::with_config(&authority.tls("127.0.0.1", 2021, "")).await;
    health(&expired.url(), &["--tls-ca", text(&ca)]).expect(1, &["not valid at this time"]);

    let plain = NatsServer::start().await;
    let address = plain.url().replace("nats://", "tls://");
    health(&address, &["--tls-ca", text(&ca)]).expect(1, &["does not speak TLS"]);

    let stern = authority.tls("127.0.0.1", 2090, "verify: true");
    let stern = NatsServer::with_config(&stern).await;
    let said = health(&stern.url(), &["--tls-ca", text(&ca)]);
    // 2.9 does not say which of the two it is
    said.expect(1, &["certificate", "--tls-cert"]);
    let (cert, key) = other.sign("alice", 2090);
    let pair = ["--tls-cert", text(&cert), "--tls-key", text(&key)];
    let said = health(
        &stern.url(),
        &[&["--tls-ca", text(&ca)], &pair[..]].concat(),
    );
    said.expect(1, &["refuses our certificate"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_begins_with_tls() {
    if is_old_server() {
        eprintln!("this nats-server cannot begin with TLS");
        return;
    }
    let authority = Authority::new();
    let tls = authority.tls("127.0.0.1", 2090, "handshake_first: true, timeout: 0.2");
    let server = NatsServer::with_config(&tls).await;
    let (ca, url) = (authority.ca(), server.url());
    let said = health(&url, &["--tls-ca", text(&ca)]);
    said.expect(1, &["--tls-first"]);
    health(&url, &["--tls-ca", text(&ca), "--tls-first"]).expect(0, &[]);
    let mut command = vendue();
    command.args(["health", "--role", "nats"]);
    command.env("NATS_URL", &url).env("NATS_CA", &ca);
    end(command.env("NATS_TLS_FIRST", "true")).expect(0, &[]);
}

/// The certificate alone identifies the user.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_a_user() {
    let authority = Authority::new();
    let config = authority.tls("127.0.0.1", 2090, "verify_and_map: true")
        + "authorization { users: [ { user: \"cell-a\" }, { user: \"alice\" } ] }\n";
    let server = NatsServer::with_config(&config).await;
    let url = server.url();
    let command = |who: &str, args: &[&str]| {
        let (cert, key) = authority.sign(who, 2090);
        let mut command = vendue();
        command.args(args).env("NATS_URL", &url);
        command.env("NATS_CA", authority.ca());
        command.env("NATS_CERT", cert).env("NATS_KEY", key);
        command
    };
    let rep = ["rep", "--cell", "cell-a", "--memory", "64", "--simulated"];
    let _rep = crate::roles::Role::start(&mut command("cell-a", &rep));
    until("the cell to answer", || {
        let said = end(&mut command("alice", &["health", "--role", "rep"]));
        (said.code == Some(0)).then_some(()).ok_or(said.err)
    })
    .await;
    let said = end(&mut command("mallory", &["health", "--role", "nats"]));
    said.expect(1, &["other credentials"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_come_from_flags_the_environment_or_a_context() {
    let authority = Authority::new();
    let config = authority.tls("127.0.0.1", 2090, "verify: true");
    let server = NatsServer::with_config(&config).await;
    let (url, ca) = (server.url(), authority.ca());
    let (cert, key) = authority.sign("alice", 2090);
    let context = authority.files.path().join("mine.json");
    let fields = serde_json::json!({"url": url, "ca": ca, "cert": cert, "key": key});
    fs::write(&context, fields.to_string()).unwrap();
    let mut command = vendue();
    command.args(["health", "--role", "nats", "--context", text(&context)]);
    end(&mut command).expect(0, &["healthy"]);
    // a flag takes precedence over the context
    let (wrong, wrong_key) = Authority::new().sign("alice", 2090);
    let refused = command.args(["--tls-cert", text(&wrong), "--tls-key", text(&wrong_key)]);
    end(refused).expect(2, &["the file of the TLS certificate"]);

    for (args, said) in [
        (&["--tls-ca", "/no/such/ca.pem"][..], "/no/such/ca.pem"),
        (&["--tls-cert", text(&cert)], "without its key"),
        (&["--tls-key", text(&key)], "without its certificate"),
        (&["--nkey", "/no/such/key.nk"], "/no/such/key.nk"),
        (
            &["--context", "/no/such/context.json"],
            "/no/such/context.json",
        ),
        (&["--inbox-prefix", "inbox"], "_INBOX"),
    ] {
        health(&url, args).expect(2, &[said]);
    }
}
