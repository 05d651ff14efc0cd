//! Admission: messages are parsed into valid requests, or rejected with an error that names the
//! field.

use std::sync::Arc;

use placement::{Policy, check_name};
use serde_json::Value;
use shared::wire::{
    ExplainRequest, Parsed, PlaceExtra, QueuedRequest, StartBody, Stop, WireError, check_version,
    code, parse, parse_start, parse_strict, to_bytes,
};
use shared::{AuctionId, RequestId};
use uuid::Uuid;

use crate::ids::ReplyKey;
use crate::io::{AdmittedRequest, Announcement, AuctioneerInput, DryRun, Rejected, StartMessage};

/// The longest deadline.
const MAX_DEADLINE_S: u64 = 3_600;
/// The longest `queue_timeout`.
const MAX_QUEUE_S: u64 = 24 * 3_600;

/// The app name used in events about a request without a valid one.
const NO_APP: &str = "-";

/// Parses a start message. `new_id` generates an id for each request without one.
pub fn read_start(
    policy: &Policy,
    body: &[u8],
    reply: Option<ReplyKey>,
    new_id: impl FnMut() -> Uuid,
) -> AuctioneerInput {
    read(policy, body, reply, true, new_id)
}

/// Parses a start message for simulated cells, which execute nothing: a request need not say what to run.
pub fn read_simulated_start(
    policy: &Policy,
    body: &[u8],
    reply: Option<ReplyKey>,
    new_id: impl FnMut() -> Uuid,
) -> AuctioneerInput {
    read(policy, body, reply, false, new_id)
}

fn read(
    policy: &Policy,
    body: &[u8],
    reply: Option<ReplyKey>,
    needs_run: bool,
    mut new_id: impl FnMut() -> Uuid,
) -> AuctioneerInput {
    match parse_start(body) {
        Err(error) => AuctioneerInput::Rejected {
            rejected: rejected(body, error, &mut new_id),
            reply,
        },
        Ok(StartBody::One(request)) => {
            let request = admit_start(policy, *request, needs_run, &mut new_id)
                .map_err(|e| rejected(body, e, &mut new_id));
            AuctioneerInput::Start(StartMessage {
                requests: vec![request],
                array: false,
                reply,
            })
        }
        Ok(StartBody::Many(requests)) => {
            let mut elements: Option<Vec<Value>> = None;
            let mut admit_one = |(n, request): (usize, Result<Parsed, WireError>)| {
                admit_start(policy, request, needs_run, &mut new_id).map_err(|error| {
                    // only on an error: a valid array, the normal case, is parsed once
                    let elements = elements
                        .get_or_insert_with(|| serde_json::from_slice(body).unwrap_or_default());
                    let hints = elements.get(n).map_or((None, None), hints);
                    reject(hints, error, &mut new_id)
                })
            };
            AuctioneerInput::Start(StartMessage {
                requests: requests
                    .into_iter()
                    .enumerate()
                    .map(&mut admit_one)
                    .collect(),
                array: true,
                reply,
            })
        }
    }
}

/// Reads an announcement: an `asked` event that auctioneer `by` published on its own subject for requests that it has
/// begun.
pub fn read_announcement(by: &str, body: &[u8]) -> AuctioneerInput {
    #[derive(serde::Deserialize)]
    struct Asked {
        #[serde(default)]
        by: String,
        auction: AuctionId,
        #[serde(default)]
        request: Option<String>,
        #[serde(default)]
        requests: Vec<String>,
    }
    let Ok(asked) = serde_json::from_slice::<Asked>(body) else {
        return AuctioneerInput::Unreadable;
    };
    // server permissions cover the subject; a body can name anybody
    if asked.by != by {
        return AuctioneerInput::WrongSubject;
    }
    let ids = asked.request.into_iter().chain(asked.requests);
    AuctioneerInput::Announced(Announcement {
        claim: asked.auction,
        // one bad id must not hide the others: a request whose announcement goes unnoticed may be started twice
        ids: ids.filter_map(|id| id.try_into().ok()).collect(),
    })
}

