//! Start requests and their answers.

use std::sync::Arc;

use placement::{Kind, Request, Tally};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{WireError, check_version, code, parse};
use crate::ids::{AuctionId, InstanceId, RequestId};
use crate::version::Version;

/// A valid start request.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The request.
    pub request: Arc<Request>,
    /// Warnings for its sender: unknown fields.
    pub warnings: Vec<String>,
}

/// The body of a message to `start`: one request, or an array whose requests are judged separately.
#[derive(Clone, Debug, PartialEq)]
pub enum StartBody {
    /// One object.
    One(Box<Result<Parsed, WireError>>),
    /// An array.
    Many(Vec<Result<Parsed, WireError>>),
}

/// The most requests in one array.
const MAX_ARRAY: usize = 10_000;

/// Parses a start request or an array of them. This does not generate missing ids.
pub fn parse_start(body: &[u8]) -> Result<StartBody, WireError> {
    let first = body.iter().find(|b| !b.is_ascii_whitespace());
    if first != Some(&b'[') {
        return Ok(StartBody::One(Box::new(parse_request(body))));
    }
    if let Some(requests) = parse_plain(body) {
        return Ok(StartBody::Many(requests));
    }
    let elements: Vec<&RawValue> = serde_json::from_slice(body).map_err(|e| {
        WireError::new(
            code::INVALID_REQUEST,
            format!("not a valid array of requests: {e}"),
        )
    })?;
    if elements.is_empty() || elements.len() > MAX_ARRAY {
        let message = format!(
            "an array of {} requests; expected 1 to {MAX_ARRAY}",
            elements.len()
        );
        return Err(WireError::new(code::INVALID_REQUEST, message));
    }
    Ok(StartBody::Many(
        elements
            .iter()
            .map(|e| parse_request(e.get().as_bytes()))
            .collect(),
    ))
}

/// Parses an array without unknown fields in a single pass, in place of one for the array and one for each of its
/// elements. None if anything about it is unusual: then these tell what.
fn parse_plain(body: &[u8]) -> Option<Vec<Result<Parsed, WireError>>> {
    #[derive(serde::Deserialize)]
    struct Requests(#[serde(deserialize_with = "placement::object::list")] Vec<Request>);
    let mut json = serde_json::Deserializer::from_str(std::str::from_utf8(body).ok()?);
    let mut unknown = false;
    let parsed = serde_ignored::deserialize(&mut json, |_| unknown = true);
    let Requests(requests) = parsed.ok()?;
    json.end().ok()?;
    if unknown || requests.is_empty() || requests.len() > MAX_ARRAY {
        return None;
    }
    let checked = requests.into_iter().map(|request| {
        request.check()?;
        Ok(Parsed {
            request: Arc::new(request),
            warnings: Vec::new(),
        })
    });
    Some(checked.collect())
}

fn parse_request(body: &[u8]) -> Result<Parsed, WireError> {
    let mut unknown = Vec::new();
    let request: Request = parse(body, &mut unknown)?;
    if unknown.iter().any(|field| field == "v") {
        check_version(body)?; // placement's request has no such field
    }
    request.check()?;
    let warnings = unknown
        .iter()
        .filter(|field| *field != "v")
        .map(|field| match field.as_str() {
            "run.(hidden)" => {
                format!("{field}: expected command, env, port, secrets, source, droplet or staging; ignored")
            }
            _ => format!("{field}: no such field; ignored"),
        })
        .collect();
    Ok(Parsed {
        request: Arc::new(request),
        warnings,
    })
}

/// The outcome of an instance, or the worst one of a whole request. Ordered from best to worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// A cell accepted it.
    Placed,
    /// It is queued.
    Queued,
    /// It fits nowhere, or no cell accepted it.
    Unplaced,
    /// It was sent to a cell that did not answer: it may run, and is not started elsewhere.
    Unknown,
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Outcome::Placed => "placed",
            Outcome::Queued => "queued",
            Outcome::Unplaced => "unplaced",
            Outcome::Unknown => "unknown",
        })
    }
}

/// The outcome of one instance, or of several that share it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceOutcome {
    /// The instance's index; none in a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// A group's indices, such as `"2-9"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indices: Option<String>,
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceId>,
    /// The outcome.
    pub outcome: Outcome,
    /// The cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<Arc<str>>,
    /// Why it was not placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What each stage dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tally: Vec<Tally>,
    /// The id of the request with whose instance of the same index it shares the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate_of: Option<RequestId>,
}

/// The answer to one start request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartReply {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The request's id, as sent or generated.
    pub id: RequestId,
    /// Its app.
    pub app: String,
    /// The worst outcome of its instances.
    pub outcome: Outcome,
    /// The last auction that it was in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auction: Option<AuctionId>,
    /// The auction with which it was begun. Of two answers to one id, the one with the lower claim counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<AuctionId>,
    /// Each instance; equal failures are grouped.
    pub instances: Vec<InstanceOutcome>,
    /// Warnings for the sender.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The answer to an array: one entry per request, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartReplies<T = serde_json::Value> {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The worst outcome of all.
    pub outcome: Outcome,
    /// A [`StartReply`], or `{"error":…}`.
    pub requests: Vec<T>,
}

/// Returns the id of an instance: the same request, app, kind and index give the same id, so that a repeat is the same
/// work to the cell (UUID version 5).
pub fn instance_id(request_id: &str, app: &str, kind: Kind, index: u32) -> InstanceId {
    const NAMESPACE: Uuid = Uuid::from_u128(0x6f3c_2a9e_1d5b_4c70_9b64_76e0_d1a2_8f35);
    let kind = match kind {
        Kind::Lrp => "/lrp/",
        Kind::Task => "/task/",
    };
    let name = [request_id, "/", app, kind, &index.to_string()].concat();
    Uuid::new_v5(&NAMESPACE, name.as_bytes()).into()
}
