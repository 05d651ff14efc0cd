//! Parses tables, with errors that name the field, its value and what was expected.

use placement::{Invalid, fields, in_json_terms};
use scenarios::ScenarioError;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses a table; `at` is its path in the file. The error for an unknown field suggests the nearest known name.
pub(super) fn table<T: DeserializeOwned>(value: Value, at: &str) -> Result<T, ScenarioError> {
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    T::deserialize(tracked).map_err(|e| {
        let path = track.path().to_string();
        let at = match (at, path.as_str()) {
            ("", _) => path,
            (at, ".") => at.to_owned(),
            (at, path) => format!("{at}.{path}"),
        };
        let message = e.to_string();
        let hint = fields::hint_of(&message);
        let message = in_json_terms(&message, false).unwrap_or(message);
        ScenarioError::Field {
            at,
            message: message + &hint,
        }
    })
}

/// Returns the error for an invalid value of a field.
pub(super) fn wrong(at: &str, value: &Value, expected: &str) -> ScenarioError {
    let value: String = value.to_string().chars().take(60).collect();
    ScenarioError::Field {
        at: at.into(),
        message: format!("{value} is not allowed; expected {expected}"),
    }
}

/// Returns the same for a check that names its field.
pub(super) fn invalid(invalid: &Invalid) -> ScenarioError {
    ScenarioError::Field {
        at: invalid.field.clone(),
        message: format!(
            "{} is not allowed; expected {}",
            invalid.value, invalid.expected
        ),
    }
}
