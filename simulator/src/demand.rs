//! What is asked of the cluster, and when: every workload becomes a list of these.
use placement::Request;
use std::sync::Arc;

/// One thing that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand {
    /// When, on the virtual clock.
    pub at_ms: u64,
    /// What.
    pub what: What,
}

/// See [`Demand`].
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// Start these instances (`request.indices` or `instances`).
    Start {
        /// With its id; `run` is not read.
        request: Arc<Request>,
        /// Each instance ends by itself so long after it began to run; `None`: it runs on.
        lifetime_ms: Option<u64>,
    },
    /// Stop these indices of the app; all when empty.
    Stop {
        /// The app.
        app: String,
        /// Which; all when empty.
        indices: Vec<u32>,
    },
}
