//! Connecting to NATS, and what every program must know of its connection.

use std::{
    future::Future,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, ConnectOptions, Event, Message, StatusCode};
use serde::Deserialize;
use tokio::sync::watch;

/// A publish or subscribe that takes longer than this has failed: while disconnected the client
/// queues, and then waits for ever.
pub const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Where the server is and who we are.
#[derive(Clone, Debug, Default)]
pub struct NatsOptions {
    /// Server addresses, separated by commas; may hold `user:password@` or `token@`.
    pub url: String,
    /// A credentials file (JWT and seed).
    pub creds: Option<PathBuf>,
    /// One of the `nats` tool's contexts, by name; its settings come first, `url` and `creds`
    /// override them.
    pub context: Option<String>,
    /// The connection's name, shown in the server's monitoring; also its private inbox prefix.
    pub name: String,
    /// Keep trying when the first connect fails (roles do; commands fail at once).
    pub patient: bool,
}

/// Why the bus could not be used.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// No server, or it refused us.
    #[error("cannot connect to NATS at {url}: {source}")]
    Connect {
        /// The address without secrets.
        url: String,
        /// The client's own error.
        source: async_nats::ConnectError,
    },
    /// A context, credentials file or address that cannot be used.
    #[error("{what}: {why}")]
    Options {
        /// Which setting.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// Not accepted by the client in [`PUBLISH_TIMEOUT`]: we are disconnected.
    #[error("not sent within {} s: the connection to NATS is down", PUBLISH_TIMEOUT.as_secs())]
    Timeout,
    /// The client refused it (a bad subject, a body over max_payload …).
    #[error("NATS refused: {0}")]
    Refused(String),
}

