//! The watch of the buckets: every value, then each change. After any interruption everything is shown again, as there
//! is no other way to learn what was missed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_nats::jetstream::{
    Message,
    consumer::{AckPolicy, Consumer, DeliverPolicy, push},
};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use shared::nats::{Bus, PermissionViolation};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};
use uuid::Uuid;

use super::store::{Bucket, Store, StoreError, is_deletion};
use crate::{
    ids::Revision,
    io::{ManagerInput, TaskInput},
};

/// How often the server signals that the watch is alive; after twice this time without a signal the watch has ended.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The first and the longest wait before the next attempt. Managers that retry at once create consumers that nobody
/// reads.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// A watch that lasted longer than this was good.
const GOOD: Duration = Duration::from_secs(60);

/// How long a watch lasts that has shown a value of a newer format, which the machine cannot read: the watch does not
/// show when such a value expires.
const UNREAD: Duration = Duration::from_secs(60);

/// How often to check whether what was shown still exists, as a purge of the stream is not shown.
const LOOK: Duration = Duration::from_secs(5);

/// The keys that the machine reads from the apps' bucket; only commands read the history.
const APP_KEYS: [&str; 5] = ["meta", "app.*", "state.*", "rollout.*", "gone.*"];

/// Why a watch ended.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the watch of the buckets was interrupted: {0}")]
    Interrupted(String),
    #[error("the manager ends")]
    Closed,
}

