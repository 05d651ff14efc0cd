use std::collections::BTreeMap;

use crate::request::{Kind, Request};

/// The instances on a cell, counted in every way that stages use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Instances that are reserved but not yet running.
    pub starting: u32,
    /// LRP instances of each app, whatever their state.
    pub apps: BTreeMap<String, u32>,
    /// Tasks.
    pub tasks: u32,
    /// Instances of each owner.
    pub owners: BTreeMap<String, u32>,
    /// Instances with each tag, `"key=value"`.
    pub tags: BTreeMap<String, u32>,
    /// Instances with a cpu limit.
    pub cpu_capped: u32,
    /// Instances without a cpu limit.
    pub cpu_uncapped: u32,
}

impl Counts {
    /// The names of the counts in messages and files, where they are fields of the cell.
    pub const FIELDS: [&str; 7] = [
        "starting",
        "apps",
        "tasks",
        "owners",
        "tags",
        "cpu_capped",
        "cpu_uncapped",
    ];

    /// Adds one instance of `request`, which is starting. Returns how many of its app there are now; none for a task.
    pub(super) fn debit(&mut self, request: &Request) -> Option<u32> {
        self.debit_but_app(request);
        let app = request.app_of_lrp()?;
        let count = self.apps.entry(app.to_owned()).or_insert(0);
        *count += 1;
        Some(*count)
    }

    /// Adds one instance of `request`, except to those of its app.
    pub(super) fn debit_but_app(&mut self, request: &Request) {
        self.starting += 1;
        self.tasks += u32::from(request.kind == Kind::Task);
        if let Some(owner) = &request.owner {
            *self.owners.entry(owner.clone()).or_insert(0) += 1;
        }
        for (key, value) in &request.tags {
            *self.tags.entry(format!("{key}={value}")).or_insert(0) += 1;
        }
        *self.by_cpu(request) += 1;
    }

    /// Removes one instance of `request`. No count falls below 0, and zeros are not kept.
    pub(super) fn credit(&mut self, request: &Request) {
        self.starting = self.starting.saturating_sub(1);
        match request.kind {
            Kind::Lrp => decrement(&mut self.apps, &request.app),
            Kind::Task => self.tasks = self.tasks.saturating_sub(1),
        }
        self.credit_names(request);
        let counted = self.by_cpu(request);
        *counted = counted.saturating_sub(1);
    }

    /// Removes one instance of the request's owner and of its tags.
    pub(super) fn credit_names(&mut self, request: &Request) {
        if let Some(owner) = &request.owner {
            decrement(&mut self.owners, owner);
        }
        for (key, value) in &request.tags {
            decrement(&mut self.tags, &format!("{key}={value}"));
        }
    }

    fn by_cpu(&mut self, request: &Request) -> &mut u32 {
        if request.cpu_millis > 0 {
            &mut self.cpu_capped
        } else {
            &mut self.cpu_uncapped
        }
    }
}

fn decrement(counts: &mut BTreeMap<String, u32>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(name);
        }
    }
}
