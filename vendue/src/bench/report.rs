//! The results of `vendue bench cluster`, for people and for programs.

use serde::Serialize;

use super::Latency;

/// Every figure of one run. Ratios are computed within the run, so the machine's speed cancels out.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) policy: String,
    pub(crate) cells: usize,
    pub(crate) apps_per_cell: usize,
    pub(crate) raw: Raw,
    pub(crate) single: Single,
    pub(crate) batched: Batched,
    pub(crate) adverts: Adverts,
    pub(crate) memory: Memory,
}

/// Plain NATS in the same run, with bodies of the same sizes.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Raw {
    /// One request with its reply.
    pub(crate) request: Latency,
    /// One question to all cells with all their answers, followed by one request with its reply.
    pub(crate) question_and_request: Latency,
    /// Requests per second, with 256 in flight.
    pub(crate) requests_per_second: f64,
}

/// One start at a time on an idle cluster.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Single {
    pub(crate) requests: usize,
    pub(crate) placed: usize,
    pub(crate) latency: Latency,
    /// p50 divided by the p50 of one raw request.
    pub(crate) over_request: f64,
    /// p50 divided by the p50 of one raw question to all and one request.
    pub(crate) over_question_and_request: f64,
}

/// Arrays of requests, several in flight.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Batched {
    pub(crate) requests: usize,
    pub(crate) accepted: usize,
    pub(crate) array: usize,
    pub(crate) in_flight: usize,
    pub(crate) accepted_per_second: f64,
    /// Relative to the raw request rate.
    pub(crate) share_of_raw: f64,
    /// Where the time goes.
    pub(crate) cpu: Cpu,
}

/// Processor time per accepted start, in microseconds, by process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(clippy::struct_field_names)] // units end a name
pub(crate) struct Cpu {
    pub(crate) auctioneer_us: f64,
    pub(crate) cells_us: f64,
    pub(crate) server_us: f64,
    pub(crate) client_us: f64,
}

/// The auctioneer without requests, while it only hears the cells.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Adverts {
    pub(crate) seconds: f64,
    /// In per cent of one core.
    pub(crate) auctioneer_cpu_percent: f64,
    /// Cells' messages that it did not use in the whole run: its client was too slow, or they were malformed, outdated
    /// or too large.
    pub(crate) dropped: u64,
    /// Number of cells it knew at the end.
    pub(crate) cells_known: usize,
}

/// Resident memory, in KiB.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[allow(clippy::struct_field_names)] // units end a name
pub(crate) struct Memory {
    pub(crate) auctioneer_kib: u64,
    /// A rep in a separate process, without work.
    pub(crate) rep_kib: u64,
    /// The supervisor of one instance.
    pub(crate) supervisor_kib: u64,
}

fn row(what: &str, figure: String, beside: impl Into<String>) -> [String; 3] {
    [what.to_owned(), figure, beside.into()]
}

pub(super) fn ms(us: f64) -> String {
    format!("{:.2} ms", us / 1000.0)
}

pub(super) fn mib(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

impl Report {
    /// Returns the rows of a table: what, the figure, and its context.
    pub(crate) fn rows(&self) -> Vec<[String; 3]> {
        let raw = &self.raw;
        let mut rows = vec![
            row("raw request and reply, p50", ms(raw.request.p50_us), ""),
            row(
                "raw question to all cells, then a request, p50",
                ms(raw.question_and_request.p50_us),
                "",
            ),
            row(
                "raw requests, 256 in flight",
                format!("{:.0} /s", raw.requests_per_second),
                "",
            ),
        ];
        rows.extend(self.load_rows());
        rows.extend([
            row("auctioneer, resident", mib(self.memory.auctioneer_kib), ""),
            row("a rep with no work, resident", mib(self.memory.rep_kib), ""),
            row(
                "a supervisor, resident",
                mib(self.memory.supervisor_kib),
                "",
            ),
        ]);
        rows
    }

    fn load_rows(&self) -> [[String; 3]; 5] {
        let (single, batched, adverts) = (&self.single, &self.batched, &self.adverts);
        [
            row(
                "one start on an idle cluster, p50",
                ms(single.latency.p50_us),
                format!(
                    "{:.2} x a request, {:.2} x a question and a request",
                    single.over_request, single.over_question_and_request
                ),
            ),
            row(
                "one start on an idle cluster, p99",
                ms(single.latency.p99_us),
                "",
            ),
            row(
                "starts in arrays, accepted",
                format!("{:.0} /s", batched.accepted_per_second),
                format!(
                    "{:.3} of the raw rate; {} of {} accepted",
                    batched.share_of_raw, batched.accepted, batched.requests
                ),
            ),
            row(
                "processor time for each of them",
                format!("{:.1} us auctioneer", batched.cpu.auctioneer_us),
                format!(
                    "{:.1} us cells, {:.1} us nats-server, {:.1} us client",
                    batched.cpu.cells_us, batched.cpu.server_us, batched.cpu.client_us
                ),
            ),
            row(
                "auctioneer, cells only advertising",
                format!("{:.2} % of a core", adverts.auctioneer_cpu_percent),
                format!(
                    "over {:.0} s; {} of {} cells known, {} messages dropped",
                    adverts.seconds, adverts.cells_known, self.cells, adverts.dropped
                ),
            ),
        ]
    }
}
