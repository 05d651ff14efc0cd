//! The buckets in JetStream: one with the apps, one with stored requests, one with the lease. All are streams in the
//! form that every client of the key-value store knows, with history 1 and without direct reads, which a server that is
//! behind might answer.

use std::{error::Error, time::Duration};

use async_nats::{
    Client, HeaderMap,
    jetstream::{
        self, Context,
        context::{AccountErrorKind, ContextBuilder, GetStreamErrorKind, PublishErrorKind},
        message::PublishMessage,
        stream::{Config, DiscardPolicy, Info, StorageType},
    },
};
use bytes::Bytes;
use placement::Invalid;
use shared::{Subjects, clock::wall_ms};
use tokio::time::timeout;

use super::ManagerError;
use crate::{
    ids::Revision,
    io::WriteResult,
    stored::{HistoryRecord, StoredKey, read_stored},
    tasks::TaskRecord,
};

/// How long the server has to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// A write that is not acknowledged within this time counts as failed.
const WRITE: Duration = Duration::from_secs(3);
/// The same for a renewal of the lease, which must leave time for another one before the lease is too old to act.
const RENEW: Duration = Duration::from_millis(1_500);
/// How long a deletion marker is kept if nothing is stored under the key again.
const MARKER: Duration = Duration::from_secs(24 * 3_600);
/// The largest number of replicas that a stream can have.
pub(super) const MAX_REPLICAS: usize = 5;

/// Error codes of the server for a key that another client has written meanwhile.
const WRONG_LAST: [u64; 2] = [10_071, 10_164];
/// Error code for a stream that does not exist.
const NO_STREAM: u64 = 10_059;
/// Error codes for JetStream not being enabled for the server or the account.
const NOT_ENABLED: [u64; 2] = [10_039, 10_076];

/// The names of the buckets and how they are created.
#[derive(Clone, Debug)]
pub struct BucketConfig {
    /// The bucket of the apps. The bucket of the lease has the suffix `-lease`, that of stored requests `-tasks`.
    pub name: String,
    /// The number of replicas of each bucket: 1, 3 or 5. Only used when they are created.
    pub replicas: usize,
}

impl BucketConfig {
    /// Rejects settings that no stream can have.
    pub fn check(&self) -> Result<(), Invalid> {
        Subjects::check_apps_bucket("bucket", &self.name)?;
        if self.replicas % 2 == 1 && self.replicas <= MAX_REPLICAS {
            return Ok(());
        }
        Err(Invalid::new("replicas", self.replicas, "1, 3 or 5"))
    }
}

/// Access to the buckets.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub(super) context: Context,
    config: BucketConfig,
}

/// One of the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bucket {
    Apps,
    Tasks,
    Lease,
}

impl Bucket {
    /// All buckets.
    pub(super) const ALL: [Self; 3] = [Self::Apps, Self::Tasks, Self::Lease];
}

impl Store {
    pub(super) fn new(client: Client, config: BucketConfig) -> Self {
        let context = ContextBuilder::new().timeout(ANSWER).ack_timeout(WRITE);
        Self {
            context: context.build(client),
            config,
        }
    }

    pub(super) fn bucket_name(&self, bucket: Bucket) -> String {
        match bucket {
            Bucket::Apps => self.config.name.clone(),
            Bucket::Tasks => Subjects::tasks_bucket(&self.config.name),
            Bucket::Lease => Subjects::lease_bucket(&self.config.name),
        }
    }

    /// Returns the name of a bucket's stream.
    pub(super) fn stream(&self, bucket: Bucket) -> String {
        format!("KV_{}", self.bucket_name(bucket))
    }

    /// Returns the prefix of every subject of a bucket.
    pub(super) fn prefix(&self, bucket: Bucket) -> String {
        format!("$KV.{}.", self.bucket_name(bucket))
    }

    /// Fails if JetStream cannot be used at all. A problem that may soon be over is no error here.
    pub(super) async fn check_jetstream(&self) -> Result<(), ManagerError> {
        let Err(error) = self.context.query_account().await else {
            return Ok(());
        };
        let never = match error.kind() {
            AccountErrorKind::JetStreamUnavailable => true,
            AccountErrorKind::JetStream(error) => NOT_ENABLED.contains(&error.error_code().0),
            _ => false,
        };
        if never {
            return Err(ManagerError::NoJetStream(error.to_string()));
        }
        Ok(())
    }