/// Admits a request that is to be started. Placement does not need `run`, but every cell that runs processes would
/// refuse a request without it, after up to three auctions.
fn admit_start(
    policy: &Policy,
    parsed: Result<Parsed, WireError>,
    needs_run: bool,
    new_id: &mut impl FnMut() -> Uuid,
) -> Result<AdmittedRequest, WireError> {
    let admitted = admit(policy, parsed, new_id)?;
    if !needs_run || admitted.request.run.is_some() {
        return Ok(admitted);
    }
    let example = r#"{"command":["sleep","60"]}"#;
    Err(WireError {
        code: code::INVALID_REQUEST.into(),
        field: Some("run".into()),
        message: format!("run: missing; a start says what to execute, such as {example}"),
    })
}

/// Checks what `placement::Request` itself does not check, and sets its id.
fn admit(
    policy: &Policy,
    parsed: Result<Parsed, WireError>,
    new_id: &mut impl FnMut() -> Uuid,
) -> Result<AdmittedRequest, WireError> {
    let Parsed {
        mut request,
        mut warnings,
    } = parsed?;
    let limits = [
        ("deadline", request.deadline, 1, MAX_DEADLINE_S),
        ("queue_timeout", request.queue_timeout, 0, MAX_QUEUE_S),
    ];
    for (field, span, least_ms, most_s) in limits {
        let millis = span.map(|s| shared::clock::millis(s.0));
        if millis.is_some_and(|ms| ms < least_ms || ms > most_s * 1_000) {
            let value = serde_json::to_string(&span).unwrap_or_default();
            let expected = format!("a duration from {least_ms}ms to {most_s}s");
            return Err(placement::Invalid::new(field, value, expected).into());
        }
    }
    // before an id is generated: a rejected request needs none
    policy.check_request(&request)?;
    warnings.extend(policy.ignored_fields(&request));
    let given = !request.id.is_empty();
    if !given {
        Arc::make_mut(&mut request).id = new_id().to_string();
    }
    Ok(AdmittedRequest {
        id: RequestId::new(&request.id)?,
        given,
        request,
        warnings,
    })
}

/// Returns the id and the app of an invalid message, as far as they can be tokens of a subject.
fn hints(value: &Value) -> (Option<RequestId>, Option<String>) {
    let name = |field: &str| {
        let text = value.get(field)?.as_str()?;
        // both become subject tokens when the rejection is published
        check_name(field, text).ok().map(|()| text.to_owned())
    };
    (name("id").and_then(|id| id.parse().ok()), name("app"))
}

fn rejected(body: &[u8], error: WireError, new_id: &mut impl FnMut() -> Uuid) -> Rejected {
    let value: Option<Value> = serde_json::from_slice(body).ok();
    reject(value.as_ref().map_or((None, None), hints), error, new_id)
}

fn reject(
    (id, app): (Option<RequestId>, Option<String>),
    error: WireError,
    new_id: &mut impl FnMut() -> Uuid,
) -> Rejected {
    Rejected {
        id: id.unwrap_or_else(|| new_id().into()),
        app,
        error,
    }
}

/// Parses a stop.
pub fn read_stop(
    body: &[u8],
    reply: Option<ReplyKey>,
    mut new_id: impl FnMut() -> Uuid,
) -> AuctioneerInput {
    match Stop::read(body) {
        Ok(stop) => AuctioneerInput::Stop { stop, reply },
        Err(error) => AuctioneerInput::Rejected {
            rejected: rejected(body, error, &mut new_id),
            reply,
        },
    }
}

