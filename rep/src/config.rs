//! The configuration of a cell.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use advertiser::Cadence;
use placement::{Attributes, Cell, Invalid, Resources, Span};
use serde::Deserialize;

/// The configuration of a rep. In a file, unknown fields are rejected.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepConfig {
    /// The cell's name: 1 to 128 of `A-Za-z0-9_-`, unique in the cluster.
    pub cell: String,
    /// Availability zone (default `default`).
    #[serde(default = "default_zone")]
    pub zone: String,
    /// Its index in its deployment (default 0).
    #[serde(default)]
    pub index: u32,
    /// The total resources, overcommit included.
    pub total: Resources,
    /// The attributes that operators set, except the zone.
    #[serde(default)]
    pub attributes: Attributes,
    /// The file that keeps changes made by operators while the cell runs (default: in the executor's `state_dir`;
    /// without that, changes are not kept).
    #[serde(default)]
    pub attributes_file: Option<PathBuf>,
    /// How often it advertises (default 5 s); at most half of `ttl`.
    #[serde(default = "seconds::<5>")]
    pub interval: Span,
    /// How long an advertisement is valid (default 15 s; at most 1 h). Auctioneers cut this to 1 min unless started
    /// with a larger `--max-ttl`.
    #[serde(default = "seconds::<15>")]
    pub ttl: Span,
    /// How often it publishes a heartbeat with all its instances (default 10 s).
    #[serde(default = "seconds::<10>")]
    pub heartbeat: Span,
    /// How long an instance may take to end after SIGTERM, before SIGKILL (default 10 s).
    #[serde(default = "seconds::<10>")]
    pub grace: Span,
    /// The deadline of a drain that does not give one (default 30 s).
    #[serde(default = "seconds::<30>")]
    pub drain_deadline: Span,
    /// What runs instances (default: processes).
    #[serde(default)]
    pub executor: ExecutorKind,
    /// The address of instances with a port (default `127.0.0.1`).
    #[serde(default = "default_address")]
    pub address: String,
    /// Whether to answer `$SRV.PING/INFO/STATS` (default true). Thousands of simulated cells in one process do without,
    /// because it takes nine subscriptions each.
    #[serde(default = "yes")]
    pub service: bool,
    /// Mixed with the cell's name for the jitter of its advertisements.
    #[serde(default)]
    pub seed: u64,
}

/// Which executor runs instances.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase", tag = "kind")]
pub enum ExecutorKind {
    /// One process per instance.
    Process(ProcessConfig),
    /// Simulated: nothing runs; for load tests.
    Simulated(SimulatedConfig),
}

