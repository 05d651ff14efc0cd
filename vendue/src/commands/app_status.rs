//! The overall state of an app's instances: which of them count now, and which are history.

use std::collections::{BTreeMap, BTreeSet};

use placement::Kind;
use shared::wire::{InstanceState, QueuedGroup};

use super::instances::{self, Located};

/// Number of instances in each state; `queued` counts as one.
pub(crate) type Counts = BTreeMap<&'static str, usize>;

/// One app at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct AppStatus<'a> {
    /// Living instances and, for each index without one, the instance that ended last, unless somebody stopped it or
    /// another one waits for room.
    pub(crate) now: Vec<&'a Located>,
    /// All others, as cells remember ended instances for some minutes.
    pub(crate) earlier: Vec<&'a Located>,
    /// Number of instances that wait for room.
    pub(crate) queued: usize,
}

impl<'a> AppStatus<'a> {
    /// Classifies one app's instances and groups.
    pub(crate) fn new<'q>(
        instances: impl IntoIterator<Item = &'a Located>,
        queued: impl IntoIterator<Item = &'q QueuedGroup>,
    ) -> Self {
        let waiting: BTreeSet<u32> = queued.into_iter().flat_map(instances::indices).collect();
        let mut status = Self {
            queued: waiting.len(),
            ..Self::default()
        };
        let mut by_index: BTreeMap<u32, Vec<&Located>> = BTreeMap::new();
        for located in instances {
            by_index
                .entry(located.instance.index)
                .or_default()
                .push(located);
        }
        for (index, instances) in by_index {
            status.add(instances, waiting.contains(&index));
        }
        status
    }

    /// Adds all instances of one index.
    fn add(&mut self, instances: Vec<&'a Located>, waits: bool) {
        let (living, mut ended): (Vec<_>, Vec<_>) =
            instances.into_iter().partition(|located| located.lives());
        ended.sort_by_key(|located| located.instance.age_ms);
        let replaced = waits || !living.is_empty();
        let last = ended.first().is_some_and(|last| !last.was_stopped());
        self.now.extend(living);
        if last && !replaced {
            self.now.push(ended.remove(0));
        }
        self.earlier.extend(ended);
    }

    /// Returns how many there should be, as far as is known: those that count now and those that are queued.
    pub(crate) fn listed(&self) -> usize {
        self.now.len() + self.queued
    }

    /// Returns how many run.
    pub(crate) fn running(&self) -> usize {
        let runs = |located: &&&Located| located.instance.state == InstanceState::Running;
        self.now.iter().filter(runs).count()
    }

    /// Returns those that count now and ended badly: crashed, or an LRP that exited by itself.
    pub(crate) fn failed(&self) -> impl Iterator<Item = &'a Located> {
        self.now.iter().copied().filter(|located| {
            matches!(
                (located.instance.kind, located.instance.state),
                (_, InstanceState::Crashed) | (Kind::Lrp, InstanceState::Exited)
            )
        })
    }

    /// Returns whether something runs, or everything was a task and exited well.
    pub(crate) fn is_well(&self) -> bool {
        let done = |located: &&Located| {
            located.instance.kind == Kind::Task && located.instance.state == InstanceState::Exited
        };
        let all_done = self.queued == 0 && !self.now.is_empty() && self.now.iter().all(done);
        self.running() > 0 || all_done
    }

    /// Counts by state what counts now.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = counts(&self.now);
        if self.queued > 0 {
            counts.insert("queued", self.queued);
        }
        counts
    }

    /// Counts by state what is history.
    pub(crate) fn earlier_counts(&self) -> Counts {
        counts(&self.earlier)
    }

    /// Formats `2 of 3 running, 1 queued (earlier: 6 exited)`.
    pub(crate) fn in_words(&self) -> String {
        let (running, listed) = (self.running(), self.listed());
        let others = self.counts();
        let others = others.iter().filter(|(state, _)| **state != "running");
        let mut parts: Vec<String> = others.map(|(state, n)| format!("{n} {state}")).collect();
        let only_tasks =
            !self.now.is_empty() && self.now.iter().all(|l| l.instance.kind == Kind::Task);
        match running {
            0 if listed == 0 => parts.push("no instance".into()),
            0 if only_tasks => {}
            n if n == listed => parts.insert(0, format!("{n} running")),
            n => parts.insert(0, format!("{n} of {listed} running")),
        }
        let mut words = parts.join(", ");
        if let Some(earlier) = self.earlier_in_words() {
            words += &format!(" (earlier: {earlier})");
        }
        words
    }

    /// Formats `1 crashed, 6 stopped`; none if there are none.
    pub(crate) fn earlier_in_words(&self) -> Option<String> {
        let earlier = self.earlier_counts();
        (!earlier.is_empty()).then(|| in_words(&earlier))
    }
}

