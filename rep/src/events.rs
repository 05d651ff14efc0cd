//! Collects events of instances: one message for each app and kind in a short time, not one for
//! each instance.

use std::collections::BTreeMap;

use shared::wire::{Event, EventInstance, format_indices};

/// How long events are collected.
const GATHER_MS: u64 = 100;
/// The most instances listed in one event; the event always has their number and indices.
const NAMED: usize = 100;

/// Kind, app and reason: what one event is about.
pub(crate) type About = (&'static str, String, Option<String>);

/// Collected events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    /// In the order in which each came up first.
    order: Vec<About>,
    gathered: BTreeMap<About, Vec<EventInstance>>,
    due_ms: Option<u64>,
}

impl Events {
    /// Adds an instance to the event it belongs to.
    pub(crate) fn add(&mut self, now_ms: u64, about: About, instance: EventInstance) {
        self.due_ms.get_or_insert(now_ms + GATHER_MS);
        let instances = self.gathered.entry(about.clone()).or_insert_with(|| {
            self.order.push(about);
            Vec::new()
        });
        instances.push(instance);
    }

    /// When [`Events::take`] has something.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// The collected events.
    pub(crate) fn take(&mut self, cell: &str) -> Vec<Event> {
        self.due_ms = None;
        let mut gathered = std::mem::take(&mut self.gathered);
        std::mem::take(&mut self.order)
            .into_iter()
            .map(|about| {
                let mut instances = gathered.remove(&about).unwrap_or_default();
                let (kind, app, reason) = about;
                let count = instances.len();
                let indices = format_indices(instances.iter().map(|i| i.index));
                instances.truncate(NAMED);
                Event {
                    cell: Some(cell.to_owned()),
                    count,
                    indices: Some(indices),
                    instances,
                    reason,
                    ..Event::app(kind, app)
                }
            })
            .collect()
    }
}
