//! Submits requests that managers are to store, and shows the results.

use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use placement::Invalid;
use serde::Serialize;
use serde_json::Value;
use shared::wire::{TaskStatus, TaskStored, code, to_bytes};

use super::{Error, PATIENCE, list};
use crate::{
    cluster::{Cluster, Peer},
    context::{Exit, Format, Usage, failure_code},
    output::{self, note, with_progress},
};

/// Maximum number of requests that wait for their answers.
pub(super) const AT_ONCE: usize = 256;

/// Whether a request is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Outcome {
    Stored,
    Refused,
    /// No manager has confirmed or refused it.
    Unknown,
}

/// The result for one request.
#[derive(Debug, Serialize)]
pub(crate) struct Submitted {
    id: String,
    outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

impl Submitted {
    fn failed(id: String, error: Error) -> Self {
        // these codes mean that it was not stored; `internal` may also mean that the bucket did not answer
        let refused = [
            code::INVALID_REQUEST,
            code::CONFLICT,
            code::OVERLOADED,
            code::SHUTTING_DOWN,
            failure_code::UNREACHABLE,
            failure_code::NOT_PERMITTED,
        ];
        let outcome = if refused.contains(&error.code.as_str()) {
            Outcome::Refused
        } else {
            Outcome::Unknown
        };
        Self {
            id,
            outcome,
            changed: None,
            task: None,
            error: Some(error),
        }
    }
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

/// Sends each request, several at once; the results keep the order. Fails only if no manager received any of them.
pub(super) async fn submit(
    cluster: &Cluster,
    requests: Vec<Value>,
    to: &impl Fn(&str) -> String,
) -> anyhow::Result<Vec<Submitted>> {
    check_ids(&requests)?;
    let one = async |request: Value| {
        let id = request["id"].as_str().unwrap_or_default().to_owned();
        if let Err(mut invalid) = shared::check_stored_id(&id) {
            invalid.field = "id".into();
            return Submitted::failed(id, Error::invalid(&invalid));
        }
        let (who, body) = (Peer::ManagerOfTasks, to_bytes(&request));
        let asked = cluster.ask_quietly(who, to(&id), body, PATIENCE).await;
        match asked.and_then(|answer| Ok(serde_json::from_slice::<TaskStored>(&answer)?)) {
            Ok(stored) => Submitted {
                id,
                outcome: Outcome::Stored,
                changed: Some(stored.changed),
                task: Some(stored.task),
                error: None,
            },
            Err(error) => Submitted::failed(id, Error::of(&error)),
        }
    };
    let answers = stream::iter(requests).map(one).buffered(AT_ONCE);
    let answers = answers.collect::<Vec<Submitted>>();
    let submitted = with_progress("waiting for the manager", answers).await;
    let errors: Vec<&Error> = submitted.iter().filter_map(|s| s.error.as_ref()).collect();
    match Error::unreachable(&errors) {
        Some(error) if errors.len() == submitted.len() => Err(error),
        _ => Ok(submitted),
    }
}

/// Refuses requests of which two have the same id: only one of them would be carried out.
fn check_ids(requests: &[Value]) -> anyhow::Result<()> {
    let mut known = BTreeSet::new();
    let ids = requests.iter().filter_map(|request| request["id"].as_str());
    match ids.into_iter().find(|id| !known.insert(*id)) {
        None => Ok(()),
        Some(id) => {
            let expected = "another id for each request, or none";
            Err(Usage::invalid(Invalid::new(
                "id",
                format!("{id:?}, twice,"),
                expected,
            )))
        }
    }
}

/// Shows the results.
pub(super) fn report(cluster: &Cluster, submitted: &[Submitted]) -> anyhow::Result<Exit> {
    if cluster.format == Format::Json {
        output::document(&serde_json::json!({ "tasks": submitted }))?;
        return Ok(exit(submitted));
    }
    let stored = stored(submitted);
    if !stored.is_empty() {
        list::print(&stored)?;
    }
    tell_failed(submitted);
    for one in submitted.iter().filter(|one| one.changed == Some(false)) {
        note(format_args!(
            "{} is already stored: the same id is the same request, which is not started again",
            one.id
        ));
    }
    Ok(exit(submitted))
}

/// Returns those that are stored.
pub(super) fn stored(submitted: &[Submitted]) -> Vec<TaskStatus> {
    submitted.iter().filter_map(|s| s.task.clone()).collect()
}

/// Prints the ids of the stored tasks on standard error, for users who stop waiting.
pub(super) fn tell_ids(stored: &[TaskStatus]) {
    let ids: Vec<&str> = stored.iter().map(|task| task.id.as_str()).collect();
    note(format_args!("stored: {}", ids.join(", ")));
}

/// Reports on standard error which requests are not known to be stored, and why.
pub(super) fn tell_failed(submitted: &[Submitted]) {
    for one in submitted {
        let Some(Error { message, .. }) = &one.error else {
            continue;
        };
        let id = &one.id;
        match one.outcome {
            Outcome::Unknown => note(format_args!("{id}: not known whether stored: {message}")),
            _ => note(format_args!("{id}: not stored: {message}")),
        }
    }
    if submitted.iter().any(|one| one.outcome == Outcome::Unknown) {
        note("`vendue task show TASK` says whether it is stored; the same id stores nothing twice");
    }
}

/// Returns the exit code: bad usage, failed, or success.
pub(super) fn exit(submitted: &[Submitted]) -> Exit {
    Error::exit(submitted.iter().filter_map(|one| one.error.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(code: &str) -> Submitted {
        let (code, message) = (code.to_owned(), String::new());
        let error = Error { code, message };
        Submitted::failed("x".into(), error)
    }

    #[test]
    fn the_worst_refusal_is_the_exit_code() {
        let of = |codes: &[&str]| {
            let all: Vec<Submitted> = codes.iter().map(|code| failed(code)).collect();
            exit(&all)
        };
        assert_eq!(of(&[]), Exit::Ok);
        assert_eq!(of(&[code::CONFLICT]), Exit::Failed);
        assert_eq!(of(&[code::CONFLICT, code::INVALID_REQUEST]), Exit::BadUsage);
    }

    #[test]
    fn an_id_that_is_there_twice_is_refused() {
        let requests = |ids: &[&str]| -> Vec<Value> {
            ids.iter()
                .map(|id| serde_json::json!({ "id": id }))
                .collect()
        };
        assert!(check_ids(&requests(&["a", "b"])).is_ok());
        let error = check_ids(&requests(&["a", "b", "a"])).unwrap_err();
        assert!(error.is::<Usage>());
        assert!(
            error
                .to_string()
                .starts_with("id: \"a\", twice, is not allowed"),
            "{error}"
        );
    }

    #[test]
    fn without_a_clear_answer_it_is_not_said_that_it_is_not_stored() {
        for (code, outcome) in [
            (code::INVALID_REQUEST, Outcome::Refused),
            (code::OVERLOADED, Outcome::Refused),
            (failure_code::UNREACHABLE, Outcome::Refused),
            (failure_code::NO_ANSWER, Outcome::Unknown),
            (code::INTERNAL, Outcome::Unknown),
            (failure_code::FAILED, Outcome::Unknown),
        ] {
            assert_eq!(failed(code).outcome, outcome, "{code}");
        }
    }
}
