//! What a user stores: a start request; for a task also how long a run may take and how often a failed one is repeated.

use std::sync::Arc;

use placement::{Invalid, Kind, Request, Span};
use serde::Deserialize;
use shared::{
    check_stored_id,
    wire::{WireError, check_version, code, parse, unknown_fields},
};

/// The largest stored request, in bytes.
pub const MAX_STORED: usize = 400 * 1024;
/// Maximum number of repeats of failed runs.
const MAX_RETRIES: u32 = 100;
/// Maximum number of instances of a stored request that is not a task.
pub const MAX_DURABLE_INSTANCES: u32 = 1_000;
/// The longest time within which a request may have to be started, and that a run may take.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(7 * 86_400);

/// Fields that a start request does not have.
const OWN_FIELDS: [&str; 3] = ["v", "retries", "timeout"];

/// A start request to store.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskDefinition {
    /// The request, with the id under which it is stored.
    pub request: Arc<Request>,
    /// How often a run that failed is repeated.
    pub retries: u32,
    /// How long a run may take.
    pub timeout: Option<Span>,
}

#[derive(Deserialize)]
struct OwnFields {
    #[serde(default)]
    retries: u32,
    #[serde(default)]
    timeout: Option<Span>,
}

/// Reads the kind without a default, as a task's subject already says what it is.
#[derive(Deserialize)]
struct Kinded {
    kind: Option<Kind>,
}

/// The kind of work that a subject is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submitted<'a> {
    /// A task under the id that the subject names.
    Task(&'a str),
    /// Any start request, with an id of its own.
    Any,
}

impl TaskDefinition {
    /// Reads a definition. Unknown fields are errors, as in any configuration.
    pub fn read(body: &[u8], what: Submitted<'_>) -> Result<Self, WireError> {
        if body.len() > MAX_STORED {
            let bytes = body.len();
            let message = format!("a request of {bytes} bytes; expected at most {MAX_STORED}");
            return Err(WireError::new(code::INVALID_REQUEST, message));
        }
        check_version(body)?;
        let mut unknown = Vec::new();
        let parsed = parse(body, &mut unknown);
        if parsed.is_err() {
            unknown = unknown_fields::<Request>(body);
        }
        let own = |field: &&String| !OWN_FIELDS.contains(&field.as_str());
        if let Some(field) = unknown.iter().find(own) {
            let expected = "a field of a start request, retries or timeout";
            return Err(Invalid::new(field.as_str(), "the field", expected).into());
        }
        let mut request: Request = parsed?;
        let OwnFields { retries, timeout } = shared::wire::read(body)?;
        if let Submitted::Task(id) = what {
            if !request.id.is_empty() && request.id != id {
                let expected = format!("no id, or that of the subject, {id:?}");
                return Err(Invalid::new("id", format!("{:?}", request.id), expected).into());
            }
            id.clone_into(&mut request.id);
            if shared::wire::read::<Kinded>(body)?.kind == Some(Kind::Lrp) {
                let expected =
                    "\"task\"; for a long-running process put an app, or store a start request";
                return Err(Invalid::new("kind", "\"lrp\"", expected).into());
            }
            request.kind = Kind::Task;
        }
        let definition = Self {
            request: Arc::new(request),
            retries,
            timeout,
        };
        definition.check()?;
        Ok(definition)
    }

    fn check(&self) -> Result<(), Invalid> {
        let request = &self.request;
        request.check()?;
        check_stored_id(&request.id)?;
        let is_task = request.kind == Kind::Task;
        let most = if is_task { 1 } else { MAX_DURABLE_INSTANCES };
        if request.instances > most {
            let expected = format!("at most {most} for a stored {}", request.kind);
            return Err(Invalid::new("instances", request.instances, expected));
        }
        if request.run.is_none() {
            let expected = r#"a command, such as {"command":["true"]}"#;
            return Err(Invalid::new("run", "nothing", expected));
        }
        if self.retries > MAX_RETRIES {
            let expected = format!("at most {MAX_RETRIES}");
            return Err(Invalid::new("retries", self.retries, expected));
        }
        for (field, time) in [
            ("timeout", self.timeout),
            ("queue_timeout", request.queue_timeout),
        ] {
            if time.is_some_and(|time| time.0 > LONGEST || time.0.is_zero()) {
                let found = time.map_or(String::new(), |time| time.to_string());
                return Err(Invalid::new(field, found, "more than 0s and at most 7days"));
            }
        }
        for (field, there) in [
            ("retries", self.retries > 0),
            ("timeout", self.timeout.is_some()),
        ] {
            if there && !is_task {
                return Err(Invalid::new(
                    field,
                    "a value",
                    "none: only tasks have retries and a timeout",
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#""app":"a","memory_mb":1,"disk_mb":1,"run":{"command":["true"]}"#;

    fn read(more: &str, what: Submitted<'_>) -> Result<TaskDefinition, WireError> {
        TaskDefinition::read(format!("{{{GOOD}{more}}}").as_bytes(), what)
    }

    #[test]
    fn a_task_is_a_start_request_with_two_more_fields() {
        let task = read(
            r#","retries":2,"timeout":"5m","v":1"#,
            Submitted::Task("t-1"),
        )
        .unwrap();
        assert_eq!((task.request.kind, task.retries), (Kind::Task, 2));
        assert_eq!(task.request.id, "t-1");
        let durable = read(r#","id":"r","instances":1000"#, Submitted::Any).unwrap();
        assert_eq!(durable.request.kind, Kind::Lrp);
    }

    #[test]
    fn what_cannot_be_stored_names_its_field() {
        let task = Submitted::Task("t-1");
        for (more, what, field) in [
            (r#","retry":2"#, task, "retry"),
            (r#","id":"other""#, task, "id"),
            (r#","kind":"lrp""#, task, "kind"),
            (r#","instances":2"#, task, "instances"),
            (r#","retries":101"#, task, "retries"),
            (r#","timeout":"0s""#, task, "timeout"),
            (r#","queue_timeout":"8d""#, task, "queue_timeout"),
            ("", Submitted::Any, "id"),
            (r#","id":"r","instances":1001"#, Submitted::Any, "instances"),
            (r#","id":"r","retries":1"#, Submitted::Any, "retries"),
            (r#","id":"r","v":2"#, Submitted::Any, "v"),
        ] {
            let error = read(more, what).unwrap_err();
            assert_eq!(error.field.as_deref(), Some(field), "{more}: {error}");
        }
        let long = "x".repeat(65);
        assert!(read("", Submitted::Task(&long)).is_err());
        let body = br#"{"app":"a","memory_mb":1,"disk_mb":1}"#;
        let error = TaskDefinition::read(body, task).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("run"));
    }
}
