//! Random numbers and distributions that follow from one seed.

use std::time::Duration;

use placement::random::{STEP, finalise, hash_text, mix};
use serde::{Deserialize, Deserializer};

/// A stream of random numbers (splitmix64, period 2^64).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the stream of this seed.
    pub const fn new(seed: u64) -> Self {
        Self {
            state: finalise(seed),
        }
    }

    /// Creates an independent stream for a purpose and a number, so that an additional draw does not change all others.
    /// This stream does not advance.
    pub fn fork(&self, purpose: &str, number: u64) -> Self {
        let purpose = finalise(hash_text(purpose));
        let salt = purpose.wrapping_add(STEP.wrapping_mul(number.wrapping_add(1)));
        Self::new(self.state ^ finalise(salt))
    }

    /// Returns the next number.
    pub const fn next(&mut self) -> u64 {
        let number = mix(self.state);
        self.state = self.state.wrapping_add(STEP);
        number
    }

    /// Returns a fraction from 0 up to but not including 1, in steps of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number below `n`; 0 if `n` is 0. Its bias is below n / 2^64.
    #[allow(clippy::cast_possible_truncation)] // the high half of a product is below n
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a position in a list of `n`; 0 if `n` is 0.
    #[allow(clippy::cast_possible_truncation)] // below a usize
    pub fn place(&mut self, n: usize) -> usize {
        self.below(n as u64) as usize
    }

    /// Returns a number from `low` to `high`, both included; `low` if `high` is not above it.
    #[allow(clippy::cast_possible_wrap)] // below the width of the range
    pub fn range(&mut self, low: i64, high: i64) -> i64 {
        if high <= low {
            return low;
        }
        let width = high.wrapping_sub(low).cast_unsigned();
        let offset = if width == u64::MAX {
            self.next()
        } else {
            self.below(width + 1)
        };
        low.wrapping_add(offset as i64)
    }

    /// Returns true with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Draws from the normal distribution with mean 0 and deviation 1 (Box and Muller 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// Shuffles a list (Fisher and Yates).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.place(last + 1);
            list.swap(last, other);
        }
    }

    /// Moves `n` different elements, drawn at random, to the front of the list (all of them if it is shorter) and
    /// returns them.
    pub fn sample<'a, T>(&mut self, list: &'a mut [T], n: usize) -> &'a [T] {
        let n = n.min(list.len());
        for first in 0..n {
            let other = first + self.place(list.len() - first);
            list.swap(first, other);
        }
        &list[..n]
    }
}

/// A distribution of durations: `constant:30s`, `exponential:30s` (its mean), `uniform:1s..2s`
/// or `lognormal:6h,1.0` (its median, and the deviation of its natural logarithm).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Always this duration.
    Constant(Duration),
    /// Memoryless, with this mean.
    Exponential(Duration),
    /// Any duration between the two, equally likely.
    Uniform(Duration, Duration),
    /// Its logarithm has a normal distribution.
    Lognormal {
        /// Half of the draws are shorter.
        median: Duration,
        /// Standard deviation of the natural logarithm, 0 to 10.
        sigma: f64,
    },
}

/// An invalid text for a [`Distribution`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is not a distribution ({what}); expected {EXPECTED}")]
pub struct DistributionError {
    value: String,
    what: String,
}

const EXPECTED: &str = "\"constant:30s\", \"exponential:30s\", \"uniform:1s..2s\" or \
                        \"lognormal:6h,1.0\" (median, sigma from 0 to 10)";
/// The longest draw: a hundred years.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

impl Distribution {
    /// Parses a distribution; no duration may exceed a hundred years.
    pub fn parse(text: &str) -> Result<Self, DistributionError> {
        let wrong = |what: &str| DistributionError {
            value: text.chars().take(80).collect(),
            what: what.into(),
        };
        let (kind, rest) = text
            .split_once(':')
            .ok_or_else(|| wrong("it has no colon"))?;
        let span = |text: &str| match humantime::parse_duration(text.trim()) {
            Ok(span) if span <= LONGEST => Ok(span),
            Ok(_) => Err(wrong("longer than a hundred years")),
            Err(e) => Err(wrong(&format!("{:?}: {e}", text.trim()))),
        };
        match kind.trim() {
            "constant" => Ok(Self::Constant(span(rest)?)),
            "exponential" => Ok(Self::Exponential(span(rest)?)),
            "uniform" => {
                let (low, high) = rest
                    .split_once("..")
                    .ok_or_else(|| wrong("it has no \"..\""))?;
                let (low, high) = (span(low)?, span(high)?);
                if low > high {
                    return Err(wrong("the first duration is above the second"));
                }
                Ok(Self::Uniform(low, high))
            }
            "lognormal" => {
                let (median, sigma) = rest
                    .split_once(',')
                    .ok_or_else(|| wrong("it has no sigma"))?;
                let number: Result<f64, _> = sigma.trim().parse();
                match number {
                    Ok(sigma) if (0.0..=10.0).contains(&sigma) => Ok(Self::Lognormal {
                        median: span(median)?,
                        sigma,
                    }),
                    _ => Err(wrong("sigma is not a number from 0 to 10")),
                }
            }
            other => Err(wrong(&format!("unknown kind {other:?}"))),
        }
    }

    /// Draws a duration; at most a hundred years.
    pub fn sample(&self, random: &mut Random) -> Duration {
        let seconds = match *self {
            Self::Constant(span) => return span,
            Self::Exponential(mean) => -(1.0 - random.unit()).ln() * mean.as_secs_f64(),
            Self::Uniform(low, high) => {
                low.as_secs_f64() + random.unit() * high.saturating_sub(low).as_secs_f64()
            }
            Self::Lognormal { median, sigma } => {
                median.as_secs_f64() * (sigma * random.normal()).exp()
            }
        };
        Duration::from_secs_f64(seconds.clamp(0.0, LONGEST.as_secs_f64()))
    }

    /// Draws a duration in whole microseconds.
    #[allow(clippy::cast_possible_truncation)] // a hundred years are 2^52 microseconds
    pub fn sample_us(&self, random: &mut Random) -> u64 {
        self.sample(random).as_micros() as u64
    }

    /// Draws a duration in whole milliseconds.
    #[allow(clippy::cast_possible_truncation)] // as above
    pub fn sample_ms(&self, random: &mut Random) -> u64 {
        self.sample(random).as_millis() as u64
    }

    /// Returns the mean of its draws (without the limit of a hundred years).
    pub fn mean(&self) -> Duration {
        match *self {
            Self::Constant(span) | Self::Exponential(span) => span,
            Self::Uniform(low, high) => (low + high) / 2,
            Self::Lognormal { median, sigma } => {
                let mean = median.as_secs_f64() * (sigma * sigma / 2.0).exp();
                Duration::from_secs_f64(mean.min(LONGEST.as_secs_f64()))
            }
        }
    }
}

impl std::str::FromStr for Distribution {
    type Err = DistributionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
