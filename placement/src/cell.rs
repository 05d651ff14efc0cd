//! A cell as it describes itself: the body of an advertisement, of a bid, and of a scenario's cell.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Invalid, Resources, check_count, check_name, resources::MAX_AMOUNT, stages::dates};

/// A machine that runs work. Only `cell`, `total` and `available` are required; a field at its
/// default is left out when it is written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The cell's name: 1 to 128 of `A-Za-z0-9_-`.
    pub cell: String,
    /// Availability zone.
    #[serde(default = "default_zone", skip_serializing_if = "is_default_zone")]
    pub zone: String,
    /// The zone as a number, for the objective language; absent = the rank of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone_number: Option<u32>,
    /// The cell's ordinal in its deployment (a BOSH index).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub index: u32,
    /// Root filesystems it offers, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stacks: Vec<String>,
    /// All it has, overcommit factors included. A total of 0 never wins for that resource.
    pub total: Resources,
    /// What is still free; may be negative.
    pub available: Resources,
    /// Instances promised but not yet running.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub starting: u32,
    /// Instances of each app here, whatever their state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub apps: BTreeMap<String, u32>,
    /// Tasks here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tasks: u32,
    /// Tags that work must ask for to come here (Diego's placement tags).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement_tags: Vec<String>,
    /// Tags that work may ask for here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub optional_placement_tags: Vec<String>,
    /// Volume drivers it offers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_drivers: Vec<String>,
    /// Volumes that live here, for `volumes_from`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<String>,
    /// Source blobs it holds already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cached_blobs: Vec<String>,
    /// On its way out: takes no new work.
    #[serde(default, skip_serializing_if = "is_false")]
    pub evacuating: bool,
    /// `"running"` when it may get work.
    #[serde(default = "default_status", skip_serializing_if = "is_running")]
    pub status: String,
    /// Kept for its operator.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reserved: bool,
    /// A head node: runs the platform, not work.
    #[serde(default, skip_serializing_if = "is_false")]
    pub control_plane: bool,
    /// Networks by name, and their state: `"up"` or another word.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub networks: BTreeMap<String, String>,
    /// Traits (Triton): name to true/false, a word, or a list of words.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub traits: BTreeMap<String, Trait>,
    /// The platform image it booted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// When it will reboot, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_reboot: Option<String>,
    /// When it booted, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_boot: Option<String>,
    /// The rack it stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// Higher = better hardware.
    #[serde(default, skip_serializing_if = "is_zero_i")]
    pub hardware_priority: i64,
    /// Instances here by owner.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub owners: BTreeMap<String, u32>,
    /// Instances here by tag, `"key=value"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, u32>,
    /// Instances here with a cpu cap.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_capped: u32,
    /// Instances here without one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_uncapped: u32,
    /// A named group of cells that reboot together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reboot_batch: Option<String>,
    /// Overcommit ratios by resource, as configured (`total` already includes them).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overcommit: BTreeMap<String, f64>,
    /// The last starts here, newest first or not: each has its age.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recent_starts: Vec<RecentStart>,
    /// Scenario files only: how long ago the advertisement came in (a duration such as `"12s"`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<String>,
}

/// A trait's value, on a cell or wanted by a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Trait {
    /// True or false.
    Flag(bool),
    /// One word.
    Word(String),
    /// Any of these.
    Words(Vec<String>),
}

/// A platform image: version and build stamp (`YYYYMMDDTHHMMSSZ`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    /// Such as `"7.0"`.
    pub version: String,
    /// Such as `"20260301T000000Z"`.
    pub stamp: String,
}

/// One of the last starts on a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecentStart {
    /// How long ago, a duration such as `"2h"`.
    pub age: String,
    /// Whether it failed.
    pub failed: bool,
}

impl Cell {
    /// An empty cell of this name and size, everything available.
    pub fn new(name: impl Into<String>, total: Resources) -> Self {
        Self {
            cell: name.into(),
            zone: default_zone(),
            zone_number: None,
            index: 0,
            stacks: Vec::new(),
            available: total.clone(),
            total,
            starting: 0,
            apps: BTreeMap::new(),
            tasks: 0,
            placement_tags: Vec::new(),
            optional_placement_tags: Vec::new(),
            volume_drivers: Vec::new(),
            volumes: Vec::new(),
            cached_blobs: Vec::new(),
            evacuating: false,
            status: default_status(),
            reserved: false,
            control_plane: false,
            networks: BTreeMap::new(),
            traits: BTreeMap::new(),
            platform: None,
            next_reboot: None,
            last_boot: None,
            rack: None,
            hardware_priority: 0,
            owners: BTreeMap::new(),
            tags: BTreeMap::new(),
            cpu_capped: 0,
            cpu_uncapped: 0,
            reboot_batch: None,
            overcommit: BTreeMap::new(),
            recent_starts: Vec::new(),
            age: None,
        }
    }

