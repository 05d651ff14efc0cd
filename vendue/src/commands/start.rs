//! `start`: sends a start request from a file. Also shows the reply to any start request.

use std::time::Duration;

use anyhow::Context;
use comfy_table::Cell;
use serde_json::Value;
use shared::wire::{ErrorBody, Outcome, StartReplies, StartReply, code};

use super::{
    already,
    reasons::why,
    request_file::{STORED_FIELDS, check_with, read},
    source::SourceArgs,
    task,
};
use crate::{
    cluster::{Cluster, Peer},
    context::{Exit, Failure, Format, Global, failure_code},
    output::{self, note},
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A request without an \"id\" gets a new one each time. A repeated id is the same \
                  request: nothing is started twice.\n\n\
                  An array: each request is carried out by itself. The exit code is 2 when any of them is \
                  invalid, else 1 when any was not accepted, else 3 when any instance is unplaced or queued.\n\n\
                  Example: vendue start examples/web.json"
)]
pub(crate) struct StartArgs {
    /// A file with a start request, or an array of them; - reads standard input
    file: String,
    #[command(flatten)]
    source: SourceArgs,
    /// Start even if the app runs already; its instances then run beside the new ones
    #[arg(long)]
    again: bool,
    /// Have a manager store the request, so that it is not lost and waits for room; `vendue task` shows its state
    #[arg(long)]
    durable: bool,
}

/// Sends a file's request.
pub(crate) async fn start(global: &Global, args: &StartArgs) -> anyhow::Result<Exit> {
    let text = args.source.put_into(read(&args.file)?)?;
    let own = if args.durable {
        &STORED_FIELDS
    } else {
        &[][..]
    };
    let request = check_with(&args.file, &text, own)?;
    let cluster = Cluster::connect(global).await?;
    if !args.again {
        already::refuse(&cluster, &request).await?;
    }
    if args.durable {
        return task::submit::durable(&cluster, request).await;
    }
    send(&cluster, request).await
}

/// Sends a request (or an array of them) and prints the reply. The exit code says whether everything was placed.
pub(crate) async fn send(cluster: &Cluster, request: Value) -> anyhow::Result<Exit> {
    let patience = patience(&request);
    let body = serde_json::to_vec(&request)?;
    let subject = cluster.subjects.start();
    let answer = cluster
        .ask_raw(Peer::Auctioneer, subject, body.into(), patience)
        .await
        .map_err(|e| still_asked(&request, e))?;
    let value: Value = serde_json::from_slice(&answer).context("the auctioneer's reply")?;
    if cluster.format == Format::Json {
        output::json(&value)?;
    }
    let replies = replies(value)?;
    for reply in &replies {
        for warning in reply.iter().flat_map(|r| &r.warnings) {
            note(format_args!("warning: {warning}"));
        }
    }
    if cluster.format == Format::Table {
        print_replies(&replies)?;
    }
    for reply in replies
        .iter()
        .flatten()
        .filter(|r| r.outcome == Outcome::Queued)
    {
        let app = &reply.app;
        note(format_args!(
            "{app} is queued: it waits for room. `vendue wait {app}` waits until it runs, `vendue stop {app}` \
             cancels it"
        ));
    }
    Ok(exit(&replies))
}

/// Returns the first exit code that applies to any reply: bad usage, failed, unplaced or queued; else success.
fn exit(replies: &[Result<StartReply, ErrorBody>]) -> Exit {
    let rejected = |invalid: bool| {
        replies.iter().any(|reply| match reply {
            Err(body) => (body.error.code == code::INVALID_REQUEST) == invalid,
            Ok(_) => false,
        })
    };
    let placed = |reply: &StartReply| reply.outcome == Outcome::Placed;
    if rejected(true) {
        Exit::BadUsage
    } else if rejected(false) {
        Exit::Failed
    } else if replies.iter().flatten().all(placed) {
        Exit::Ok
    } else {
        Exit::Unplaced
    }
}

