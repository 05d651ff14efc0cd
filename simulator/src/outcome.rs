//! What a simulation found: plain data, the same for every reader (JSON, HTML, terminal).
//! Nothing here depends on the wall clock: the same seed gives the same bytes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One scenario under one or more policies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The version of this format: 1.
    pub v: u32,
    /// The scenario's name.
    pub name: String,
    /// What it shows, for people; may be empty.
    pub description: String,
    /// Decides every draw.
    pub seed: u64,
    /// The command that made this, without its output paths.
    pub command: String,
    /// The scenario's file, as it was read.
    pub scenario: String,
    /// `in-process` or `nats`.
    pub over: String,
    /// It was ended early: what follows is how far it came.
    pub interrupted: bool,
    /// One for each policy, in the order asked.
    pub runs: Vec<Run>,
}

/// The scenario under one policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The policy's label: unique among the runs.
    pub policy: String,
    /// The numbers, for tables.
    pub figures: Figures,
    /// The cells at the end, sorted by zone, then name.
    pub cells: Vec<CellEnd>,
    /// The apps that occur in `cells`; instances name them by position.
    pub apps: Vec<String>,
    /// How long placed instances waited, counted by class.
    pub wait_histogram: Histogram,
    /// In how many auctions placed instances were, counted by class.
    pub rounds_histogram: Histogram,
    /// Share of memory used by each cell at the end, counted by class.
    pub load_histogram: Histogram,
    /// How it went over time; at most 240 samples, equally spaced.
    pub series: Vec<Sample>,
    /// Why instances were refused, most frequent first; at most 20.
    pub refusals: Vec<(String, u64)>,
}

/// The numbers of one run. Instances are counted where nothing else is said.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Virtual time that passed, milliseconds.
    pub virtual_ms: u64,
    /// Asked for, every repeat after a loss included.
    pub asked: u64,
    /// Placed.
    pub placed: u64,
    /// Refused for good.
    pub refused: u64,
    /// Still without an outcome at the end.
    pub waiting: u64,
    /// Lost with their cell.
    pub lost: u64,
    /// From the request to the cell's acceptance, milliseconds.
    pub wait_ms: Spread,
    /// Auctions that an instance was in.
    pub rounds: Spread,
    /// Auctions held.
    pub auctions: u64,
    /// Messages by kind (`advertisement`, `bid request`, `bid`, `start`, `start answer`, `request`,
    /// `reply`, `stop`, `stop answer`, `event`, `outcome`, …).
    pub messages: BTreeMap<String, Traffic>,
    /// The sum of `messages`.
    pub traffic: Traffic,
    /// Standard deviation / mean of the memory used per cell, at the end.
    pub distribution: f64,
    /// The same before the first request.
    pub distribution_before: f64,
    /// Instances per cell at the end.
    pub per_cell: Balance,
    /// Instances per zone at the end.
    pub per_zone: Balance,
    /// Apps with two instances on a cell though they have no more instances than there are cells.
    pub apps_sharing_cells: u64,
    /// Apps whose fullest and emptiest zone differ by more than one instance.
    pub apps_sharing_zones: u64,
    /// Memory that is free on cells where the largest size that the workload asks for no longer
    /// fits, MiB: at the end, on average over time, and at most.
    pub stranded_mb: OverTime,
    /// The largest memory that still fits on a cell, MiB.
    pub largest_fit_mb: OverTime,
    /// Cells that hold nothing.
    pub empty_cells: OverTime,
    /// Cells that could be given back for good: empty all the time after the first tenth of the run,
    /// one kept where nothing else could hold the largest size.
    pub spare_cells: u64,
    /// What these would have cost, where the scenario names a price per cell and hour.
    pub saved: Option<f64>,
    /// What else this scenario counts, by name (`reboot hits`, `old platforms`, …).
    pub extra: BTreeMap<String, f64>,
}

/// Messages and their size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// How many; one that goes to many counts once for each receiver in `delivered`, here once.
    pub sent: u64,
    /// Deliveries.
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
    /// 99 of 100 are at most this.
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
}

/// A quantity that changes while the run goes on.
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

/// Counts by class. `bounds` has one number less than `counts`: class i holds what is below
/// `bounds[i]` and not below the one before; the last class holds the rest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Upper bounds of all classes but the last, ascending.
    pub bounds: Vec<f64>,
    /// How many in each class.
    pub counts: Vec<u64>,
}

/// A cell at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellEnd {
    /// Its name.
    pub cell: String,
    /// Its zone.
    pub zone: String,
    /// All memory it has, MiB.
    pub memory_mb: i64,
    /// Memory in use, MiB.
    pub used_mb: i64,
    /// It was lost and has not come back.
    pub gone: bool,
    /// What it holds. Up to 20,000 instances in all cells one entry each, above that one entry for
    /// each app (`count` > 1).
    pub instances: Vec<InstanceEnd>,
}

/// One instance, or several of one app, on a cell at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstanceEnd {
    /// Position in [`Run::apps`].
    pub app: u32,
    /// Its index; the lowest where there are several.
    pub index: u32,
    /// How many instances this stands for.
    pub count: u32,
    /// Memory of all of them, MiB.
    pub memory_mb: i64,
    /// It was there before the first request.
    pub before: bool,
    /// A task.
    pub task: bool,
}

/// One moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When, virtual milliseconds.
    pub at_ms: u64,
    /// Instances that hold a place.
    pub instances: u64,
    /// Instances without an outcome.
    pub waiting: u64,
    /// Share of all memory that is used, 0 to 1.
    pub used: f64,
    /// Share of memory used on the emptiest cell.
    pub used_min: f64,
    /// On the fullest.
    pub used_max: f64,
    /// The standard deviation.
    pub used_sd: f64,
    /// Memory free where the largest size does not fit, MiB.
    pub stranded_mb: f64,
    /// The largest memory that still fits on a cell, MiB.
    pub largest_fit_mb: f64,
    /// Cells that hold nothing.
    pub empty_cells: u64,
    /// Cells that are there.
    pub cells: u64,
}