/// Watches for as long as somebody listens. `newer` says whether the machine has found a newer format. Once stored
/// requests are refused, their bucket is left alone.
pub(super) async fn watch(
    store: Store,
    bus: Bus,
    inputs: mpsc::Sender<ManagerInput>,
    newer: Arc<AtomicBool>,
    mut tasks_refused: watch::Receiver<Option<PermissionViolation>>,
) {
    let (mut wait, mut again) = (FIRST_WAIT, false);
    let mut connected = bus.connected.clone();
    loop {
        if connected.wait_for(|up| *up).await.is_err() {
            return;
        }
        let began = Instant::now();
        let mut watched = Watched::new(&store, &inputs);
        watched.again = again;
        watched.with_tasks = tasks_refused.borrow_and_update().is_none();
        let ended = tokio::select! {
            ended = watched.run() => ended,
            Ok(()) = tasks_refused.changed() => Err(Ended::Interrupted("tasks are not permitted".into())),
            () = expired(&newer) => Err(Ended::Interrupted("what was stored in a newer format is read again".into())),
            _ = connected.wait_for(|up| !*up) => Err(Ended::Interrupted("disconnected".into())),
        };
        again |= watched.apps.current;
        let why = match ended {
            Err(Ended::Closed) => return,
            Err(why) => why,
            Ok(()) => Ended::Interrupted("it was closed".into()),
        };
        tracing::warn!(%why, "the stored state is not known until everything was read again");
        if inputs.send(ManagerInput::KvInterrupted).await.is_err() {
            return;
        }
        if began.elapsed() >= GOOD {
            wait = FIRST_WAIT;
        }
        sleep(some_of(wait)).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// Waits until values of a newer format may have expired.
async fn expired(newer: &AtomicBool) {
    loop {
        sleep(UNREAD).await;
        if newer.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Returns a random part of a wait, at least half of it, so that managers do not all try at the same moment.
fn some_of(wait: Duration) -> Duration {
    let (random, _) = Uuid::new_v4().as_u64_pair();
    let half = shared::clock::millis(wait / 2);
    Duration::from_millis(half + random % (half + 1))
}

/// One watch, from its beginning.
struct Watched<'a> {
    store: &'a Store,
    inputs: &'a mpsc::Sender<ManagerInput>,
    /// The last revision of the apps' bucket.
    revision: Revision,
    apps: Reading,
    tasks: Reading,
    lease: Reading,
    /// Whether stored requests are permitted.
    with_tasks: bool,
    /// Whether the buckets existed before.
    again: bool,
    /// The revision of the bucket's id, which is stored first and stays; its value; and whether there was a lease.
    meta: Revision,
    meta_value: Bytes,
    leased: bool,
}

/// The reading state of one bucket.
#[derive(Debug, Default)]
struct Reading {
    /// Whether every initial value has been shown.
    current: bool,
    /// Number of messages so far, which are numbered without gaps.
    messages: u64,
}

impl<'a> Watched<'a> {
    fn new(store: &'a Store, inputs: &'a mpsc::Sender<ManagerInput>) -> Self {
        Self {
            store,
            inputs,
            revision: Revision::NONE,
            apps: Reading::default(),
            tasks: Reading::default(),
            lease: Reading::default(),
            with_tasks: true,
            again: false,
            meta: Revision::NONE,
            meta_value: Bytes::new(),
            leased: false,
        }
    }

    async fn run(&mut self) -> Result<(), Ended> {
        let mut created = Vec::new();
        for bucket in self.buckets() {
            let (info, new) = self.store.open(bucket).await?;
            if new {
                created.push(self.store.bucket_name(bucket));
            }
            if bucket == Bucket::Apps {
                self.revision = Revision(info.state.last_sequence);
            }
        }
        if !created.is_empty() {
            let buckets = created.join(", ");
            if self.again {
                tracing::error!(
                    buckets,
                    "the stored apps are gone: new buckets, what runs is left alone; restore an export with \
                     `vendue app import --restore`"
                );
            } else {
                tracing::info!(buckets, "created");
            }
        }
        let (apps, nothing) = self.consume(Bucket::Apps).await?;
        self.apps.current = nothing;
        let tasks = if self.with_tasks {
            let (tasks, nothing) = self.consume(Bucket::Tasks).await?;
            self.tasks.current = nothing;
            Some(tasks)
        } else {
            self.tasks.current = true;
            None
        };
        let (lease, nothing) = self.consume(Bucket::Lease).await?;
        self.lease.current = nothing;
        self.ready_if_current().await?;
        let apps = apps.map(|message| (Bucket::Apps, message));
        let tasks = stream::iter(tasks).flatten();
        let tasks = tasks.map(|message| (Bucket::Tasks, message));
        let lease = lease.map(|message| (Bucket::Lease, message));
        let stored = stream::select(apps, tasks);
        let mut all = std::pin::pin!(stream::select(stored, lease));
        let mut looks = interval_at(Instant::now() + LOOK, LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = all.next() => {
                    let Some((bucket, message)) = message else {
                        return Ok(());
                    };
                    self.shown(bucket, &message?).await?;
                }
                _ = looks.tick() => self.look().await?,
            }
        }
    }

    fn buckets(&self) -> impl Iterator<Item = Bucket> + use<> {
        let with_tasks = self.with_tasks;
        let all = Bucket::ALL.into_iter();
        all.filter(move |bucket| with_tasks || *bucket != Bucket::Tasks)
    }

    /// Checks whether what was shown still exists.
    async fn look(&self) -> Result<(), Ended> {
        for bucket in self.buckets() {
            // if this question cannot be answered for long, the watch ends anyway
            let Ok((info, new)) = self.store.open(bucket).await else {
                return Ok(());
            };
            let purged = match bucket {
                Bucket::Apps => {
                    let first = Revision(info.state.first_sequence);
                    self.meta != Revision::NONE && first > self.meta
                }
                Bucket::Lease => self.leased && info.state.messages == 0,
                // whatever is deleted there has ended
                Bucket::Tasks => false,
            };
            if new || purged {
                let name = self.store.bucket_name(bucket);
                return Err(Ended::Interrupted(format!("{name} was purged")));
            }
        }
        Ok(())
    }

    /// Returns the messages of a bucket, and whether it is empty.
    async fn consume(
        &self,
        bucket: Bucket,
    ) -> Result<(impl Stream<Item = Result<Message, Ended>> + use<>, bool), Ended> {
        let context = &self.store.context;
        let keys: &[&str] = match bucket {
            Bucket::Apps => &APP_KEYS,
            Bucket::Tasks => &["*"],
            Bucket::Lease => &["lease"],
        };
        let prefix = self.store.prefix(bucket);
        let config = push::Config {
            deliver_subject: context.client().new_inbox(),
            description: Some("a manager's watch".into()),
            deliver_policy: DeliverPolicy::LastPerSubject,
            ack_policy: AckPolicy::None,
            filter_subjects: keys.iter().map(|key| format!("{prefix}{key}")).collect(),
            flow_control: true,
            idle_heartbeat: HEARTBEAT,
            num_replicas: 1,
            memory_storage: true,
            ..push::Config::default()
        };
        let failed = |error: &dyn std::error::Error| StoreError::because("watching", bucket, error);
        let stream = self.store.stream(bucket);
        let consumer = context.create_consumer_on_stream(config, stream).await;
        let consumer: Consumer<push::Config> = consumer.map_err(|e| failed(&e))?;
        let nothing = consumer.cached_info().num_pending == 0;
        let messages = consumer.messages().await.map_err(|e| failed(&e))?;
        let messages =
            messages.map(|message| message.map_err(|error| Ended::Interrupted(error.to_string())));
        Ok((messages, nothing))
    }

    async fn shown(&mut self, bucket: Bucket, message: &Message) -> Result<(), Ended> {
        let info = message
            .info()
            .map_err(|error| Ended::Interrupted(error.to_string()))?;
        let reading = match bucket {
            Bucket::Apps => &mut self.apps,
            Bucket::Tasks => &mut self.tasks,
            Bucket::Lease => &mut self.lease,
        };
        reading.messages += 1;
        let revision = Revision(info.stream_sequence);
        if info.consumer_sequence != reading.messages {
            return Err(Ended::Interrupted("a message was lost".into()));
        }
        if bucket == Bucket::Apps {
            self.revision = self.revision.max(revision);
        }
        let turned_current = !reading.current && info.pending == 0;
        let prefix = self.store.prefix(bucket);
        let key = message.subject.strip_prefix(&prefix).unwrap_or_default();
        match (bucket, key) {
            (Bucket::Apps, "meta") => {
                // it is stored again when it is missing, so another manager has found a purge that this one has not
                if self.meta != Revision::NONE && self.meta_value == message.payload {
                    return Err(Ended::Interrupted("the bucket was purged".into()));
                }
                self.meta = revision;
                self.meta_value = message.payload.clone();
            }
            (Bucket::Lease, _) => self.leased = true,
            _ => {}
        }
        let deleted = is_deletion(message.headers.as_ref());
        let value = (!deleted).then(|| message.payload.clone());
        let key = key.to_owned();
        let input = match bucket {
            Bucket::Tasks => ManagerInput::Task(TaskInput::Shown {
                id: key,
                revision,
                value,
            }),
            Bucket::Apps | Bucket::Lease => ManagerInput::Kv {
                key,
                revision,
                value,
            },
        };
        self.give(input).await?;
        if turned_current {
            match bucket {
                Bucket::Apps => self.apps.current = true,
                Bucket::Tasks => self.tasks.current = true,
                Bucket::Lease => self.lease.current = true,
            }
            self.ready_if_current().await?;
        }
        Ok(())
    }

    async fn ready_if_current(&self) -> Result<(), Ended> {
        if self.apps.current && self.tasks.current && self.lease.current {
            let revision = self.revision;
            self.give(ManagerInput::KvReady { revision }).await?;
        }
        Ok(())
    }

    async fn give(&self, input: ManagerInput) -> Result<(), Ended> {
        self.inputs.send(input).await.map_err(|_| Ended::Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AppUid, StoredKey};

    #[test]
    fn every_key_that_the_machine_reads_is_watched() {
        let uid = AppUid::new(1);
        for key in [
            StoredKey::Meta,
            StoredKey::App("web".into()),
            StoredKey::State(uid),
            StoredKey::Rollout(uid),
            StoredKey::Gone(uid),
        ] {
            let text = key.to_string();
            let (first, more) = text.split_once('.').unwrap_or((&text, ""));
            let watched = if more.is_empty() {
                first.to_owned()
            } else {
                format!("{first}.*")
            };
            assert!(APP_KEYS.contains(&watched.as_str()), "{key}");
        }
    }
}
