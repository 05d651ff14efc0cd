//! How messages travel.

use placement::ScenarioError;
use serde::Deserialize;

use super::read;
use crate::random::Distribution;

/// The longest mean latency, seconds.
const MAX_LATENCY_S: u64 = 60;

/// How messages travel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// From a sender to one receiver.
    pub latency: Distribution,
    /// Each delivery is lost with this probability.
    pub loss: f64,
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

/// What messages take in one data centre, by a server.
fn default_latency() -> String {
    "uniform:200us..1ms".into()
}

impl File {
    pub(super) fn check(&self) -> Result<Network, ScenarioError> {
        let field = |message: String| ScenarioError::Field {
            at: "network.latency".into(),
            message,
        };
        let latency = Distribution::parse(&self.latency).map_err(|e| field(e.to_string()))?;
        if latency.mean().as_secs() > MAX_LATENCY_S {
            let expected = format!("at most {MAX_LATENCY_S}s on average");
            return Err(read::wrong(
                "network.latency",
                &self.latency.as_str().into(),
                &expected,
            ));
        }
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
