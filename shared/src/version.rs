//! The version that every message carries.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The version of every message: `"v":1`.
pub const VERSION: Version = Version;

/// `"v"` of a message. There is only one version, so this is empty: it is written as 1, and reading any other version
/// is an error. A message without it has this version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version;

impl Version {
    /// The number that is written.
    pub(crate) const NUMBER: u64 = 1;
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
