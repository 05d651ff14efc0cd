//! Connecting to NATS, and following the state of the connection.

mod context;
mod echo;
mod identity;
mod notices;
mod secrets;
mod tls;
mod violations;

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{
    Client, ClientError, ConnectErrorKind, ConnectOptions, Event, Message, ServerError, StatusCode,
};
use futures_util::FutureExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use context::Context;
pub use context::{context_names, selected_context};
pub use echo::echo;
use notices::Notices;
pub use secrets::{is_open_to_all, secret_files};
pub use tls::TlsOptions;
pub use violations::{Act, PermissionViolation, PermissionViolations};

/// How long a publish or subscribe may take before it has failed: while disconnected, the client queues them and then
/// waits for ever.
pub const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Whose server it is, and so which flags an advice names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServerOf {
    /// Of a cluster.
    #[default]
    Cluster,
    /// Of an estate of DEAs.
    Deas,
}

/// The address of the server, and the credentials for it.
#[derive(Clone, Debug, Default)]
pub struct NatsOptions {
    /// Server addresses, separated by commas; may contain `user:password@` or `token@`.
    pub url: String,
    /// Whose server it is.
    pub of: ServerOf,
    /// A credentials file (JWT and seed).
    pub creds: Option<PathBuf>,
    /// A file with the seed of an nkey.
    pub nkey: Option<PathBuf>,
    /// TLS files, and how TLS starts.
    pub tls: TlsOptions,
    /// The prefix of our inboxes; if none, `_INBOX.` and the identity.
    pub inbox_prefix: Option<String>,
    /// A context of the `nats` tool, by name or by file. Its settings apply first, and those above override them.
    pub context: Option<String>,
    /// The connection's name, shown in the server's monitoring.
    pub name: String,
    /// Who we are: one token of a subject. If none, the name from the credentials, or else `name`.
    pub identity: Option<String>,
    /// Whether to keep trying if the first connect fails, and to log changes of the connection (roles do; commands fail
    /// at once).
    pub patient: bool,
    /// Which of our own messages come back to our subscriptions.
    pub echo: Echo,
    /// Once cancelled, nothing is logged about the connection, because its server is about to end.
    pub ending: CancellationToken,
    /// Collects what the server's permissions refuse.
    pub violations: PermissionViolations,
}

/// Which of a connection's own messages the server sends back to its subscriptions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Echo {
    /// All.
    #[default]
    All,
    /// None: for a role that knows what it said itself and hears others on the same subjects.
    None,
    /// Only what is published to [`Bus::to_itself`], a second connection.
    ToItself,
}

/// Why NATS could not be used.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// No server answered, or it rejected the connection.
    #[error("cannot connect to NATS at {url}")]
    Connect {
        /// The address without secrets.
        url: String,
        /// The client's own error.
        source: async_nats::ConnectError,
        /// What may help.
        advice: &'static str,
    },
    /// A context, credentials file or address that cannot be used.
    #[error("{what}: {why}")]
    Options {
        /// Which setting.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The client did not accept it within [`PUBLISH_TIMEOUT`], because it is disconnected.
    #[error("not sent within {} s: the connection to NATS is down", PUBLISH_TIMEOUT.as_secs())]
    Timeout,
    /// The client rejected it (a bad subject, a body over max_payload …).
    #[error("NATS client: {0}")]
    Refused(String),
}

