//! The bounds that documents state.

/// A bound that a document states: what the document says with `{}` for the number, where the constant is (a file, or
/// a directory in which no other has its name), its name, and how much of it one of the document's units is (1,000
/// for seconds of a constant in milliseconds).
type Figure = (&'static str, &'static str, &'static str, u64);

/// The documents, and the bounds in each.
pub(super) const FIGURES: &[(&str, &[Figure])] = &[
    (
        "ARCHITECTURE.md",
        &[
            (
                "| requests in an array | {} |",
                "shared/src/wire",
                "MAX_ARRAY",
                1,
            ),
            (
                "| instances of a request | {} |",
                "placement/src",
                "MAX_INSTANCES",
                1,
            ),
            (
                "| jobs that wait | {}, then",
                "auctioneer/src",
                "MAX_WAITING",
                1,
            ),
            ("| jobs of a batch | {} |", "auctioneer/src", "MAX_BATCH", 1),
            (
                "| auctions that an instance may enter | {} |",
                "auctioneer/src",
                "MAX_AUCTIONS",
                1,
            ),
            (
                "for a start's answer | {} ms,",
                "auctioneer/src",
                "BID_WAIT_MS",
                1,
            ),
            (
                "for a start's answer | 300 ms, {} s |",
                "auctioneer/src",
                "START_WAIT_MS",
                1_000,
            ),
            (
                "(policies without bids) | {} ms |",
                "auctioneer/src",
                "GATHER_MS",
                1,
            ),
            (
                "| outcomes remembered | {}, for",
                "auctioneer/src",
                "MAX_OUTCOMES",
                1,
            ),
            (
                "| outcomes remembered | 100,000, for {} minutes |",
                "auctioneer/src",
                "REMEMBER_MS",
                60_000,
            ),
            (
                "| auctions remembered | {} |",
                "auctioneer/src",
                "REMEMBERED",
                1,
            ),
            (
                "| attributes of a cell that operators changed | {}, of",
                "rep/src",
                "MAX_CHANGED",
                1,
            ),
            (
                "| attributes of a cell that operators changed | 256, of {} KiB each |",
                "rep/src",
                "MAX_TEXT",
                1_024,
            ),
            (
                "| output kept of an instance | {} KiB,",
                "rep/src",
                "KEPT",
                1_024,
            ),
            (
                "| output kept of an instance | 128 KiB, in lines of at most {} KiB |",
                "rep/src",
                "LINE",
                1_024,
            ),
            (
                "| DEAs of an estate; senders of its malformed messages | {};",
                "advertiser/src/dea",
                "MAX_DEAS",
                1,
            ),
            (
                "a variable of the environment with its name | {} KiB |",
                "placement/src/run.rs",
                "MAX_TEXT",
                1_024,
            ),
            (
                "a command with its environment | {} MiB |",
                "placement/src/run.rs",
                "MAX_RUN",
                1_048_576,
            ),
            (
                "a log line quotes | {} characters |",
                "placement/src/words.rs",
                "MAX_FOREIGN",
                1,
            ),
            (
                "| a definition | {} KiB |",
                "manager/src",
                "MAX_DEFINITION",
                1_024,
            ),
            (
                "| indices in waves without an outcome | {} |",
                "manager/src",
                "MAX_OUTSTANDING",
                1,
            ),
            ("renewed every {} s,", "manager/src", "RENEW_MS", 1_000),
            (
                "taken by another after {} s,",
                "manager/src",
                "LEASE_MS",
                1_000,
            ),
            ("acted under for {} s after", "manager/src", "ACT_MS", 1_000),
            (
                "| every app is looked at | every {} s |",
                "manager/src",
                "SWEEP_MS",
                1_000,
            ),
            (
                "| crash counts stored for an app | {} |",
                "manager/src",
                "MAX_STORED_CRASHES",
                1,
            ),
            ("| cells | {} |", "manager/src", "MAX_CELLS", 1),
            (
                "| apps of a page, of an import | {}, 1,000 |",
                "manager/src/shell/desk.rs",
                "MAX_PAGE",
                1,
            ),
            (
                "| apps of a page, of an import | 500, {} |",
                "manager/src/shell/requests.rs",
                "MAX_IMPORT",
                1,
            ),
            (
                "| writes on their way | {}, and",
                "manager/src/shell/owner.rs",
                "WRITES",
                1,
            ),
            (
                "commands that wait for the bucket | {}, 1,000,",
                "manager/src/shell/mod.rs",
                "ASKED",
                1,
            ),
            (
                "commands that wait for the bucket | 1,024, {},",
                "manager/src/commands.rs",
                "MAX_COMMANDS",
                1,
            ),
        ],
    ),
    (
        "PROTOCOL.md",
        &[
            ("instances 1 to {},", "placement/src", "MAX_INSTANCES", 1),
            ("arrays 1 to {} requests", "shared/src/wire", "MAX_ARRAY", 1),
            (
                "(default {} s) at the latest",
                "auctioneer/src",
                "DEFAULT_DEADLINE_MS",
                1_000,
            ),
            ("all, the last {}, for", "auctioneer/src", "MAX_OUTCOMES", 1),
            (
                "holds the auction after {} ms at most",
                "auctioneer/src",
                "BID_WAIT_MS",
                1,
            ),
            ("(at most every {} ms)", "", "ON_CHANGE_MS", 1),
            ("a random delay of up to {} ms)", "", "ANSWER_MS", 1),
            (
                "up to {} at a time",
                "auctioneer/src/lookups",
                "ASKED_BY_ID",
                1,
            ),
            (
                "at most {} `cell-joined` and",
                "auctioneer/src",
                "MAX_CELL_EVENTS",
                1,
            ),
        ],
    ),
    (
        "LEGACY.md",
        &[
            (
                "body, for {} senders;",
                "advertiser/src/dea",
                "MAX_SENDERS",
                1,
            ),
            (
                "is forgotten after {} s in",
                "advertiser/src/dea",
                "FORGET_MS",
                1_000,
            ),
            (
                "At most {} are known at a time;",
                "advertiser/src/dea",
                "MAX_DEAS",
                1,
            ),
            (
                "and then advertises, or for {} s.",
                "advertiser/src/dea/bridge",
                "DEBIT_MS",
                1_000,
            ),
            (
                "start is answered within {} ms:",
                "advertiser/src/dea/bridge",
                "UNKNOWN_AT_MS",
                1,
            ),
            (
                "without one for {} s it is lost",
                "advertiser/src/dea/bridge",
                "GRACE_MS",
                1_000,
            ),
        ],
    ),
    (
        "POLICIES.md",
        &[
            (
                "At most {} KiB, 256 nodes",
                "placement/src/objective",
                "MAX_BYTES",
                1_024,
            ),
            (
                "At most 2 KiB, {} nodes",
                "placement/src/objective",
                "MAX_NODES",
                1,
            ),
            (
                "256 nodes and {} levels",
                "placement/src/objective",
                "MAX_LEVELS",
                1,
            ),
        ],
    ),
    (
        "ENGINE.md",
        &[(
            "until that has looked at {} cells",
            "placement/src",
            "MAX_LOOKS",
            1,
        )],
    ),
    (
        "INSTANCES.md",
        &[
            (
                "Having run for {} s without",
                "rep/src/ledger/lifecycle.rs",
                "HEALTHY_MS",
                1_000,
            ),
            (
                "as text of at most {} characters",
                "rep/src/ledger/lifecycle.rs",
                "MAX_ENDED_CHARS",
                1,
            ),
            (
                "about ended instances for {} s,",
                "rep/src/history.rs",
                "ENDED_MS",
                1_000,
            ),
            (
                "for 600 s, and about {} of them",
                "rep/src/history.rs",
                "ENDED",
                1,
            ),
            (
                "by polling: every {} ms",
                "rep/src/supervisor/look.rs",
                "PROCESSES",
                1,
            ),
            (
                "| disk | every {} s,",
                "rep/src/supervisor/look.rs",
                "FILES",
                1,
            ),
            (
                "with pauses {} times",
                "rep/src/supervisor/look.rs",
                "FILES_PAUSE",
                1,
            ),
            (
                "one with more than {} files",
                "rep/src/tree.rs",
                "MOST_FILES",
                1,
            ),
            (
                "or directories deeper than {}.",
                "rep/src/tree.rs",
                "DEEPEST",
                1,
            ),
            (
                "of {} entries in each",
                "rep/src/leftovers.rs",
                "LOOKED_AT",
                1,
            ),
            (
                "finds it within {} s",
                "rep/src/executor/process.rs",
                "SWEEP",
                1,
            ),
            (
                "for {} s at most. Processes",
                "rep/src/supervisor/mod.rs",
                "KILL_PATIENCE",
                1,
            ),
            (
                "the last {} KiB of each instance",
                "rep/src/executor/logs.rs",
                "KEPT",
                1_024,
            ),
            (
                "128 KiB of each instance, of {} instances",
                "rep/src/executor/logs.rs",
                "RINGS",
                1,
            ),
            (
                "Longer lines than {} KiB",
                "rep/src/executor/logs.rs",
                "LINE",
                1_024,
            ),
            (
                "may publish {} lines at once",
                "rep/src/executor/logs.rs",
                "BURST",
                1,
            ),
            (
                "at once and then {} each second",
                "rep/src/executor/logs.rs",
                "PER_SECOND",
                1,
            ),
            (
                "writes more than {} MiB in a second",
                "rep/src/executor/follow.rs",
                "OUTPUT_PER_SECOND",
                1_048_576,
            ),
            (
                "within the grace period and {} s",
                "rep/src/service.rs",
                "END_MS",
                1_000,
            ),
        ],
    ),
    (
        "OPERATIONS.md",
        &[(
            "Managers notice within {} s that",
            "manager/src/shell/watch.rs",
            "LOOK",
            1,
        )],
    ),
];
