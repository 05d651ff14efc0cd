//! Everything a cell listens to, as one stream: plain subscriptions for what goes to every cell, a
//! NATS service for what goes to this one.

use std::{collections::HashMap, time::Duration};

use async_nats::service::{Service, ServiceExt};
use futures_util::{StreamExt, stream::BoxStream, stream::SelectAll};
use shared::{Subjects, nats::BusError};

use crate::{
    Config,
    outbox::{Asked, Counters},
};

/// What a message asks for, by the subject it came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Discover,
    Bid,
    Instances,
    Stop,
    Start,
    Drain,
    Set,
    State,
    Logs,
    /// An advertisement under our own name.
    Namesake,
}

/// Every message for this cell.
pub(crate) type Heard = SelectAll<BoxStream<'static, (Topic, Asked)>>;

/// What is asked of one cell.
const ENDPOINTS: [(&str, Topic); 6] = [
    ("start", Topic::Start),
    ("stop", Topic::Stop),
    ("drain", Topic::Drain),
    ("set", Topic::Set),
    ("state", Topic::State),
    ("logs", Topic::Logs),
];

/// Subscribes to everything. The service, where there is one, ends when it is stopped.
pub(crate) async fn listen(
    config: &Config,
    client: &async_nats::Client,
    subjects: &Subjects,
    counters: std::sync::Arc<Counters>,
) -> Result<(Heard, Option<Service>), BusError> {
    let mut heard = SelectAll::new();
    for (subject, topic) in [
        (subjects.discover(), Topic::Discover),
        (subjects.bid(), Topic::Bid),
        (subjects.instances(), Topic::Instances),
        (subjects.cells_stop(), Topic::Stop),
    ] {
        let messages = client
            .subscribe(subject)
            .await
            .map_err(BusError::subscribe)?;
        heard.push(plain(messages, topic));
    }
    heard.push(namesakes(config, client, subjects).await?);
    let service = if config.service {
        Some(serve(config, client, subjects, counters, &mut heard).await?)
    } else {
        for (what, topic) in ENDPOINTS {
            let subject = subjects.cell(&config.cell, what);
            let messages = client
                .queue_subscribe(subject, "q".into())
                .await
                .map_err(BusError::subscribe)?;
            heard.push(plain(messages, topic));
        }
        None
    };
    Ok((heard, service))
}

/// Two cells of one name that start in one moment find nobody when they ask for it, so each listens
/// to its own advertisements in its first time.
async fn namesakes(
    config: &Config,
    client: &async_nats::Client,
    subjects: &Subjects,
) -> Result<BoxStream<'static, (Topic, Asked)>, BusError> {
    let own = subjects.cell(&config.cell, "advert");
    let messages = client.subscribe(own).await.map_err(BusError::subscribe)?;
    let while_new = tokio::time::sleep(namesake_time(config));
    let messages = messages.take_until(Box::pin(while_new));
    let heard = messages.map(|message| (Topic::Namesake, Asked::Plain(Box::new(message))));
    Ok(heard.boxed())
}

/// How long a cell listens for others of its name: both have advertised by then.
pub(crate) fn namesake_time(config: &Config) -> Duration {
    2 * config.interval.0
}

fn plain(messages: async_nats::Subscriber, topic: Topic) -> BoxStream<'static, (Topic, Asked)> {
    messages
        .map(move |message| (topic, Asked::Plain(Box::new(message))))
        .boxed()
}

async fn serve(
    config: &Config,
    client: &async_nats::Client,
    subjects: &Subjects,
    counters: std::sync::Arc<Counters>,
    heard: &mut Heard,
) -> Result<Service, BusError> {
    let refused = |e: async_nats::Error| BusError::Refused(e.to_string());
    let about = [("cell", &config.cell), ("zone", &config.zone)];
    let metadata: HashMap<String, String> = about
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.clone()))
        .collect();
    // a service's name may hold no dots
    let name = format!("{}-cell", subjects.prefix().replace('.', "-"));
    let service = client
        .service_builder()
        .description("One cell: starts what an auctioneer sends it")
        .metadata(metadata)
        .stats_handler(move |_, _| counters.to_json())
        .start(name, env!("CARGO_PKG_VERSION"))
        .await
        .map_err(refused)?;
    for (what, topic) in ENDPOINTS {
        let endpoint = service
            .endpoint_builder()
            .name(what)
            .add(subjects.cell(&config.cell, what))
            .await
            .map_err(refused)?;
        let asked = endpoint.map(move |request| (topic, Asked::Endpoint(Box::new(request))));
        heard.push(asked.boxed());
    }
    Ok(service)
}
