//! The network between the roles: every message takes time and may be lost.

use crate::random::Distribution;

/// The properties of the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// How long a message takes from its sender to one receiver.
    pub latency: Distribution,
    /// Each delivery is lost with this probability, independently; 0 or more and below 1.
    pub loss: f64,
}
