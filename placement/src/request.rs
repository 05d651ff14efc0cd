//! A start request and its jobs.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    devices::{DeviceNeed, MAX_DEVICE_SETS, check_device_name},
    health::HealthCheck,
    invalid::{Invalid, check_count, check_name},
    near::Item,
    preference::Preferences,
    resources::{Amounts, MAX_AMOUNT, Resource},
    run::{Form, Run},
    times::{Span, Stamp},
    traits::Trait,
    words::shorten,
};

/// The most instances that one request may ask for.
pub const MAX_INSTANCES: u32 = 100_000;

/// What a request starts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A long-running process, with instances 0..n-1.
    #[default]
    Lrp,
    /// Work that runs once.
    Task,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Lrp => "lrp",
            Kind::Task => "task",
        })
    }
}

/// A request to start instances of an app. Required: `app`, `memory_mb`, `disk_mb`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Identifies the request: the same id is the same request. Empty if none was given.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// LRP or task; LRP by default.
    #[serde(default)]
    pub kind: Kind,
    /// The app's name: 1 to 128 of `A-Za-z0-9_-`.
    pub app: String,
    /// How many instances the app has in total.
    #[serde(default = "one")]
    pub instances: u32,
    /// A subset of `0..instances`: only these are started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indices: Option<Vec<u32>>,
    /// Memory of each instance, in MiB.
    pub memory_mb: i64,
    /// Disk of each instance, in MiB.
    pub disk_mb: i64,
    /// Thousandths of a core; 0 = no cpu limit.
    #[serde(default, skip_serializing_if = "crate::resources::is_zero")]
    pub cpu_millis: i64,
    /// Extra resources for each instance.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, i64>,
    /// Devices of each instance, by set name.
    #[serde(
        default,
        deserialize_with = "crate::object::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub devices: BTreeMap<String, DeviceNeed>,
    /// The stack that it needs; none means any cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// Placement tags that it asks for (Diego).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement_tags: Vec<String>,
    /// Volume drivers that it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_drivers: Vec<String>,
    /// The blob that it is made from, for cells that have it cached; none means that of [`Run::source`], see
    /// [`Request::blob`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_blob: Option<String>,
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The version of the app, as its owner names it; stored and listed, but not interpreted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The trace that the request belongs to (W3C `traceparent`); passed on to its instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Tags and traits that its cells should have, if there is room on such cells.
    #[serde(
        default,
        deserialize_with = "crate::object::one",
        skip_serializing_if = "is_empty"
    )]
    pub prefer: Preferences,
    /// Each entry is a requirement: at least one of its networks must be up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Vec<String>>,
    /// Traits that the cell must have (Triton: the sets of names are equal).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub traits: BTreeMap<String, Trait>,
    /// The lowest platform stamp of each version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub min_platform: BTreeMap<String, Stamp>,
    /// The highest platform stamp of each version.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub max_platform: BTreeMap<String, Stamp>,
    /// Volumes that the cell must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes_from: Vec<String>,
    /// Prefer cells near any of these: `app:NAME`, `tag:KEY=VALUE`, `rack:NAME`, `instance:UUID`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub near: Vec<String>,
    /// Prefer cells far from all of these; the same items.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub far: Vec<String>,
    /// Whether `near` and `far` are demands instead of preferences.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Cells that it must not go to, by name, whatever the policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude_cells: Vec<String>,
    /// Tags of the new instances.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// Overcommit ratios that the cell must have, by resource.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub overcommit: BTreeMap<String, f64>,
    /// An objective of its own, if the policy has one; at most 2 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<String>,
    /// The longest time until the reply (default 4 s).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Span>,
    /// How long work that fits nowhere is queued (default 0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_timeout: Option<Span>,
    /// What the cell executes; placement does not use it.
    #[serde(
        default,
        deserialize_with = "crate::object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub run: Option<Run>,
    /// How the cell checks that an instance is healthy; none means that its process exists.
    #[serde(
        default,
        deserialize_with = "crate::object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub health: Option<Arc<HealthCheck>>,
    /// How the cell checks that an instance is ready; none means that it is ready when it runs.
    #[serde(
        default,
        deserialize_with = "crate::object::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub ready: Option<Arc<HealthCheck>>,
}

/// One instance to be placed: a request and one of its indices.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The request.
    pub request: Arc<Request>,
    /// The index of the instance.
    pub index: u32,
}

impl Request {
    /// Returns the app whose instances an instance of it counts among; none for a task.
    pub(crate) fn app_of_lrp(&self) -> Option<&str> {
        (self.kind == Kind::Lrp).then_some(self.app.as_str())
    }