    /// How many instances of `app` it holds.
    pub fn count_of(&self, app: &str) -> u32 {
        self.apps.get(app).copied().unwrap_or(0)
    }

    /// What this cell will look like with one more instance of `job`'s request: everything a later
    /// job may look at is debited (resources, starting, apps or tasks, owners, tags, cpu counts).
    pub fn debit(&mut self, request: &crate::Request) {
        self.available.debit(request);
        self.starting += 1;
        match request.kind {
            crate::Kind::Lrp => *self.apps.entry(request.app.clone()).or_insert(0) += 1,
            crate::Kind::Task => self.tasks += 1,
        }
        if let Some(owner) = &request.owner {
            *self.owners.entry(owner.clone()).or_insert(0) += 1;
        }
        for (key, value) in &request.tags {
            *self.tags.entry(format!("{key}={value}")).or_insert(0) += 1;
        }
        if request.cpu_millis > 0 {
            self.cpu_capped += 1;
        } else {
            self.cpu_uncapped += 1;
        }
    }

    /// Refuses what no cell may say: a bad name, negative or absurd totals, over-long lists.
    pub fn check(&self) -> Result<(), Invalid> {
        check_name("cell", &self.cell)?;
        check_name("zone", &self.zone)?;
        check_count("apps", self.apps.len(), 100_000)?;
        for app in self.apps.keys() {
            check_name("apps", app)?;
        }
        check_resources("total", &self.total, 0)?;
        check_resources("available", &self.available, -MAX_AMOUNT)?;
        for (field, list) in [
            ("stacks", &self.stacks),
            ("placement_tags", &self.placement_tags),
            ("optional_placement_tags", &self.optional_placement_tags),
            ("volume_drivers", &self.volume_drivers),
            ("volumes", &self.volumes),
            ("cached_blobs", &self.cached_blobs),
        ] {
            check_count(field, list.len(), 10_000)?;
        }
        check_count("recent_starts", self.recent_starts.len(), 1_000)?;
        self.check_times()
    }

    fn check_times(&self) -> Result<(), Invalid> {
        for (field, date) in [
            ("next_reboot", &self.next_reboot),
            ("last_boot", &self.last_boot),
        ] {
            let unreadable = |date: &&String| dates::date_ms(date).is_none();
            if let Some(date) = date.as_ref().filter(unreadable) {
                let expected = "a date such as \"2026-12-01\" or \"2026-12-01T04:00:00Z\"";
                return Err(Invalid::new(field, crate::request::shorten(date), expected));
            }
        }
        let starts = self.recent_starts.iter().map(|start| &start.age);
        let ages = starts.map(|age| ("recent_starts.age", age));
        for (field, age) in ages.chain(self.age.iter().map(|age| ("age", age))) {
            if dates::span(age).is_none() {
                let expected = "a length of time such as \"2h\"";
                return Err(Invalid::new(field, crate::request::shorten(age), expected));
            }
        }
        Ok(())
    }
}

fn check_resources(what: &str, resources: &Resources, low: i64) -> Result<(), Invalid> {
    let amounts = [
        ("memory_mb", Some(resources.memory_mb)),
        ("disk_mb", resources.disk_mb),
        ("containers", resources.containers),
        ("cpu_millis", Some(resources.cpu_millis)),
    ];
    let named = amounts
        .iter()
        .filter_map(|(name, amount)| amount.map(|a| (*name, a)));
    let extras = resources
        .extra
        .iter()
        .map(|(name, amount)| (name.as_str(), *amount));
    for (name, amount) in named.chain(extras) {
        if !(low..=MAX_AMOUNT).contains(&amount) {
            return Err(Invalid::new(
                format!("{what}.{name}"),
                amount,
                format!("a number from {low} to {MAX_AMOUNT}"),
            ));
        }
    }
    Ok(())
}

fn default_zone() -> String {
    "default".into()
}
fn is_default_zone(zone: &str) -> bool {
    zone == "default"
}
fn default_status() -> String {
    "running".into()
}
fn is_running(status: &str) -> bool {
    status == "running"
}
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &u32) -> bool {
    *n == 0
}
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero_i(n: &i64) -> bool {
    *n == 0
}
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_false(b: &bool) -> bool {
    !*b
}
