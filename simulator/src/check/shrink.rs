//! Makes a failing script smaller: leaves out whatever is not needed to break the same promise.

use super::{CheckReport, Failure, Violation, invariants, script::Script};

/// Maximum number of scripts that are tried.
const MAX_TRIES: usize = 400;

/// Returns the smallest script found that breaks the same promise, after playing it once more for its timeline.
pub(super) fn shrink(script: &Script, violation: Violation) -> Failure {
    let before = script.steps.len();
    let (mut small, mut broken) = (script.clone(), violation);
    let mut tries = 0;
    let mut part = small.steps.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        let mut smaller = false;
        while from < small.steps.len() && tries < MAX_TRIES {
            let mut candidate = small.clone();
            let to = (from + part).min(candidate.steps.len());
            candidate.steps.drain(from..to);
            tries += 1;
            if let Some(violation) = breaks(&candidate, broken.invariant) {
                (small, broken, smaller) = (candidate, violation, true);
            } else {
                from += part;
            }
        }
        if tries >= MAX_TRIES || (part == 1 && !smaller) {
            break;
        }
        part = (part / 2).max(1);
    }
    let (_, timeline) = invariants::play(&small, true, &mut CheckReport::default());
    Failure {
        seed: script.seed,
        violation: broken,
        steps: (before, small.steps.len()),
        timeline,
    }
}

fn breaks(script: &Script, invariant: &str) -> Option<Violation> {
    let (violation, _) = invariants::play(script, false, &mut CheckReport::default());
    violation.filter(|violation| violation.invariant == invariant)
}
