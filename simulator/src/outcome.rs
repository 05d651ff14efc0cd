//! The result of a simulation: plain data, the same for every reader (JSON, HTML, terminal).
//! Nothing here depends on the wall clock: the same seed gives the same bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One scenario under one or more policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SimOutcome {
    /// The version of this format: 1.
    pub v: u32,
    /// The scenario's name.
    pub name: String,
    /// Its description; may be empty.
    pub description: String,
    /// Determines every random choice.
    pub seed: u64,
    /// The command that produced this, without its output paths.
    pub command: String,
    /// The scenario's file, as read.
    pub scenario: String,
    /// `in-process` or `nats`.
    pub over: String,
    /// Whether it was interrupted: the figures are for the time until then.
    pub interrupted: bool,
    /// Warnings about the scenario, such as work that is never requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The figures over all seeds, if several were simulated; `runs` are those of `seed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<Seeds>,
    /// One run for each policy, in the order given.
    pub runs: Vec<SimRun>,
}

/// The figures of one scenario over several seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seeds {
    /// The version of this format: 1.
    pub v: u32,
    /// The scenario's name.
    pub name: String,
    /// The command that produced this.
    pub command: String,
    /// The seeds that were simulated to the end.
    pub seeds: Vec<u64>,
    /// One entry for each policy, in the order given.
    pub runs: Vec<SeedsRun>,
}

/// One policy over all seeds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeedsRun {
    /// The policy's label.
    pub policy: String,
    /// Every number in [`Figures`], by its path (`wait_ms.mean`).
    pub figures: BTreeMap<String, Balance>,
}

/// The scenario under one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SimRun {
    /// The policy's label, unique among the runs.
    pub policy: String,
    /// The numbers, for tables.
    pub figures: Figures,
    /// The cells at the end, sorted by zone, then name.
    pub cells: Vec<CellEnd>,
    /// The apps that occur in `cells`; instances name them by position.
    pub apps: Vec<String>,
    /// How long placed instances waited, counted by class.
    pub wait_histogram: Histogram,
    /// Number of auctions that placed instances were in, counted by class.
    pub rounds_histogram: Histogram,
    /// Share of memory used by each cell at the end, counted by class.
    pub load_histogram: Histogram,
    /// Samples over time; at most 240, equally spaced.
    pub series: Vec<Sample>,
    /// Why instances are unplaced, most frequent first; at most 20.
    pub refusals: Vec<(String, u64)>,
    /// The resource in which the demand of a trace is counted; empty if the work is not drawn up to a demand.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub demand_of: String,
    /// What was given as demand grew, for each ten per cent; only for traces that are drawn up to a demand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub demand_steps: Vec<DemandStep>,
    /// Notes on the figures, such as why a run ended early.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl SimRun {
    /// Returns whether all cells have the same memory.
    pub fn has_equal_cells(&self) -> bool {
        self.cells
            .windows(2)
            .all(|pair| pair[0].memory_mb == pair[1].memory_mb)
    }
}

