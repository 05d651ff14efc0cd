//! [`SimulatedDeas`] on a connection, for tests and measurements.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_nats::Client;
use futures_util::{StreamExt, stream::select_all};
use shared::{clock::wall_ms, nats::BusError};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::sleep,
};

use crate::dea::{DeaMessage, SimulatedDeas, subjects};

/// The subjects that DEAs subscribe to. As on a real DEA's connection, messages to one DEA arrive in the order in which
/// they were sent.
const SUBJECTS: [&str; 3] = [
    "dea.>",
    subjects::HEALTH_MANAGER_START,
    subjects::ROUTER_START,
];
/// The longest time between checks for due work.
const PAUSE_MS: u64 = 50;

/// DEAs on one connection; they end when this is dropped.
#[derive(Debug)]
pub struct SimulatedEstate {
    state: State,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for SimulatedEstate {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[derive(Clone, Debug)]
struct State {
    deas: Arc<Mutex<SimulatedDeas>>,
    // sent under the lock, so that messages keep the order of the events that they report
    said: UnboundedSender<DeaMessage>,
}

impl State {
    fn with<T>(&self, act: impl FnOnce(&mut SimulatedDeas, u64) -> (Vec<DeaMessage>, T)) -> T {
        let mut deas = self.deas.lock().unwrap_or_else(PoisonError::into_inner);
        let (said, result) = act(&mut deas, now_ms());
        for message in said {
            // an error means that the estate is ending
            let _ = self.said.send(message);
        }
        result
    }
}

fn now_ms() -> u64 {
    u64::try_from(wall_ms()).unwrap_or_default()
}

impl SimulatedEstate {
    /// Starts these DEAs on this connection.
    pub async fn start(client: Client, deas: SimulatedDeas) -> Result<Self, BusError> {
        let mut subscriptions = Vec::new();
        for subject in SUBJECTS {
            let messages = client.subscribe(subject).await;
            subscriptions.push(messages.map_err(BusError::subscribe)?);
        }
        // from then on no message is missed
        let _ = client.flush().await;
        let (said, to_say) = unbounded_channel();
        let deas = Arc::new(Mutex::new(deas));
        let state = State { deas, said };
        let listening = listen(state.clone(), subscriptions);
        let tasks = [
            tokio::spawn(listening),
            tokio::spawn(publish(client, to_say)),
        ];
        Ok(Self { state, tasks })
    }

    /// Calls `look` with the DEAs.
    pub fn look<T>(&self, look: impl FnOnce(&SimulatedDeas) -> T) -> T {
        self.state.with(|deas, _| (Vec::new(), look(deas)))
    }

    /// Calls `act` with the DEAs and the current time, and sends the resulting messages.
    pub fn act(&self, act: impl FnOnce(&mut SimulatedDeas, u64) -> Vec<DeaMessage>) {
        self.state.with(|deas, now_ms| (act(deas, now_ms), ()));
    }
}

async fn listen(state: State, subscriptions: Vec<async_nats::Subscriber>) {
    let mut messages = select_all(subscriptions);
    loop {
        let next_ms = state.with(|deas, now_ms| (deas.tick(now_ms), deas.next_ms()));
        let pause = next_ms.saturating_sub(now_ms()).min(PAUSE_MS);
        tokio::select! {
            message = messages.next() => {
                let Some(message) = message else { return };
                let (subject, reply) = (message.subject.as_str(), message.reply.as_deref());
                let body = &message.payload[..];
                state.with(|deas, now_ms| (deas.heard(now_ms, subject, reply, body), ()));
            }
            () = sleep(Duration::from_millis(pause)) => {}
        }
    }
}

async fn publish(client: Client, mut to_say: UnboundedReceiver<DeaMessage>) {
    while let Some(DeaMessage { subject, body }) = to_say.recv().await {
        if client.publish(subject, body.0.into()).await.is_err() {
            return;
        }
    }
}
