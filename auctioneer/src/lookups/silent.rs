//! Cells that have not answered a question, and what they may hold of what it asks for.

use std::sync::Arc;

use placement::{FastMap, FastSet, Kind, Pool};

use super::lookup::Lookup;
use crate::{
    outcomes::Outcomes,
    ticket::{Done, Ticket},
};

/// How many silent cells an answer names.
const NAMED: usize = 3;

/// The silent cells of a question, indexed once for all of its requests: there may be thousands of both.
#[derive(Debug, Default)]
pub(super) struct Silent {
    all: Vec<Arc<str>>,
    /// Those that had instances of an app when they were last heard.
    by_app: FastMap<Arc<str>, Vec<Arc<str>>>,
    /// Those that had tasks.
    with_tasks: Vec<Arc<str>>,
}

impl Silent {
    pub(super) fn of(pool: &Pool, lookup: &Lookup) -> Self {
        let mut silent = Self::default();
        // usually all have answered: the instances, possibly thousands, need no pass then
        if lookup.missing.is_empty() {
            return silent;
        }
        let apps = lookup.instances.values().map(|(app, _)| Arc::clone(app));
        let apps: FastSet<Arc<str>> = apps.collect();
        for name in &lookup.missing {
            silent.all.push(Arc::clone(name));
            let Some(cell) = pool.get(name) else {
                continue;
            };
            // advertisements only count tasks: any of them may be this request's
            if cell.counts.tasks > 0 {
                silent.with_tasks.push(Arc::clone(name));
            }
            let here = cell.counts.apps.iter().filter(|(_, count)| **count > 0);
            for app in here.filter_map(|(app, _)| apps.get(app.as_str())) {
                let cells = silent.by_app.entry(Arc::clone(app)).or_default();
                cells.push(Arc::clone(name));
            }
        }
        silent
    }

    /// Returns the cells that may hold some of a request: all of them if somebody is known to have begun it, else those
    /// that had instances of its app when they were last heard.
    pub(super) fn may_hold(&self, outcomes: &Outcomes, ticket: &Ticket) -> &[Arc<str>] {
        if self.all.is_empty() || outcomes.get(ticket.id.as_str()).is_some() {
            return &self.all;
        }
        match ticket.request.kind {
            Kind::Lrp => self.by_app.get(&ticket.app).map_or(&[], Vec::as_slice),
            Kind::Task => &self.with_tasks,
        }
    }
}

/// Returns the outcome of an instance that may run on cells that did not answer.
pub(super) fn unknown(silent: &[Arc<str>]) -> Done {
    let named: Vec<&str> = silent.iter().take(NAMED).map(AsRef::as_ref).collect();
    let mut names = named.join(", ");
    if silent.len() > NAMED {
        names = format!("{names} and {} others", silent.len() - NAMED);
    }
    // an outcome has room for one cell: naming one of several would look like an answer
    let cell = silent.first().filter(|_| silent.len() == 1);
    let why =
        format!("{names} did not answer whether it runs there already; not started elsewhere");
    Done::unknown(cell.cloned(), &why)
}
