//! Asking many at once: one question, answers until there are enough or time is up.

use std::time::Duration;

use async_nats::{Client, Message};
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

/// What ended a [`gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherEnd {
    /// `enough` said so.
    Enough,
    /// The deadline passed, or the quiet time after the last answer.
    TimeUp,
    /// The server said at once that nobody listens.
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
) -> Result<GatherEnd, crate::nats::BusError> {
    let until = Instant::now() + deadline;
    let inbox = client.new_inbox();
    let mut answers = client
        .subscribe(inbox.clone())
        .await
        .map_err(crate::nats::BusError::subscribe)?;
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
