//! What a program between an estate and a cluster reports about itself: a service with one endpoint.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_nats::{
    Client,
    service::{Service, ServiceExt},
};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::Value;
use shared::{
    Subjects, may_answer,
    nats::{Bus, BusError, in_time, is_no_responders, new_inbox},
    permissions::Role,
    wire::to_bytes,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// How long another program of the same name has to answer.
const NAME_WAIT: Duration = Duration::from_millis(500);
/// How long the program may take to refresh its document when asked; after that, the last one is the answer.
const FRESH_WAIT: Duration = Duration::from_millis(500);
/// The most questions that wait for a refresh.
const WAITING: usize = 64;

/// Returns whether a request that we are about to serve is answered already, by another program of our name.
pub(crate) async fn is_answered(client: &Client, subject: String) -> Result<bool, BusError> {
    let inbox = new_inbox(client);
    let answers = client.subscribe(inbox.clone()).await;
    let mut answers = answers.map_err(BusError::subscribe)?;
    in_time(client.publish_with_reply(subject, inbox, Bytes::new())).await?;
    let answer = timeout(NAME_WAIT, answers.next()).await;
    Ok(matches!(answer, Ok(Some(answer)) if !is_no_responders(&answer)))
}

/// A document that is refreshed regularly and before each answer.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    document: Arc<Mutex<Value>>,
    asks: mpsc::Sender<oneshot::Sender<()>>,
}

/// Requests to refresh the document: [`Shown::put`] it, then send back.
pub(crate) type Asks = mpsc::Receiver<oneshot::Sender<()>>;

impl Shown {
    pub(crate) fn new() -> (Self, Asks) {
        let (asks, asked) = mpsc::channel(WAITING);
        let document = Arc::default();
        (Self { document, asks }, asked)
    }

    pub(crate) fn put(&self, document: Value) {
        *self.lock() = document;
    }

    fn read(&self) -> Value {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Value> {
        self.document.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the refreshed document, or the last one if the program is too busy.
    async fn fresh(&self) -> Value {
        let (done, is_done) = oneshot::channel();
        if self.asks.try_send(done).is_ok() {
            let _ = timeout(FRESH_WAIT, is_done).await;
        }
        self.read()
    }

    /// Answers requests on this subject, and includes the document in the statistics of the service.
    pub(crate) async fn serve(
        &self,
        cluster: &Bus,
        subjects: &Subjects,
        (role, about): (Role, &str),
        subject: String,
    ) -> Result<Service, BusError> {
        let refused = |e: async_nats::Error| BusError::Refused(e.to_string());
        let (stats, shown) = (self.clone(), self.clone());
        let service = cluster
            .client
            .service_builder()
            .description(about)
            .stats_handler(move |_, _| stats.read())
            .start(subjects.service(role), env!("CARGO_PKG_VERSION"))
            .await
            .map_err(refused)?;
        let endpoint = service.endpoint_builder().name("state");
        let endpoint = endpoint.queue_group(Subjects::CELL_QUEUE).add(subject);
        let mut endpoint = endpoint.await.map_err(refused)?;
        tokio::spawn(async move {
            while let Some(request) = endpoint.next().await {
                let reply = request.message.reply.as_deref();
                if reply.is_some_and(may_answer) {
                    // the client may be gone
                    let _ = request.respond(Ok(to_bytes(&shown.fresh().await))).await;
                }
            }
        });
        Ok(service)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn who_asks_gets_the_document_as_it_is_then() {
        let (shown, mut asks) = Shown::new();
        shown.put(json!(0));
        let program = tokio::spawn({
            let shown = shown.clone();
            async move {
                for n in 1..=2 {
                    let done = asks.recv().await.unwrap();
                    shown.put(json!(n));
                    done.send(()).unwrap();
                }
            }
        });
        assert_eq!(shown.fresh().await, json!(1));
        assert_eq!(shown.fresh().await, json!(2));
        program.await.unwrap();
        // after the program has ended, the last document is the answer
        assert_eq!(shown.fresh().await, json!(2));
    }
}