/// Parses a dry run: a start request or an array of them. An object may have `without`, `add_cells` and `explain`
/// beside its own fields, or carry the request (or array) under `request`.
pub fn read_place(
    policy: &Policy,
    body: &[u8],
    reply: ReplyKey,
    mut new_id: impl FnMut() -> Uuid,
) -> Result<AuctioneerInput, WireError> {
    let first = body.iter().find(|b| !b.is_ascii_whitespace());
    let (extra, requests) = if first == Some(&b'{') {
        check_version(body)?;
        let value: Value = parse(body, &mut Vec::new())?;
        let extra: PlaceExtra = parse(body, &mut Vec::new())?;
        let inner = value.get("request").map(Value::to_string);
        (
            extra,
            parse_start(inner.as_deref().map_or(body, str::as_bytes))?,
        )
    } else {
        (PlaceExtra::default(), parse_start(body)?)
    };
    let parsed = match requests {
        StartBody::One(request) => vec![*request],
        StartBody::Many(requests) => requests,
    };
    let mut requests = Vec::with_capacity(parsed.len());
    for request in parsed {
        let mut request = admit(policy, request, &mut new_id)?;
        // start requests do not have these fields, so parsing warned that they are unknown
        let of_ours = |warning: &String| {
            let field = warning.split_once(':').map(|(field, _)| field);
            field.is_some_and(|field| ["without", "add_cells", "explain"].contains(&field))
        };
        request.warnings.retain(|w| !of_ours(w));
        requests.push(request);
    }
    let explain = match extra.explain.as_deref() {
        None => placement::Explain::Finalists,
        Some("stages") => placement::Explain::Stages,
        Some("cells") => placement::Explain::Cells,
        Some(other) => {
            let expected = "\"stages\" or \"cells\"";
            let value = format!("{other:.40?}");
            return Err(placement::Invalid::new("explain", value, expected).into());
        }
    };
    Ok(AuctioneerInput::DryRun {
        dry_run: Box::new(DryRun {
            requests,
            without: extra.without,
            add_cells: extra.add_cells,
            explain,
        }),
        reply,
    })
}

/// Parses a request to explain an app's placement.
pub fn read_explain(body: &[u8], reply: ReplyKey) -> Result<AuctioneerInput, WireError> {
    let explain: ExplainRequest = parse_strict(body, "app or cells")?;
    check_name("app", &explain.app)?;
    Ok(AuctioneerInput::Explain { explain, reply })
}

/// Parses a request for the pool; an empty body asks for the first page.
pub fn read_pool(body: &[u8], reply: ReplyKey) -> Result<AuctioneerInput, WireError> {
    let page = if body.is_empty() {
        shared::wire::Page::default()
    } else {
        parse_strict(body, "offset or limit")?
    };
    Ok(AuctioneerInput::Pool { page, reply })
}

/// Parses a request for queued work; an empty body asks for all.
pub fn read_queued(body: &[u8], reply: ReplyKey) -> Result<AuctioneerInput, WireError> {
    let queued = if body.is_empty() {
        QueuedRequest::default()
    } else {
        parse_strict(body, "app or limit")?
    };
    if let Some(app) = &queued.app {
        check_name("app", app)?;
    }
    Ok(AuctioneerInput::Queued { queued, reply })
}

/// Parses a request for capacity: a start request whose app is optional.
pub fn read_capacity(
    policy: &Policy,
    body: &[u8],
    reply: ReplyKey,
    mut new_id: impl FnMut() -> Uuid,
) -> Result<AuctioneerInput, WireError> {
    let mut request: serde_json::Map<String, Value> = parse(body, &mut Vec::new())?;
    request
        .entry("app")
        .or_insert_with(|| NO_APP.to_owned().into());
    let StartBody::One(parsed) = parse_start(&to_bytes(&request))? else {
        return Err(WireError::new(code::INVALID_REQUEST, "not a request"));
    };
    let size = Box::new(admit(policy, *parsed, &mut new_id)?);
    Ok(AuctioneerInput::Capacity { size, reply })
}

/// Returns the error for a request without a reply subject, which cannot be answered.
pub fn no_reply() -> WireError {
    WireError::new(code::INVALID_REQUEST, "the request needs a reply subject")
}
