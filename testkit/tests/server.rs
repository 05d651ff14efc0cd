//! Tests of the test server itself, on which all other tests rely.

use std::time::Duration;

use futures_util::StreamExt;
use testkit::{Link, NatsServer, Options, Port, eventually, eventually_within};

async fn echo(client: &async_nats::Client) {
    let mut inbox = client.subscribe("echo").await.expect("subscribe");
    client
        .publish("echo", "hello".into())
        .await
        .expect("publish");
    let message = inbox.next().await.expect("the message");
    assert_eq!(message.payload, "hello");
}

fn runs(pid: u32) -> bool {
    shared::proc::Process::read(pid).is_some_and(|process| !process.has_ended())
}

#[tokio::test]
async fn serves_and_leaves_nothing() {
    let server = NatsServer::start().await;
    echo(&server.client().await).await;
    let pid = server.pid().expect("a pid");
    assert!(runs(pid));
    drop(server);
    assert!(!runs(pid));
}

#[tokio::test]
async fn is_killed_when_its_test_panics() {
    let test = tokio::spawn(async {
        let server = NatsServer::start().await;
        std::panic::panic_any(server.pid().expect("a pid"));
    });
    let panic = test.await.expect_err("a panic").into_panic();
    let pid = *panic.downcast::<u32>().expect("the pid");
    assert!(!runs(pid));
}

/// Not a test by itself, but the process that the next one starts. It ends without running any Drop.
#[tokio::test]
async fn start_and_abort() {
    if std::env::var_os("TESTKIT_ABORT").is_some() {
        let server = NatsServer::start().await;
        println!("pid={}", server.pid().expect("a pid"));
        std::process::abort();
    }
}

#[tokio::test]
async fn dies_with_its_process() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|dir| dir.join("setpriv").is_file()) {
        eprintln!("SKIPPED: no setpriv on PATH");
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "start_and_abort", "--nocapture"])
        .env("TESTKIT_ABORT", "1")
        .output()
        .expect("run this program");
    let text = String::from_utf8_lossy(&output.stdout);
    let pid = text.split("pid=").nth(1).expect("a pid").lines().next();
    let pid = pid.and_then(|p| p.parse().ok()).expect("a number");
    eventually("the server is gone", async || !runs(pid)).await;
}

#[tokio::test]
async fn two_servers_are_independent() {
    let (one, two) = tokio::join!(NatsServer::start(), NatsServer::start());
    assert_ne!(one.port(), two.port());
    assert!(one.url().starts_with("nats://127.0.0.1:"));
}

#[tokio::test]
async fn asks_for_its_token() {
    let server = NatsServer::with_token("secret").await;
    echo(&server.client().await).await;
    let refused = async_nats::connect(server.address()).await;
    assert!(refused.is_err(), "connected without a token");
}

#[tokio::test]
async fn takes_its_limits_and_its_configuration() {
    let options = Options {
        max_payload: Some(2048),
        config: "server_name: nemo".into(),
        ..Options::default()
    };
    let server = NatsServer::start_with(options).await;
    let info = server.client().await.server_info();
    assert_eq!(
        (info.max_payload, info.server_name.as_str()),
        (2048, "nemo")
    );
}

#[tokio::test]
async fn keeps_its_port_over_a_restart() {
    let mut server = NatsServer::start().await;
    let port = server.port();
    let client = server.client().await;
    server.stop();
    assert_eq!(server.pid(), None);
    server.restart().await;
    assert_eq!(server.port(), port);
    eventually("the client is back", async || client.flush().await).await;
    echo(&client).await;

    server.stop_gracefully().await;
    assert_eq!(server.pid(), None);
    let fixed = NatsServer::start_with(Options {
        port: Port::Fixed(port),
        ..Options::default()
    })
    .await;
    assert_eq!(fixed.port(), port);
}

#[tokio::test]
async fn freezes_and_goes_on() {
    let server = NatsServer::start().await;
    let client = server.client().await;
    let mut inbox = client.subscribe("echo").await.expect("subscribe");
    client.flush().await.expect("flush");
    server.pause();
    client
        .publish("echo", "hello".into())
        .await
        .expect("publish");
    let silent = tokio::time::timeout(Duration::from_millis(100), inbox.next()).await;
    assert!(silent.is_err(), "a frozen server answered");
    server.resume();
    assert_eq!(inbox.next().await.expect("the message").payload, "hello");
}

