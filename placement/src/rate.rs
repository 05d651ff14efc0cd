//! How many of something may begin in a period of time.

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use crate::times::Span;

/// A number at a time, and the time until the next: `1/10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many, 1 to 100.
    pub count: u32,
    /// The period; longer than 0.
    pub per: Span,
}

impl Rate {
    /// What is expected of a rate.
    pub const EXPECTED: &'static str = "a number from 1 to 100 and a time, such as 1/10s";
}

/// The text is not a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {}", Rate::EXPECTED)]
pub struct NoRate;

impl FromStr for Rate {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<Self, NoRate> {
        let (count, per) = text.split_once('/').ok_or(NoRate)?;
        let digits = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse().ok().filter(|_| digits).ok_or(NoRate)?;
        let per = humantime::parse_duration(per).map_err(|_| NoRate)?;
        if !(1..=100).contains(&count) || per == Duration::ZERO {
            return Err(NoRate);
        }
        let per = Span(per);
        Ok(Self { count, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.count, self.per)
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|no_rate: NoRate| {
            D::Error::custom(format!(
                "{} is not allowed; {no_rate}",
                crate::words::shorten(&text)
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_as_it_is_written() {
        for text in ["1/10s", "5/1m", "100/500ms"] {
            let rate: Rate = text.parse().unwrap();
            assert_eq!(rate.to_string(), text);
        }
        for bad in [
            "", "1", "/10s", "0/10s", "101/1s", "1/0s", "+1/1s", "1/10", "1/s",
        ] {
            assert_eq!(bad.parse::<Rate>(), Err(NoRate), "{bad}");
        }
    }
}
