//! How messages travel.

use placement::ScenarioError;
use serde::Deserialize;

use super::read;
use crate::dice::Dice;

/// The longest mean latency, microseconds.
const MAX_LATENCY_US: f64 = 60e6;

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// From a sender to one receiver.
    pub latency: Latency,
    /// Each delivery is lost with this probability.
    pub loss: f64,
}

/// How long a message takes, microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Latency {
    /// Always so long.
    Constant(f64),
    /// Any time between these, equally likely.
    Uniform(f64, f64),
    /// Exponentially distributed, with this mean.
    Exponential(f64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default = "default_latency")]
    latency: String,
    #[serde(default)]
    loss: f64,
}

impl Default for File {
    fn default() -> Self {
        Self {
            latency: default_latency(),
            loss: 0.0,
        }
    }
}

fn default_latency() -> String {
    "uniform:0.2ms..1ms".into()
}

impl File {
    pub(super) fn check(&self) -> Result<Network, ScenarioError> {
        let latency = Latency::read(&self.latency).ok_or_else(|| {
            let expected = "a time such as \"0.5ms\", or \"uniform:0.2ms..1ms\" or \
                            \"exponential:1ms\", up to 60s";
            read::wrong("network.latency", &self.latency.as_str().into(), expected)
        })?;
        if !(0.0..1.0).contains(&self.loss) {
            let expected = "a probability from 0, below 1";
            return Err(read::wrong("network.loss", &self.loss.into(), expected));
        }
        Ok(Network {
            latency,
            loss: self.loss,
        })
    }
}

impl Latency {
    fn read(text: &str) -> Option<Self> {
        let (how, what) = text.split_once(':').unwrap_or(("constant", text));
        let latency = match how {
            "constant" => Self::Constant(read::micros(what)?),
            "exponential" => Self::Exponential(read::micros(what)?),
            "uniform" => {
                let (low, high) = what.split_once("..")?;
                Self::Uniform(read::micros(low)?, read::micros(high)?)
            }
            _ => return None,
        };
        let sound = match latency {
            Self::Constant(at) | Self::Exponential(at) => at <= MAX_LATENCY_US,
            Self::Uniform(low, high) => low <= high && high <= MAX_LATENCY_US,
        };
        sound.then_some(latency)
    }

    /// One message's.
    pub(crate) fn draw(self, dice: &mut Dice) -> u64 {
        self.at(dice.unit())
    }

    /// The longest of `count` messages': drawn at once, distributed as if each had been drawn.
    pub(crate) fn draw_longest(self, count: usize, dice: &mut Dice) -> u64 {
        // the largest of n uniform draws is distributed as u^(1/n)
        self.at(dice.unit().powf(1.0 / count.max(1) as f64))
    }

    /// The latency below which a share `unit` of messages stays.
    fn at(self, unit: f64) -> u64 {
        let us = match self {
            Self::Constant(at) => at,
            Self::Uniform(low, high) => low + (high - low) * unit,
            Self::Exponential(mean) => -mean * (1.0 - unit).max(1e-12).ln(),
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to some minutes
        let us = us as u64;
        us
    }
}