/// Settings of the process executor.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessConfig {
    /// The user that all instances run as; only root may choose another one (default: as root, each instance gets one
    /// of `users`; otherwise the rep's own).
    pub run_as: Option<String>,
    /// The first and the last of the users, and groups of the same number, of which a rep that runs as root gives one
    /// to each instance (default 70000 to 79999).
    pub users: (u32, u32),
    /// Where instances get their directories (default: a directory of the rep's own below the system's temporary
    /// directory). Other users must be able to pass through it.
    pub state_dir: Option<PathBuf>,
    /// The directory of the files that requests may name as secrets (default: none, and instances with secrets are not
    /// accepted).
    pub secrets: Option<PathBuf>,
    /// Variables that tell instances their devices: the name of each and its value, in which `{gpu}` stands for the
    /// comma-separated numbers of the devices of the set `gpu` (default: none besides `GPU_DEVICES`).
    pub device_env: BTreeMap<String, String>,
    /// How much of the sources of instances (`run.source`) is kept below `state_dir`, in MiB (default 1,024). With 0,
    /// or without `state_dir`, nothing is kept.
    pub source_cache_mb: u64,
    /// How long fetching and unpacking an instance's source may take (default 2 min).
    pub source_timeout: Span,
    /// A file with certificate authorities (PEM, at most 32 KiB) that are trusted for servers of sources, in addition
    /// to those that the system trusts (default: none). It is read for each fetch.
    pub source_ca: Option<PathBuf>,
    /// The shell script that starts a droplet once its archive is unpacked (default: one that runs the start command,
    /// or `startup`). It gets `DROPLET_COMMAND` and the variables that a DEA sets.
    pub droplet_script: Option<PathBuf>,
    /// The shell script that stages an app (default: none, and the cell stages nothing). With it, the cell has the
    /// attribute `staging`.
    pub staging_script: Option<PathBuf>,
    /// The ports for instances that ask for one, first and last (default 61001 to 65535, outside the ranges from which
    /// systems choose ports themselves).
    pub ports: (u16, u16),
    /// The program that supervises an instance when called with `supervise` (default:
    /// `vendue-supervisor` beside `vendue`, else this one).
    #[serde(skip)]
    pub supervisor: Option<PathBuf>,
    /// How memory limits are enforced (default: the best way that works).
    pub memory: MemoryLimit,
    /// The memory limit of instances whose request has `memory_mb` 0 (default 64 MiB).
    pub memory_if_zero: IfZero,
    /// The disk limit of instances whose request has `disk_mb` 0 (default 64 MiB).
    pub disk_if_zero: IfZero,
    /// The most processes and threads of an instance (default 1,024).
    pub max_processes: u32,
    /// The most open files of each process of an instance (default 4,096).
    pub max_files: u32,
}

/// The limit of an instance that asks for none of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IfZero {
    /// The instance is not accepted.
    Refuse,
    /// The instance has no limit.
    Unlimited,
    /// The instance has this limit, in MiB.
    #[serde(untagged)]
    Limit(u32),
}

impl IfZero {
    /// Returns the limit, in MiB, of an instance that asks for `asked_mb`; 0 means no limit.
    pub(crate) fn limit_mb(self, asked_mb: i64) -> u64 {
        match (u64::try_from(asked_mb), self) {
            (Ok(asked_mb @ 1..), _) => asked_mb,
            (_, Self::Limit(mb)) => u64::from(mb),
            (_, Self::Refuse | Self::Unlimited) => 0,
        }
    }
}

/// How memory limits are enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemoryLimit {
    /// cgroup v2, else v1, else by polling.
    #[default]
    Auto,
    /// By polling: the supervisor checks the resident memory of the instance's processes twice a second.
    Watch,
    /// Not at all.
    Off,
}

/// Settings of simulated instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimulatedConfig {
    /// How long an instance takes to start (default: no time).
    pub start: Span,
    /// How long an instance runs before it passes its checks (default: no time).
    pub healthy: Span,
    /// How long a task takes; if absent, it never ends.
    pub task: Option<Span>,
    /// How long an LRP runs before it ends with exit code 0; if absent, it never ends.
    pub lrp: Option<Span>,
    /// How many apps, named `held-0` and so on, have an instance of 1 MiB on the cell from the start.
    pub apps: usize,
}

impl RepConfig {
    /// Creates the configuration of a cell with this name, zone and size, and defaults for everything else.
    pub fn new(cell: impl Into<String>, zone: impl Into<String>, total: Resources) -> Self {
        Self {
            cell: cell.into(),
            zone: zone.into(),
            index: 0,
            total,
            attributes: Attributes::default(),
            attributes_file: None,
            interval: seconds::<5>(),
            ttl: seconds::<15>(),
            heartbeat: seconds::<10>(),
            grace: seconds::<10>(),
            drain_deadline: seconds::<30>(),
            executor: ExecutorKind::default(),
            address: default_address(),
            service: true,
            seed: 0,
        }
    }

    /// Returns the directory for what survives a restart; none if it is not configured.
    pub(crate) fn state_dir(&self) -> Option<&Path> {
        match &self.executor {
            ExecutorKind::Process(process) => process.state_dir.as_deref(),
            ExecutorKind::Simulated(_) => None,
        }
    }

