//! Numbers, and values that are never shown.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// A number as the originals write it: an integer, or a float, which memory and disk are with a fractional overcommit
/// factor.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum DeaNumber {
    /// Such as `512`.
    Integer(i64),
    /// Such as `512.5` or `512.0`.
    Float(f64),
}

impl Default for DeaNumber {
    fn default() -> Self {
        Self::Integer(0)
    }
}

impl DeaNumber {
    /// Returns the number in a JSON value.
    pub(super) fn of(value: &Value) -> Option<Self> {
        let integer = value.as_i64().map(Self::Integer);
        integer.or_else(|| value.as_f64().map(Self::Float))
    }

    /// Rounds down to an integer. Values out of range become the nearest possible integer.
    #[allow(clippy::cast_possible_truncation)] // the cast saturates
    pub fn floor(self) -> i64 {
        match self {
            Self::Integer(integer) => integer,
            Self::Float(float) => float.floor() as i64,
        }
    }

    /// Returns the number as a float.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }
}

impl fmt::Display for DeaNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(integer) => integer.fmt(f),
            Self::Float(float) => float.fmt(f),
        }
    }
}

/// A value that may contain credentials: written to messages, and never shown.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Hidden<T>(pub T);

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}
