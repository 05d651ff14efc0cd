//! Errors in answers, and parsing that names the field.

use std::borrow::Cow;

use placement::{Invalid, cut, in_json_terms};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

use crate::version::{VERSION, Version};

/// The codes of [`WireError`].
pub mod code {
    /// The request is invalid.
    pub const INVALID_REQUEST: &str = "invalid_request";
    /// The server's permissions do not allow what it requires.
    pub const NOT_PERMITTED: &str = "not_permitted";
    /// Nothing has that name.
    pub const NOT_FOUND: &str = "not_found";
    /// Somebody else has changed it in the meantime.
    pub const CONFLICT: &str = "conflict";
    /// Too much work is waiting.
    pub const OVERLOADED: &str = "overloaded";
    /// The program is shutting down.
    pub const SHUTTING_DOWN: &str = "shutting_down";
    /// An internal error.
    pub const INTERNAL: &str = "internal";
}

/// Why a request was not served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct WireError {
    /// One of [`code`].
    pub code: String,
    /// The path of the invalid field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// A sentence that names the value and what was expected.
    pub message: String,
}

/// `{"v":1,"error":{…}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The error.
    pub error: WireError,
}

impl WireError {
    /// Creates an error without a field.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            field: None,
            message: message.into(),
        }
    }

    /// Returns the whole body.
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            v: VERSION,
            error: self.clone(),
        }
    }

    /// Returns the number for the `Nats-Service-Error-Code` header, as in HTTP.
    pub fn status(&self) -> u16 {
        match self.code.as_str() {
            code::INVALID_REQUEST => 400,
            code::NOT_PERMITTED => 403,
            code::NOT_FOUND => 404,
            code::CONFLICT => 409,
            code::OVERLOADED => 429,
            code::SHUTTING_DOWN => 503,
            _ => 500,
        }
    }

    /// Returns the two headers that NATS services send with an error.
    pub fn headers(&self) -> async_nats::HeaderMap {
        let mut headers = async_nats::HeaderMap::new();
        let one_line: String = self
            .message
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(512)
            .collect();
        headers.insert("Nats-Service-Error", one_line.as_str());
        headers.insert(
            "Nats-Service-Error-Code",
            self.status().to_string().as_str(),
        );
        headers
    }
}

impl From<Invalid> for WireError {
    fn from(invalid: Invalid) -> Self {
        Self {
            code: code::INVALID_REQUEST.into(),
            message: invalid.to_string(),
            field: Some(invalid.field),
        }
    }
}

/// Parses a message, which is always an object; an error names the field. Unknown fields are added to `unknown`.
pub fn parse<T: DeserializeOwned>(body: &[u8], unknown: &mut Vec<String>) -> Result<T, WireError> {
    if body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[') {
        // serde would accept its entries as the fields in order
        let message = "not a valid message: an array; expected an object";
        return Err(WireError::new(code::INVALID_REQUEST, message));
    }
    let known = unknown.len();
    // checked as a whole, see `read`
    let Ok(text) = std::str::from_utf8(body) else {
        return Err(what_is_wrong::<T>(body));
    };
    noting(text, unknown).map_err(|_| {
        unknown.truncate(known);
        what_is_wrong::<T>(body)
    })
}

/// Returns the fields of a message that `T` does not have, as far as it can be read; the first 16.
pub fn unknown_fields<T: DeserializeOwned>(body: &[u8]) -> Vec<String> {
    let mut unknown = Vec::new();
    if let Ok(text) = std::str::from_utf8(body) {
        // `parse` reports anything else that is wrong
        let _ = noting::<T>(text, &mut unknown);
    }
    unknown
}

/// Parses, and records the fields that `T` does not have.
fn noting<T: DeserializeOwned>(text: &str, unknown: &mut Vec<String>) -> serde_json::Result<T> {
    let known = unknown.len();
    let mut json = serde_json::Deserializer::from_str(text);
    let mut note = |path: serde_ignored::Path<'_>| {
        if unknown.len() < known + 16 {
            unknown.push(shown(&path));
        }
    };
    let value = serde_ignored::deserialize(&mut json, &mut note)?;
    json.end().map(|()| value)
}

/// Returns the path of an unknown field. Under `run` its name may be a secret in the wrong place.
fn shown(path: &serde_ignored::Path<'_>) -> String {
    // `?` stands for an Option
    let plain = |path: &serde_ignored::Path<'_>| path.to_string().replace(".?", "");
    if let serde_ignored::Path::Map { parent, .. } = path {
        let parent = plain(parent);
        if is_secret(&parent) {
            return format!("{}.(hidden)", cut(&parent));
        }
    }
    cut(&plain(path)).into_owned()
}

/// Parses a message that must not be misunderstood, such as a stop: an unknown field is an error with the field, its
/// value and what was `expected`.
pub fn parse_strict<T: DeserializeOwned>(body: &[u8], expected: &str) -> Result<T, WireError> {
    let mut unknown = Vec::new();
    let parsed = parse(body, &mut unknown)?;
    let Some(field) = unknown.first() else {
        return Ok(parsed);
    };
    let whole: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let value = field.split('.').try_fold(&whole, |at, key| at.get(key));
    let value = value.filter(|_| !is_secret(field));
    let value = value.map_or(String::new(), brief);
    Err(Invalid::new(field, value, expected).into())
}

