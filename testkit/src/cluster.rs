//! Several nats-servers that form one cluster.

use std::{
    net::TcpListener,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use async_nats::Client;
use nats_server::Options;

use crate::{NatsServer, eventually_within};

/// How long the servers may take to find each other and to elect a leader.
const READY: Duration = Duration::from_secs(60);
/// Ports for the servers' routes: below those that Linux assigns to outgoing connections, so that a restarted server
/// finds its port free.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Starts `count` servers as one cluster with JetStream, which store below this directory; `jetstream` is text for that
/// block of their configuration. They do not tell clients of each other: to find another server, a client must know its
/// address. Returns once streams can be created.
pub async fn cluster(count: usize, store: &Path, jetstream: &str) -> Vec<NatsServer> {
    let ports = free_ports(count);
    let routes: Vec<String> = ports
        .iter()
        .map(|port| format!("\"nats://127.0.0.1:{port}\""))
        .collect();
    let routes = routes.join(", ");
    let mut servers = Vec::new();
    for (nth, port) in ports.iter().enumerate() {
        let folder = store.join(format!("server-{nth}"));
        let config = format!(
            "server_name: server-{nth}\n\
             jetstream {{ store_dir: \"{}\"\n{jetstream} }}\n\
             cluster {{ name: test, listen: \"127.0.0.1:{port}\", no_advertise: true, routes: [{routes}] }}\n",
            folder.display(),
        );
        let options = Options {
            config,
            ..Options::default()
        };
        servers.push(NatsServer::start_with(options).await);
    }
    for server in &servers {
        let client = server.client().await;
        let what = "JetStream of the cluster";
        eventually_within(READY, what, async || can_create(&client, count).await).await;
    }
    servers
}

/// Creates a stream on all servers and deletes it again.
async fn can_create(client: &Client, replicas: usize) -> Result<(), String> {
    let config = format!(r#"{{"name":"PROBE","storage":"file","num_replicas":{replicas}}}"#);
    api(client, "STREAM.CREATE.PROBE", config).await?;
    api(client, "STREAM.DELETE.PROBE", String::new()).await
}

/// Sends a request to JetStream itself.
async fn api(client: &Client, what: &str, body: String) -> Result<(), String> {
    let answer = client.request(format!("$JS.API.{what}"), body.into()).await;
    let text = answer.map_err(|e| e.to_string())?.payload;
    let text = String::from_utf8_lossy(&text);
    if text.contains("\"error\"") {
        return Err(text.into_owned());
    }
    Ok(())
}

/// Returns ports on which nobody listens now; other tests begin at other ports.
fn free_ports(count: usize) -> Vec<u16> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.subsec_nanos());
    let seed = std::process::id()
        .wrapping_mul(7_919)
        .wrapping_add(nanos / 1_000);
    let skipped = usize::try_from(seed).map_or(0, |seed| seed % PORTS.len());
    let candidates = PORTS.skip(skipped).chain(PORTS);
    let free = candidates.filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let ports: Vec<u16> = free.take(count).collect();
    assert_eq!(ports.len(), count, "no free ports in {PORTS:?}");
    ports
}
