//! The NATS service: the manager's entry under `$SRV` and the request subjects.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError},
};

use async_nats::service::{Request, Service, ServiceExt, endpoint::Endpoint};
use futures_util::StreamExt;
use shared::{
    may_answer,
    permissions::Role,
    wire::{WireError, code},
};
use tokio::{sync::mpsc, task::JoinSet};

use super::{Counted, ManagerError, Shell, requests::Verb};

/// A received request.
pub(super) struct Asked {
    pub(super) verb: Verb,
    /// The app, the id or the auctioneer in the subject; empty if it names none.
    pub(super) app: String,
    pub(super) body: bytes::Bytes,
    pub(super) to: ReplyTo,
}

/// The recipient of an answer; none if no answer is wanted or the reply subject is not allowed.
pub(super) struct ReplyTo(Option<Box<Request>>);

impl ReplyTo {
    fn of(shell: &Shell, request: Request) -> Self {
        match &request.message.reply {
            Some(reply) if may_answer(reply) => Self(Some(Box::new(request))),
            Some(_) => {
                shell.count(Counted::ReplySubject);
                Self(None)
            }
            None => Self(None),
        }
    }

    pub(super) fn into_request(self) -> Option<Request> {
        self.0.map(|request| *request)
    }
}

/// The service and its endpoints.
pub(super) struct RequestService(Option<Service>);

impl RequestService {
    pub(super) async fn open(
        shell: &Shell,
        asked: &mpsc::Sender<Asked>,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, ManagerError> {
        let figures = Arc::clone(&shell.figures);
        let service = shell
            .bus
            .client
            .service_builder()
            .description("keeps apps running")
            .metadata(HashMap::from([("name".to_owned(), shell.name.to_string())]))
            .stats_handler(move |_, stats| {
                if stats.name != "put" {
                    return serde_json::Value::Null;
                }
                figures
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone()
            })
            .start(
                shell.subjects.service(Role::Manager),
                env!("CARGO_PKG_VERSION"),
            )
            .await
            .map_err(ManagerError::Service)?;
        for verb in Verb::ALL {
            let name = verb.name();
            let subject = verb.subject(&shell.subjects);
            let endpoint = service.endpoint_builder().name(name);
            let endpoint = endpoint.queue_group(verb.queue(&shell.name)).add(subject);
            let endpoint = endpoint.await.map_err(ManagerError::Service)?;
            tasks.spawn(take(shell.clone(), endpoint, verb, asked.clone()));
        }
        Ok(Self(Some(service)))
    }

    /// Stops accepting requests.
    pub(super) async fn close(&mut self) {
        if let Some(service) = self.0.take()
            && let Err(error) = service.stop().await
        {
            tracing::debug!(%error, "the service did not stop cleanly");
        }
    }
}

/// Passes the requests of one endpoint to the owner of the machine.
async fn take(shell: Shell, mut endpoint: Endpoint, verb: Verb, asked: mpsc::Sender<Asked>) {
    while let Some(request) = endpoint.next().await {
        let subject = request.message.subject.as_str();
        let app = shell.subjects.app_of(subject);
        let app = app.or_else(|| shell.subjects.task_of(subject));
        let app = app.map(|(_, app)| app);
        let app = app.or_else(|| shell.subjects.grant_of(subject));
        let app = app.unwrap_or_default().to_owned();
        let body = request.message.payload.clone();
        let to = ReplyTo::of(&shell, request);
        let request = Asked {
            verb,
            app,
            body,
            to,
        };
        match asked.try_send(request) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(request)) => {
                shell.count(Counted::Request);
                let message = "too many requests wait; try again";
                let error = WireError::new(code::OVERLOADED, message);
                shell.refuse(request.to, &error).await;
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return,
        }
    }
    // the other tasks continue until everything is answered
    std::future::pending::<()>().await;
}
