//! Start requests in files, which are read and checked before they are sent.

use std::{io::Read, path::Path};

use anyhow::Context;
use placement::{Request, Run, fields};
use serde_json::Value;
use shared::wire::{StartBody, WireError, parse_start, unknown_fields};

use crate::context::Usage;

/// Returns the text of a file, or of standard input for `-`.
pub(crate) fn read(file: &str) -> anyhow::Result<String> {
    if file != "-" {
        let read = std::fs::read_to_string(Path::new(file));
        let refuse = |e| {
            let expected = "expected a file, or - for standard input";
            Usage::because(format_args!("{file}: {e}; {expected}"))
        };
        return read.map_err(refuse);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .context("standard input")?;
    Ok(text)
}

/// Returns what a file is called in messages.
pub(crate) fn named(file: &str) -> &str {
    match file {
        "-" => "standard input",
        file => file,
    }
}

/// Checks a request like an auctioneer would, so that a bad file is refused without a cluster. A request without an id
/// gets one, so that its result can be asked for later.
pub(crate) fn check(file: &str, text: &str) -> anyhow::Result<Value> {
    check_with(file, text, &[])
}

/// Fields of a request that a manager stores, besides those of any request.
pub(crate) const STORED_FIELDS: [&str; 2] = ["retries", "timeout"];

/// Like [`check`], for requests that may have more fields.
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

/// Describes what is wrong with a request in a file; if a field is missing, with the one that may have been meant.
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

/// Returns the first field that no request has. An auctioneer would ignore it, and start something nobody meant.
fn unknown_field(body: &Value, own: &[&str]) -> Option<String> {
    let of_one = |at: &str, request: &Value| {
        let unknown = unknown_fields::<Request>(request.to_string().as_bytes());
        let is_known = |field: &String| field == "v" || own.contains(&field.as_str());
        let field = unknown.into_iter().find(|field| !is_known(field))?;
        if field.starts_with("run.") {
            // the name is not shown, as it may be a misplaced secret
            let known = fields::names::<Run>().join(", ");
            return Some(format!("{at}run: it has a field that is none of {known}"));
        }
        let hint = match field.split('.').next() {
            Some("crash" | "update") => {
                "; `vendue app put` takes it, and keeps the app running".into()
            }
            Some(stored) if STORED_FIELDS.contains(&stored) => {
                "; a task of `vendue task run` may have it".into()
            }
            _ => fields::hint(&field, &[fields::names::<Request>(), own].concat()),
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
            (
                r#"{"app":"a","memory_mb":1,"disk_mb":1,"retries":2}"#,
                "web.json: retries: no request has this field; a task of `vendue task run` may have it",
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
    fn a_misspelt_field_of_a_task_is_told_which_one_it_resembles() {
        let text = r#"{"app":"a","memory_mb":1,"disk_mb":1,"timout":"1s"}"#;
        let error = check_with("task.json", text, &STORED_FIELDS).unwrap_err();
        let expected = "timout: no request has this field; did you mean \"timeout\"?";
        assert!(error.to_string().ends_with(expected), "{error}");
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
}
