//! Sending without blocking: if the client has no room, a task waits for it, so that a slow or lost server never delays
//! the state machines.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_nats::{Client, HeaderMap};
use bytes::Bytes;
use shared::{
    nats::{Bus, in_time},
    wire::WireError,
};
use tokio::sync::{mpsc, oneshot};

/// The most messages that wait to be sent; further ones are dropped and counted.
const WAITING: usize = 8_192;
/// The longest time that sending the last messages may take.
const FLUSH: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Message {
    subject: String,
    reply: Option<String>,
    headers: Option<HeaderMap>,
    body: Bytes,
}

#[derive(Debug)]
enum Waiting {
    Message(Message),
    Flush(oneshot::Sender<()>),
}

/// Waits until there is a connection.
pub(crate) async fn connected(bus: &Bus) {
    let mut connected = bus.connected.clone();
    // an error means that the client is gone; the next request reports it
    let _ = connected.wait_for(|connected| *connected).await;
}

/// Messages for one connection.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    waiting: mpsc::Sender<Waiting>,
    unsent: Arc<AtomicU64>,
}

impl Outbox {
    /// Sends through this client until all copies are dropped.
    pub(crate) fn new(client: Client) -> Self {
        let (waiting, messages) = mpsc::channel(WAITING);
        let unsent = Arc::default();
        tokio::spawn(send_all(client, messages, Arc::clone(&unsent)));
        Self { waiting, unsent }
    }

    /// Returns the number of messages that were not sent.
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent.load(Ordering::Relaxed)
    }

    /// Returns whether many more messages find room.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.capacity() >= WAITING / 2
    }

    /// Waits until [`Outbox::has_room`].
    pub(crate) async fn room(&self) {
        // an error means that the client is gone: nothing is sent any more, with or without room
        let _ = self.waiting.reserve_many(WAITING / 2).await;
    }

    pub(crate) fn publish(&self, subject: impl Into<String>, body: impl Into<Bytes>) {
        self.put(subject.into(), None, None, body.into());
    }

    /// Publishes a message that is answered on `reply`.
    pub(crate) fn ask(&self, subject: impl Into<String>, reply: &str, body: impl Into<Bytes>) {
        self.put(subject.into(), Some(reply.to_owned()), None, body.into());
    }

    /// Answers with an error.
    pub(crate) fn error(&self, subject: impl Into<String>, error: &WireError) {
        let body = shared::wire::to_bytes(&error.body());
        self.put(subject.into(), None, Some(error.headers()), body);
    }

    fn put(&self, subject: String, reply: Option<String>, headers: Option<HeaderMap>, body: Bytes) {
        let message = Message {
            subject,
            reply,
            headers,
            body,
        };
        if self.waiting.try_send(Waiting::Message(message)).is_err() {
            self.unsent.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sends what is waiting, within a short time limit.
    pub(crate) async fn flush(&self) {
        let (sent, all_sent) = oneshot::channel();
        let rest = async {
            if self.waiting.send(Waiting::Flush(sent)).await.is_ok() {
                let _ = all_sent.await;
            }
        };
        let _ = tokio::time::timeout(FLUSH, rest).await;
    }
}

async fn send_all(client: Client, mut waiting: mpsc::Receiver<Waiting>, unsent: Arc<AtomicU64>) {
    while let Some(next) = waiting.recv().await {
        match next {
            Waiting::Message(message) => {
                if let Err(error) = in_time(send(&client, message)).await {
                    unsent.fetch_add(1, Ordering::Relaxed);
                    tracing::warn!(%error, "message not sent");
                }
            }
            Waiting::Flush(done) => {
                let _ = client.flush().await;
                let _ = done.send(());
            }
        }
    }
}

async fn send(client: &Client, message: Message) -> Result<(), async_nats::PublishError> {
    let Message {
        subject,
        reply,
        headers,
        body,
    } = message;
    match (reply, headers) {
        (Some(reply), _) => client.publish_with_reply(subject, reply, body).await,
        (None, Some(headers)) => client.publish_with_headers(subject, headers, body).await,
        (None, None) => client.publish(subject, body).await,
    }
}

#[cfg(test)]
mod tests {
    use testkit::NatsServer;

    use super::*;

    /// This test has one thread: while the loop does not wait, nothing is sent.
    #[tokio::test]
    async fn whoever_waits_for_room_loses_nothing() {
        let server = NatsServer::start().await;
        let outbox = Outbox::new(server.client().await);
        let mut waited = 0;
        for _ in 0..2 * WAITING {
            if !outbox.has_room() {
                outbox.room().await;
                waited += 1;
            }
            assert!(outbox.has_room());
            outbox.publish("x", "");
        }
        assert!(waited > 1);
        outbox.flush().await;
        assert_eq!(outbox.unsent(), 0);
    }
}
