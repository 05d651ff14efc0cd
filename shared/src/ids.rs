//! Ids in messages, each with its own type, so that an auction's id cannot be passed for an
//! instance's.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use placement::{Invalid, check_name};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// The id with this UUID.
            pub const fn new(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The id with this number.
            pub const fn from_u128(number: u128) -> Self {
                Self(Uuid::from_u128(number))
            }

            /// The nil id: all bits zero.
            pub const fn nil() -> Self {
                Self(Uuid::nil())
            }

            /// The id as a number.
            pub const fn as_u128(self) -> u128 {
                self.0.as_u128()
            }

            /// The id as a UUID.
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl From<Uuid> for $name {
            fn from(uuid: Uuid) -> Self {
                Self(uuid)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, uuid::Error> {
                text.parse().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

uuid_ids! {
    /// One instance of a request. The same request, app, kind and index give the same id
    /// ([`instance_id`](crate::wire::instance_id)).
    InstanceId;
    /// One auction.
    AuctionId;
    /// One run of a cell's rep: a restarted rep has a new one.
    Incarnation;
}

/// A start request's id, given by its sender or made by the auctioneer: 1 to 128 of
/// `A-Za-z0-9_-`, so that it can be one token of a subject. Cloning it copies a pointer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct RequestId(Arc<str>);

impl RequestId {
    /// Checks the text; an error names the field `id`.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        check_name("id", text)?;
        Ok(Self(text.into()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for RequestId {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        Self::new(&text)
    }
}

impl FromStr for RequestId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::new(text)
    }
}

/// A UUID's text is always a valid request id.
impl From<Uuid> for RequestId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid.hyphenated().to_string().into())
    }
}

impl Borrow<str> for RequestId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for RequestId {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PartialEq<str> for RequestId {
    fn eq(&self, text: &str) -> bool {
        *self.0 == *text
    }
}

impl PartialEq<&str> for RequestId {
    fn eq(&self, text: &&str) -> bool {
        *self.0 == **text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_id_is_one_token_of_a_subject() {
        let id: RequestId = serde_json::from_str("\"r-1\"").unwrap();
        assert_eq!(id, "r-1");
        assert_eq!(serde_json::to_string(&id).unwrap(), "\"r-1\"");
        let too_long = "x".repeat(129);
        for bad in ["", "a.b", "a b", "*", ">", too_long.as_str()] {
            assert_eq!(RequestId::new(bad).unwrap_err().field, "id", "{bad}");
            let json = serde_json::to_string(bad).unwrap();
            assert!(serde_json::from_str::<RequestId>(&json).is_err(), "{bad}");
        }
    }

    #[test]
    fn uuid_ids_are_plain_uuids_on_the_wire() {
        let text = "\"0190b2c3-0000-7000-8000-000000000001\"";
        let id: AuctionId = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&id).unwrap(), text);
        assert_eq!(id.to_string().parse::<AuctionId>().unwrap(), id);
        assert_eq!(AuctionId::from_u128(id.as_u128()), id);
    }
}
