//! Sending what managers are to store, and what became of it.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use serde::Serialize;
use serde_json::Value;
use shared::wire::{TaskStatus, TaskStored, code, to_bytes};

use super::list;
use crate::{
    cluster::{Cluster, Peer},
    context::{Exit, Failure, Format, Usage, failure_code},
    output::{self, note},
};

/// Requests that wait for their answer at once.
const AT_ONCE: usize = 256;
/// A manager answers within 10 s.
const PATIENCE: Duration = Duration::from_secs(12);

/// What became of one request.
#[derive(Debug, Serialize)]
pub(crate) struct Submitted {
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refused>,
}

impl Submitted {
    /// Its id, if it is stored.
    pub(super) fn stored_id(&self) -> Option<String> {
        self.error.is_none().then(|| self.id.clone())
    }
}

#[derive(Debug, Serialize)]
struct Refused {
    code: String,
    message: String,
}

/// Sends the requests of a file to a manager, which stores them.
pub(crate) async fn durable(cluster: &Cluster, request: Value) -> anyhow::Result<Exit> {
    let requests = match request {
        Value::Array(many) => many,
        one => vec![one],
    };
    let to = |_: &str| cluster.subjects.app_submit();
    let submitted = submit(cluster, requests, &to).await?;
    report(cluster, &submitted)
}

/// Sends each, several at once; in their order.
pub(super) async fn submit(
    cluster: &Cluster,
    requests: Vec<Value>,
    to: &impl Fn(&str) -> String,
) -> anyhow::Result<Vec<Submitted>> {
    let one = async |request: Value| {
        let id = request["id"].as_str().unwrap_or_default().to_owned();
        if shared::check_stored_id(&id).is_err() {
            let message = "id: expected 1 to 64 of A-Z a-z 0-9 _ -";
            return Ok(refused(id, code::INVALID_REQUEST, message));
        }
        let asked = cluster.ask_raw(Peer::Manager, to(&id), to_bytes(&request), PATIENCE);
        match asked.await {
            Ok(answer) => {
                let stored: TaskStored = serde_json::from_slice(&answer)?;
                Ok(Submitted {
                    id,
                    changed: Some(stored.changed),
                    task: Some(stored.task),
                    error: None,
                })
            }
            Err(error) => refusal(id, error),
        }
    };
    let answers = stream::iter(requests).map(one).buffered(AT_ONCE);
    let answers: Vec<anyhow::Result<Submitted>> = answers.collect().await;
    answers.into_iter().collect()
}

fn refused(id: String, code: &str, message: &str) -> Submitted {
    Submitted {
        id,
        changed: None,
        task: None,
        error: Some(Refused {
            code: code.to_owned(),
            message: message.to_owned(),
        }),
    }
}

/// That a manager refuses one says nothing of the others; that none is there does.
fn refusal(id: String, error: anyhow::Error) -> anyhow::Result<Submitted> {
    if error.downcast_ref::<Usage>().is_some() {
        return Ok(refused(id, code::INVALID_REQUEST, &error.to_string()));
    }
    match error.downcast_ref::<Failure>() {
        Some(failure) if failure.code == failure_code::UNREACHABLE => Err(Failure::because(
            failure_code::UNREACHABLE,
            format_args!(
                "{error}\nwhat is to be stored needs a manager, and that needs a NATS server with JetStream"
            ),
        )),
        Some(failure) => Ok(refused(id, &failure.code.clone(), &error.to_string())),
        None => Err(error),
    }
}

/// Shows what became of each.
pub(super) fn report(cluster: &Cluster, submitted: &[Submitted]) -> anyhow::Result<Exit> {
    if cluster.format == Format::Json {
        output::document(&serde_json::json!({ "tasks": submitted }))?;
        return Ok(exit(submitted));
    }
    let stored: Vec<TaskStatus> = submitted.iter().filter_map(|s| s.task.clone()).collect();
    if !stored.is_empty() {
        list::print(&stored)?;
    }
    tell_refused(submitted);
    for one in submitted.iter().filter(|one| one.changed == Some(false)) {
        note(format_args!("{} was stored before", one.id));
    }
    Ok(exit(submitted))
}

/// Says on standard error which were not stored, and why.
pub(super) fn tell_refused(submitted: &[Submitted]) {
    for one in submitted {
        if let Some(error) = &one.error {
            note(format_args!("{}: not stored: {}", one.id, error.message));
        }
    }
}

/// Bad usage, failed, or done.
pub(super) fn exit(submitted: &[Submitted]) -> Exit {
    let codes = submitted.iter().filter_map(|one| one.error.as_ref());
    let codes: Vec<&str> = codes.map(|error| error.code.as_str()).collect();
    if codes.contains(&code::INVALID_REQUEST) {
        Exit::BadUsage
    } else if codes.is_empty() {
        Exit::Ok
    } else {
        Exit::Failed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_refusal_is_the_exit_code() {
        let of = |codes: &[&str]| {
            let all: Vec<Submitted> = codes.iter().map(|c| refused("x".into(), c, "")).collect();
            exit(&all)
        };
        assert_eq!(of(&[]), Exit::Ok);
        assert_eq!(of(&[code::CONFLICT]), Exit::Failed);
        assert_eq!(of(&[code::CONFLICT, code::INVALID_REQUEST]), Exit::BadUsage);
    }
}