    /// Creates a request for one instance of an app, with this size in MiB.
    pub fn new(app: impl Into<String>, memory_mb: i64, disk_mb: i64) -> Self {
        Self {
            id: String::new(),
            kind: Kind::Lrp,
            app: app.into(),
            instances: 1,
            indices: None,
            memory_mb,
            disk_mb,
            cpu_millis: 0,
            extra: BTreeMap::new(),
            devices: BTreeMap::new(),
            stack: None,
            placement_tags: Vec::new(),
            volume_drivers: Vec::new(),
            source_blob: None,
            owner: None,
            version: None,
            traceparent: None,
            prefer: Preferences::default(),
            networks: Vec::new(),
            traits: BTreeMap::new(),
            min_platform: BTreeMap::new(),
            max_platform: BTreeMap::new(),
            volumes_from: Vec::new(),
            near: Vec::new(),
            far: Vec::new(),
            strict: false,
            exclude_cells: Vec::new(),
            tags: BTreeMap::new(),
            overcommit: BTreeMap::new(),
            objective: None,
            deadline: None,
            queue_timeout: None,
            run: None,
            health: None,
            ready: None,
        }
    }

    /// Returns what one instance uses of each resource; always one container.
    pub fn amounts(&self) -> Amounts {
        Amounts::from_fn(|resource| match resource {
            Resource::Memory => self.memory_mb,
            Resource::Disk => self.disk_mb,
            Resource::Containers => 1,
            Resource::Cpu => self.cpu_millis,
        })
    }

    /// Returns what a cell must have for one instance. A request without cpu fits even if the cell's cpu is
    /// overcommitted.
    pub fn needs(&self) -> Amounts {
        let mut needs = self.amounts();
        if self.cpu_millis == 0 {
            needs[Resource::Cpu] = Amounts::NO_NEED;
        }
        needs
    }

    /// Returns the blob that it is made from, as named among the cells' cached blobs: the one that it gives, or else
    /// the SHA-256 of its source.
    pub fn blob(&self) -> Option<&String> {
        let source = || Some(&self.run.as_ref()?.source.as_ref()?.sha256);
        self.source_blob.as_ref().or_else(source)
    }

    /// Returns whether none of its instances goes to the cell of this name.
    pub(crate) fn excludes(&self, cell: &str) -> bool {
        self.exclude_cells.iter().any(|name| name == cell)
    }

    /// Returns the form of what it runs, which decides the cells that it may go to.
    pub fn form(&self) -> Form {
        self.run.as_ref().map_or(Form::Command, Run::form)
    }

    /// Returns the jobs of this request, in the order of their indices (as given, or 0..instances).
    pub fn jobs(self: &Arc<Self>) -> Vec<Job> {
        let job = |index| Job {
            request: Arc::clone(self),
            index,
        };
        match &self.indices {
            Some(indices) => indices.iter().copied().map(job).collect(),
            None => (0..self.instances).map(job).collect(),
        }
    }

    /// Rejects an invalid request: bad names, negative or absurd sizes, too many instances, indices outside
    /// `0..instances`, texts and lists that are too long.
    pub fn check(&self) -> Result<(), Invalid> {
        check_name("app", &self.app)?;
        if !self.id.is_empty() {
            check_name("id", &self.id)?; // it is a token of the outcome's subject
        }
        let amounts = self.amounts();
        for resource in Resource::ALL {
            check_amount(resource.field(), amounts[resource])?;
        }
        for (name, amount) in &self.extra {
            if name.is_empty() {
                return Err(Invalid::new("extra", "\"\"", "resources that have a name"));
            }
            check_amount(&format!("extra.{name}"), *amount)?;
        }
        self.check_devices()?;
        if !(1..=MAX_INSTANCES).contains(&self.instances) {
            let expected = format!("a number from 1 to {MAX_INSTANCES}");
            return Err(Invalid::new("instances", self.instances, expected));
        }
        self.check_indices()?;
        for (field, list) in [
            ("placement_tags", self.placement_tags.len()),
            ("volume_drivers", self.volume_drivers.len()),
            ("volumes_from", self.volumes_from.len()),
            ("networks", self.networks.len()),
            ("near", self.near.len()),
            ("far", self.far.len()),
            ("exclude_cells", self.exclude_cells.len()),
            ("tags", self.tags.len()),
            ("traits", self.traits.len()),
            ("extra", self.extra.len()),
        ] {
            check_count(field, list, 64)?;
        }
        self.prefer.check()?;
        for (field, items) in [("near", &self.near), ("far", &self.far)] {
            for item in items {
                Item::check(field, item)?;
            }
        }
        for cell in &self.exclude_cells {
            check_name("exclude_cells", cell)?;
        }
        for (field, ratio) in &self.overcommit {
            if !ratio.is_finite() || *ratio < 0.0 {
                return Err(Invalid::new(
                    format!("overcommit.{field}"),
                    ratio,
                    "a ratio >= 0",
                ));
            }
        }
        self.check_texts()
    }

