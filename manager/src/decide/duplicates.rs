//! Decides which of several instances at one index stays.

use std::cmp::Reverse;

use super::Found;
use crate::look::{Seen, Versions};

/// Finds the duplicates of an index, among those of the wanted version or else among old ones. An old instance beside a
/// new one is left to the rollout.
pub(super) fn find(versions: &Versions, kept: &[Seen], found: &mut Found) {
    if kept.len() < 2 {
        return;
    }
    let wanted = |one: &&Seen| versions.conforms(one.version);
    let has_wanted = kept.iter().any(|one| wanted(&one));
    let mut group: Vec<&Seen> = kept
        .iter()
        .filter(|one| wanted(one) == has_wanted)
        .collect();
    // the wanted version first, then the instance that has been up longest, then the smaller id
    group.sort_by_key(|one| {
        let since = if one.up { one.since_ms } else { u64::MAX };
        let is_target = Reverse(one.version == versions.target);
        (is_target, Reverse(one.is_told()), since, one.id)
    });
    let Some((best, others)) = group.split_first() else {
        return;
    };
    for one in others {
        // an instance that has just come back may stem from an old message, so both must have been heard for a ttl; one
        // that only an auctioneer has reported may not exist at all
        let steady = best.is_told() && best.steady && one.steady;
        let not_yet = best.runs() && !one.runs();
        if steady || not_yet {
            found.spare.push(**one);
        }
    }
}
