//! The known figures: their groups, their order, and which of two values is better.

use crate::report::number::Unit;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Better {
    Lower,
    Higher,
    /// Neither is better in general.
    Open,
}

/// A figure, or all figures of an object.
pub(super) struct Spec {
    /// JSON pointer within [`Figures`](crate::outcome::Figures).
    pub(super) path: &'static str,
    /// Its name within the group.
    pub(super) label: &'static str,
    pub(super) unit: Unit,
    pub(super) better: Better,
}

const fn spec(path: &'static str, label: &'static str, unit: Unit, better: Better) -> Spec {
    Spec {
        path,
        label,
        unit,
        better,
    }
}

const fn lower(path: &'static str, label: &'static str, unit: Unit) -> Spec {
    spec(path, label, unit, Better::Lower)
}

const fn higher(path: &'static str, label: &'static str, unit: Unit) -> Spec {
    spec(path, label, unit, Better::Higher)
}

const fn open(path: &'static str, label: &'static str, unit: Unit) -> Spec {
    spec(path, label, unit, Better::Open)
}

pub(super) const INSTANCES: &str = "Instances";
pub(super) const WAIT: &str = "Wait, from the request to the cell’s acceptance";
pub(super) const AUCTIONS: &str = "Auctions";
pub(super) const ROUNDS: &str = "Auctions that an instance was in";
pub(super) const DISTRIBUTION: &str = "Memory used per cell, standard deviation / mean";
/// The same if cells differ in size: see [`crate::measure::memory_distribution`].
pub(super) const DISTRIBUTION_OF_SHARES: &str =
    "Share of memory used per cell, standard deviation / mean";
pub(super) const SHARES: &str = "Share used per cell at the end, standard deviation";
pub(super) const STARTING: &str = "Instances starting on a cell at a time";
pub(super) const PER_CELL: &str = "Instances per cell";
pub(super) const PER_ZONE: &str = "Instances per zone";
pub(super) const SHARED: &str = "Apps with avoidable sharing";
pub(super) const STRANDED: &str = "Stranded memory";
pub(super) const LARGEST: &str = "Largest size that fits";
pub(super) const EMPTY: &str = "Empty cells";
pub(super) const NEVER_NEEDED: &str = "Cells that were never needed";
pub(super) const SENT: &str = "Messages sent";
pub(super) const DELIVERED: &str = "Messages delivered";
pub(super) const BYTES: &str = "Bytes delivered";
pub(super) const PACKING: &str = "Per cent of what all cells have";
pub(super) const BEST: &str = "What could have been placed at most";
pub(super) const EVENEST: &str =
    "Memory used per cell, standard deviation / mean: the least possible";
pub(super) const KEPT: &str = "Indices of apps that managers keep running";
pub(super) const RECOVERY: &str = "From the loss of an index until it runs again";
pub(super) const STARTED: &str = "From when an index is wanted until it runs";
pub(super) const DUPLICATES: &str = "Indices that ran twice in one version";
pub(super) const ROLLOUTS: &str = "Rollouts";
pub(super) const MANAGERS: &str = "Messages to and from managers";
pub(super) const EXTRA: &str = "Figures of this scenario";
pub(super) const OTHER: &str = "Other";

