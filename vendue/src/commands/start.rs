//! `start`: a start request from a file, and how every reply to one is shown.

use std::{io::Read, path::Path, time::Duration};

use anyhow::Context;
use comfy_table::Cell;
use placement::{Request, Run, fields};
use serde_json::Value;
use shared::wire::{
    ErrorBody, Outcome, StartBody, StartReplies, StartReply, WireError, code, parse_start,
    unknown_fields,
};

use super::{already, reasons::why, source::SourceArgs, task};
use crate::{
    cluster::{Cluster, Peer},
    context::{Exit, Failure, Format, Global, Usage, failure_code},
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

/// The text of a file, or of standard input for `-`.
pub(crate) fn read(file: &str) -> anyhow::Result<String> {
    if file != "-" {
        let read = std::fs::read_to_string(Path::new(file));
        return read.map_err(|e| Usage::because(format_args!("{file}: {e}")));
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("standard input")?;
    Ok(text)
}

/// What a file is called in messages.
pub(crate) fn named(file: &str) -> &str {
    match file {
        "-" => "standard input",
        file => file,
    }
}

/// Judges a request as an auctioneer would, so that a bad file needs no cluster to be refused; a
/// request that has no id gets one, so that what became of it can be asked for later.
pub(crate) fn check(file: &str, text: &str) -> anyhow::Result<Value> {
    check_with(file, text, &[])
}

/// Fields of a request that a manager stores, beside those of any request.
pub(crate) const STORED_FIELDS: [&str; 2] = ["retries", "timeout"];

/// As [`check`], of requests that may have more fields.
pub(crate) fn check_with(file: &str, text: &str, own: &[&str]) -> anyhow::Result<Value> {
    let file = named(file);
    let refuse = |e: &dyn std::fmt::Display| Usage::because(format_args!("{file}: {e}"));
    let wrong = |e: &WireError| refuse(&of_file(e, text));
    match parse_start(text.as_bytes()).map_err(|e| wrong(&e))? {
        StartBody::One(one) => one.map(drop).map_err(|e| wrong(&e))?,
        StartBody::Many(many) => {
            if let (true, Some(Err(first))) = (many.iter().all(Result::is_err), many.first()) {
                return Err(refuse(&format_args!(
                    "every request is invalid; the first: {first}"
                )));
            }
        }
    }
    let mut request: Value = serde_json::from_str(text).map_err(|e| refuse(&e))?;
    if let Some(misspelt) = unknown_field(&request, own) {
        return Err(refuse(&misspelt));
    }
    match &mut request {
        Value::Array(elements) => elements.iter_mut().for_each(give_id),
        one => give_id(one),
    }
    Ok(request)
}

/// What is wrong with a request, as of a file; where a field is missing, with the one that may be meant.
fn of_file(error: &WireError, text: &str) -> String {
    let said = error.message.as_str();
    let said = said.strip_prefix("not a valid message: ").unwrap_or(said);
    let Some(missing) = error
        .field
        .as_deref()
        .filter(|_| said.starts_with("missing "))
    else {
        return said.to_owned();
    };
    let fields: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap_or_default();
    let required = ["app", "memory_mb", "disk_mb"];
    let names: Vec<&str> = fields.keys().map(String::as_str).collect();
    let others: Vec<&str> = names
        .into_iter()
        .filter(|n| !required.contains(n))
        .collect();
    match placement::nearest(missing, &others) {
        Some(near) => format!(
            "{said}; {:?} is not {missing}: is it meant?",
            placement::cut(near)
        ),
        None => said.to_owned(),
    }
}

/// The first field that no request has. An auctioneer would ignore it, and start what nobody meant.
fn unknown_field(body: &Value, own: &[&str]) -> Option<String> {
    let of_one = |at: &str, request: &Value| {
        let unknown = unknown_fields::<Request>(request.to_string().as_bytes());
        let is_known = |field: &String| field == "v" || own.contains(&field.as_str());
        let field = unknown.into_iter().find(|field| !is_known(field))?;
        if field.starts_with("run.") {
            // its name is not told: it may be a secret in the wrong place
            let known = fields::names::<Run>().join(", ");
            return Some(format!("{at}run: it has a field that is none of {known}"));
        }
        let hint = match field.split('.').next() {
            Some("crash" | "update") => {
                "; `vendue app put` takes it, and keeps the app running".into()
            }
            _ => fields::hint(&field, fields::names::<Request>()),
        };
        Some(format!("{at}{field}: no request has this field{hint}"))
    };
    match body {
        Value::Array(requests) => {
            let mut numbered = requests.iter().enumerate();
            numbered.find_map(|(n, request)| of_one(&format!("[{n}]."), request))
        }
        one => of_one("", one),
    }
}

fn give_id(request: &mut Value) {
    if let Value::Object(fields) = request {
        let id = || Value::from(uuid::Uuid::now_v7().to_string());
        fields.entry("id").or_insert_with(id);
    }
}

/// Sends a request (or an array of them), prints the reply and says by the exit code whether
/// everything was placed.
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

/// The first of these that is true of any reply: bad usage, failed, unplaced or queued; else all is done.
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

/// A request that got no answer may still be carried out: says how to find out.
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

/// The longest deadline of the requests, and some for the way.
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
    use super::*;

    #[test]
    fn a_bad_file_is_refused_with_its_name_and_field() {
        let cases = [
            ("{", "web.json: it ends too early"),
            (r#"{"memory_mb":1,"disk_mb":1}"#, "missing field `app`"),
            (
                r#"{"app":"a","memory_mb":-1,"disk_mb":1}"#,
                "memory_mb: -1 is not allowed",
            ),
            (
                r#"{"app":"a","memory_mb":"x","disk_mb":1}"#,
                "web.json: memory_mb: \"x\" is not allowed; expected an integer",
            ),
            (
                r#"{"app":"a","memory":1,"disk_mb":1}"#,
                "missing field `memory_mb`; \"memory\" is not memory_mb: is it meant?",
            ),
            (
                r#"{"v":1,"app":"a","memory_mb":1,"disk_mb":1,"instnces":3}"#,
                "web.json: instnces: no request has this field; did you mean \"instances\"?",
            ),
            (
                r#"{"app":"a","memory_mb":1,"disk_mb":1,"update":{"max_in_flight":2}}"#,
                "web.json: update: no request has this field; `vendue app put` takes it",
            ),
            (
                r#"[{"app":"a","memory_mb":1,"disk_mb":1},{"app":"b","colour":3}]"#,
                "web.json: [1].colour: no request has this field",
            ),
            (
                r#"{"app":"a","memory_mb":1,"disk_mb":1,"run":{"command":["x"],"comand":1}}"#,
                "web.json: run: it has a field that is none of command, env, port, secrets, source",
            ),
            ("[]", "an array of 0 requests"),
            (r#"[{"app":"a"}]"#, "every request is invalid"),
        ];
        for (text, expected) in cases {
            let error = check("web.json", text).unwrap_err();
            assert!(error.to_string().contains(expected), "{text}: {error}");
            assert!(error.downcast_ref::<Usage>().is_some(), "{text}");
        }
    }

    #[test]
    fn a_request_gets_an_id() {
        let text = r#"[{"app":"a","memory_mb":1,"disk_mb":1},{"app":""}]"#;
        let request = check("-", text).unwrap();
        assert!(request[0]["id"].as_str().unwrap().len() > 8);
        let text = r#"{"id":"mine","app":"a","memory_mb":1,"disk_mb":1}"#;
        assert_eq!(check("-", text).unwrap()["id"], "mine");
    }

    #[test]
    fn standard_input_is_called_so() {
        let error = check("-", "{").unwrap_err().to_string();
        assert!(error.starts_with("standard input: "), "{error}");
    }

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