    /// Returns the configured attributes, including the zone and whether the cell stages apps.
    pub(crate) fn configured(&self) -> Attributes {
        Attributes {
            zone: self.zone.clone(),
            staging: self.attributes.staging || self.has_staging_script(),
            ..self.attributes.clone()
        }
    }

    /// Rejects the attribute `staging` for a cell without a staging script.
    pub(crate) fn check_staging(
        &self,
        field: &str,
        attributes: &Attributes,
    ) -> Result<(), Invalid> {
        let is_simulated = matches!(self.executor, ExecutorKind::Simulated(_));
        if attributes.staging && !is_simulated && !self.has_staging_script() {
            let expected = "a staging-script, with which the cell has it by itself";
            return Err(Invalid::new(field, true, expected));
        }
        Ok(())
    }

    fn has_staging_script(&self) -> bool {
        let ExecutorKind::Process(process) = &self.executor else {
            return false;
        };
        process.staging_script.is_some()
    }

    /// Returns the empty cell of this name and size, with these attributes.
    pub(crate) fn described(&self, index: u32, attributes: Attributes) -> Cell {
        Cell {
            index,
            attributes: attributes.into(),
            ..Cell::new(&self.cell, self.total.clone())
        }
    }

    /// Returns the empty cell and its cadence; an error if one of them is invalid.
    pub(crate) fn check(&self) -> Result<(Cell, Cadence), Invalid> {
        let no_zone = Attributes::default().zone;
        if self.attributes.zone != no_zone {
            let expected = "zone as a key at the top level";
            return Err(Invalid::new(
                "attributes.zone",
                &self.attributes.zone,
                expected,
            ));
        }
        self.check_staging("attributes.staging", &self.attributes)?;
        let cell = self.described(self.index, self.configured());
        cell.check()?;
        let containers = self.total.containers.unwrap_or(1);
        for (field, amount) in [
            ("total.memory_mb", self.total.memory_mb),
            ("total.containers", containers),
        ] {
            if amount < 1 {
                return Err(Invalid::new(
                    field,
                    amount,
                    "at least 1: the cell would take nothing",
                ));
            }
        }
        if self.address.is_empty() || self.address.contains(char::is_whitespace) {
            let value = format!("{:?}", self.address);
            return Err(Invalid::new(
                "address",
                value,
                "a host name or an IP address",
            ));
        }
        if self.heartbeat.0 < Duration::from_millis(10) {
            let value = format!("{:?}", self.heartbeat.0);
            return Err(Invalid::new("heartbeat", value, "at least 10ms"));
        }
        if let ExecutorKind::Process(process) = &self.executor {
            process.check()?;
            check_device_env(&process.device_env, &self.total)?;
        }
        if self.ttl.0 > MAX_TTL {
            // no auctioneer can be configured to believe more
            return Err(Invalid::new("ttl", self.ttl, "at most 1h"));
        }
        let cadence = Cadence::new(self.interval, self.ttl)?;
        Ok((cell, cadence))
    }

    /// Returns a warning for operators if auctioneers cut the ttl.
    pub(crate) fn ttl_warning(&self) -> Option<String> {
        (self.ttl.0 > USUAL_MAX_TTL).then(|| {
            format!(
                "ttl: auctioneers cut {} to 1m and may lose the cell; expected at most 1m, or a --max-ttl of each \
                 auctioneer that is not shorter",
                self.ttl
            )
        })
    }
}

/// The longest ttl, which is also the maximum of an auctioneer's `--max-ttl`.
const MAX_TTL: Duration = Duration::from_secs(3_600);
/// The longest ttl that an auctioneer believes by default.
const USUAL_MAX_TTL: Duration = Duration::from_secs(60);

impl Default for ExecutorKind {
    fn default() -> Self {
        Self::Process(ProcessConfig::default())
    }
}

/// Users with a special meaning in many programs: nobody, and "no user" in 16 and 32 bits.
const NO_USERS: [u32; 3] = [65_534, 65_535, u32::MAX];

