//! Which figures there are, in which group and order, and which of two is better.

use crate::report::number::Unit;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Better {
    Lower,
    Higher,
    /// Neither is better in general.
    Open,
}

/// A figure, or all figures of an object: JSON pointer, group, label, unit and direction.
pub(super) struct Spec(
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) &'static str,
    pub(super) Unit,
    pub(super) Better,
);

pub(super) const INSTANCES: &str = "Instances";
pub(super) const WAIT: &str = "Wait, from the request to the cell’s acceptance";
pub(super) const AUCTIONS: &str = "Auctions";
pub(super) const ROUNDS: &str = "Auctions that an instance was in";
pub(super) const DISTRIBUTION: &str = "Memory used per cell, standard deviation / mean";
/// The same where cells differ in size: see [`crate::measure::memory_distribution`].
pub(super) const DISTRIBUTION_OF_SHARES: &str =
    "Share of memory used per cell, standard deviation / mean";
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
pub(super) const KEPT: &str = "Indices of apps that managers keep running";
pub(super) const RECOVERY: &str = "From the loss of an index until it runs again";
pub(super) const STARTED: &str = "From when an index is wanted until it runs";
pub(super) const DUPLICATES: &str = "Indices that ran twice in one version";
pub(super) const ROLLOUTS: &str = "Rollouts";
pub(super) const MANAGERS: &str = "Messages to and from managers";
pub(super) const EXTRA: &str = "Figures of this scenario";
pub(super) const OTHER: &str = "Other";

/// In the order shown. What is not listed here is shown under [`OTHER`].
pub(super) const SPECS: &[Spec] = &[
    Spec("/asked", INSTANCES, "asked for", Unit::Count, Better::Open),
    Spec("/placed", INSTANCES, "placed", Unit::Count, Better::Higher),
    Spec(
        "/unplaced",
        INSTANCES,
        "unplaced",
        Unit::Count,
        Better::Lower,
    ),
    Spec(
        "/waiting",
        INSTANCES,
        "without an outcome at the end",
        Unit::Count,
        Better::Lower,
    ),
    Spec(
        "/lost",
        INSTANCES,
        "lost with their cell",
        Unit::Count,
        Better::Lower,
    ),
    Spec("/wait_ms", WAIT, "", Unit::Ms, Better::Lower),
    Spec("/auctions", AUCTIONS, "held", Unit::Count, Better::Open),
    Spec("/rounds", ROUNDS, "", Unit::Count, Better::Lower),
    Spec(
        "/distribution_before",
        DISTRIBUTION,
        "before the first request",
        Unit::Count,
        Better::Open,
    ),
    Spec(
        "/distribution",
        DISTRIBUTION,
        "at the end",
        Unit::Count,
        Better::Open,
    ),
    Spec("/per_cell", PER_CELL, "", Unit::Count, Better::Open),
    Spec("/per_zone", PER_ZONE, "", Unit::Count, Better::Open),
    Spec(
        "/apps_sharing_cells",
        SHARED,
        "on a cell",
        Unit::Count,
        Better::Lower,
    ),
    Spec(
        "/apps_sharing_zones",
        SHARED,
        "in a zone",
        Unit::Count,
        Better::Lower,
    ),
    Spec("/stranded_mb", STRANDED, "", Unit::Mebibytes, Better::Lower),
    Spec(
        "/largest_fit_mb",
        LARGEST,
        "",
        Unit::Mebibytes,
        Better::Higher,
    ),
    Spec("/empty_cells", EMPTY, "", Unit::Count, Better::Open),
    Spec(
        "/spare_cells",
        NEVER_NEEDED,
        "cells",
        Unit::Count,
        Better::Higher,
    ),
    Spec(
        "/saved",
        NEVER_NEEDED,
        "price of these cells",
        Unit::Money,
        Better::Higher,
    ),
    Spec(
        "/kept/wanted",
        KEPT,
        "wanted at the end",
        Unit::Count,
        Better::Open,
    ),
    Spec("/kept/missing", KEPT, "missing", Unit::Count, Better::Lower),
    Spec("/kept/lost", KEPT, "lost", Unit::Count, Better::Lower),
    Spec(
        "/kept/unrecovered",
        KEPT,
        "lost and not running again",
        Unit::Count,
        Better::Lower,
    ),
    Spec(
        "/kept/refused_commands",
        KEPT,
        "commands refused",
        Unit::Count,
        Better::Lower,
    ),
    Spec("/kept/recovery_ms", RECOVERY, "", Unit::Ms, Better::Lower),
    Spec("/kept/start_ms", STARTED, "", Unit::Ms, Better::Lower),
    Spec(
        "/kept/duplicates",
        DUPLICATES,
        "how often",
        Unit::Count,
        Better::Lower,
    ),
    Spec(
        "/kept/longest_duplicate_ms",
        DUPLICATES,
        "the longest",
        Unit::Ms,
        Better::Lower,
    ),
    Spec(
        "/kept/duplicate_s",
        DUPLICATES,
        "instance-seconds",
        Unit::Count,
        Better::Lower,
    ),
    Spec(
        "/kept/rollouts",
        ROLLOUTS,
        "completed",
        Unit::Count,
        Better::Open,
    ),
    Spec(
        "/kept/rollouts_unfinished",
        ROLLOUTS,
        "not completed",
        Unit::Count,
        Better::Lower,
    ),
    Spec(
        "/kept/rollout_ms",
        ROLLOUTS,
        "duration",
        Unit::Ms,
        Better::Lower,
    ),
    Spec(
        "/kept/traffic/sent",
        MANAGERS,
        "sent",
        Unit::Count,
        Better::Lower,
    ),
    Spec(
        "/kept/traffic/delivered",
        MANAGERS,
        "delivered",
        Unit::Count,
        Better::Lower,
    ),
    Spec(
        "/kept/traffic/bytes",
        MANAGERS,
        "bytes delivered",
        Unit::Bytes,
        Better::Lower,
    ),
    Spec("/virtual_ms", OTHER, "virtual time", Unit::Ms, Better::Open),
];

/// The members of an object, in the order shown and with their names.
pub(super) const LEAVES: &[(&str, &str)] = &[
    ("min", "minimum"),
    ("mean", "mean"),
    ("p50", "median"),
    ("p99", "99th percentile"),
    ("max", "maximum"),
    ("sd", "standard deviation"),
    ("max_over_mean", "maximum / mean"),
    ("end", "at the end"),
];

pub(super) const ORDER: &[&str] = &[
    INSTANCES,
    WAIT,
    AUCTIONS,
    ROUNDS,
    DISTRIBUTION,
    PER_CELL,
    PER_ZONE,
    SHARED,
    STRANDED,
    LARGEST,
    EMPTY,
    NEVER_NEEDED,
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
