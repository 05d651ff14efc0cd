//! How a command reaches the cluster, and what its errors say.

use std::time::Duration;

use anyhow::anyhow;
use async_nats::{
    ConnectErrorKind, RequestErrorKind,
    client::{Request, RequestError},
    connection::State,
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use shared::{
    Subjects,
    nats::{self, Bus, BusError, NatsOptions, new_inbox},
    wire::{ErrorBody, WireError, code, to_bytes},
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    context::{Failure, Format, Global, Usage, failure_code},
    output::{note, with_progress},
};

/// The role that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer<'a> {
    /// Any auctioneer.
    Auctioneer,
    /// Any manager.
    Manager,
    /// Any manager, about tasks and other stored requests.
    ManagerOfTasks,
    /// The cell of this name.
    Cell(&'a str),
}

impl std::fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auctioneer => f.write_str("the auctioneer"),
            Self::Manager | Self::ManagerOfTasks => f.write_str("the manager"),
            Self::Cell(cell) => write!(f, "cell {cell}"),
        }
    }
}

/// A connection to a cluster.
pub(crate) struct Cluster {
    /// The connection.
    pub(crate) bus: Bus,
    /// The cluster's subjects.
    pub(crate) subjects: Subjects,
    /// How to print.
    pub(crate) format: Format,
}

/// How long a question may take by default.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

impl Cluster {
    /// Connects once; an unreachable server is an immediate error.
    pub(crate) async fn connect(global: &Global) -> anyhow::Result<Self> {
        let subjects = Subjects::new(global.prefix.as_str()).map_err(Usage::because)?;
        let options = nats_options(global, &short_name("vendue"), false);
        let bus = with_progress("connecting to NATS", Box::pin(connect(&options))).await?;
        Ok(Self {
            bus,
            subjects,
            format: global.output,
        })
    }

    /// Fails while the connection is lost, as then missing answers say nothing about the cluster.
    pub(crate) fn check_connected(&self) -> anyhow::Result<()> {
        if self.bus.client.connection_state() == State::Connected {
            return Ok(());
        }
        let url = &self.bus.url;
        Err(Failure::because(
            failure_code::UNREACHABLE,
            format_args!("the connection to NATS at {url} is lost"),
        ))
    }

    /// Reports on standard error when the connection is lost and restored, until the returned handle is dropped. Drop
    /// it before the connection, whose end is not a loss.
    pub(crate) fn tell_of_connection(&self) -> AbortOnDropHandle<()> {
        let (mut connected, url) = (self.bus.connected.clone(), self.bus.url.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            // the first change is our own connect
            while connected.wait_for(|now| *now).await.is_ok() {
                if connected.wait_for(|now| !now).await.is_err() {
                    return;
                }
                note(format_args!(
                    "connection to NATS at {url} lost; reconnecting"
                ));
                if connected.wait_for(|now| *now).await.is_ok() {
                    note(format_args!("connected to NATS at {url} again"));
                }
            }
        }))
    }

    /// Asks `who` on a subject and reads the answer.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        who: Peer<'_>,
        subject: String,
        question: &impl Serialize,
        patience: Duration,
    ) -> anyhow::Result<T> {
        let answer = self.ask_raw(who, subject, to_bytes(question), patience);
        let answer = answer.await?;
        serde_json::from_slice(&answer)
            .map_err(|e| anyhow!("the answer from {who} cannot be read: {e}"))
    }

    /// Asks with a body that is already serialised; an answer that is an error becomes one.
    pub(crate) async fn ask_raw(
        &self,
        who: Peer<'_>,
        subject: String,
        question: Bytes,
        patience: Duration,
    ) -> anyhow::Result<Bytes> {
        let asked = self.ask_quietly(who, subject, question, patience);
        with_progress(&format!("waiting for {who}"), asked).await
    }

    /// Does the same without reporting progress, for many questions at once.
    pub(crate) async fn ask_quietly(
        &self,
        who: Peer<'_>,
        subject: String,
        question: Bytes,
        patience: Duration,
    ) -> anyhow::Result<Bytes> {
        let most = self.bus.client.server_info().max_payload;
        if most > 0 && question.len() > most {
            let size = question.len();
            return Err(Usage::because(format_args!(
                "the message has {size} bytes and the NATS server takes at most {most}; send it in parts"
            )));
        }
        let request = Request::new()
            .payload(question)
            .timeout(Some(patience))
            .inbox(new_inbox(&self.bus.client));
        let answer = self.bus.client.send_request(subject.clone(), request).await;
        let answer = answer.map_err(|e| unanswered(&who, &subject, patience, &e))?;
        match serde_json::from_slice::<ErrorBody>(&answer.payload) {
            Ok(body) => Err(refused(body.error)),
            Err(_) => Ok(answer.payload),
        }
    }
}

