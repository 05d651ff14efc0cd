//! The beginnings of many ids in few bytes.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::ids::InstanceId;

/// Of so many bytes: three are four characters of base64, without padding.
const BYTES: usize = 3;
const BITS: u32 = 24;

/// The first three bytes of each of many instance ids, together in base64. A question for an instance then
/// takes 4 bytes and not 39. Of other ids one in 16 million begins in the same way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct IdPrefixes {
    /// In order.
    prefixes: Vec<u32>,
}

impl IdPrefixes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Whether an id begins with one of them.
    pub fn match_id(&self, id: &InstanceId) -> bool {
        self.prefixes.binary_search(&prefix(id)).is_ok()
    }
}

/// The first bytes of an id, as a number.
#[allow(clippy::cast_possible_truncation)] // so many bits are left
fn prefix(id: &InstanceId) -> u32 {
    (id.as_u128() >> (u128::BITS - BITS)) as u32
}

impl<'i> FromIterator<&'i InstanceId> for IdPrefixes {
    fn from_iter<I: IntoIterator<Item = &'i InstanceId>>(ids: I) -> Self {
        Self::from(ids.into_iter().map(prefix).collect::<Vec<u32>>())
    }
}

impl From<Vec<u32>> for IdPrefixes {
    fn from(mut prefixes: Vec<u32>) -> Self {
        prefixes.sort_unstable();
        prefixes.dedup();
        Self { prefixes }
    }
}

impl From<IdPrefixes> for String {
    fn from(ids: IdPrefixes) -> Self {
        let bytes = ids.prefixes.iter().flat_map(|prefix| {
            let [_, bytes @ ..] = prefix.to_be_bytes();
            bytes
        });
        STANDARD.encode(bytes.collect::<Vec<u8>>())
    }
}

/// A text that is no list of prefixes.
#[derive(Debug, thiserror::Error)]
#[error("{length} characters; expected base64 of {BYTES} bytes of each id")]
pub struct BadPrefixes {
    length: usize,
}

impl TryFrom<String> for IdPrefixes {
    type Error = BadPrefixes;

    fn try_from(text: String) -> Result<Self, BadPrefixes> {
        let bad = || BadPrefixes { length: text.len() };
        let bytes = STANDARD.decode(&text).map_err(|_| bad())?;
        let (prefixes, rest) = bytes.as_chunks::<BYTES>();
        if !rest.is_empty() {
            return Err(bad());
        }
        let number = |[a, b, c]: &[u8; BYTES]| u32::from_be_bytes([0, *a, *b, *c]);
        Ok(Self::from(
            prefixes.iter().map(number).collect::<Vec<u32>>(),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(first: u32) -> InstanceId {
        InstanceId::from_u128(u128::from(first) << 96 | 7)
    }

    #[test]
    fn an_id_takes_four_characters_and_is_found_by_its_first_three_bytes() {
        let all = [id(0x3b2c_00ff), id(0x0000_0100), id(0x3b2c_0000)];
        let prefixes: IdPrefixes = all.iter().collect();
        assert_eq!(prefixes.len(), 2, "two of them begin in the same way");
        let text = serde_json::to_string(&prefixes).unwrap();
        assert_eq!(text, "\"AAABOywA\"");
        let read: IdPrefixes = serde_json::from_str(&text).unwrap();
        assert_eq!(read, prefixes);
        for (first, is_there) in [
            (0x3b2c_0012, true),
            (0x0000_01ff, true),
            (0x3b2c_0100, false),
            (0, false),
        ] {
            assert_eq!(read.match_id(&id(first)), is_there, "{first:x}");
        }
    }

    #[test]
    fn a_list_need_not_be_in_order_and_what_is_no_list_is_refused() {
        let read: IdPrefixes = serde_json::from_str("\"OywAAAAB\"").unwrap();
        assert!(read.match_id(&id(0x0000_0100)) && read.match_id(&id(0x3b2c_0000)));
        assert!(
            serde_json::from_str::<IdPrefixes>("\"\"")
                .unwrap()
                .is_empty()
        );
        for bad in ["AAA", "AAAA!", "AA==", "AAAAAA=="] {
            let error = serde_json::from_str::<IdPrefixes>(&format!("\"{bad}\"")).unwrap_err();
            let says = format!(
                "{} characters; expected base64 of 3 bytes of each id",
                bad.len()
            );
            assert_eq!(error.to_string(), says);
        }
    }
}
