//! Answers to start requests, which always fit into the server's `max_payload`.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use serde::Serialize;
use shared::{
    VERSION,
    wire::{
        ErrorBody, InstanceOutcome, Outcome, StartReply, WireError, code, format_indices, to_bytes,
    },
};

use shared::RequestId;

use crate::ticket::{Answer, Done, Instance, State, Ticket, because};

/// Returns the current outcome of an instance.
fn present(ticket: &Ticket, instance: &Instance) -> Done {
    match &instance.state {
        State::Done(done) => done.clone(),
        State::Held(why) | State::Shares(Some(why)) => Done {
            outcome: Outcome::Queued,
            cell: None,
            why: Some(Arc::clone(why)),
            duplicate_of: None,
        },
        State::Waiting => Done {
            outcome: Outcome::Queued,
            cell: None,
            why: Some(because("waits for the next auction")),
            duplicate_of: None,
        },
        State::Sent => Done::unknown(None, "start sent; no reply before the deadline"),
        State::Shares(None) => Done::unknown(
            None,
            "the same instance of another request is being started",
        ),
        State::Checking => Done::unknown(
            None,
            &format!("{} was announced by another auctioneer", ticket.id),
        ),
    }
}

/// Returns the answer to a request as far as it is known now. It fits into `max_bytes`.
pub(crate) fn answer(ticket: &Ticket, max_bytes: usize) -> Answer {
    let present: Vec<(u32, &Instance, Done)> = ticket
        .instances
        .iter()
        .map(|i| (i.index, i, self::present(ticket, i)))
        .collect();
    // the worst, so that a client that reads nothing else does not take part of it for the whole
    let worst = present.iter().map(|(_, _, done)| done.outcome).max();
    let mut reply = StartReply {
        v: VERSION,
        id: ticket.id.clone(),
        app: ticket.request.app.clone(),
        outcome: worst.unwrap_or(Outcome::Placed),
        auction: ticket.auction,
        claim: ticket.claim,
        instances: each(&present),
        warnings: ticket.warnings.clone(),
    };
    let mut body = to_bytes(&reply);
    // less and less detail until it fits: a reply without instances is better than none
    for level in [by_cell, counts] {
        if body.len() <= max_bytes {
            break;
        }
        reply.instances = level(&present);
        body = to_bytes(&reply);
    }
    if body.len() > max_bytes {
        // warnings quote the sender, and are the last thing that can be left out
        reply.warnings.clear();
        body = to_bytes(&reply);
    }
    Answer {
        id: ticket.id.clone(),
        app: Arc::clone(&ticket.app),
        outcome: reply.outcome,
        body,
    }
}

fn single(index: u32, instance: &Instance, done: &Done) -> InstanceOutcome {
    InstanceOutcome {
        index: Some(index),
        indices: None,
        instance: Some(instance.id),
        outcome: done.outcome,
        cell: done.cell.clone(),
        reason: done.why.as_ref().map(|why| why.reason.clone()),
        tally: done
            .why
            .as_ref()
            .map(|why| why.tally.clone())
            .unwrap_or_default(),
        duplicate_of: done.duplicate_of.clone(),
    }
}

/// Lists each placed or unknown instance separately, and groups equal failures.
fn each(present: &[(u32, &Instance, Done)]) -> Vec<InstanceOutcome> {
    let mut listed = Vec::new();
    let mut failed = Vec::new();
    for (index, instance, done) in present {
        // the client needs the cell of each; a thousand equal failures are one line
        if done.cell.is_some() {
            listed.push(single(*index, instance, done));
        } else {
            failed.push((*index, *instance, done));
        }
    }
    listed.extend(groups(&failed));
    listed
}

