//! A program's echo to itself: evidence that messages still arrive.

use std::time::Duration;

use async_nats::{Client, connection::State};
use bytes::Bytes;
use tokio::time::MissedTickBehavior;

use super::in_time;

/// Publishes `token` under `subject` at intervals of `every` while connected. Never ends.
pub async fn echo(client: Client, subject: String, token: Bytes, every: Duration) {
    let mut echoes = tokio::time::interval(every);
    echoes.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        echoes.tick().await;
        if client.connection_state() == State::Connected {
            let echo = client.publish(subject.clone(), token.clone());
            if let Err(error) = in_time(echo).await {
                tracing::debug!(%error, "no echo");
            }
        }
    }
}
