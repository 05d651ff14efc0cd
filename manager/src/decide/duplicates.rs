//! Two instances at one index: which one stays.

use std::cmp::Reverse;

use super::Found;
use crate::look::{Seen, Versions};

/// Finds what an index has too often, of the wanted version or else of old ones. An old one beside a new one
/// is the rollout's.
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
    // the newest version, up, for longest; of equals the smaller id
    group.sort_by_key(|one| {
        let since = if one.up { one.since_ms } else { u64::MAX };
        let is_target = Reverse(one.version == versions.target);
        (is_target, Reverse(one.is_told()), since, one.id)
    });
    let Some((best, others)) = group.split_first() else {
        return;
    };
    for one in others {
        // what has just come back may be an old message: both must have been heard for a ttl
        // and what only an auctioneer has spoken of may not be there at all
        let steady = best.is_told() && best.steady && one.steady;
        let not_yet = best.runs() && !one.runs();
        if steady || not_yet {
            found.spare.push(**one);
        }
    }
}