    fn check_devices(&self) -> Result<(), Invalid> {
        check_count("devices", self.devices.len(), MAX_DEVICE_SETS)?;
        for (name, need) in &self.devices {
            check_device_name("devices", name)?;
            let field = format!("devices.{name}");
            if self.extra.contains_key(name) {
                let expected = "another name than a resource of extra";
                return Err(Invalid::new(field, "a need of devices", expected));
            }
            need.check(&field)?;
        }
        Ok(())
    }

    fn check_indices(&self) -> Result<(), Invalid> {
        let Some(indices) = &self.indices else {
            return Ok(());
        };
        if indices.is_empty() {
            return Err(Invalid::new(
                "indices",
                "[]",
                "at least one index; leave the field out for all",
            ));
        }
        if let Some(index) = indices.iter().find(|i| **i >= self.instances) {
            let expected = format!("indices below instances ({})", self.instances);
            return Err(Invalid::new("indices", index, expected));
        }
        let distinct: std::collections::BTreeSet<_> = indices.iter().collect();
        if distinct.len() < indices.len() {
            return Err(Invalid::new(
                "indices",
                "a repeated index",
                "each index once",
            ));
        }
        Ok(())
    }

    fn check_texts(&self) -> Result<(), Invalid> {
        if let Some(objective) = &self.objective
            && objective.len() > 2048
        {
            return Err(Invalid::new(
                "objective",
                objective.len(),
                "at most 2048 bytes",
            ));
        }
        for (field, text) in [
            ("stack", &self.stack),
            ("owner", &self.owner),
            ("version", &self.version),
            ("source_blob", &self.source_blob),
        ] {
            if text.as_ref().is_some_and(|t| t.is_empty() || t.len() > 256) {
                let value = shorten(text.as_deref().unwrap_or_default());
                return Err(Invalid::new(field, value, "1 to 256 characters"));
            }
        }
        if let Some(text) = self.traceparent.as_deref().filter(|t| !is_traceparent(t)) {
            let expected = "a trace of the W3C: 00-<32 hex digits>-<16 hex digits>-<2 hex digits>";
            return Err(Invalid::new("traceparent", shorten(text), expected));
        }
        for (field, limits) in [
            ("min_platform", &self.min_platform),
            ("max_platform", &self.max_platform),
        ] {
            let unreadable = |(_, stamp): &(&String, &Stamp)| stamp.ms().is_none();
            if let Some((version, stamp)) = limits.iter().find(unreadable) {
                let field = format!("{field}.{version}");
                let expected = "a stamp such as \"20260301T000000Z\"";
                return Err(Invalid::new(field, shorten(stamp.as_str()), expected));
            }
        }
        self.check_health()?;
        match (self.form(), self.kind) {
            (Form::Droplet, Kind::Task) => {
                let expected = "lrp: a droplet runs until it is stopped";
                return Err(Invalid::new("kind", Kind::Task, expected));
            }
            (Form::Staging, Kind::Lrp) => {
                let expected = "task: staging ends by itself";
                return Err(Invalid::new("kind", Kind::Lrp, expected));
            }
            _ => {}
        }
        self.run.as_ref().map_or(Ok(()), Run::check)
    }

    fn check_health(&self) -> Result<(), Invalid> {
        let has_port = self.run.as_ref().is_none_or(Run::needs_port);
        for (field, check) in [("health", &self.health), ("ready", &self.ready)] {
            let Some(check) = check else {
                continue;
            };
            if self.kind == Kind::Task {
                let expected = "no such field for a task: it is healthy while it runs";
                return Err(Invalid::new(field, "a check", expected));
            }
            check.check(field, has_port)?;
        }
        Ok(())
    }
}

/// Returns whether a text has the form of a W3C `traceparent`.
pub fn is_traceparent(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([2, 32, 16, 2])
        && parts.iter().all(|part| part.bytes().all(hex))
        && parts[0] != "ff"
        && parts[1..3].iter().all(|id| id.bytes().any(|b| b != b'0'))
}

fn check_amount(field: &str, amount: i64) -> Result<(), Invalid> {
    if (0..=MAX_AMOUNT).contains(&amount) {
        return Ok(());
    }
    Err(Invalid::new(
        field,
        amount,
        format!("a number from 0 to {MAX_AMOUNT}"),
    ))
}

fn is_empty(prefer: &Preferences) -> bool {
    *prefer == Preferences::default()
}

fn one() -> u32 {
    1
}