    /// Creates a bucket if it does not exist. Returns its state and whether it was created.
    pub(super) async fn open(&self, bucket: Bucket) -> Result<(Info, bool), StoreError> {
        match self.context.get_stream(self.stream(bucket)).await {
            Ok(stream) => return Ok((stream.cached_info().clone(), false)),
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(inner) if inner.error_code().0 == NO_STREAM => {}
                _ => return Err(StoreError::because("looking for", bucket, &error)),
            },
        }
        let created = self.context.create_stream(self.stream_config(bucket)).await;
        let created = created.map_err(|e| StoreError::because("creating", bucket, &e))?;
        Ok((created.cached_info().clone(), true))
    }

    fn stream_config(&self, bucket: Bucket) -> Config {
        Config {
            name: self.stream(bucket),
            description: Some("vendue: written by its managers only".into()),
            subjects: vec![format!("{}>", self.prefix(bucket))],
            max_messages_per_subject: 1,
            // revisions never coincide with those of a predecessor of the bucket, which a manager may still remember
            first_sequence: u64::try_from(wall_ms()).ok(),
            discard: DiscardPolicy::New,
            storage: StorageType::File,
            num_replicas: self.config.replicas,
            // a rollup message removes all others of the bucket: no manager sends one
            allow_rollup: false,
            deny_delete: true,
            allow_direct: false,
            allow_message_ttl: true,
            ..Config::default()
        }
    }

    /// Stores a value if the key still has the expected revision.
    pub(super) async fn write(
        &self,
        key: &StoredKey,
        value: Option<Bytes>,
        expected: Option<Revision>,
    ) -> Result<WriteResult, StoreError> {
        let (bucket, wait) = match key {
            StoredKey::Lease => (Bucket::Lease, RENEW),
            _ => (Bucket::Apps, WRITE),
        };
        let subject = format!("{}{key}", self.prefix(bucket));
        let mut message = PublishMessage::build().expected_stream(self.stream(bucket));
        message = match value {
            Some(value) => message.payload(value),
            None => deletion(message, key),
        };
        if let Some(expected) = expected {
            message = message.expected_last_subject_sequence(expected.0);
        }
        self.publish(bucket, subject, message, wait).await
    }

    /// Stores a request under its id, or deletes it, if the key still has the expected revision.
    pub(super) async fn write_task(
        &self,
        id: &str,
        value: Option<Bytes>,
        expected: Revision,
        ttl: Option<Duration>,
    ) -> Result<WriteResult, StoreError> {
        let bucket = Bucket::Tasks;
        let subject = format!("{}{id}", self.prefix(bucket));
        let mut message = PublishMessage::build().expected_stream(self.stream(bucket));
        message = match value {
            Some(value) => message.payload(value),
            None => message.header("KV-Operation", "DEL"),
        };
        if let Some(ttl) = ttl {
            message = message.ttl(ttl);
        }
        let message = message.expected_last_subject_sequence(expected.0);
        self.publish(bucket, subject, message, WRITE).await
    }

    async fn publish(
        &self,
        bucket: Bucket,
        subject: String,
        message: PublishMessage,
        wait: Duration,
    ) -> Result<WriteResult, StoreError> {
        let write = async { self.context.send_publish(subject, message).await?.await };
        match timeout(wait, write).await {
            Ok(Ok(ack)) => Ok(WriteResult::Written(Revision(ack.sequence))),
            Ok(Err(error)) if is_conflict(&error) => Ok(WriteResult::Conflict),
            Ok(Err(error)) => Err(StoreError::because("writing to", bucket, &error)),
            Err(_) => Err(StoreError::because("writing to", bucket, &NotInTime)),
        }
    }

    /// Reads a version from the history, and when it was stored.
    pub(super) async fn version(
        &self,
        key: &StoredKey,
    ) -> Result<Option<(HistoryRecord, String)>, StoreError> {
        let read = self.read(Bucket::Apps, &key.to_string()).await?;
        Ok(read.and_then(|(value, time)| Some((read_stored(&value).ok()?, time))))
    }

    /// Reads a stored request.
    pub(super) async fn task(&self, id: &str) -> Result<Option<TaskRecord>, StoreError> {
        let read = self.read(Bucket::Tasks, id).await?;
        Ok(read.and_then(|(value, _)| read_stored(&value).ok()))
    }

    /// Reads a value, and when it was stored.
    async fn read(&self, bucket: Bucket, key: &str) -> Result<Option<(Bytes, String)>, StoreError> {
        let failed = |error: &dyn Error| StoreError::because("reading", bucket, error);
        let stream = self.context.get_stream_no_info(self.stream(bucket)).await;
        let stream = stream.map_err(|e| failed(&e))?;
        let subject = format!("{}{key}", self.prefix(bucket));
        let read = stream.get_last_raw_message_by_subject(&subject).await;
        let message = match read {
            Ok(message) => message,
            Err(error)
                if error.kind() == jetstream::stream::LastRawMessageErrorKind::NoMessageFound =>
            {
                return Ok(None);
            }
            Err(error) => return Err(failed(&error)),
        };
        if is_deletion(Some(&message.headers)) {
            return Ok(None);
        }
        let time = std::time::SystemTime::from(message.time);
        let time = humantime::format_rfc3339_millis(time).to_string();
        Ok(Some((message.payload, time)))
    }
}

