//! Half of the apps move from DEAs to cells, and a zone of both is lost: with the machines of `dea-in` and of simulated
//! DEAs.

use crate::check::{EstateLook, move_from_deas};

/// The time of each step, in ms: all apps are on DEAs; half of them move to cells; a zone is lost and the bridge
/// restarted.
const PUT_MS: u64 = 20_000;
const LOSE_MS: u64 = 125_000;
/// Within this time an app that is put runs, …
const DEPLOYED_MS: u64 = 40_000;
/// … and within this time what was lost with a zone runs again: once the cells of its DEAs have expired, plus some more
/// as many are lost at once.
const LOST_MS: u64 = 90_000;

#[test]
fn half_of_the_apps_move_from_deas_to_cells_and_a_zone_of_both_is_lost() {
    let run = move_from_deas(0, &mut |_, _| true);
    assert!(run.is_right(), "{run:?}");
    assert!(
        run.deployed_ms < Some(DEPLOYED_MS) && run.deployed_ms.is_some(),
        "{run:?}"
    );
    assert!(
        run.moved_ms < Some(DEPLOYED_MS) && run.moved_ms.is_some(),
        "{run:?}"
    );
    // also while half of them move, and again some time after a zone was lost
    assert_eq!(run.moving_missing, 0, "{run:?}");
    assert!(
        run.lost > 0 && run.recovered_ms.is_some_and(|ms| ms < LOST_MS),
        "{run:?}"
    );
    let missing = |look: &&EstateLook| look.missing > 0;
    let late = |look: &&EstateLook| look.at_ms >= PUT_MS + DEPLOYED_MS && look.at_ms < LOSE_MS;
    assert_eq!(run.looks.iter().filter(late).find(missing), None);
}

#[test]
fn a_course_that_is_interrupted_is_not_right() {
    let run = move_from_deas(0, &mut |now_ms, _| now_ms < 1_000);
    assert!(!run.is_right() && run.deployed_ms.is_none());
}
