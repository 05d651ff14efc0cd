//! //! Scatter-gather: one request to many, answers until there are enough or the time is over.

use std::time::Duration;

use async_nats::{Client, Message};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use crate::{
    Subjects,
    nats::BusError,
    wire::{QueuedAnswer, QueuedRequest, to_bytes},
};

/// The longest wait for auctioneers to answer which work is queued.
const QUEUED_DEADLINE: Duration = Duration::from_secs(1);
/// The number of auctioneers is not known: when none has answered for this long, all have.
const QUEUED_QUIET: Duration = Duration::from_millis(150);

/// What ended a [`gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherEnd {
    /// `enough` said so.
    Enough,
    /// The deadline passed, or no answer came during the quiet time.
    TimeUp,
    /// The server reported that there are no responders.
    NoResponders,
    /// The connection was closed.
    Closed,
}

/// Publishes `payload` with a fresh inbox as reply subject and hands every answer to `enough`,
/// until that returns true, `deadline` has passed, or (where given) no answer came for `quiet`
/// after the first one.
pub async fn gather(
    client: &Client,
    subject: String,
    payload: Bytes,
    deadline: Duration,
    quiet: Option<Duration>,
    mut enough: impl FnMut(Message) -> bool,
) -> Result<GatherEnd, BusError> {
    let until = Instant::now() + deadline;
    let inbox = client.new_inbox();
    let mut answers = client
        .subscribe(inbox.clone())
        .await
        .map_err(BusError::subscribe)?;
    let sent = client.publish_with_reply(subject, inbox, payload);
    crate::nats::in_time(sent).await?;
    let mut next = until;
    loop {
        match timeout_at(next, answers.next()).await {
            Err(_) => return Ok(GatherEnd::TimeUp),
            Ok(None) => return Ok(GatherEnd::Closed),
            Ok(Some(answer)) if crate::nats::is_no_responders(&answer) => {
                return Ok(GatherEnd::NoResponders);
            }
            Ok(Some(answer)) => {
                if enough(answer) {
                    return Ok(GatherEnd::Enough);
                }
                next = quiet.map_or(until, |q| until.min(Instant::now() + q));
            }
        }
    }
}

/// Asks every auctioneer which work is queued there. One answer for each, in the order of their
/// names; none when no auctioneer runs. An answer that cannot be parsed is left out.
pub async fn queued(
    client: &Client,
    subjects: &Subjects,
    request: &QueuedRequest,
) -> Result<Vec<QueuedAnswer>, BusError> {
    let mut answers: Vec<QueuedAnswer> = Vec::new();
    let take = |message: Message| {
        answers.extend(serde_json::from_slice::<QueuedAnswer>(&message.payload));
        false
    };
    gather(
        client,
        subjects.queued(),
        to_bytes(request),
        QUEUED_DEADLINE,
        Some(QUEUED_QUIET),
        take,
    )
    .await?;
    answers.sort_by(|a, b| a.auctioneer.cmp(&b.auctioneer));
    Ok(answers)
}