fn groups(failed: &[(u32, &Instance, &Done)]) -> Vec<InstanceOutcome> {
    type Key<'d> = (Outcome, Option<&'d str>, Option<&'d str>, Option<&'d str>);
    fn key(done: &Done) -> Key<'_> {
        let reason = done.why.as_ref().map(|why| why.reason.as_str());
        (
            done.outcome,
            done.cell.as_deref(),
            reason,
            done.duplicate_of.as_ref().map(RequestId::as_str),
        )
    }
    // by reason: within a request, instances with the same reason have (nearly) the same numbers
    let mut groups: BTreeMap<Key<'_>, Vec<&(u32, &Instance, &Done)>> = BTreeMap::new();
    for member in failed {
        groups.entry(key(member.2)).or_default().push(member);
    }
    let one = |members: Vec<&(u32, &Instance, &Done)>| {
        let (index, instance, done) = members[0];
        let mut outcome = single(*index, instance, done);
        if members.len() > 1 {
            outcome.index = None;
            outcome.instance = None;
            outcome.indices = Some(format_indices(members.iter().map(|m| m.0)));
        }
        outcome
    };
    groups.into_values().map(one).collect()
}

/// Groups instances by cell, without their ids.
fn by_cell(present: &[(u32, &Instance, Done)]) -> Vec<InstanceOutcome> {
    let all: Vec<_> = present
        .iter()
        .map(|(index, i, done)| (*index, *i, done))
        .collect();
    groups(&all)
}

/// Counts the instances with each outcome.
fn counts(present: &[(u32, &Instance, Done)]) -> Vec<InstanceOutcome> {
    let mut counts: BTreeMap<Outcome, usize> = BTreeMap::new();
    for (_, _, done) in present {
        *counts.entry(done.outcome).or_default() += 1;
    }
    let one = |(outcome, count): (Outcome, usize)| InstanceOutcome {
        index: None,
        indices: None,
        instance: None,
        outcome,
        cell: None,
        reason: Some(format!("{count} instances; too many to list")),
        tally: Vec::new(),
        duplicate_of: None,
    };
    counts.into_iter().map(one).collect()
}

/// Returns the answer to an array, made from the answers to its requests; it fits into `max_bytes`.
pub(crate) fn array(answers: &[Answer], max_bytes: usize) -> Result<Bytes, WireError> {
    let outcome = answers
        .iter()
        .map(|a| a.outcome)
        .max()
        .unwrap_or(Outcome::Placed);
    // concatenated as they are: each was serialised when its request ended
    let each: Vec<&[u8]> = answers.iter().map(|a| a.body.as_ref()).collect();
    let head = format!("{{\"v\":{VERSION},\"outcome\":\"{outcome}\",\"requests\":[");
    let body = [head.as_bytes(), &each.join(&b','), b"]}"].concat();
    if body.len() <= max_bytes {
        return Ok(body.into());
    }
    for short in [with_names, with_outcome] {
        let body = shortened(outcome, answers.iter().map(short));
        if body.len() <= max_bytes {
            return Ok(body);
        }
    }
    let message = format!("{} answers do not fit into one message", answers.len());
    Err(WireError::new(code::OVERLOADED, message))
}

/// A shortened answer to a request of an array.
#[derive(Serialize)]
#[serde(untagged)]
enum Short {
    Names(Box<StartReply>),
    Outcome { outcome: Outcome },
    Error { error: WireError },
}

/// Returns the error of a rejected request, with another message.
fn error_of(answer: &Answer, message: &str) -> Option<WireError> {
    let body: ErrorBody = serde_json::from_slice(&answer.body).ok()?;
    Some(WireError {
        message: message.to_owned(),
        ..body.error
    })
}

/// Shortens an answer to its outcome and the names of its request, or an error to its kind and field.
fn with_names(answer: &Answer) -> Short {
    if let Some(error) = error_of(answer, "rejected; why does not fit into the answer") {
        return Short::Error { error };
    }
    Short::Names(Box::new(StartReply {
        v: VERSION,
        id: answer.id.clone(),
        app: answer.app.to_string(),
        outcome: answer.outcome,
        auction: None,
        claim: None,
        instances: Vec::new(),
        warnings: Vec::new(),
    }))
}