/// Turns a message into a deletion. A name of an app may be used again, and then the next write must name the revision
/// of the deletion; other keys are not reused, so their markers expire.
fn deletion(message: PublishMessage, key: &StoredKey) -> PublishMessage {
    let message = message.header("KV-Operation", "DEL");
    match key {
        StoredKey::App(_) => message,
        _ => message.ttl(MARKER),
    }
}

/// Returns whether a message of a bucket marks its key as deleted.
pub(super) fn is_deletion(headers: Option<&HeaderMap>) -> bool {
    headers.is_some_and(|headers| {
        headers.get("KV-Operation").is_some() || headers.get("Nats-Marker-Reason").is_some()
    })
}

fn is_conflict(error: &jetstream::context::PublishError) -> bool {
    if error.kind() == PublishErrorKind::WrongLastSequence {
        return true;
    }
    let inner = error
        .source()
        .and_then(|s| s.downcast_ref::<jetstream::Error>());
    inner.is_some_and(|inner| WRONG_LAST.contains(&inner.error_code().0))
}

/// A bucket that cannot be used at present.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{doing} the bucket {bucket}: {why}")]
pub(super) struct StoreError {
    doing: &'static str,
    bucket: &'static str,
    why: String,
}

impl StoreError {
    pub(super) fn because(doing: &'static str, bucket: Bucket, why: &dyn Error) -> Self {
        let bucket = match bucket {
            Bucket::Apps => "of the apps",
            Bucket::Tasks => "of the stored requests",
            Bucket::Lease => "of the lease",
        };
        let why = why.to_string();
        Self { doing, bucket, why }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("not acknowledged in time")]
struct NotInTime;

/// The oldest usable servers: in earlier ones, a compare-and-set could go wrong around restarts.
const OLDEST: [[u64; 3]; 2] = [[2, 11, 15], [2, 12, 6]];

/// Rejects a server that is too old, by the version that it reports.
pub(super) fn check_server(version: &str) -> Result<(), ManagerError> {
    let mut numbers = version.split(['.', '-', '+']).map(str::parse::<u64>);
    let mut next = || numbers.next().and_then(Result::ok).unwrap_or(0);
    let this = [next(), next(), next()];
    let [of_211, of_212] = OLDEST;
    let good = this >= of_212 || (this >= of_211 && this < [2, 12, 0]);
    if good {
        return Ok(());
    }
    Err(ManagerError::OldServer(version.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_known_faults_are_refused() {
        for good in [
            "2.11.15",
            "2.11.16",
            "2.12.6",
            "2.12.6-RC.1",
            "2.13.0",
            "2.15.1",
            "3.0.0",
        ] {
            assert!(check_server(good).is_ok(), "{good}");
        }
        for old in [
            "2.9.10", "2.10.29", "2.11.14", "2.12.0", "2.12.5", "", "latest",
        ] {
            let error = check_server(old).unwrap_err().to_string();
            assert!(error.contains(old) && error.contains("2.11.15"), "{error}");
        }
    }

    #[test]
    fn replicas_are_an_odd_number_up_to_five() {
        for (replicas, good) in [
            (0, false),
            (1, true),
            (2, false),
            (3, true),
            (5, true),
            (7, false),
        ] {
            let config = BucketConfig {
                name: "apps".into(),
                replicas,
            };
            assert_eq!(config.check().is_ok(), good, "{replicas}");
        }
    }
}