impl BusError {
    /// Wraps a subscribe error.
    #[allow(clippy::needless_pass_by_value)] // the signature that `map_err` wants
    pub fn subscribe(error: async_nats::SubscribeError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// A connection and its state, which shells watch.
#[derive(Clone, Debug)]
pub struct Bus {
    /// The client, which is cheap to clone.
    pub client: Client,
    /// With [`Echo::ToItself`], the second connection, whose messages reach `client`'s subscriptions; otherwise
    /// `client` itself.
    pub to_itself: Client,
    /// Who we are: part of our inboxes and of the subjects for answers to our broadcasts.
    pub identity: Arc<str>,
    /// True while connected.
    pub connected: watch::Receiver<bool>,
    /// Messages that this client dropped because a subscription was full.
    pub dropped: Arc<AtomicU64>,
    /// What the server's permissions refused.
    pub violations: PermissionViolations,
    /// The addresses of the server, without secrets.
    pub url: String,
}

/// Returns an inbox that cannot be guessed from another inbox of this client. Whoever answers requests may publish to
/// every inbox, and the client's own inbox names are sequential.
pub fn new_inbox(client: &Client) -> String {
    format!("{}.{}", client.new_inbox(), uuid::Uuid::new_v4().simple())
}

/// Connects. Half-open connections are detected after 10 to 15 s (ping every 5 s). Reconnects wait for at most 500 ms,
/// with jitter so that a fleet does not come back at the same moment.
pub async fn connect(options: &NatsOptions) -> Result<Bus, BusError> {
    let context = match &options.context {
        Some(name) => {
            let (context, unknown) = context::read(name)?;
            for field in unknown {
                tracing::warn!(
                    context = name,
                    field,
                    "a field of the context has no effect"
                );
            }
            context
        }
        None => Context::default(),
    };
    let url = match (options.url.is_empty(), context.url.is_empty()) {
        (false, _) => options.url.clone(),
        (true, false) => context.url.clone(),
        (true, true) => "nats://127.0.0.1:4222".into(),
    };
    let (state, connected) = watch::channel(false);
    let dropped = Arc::new(AtomicU64::new(0));
    let notices = Arc::new(Notices::new(without_secrets(&url)));
    let userinfo = userinfo(&url)?;
    let identity = match identity::given(options, &context, userinfo.as_ref())? {
        Some(identity) => identity,
        None => identity::of_connection(&options.name),
    };
    let inbox = identity::inbox_prefix(options, &context, &identity)?;
    let connect = credentials(options, &context, userinfo).await?;
    let tls = options.tls.or(context.tls());
    let tls_first = tls.first;
    let plain = tls.apply(connect)?.custom_inbox_prefix(inbox);
    let connect = settings(plain.clone(), options, state, &dropped, &notices);
    let addresses: Vec<String> = url.split(',').map(|u| u.trim().to_owned()).collect();
    let first = connect.clone().connect(addresses.clone()).await;
    let client = match first {
        // a malformed address stays malformed, so retrying is useless
        Err(error) if options.patient && error.kind() != ConnectErrorKind::ServerParse => {
            notices.failed_at_first(&error, tls::advice(&error, tls_first, options.of));
            let again = connect.retry_on_initial_connect();
            again.connect(addresses.clone()).await
        }
        first => first,
    };
    let failed = |source| BusError::Connect {
        url: match &options.context {
            Some(name) => format!("{} (context {name})", without_secrets(&url)),
            None => without_secrets(&url),
        },
        advice: tls::advice(&source, tls_first, options.of),
        source,
    };
    let client = client.map_err(failed)?;
    let to_itself = if options.echo == Echo::ToItself {
        second(plain, options, addresses).await.map_err(failed)?
    } else {
        client.clone()
    };
    Ok(Bus {
        client,
        to_itself,
        identity: identity.into(),
        connected,
        dropped,
        violations: options.violations.clone(),
        url: without_secrets(&url),
    })
}

/// Returns the identity of a connection with these options before it is made; none if neither the options nor the
/// credentials give one.
pub fn identity(options: &NatsOptions) -> Result<Option<String>, BusError> {
    let context = match &options.context {
        Some(name) => context::read(name)?.0,
        None => Context::default(),
    };
    let url = if options.url.is_empty() {
        &context.url
    } else {
        &options.url
    };
    identity::given(options, &context, userinfo(url)?.as_ref())
}

/// Makes a second connection that only publishes. It connects in the background, and its state is not logged, because
/// it shares the fate of the first one.
async fn second(
    plain: ConnectOptions,
    options: &NatsOptions,
    addresses: Vec<String>,
) -> Result<Client, async_nats::ConnectError> {
    let options = NatsOptions {
        name: format!("{}-echo", options.name),
        patient: false,
        echo: Echo::All,
        ..options.clone()
    };
    let notices = Arc::new(Notices::new(String::new()));
    let (state, _) = watch::channel(false);
    let connect = settings(plain, &options, state, &Arc::default(), &notices);
    connect.retry_on_initial_connect().connect(addresses).await
}

fn settings(
    connect: ConnectOptions,
    options: &NatsOptions,
    state: watch::Sender<bool>,
    dropped: &Arc<AtomicU64>,
    notices: &Arc<Notices>,
) -> ConnectOptions {
    let dropped = Arc::clone(dropped);
    // a command reports its failure itself
    let notices = options.patient.then(|| Arc::clone(notices));
    let ending = options.ending.clone();
    let violations = options.violations.clone();
    let connect = match options.echo {
        Echo::All => connect,
        Echo::None | Echo::ToItself => connect.no_echo(),
    };
    connect
        .name(&options.name)
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
            match (&event, notices.as_ref().filter(|_| !ending.is_cancelled())) {
                (Event::SlowConsumer(subscription), _) => {
                    tracing::warn!(subscription, "messages dropped: slow consumer");
                }
                (Event::ServerError(error), notices) => {
                    let violation = match error {
                        ServerError::Other(text) => violations.take(text),
                        _ => None,
                    };
                    match (violation, notices) {
                        (Some(violation), Some(notices)) => notices.refused(&violation),
                        // whoever requested it reports it
                        (Some(violation), None) => tracing::debug!(%violation, "NATS client"),
                        (None, _) => tracing::warn!(%error, "the NATS server reports an error"),
                    }
                }
                (Event::Connected, Some(notices)) => notices.connected(),
                (Event::Disconnected, Some(notices)) => notices.disconnected(),
                (Event::ClientError(error), Some(notices)) => notices.failed(&reason(error)),
                (other, _) => tracing::debug!(%other, "NATS client"),
            }
            std::future::ready(())
        })
}

