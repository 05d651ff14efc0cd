//! The owner of an instance, read from the id of the request that started it.

use std::{fmt, str::FromStr};

use placement::Invalid;
use serde::{Deserialize, Serialize};

macro_rules! hex_ids {
    ($($(#[$doc:meta])* $name:ident $field:literal;)*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(u32);

        impl $name {
            /// Creates the id with this number.
            pub const fn new(number: u32) -> Self {
                Self(number)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:08x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                let digits = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
                let number = u32::from_str_radix(text, 16).ok();
                match number.filter(|_| digits && text.len() == 8) {
                    Some(number) => Ok(Self(number)),
                    None => Err(Invalid::new($field, format!("{text:?}"), "8 hexadecimal digits")),
                }
            }
        }

        impl TryFrom<String> for $name {
            type Error = Invalid;

            fn try_from(text: String) -> Result<Self, Invalid> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.to_string()
            }
        }
    )*};
}

hex_ids! {
    /// One bucket of desired state: any other bucket, including a recreated one, has another id.
    BucketId "bucket";
    /// One creation of an app: an app that was deleted and put again has another uid.
    AppUid "uid";
}

/// The id of the start request that a manager sends for a wave: `m-<bucket>-<uid>-<version>-<wave>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaveId {
    /// The bucket that the app is stored in.
    pub bucket: BucketId,
    /// The app.
    pub uid: AppUid,
    /// The version of its template.
    pub version: u32,
    /// The number of the wave, counted from 1 for each app; it only increases.
    pub wave: u32,
}

impl WaveId {
    /// Parses a request's id; none if it has another form, and so is not a manager's.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.strip_prefix("m-")?.split('-');
        let id = Self {
            bucket: parts.next()?.parse().ok()?,
            uid: parts.next()?.parse().ok()?,
            version: parts.next()?.parse().ok()?,
            wave: parts.next()?.parse().ok()?,
        };
        // "+1" and "01" parse as numbers, too
        (parts.next().is_none() && id.to_string() == text).then_some(id)
    }
}

impl fmt::Display for WaveId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            bucket,
            uid,
            version,
            wave,
        } = self;
        write!(f, "m-{bucket}-{uid}-{version}-{wave}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_wave_is_read_as_it_is_written() {
        let text = "m-0000000b-000000a1-3-17";
        let id = WaveId::parse(text).unwrap();
        assert_eq!((id.version, id.wave), (3, 17));
        assert_eq!(id.to_string(), text);
        crate::RequestId::new(text).unwrap();
        for other in [
            "r-1",
            "m-0000000b-000000a1-3",
            "m-0000000b-000000a1-3-17-1",
            "m-0000000B-000000a1-3-17",
            "m-b-000000a1-3-17",
            "m-0000000b-000000a1-03-17",
            "m-0000000b-000000a1-3-+17",
        ] {
            assert_eq!(WaveId::parse(other), None, "{other}");
        }
    }
}