impl BusError {
    /// Wraps a subscribe error.
    #[allow(clippy::needless_pass_by_value)] // the signature that `map_err` wants
    pub fn subscribe(error: async_nats::SubscribeError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// A connection and what its shell watches.
#[derive(Clone, Debug)]
pub struct Bus {
    /// The client: cheap to clone.
    pub client: Client,
    /// True while connected.
    pub connected: watch::Receiver<bool>,
    /// Messages that this client dropped because a subscription was full.
    pub dropped: Arc<AtomicU64>,
}

/// A context of the `nats` tool: the part of `~/.config/nats/context/NAME.json` that we use.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    url: String,
    token: String,
    user: String,
    password: String,
    creds: String,
    nkey: String,
    cert: String,
    key: String,
    ca: String,
    inbox_prefix: String,
}

/// Connects. Half-open links are found after 10 to 15 s (ping every 5 s), reconnects wait at most
/// 500 ms, with jitter so that a fleet does not come back in one instant.
pub async fn connect(options: &NatsOptions) -> Result<Bus, BusError> {
    let context = match &options.context {
        Some(name) => read_context(name)?,
        None => Context::default(),
    };
    let url = match (options.url.is_empty(), context.url.is_empty()) {
        (false, _) => options.url.clone(),
        (true, false) => context.url.clone(),
        (true, true) => "nats://127.0.0.1:4222".into(),
    };
    let (state, connected) = watch::channel(false);
    let dropped = Arc::new(AtomicU64::new(0));
    let connect = credentials(options, &context, userinfo(&url)).await?;
    let connect = settings(connect, options, &context, state, Arc::clone(&dropped));
    let addresses: Vec<String> = url.split(',').map(|u| u.trim().to_owned()).collect();
    let client = connect
        .connect(addresses)
        .await
        .map_err(|source| BusError::Connect {
            url: without_secrets(&url),
            source,
        })?;
    Ok(Bus {
        client,
        connected,
        dropped,
    })
}

fn settings(
    connect: ConnectOptions,
    options: &NatsOptions,
    context: &Context,
    state: watch::Sender<bool>,
    dropped: Arc<AtomicU64>,
) -> ConnectOptions {
    let inbox = match context.inbox_prefix.as_str() {
        "" => format!("_INBOX_{}", options.name),
        given => given.to_owned(),
    };
    let connect = connect
        .name(&options.name)
        .custom_inbox_prefix(inbox)
        .ping_interval(Duration::from_secs(5))
        .connection_timeout(Duration::from_secs(5))
        .request_timeout(Some(Duration::from_secs(5)))
        .reconnect_delay_callback(reconnect_delay)
        .event_callback(move |event| {
            match &event {
                Event::Connected => _ = state.send_replace(true),
                Event::Disconnected | Event::Closed => _ = state.send_replace(false),
                Event::SlowConsumer(_) => _ = dropped.fetch_add(1, Ordering::Relaxed),
                _ => {}
            }
            async move {
                match event {
                    Event::SlowConsumer(sid) => tracing::warn!(sid, "messages dropped: too slow"),
                    other => tracing::debug!(%other, "nats"),
                }
            }
        });
    if options.patient {
        connect.retry_on_initial_connect()
    } else {
        connect
    }
}

/// 50 ms at first, 500 ms at most, each time a random part of it.
fn reconnect_delay(attempt: usize) -> Duration {
    let most = 50u64 << attempt.min(4);
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    Duration::from_millis(most.min(500) / 2 + random % (most.min(500) / 2 + 1))
}

/// What stands before the `@` of the first address: a token, or a user and a password. The `nats`
/// tool takes them from there; the client library does not.
fn userinfo(url: &str) -> Option<(String, Option<String>)> {
    let first = url.split(',').next()?.trim();
    let (_, rest) = first.split_once("://").unwrap_or(("", first));
    let (userinfo, _) = rest.rsplit_once('@')?;
    let decode = |t: &str| {
        percent_encoding::percent_decode_str(t)
            .decode_utf8_lossy()
            .into_owned()
    };
    Some(match userinfo.split_once(':') {
        Some((user, password)) => (decode(user), Some(decode(password))),
        None => (decode(userinfo), None),
    })
}

async fn credentials(
    options: &NatsOptions,
    context: &Context,
    userinfo: Option<(String, Option<String>)>,
) -> Result<ConnectOptions, BusError> {
    let mut connect = ConnectOptions::new();
    let creds = options
        .creds
        .clone()
        .or_else(|| non_empty(&context.creds).map(PathBuf::from));
    if let Some(path) = creds {
        let refuse = |why: std::io::Error| BusError::Options {
            what: format!("credentials file {}", path.display()),
            why: why.to_string(),
        };
        connect = connect.credentials_file(&path).await.map_err(refuse)?;
    } else if let Some((name, password)) = userinfo {
        connect = match password {
            Some(password) => connect.user_and_password(name, password),
            None => connect.token(name),
        };
    } else if let Some(path) = non_empty(&context.nkey) {
        let seed = std::fs::read_to_string(path).map_err(|why| BusError::Options {
            what: format!("nkey file {path}"),
            why: why.to_string(),
        })?;
        connect = connect.nkey(seed.trim().to_owned());
    } else if let Some(token) = non_empty(&context.token) {
        connect = connect.token(token.to_owned());
    } else if let Some(user) = non_empty(&context.user) {
        connect = connect.user_and_password(user.to_owned(), context.password.clone());
    }
    if let Some(ca) = non_empty(&context.ca) {
        connect = connect.add_root_certificates(ca.into()).require_tls(true);
    }
    if let (Some(cert), Some(key)) = (non_empty(&context.cert), non_empty(&context.key)) {
        connect = connect.add_client_certificate(cert.into(), key.into());
    }
    Ok(connect)
}

fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

fn read_context(name: &str) -> Result<Context, BusError> {
    let home = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".config")))
        .unwrap_or_default();
    let path = home.join("nats/context").join(format!("{name}.json"));
    let refuse = |why: String| BusError::Options {
        what: format!("context {name} ({})", path.display()),
        why,
    };
    let text = std::fs::read_to_string(&path).map_err(|e| refuse(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| refuse(e.to_string()))
}

/// The address without user, password or token, for messages and logs.
pub fn without_secrets(url: &str) -> String {
    let one = |u: &str| match (u.find("://"), u.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => format!("{}{}", &u[..scheme + 3], &u[at + 1..]),
        (None, Some(at)) => u[at + 1..].to_owned(),
        _ => u.to_owned(),
    };
    url.split(',')
        .map(|u| one(u.trim()))
        .collect::<Vec<_>>()
        .join(",")
}

/// Waits for a publish, at most [`PUBLISH_TIMEOUT`].
pub async fn in_time<E: std::fmt::Display>(
    publish: impl Future<Output = Result<(), E>>,
) -> Result<(), BusError> {
    match tokio::time::timeout(PUBLISH_TIMEOUT, publish).await {
        Err(_) => Err(BusError::Timeout),
        Ok(Err(e)) => Err(BusError::Refused(e.to_string())),
        Ok(Ok(())) => Ok(()),
    }
}

/// Whether the server answered in nobody's stead: nobody listens on that subject.
pub fn is_no_responders(message: &Message) -> bool {
    message.status == Some(StatusCode::NO_RESPONDERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_address_says_of_its_user() {
        let some = |name: &str, password: Option<&str>| {
            Some((name.to_owned(), password.map(str::to_owned)))
        };
        assert_eq!(userinfo("nats://h:4222"), None);
        assert_eq!(userinfo("nats://t0k@h:4222"), some("t0k", None));
        assert_eq!(userinfo("u:p%40ss@h,nats://x@i"), some("u", Some("p@ss")));
    }
}
