//! What a program between an estate and a cluster says of itself: a service of one endpoint.

use std::{
    sync::{Arc, Mutex, PoisonError},
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
use tokio::time::timeout;

/// How long another program of the same name has to answer.
const NAME_WAIT: Duration = Duration::from_millis(500);

/// Whether somebody answers a request for what we are about to answer ourselves: another program of our name.
pub(crate) async fn is_answered(client: &Client, subject: String) -> Result<bool, BusError> {
    let inbox = new_inbox(client);
    let answers = client.subscribe(inbox.clone()).await;
    let mut answers = answers.map_err(BusError::subscribe)?;
    in_time(client.publish_with_reply(subject, inbox, Bytes::new())).await?;
    let answer = timeout(NAME_WAIT, answers.next()).await;
    Ok(matches!(answer, Ok(Some(answer)) if !is_no_responders(&answer)))
}

/// A document, which is replaced again and again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown(Arc<Mutex<Value>>);

impl Shown {
    pub(crate) fn put(&self, document: Value) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = document;
    }

    fn read(&self) -> Value {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Answers whoever asks on this subject, and shows the same as the statistics of the service.
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
                    // whoever asked may be gone
                    let _ = request.respond(Ok(to_bytes(&shown.read()))).await;
                }
            }
        });
        Ok(service)
    }
}