impl AppStatus<'_> {
    /// Formats counts of instances that have all ended: `2 crashed, 1 stopped`.
    pub(crate) fn ended_in_words(instances: &[Located]) -> String {
        in_words(&counts(&instances.iter().collect::<Vec<_>>()))
    }
}

fn counts(instances: &[&Located]) -> Counts {
    let mut counts = Counts::new();
    for located in instances {
        *counts.entry(located.state()).or_default() += 1;
    }
    counts
}

fn in_words(counts: &Counts) -> String {
    let parts: Vec<String> = counts
        .iter()
        .map(|(state, n)| format!("{n} {state}"))
        .collect();
    parts.join(", ")
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Parses an instance like `lrp 0 running 1`: kind, index, state, age in milliseconds.
    pub(crate) fn located(text: &str) -> Located {
        let words: Vec<&str> = text.split(' ').collect();
        let [kind, index, state, age_ms] = words[..] else {
            panic!("{text}")
        };
        let (state, ended) = match state {
            "stopped" => ("exited", Some("stopped")),
            "crashed" => ("crashed", Some("exit 3")),
            "exited" => ("exited", Some("exit 0")),
            state => (state, None),
        };
        Located {
            zone: "z1".into(),
            cell: "c1".into(),
            instance: serde_json::from_value(json!({
                "instance": uuid::Uuid::nil(), "app": "a", "memory_mb": 1, "disk_mb": 1,
                "kind": kind, "state": state, "ended": ended,
                "index": index.parse::<u32>().unwrap(), "age_ms": age_ms.parse::<u64>().unwrap(),
            }))
            .unwrap(),
        }
    }

    /// Returns a group of queued instances.
    pub(crate) fn group(indices: &str) -> QueuedGroup {
        serde_json::from_value(json!({
            "request": "r-1", "app": "a", "kind": "lrp", "indices": indices,
            "reason": "insufficient resources: memory", "waited_ms": 1, "left_ms": 1,
        }))
        .unwrap()
    }

    #[test]
    fn current_instances_are_separate_from_history() {
        let cases = [
            ("", "", "no instance", false),
            ("lrp 0 running 1, lrp 1 running 1", "", "2 running", true),
            (
                "lrp 0 running 1, lrp 1 crashed 1",
                "",
                "1 of 2 running, 1 crashed",
                true,
            ),
            ("lrp 0 running 1", "1-2", "1 of 3 running, 2 queued", true),
            ("", "0", "0 of 1 running, 1 queued", false),
            ("lrp 0 crashed 1", "", "0 of 1 running, 1 crashed", false),
            // earlier instances of an index
            (
                "lrp 0 running 1, lrp 0 exited 5, lrp 0 crashed 9",
                "",
                "1 running (earlier: 1 crashed, 1 exited)",
                true,
            ),
            (
                "lrp 0 crashed 9",
                "0",
                "0 of 1 running, 1 queued (earlier: 1 crashed)",
                false,
            ),
            // a stopped instance is not missing
            (
                "lrp 0 running 1, lrp 1 stopped 1",
                "",
                "1 running (earlier: 1 stopped)",
                true,
            ),
            (
                "lrp 0 stopped 1",
                "",
                "no instance (earlier: 1 stopped)",
                false,
            ),
            // two instances of one index both count
            ("lrp 0 running 1, lrp 0 running 2", "", "2 running", true),
            ("task 0 exited 1, task 1 exited 1", "", "2 exited", true),
            (
                "task 0 exited 1, task 1 crashed 1",
                "",
                "1 crashed, 1 exited",
                false,
            ),
        ];
        for (texts, queued, words, well) in cases {
            let texts = texts.split(", ").filter(|text| !text.is_empty());
            let instances: Vec<Located> = texts.map(located).collect();
            let queued = (!queued.is_empty()).then(|| group(queued));
            let status = AppStatus::new(&instances, &queued);
            assert_eq!(status.in_words(), words, "{instances:?}");
            assert_eq!(status.is_well(), well, "{instances:?}");
        }
    }
}