/// The figures of one run. They count instances unless they say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Virtual time that passed, milliseconds.
    pub virtual_ms: u64,
    /// Requested, including those requested again after a loss.
    pub asked: u64,
    /// Placed.
    pub placed: u64,
    /// Unplaced: given up, or with an unknown outcome.
    pub unplaced: u64,
    /// Still without an outcome at the end.
    pub waiting: u64,
    /// Lost with their cell.
    pub lost: u64,
    /// From the request to the cell's acceptance, milliseconds.
    pub wait_ms: Spread,
    /// Number of auctions that an instance was in.
    pub rounds: Spread,
    /// Auctions held.
    pub auctions: u64,
    /// Messages by kind (`advertisement`, `bid request`, `bid`, `start`, `start answer`, `request`,
    /// `reply`, `stop`, `stop answer`, `event`, `outcome`, …).
    pub messages: BTreeMap<String, Traffic>,
    /// The sum of `messages`.
    pub traffic: Traffic,
    /// Standard deviation / mean of the memory used per cell at the end: of MiB if all cells have the same memory, else
    /// of the used share of each cell.
    pub distribution: f64,
    /// The same before the first request.
    pub distribution_before: f64,
    /// By resource that cells have a limited amount of: the standard deviation of the share that is used at the end,
    /// over the cells that have it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sd_of_share: BTreeMap<String, f64>,
    /// Instances per cell at the end.
    pub per_cell: Balance,
    /// Instances per zone at the end.
    pub per_zone: Balance,
    /// The most instances that were starting on one cell at a time.
    #[serde(default)]
    pub most_starting: u64,
    /// Apps with two instances on one cell although they have no more instances than there are cells.
    pub apps_sharing_cells: u64,
    /// Apps whose fullest and emptiest zone differ by more than one instance.
    pub apps_sharing_zones: u64,
    /// Memory that is free on cells whose total could hold the largest size that the workload asks for, but where it
    /// does not fit now, in MiB.
    pub stranded_mb: OverTime,
    /// The largest memory that still fits on a cell, MiB.
    pub largest_fit_mb: OverTime,
    /// Cells without instances.
    pub empty_cells: OverTime,
    /// Cells that were never needed: always empty after the first tenth of the run. One of them is left out if no other
    /// cell could hold the largest size.
    pub spare_cells: u64,
    /// The cost of these cells over the run, if the scenario has a price per cell and hour.
    pub saved: Option<f64>,
    /// How much of each resource was requested, given and left, if the work is a trace that is drawn up to a demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packing: Option<Packing>,
    /// What managers kept running, if the scenario has managers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// What was placed, and what could have been placed at most; absent if the run was interrupted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Bounds>,
    /// How evenly memory could have been used at the end; absent if cells differ in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_even: Option<MostEven>,
    /// Figures that only some scenarios have, by name (`stopped`, `communications`, …).
    pub extra: BTreeMap<String, f64>,
}

/// What was placed, and the most that any policy could have placed even with knowledge of all work to come, by what is
/// counted: `instances`, and each resource that the work asks for (`memory` and `disk` in MiB, `cpu` in thousandths of
/// a core, sets of devices and others in their own units). Only the requests of the scenario are counted, not those
/// that are repeated after a loss.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    /// What was placed.
    pub placed: BTreeMap<String, f64>,
    /// The most that any policy can place.
    pub at_most: BTreeMap<String, f64>,
    /// How much less was placed, in per cent of `at_most`.
    pub gap: BTreeMap<String, f64>,
}

/// How evenly the instances that run at the end could have been spread over the same cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MostEven {
    /// No way to spread them has a smaller standard deviation / mean of the memory used per cell.
    pub bound: f64,
    /// [`Figures::distribution`] minus the bound.
    pub gap: f64,
}

/// Demand and what was given of it, in per cent of what all cells have, for each limited resource of which cells have
/// some, by its name (`memory`, `cpu`, `gpu`, …).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Packing {
    /// What was requested.
    pub asked: BTreeMap<String, f64>,
    /// What instances have at the end.
    pub given: BTreeMap<String, f64>,
    /// What is free at the end but could not be used by the expected work (the trace's pods); see `placement`'s
    /// `fragmentation.rs`.
    pub fragments: BTreeMap<String, f64>,
}

/// The moment at which a given demand had arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DemandStep {
    /// The demand, per cent.
    pub demand: u32,
    /// Number of instances that had fitted nowhere by then.
    pub unplaced: u64,
    /// Like [`Packing::given`].
    pub given: BTreeMap<String, f64>,
    /// Like [`Packing::fragments`].
    pub fragments: BTreeMap<String, f64>,
}

