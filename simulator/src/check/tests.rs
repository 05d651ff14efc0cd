use super::{
    check_seed, check_seeds, invariants, replay,
    script::{Script, What},
};

/// A few seeds in every run of the tests; `vendue sim check` plays as many as one likes.
#[test]
fn the_promises_hold_under_faults() {
    let report = check_seeds(0..60, 2, &|_, _| true);
    let told: Vec<String> = report
        .failures
        .iter()
        .map(|f| {
            format!(
                "seed {}: {:?}\n{}",
                f.seed,
                f.violation,
                f.timeline.join("\n")
            )
        })
        .collect();
    assert!(told.is_empty(), "{}", told.join("\n\n"));
    assert!(report.asked > 200 && report.faults.len() == 5, "{report:?}");
}

#[test]
fn a_seed_is_played_exactly_again() {
    let (first, second) = (replay(3), replay(3));
    assert!(first.0.len() > 10);
    assert_eq!(first, second);
    assert_ne!(replay(4).0, first.0);
}

/// The cluster of a script without faults and without repeats does what it is asked.
#[test]
fn without_faults_nothing_is_broken() {
    for seed in 0..10 {
        let mut script = Script::draw(seed);
        script
            .steps
            .retain(|step| matches!(step.what, What::Ask(_)));
        let mut report = super::CheckReport::default();
        let (violation, timeline) = invariants::play(&script, true, &mut report);
        assert_eq!(violation, None, "{}", timeline.join("\n"));
    }
    assert_eq!(check_seed(1).0.seeds, 1);
}
