//! Limits what each app and each owner has open, so that nobody fills the queue for all.
//!
//! This gives fairness among well-meaning clients: a request can claim any owner.

use placement::{FastMap, Request};

use super::MAX_WAITING;

/// The most instances in the open requests of one app.
pub(super) const MAX_OPEN_OF_APP: usize = MAX_WAITING / 2;
/// The most instances in the open requests of one owner.
pub(super) const MAX_OPEN_OF_OWNER: usize = MAX_WAITING / 4 * 3;

/// Counts of the instances of open requests. Whole requests are counted: an instance counts until its request has
/// ended.
#[derive(Debug, Default)]
pub(super) struct Shares {
    apps: FastMap<String, usize>,
    owners: FastMap<String, usize>,
}

impl Shares {
    /// Returns why this many more instances would exceed a share; none if they would not.
    pub(super) fn refusal(&self, request: &Request, more: usize) -> Option<String> {
        // an owner's share is the larger one: most owners have several apps
        let app = (&self.apps, "app", request.app.as_str(), MAX_OPEN_OF_APP);
        let owner = request.owner.as_deref();
        let owner = owner.map(|owner| (&self.owners, "owner", owner, MAX_OPEN_OF_OWNER));
        let all = [Some(app), owner].into_iter().flatten();
        all.into_iter().find_map(|(open, what, name, most)| {
            let open = open.get(name).copied().unwrap_or(0);
            (open + more > most).then(|| {
                format!(
                    "the {what} {name} has {open} instances in open requests; {more} more would exceed its share of {most}"
                )
            })
        })
    }

    /// Adds a request with this many instances.
    pub(super) fn add(&mut self, request: &Request, count: usize) {
        *self.apps.entry(request.app.clone()).or_default() += count;
        if let Some(owner) = &request.owner {
            *self.owners.entry(owner.clone()).or_default() += count;
        }
    }

    /// Removes a request with this many instances.
    pub(super) fn remove(&mut self, request: &Request, count: usize) {
        take(&mut self.apps, &request.app, count);
        if let Some(owner) = &request.owner {
            take(&mut self.owners, owner, count);
        }
    }
}

/// Subtracts from a count, and drops it at zero.
fn take(counts: &mut FastMap<String, usize>, name: &str, count: usize) {
    if let Some(open) = counts.get_mut(name) {
        // never below zero: `remove` is called once, when the ticket goes
        *open -= count;
        if *open == 0 {
            counts.remove(name);
        }
    }
}
