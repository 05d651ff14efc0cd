//! Dates, stamps and durations, parsed once from messages and files.

use std::{
    fmt,
    str::FromStr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::words::shorten;

/// A date set by operators: RFC 3339, or a day such as `2026-12-01`. Written as it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timestamp {
    text: String,
    ms: i64,
}

impl Timestamp {
    /// What is expected of a date.
    pub const EXPECTED: &'static str = "a date such as \"2026-12-01\" or \"2026-12-01T04:00:00Z\"";

    /// Returns the milliseconds since the Unix epoch.
    pub fn ms(&self) -> i64 {
        self.ms
    }

    /// Returns the original text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// The text is neither an RFC 3339 date nor a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", Timestamp::EXPECTED)]
pub struct NoDate;

impl FromStr for Timestamp {
    type Err = NoDate;

    fn from_str(text: &str) -> Result<Self, NoDate> {
        let ms = date_ms(text).ok_or(NoDate)?;
        let text = text.to_owned();
        Ok(Self { text, ms })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|NoDate| {
            let value = shorten(&text);
            D::Error::custom(format!(
                "{value} is not allowed; expected {}",
                Self::EXPECTED
            ))
        })
    }
}

/// The build stamp of a platform image, `YYYYMMDDTHHMMSSZ`; any other text is kept, and counts as older than every
/// date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    text: String,
    ms: Option<i64>,
}

impl Stamp {
    /// Returns the original text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the milliseconds since the Unix epoch; none if the text is not a stamp.
    pub fn ms(&self) -> Option<i64> {
        self.ms
    }
}

impl From<String> for Stamp {
    fn from(text: String) -> Self {
        let ms = stamp_ms(&text);
        Self { text, ms }
    }
}

impl From<&str> for Stamp {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

/// A duration, written as `"4s"` or `"250ms"` in messages and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    /// Hours are the largest unit, as in `984h` or `1h 30m`, because nobody recognises 41 days in `1month 10days 13h`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = self.0.as_secs() / 3_600;
        let rest = self.0.saturating_sub(Duration::from_secs(hours * 3_600));
        match (hours, rest.is_zero()) {
            (0, _) => humantime::format_duration(rest).fmt(f),
            (_, true) => write!(f, "{hours}h"),
            (_, false) => write!(f, "{hours}h {}", humantime::format_duration(rest)),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map(Span).map_err(|e| {
            D::Error::custom(format!(
                "{text:?} is not a duration ({e}); expected one like \"4s\" or \"250ms\""
            ))
        })
    }
}

fn date_ms(text: &str) -> Option<i64> {
    let parsed = if text.len() == 10 {
        humantime::parse_rfc3339(&format!("{text}T00:00:00Z"))
    } else {
        humantime::parse_rfc3339_weak(text)
    };
    parsed.ok().and_then(epoch_ms)
}

fn stamp_ms(stamp: &str) -> Option<i64> {
    let digits = |range: std::ops::Range<usize>| {
        let part = stamp.get(range)?;
        part.bytes().all(|b| b.is_ascii_digit()).then_some(part)
    };
    let shape = stamp.len() == 16 && stamp.get(8..9) == Some("T") && stamp.ends_with('Z');
    if !shape {
        return None;
    }
    let (year, month, day) = (digits(0..4)?, digits(4..6)?, digits(6..8)?);
    let (hour, minute, second) = (digits(9..11)?, digits(11..13)?, digits(13..15)?);
    date_ms(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z"))
}

fn epoch_ms(time: SystemTime) -> Option<i64> {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).ok(),
        Err(before) => i64::try_from(before.duration().as_millis())
            .ok()
            .map(|ms| -ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days_or_rfc_3339_and_are_written_as_they_were_read() {
        for (text, ms) in [
            ("1970-01-02", Some(86_400_000)),
            ("1970-01-01T00:00:01Z", Some(1_000)),
            ("1970-01-01 00:00:01.5Z", Some(1_500)),
            ("tomorrow", None),
            ("1970-13-01", None),
            ("", None),
        ] {
            let read = text.parse::<Timestamp>().ok();
            assert_eq!(read.as_ref().map(Timestamp::ms), ms, "{text}");
            if let Some(read) = read {
                let json = serde_json::to_string(&read).unwrap();
                assert_eq!(json, format!("{text:?}"));
            }
        }
        let error = serde_json::from_str::<Timestamp>("\"soon\"").unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("\"soon\" is not allowed; expected a date"),
            "{error}"
        );
    }

    #[test]
    fn a_stamp_that_is_none_is_kept_without_a_date() {
        for (text, ms) in [
            ("19700101T000001Z", Some(1_000)),
            ("19700102T000000Z", Some(86_400_000)),
            ("19700101 000001Z", None),
            ("19700101T000001", None),
            ("19700101T000001z", None),
            ("1970010aT000001Z", None),
            ("19700101T00000aZ", None),
            ("19701301T000001Z", None),
            ("now", None),
        ] {
            let stamp = Stamp::from(text);
            assert_eq!((stamp.ms(), stamp.as_str()), (ms, text));
        }
    }

    #[test]
    fn a_duration_is_written_without_days_and_read_again() {
        for (text, written) in [
            ("0s", "0s"),
            ("90s", "1m 30s"),
            ("1h", "1h"),
            ("5400s", "1h 30m"),
            ("41days", "984h"),
            ("1month 11days", "994h 33m 36s"),
        ] {
            let span: Span = serde_json::from_str(&format!("{text:?}")).unwrap();
            assert_eq!(span.to_string(), written, "{text}");
            let again = serde_json::to_string(&span).unwrap();
            assert_eq!(
                serde_json::from_str::<Span>(&again).unwrap(),
                span,
                "{text}"
            );
        }
        let longest = Span(Duration::MAX);
        assert!(longest.to_string().starts_with("5124095576030431h "));
    }
}
