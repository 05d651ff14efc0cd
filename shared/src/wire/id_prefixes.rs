//! The prefixes of many ids in few bytes.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};

use crate::ids::InstanceId;

/// The first bytes of each of many instance ids, together in base64. Questions have 3 bytes of each, which take 4
/// characters per instance instead of 39; lists of [all that runs](RunningIds) have 6 bytes, in 8 characters. The
/// number is a multiple of three, so that base64 needs no padding, and at most six. One in 16 million other ids has the
/// same 3 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct IdPrefixes<const BYTES: usize = 3> {
    /// In ascending order.
    prefixes: Vec<u64>,
}

/// What a cell runs. Even among a million ids, the chance that any two share their first six bytes is less than one in
/// a hundred.
pub type RunningIds = IdPrefixes<6>;

impl<const BYTES: usize> IdPrefixes<BYTES> {
    /// Returns the first bytes of an id as a number.
    #[allow(clippy::cast_possible_truncation)] // so many bytes are left
    pub fn prefix(id: &InstanceId) -> u64 {
        (id.as_u128() >> (128 - 8 * BYTES)) as u64
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Returns how many there are.
    pub fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Returns them as numbers in ascending order.
    pub fn numbers(&self) -> &[u64] {
        &self.prefixes
    }

    /// Returns whether an id starts with one of them.
    pub fn match_id(&self, id: &InstanceId) -> bool {
        self.prefixes.binary_search(&Self::prefix(id)).is_ok()
    }
}

impl RunningIds {
    /// Returns the shorter prefix with which a question asks for instances with this prefix.
    pub fn short(number: u64) -> u64 {
        number >> 24
    }
}

impl<'i, const BYTES: usize> FromIterator<&'i InstanceId> for IdPrefixes<BYTES> {
    fn from_iter<I: IntoIterator<Item = &'i InstanceId>>(ids: I) -> Self {
        Self::from(ids.into_iter().map(Self::prefix).collect::<Vec<u64>>())
    }
}

impl<const BYTES: usize> From<Vec<u64>> for IdPrefixes<BYTES> {
    fn from(mut prefixes: Vec<u64>) -> Self {
        prefixes.sort_unstable();
        prefixes.dedup();
        Self { prefixes }
    }
}

impl<const BYTES: usize> From<IdPrefixes<BYTES>> for String {
    fn from(ids: IdPrefixes<BYTES>) -> Self {
        let mut bytes = Vec::with_capacity(ids.len() * BYTES);
        for prefix in ids.prefixes {
            bytes.extend_from_slice(&prefix.to_be_bytes()[8 - BYTES..]);
        }
        STANDARD.encode(bytes)
    }
}

/// A text that is not a list of prefixes.
#[derive(Debug, thiserror::Error)]
#[error("{length} characters; expected base64 of {bytes} bytes of each id")]
pub struct BadPrefixes {
    length: usize,
    bytes: usize,
}

impl<const BYTES: usize> TryFrom<String> for IdPrefixes<BYTES> {
    type Error = BadPrefixes;

    fn try_from(text: String) -> Result<Self, BadPrefixes> {
        let bad = || BadPrefixes {
            length: text.len(),
            bytes: BYTES,
        };
        let bytes = STANDARD.decode(&text).map_err(|_| bad())?;
        let (prefixes, rest) = bytes.as_chunks::<BYTES>();
        if !rest.is_empty() {
            return Err(bad());
        }
        let number = |prefix: &[u8; BYTES]| {
            let bytes = prefix.iter();
            bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        Ok(Self::from(
            prefixes.iter().map(number).collect::<Vec<u64>>(),
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

    #[test]
    fn what_runs_is_listed_with_six_bytes_of_each_id() {
        let ids = [0x3b2c_00ff_0102_u64, 0x3b2c_00ff_0103].map(|n| u128::from(n) << 80 | 7);
        let ids = ids.map(InstanceId::from_u128);
        let running: RunningIds = ids.iter().rev().collect();
        assert_eq!(running.numbers(), [0x3b2c_00ff_0102, 0x3b2c_00ff_0103]);
        let text = serde_json::to_string(&running).unwrap();
        assert_eq!(text, "\"OywA/wECOywA/wED\"");
        let read: RunningIds = serde_json::from_str(&text).unwrap();
        assert_eq!(read, running);
        let short = running.numbers().iter().map(|n| RunningIds::short(*n));
        let question: IdPrefixes = short.collect::<Vec<u64>>().into();
        assert_eq!(question, ids.iter().collect());
        let error = serde_json::from_str::<RunningIds>("\"OywA\"").unwrap_err();
        assert_eq!(
            error.to_string(),
            "4 characters; expected base64 of 6 bytes of each id"
        );
    }
}
