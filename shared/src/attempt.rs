//! The id of a manager's attempt to start a stored request.

use std::fmt;

use placement::{Invalid, check_name};

use crate::wave::BucketId;

/// The longest id of a stored request, in characters: it is part of the id of each attempt.
pub const MAX_STORED_ID: usize = 64;

/// The id of the start request that a manager sends for an attempt of a stored request: `t-<bucket>-<attempt>-<id>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The managers' bucket.
    pub bucket: BucketId,
    /// Counted from 1 for each request; it only increases.
    pub attempt: u32,
    /// The id under which the request is stored.
    pub id: String,
}

impl AttemptId {
    /// Parses a request's id; none if it has another form, and so does not belong to a stored request.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("t-")?.splitn(3, '-');
        let id = Self {
            bucket: parts.next()?.parse().ok()?,
            attempt: parts.next()?.parse().ok()?,
            id: parts.next()?.to_owned(),
        };
        check_stored_id(&id.id).ok()?;
        // "+1" and "01" parse as numbers, too
        (id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bucket,
            attempt,
            id,
        } = self;
        write!(f, "t-{bucket}-{attempt}-{id}")
    }
}

/// Rejects an id under which nothing can be stored.
pub fn check_stored_id(id: &str) -> Result<(), Invalid> {
    check_name("id", id)?;
    if id.len() <= MAX_STORED_ID {
        return Ok(());
    }
    let expected = format!("at most {MAX_STORED_ID} characters");
    Err(Invalid::new("id", format!("{id:?}"), expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_an_attempt_is_read_as_it_is_written() {
        let text = "t-0000000b-3-nightly-report_7";
        let id = AttemptId::parse(text).unwrap();
        assert_eq!((id.attempt, id.id.as_str()), (3, "nightly-report_7"));
        assert_eq!(id.to_string(), text);
        let long = AttemptId {
            bucket: BucketId::new(u32::MAX),
            attempt: u32::MAX,
            id: "x".repeat(MAX_STORED_ID),
        };
        crate::RequestId::new(&long.to_string()).unwrap();
        for other in [
            "t-1",
            "t-0000000b-3",
            "t-0000000b-3-",
            "t-0000000b-03-x",
            "t-0000000b-x-3",
            "t-0000000b-3-a.b",
            "m-0000000b-000000a1-3-17",
        ] {
            assert_eq!(AttemptId::parse(other), None, "{other}");
        }
        assert!(AttemptId::parse(&format!("{long}x")).is_none());
    }
}
