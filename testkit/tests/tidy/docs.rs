//! The documents agree with the code.

use crate::sources::{Source, root, rust_sources};

/// A bound that a document states: the document, what it says with `{}` for the number, where the
/// constant is (a file, or a directory in which no other has its name), its name, and how much of it
/// one of the document's units is (1,000 for seconds of a constant in milliseconds).
const FIGURES: &[(&str, &str, &str, &str, u64)] = &[
    (
        "ARCHITECTURE.md",
        "| requests in an array | {} |",
        "shared/src/wire",
        "MAX_ARRAY",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| instances of a request | {} |",
        "placement/src",
        "MAX_INSTANCES",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| jobs that wait | {}, then",
        "auctioneer/src",
        "MAX_WAITING",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| jobs of a batch | {} |",
        "auctioneer/src",
        "MAX_BATCH",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| auctions that an instance may enter | {} |",
        "auctioneer/src",
        "MAX_AUCTIONS",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "for a start's answer | {} ms,",
        "auctioneer/src",
        "BID_WAIT_MS",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "for a start's answer | 300 ms, {} s |",
        "auctioneer/src",
        "START_WAIT_MS",
        1_000,
    ),
    (
        "ARCHITECTURE.md",
        "(policies without bids) | {} ms |",
        "auctioneer/src",
        "GATHER_MS",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| outcomes remembered | {}, for",
        "auctioneer/src",
        "MAX_OUTCOMES",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| outcomes remembered | 100,000, for {} minutes |",
        "auctioneer/src",
        "REMEMBER_MS",
        60_000,
    ),
    (
        "ARCHITECTURE.md",
        "| auctions remembered | {} |",
        "auctioneer/src",
        "REMEMBERED",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| attributes of a cell that operators changed | {}, of",
        "rep/src",
        "MAX_CHANGED",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| attributes of a cell that operators changed | 256, of {} KiB each |",
        "rep/src",
        "MAX_TEXT",
        1_024,
    ),
    (
        "ARCHITECTURE.md",
        "| output kept of an instance | {} KiB,",
        "rep/src",
        "KEPT",
        1_024,
    ),
    (
        "ARCHITECTURE.md",
        "| output kept of an instance | 128 KiB, in lines of at most {} KiB |",
        "rep/src",
        "LINE",
        1_024,
    ),
    (
        "PROTOCOL.md",
        "instances 1 to {},",
        "placement/src",
        "MAX_INSTANCES",
        1,
    ),
    (
        "PROTOCOL.md",
        "arrays 1 to {} requests",
        "shared/src/wire",
        "MAX_ARRAY",
        1,
    ),
    (
        "PROTOCOL.md",
        "(default {} s) at the latest",
        "auctioneer/src",
        "DEFAULT_DEADLINE_MS",
        1_000,
    ),
    (
        "PROTOCOL.md",
        "all, the last {}, for",
        "auctioneer/src",
        "MAX_OUTCOMES",
        1,
    ),
    (
        "PROTOCOL.md",
        "holds the auction after {} ms at most",
        "auctioneer/src",
        "BID_WAIT_MS",
        1,
    ),
    (
        "PROTOCOL.md",
        "(at most every {} ms)",
        "",
        "ON_CHANGE_MS",
        1,
    ),
    (
        "PROTOCOL.md",
        "a random delay of up to {} ms)",
        "",
        "ANSWER_MS",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| DEAs of an estate; senders of its malformed messages | {};",
        "advertiser/src/dea",
        "MAX_DEAS",
        1,
    ),
    (
        "LEGACY.md",
        "body, for {} senders;",
        "advertiser/src/dea",
        "MAX_SENDERS",
        1,
    ),
    (
        "LEGACY.md",
        "is forgotten after {} s in",
        "advertiser/src/dea",
        "FORGET_MS",
        1_000,
    ),
    (
        "LEGACY.md",
        "At most {} are known at a time;",
        "advertiser/src/dea",
        "MAX_DEAS",
        1,
    ),
    (
        "LEGACY.md",
        "and then advertises, or for {} s.",
        "advertiser/src/dea/bridge",
        "DEBIT_MS",
        1_000,
    ),
    (
        "LEGACY.md",
        "start is answered within {} ms:",
        "advertiser/src/dea/bridge",
        "UNKNOWN_AT_MS",
        1,
    ),
    (
        "LEGACY.md",
        "without one for {} s it is lost",
        "advertiser/src/dea/bridge",
        "GRACE_MS",
        1_000,
    ),
    (
        "POLICIES.md",
        "At most {} KiB, 256 nodes",
        "placement/src/objective",
        "MAX_BYTES",
        1_024,
    ),
    (
        "POLICIES.md",
        "At most 2 KiB, {} nodes",
        "placement/src/objective",
        "MAX_NODES",
        1,
    ),
    (
        "POLICIES.md",
        "256 nodes and {} levels",
        "placement/src/objective",
        "MAX_LEVELS",
        1,
    ),
    (
        "ENGINE.md",
        "until that has looked at {} cells",
        "placement/src",
        "MAX_LOOKS",
        1,
    ),
    (
        "INSTANCES.md",
        "Having run for {} s without",
        "rep/src/ledger/lifecycle.rs",
        "HEALTHY_MS",
        1_000,
    ),
    (
        "INSTANCES.md",
        "as text of at most {} characters",
        "rep/src/ledger/lifecycle.rs",
        "MAX_ENDED_CHARS",
        1,
    ),
    (
        "INSTANCES.md",
        "about ended instances for {} s,",
        "rep/src/history.rs",
        "ENDED_MS",
        1_000,
    ),
    (
        "INSTANCES.md",
        "for 600 s, and about {} of them",
        "rep/src/history.rs",
        "ENDED",
        1,
    ),
    (
        "INSTANCES.md",
        "by polling: every {} ms",
        "rep/src/supervisor/look.rs",
        "PROCESSES",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "a variable of the environment with its name | {} KiB |",
        "placement/src/request.rs",
        "MAX_TEXT",
        1_024,
    ),
    (
        "ARCHITECTURE.md",
        "a command with its environment | {} MiB |",
        "placement/src/request.rs",
        "MAX_RUN",
        1_048_576,
    ),
    (
        "ARCHITECTURE.md",
        "a log line quotes | {} characters |",
        "placement/src/words.rs",
        "MAX_FOREIGN",
        1,
    ),
    (
        "INSTANCES.md",
        "| disk | every {} s,",
        "rep/src/supervisor/look.rs",
        "FILES",
        1,
    ),
    (
        "INSTANCES.md",
        "with pauses {} times",
        "rep/src/supervisor/look.rs",
        "FILES_PAUSE",
        1,
    ),
    (
        "INSTANCES.md",
        "one with more than {} files",
        "rep/src/tree.rs",
        "MOST_FILES",
        1,
    ),
    (
        "INSTANCES.md",
        "or directories deeper than {}.",
        "rep/src/tree.rs",
        "DEEPEST",
        1,
    ),
    (
        "INSTANCES.md",
        "of {} entries in each",
        "rep/src/leftovers.rs",
        "LOOKED_AT",
        1,
    ),
    (
        "INSTANCES.md",
        "finds it within {} s",
        "rep/src/executor/process.rs",
        "SWEEP",
        1,
    ),
    (
        "INSTANCES.md",
        "for {} s at most. Processes",
        "rep/src/supervisor/mod.rs",
        "KILL_PATIENCE",
        1,
    ),
    (
        "INSTANCES.md",
        "the last {} KiB of each instance",
        "rep/src/executor/logs.rs",
        "KEPT",
        1_024,
    ),
    (
        "INSTANCES.md",
        "128 KiB of each instance, of {} instances",
        "rep/src/executor/logs.rs",
        "RINGS",
        1,
    ),
    (
        "INSTANCES.md",
        "Longer lines than {} KiB",
        "rep/src/executor/logs.rs",
        "LINE",
        1_024,
    ),
    (
        "INSTANCES.md",
        "may publish {} lines at once",
        "rep/src/executor/logs.rs",
        "BURST",
        1,
    ),
    (
        "INSTANCES.md",
        "at once and then {} each second",
        "rep/src/executor/logs.rs",
        "PER_SECOND",
        1,
    ),
    (
        "INSTANCES.md",
        "writes more than {} MiB in a second",
        "rep/src/executor/follow.rs",
        "OUTPUT_PER_SECOND",
        1_048_576,
    ),
    (
        "INSTANCES.md",
        "within the grace period and {} s",
        "rep/src/service.rs",
        "END_MS",
        1_000,
    ),
    (
        "PROTOCOL.md",
        "up to {} at a time",
        "auctioneer/src/lookups",
        "ASKED_BY_ID",
        1,
    ),
    (
        "PROTOCOL.md",
        "at most {} `cell-joined` and",
        "auctioneer/src",
        "MAX_CELL_EVENTS",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| a definition | {} KiB |",
        "manager/src",
        "MAX_DEFINITION",
        1_024,
    ),
    (
        "ARCHITECTURE.md",
        "| indices in waves without an outcome | {} |",
        "manager/src",
        "MAX_OUTSTANDING",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "renewed every {} s,",
        "manager/src",
        "RENEW_MS",
        1_000,
    ),
    (
        "ARCHITECTURE.md",
        "taken by another after {} s,",
        "manager/src",
        "LEASE_MS",
        1_000,
    ),
    (
        "ARCHITECTURE.md",
        "acted under for {} s after",
        "manager/src",
        "ACT_MS",
        1_000,
    ),
    (
        "ARCHITECTURE.md",
        "| every app is looked at | every {} s |",
        "manager/src",
        "SWEEP_MS",
        1_000,
    ),
    (
        "ARCHITECTURE.md",
        "| crash counts stored for an app | {} |",
        "manager/src",
        "MAX_STORED_CRASHES",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| cells | {} |",
        "manager/src",
        "MAX_CELLS",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| apps of a page, of an import | {}, 1,000 |",
        "manager/src/shell/desk.rs",
        "MAX_PAGE",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| apps of a page, of an import | 500, {} |",
        "manager/src/shell/requests.rs",
        "MAX_IMPORT",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "| writes on their way | {}, and",
        "manager/src/shell/owner.rs",
        "WRITES",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "commands that wait for the bucket | {}, 1,000,",
        "manager/src/shell/mod.rs",
        "ASKED",
        1,
    ),
    (
        "ARCHITECTURE.md",
        "commands that wait for the bucket | 1,024, {},",
        "manager/src/commands.rs",
        "MAX_COMMANDS",
        1,
    ),
];

