//! Everything a cell subscribes to, as one stream: plain subscriptions for broadcasts, and a NATS service for requests
//! to this cell.

use std::collections::HashMap;

use async_nats::service::{Service, ServiceExt};
use futures_util::{StreamExt, stream::BoxStream, stream::SelectAll};
use shared::{
    Subjects,
    nats::{BusError, PermissionViolation},
    permissions::Role,
};

use crate::{
    config::RepConfig,
    outbox::{Counters, Question},
};

/// The kinds of messages, by subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Discover,
    Bid,
    Instances,
    Stop,
    Start,
    Drain,
    Cordon,
    Uncordon,
    Set,
    State,
    Logs,
    /// An advertisement under our own name.
    Namesake,
    /// The state of a rep with our own name.
    NamesakeState,
}

/// What the main loop handles, besides its timer and the reports of the executor.
#[derive(Debug)]
pub(crate) enum Input {
    /// A message for this cell has arrived.
    Message(Topic, Question),
    /// The rep was told to end at once.
    EndAtOnce,
    /// The rep was told to end gently.
    EndGently,
    /// The server does not permit something that the rep cannot do without.
    NotPermitted(PermissionViolation),
    /// The connection was lost or is there again.
    Connected(bool),
}

/// All inputs as one stream, which polls only those that are ready: a cell answers thousands of questions a second.
pub(crate) type Inputs = SelectAll<BoxStream<'static, Input>>;

/// Requests to one cell.
const ENDPOINTS: [(&str, Topic); 8] = [
    ("start", Topic::Start),
    ("stop", Topic::Stop),
    ("drain", Topic::Drain),
    ("cordon", Topic::Cordon),
    ("uncordon", Topic::Uncordon),
    ("set", Topic::Set),
    ("state", Topic::State),
    ("logs", Topic::Logs),
];

/// Subscribes to everything. The service, if any, ends when it is stopped.
pub(crate) async fn listen(
    config: &RepConfig,
    client: &async_nats::Client,
    subjects: &Subjects,
    counters: std::sync::Arc<Counters>,
    inbox: &str,
) -> Result<(Inputs, Option<Service>), BusError> {
    let mut all = SelectAll::new();
    for (subject, topic) in [
        (subjects.discover(), Topic::Discover),
        (subjects.bid(), Topic::Bid),
        (subjects.instances(), Topic::Instances),
        (subjects.cells_stop(), Topic::Stop),
        // another rep may start under our name, or have stood still while we started
        (subjects.cell(&config.cell, "advert"), Topic::Namesake),
        (inbox.to_owned(), Topic::NamesakeState),
    ] {
        let messages = client
            .subscribe(subject)
            .await
            .map_err(BusError::subscribe)?;
        all.push(plain(messages, topic));
    }
    let service = if config.service {
        Some(serve(config, client, subjects, counters, &mut all).await?)
    } else {
        for (what, topic) in ENDPOINTS {
            let subject = subjects.cell(&config.cell, what);
            let messages = client
                .queue_subscribe(subject, Subjects::CELL_QUEUE.into())
                .await
                .map_err(BusError::subscribe)?;
            all.push(plain(messages, topic));
        }
        None
    };
    Ok((all, service))
}

fn plain(messages: async_nats::Subscriber, topic: Topic) -> BoxStream<'static, Input> {
    messages
        .map(move |message| Input::Message(topic, Question::Plain(Box::new(message))))
        .boxed()
}

async fn serve(
    config: &RepConfig,
    client: &async_nats::Client,
    subjects: &Subjects,
    counters: std::sync::Arc<Counters>,
    all: &mut Inputs,
) -> Result<Service, BusError> {
    let refused = |e: async_nats::Error| BusError::Refused(e.to_string());
    let about = [("cell", &config.cell), ("zone", &config.zone)];
    let metadata: HashMap<String, String> = about
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    let service = client
        .service_builder()
        .description("cell agent: runs the work that auctioneers send")
        .metadata(metadata)
        .stats_handler(move |_, _| counters.to_json())
        .start(subjects.service(Role::Cell), env!("CARGO_PKG_VERSION"))
        .await
        .map_err(refused)?;
    for (what, topic) in ENDPOINTS {
        let endpoint = service
            .endpoint_builder()
            .name(what)
            .queue_group(Subjects::CELL_QUEUE)
            .add(subjects.cell(&config.cell, what))
            .await
            .map_err(refused)?;
        let asked = |request| Question::Endpoint(Box::new(request));
        let question = endpoint.map(move |request| Input::Message(topic, asked(request)));
        all.push(question.boxed());
    }
    Ok(service)
}
