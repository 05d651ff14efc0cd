//! The NATS service: our entry under `$SRV` and the request subjects.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_nats::service::{Request, Service, ServiceExt, endpoint::Endpoint};
use bytes::Bytes;
use futures_util::StreamExt;
use placement::{Policy, cut, random::SplitMix64};
use shared::{
    AnswerTo, LogLimit, Subjects,
    ask::gather,
    clock::wall_ms,
    may_answer,
    nats::{in_time, new_inbox},
    permissions::Role,
    shutdown::CancellationToken,
    wire::{WireError, to_bytes},
};
use tokio::{task::JoinSet, time::timeout};
use uuid::Uuid;

use super::{AuctioneerConfig, AuctioneerError, Shell, after};
use crate::{admission, ids::ReplyKey, io::AuctioneerInput};

/// How often the policies of other auctioneers are compared with ours.
const COMPARE: Duration = Duration::from_secs(60);
/// Differing policies logged per second: anyone may claim to be an auctioneer.
const POLICIES_LOGGED: u32 = 5;
/// How long a message to itself may take.
const ROUND_TRIP: Duration = Duration::from_secs(1);

/// The service, initially without endpoints.
pub(super) struct RequestService {
    service: Option<Service>,
    /// It has the endpoint of its own.
    open: bool,
    /// It shares the requests of all auctioneers while this is there, and not cancelled.
    joined: Option<CancellationToken>,
    /// The readers of its endpoints.
    readers: JoinSet<()>,
    /// Of the requests that want an answer.
    keys: Arc<AtomicU64>,
    /// Which endpoint tells the counters: `start`, once it was there.
    counts_at_start: Arc<AtomicBool>,
}

/// One endpoint.
#[derive(Clone, Copy, Debug)]
enum RequestKind {
    Start,
    Stop,
    Place,
    Explain,
    Pool,
    Capacity,
    Queued,
}

impl RequestService {
    /// Starts the service, and asks the cells to advertise.
    pub(super) async fn open(
        shell: &Shell,
        config: &AuctioneerConfig,
    ) -> Result<Self, AuctioneerError> {
        let counters = Arc::clone(&shell.counters);
        let counts_at_start = Arc::new(AtomicBool::new(false));
        let at_start = Arc::clone(&counts_at_start);
        let metadata = HashMap::from([
            ("name".to_owned(), config.name.clone()),
            ("policy".to_owned(), config.policy.name().to_owned()),
            ("policy_hash".to_owned(), hash(&config.policy)),
        ]);
        let service = shell
            .bus
            .client
            .service_builder()
            .description("accepts start requests and places instances on cells")
            .metadata(metadata)
            .stats_handler(move |_, stats| {
                // called for every endpoint: the counters, which are for the whole service, appear once
                let at_start = at_start.load(Ordering::Relaxed);
                if stats.name != if at_start { "start" } else { "queued" } {
                    return serde_json::Value::Null;
                }
                let counters = counters.lock().unwrap_or_else(PoisonError::into_inner);
                serde_json::to_value(&*counters).unwrap_or_default()
            })
            .start(service_name(shell), env!("CARGO_PKG_VERSION"))
            .await
            .map_err(AuctioneerError::Service)?;
        // before the endpoints are open: cells known by then save the first requests a refusal
        shell.discover().await?;
        Ok(Self {
            service: Some(service),
            open: false,
            joined: None,
            readers: JoinSet::new(),
            keys: Arc::default(),
            counts_at_start,
        })
    }

    /// Whether it has opened what is asked of every auctioneer.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// Whether it takes the requests that one of all auctioneers gets.
    pub(super) fn is_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Starts to answer what every auctioneer is asked: queued work is known only to the one that received it.
    pub(super) async fn open_own(&mut self, shell: &Shell) -> Result<(), AuctioneerError> {
        self.open = true;
        let subject = shell.subjects.queued();
        let never = CancellationToken::new();
        let endpoint = ("queued", subject, RequestKind::Queued);
        self.add(shell, endpoint, &shell.name, &never).await
    }

    /// Starts accepting requests.
    pub(super) async fn join(
        &mut self,
        shell: &Shell,
        cells: usize,
    ) -> Result<(), AuctioneerError> {
        let parted = CancellationToken::new();
        let subjects = &shell.subjects;
        for endpoint in [
            ("start", subjects.start(), RequestKind::Start),
            ("stop", subjects.stop(), RequestKind::Stop),
            ("place", subjects.place(), RequestKind::Place),
            ("explain", subjects.explain(), RequestKind::Explain),
            ("pool", subjects.pool(), RequestKind::Pool),
            ("capacity", subjects.capacity(), RequestKind::Capacity),
        ] {
            let group = Subjects::AUCTIONEER_QUEUE;
            self.add(shell, endpoint, group, &parted).await?;
        }
        self.counts_at_start.store(true, Ordering::Relaxed);
        self.joined = Some(parted);
        tracing::info!(cells, "ready: accepting requests");
        Ok(())
    }

