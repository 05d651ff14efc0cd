//! `[network]` and `[adverts]`: how messages travel, and how often cells advertise.

use std::time::Duration;

use advertiser::Cadence;
use placement::Span;
use scenarios::ScenarioError;
use serde::Deserialize;

use super::read;
use crate::{network::Network, random::Distribution};

/// The longest mean latency, in seconds.
const MAX_LATENCY_S: u64 = 60;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkTable {
    #[serde(default = "default_latency")]
    latency: String,
    #[serde(default)]
    loss: f64,
}

impl Default for NetworkTable {
    fn default() -> Self {
        Self {
            latency: default_latency(),
            loss: 0.0,
        }
    }
}

/// The latency within one data centre, through one server.
fn default_latency() -> String {
    "uniform:200us..1ms".into()
}

impl NetworkTable {
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
            let expected = "a probability from 0 to below 1";
            return Err(read::wrong("network.loss", &self.loss.into(), expected));
        }
        Ok(Network {
            latency,
            loss: self.loss,
        })
    }
}

/// How cells advertise.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdvertsTable {
    interval: Option<Span>,
    ttl: Option<Span>,
    on_change: Option<Span>,
}

impl AdvertsTable {
    pub(super) fn check(&self) -> Result<Cadence, ScenarioError> {
        let seconds = |s| Span(Duration::from_secs(s));
        let interval = self.interval.unwrap_or(seconds(5));
        let ttl = self.ttl.unwrap_or(Span(interval.0 * 3));
        if ttl.0 > Duration::from_secs(3_600) {
            return Err(read::wrong(
                "adverts.ttl",
                &ttl.to_string().into(),
                "at most 1h",
            ));
        }
        let cadence = Cadence::new(interval, ttl).map_err(|mut e| {
            e.field = format!("adverts.{}", e.field);
            read::invalid(&e)
        })?;
        Ok(match self.on_change {
            Some(gap) => cadence.with_on_change(gap),
            None => cadence,
        })
    }
}
