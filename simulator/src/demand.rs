//! What is requested of the cluster, and when. Every workload, trace and recording becomes a list of demands.

use std::sync::Arc;

use placement::Request;

/// A request or a stop, with its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// When, in milliseconds of virtual time from the beginning of the workload.
    pub at_ms: u64,
    /// The request or the stop.
    pub action: DemandAction,
}

/// The content of a [`Demand`].
#[derive(Clone, Debug, PartialEq)]
pub enum DemandAction {
    /// Start these instances (`request.indices`, else `request.instances` of them).
    Start {
        /// The request, with its id; its `run` is not read.
        request: Arc<Request>,
        /// How long after it began to run each instance ends by itself; `None`: never.
        lifetime_ms: Option<u64>,
    },
    /// Stop instances.
    Stop {
        /// The app.
        app: String,
        /// The indices of the app; empty = all.
        indices: Vec<u32>,
    },
}

impl Demand {
    /// Returns the request if this is a start.
    pub fn request(&self) -> Option<&Arc<Request>> {
        match &self.action {
            DemandAction::Start { request, .. } => Some(request),
            DemandAction::Stop { .. } => None,
        }
    }
}

/// Returns the largest memory that one instance of these demands asks for, in MiB; 0 without any start.
pub fn largest_memory_mb(demands: &[Demand]) -> i64 {
    let sizes = demands.iter().filter_map(Demand::request);
    sizes.map(|request| request.memory_mb).max().unwrap_or(0)
}