    async fn add(
        &mut self,
        shell: &Shell,
        (name, subject, kind): (&str, String, RequestKind),
        group: &str,
        parted: &CancellationToken,
    ) -> Result<(), AuctioneerError> {
        let Some(service) = &self.service else {
            return Ok(());
        };
        let endpoint = service.endpoint_builder().name(name).queue_group(group);
        let endpoint = endpoint.add(subject).await;
        let endpoint = endpoint.map_err(AuctioneerError::Service)?;
        // those of endpoints that were left have ended
        while self.readers.try_join_next().is_some() {}
        let keys = Arc::clone(&self.keys);
        let take = take(shell.clone(), endpoint, kind, keys, parted.clone());
        self.readers.spawn(take);
        Ok(())
    }

    /// Leaves the requests to other auctioneers. What was delivered already is still read.
    pub(super) fn part(&mut self) {
        if let Some(parted) = self.joined.take() {
            parted.cancel();
            tracing::info!("accepting no requests");
        }
    }

    /// Stops accepting requests.
    pub(super) async fn close(&mut self) {
        if let Some(service) = self.service.take()
            && let Err(error) = service.stop().await
        {
            tracing::debug!(%error, "the service did not stop cleanly");
        }
    }
}

impl Shell {
    /// Asks every cell to advertise.
    pub(super) async fn discover(&self) -> Result<(), shared::nats::BusError> {
        let body = to_bytes(&serde_json::json!({ "v": shared::VERSION }));
        let subject = self.subjects.discover();
        in_time(self.bus.client.publish(subject, body)).await
    }

    /// Waits, for at most a second, until everything has been read that the server had sent before.
    async fn round_trip(&self) {
        let (client, inbox) = (&self.bus.client, new_inbox(&self.bus.client));
        let Ok(mut own) = client.subscribe(inbox.clone()).await else {
            return;
        };
        if in_time(client.publish(inbox, Bytes::new())).await.is_ok() {
            // without an answer the connection is cut, and nothing comes either
            let _ = timeout(ROUND_TRIP, own.next()).await;
        }
    }
}

/// Reads requests and hands them to the machine. Ends when the service is stopped, or the endpoint left.
async fn take(
    shell: Shell,
    mut endpoint: Endpoint,
    kind: RequestKind,
    keys: Arc<AtomicU64>,
    parted: CancellationToken,
) {
    let mut left = false;
    loop {
        let request = tokio::select! {
            () = parted.cancelled(), if !left => {
                left = true;
                // a client that leaves a subject drops what it has not read of it from the connection yet
                shell.round_trip().await;
                // fails only where the connection is closed for good, which ends the stream, too
                let _ = endpoint.stop().await;
                continue;
            }
            request = endpoint.next() => request,
        };
        let Some(request) = request else {
            return;
        };
        let body = request.message.payload.clone();
        let trace = trace_of(&request.message);
        let key = Waiting::of(&shell, kind, request).map(|waiting| {
            let key = ReplyKey::new(keys.fetch_add(1, Ordering::Relaxed));
            let mut pending = shell.pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.insert(key, waiting);
            key
        });
        match read(&shell.policy, kind, &body, key) {
            Ok(mut input) => {
                if let Some(trace) = trace {
                    belong_to(&mut input, &trace);
                }
                if shell.inputs.send(input).await.is_err() {
                    return;
                }
            }
            Err(error) => shell.refuse(key, &error).await,
        }
    }
}

/// Returns the trace that the message belongs to, according to its header.
fn trace_of(message: &async_nats::Message) -> Option<String> {
    let trace = message.headers.as_ref()?.get("traceparent")?.as_str();
    placement::is_traceparent(trace).then(|| trace.to_owned())
}

/// Assigns the requests of a message to its trace, unless they name another.
fn belong_to(input: &mut AuctioneerInput, trace: &str) {
    let AuctioneerInput::Start(message) = input else {
        return;
    };
    for admitted in message.requests.iter_mut().flatten() {
        if admitted.request.traceparent.is_none() {
            Arc::make_mut(&mut admitted.request).traceparent = Some(trace.to_owned());
        }
    }
}

/// Where an answer goes.
pub(super) enum Waiting {
    /// To the client that asked an endpoint; the endpoint counts its answers.
    Endpoint(Box<Request>),
    /// Below our own subject: the answer to a broadcast.
    Broadcast(String),
}