#[test]
fn figures_in_documents_are_those_of_the_code() {
    let (sources, mut wrong) = (rust_sources(), Vec::new());
    for (document, phrase, place, name, unit) in FIGURES {
        let text = std::fs::read_to_string(root().join("docs").join(document)).expect(document);
        // a phrase may be broken over two lines
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match constant(&sources, place, name) {
            Ok(value) => {
                let expected = phrase.replace("{}", &grouped(value / unit));
                if value % unit != 0 || !text.contains(&expected) {
                    wrong.push(format!(
                        "docs/{document} lacks {expected:?}: {name} is {value}"
                    ));
                }
            }
            Err(why) => wrong.push(format!("{name}, which docs/{document} states: {why}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The value of the one constant of this name in this file or directory.
fn constant(sources: &[Source], place: &str, name: &str) -> Result<u64, String> {
    let start = format!("const {name}: ");
    let inside = sources
        .iter()
        .filter(|source| source.path.starts_with(place));
    let lines = inside.flat_map(|source| source.text.lines());
    let mut found = lines.filter_map(|line| line.split_once(&start)?.1.split_once(" = "));
    let Some((_, value)) = found.next() else {
        return Err(format!("no such constant in {place}/"));
    };
    if found.next().is_some() {
        return Err(format!("there are two in {place}/; name the file"));
    }
    let value = value.trim_end_matches(';');
    evaluate(value).ok_or_else(|| format!("its value {value:?} is not understood"))
}

/// Whole numbers, products and shifts of them, and durations in the unit they are written in.
fn evaluate(text: &str) -> Option<u64> {
    if let Some((_, inside)) = text.split_once("Duration::from_") {
        let (_, number) = inside.strip_suffix(')')?.split_once('(')?;
        return evaluate(number);
    }
    if let Some((left, right)) = text.split_once(" << ") {
        return Some(evaluate(left)? << evaluate(right)?);
    }
    if let Some((left, right)) = text.split_once(" * ") {
        return Some(evaluate(left)? * evaluate(right)?);
    }
    text.trim().replace('_', "").parse().ok()
}

/// As the documents write numbers: 10,000.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[test]
fn constants_and_numbers_are_read() {
    for (text, value) in [
        ("10_000", 10_000),
        ("128 * 1024", 131_072),
        ("64 << 20", 67_108_864),
    ] {
        assert_eq!(evaluate(text), Some(value), "{text}");
    }
    assert_eq!(evaluate("Duration::from_millis(250)"), Some(250));
    assert_eq!(evaluate("OTHER + 1"), None);
    assert_eq!(
        [5, 999, 1_000, 1_234_567].map(grouped),
        ["5", "999", "1,000", "1,234,567"]
    );
}