/// What managers kept running. An index *runs* while one of its instances runs on a cell that is not cut off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Indices that are wanted at the end.
    pub wanted: u64,
    /// Indices that are wanted but do not run.
    pub missing: OverTime,
    /// How often an index ceased to run although no manager had stopped it: with its cell, or by a drain's deadline.
    pub lost: u64,
    /// How many of these have not run again.
    pub unrecovered: u64,
    /// From such a loss until the index runs again, milliseconds.
    pub recovery_ms: Spread,
    /// From when an index is first wanted (the app is put or scaled up) until it runs, in milliseconds.
    pub start_ms: Spread,
    /// How often more than one instance of an index and version ran at a time, on any cells.
    pub duplicates: u64,
    /// The longest of these times, in milliseconds.
    pub longest_duplicate_ms: u64,
    /// Surplus instances over time, in instance-seconds.
    pub duplicate_s: f64,
    /// Rollouts that were completed.
    pub rollouts: u64,
    /// Rollouts that were not completed by the end.
    pub rollouts_unfinished: u64,
    /// From when a new version is stored until every index runs in it and nothing else does, in milliseconds.
    pub rollout_ms: Spread,
    /// Commands that managers refused.
    pub refused_commands: u64,
    /// Instances that were moved to another cell at the operator's request.
    #[serde(default)]
    pub moved: u64,
    /// Moves that failed.
    #[serde(default)]
    pub failed_moves: u64,
    /// What managers sent and received, over NATS and with the bucket.
    pub traffic: Traffic,
}

/// Messages and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Messages sent; one that goes to many receivers counts once.
    pub sent: u64,
    /// Deliveries, one for each receiver.
    pub delivered: u64,
    /// Bytes of bodies delivered.
    pub bytes: u64,
}

/// A distribution in five numbers; all 0 when nothing was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The median (nearest rank).
    pub p50: f64,
    /// The 99th percentile (nearest rank).
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

/// How evenly something is spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Balance {
    /// The mean.
    pub mean: f64,
    /// Population standard deviation.
    pub sd: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// 1 is even; 0 when the mean is 0.
    pub max_over_mean: f64,
    /// 0 is even, and when the mean is 0.
    #[serde(default)]
    pub sd_over_mean: f64,
}

/// A quantity that changes during the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OverTime {
    /// At the end.
    pub end: f64,
    /// On average over time.
    pub mean: f64,
    /// At least.
    pub min: f64,
    /// At most.
    pub max: f64,
}

/// Counts by class. `bounds` has one entry less than `counts`: class i holds values below `bounds[i]` and not below the
/// bound before; the last class holds the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper bounds of all classes but the last, ascending.
    pub bounds: Vec<f64>,
    /// Number of values in each class.
    pub counts: Vec<u64>,
}

/// A cell at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellEnd {
    /// Its name.
    pub cell: String,
    /// Its zone.
    pub zone: String,
    /// Its memory, MiB.
    pub memory_mb: i64,
    /// Memory in use, MiB.
    pub used_mb: i64,
    /// Whether it is down at the end.
    pub gone: bool,
    /// Its instances: one entry each, or, with more than 20,000 instances in all cells, one entry per app (`count` >
    /// 1).
    pub instances: Vec<InstanceEnd>,
}

/// One instance, or several of one app, on a cell at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceEnd {
    /// Position in [`SimRun::apps`].
    pub app: u32,
    /// Its index; for several instances, the lowest.
    pub index: u32,
    /// Number of instances that this stands for.
    pub count: u32,
    /// Memory of all of them, MiB.
    pub memory_mb: i64,
    /// Whether it ran before the first request.
    pub before: bool,
    /// Whether it is a task.
    pub task: bool,
}

/// One moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When, virtual milliseconds.
    pub at_ms: u64,
    /// Placed instances that have not ended.
    pub instances: u64,
    /// Instances without an outcome.
    pub waiting: u64,
    /// Indices that managers are to keep running but that do not run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub missing: u64,
    /// Share of all memory that is used, 0 to 1.
    pub used: f64,
    /// Share of memory used on the emptiest cell.
    pub used_min: f64,
    /// Share of memory used on the fullest cell.
    pub used_max: f64,
    /// The standard deviation of these shares.
    pub used_sd: f64,
    /// Stranded memory, MiB; see [`Figures::stranded_mb`].
    pub stranded_mb: f64,
    /// The largest memory that still fits on a cell, MiB.
    pub largest_fit_mb: f64,
    /// Cells without instances.
    pub empty_cells: u64,
    /// Cells that are up.
    pub cells: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(number: &u64) -> bool {
    *number == 0
}