impl Waiting {
    /// Returns none if no answer is wanted, or if it is wanted on a forbidden subject.
    fn of(shell: &Shell, kind: RequestKind, request: Request) -> Option<Self> {
        let to = match kind {
            RequestKind::Queued => AnswerTo::of(&request.message),
            _ => Ok(None),
        };
        match (to, &request.message.reply) {
            (Ok(Some(to)), _) => {
                let subject = shell.subjects.auctioneer_answer(&shell.name, &to);
                Some(Self::Broadcast(subject))
            }
            (Ok(None), None) => None,
            (Ok(None), Some(reply)) if may_answer(reply) => Some(Self::Endpoint(Box::new(request))),
            _ => {
                shell.forbidden.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

fn read(
    policy: &Policy,
    kind: RequestKind,
    body: &[u8],
    key: Option<ReplyKey>,
) -> Result<AuctioneerInput, WireError> {
    match (kind, key) {
        (RequestKind::Start, key) => Ok(admission::read_start(policy, body, key, new_ids())),
        (RequestKind::Stop, key) => Ok(admission::read_stop(body, key, Uuid::now_v7)),
        (_, None) => Err(admission::no_reply()),
        (RequestKind::Place, Some(key)) => admission::read_place(policy, body, key, Uuid::now_v7),
        (RequestKind::Explain, Some(key)) => admission::read_explain(body, key),
        (RequestKind::Capacity, Some(key)) => {
            admission::read_capacity(policy, body, key, Uuid::now_v7)
        }
        (RequestKind::Queued, Some(key)) => admission::read_queued(body, key),
        (RequestKind::Pool, Some(key)) => admission::read_pool(body, key),
    }
}

/// Returns a source of ids for the requests of one message. The system is asked for randomness once, not for each.
fn new_ids() -> impl FnMut() -> Uuid {
    let mut source = None;
    move || {
        let (wall_ms, random) = source.get_or_insert_with(|| {
            let (high, low) = Uuid::new_v4().as_u64_pair();
            // of both, because six bits are not random
            (wall_ms(), SplitMix64::new(high.rotate_left(32) ^ low))
        });
        let mut bytes = [0; 10];
        let draws = random
            .draw()
            .to_be_bytes()
            .into_iter()
            .chain(random.draw().to_be_bytes());
        bytes
            .iter_mut()
            .zip(draws)
            .for_each(|(byte, drawn)| *byte = drawn);
        let millis = u64::try_from(*wall_ms).unwrap_or_default();
        uuid::Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid()
    }
}

fn service_name(shell: &Shell) -> String {
    shell.subjects.service(Role::Auctioneer)
}

fn hash(policy: &Policy) -> String {
    format!("{:016x}", policy.hash())
}

/// Checks that no other auctioneer has this name. Two of one name would take each other's echoes for their own, so the
/// later one does not start.
pub(super) async fn check_name_is_free(shell: &Shell, name: &str) -> Result<(), AuctioneerError> {
    let mut taken = false;
    let take = |answer: async_nats::Message| {
        let info: Option<Info> = serde_json::from_slice(&answer.payload).ok();
        taken |= info.is_some_and(|info| info.metadata.get("name").is_some_and(|n| n == name));
        taken
    };
    let subject = format!("$SRV.INFO.{}", service_name(shell));
    let (deadline, quiet) = (Duration::from_millis(500), Duration::from_millis(100));
    let client = &shell.bus.client;
    gather(client, subject, "".into(), deadline, Some(quiet), take).await?;
    if taken {
        return Err(AuctioneerError::NameTaken(name.to_owned()));
    }
    Ok(())
}

/// The part of an auctioneer's service information that is used here.
#[derive(serde::Deserialize)]
struct Info {
    metadata: HashMap<String, String>,
}

/// Warns about auctioneers with another policy, now and once a minute.
pub(super) async fn compare_policies(shell: Shell) {
    let policy = Arc::clone(&shell.policy);
    let ours = hash(&policy);
    let subject = format!("$SRV.INFO.{}", service_name(&shell));
    let lines = LogLimit::new(POLICIES_LOGGED);
    loop {
        let on_answer = |answer: async_nats::Message| {
            if let Some((name, theirs)) = other_policy(&answer.payload, &ours)
                && lines.next(Instant::now()).0
            {
                tracing::warn!(
                    policy = policy.name(),
                    theirs = %cut(&theirs),
                    auctioneer = %cut(&name),
                    "another auctioneer has a different policy"
                );
            }
            false
        };
        let wait = Duration::from_secs(1);
        let client = &shell.bus.client;
        let ended = gather(client, subject.clone(), "".into(), wait, None, on_answer).await;
        if let Err(error) = ended {
            tracing::debug!(%error, "cannot compare policies with other auctioneers");
        }
        tokio::time::sleep_until(after(COMPARE)).await;
    }
}

/// Returns the name and policy of an auctioneer whose policy differs from ours.
fn other_policy(info: &[u8], ours: &str) -> Option<(String, String)> {
    let mut info: Info = serde_json::from_slice(info).ok()?;
    if info.metadata.get("policy_hash")? == ours {
        return None;
    }
    let name = info.metadata.remove("name").unwrap_or_default();
    Some((name, info.metadata.remove("policy").unwrap_or_default()))
}