/// Parses a message without content: an empty body, or an object without fields. Anything else was meant for something
/// else.
pub fn read_nothing(body: &[u8]) -> Result<(), WireError> {
    #[derive(Deserialize)]
    struct Nothing {
        #[serde(default, rename = "v")]
        _v: Version,
    }
    if body.is_empty() {
        return Ok(());
    }
    parse_strict::<Nothing>(body, "no field").map(drop)
}

/// Deserialises a list that must have an entry if it is present: an empty filter would mean "all".
pub(crate) fn some<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Vec::deserialize(deserializer)?;
    if list.is_empty() {
        let message = "[] is not allowed; expected at least one entry; leave the field out for all";
        return Err(serde::de::Error::custom(message));
    }
    Ok(list)
}

/// Parses a message whose unknown fields are ignored; an error names the field.
pub fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, WireError> {
    // checked as a whole: `from_slice` checks each text separately, and messages have many short ones
    let parsed = match std::str::from_utf8(body) {
        Ok(text) => serde_json::from_str(text),
        Err(_) => serde_json::from_slice(body),
    };
    parsed.map_err(|_| what_is_wrong::<T>(body))
}

/// Rejects a message of another version, whatever else it contains. Anything that is not an object has no version.
pub fn check_version(body: &[u8]) -> Result<(), WireError> {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(default = "this")]
        v: serde_json::Value,
    }
    fn this() -> serde_json::Value {
        Version::NUMBER.into()
    }
    // as written by our own programs: the rest of the message need not be read
    if body.starts_with(b"{\"v\":1,") {
        return Ok(());
    }
    match serde_json::from_slice::<Versioned>(body) {
        Ok(Versioned { v }) if v != this() => {
            Err(Invalid::new("v", brief(&v), Version::NUMBER.to_string()).into())
        }
        _ => Ok(()),
    }
}

/// Parses again while tracking the path. This takes several times as long, and only invalid messages need it.
fn what_is_wrong<T: DeserializeOwned>(body: &[u8]) -> WireError {
    // the rest of another version's message may mean anything
    if let Err(other_version) = check_version(body) {
        return other_version;
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let parsed = T::deserialize(tracked).and_then(|_| json.end());
    match parsed {
        Err(error) => WireError::unreadable(&track.path().to_string(), &error),
        // only in a part that is not read, as it would have been found otherwise
        Ok(()) if std::str::from_utf8(body).is_err() => WireError::new(
            code::INVALID_REQUEST,
            "not a valid message: it is not UTF-8",
        ),
        Ok(()) => WireError::new(code::INVALID_REQUEST, "not a valid message"),
    }
}

/// Returns whether the field belongs to what a request executes. Its values may be secrets, and errors are published as
/// events, so there only the path and the type are given.
fn is_secret(path: &str) -> bool {
    path.split(['.', '[']).any(|part| part == "run")
}

/// Returns the first 40 characters of a value, with a mark if anything is omitted.
fn brief(value: &serde_json::Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(40) {
        None => text,
        Some((end, _)) if value.is_string() => format!("{}…\"", &text[..end]),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The most characters of what was expected: more than any of our own lists have.
const MAX_EXPECTED: usize = 1_000;

/// Returns serde's message with only the start of a value that someone else chose. What was expected is our own text,
/// at the end.
fn shortened(text: &str) -> String {
    match text.rsplit_once("expected ") {
        Some((fault, expected)) => {
            let expected: String = expected.chars().take(MAX_EXPECTED).collect();
            format!("{}expected {expected}", cut_kept(fault))
        }
        None => cut(text).into_owned(),
    }
}

/// Returns the start, and what separates it from the rest of the sentence.
fn cut_kept(fault: &str) -> String {
    match cut(fault) {
        Cow::Borrowed(whole) => whole.to_owned(),
        Cow::Owned(short) => {
            let open = ['"', '`'].into_iter();
            let mut open = open.filter(|quote| short.matches(*quote).count() % 2 == 1);
            let quote = open.next().map_or(String::new(), String::from);
            format!("{short}{quote}, ")
        }
    }
}

impl WireError {
    /// Returns serde's message in terms of JSON instead of Rust.
    fn unreadable(path: &str, error: &serde_json::Error) -> Self {
        let path: &str = &cut(path);
        let whole = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let fault = shortened(whole.strip_suffix(&place).unwrap_or(&whole));
        let mut text = match in_json_terms(&fault, is_secret(path)) {
            Some(words) => words,
            None if is_secret(path) && fault.starts_with("invalid ") => {
                let kind = fault.split(['`', '"']).next().unwrap_or_default();
                kind.trim_end().to_owned()
            }
            None if error.is_eof() => "it ends too early".to_owned(),
            None => fault,
        };
        // in a message of one line the position says nothing
        if error.line() > 1 {
            text += &place;
        }
        let at = if matches!(path, "" | "." | "?") {
            ""
        } else {
            path
        };
        let missing = text
            .strip_prefix("missing field `")
            .and_then(|rest| rest.split('`').next());
        let field = match (at, missing) {
            ("", None) => None,
            ("", Some(missing)) => Some(missing.to_owned()),
            (at, Some(missing)) => Some(format!("{at}.{missing}")),
            (at, None) => Some(at.to_owned()),
        };
        let message = match at {
            "" => format!("not a valid message: {text}"),
            at => format!("{at}: {text}"),
        };
        Self {
            code: code::INVALID_REQUEST.into(),
            field,
            message,
        }
    }
}
