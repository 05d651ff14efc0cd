//! An invalid value, described so that its sender can correct it.

use std::fmt::Display;

use crate::words::{cut, shorten};

/// The largest memory, disk, cpu or `extra` in a message, and the largest amount of a device: 2^31 - 1.
pub const MAX_AMOUNT: i64 = (1 << 31) - 1;

/// An invalid field: which one, its value, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} is not allowed; expected {expected}")]
pub struct Invalid {
    /// The field, as a path (`total.memory_mb`), shortened.
    pub field: String,
    /// Its value, shortened.
    pub value: String,
    /// What was expected.
    pub expected: String,
}

impl Invalid {
    /// Creates an error with the field, its value and what was expected instead.
    pub fn new(field: impl Into<String>, value: impl Display, expected: impl Into<String>) -> Self {
        Self {
            field: cut(&field.into()).into_owned(),
            value: cut(&value.to_string()).into_owned(),
            expected: expected.into(),
        }
    }
}

/// By byte: whether it may occur in a name. A table, because every name in every report is checked.
#[allow(clippy::cast_possible_truncation)] // below 256
const IN_NAMES: [bool; 256] = {
    let mut fine = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        fine[byte] = b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        byte += 1;
    }
    fine
};

/// Accepts 1 to 128 of `A-Za-z0-9_-`: a valid token of a subject.
pub fn check_name(field: &str, name: &str) -> Result<(), Invalid> {
    let fine = |b: u8| IN_NAMES[usize::from(b)];
    if (1..=128).contains(&name.len()) && name.bytes().all(fine) {
        return Ok(());
    }
    Err(Invalid::new(
        field,
        shorten(name),
        "1 to 128 of A-Z a-z 0-9 _ -",
    ))
}

pub(crate) fn check_count(field: &str, count: usize, most: usize) -> Result<(), Invalid> {
    if count <= most {
        return Ok(());
    }
    Err(Invalid::new(
        field,
        format!("{count} entries"),
        format!("at most {most}"),
    ))
}