/// Extends the error of an unanswered request, which may still be carried out: says how to find out.
fn still_asked(request: &Value, error: anyhow::Error) -> anyhow::Error {
    let failure = error.downcast_ref::<Failure>();
    let unanswered = failure.is_some_and(|failure| failure.code == failure_code::NO_ANSWER);
    let Some(app) = request["app"].as_str().filter(|_| unanswered) else {
        return error;
    };
    Failure::because(
        failure_code::NO_ANSWER,
        format_args!(
            "{error}\nit may still be carried out: `vendue status {app}` shows what runs; the same \
             request with \"id\":{} starts nothing twice",
            request["id"]
        ),
    )
}

/// Returns the longest deadline of the requests, plus some time for transit.
fn patience(request: &Value) -> Duration {
    let deadline = |request: &Value| {
        let text = request["deadline"].as_str().unwrap_or("4s");
        humantime::parse_duration(text).unwrap_or(Duration::from_secs(4))
    };
    let longest = match request {
        Value::Array(elements) => elements.iter().map(deadline).max().unwrap_or_default(),
        one => deadline(one),
    };
    longest.saturating_add(Duration::from_secs(2))
}

fn replies(value: Value) -> anyhow::Result<Vec<Result<StartReply, ErrorBody>>> {
    if value.get("requests").is_none() {
        return Ok(vec![Ok(serde_json::from_value(value)?)]);
    }
    let replies: StartReplies = serde_json::from_value(value)?;
    let one = |value: Value| match value.get("error") {
        Some(_) => serde_json::from_value(value).map(Err),
        None => serde_json::from_value(value).map(Ok),
    };
    Ok(replies
        .requests
        .into_iter()
        .map(one)
        .collect::<Result<_, _>>()?)
}

fn print_replies(replies: &[Result<StartReply, ErrorBody>]) -> anyhow::Result<()> {
    let mut table = Table::new(&["APP", "INDEX", "OUTCOME", "CELL", "REASON"]).text("REASON");
    for reply in replies {
        match reply {
            Ok(reply) => rows(reply).into_iter().for_each(|row| {
                table.add_row(row);
            }),
            Err(rejected) => {
                let message = &rejected.error.message;
                table.add_row(vec!["-", "-", "rejected", "-", message]);
            }
        }
    }
    Ok(table.print()?)
}

fn rows(reply: &StartReply) -> Vec<Vec<Cell>> {
    let row = |i: &shared::wire::InstanceOutcome| {
        let index = i.index.map(|i| i.to_string()).or(i.indices.clone());
        let mut reason = why(i.reason.as_deref(), &i.tally);
        if let Some(id) = &i.duplicate_of {
            reason += &format!(" (the same instance as in request {id})");
        }
        vec![
            Cell::new(&reply.app),
            Cell::new(index.unwrap_or_default()),
            Cell::new(i.outcome),
            Cell::new(i.cell.as_deref().unwrap_or("-")),
            Cell::new(reason.trim_start()),
        ]
    };
    reply.instances.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use shared::wire::WireError;

    use super::*;

    #[test]
    fn the_worst_reply_of_an_array_is_the_exit_code() {
        let reply = |text: &str| match text {
            "placed" | "queued" | "unplaced" => Ok(serde_json::from_value(serde_json::json!({
                "id": "r", "app": "a", "outcome": text, "instances": [],
            }))
            .unwrap()),
            code => Err(WireError {
                code: code.to_owned(),
                field: None,
                message: String::new(),
            }
            .body()),
        };
        for (texts, expected) in [
            ("placed placed", Exit::Ok),
            ("placed queued", Exit::Unplaced),
            ("unplaced placed", Exit::Unplaced),
            ("unplaced overloaded", Exit::Failed),
            ("overloaded invalid_request placed", Exit::BadUsage),
            ("placed invalid_request", Exit::BadUsage),
        ] {
            let replies: Vec<_> = texts.split(' ').map(reply).collect();
            assert_eq!(exit(&replies), expected, "{texts}");
        }
    }

    #[test]
    fn the_longest_deadline_counts() {
        let two = serde_json::json!([{"deadline":"1s"},{"deadline":"9s"}]);
        assert_eq!(patience(&two), Duration::from_secs(11));
        assert_eq!(patience(&serde_json::json!({})), Duration::from_secs(6));
    }
}
