//! The version that every message carries.

use std::fmt;

use placement::Invalid;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::WireError;

/// `"v"` of a message. There is one version, so this holds nothing: it is written as 1, and any other
/// is an error where it is read. A message without it is of this version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version;

impl Version {
    const NUMBER: u64 = 1;
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::NUMBER.fmt(f)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(Self::NUMBER)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        if number == Self::NUMBER {
            return Ok(Self);
        }
        let said = format!("{number} is not allowed; expected {}", Self::NUMBER);
        Err(D::Error::custom(said))
    }
}

/// Refuses a message of another version, whatever else is in it. What is no object has none.
pub fn check_version(body: &[u8]) -> Result<(), WireError> {
    #[derive(Deserialize)]
    struct Versioned {
        #[serde(default = "this")]
        v: serde_json::Value,
    }
    fn this() -> serde_json::Value {
        Version::NUMBER.into()
    }
    match serde_json::from_slice::<Versioned>(body) {
        Ok(Versioned { v }) if v != this() => {
            let value: String = v.to_string().chars().take(40).collect();
            Err(Invalid::new("v", value, Version::NUMBER.to_string()).into())
        }
        _ => Ok(()),
    }
}
