//! The results of `vendue bench dea`, for people and for programs.

use serde::Serialize;

use crate::bench::report::{Single, mib, ms};

/// Every figure of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) deas: usize,
    /// On all DEAs, from the beginning.
    pub(super) instances: usize,
    /// From the start of the bridge until it knew every DEA and instance; for the first 11 s it only listens.
    pub(super) known_seconds: f64,
    pub(super) rest: Rest,
    pub(super) starts: Single,
    /// Messages that the bridge counts as dropped, in the whole run.
    pub(super) dropped: u64,
    /// Resident memory at the end.
    pub(super) bridge_kib: u64,
}

/// A phase in which DEAs only speak and nothing is asked of the bridge.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Rest {
    pub(super) seconds: f64,
    /// In per cent of one core.
    pub(super) bridge_cpu_percent: f64,
    /// Number of messages of DEAs.
    pub(super) heard: u64,
}

impl Report {
    /// Returns the rows of a table: what, the figure, its target, and its context.
    pub(super) fn rows(&self) -> [[String; 4]; 6] {
        let (rest, starts) = (&self.rest, &self.starts);
        let row = |what: &str, figure: String, aim: &str, beside: String| {
            [what.to_owned(), figure, aim.to_owned(), beside]
        };
        let none = String::new;
        [
            row(
                "until the bridge knows everything",
                format!("{:.1} s", self.known_seconds),
                "",
                format!("{} DEAs, {} instances", self.deas, self.instances),
            ),
            row(
                "bridge, DEAs only speak",
                format!("{:.1} % of a core", rest.bridge_cpu_percent),
                "under 20 %",
                format!("{} messages in {:.0} s", rest.heard, rest.seconds),
            ),
            row(
                "bridge, resident",
                mib(self.bridge_kib),
                "under 100 MiB",
                none(),
            ),
            row("dropped", self.dropped.to_string(), "0", none()),
            row(
                "one start, p50",
                ms(starts.latency.p50_us),
                "under 150 ms",
                format!("{} of {} placed", starts.placed, starts.requests),
            ),
            row("one start, p99", ms(starts.latency.p99_us), "", none()),
        ]
    }
}