fn reason(error: &ClientError) -> String {
    match error {
        ClientError::Other(reason) => reason.clone(),
        other => other.to_string(),
    }
}

/// Returns the wait before a reconnect: 50 ms at first, growing to 500 ms, of which a random part of up to half is
/// dropped.
fn reconnect_delay(attempt: usize) -> Duration {
    let most = 50u64 << attempt.min(4);
    let (random, _) = uuid::Uuid::new_v4().as_u64_pair();
    Duration::from_millis(most.min(500) / 2 + random % (most.min(500) / 2 + 1))
}

/// A user and a password, or a token alone.
type UserInfo = (String, Option<String>);

/// Returns the part before the `@` of an address: a token, or a user and a password. The `nats` tool takes credentials
/// from there; the client library does not, and has one set of credentials for all addresses.
fn userinfo(url: &str) -> Result<Option<UserInfo>, BusError> {
    let mut given = url.split(',').filter_map(|address| {
        let address = address.trim();
        let (_, rest) = address.split_once("://").unwrap_or(("", address));
        rest.rsplit_once('@').map(|(userinfo, _)| userinfo)
    });
    let Some(userinfo) = given.next() else {
        return Ok(None);
    };
    if given.any(|other| other != userinfo) {
        return Err(BusError::Options {
            what: format!("addresses {}", without_secrets(url)),
            why: "they name different users or tokens; expected the same for all".to_owned(),
        });
    }
    let decode = |t: &str| {
        percent_encoding::percent_decode_str(t)
            .decode_utf8_lossy()
            .into_owned()
    };
    Ok(Some(match userinfo.split_once(':') {
        Some((user, password)) => (decode(user), Some(decode(password))),
        None => (decode(userinfo), None),
    }))
}

/// Applies the credentials. A user or token in the address takes precedence over those of a context.
async fn credentials(
    options: &NatsOptions,
    context: &Context,
    userinfo: Option<UserInfo>,
) -> Result<ConnectOptions, BusError> {
    let connect = ConnectOptions::new();
    if let Some(path) = &options.creds {
        let refuse = |why: std::io::Error| BusError::Options {
            what: format!("credentials file {}", path.display()),
            why: why.to_string(),
        };
        return connect.credentials_file(path).await.map_err(refuse);
    }
    if let Some(file) = &options.nkey {
        return Ok(connect.nkey(nkey_seed(file)?));
    }
    let Some((name, password)) = userinfo else {
        return context.authenticate(connect).await;
    };
    Ok(match password {
        Some(password) => connect.user_and_password(name, password),
        None => connect.token(name),
    })
}

/// Returns the seed in an nkey file. Anything else in there may be secret, too, and is not quoted.
fn nkey_seed(file: &Path) -> Result<String, BusError> {
    let refuse = |why: String| BusError::Options {
        what: format!("nkey file {}", file.display()),
        why,
    };
    let text = std::fs::read_to_string(file).map_err(|e| refuse(e.to_string()))?;
    let lines = text.lines().map(str::trim);
    let seed = lines.into_iter().find(|line| line.starts_with("SU"));
    let seed = seed.filter(|seed| nkeys::KeyPair::from_seed(seed).is_ok());
    seed.map(str::to_owned)
        .ok_or_else(|| refuse("no seed of a user in it; expected a line of SU and 56 more".into()))
}

/// Returns the address without user, password or token, for messages and logs.
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

/// Waits for a publish for at most [`PUBLISH_TIMEOUT`].
pub async fn in_time<E: std::fmt::Display>(
    publish: impl Future<Output = Result<(), E>>,
) -> Result<(), BusError> {
    let mut publish = pin!(publish);
    // the client nearly always has room, and then no timer is needed
    let published = match publish.as_mut().now_or_never() {
        Some(published) => published,
        None => match tokio::time::timeout(PUBLISH_TIMEOUT, publish).await {
            Ok(published) => published,
            Err(_) => return Err(BusError::Timeout),
        },
    };
    published.map_err(|error| BusError::Refused(error.to_string()))
}

/// Returns whether this is the server's "no responders" status instead of an answer.
pub fn is_no_responders(message: &Message) -> bool {
    message.status == Some(StatusCode::NO_RESPONDERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_from_addresses() {
        let some = |name: &str, password: Option<&str>| {
            Some((name.to_owned(), password.map(str::to_owned)))
        };
        let read = |url: &str| userinfo(url).unwrap();
        assert_eq!(read("nats://h:4222"), None);
        assert_eq!(read("nats://t0k@h:4222"), some("t0k", None));
        assert_eq!(
            read("u:p%40ss@h,nats://u:p%40ss@i"),
            some("u", Some("p@ss"))
        );
        assert_eq!(read("nats://h, nats://t0k@i"), some("t0k", None));
        let error = userinfo("nats://one@h,nats://two@i")
            .unwrap_err()
            .to_string();
        assert!(error.contains("nats://h,nats://i"), "{error}");
        assert!(
            !error.contains("one@") && !error.contains("two@"),
            "{error}"
        );
    }
}
