//! What operators set and what is measured, beside what is reserved.

use placement::Usage;

use super::*;

fn blobs(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

#[test]
fn cached_sources_are_advertised_beside_those_that_operators_set() {
    let mut described = Cell::new("a", Resources::new(1_000, 1_000, 10));
    described.attributes_mut().cached_blobs = blobs(&["set", "both"]);
    let mut ledger = Ledger::new(described.clone(), LIVES, "127.0.0.1");
    let before = ledger.seq();
    ledger.cached(blobs(&["both", "fetched"]));
    let all = blobs(&["set", "both", "fetched"]);
    assert_eq!(ledger.cell().cached_blobs, all);
    assert_eq!(ledger.seq(), before + 1);
    ledger.cached(blobs(&["both", "fetched"]));
    assert_eq!(ledger.seq(), before + 1, "nothing has changed");
    // the operator's description has no fetched ones, and removes none of them
    assert!(!ledger.describe(&described));
    assert_eq!(ledger.cell().cached_blobs, all);
    described.attributes_mut().cached_blobs = blobs(&["set"]);
    assert!(!ledger.describe(&described), "it has the other one still");
    ledger.cached(Vec::new());
    assert_eq!(ledger.cell().cached_blobs, blobs(&["set"]));
    assert_eq!(ledger.seq(), before + 2);
    described.attributes_mut().cached_blobs = blobs(&["other"]);
    assert!(ledger.describe(&described));
    assert_eq!(ledger.cell().cached_blobs, blobs(&["other"]));
    assert_eq!(ledger.seq(), before + 3);
}

#[test]
fn only_what_runs_is_measured_and_shows_what_it_uses() {
    let mut ledger = ledger();
    ledger.start(0, &start(vec![work(1, "a")]));
    assert!(ledger.processes().is_empty(), "it has no process yet");
    ledger.report(1, runs(1, 0));
    let processes = ledger.processes();
    assert_eq!(processes.len(), 1);
    let of = &processes[0];
    assert_eq!((of.instance.as_u128(), of.attempt, of.pid), (1, 0, 7));
    let usage = Usage {
        memory_mb: 5,
        cpu_millis: 20,
    };
    ledger.report(2, report(1, 0, InstanceChange::Measured(usage)));
    let shown = |ledger: &Ledger| ledger.find_instances(2, &Instances::default())[0].usage;
    assert_eq!(shown(&ledger), Some(usage));
    ledger.stop(3, &stop("a", &[1]));
    assert_eq!(shown(&ledger), None, "it is stopping");
    assert!(ledger.processes().is_empty());
}

#[test]
fn what_ends_before_it_runs_is_a_new_version() {
    let mut ledger = ledger();
    ledger.start(0, &start(vec![task(1)]));
    let before = ledger.seq();
    ledger.report(1, ends(1, 0, 0));
    assert_eq!(ledger.cell().counts.starting, 0);
    assert!(ledger.seq() > before);
}
