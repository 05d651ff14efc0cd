//! What a role logs about its connection to NATS.

#![allow(clippy::unwrap_used)] // a test may panic

use std::{cell::RefCell, io, net::TcpListener, sync::Once};

use futures_util::StreamExt;
use shared::nats::{Echo, NatsOptions, connect};
use testkit::{NatsServer, eventually};

thread_local! {
    /// What our own code has logged on this thread; each test and its tasks have a thread of their own.
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Log;

impl io::Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(line))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps what is logged from now on. One subscriber serves all tests, because per-thread subscribers miss lines while
/// others come and go.
fn keep_log() {
    static KEPT: Once = Once::new();
    KEPT.call_once(|| {
        let filter = tracing_subscriber::EnvFilter::new("info,async_nats=off");
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(false)
            .with_writer(|| Log)
            .init();
    });
}

fn log_lines() -> Vec<String> {
    let text = LOG.with_borrow(|log| String::from_utf8(log.clone()).unwrap());
    text.lines().map(str::to_owned).collect()
}

fn role(url: String) -> NatsOptions {
    NatsOptions {
        url,
        name: "role".into(),
        patient: true,
        ..NatsOptions::default()
    }
}

#[tokio::test]
async fn a_role_logs_a_missing_server_at_once() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    keep_log();
    let bus = connect(&role(format!("nats://secret@127.0.0.1:{port}"))).await;
    bus.unwrap();
    let lines = log_lines();
    let [line] = lines.as_slice() else {
        panic!("one line at once: {lines:?}");
    };
    let address = format!("nats://127.0.0.1:{port}");
    for part in [
        "cannot connect to NATS",
        &address,
        "refused",
        "is a NATS server running",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert!(!line.contains("secret"), "{line}");
}

#[tokio::test]
async fn a_role_logs_connects_and_disconnects() {
    let mut server = NatsServer::start().await;
    keep_log();
    let bus = connect(&role(server.url())).await.unwrap();
    let mut connected = bus.connected.clone();
    connected.wait_for(|up| *up).await.unwrap();
    let says = async |text: &str| {
        eventually(text, async || {
            let lines = log_lines();
            let there = lines.iter().any(|line| line.contains(text));
            there.then_some(()).ok_or_else(|| lines.join("\n"))
        })
        .await;
    };
    says("connected to NATS").await;
    server.stop();
    says("NATS disconnected; reconnecting").await;
    says("cannot connect to NATS; trying again").await;
}

#[tokio::test]
async fn any_address_of_a_list_may_have_the_token() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let server = NatsServer::with_token("t0k").await;
    let with_token = server.url();
    let options = NatsOptions {
        patient: false,
        ..role(format!("nats://127.0.0.1:{port}, {with_token}"))
    };
    let bus = connect(&options).await.unwrap();
    bus.client.flush().await.unwrap();
}

#[tokio::test]
async fn a_role_hears_others_and_of_itself_what_it_chose() {
    let server = NatsServer::start().await;
    let another = server.client().await;
    for (echo, expected) in [
        (Echo::All, &["by itself", "to itself", "by another"][..]),
        (Echo::ToItself, &["to itself", "by another"]),
        (Echo::None, &["by another"]),
    ] {
        let options = NatsOptions {
            echo,
            ..role(server.url())
        };
        let bus = connect(&options).await.unwrap();
        let mut heard = bus.client.subscribe("said").await.unwrap();
        for (client, what) in [
            (&bus.client, "by itself"),
            (&bus.to_itself, "to itself"),
            (&another, "by another"),
        ] {
            client.publish("said", what.into()).await.unwrap();
            // the server has processed it before the next one speaks
            client.request("nobody", "".into()).await.unwrap_err();
        }
        for what in expected {
            let message = heard.next().await.unwrap();
            assert_eq!(&message.payload[..], what.as_bytes(), "{echo:?}");
        }
    }
}