/// Shortens an answer to its outcome, or an error to its kind.
fn with_outcome(answer: &Answer) -> Short {
    match error_of(answer, "") {
        Some(error) => Short::Error {
            error: WireError::new(&error.code, ""),
        },
        None => Short::Outcome {
            outcome: answer.outcome,
        },
    }
}

fn shortened<T: Serialize>(outcome: Outcome, requests: impl Iterator<Item = T>) -> Bytes {
    to_bytes(&shared::wire::StartReplies {
        v: VERSION,
        outcome,
        requests: requests.collect::<Vec<T>>(),
    })
}

#[cfg(test)]
mod tests {
    use shared::wire::StartReplies;

    use super::*;

    fn answers() -> Vec<Answer> {
        let answer = |n: usize| Answer {
            id: format!("r{n}").parse().unwrap(),
            app: "web".into(),
            outcome: [Outcome::Placed, Outcome::Unplaced][n % 2],
            body: Bytes::from(format!(r#"{{"id":"r{n}","more":"{}"}}"#, "x".repeat(100))),
        };
        (0..30).map(answer).collect()
    }

    /// Returns what the answer to an array contains within a size: for each element more than its id, its id, or only
    /// its outcome; and the number of elements.
    fn level_in(max_bytes: usize) -> (&'static str, usize) {
        let Ok(body) = array(&answers(), max_bytes) else {
            return ("error", 0);
        };
        let reply: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(reply["outcome"], "unplaced", "the worst of them");
        let requests = reply["requests"].as_array().unwrap();
        assert_eq!(requests.len(), 30);
        let last = &requests[29];
        let level = match (last.get("more"), last.get("id")) {
            (Some(_), _) => "all",
            (None, Some(id)) => {
                assert_eq!((id, &last["outcome"]), (&"r29".into(), &"unplaced".into()));
                "ids"
            }
            (None, None) => {
                assert_eq!(last["outcome"], "unplaced");
                "outcomes"
            }
        };
        (level, body.len())
    }

    #[test]
    fn an_array_is_answered_with_as_much_as_fits() {
        let mut max_bytes = usize::MAX;
        for expected in ["all", "ids", "outcomes"] {
            let (level, bytes) = level_in(max_bytes);
            assert_eq!(level, expected, "in {max_bytes} bytes");
            assert_eq!(level_in(bytes), (expected, bytes), "it just fits");
            max_bytes = bytes - 1;
        }
        let error = array(&answers(), max_bytes).unwrap_err();
        assert_eq!(error.code, code::OVERLOADED);
        assert_eq!(error.message, "30 answers do not fit into one message");
    }

    /// Ten thousand requests, all but the first rejected with an error of the longest kind.
    #[test]
    fn an_array_of_long_errors_fits_and_every_one_of_them_is_an_error() {
        let error = WireError {
            code: code::INVALID_REQUEST.into(),
            field: Some("f".repeat(200)),
            message: "m".repeat(1_400),
        };
        let rejected = |n: usize| Answer {
            id: format!("r{n}").parse().unwrap(),
            app: "".into(),
            outcome: Outcome::Unplaced,
            body: to_bytes(&serde_json::json!({ "error": error })),
        };
        let mut all: Vec<Answer> = (0..10_000).map(rejected).collect();
        all[0] = answers().swap_remove(0);
        for (max_bytes, message, field) in [
            (100 << 20, "m", true),
            (4 << 20, "rejected", true),
            (1 << 20, "", false),
        ] {
            let body = array(&all, max_bytes).unwrap();
            assert!(body.len() <= max_bytes, "{} of {max_bytes}", body.len());
            let reply: StartReplies = serde_json::from_slice(&body).unwrap();
            assert_eq!(reply.requests.len(), all.len());
            assert_eq!(reply.requests[0].get("error"), None);
            for request in &reply.requests[1..] {
                let body: ErrorBody = serde_json::from_value(request.clone()).unwrap();
                assert_eq!(body.error.code, code::INVALID_REQUEST);
                assert!(body.error.message.starts_with(message));
                assert_eq!(body.error.field.is_some(), field, "in {max_bytes}");
            }
        }
    }
}
