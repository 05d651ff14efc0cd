//! Collects events about instances: one message per app and kind within a short time, instead of one per instance.

use std::collections::BTreeMap;

use shared::wire::{Event, EventInstance, format_indices};

/// How long events are collected.
const GATHER_MS: u64 = 100;
/// The most instances listed in one event; the event always contains their number and indices.
const NAMED: usize = 100;

/// What one event is about: its kind, app and reason.
pub(crate) type About = (&'static str, String, Option<String>);

/// Collected events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Events {
    /// In order of their first instance.
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

    /// Returns when [`Events::take`] has something to return.
    pub(crate) fn due_ms(&self) -> Option<u64> {
        self.due_ms
    }

    /// Removes and returns the collected events.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(index: u32) -> EventInstance {
        EventInstance {
            index,
            ..EventInstance::default()
        }
    }

    #[test]
    fn an_event_tells_of_everything_with_its_kind_app_and_reason_in_100_ms() {
        let about = |kind, app: &str, reason: Option<&str>| -> About {
            (kind, app.to_owned(), reason.map(str::to_owned))
        };
        let mut events = Events::default();
        assert_eq!(events.due_ms(), None);
        for (now_ms, about, index) in [
            (10, about("running", "web", None), 2),
            (20, about("crashed", "web", Some("starts again in 1 s")), 0),
            (30, about("running", "web", None), 0),
            (40, about("running", "db", None), 0),
            (109, about("crashed", "web", Some("not started again")), 1),
            (109, about("running", "web", None), 1),
        ] {
            events.add(now_ms, about, instance(index));
            assert_eq!(events.due_ms(), Some(110));
        }
        let event = |about: About, indices: &[u32], text: &str| Event {
            cell: Some("a".into()),
            reason: about.2,
            count: indices.len(),
            indices: Some(text.to_owned()),
            instances: indices.iter().copied().map(instance).collect(),
            ..Event::app(about.0, about.1)
        };
        let expected = [
            event(about("running", "web", None), &[2, 0, 1], "0-2"),
            event(
                about("crashed", "web", Some("starts again in 1 s")),
                &[0],
                "0",
            ),
            event(about("running", "db", None), &[0], "0"),
            event(
                about("crashed", "web", Some("not started again")),
                &[1],
                "1",
            ),
        ];
        assert_eq!(events.take("a"), expected);
        assert_eq!((events.due_ms(), events.take("a")), (None, Vec::new()));
    }

    #[test]
    fn an_event_names_a_hundred_instances_and_counts_all() {
        let mut events = Events::default();
        for index in 0..101 {
            events.add(0, ("running", "web".into(), None), instance(index));
        }
        let told = events.take("a").remove(0);
        assert_eq!((told.count, told.instances.len()), (101, 100));
        assert_eq!(told.indices.as_deref(), Some("0-100"));
    }
}