/// The largest cache of sources, in MiB.
const MAX_CACHE_MB: u64 = 1 << 30;
/// Bounds of `source_timeout`.
const MIN_SOURCE_TIMEOUT: Duration = Duration::from_millis(100);
const MAX_SOURCE_TIMEOUT: Duration = Duration::from_secs(86_400);

/// Rejects variable names that no environment can have, and templates that do not name a set of the cell.
fn check_device_env(
    templates: &BTreeMap<String, String>,
    total: &Resources,
) -> Result<(), Invalid> {
    let field = "executor.device_env";
    for (name, template) in templates {
        if name.is_empty() || name.contains(['=', '\0']) || template.contains('\0') {
            let expected = "names of at least one character, without = and NUL";
            return Err(Invalid::new(field, format!("{name:?}"), expected));
        }
        let names_one = |set: &String| template.contains(&format!("{{{set}}}"));
        if !total.devices.keys().any(names_one) {
            let sets: Vec<String> = total
                .devices
                .keys()
                .map(|set| format!("{{{set}}}"))
                .collect();
            let expected = format!(
                "a text with one of the cell's devices ({})",
                sets.join(", ")
            );
            return Err(Invalid::new(field, format!("{name}={template}"), expected));
        }
    }
    Ok(())
}

impl ProcessConfig {
    fn check(&self) -> Result<(), Invalid> {
        let range = |value: &dyn std::fmt::Debug| format!("{value:?}");
        if self.ports.0 > self.ports.1 {
            let value = range(&self.ports);
            return Err(Invalid::new("executor.ports", value, "first <= last"));
        }
        let (first, last) = self.users;
        if first == 0 || first > last || NO_USERS.iter().any(|no| (first..=last).contains(no)) {
            let expected = "first <= last, without 0 (root), 65534 (nobody), 65535 and 4294967295";
            return Err(Invalid::new("executor.users", range(&self.users), expected));
        }
        for (field, value) in [
            ("executor.memory_if_zero", self.memory_if_zero),
            ("executor.disk_if_zero", self.disk_if_zero),
        ] {
            if value == IfZero::Limit(0) {
                let expected = "a limit of at least 1 MiB, refuse or unlimited";
                return Err(Invalid::new(field, 0, expected));
            }
        }
        if self.source_cache_mb > MAX_CACHE_MB {
            let expected = format!("at most {MAX_CACHE_MB} MiB");
            let value = self.source_cache_mb;
            return Err(Invalid::new("executor.source_cache_mb", value, expected));
        }
        if !(MIN_SOURCE_TIMEOUT..=MAX_SOURCE_TIMEOUT).contains(&self.source_timeout.0) {
            let value = self.source_timeout;
            return Err(Invalid::new(
                "executor.source_timeout",
                value,
                "100ms to 24h",
            ));
        }
        for (field, value, least) in [
            ("executor.max_processes", self.max_processes, 1),
            ("executor.max_files", self.max_files, 16),
        ] {
            if value < least {
                return Err(Invalid::new(field, value, format!("at least {least}")));
            }
        }
        Ok(())
    }
}

impl Default for ProcessConfig {
    fn default() -> Self {
        Self {
            run_as: None,
            users: (70_000, 79_999),
            state_dir: None,
            secrets: None,
            device_env: BTreeMap::new(),
            source_cache_mb: 1_024,
            source_timeout: seconds::<120>(),
            source_ca: None,
            droplet_script: None,
            staging_script: None,
            ports: (61_001, 65_535),
            supervisor: None,
            memory: MemoryLimit::Auto,
            memory_if_zero: IfZero::Limit(64),
            disk_if_zero: IfZero::Limit(64),
            max_processes: 1_024,
            max_files: 4_096,
        }
    }
}

fn seconds<const S: u64>() -> Span {
    Span(Duration::from_secs(S))
}
fn default_zone() -> String {
    "default".into()
}
fn default_address() -> String {
    "127.0.0.1".into()
}
fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests;
