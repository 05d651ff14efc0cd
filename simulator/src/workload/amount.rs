//! An integer that may be drawn.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::random::Random;

/// An integer: `4`, any of `"1..4"` (both included, equally likely) or one of
/// `[[2048, 0.5], [4096, 0.5]]` (value and weight; the weights need not add up to 1).
#[derive(Clone, Debug, PartialEq)]
pub enum Amount {
    /// Always this value.
    Fixed(i64),
    /// From the first to the second, both included.
    Range(i64, i64),
    /// Values and their weights: 1 to 1,000 of them, no weight below 0, not all 0.
    Weighted(Vec<(i64, f64)>),
}

const EXPECTED: &str = "an integer, a range such as \"1..4\" (both included) or a list of \
                        [value, weight] such as [[2048, 0.5], [4096, 0.5]]";

impl Amount {
    /// Draws a value.
    pub fn sample(&self, random: &mut Random) -> i64 {
        match self {
            Self::Fixed(value) => *value,
            Self::Range(low, high) => random.range(*low, *high),
            Self::Weighted(list) => weighted(list, random),
        }
    }

    /// Returns the lowest possible value.
    pub fn low(&self) -> i64 {
        match self {
            Self::Fixed(value) | Self::Range(value, _) => *value,
            Self::Weighted(list) => possible(list).min().unwrap_or(0),
        }
    }

    /// Returns the highest possible value.
    pub fn high(&self) -> i64 {
        match self {
            Self::Fixed(value) | Self::Range(_, value) => *value,
            Self::Weighted(list) => possible(list).max().unwrap_or(0),
        }
    }

    fn read(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => number.as_i64().map(Self::Fixed),
            Value::String(text) => {
                let (low, high) = text.split_once("..")?;
                let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
                (low <= high).then_some(Self::Range(low, high))
            }
            Value::Array(list) if (1..=1000).contains(&list.len()) => {
                let pair = |entry: &Value| match entry.as_array()?.as_slice() {
                    [value, weight] => {
                        let weight = weight.as_f64().filter(|w| w.is_finite() && *w >= 0.0)?;
                        Some((value.as_i64()?, weight))
                    }
                    _ => None,
                };
                let list = list.iter().map(pair).collect::<Option<Vec<_>>>()?;
                let possible = list.iter().any(|(_, weight)| *weight > 0.0);
                possible.then_some(Self::Weighted(list))
            }
            _ => None,
        }
    }
}

fn possible(list: &[(i64, f64)]) -> impl Iterator<Item = i64> {
    list.iter()
        .filter(|(_, weight)| *weight > 0.0)
        .map(|(value, _)| *value)
}

fn weighted(list: &[(i64, f64)], random: &mut Random) -> i64 {
    let sum: f64 = list.iter().map(|(_, weight)| weight).sum();
    let mut point = random.unit() * sum;
    for (value, weight) in list {
        if point < *weight {
            return *value;
        }
        point -= weight;
    }
    // rounding may leave a remainder beyond the last weight
    possible(list).last().unwrap_or(0)
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Self::read(&value).ok_or_else(|| {
            let shown: String = value.to_string().chars().take(80).collect();
            serde::de::Error::custom(format!("{shown} is not an amount; expected {EXPECTED}"))
        })
    }
}