/// Returns a unique name for a connection: `what-1a2b3c4d`.
pub(crate) fn short_name(what: &str) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("{what}-{}", &id[..8])
}

/// Returns the connection options given on the command line.
pub(crate) fn nats_options(global: &Global, name: &str, patient: bool) -> NatsOptions {
    NatsOptions {
        url: global.url().unwrap_or_default(),
        creds: global.creds(),
        nkey: global.nkey(),
        tls: global.tls(),
        inbox_prefix: global.inbox_prefix(),
        context: global.context(),
        violations: global.violations.clone(),
        name: name.into(),
        identity: global.identity.clone(),
        patient,
        ..NatsOptions::default()
    }
}

/// Connects; an error says what to do about it.
pub(crate) async fn connect(options: &NatsOptions) -> anyhow::Result<Bus> {
    nats::connect(options).await.map_err(advise)
}

fn advise(error: BusError) -> anyhow::Error {
    let (source, advice) = match &error {
        BusError::Options { .. } => return Usage::because(error),
        BusError::Connect { source, advice, .. } => (source, *advice),
        _ => return error.into(),
    };
    if source.kind() == ConnectErrorKind::ServerParse {
        return Usage::because(format_args!(
            "{error}: {}; expected an address like nats://127.0.0.1:4222",
            each_once(&source.to_string())
        ));
    }
    Failure::because(
        failure_code::UNREACHABLE,
        format_args!("{error}: {}\n{advice}", each_once(&source.to_string())),
    )
}

/// Removes the causes that the client repeats from a chain: `authorization violation: nats: authorization violation`.
fn each_once(chain: &str) -> String {
    let mut causes: Vec<&str> = Vec::new();
    for cause in chain.split(": ") {
        if cause != "nats" && !causes.contains(&cause) {
            causes.push(cause);
        }
    }
    causes.join(": ")
}

fn unanswered(
    who: &Peer,
    subject: &str,
    patience: Duration,
    error: &RequestError,
) -> anyhow::Error {
    let patience = placement::Span(patience);
    match (error.kind(), who) {
        (RequestErrorKind::NoResponders, Peer::Cell(cell)) => Failure::because(
            code::NOT_FOUND,
            format_args!(
                "no cell named {cell} answers ({subject}); `vendue cells` lists the cells"
            ),
        ),
        (RequestErrorKind::NoResponders, Peer::Auctioneer) => Failure::because(
            failure_code::UNREACHABLE,
            format_args!(
                "no auctioneer answers ({subject}): none is running, or --prefix names another cluster\n\
                 `vendue up` starts a whole cluster; `vendue health --role rep` says whether cells are there"
            ),
        ),
        (RequestErrorKind::NoResponders, Peer::Manager | Peer::ManagerOfTasks) => {
            let needs = match who {
                Peer::ManagerOfTasks => {
                    "\nstoring a request needs a manager, and a manager needs a NATS server with JetStream"
                }
                _ => "",
            };
            Failure::because(
                failure_code::UNREACHABLE,
                format_args!(
                    "no manager answers ({subject}): none is running, or --prefix is another\n\
                     `vendue manager` runs one; `vendue up` starts a whole cluster with one{needs}"
                ),
            )
        }
        (RequestErrorKind::TimedOut, Peer::Manager) => Failure::because(
            failure_code::NO_ANSWER,
            format_args!(
                "no answer from the manager within {patience} ({subject}); a change may still have been made: \
                 `vendue app list` shows what is wanted"
            ),
        ),
        (RequestErrorKind::TimedOut, Peer::ManagerOfTasks) => Failure::because(
            failure_code::NO_ANSWER,
            format_args!(
                "no answer from the manager within {patience} ({subject}); it may have been done: \
                 `vendue task show TASK` tells"
            ),
        ),
        (RequestErrorKind::TimedOut, who) => Failure::because(
            failure_code::NO_ANSWER,
            format_args!("no answer from {who} within {patience} ({subject})"),
        ),
        (RequestErrorKind::MaxPayloadExceeded, _) => Usage::because(error),
        // the connection was closed: the question may have been sent
        (_, who) => Failure::because(
            failure_code::NO_ANSWER,
            format_args!("asking {who} ({subject}): {error}"),
        ),
    }
}

/// Converts an error that arrived as an answer.
pub(crate) fn refused(error: WireError) -> anyhow::Error {
    if error.code == code::INVALID_REQUEST {
        return Usage::of_field(error.field, error.message);
    }
    let text = format!("{} ({})", error.message, error.code);
    Failure::because(&error.code, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        for (chain, said) in [
            (
                "authorization violation: nats: authorization violation",
                "authorization violation",
            ),
            (
                "IO error: Connection refused (os error 111)",
                "IO error: Connection refused (os error 111)",
            ),
        ] {
            assert_eq!(each_once(chain), said);
        }
    }
}
