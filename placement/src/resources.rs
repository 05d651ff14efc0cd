//! What a cell has and what a job asks for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The largest memory, disk, cpu or `extra` a message may name: 2^31 - 1.
pub const MAX_AMOUNT: i64 = (1 << 31) - 1;

/// A cell's capacity, in all (`total`) or still free (`available`).
///
/// `available` may be negative: an over-committed cell says so. Absent disk or containers mean
/// "unlimited"; absent cpu or `extra` mean none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resources {
    /// MiB (2^20 bytes).
    pub memory_mb: i64,
    /// MiB; absent = unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<i64>,
    /// How many instances fit; absent = unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containers: Option<i64>,
    /// Thousandths of a core.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_millis: i64,
    /// Named, countable resources: `gpu`, licence seats and the like.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, i64>,
}

impl Resources {
    /// Memory and disk in MiB and a number of instances; no cpu, no extras.
    pub fn new(memory_mb: i64, disk_mb: i64, containers: i64) -> Self {
        Self {
            memory_mb,
            disk_mb: Some(disk_mb),
            containers: Some(containers),
            ..Self::default()
        }
    }

    /// How much of a named resource there is; absent = 0.
    pub fn extra(&self, name: &str) -> i64 {
        self.extra.get(name).copied().unwrap_or(0)
    }

    /// Takes one instance of `request` away. What is unlimited stays so; the rest may go negative.
    pub fn debit(&mut self, request: &crate::Request) {
        self.apply(request, -1);
    }

    /// Gives one instance of `request` back: the opposite of [`Resources::debit`].
    pub fn credit(&mut self, request: &crate::Request) {
        self.apply(request, 1);
    }

    fn apply(&mut self, request: &crate::Request, sign: i64) {
        self.memory_mb += sign * request.memory_mb;
        if let Some(disk_mb) = &mut self.disk_mb {
            *disk_mb += sign * request.disk_mb;
        }
        if let Some(containers) = &mut self.containers {
            *containers += sign;
        }
        self.cpu_millis += sign * request.cpu_millis;
        for (name, amount) in &request.extra {
            *self.extra.entry(name.clone()).or_insert(0) += sign * amount;
        }
    }

    /// The names of what `request` needs and this does not have, in alphabetical order
    /// (`containers`, `cpu`, `disk`, `memory`, then extras by name); empty = it fits.
    pub fn lacks(&self, request: &crate::Request) -> Vec<String> {
        let mut lacking: Vec<String> = Vec::new();
        if self.containers.is_some_and(|have| have < 1) {
            lacking.push("containers".into());
        }
        if request.cpu_millis > 0 && self.cpu_millis < request.cpu_millis {
            lacking.push("cpu".into());
        }
        if self.disk_mb.is_some_and(|have| have < request.disk_mb) {
            lacking.push("disk".into());
        }
        if self.memory_mb < request.memory_mb {
            lacking.push("memory".into());
        }
        let extras = request.extra.iter();
        lacking.extend(
            extras
                .filter(|(n, a)| self.extra(n) < **a)
                .map(|(n, _)| n.clone()),
        );
        lacking
    }

    /// Whether one instance of `request` fits; equality fits.
    pub fn fits(&self, request: &crate::Request) -> bool {
        self.memory_mb >= request.memory_mb
            && self.disk_mb.is_none_or(|have| have >= request.disk_mb)
            && self.containers.is_none_or(|have| have >= 1)
            && (request.cpu_millis == 0 || self.cpu_millis >= request.cpu_millis)
            && request
                .extra
                .iter()
                .all(|(name, amount)| self.extra(name) >= *amount)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
pub(crate) fn is_zero(n: &i64) -> bool {
    *n == 0
}