/// By group, in the order shown. Figures that are not listed here are shown under [`OTHER`].
pub(super) const SPECS: &[(&str, &[Spec])] = &[
    (
        INSTANCES,
        &[
            open("/asked", "asked for", Unit::Count),
            higher("/placed", "placed", Unit::Count),
            lower("/unplaced", "unplaced", Unit::Count),
            lower("/waiting", "without an outcome at the end", Unit::Count),
            lower("/lost", "lost with their cell", Unit::Count),
        ],
    ),
    (WAIT, &[lower("/wait_ms", "", Unit::Ms)]),
    (AUCTIONS, &[open("/auctions", "held", Unit::Count)]),
    (ROUNDS, &[lower("/rounds", "", Unit::Count)]),
    (
        DISTRIBUTION,
        &[
            open(
                "/distribution_before",
                "before the first request",
                Unit::Count,
            ),
            open("/distribution", "at the end", Unit::Count),
        ],
    ),
    (SHARES, &[open("/sd_of_share", "", Unit::Count)]),
    (PER_CELL, &[open("/per_cell", "", Unit::Count)]),
    (PER_ZONE, &[open("/per_zone", "", Unit::Count)]),
    (STARTING, &[open("/most_starting", "at most", Unit::Count)]),
    (
        SHARED,
        &[
            lower("/apps_sharing_cells", "on a cell", Unit::Count),
            lower("/apps_sharing_zones", "in a zone", Unit::Count),
        ],
    ),
    (STRANDED, &[lower("/stranded_mb", "", Unit::Mebibytes)]),
    (LARGEST, &[higher("/largest_fit_mb", "", Unit::Mebibytes)]),
    (EMPTY, &[open("/empty_cells", "", Unit::Count)]),
    (
        NEVER_NEEDED,
        &[
            higher("/spare_cells", "cells", Unit::Count),
            higher("/saved", "price of these cells", Unit::Money),
        ],
    ),
    (
        PACKING,
        &[
            open("/packing/asked", "asked for", Unit::Count),
            higher("/packing/given", "given at the end", Unit::Count),
            lower(
                "/packing/fragments",
                "left, of no use to the expected work",
                Unit::Count,
            ),
        ],
    ),
    (
        BEST,
        &[
            open("/bounds/placed", "placed", Unit::Count),
            open("/bounds/at_most", "at most", Unit::Count),
            lower("/bounds/gap", "% below that", Unit::Count),
        ],
    ),
    (
        EVENEST,
        &[
            open("/most_even/bound", "at least", Unit::Count),
            open("/most_even/gap", "above it", Unit::Count),
        ],
    ),
    (
        KEPT,
        &[
            open("/kept/wanted", "wanted at the end", Unit::Count),
            lower("/kept/missing", "missing", Unit::Count),
            lower("/kept/lost", "lost", Unit::Count),
            lower(
                "/kept/unrecovered",
                "lost and not running again",
                Unit::Count,
            ),
            lower("/kept/refused_commands", "commands refused", Unit::Count),
            open("/kept/moved", "moved", Unit::Count),
            lower("/kept/failed_moves", "moves that failed", Unit::Count),
        ],
    ),
    (RECOVERY, &[lower("/kept/recovery_ms", "", Unit::Ms)]),
    (STARTED, &[lower("/kept/start_ms", "", Unit::Ms)]),
    (
        DUPLICATES,
        &[
            lower("/kept/duplicates", "how often", Unit::Count),
            lower("/kept/longest_duplicate_ms", "the longest", Unit::Ms),
            lower("/kept/duplicate_s", "instance-seconds", Unit::Count),
        ],
    ),
    (
        ROLLOUTS,
        &[
            open("/kept/rollouts", "completed", Unit::Count),
            lower("/kept/rollouts_unfinished", "not completed", Unit::Count),
            lower("/kept/rollout_ms", "duration", Unit::Ms),
        ],
    ),
    (
        MANAGERS,
        &[
            lower("/kept/traffic/sent", "sent", Unit::Count),
            lower("/kept/traffic/delivered", "delivered", Unit::Count),
            lower("/kept/traffic/bytes", "bytes delivered", Unit::Bytes),
        ],
    ),
    (OTHER, &[open("/virtual_ms", "virtual time", Unit::Ms)]),
];

/// The members of an object in the order shown, with their names.
pub(super) const LEAVES: &[(&str, &str)] = &[
    ("min", "minimum"),
    ("mean", "mean"),
    ("p50", "median"),
    ("p99", "99th percentile"),
    ("max", "maximum"),
    ("sd", "standard deviation"),
    ("max_over_mean", "maximum / mean"),
    ("sd_over_mean", "standard deviation / mean"),
    ("end", "at the end"),
];

pub(super) const ORDER: &[&str] = &[
    INSTANCES,
    WAIT,
    AUCTIONS,
    ROUNDS,
    DISTRIBUTION,
    SHARES,
    PER_CELL,
    PER_ZONE,
    STARTING,
    SHARED,
    STRANDED,
    LARGEST,
    EMPTY,
    NEVER_NEEDED,
    PACKING,
    BEST,
    EVENEST,
    KEPT,
    RECOVERY,
    STARTED,
    DUPLICATES,
    ROLLOUTS,
    MANAGERS,
    EXTRA,
    SENT,
    DELIVERED,
    BYTES,
    OTHER,
];