#[tokio::test]
#[should_panic(expected = "nats-server ended")]
async fn a_failed_start_has_its_reason() {
    NatsServer::with_config("no_such_option: 1").await;
}

#[tokio::test]
async fn a_blocked_link_holds_everything_and_loses_nothing() {
    let server = NatsServer::start().await;
    let link = Link::to(server.port()).await;
    let far = server.client_through(link.port()).await;
    let near = server.client().await;
    let mut at_far = far.subscribe("to.far").await.expect("subscribe");
    far.flush().await.expect("flush");
    let mut at_near = near.subscribe("to.near").await.expect("subscribe");
    near.flush().await.expect("flush");
    // one message through the whole link, so that the subscription is known to exist
    echo(&far).await;

    link.block();
    far.publish("to.near", "late".into())
        .await
        .expect("publish");
    near.publish("to.far", "late".into())
        .await
        .expect("publish");
    let moment = Duration::from_millis(100);
    let late = tokio::time::timeout(
        moment,
        futures_util::future::select(at_far.next(), at_near.next()),
    )
    .await;
    assert!(late.is_err(), "a blocked link let something through");
    let hangs = async_nats::ConnectOptions::new().connection_timeout(moment);
    assert!(
        hangs.connect(link.url()).await.is_err(),
        "a blocked link let a client in"
    );

    link.unblock();
    assert_eq!(at_far.next().await.expect("the message").payload, "late");
    assert_eq!(at_near.next().await.expect("the message").payload, "late");
}

#[tokio::test]
async fn a_cut_link_closes_and_takes_new_connections() {
    let server = NatsServer::start().await;
    let link = Link::to(server.port()).await;
    let (lost, mut losses) = tokio::sync::mpsc::channel(8);
    let client = async_nats::ConnectOptions::new()
        .event_callback(move |event| {
            let lost = lost.clone();
            async move {
                if event == async_nats::Event::Disconnected {
                    let _ = lost.send(()).await;
                }
            }
        })
        .connect(link.url())
        .await
        .expect("connect");
    echo(&client).await;
    link.cut();
    losses.recv().await.expect("a disconnection");
    eventually("a new connection", async || {
        client.connection_state() == async_nats::connection::State::Connected
    })
    .await;
    echo(&client).await;
}

/// Returns the answer to a request to JetStream, or to a message to one of its streams.
async fn jetstream(
    client: &async_nats::Client,
    subject: &str,
    body: &str,
) -> Result<String, String> {
    let answer = client.request(subject.to_owned(), body.to_owned().into());
    let answer = answer.await.map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&answer.payload).into_owned();
    if text.contains("\"error\"") {
        return Err(text);
    }
    Ok(text)
}

/// How long servers may take to agree on a leader, on a busy machine.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(120);

#[tokio::test]
async fn of_three_servers_two_go_on_and_the_third_comes_back() {
    let store = tempfile::tempdir().expect("a directory");
    let mut servers = testkit::cluster(3, store.path(), "").await;
    let client = servers[0].client().await;
    if client.server_info().version.starts_with("2.9.") {
        // its streams of three replicas may have no leader for longer than this waits, and managers refuse it
        return;
    }
    let config = r#"{"name":"S","subjects":["s"],"storage":"file","num_replicas":3}"#;
    eventually("a stream", async || {
        jetstream(&client, "$JS.API.STREAM.CREATE.S", config).await
    })
    .await;
    servers[1].stop();
    let stored = |client: async_nats::Client| async move {
        eventually_within(LIMIT, "a message to be stored", async || {
            jetstream(&client, "s", "x").await
        })
        .await
    };
    stored(client.clone()).await;
    servers[1].restart().await;
    // it must have received what it missed from the others: two of the three must have everything
    eventually_within(LIMIT, "all three to have the message", async || {
        let info = jetstream(&client, "$JS.API.STREAM.INFO.S", "").await?;
        let current = info.matches("\"current\":true").count();
        if current == 2 { Ok(()) } else { Err(info) }
    })
    .await;
    servers[0].stop();
    // together with the server that was away, there are two of three again
    stored(servers[1].client().await).await;
    let known = servers[2].client().await.server_info().connect_urls;
    assert_eq!(known, [""; 0], "clients learn of the other servers");
}
