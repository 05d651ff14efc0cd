//! The settings of a rep, and the resulting configuration.

use std::path::PathBuf;

use placement::{Resources, Span};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use shared::size::parse_mib;
use toml::{Table, Value};

use crate::{
    commands::{devices, run::pair},
    context::Usage,
};

/// The settings of a rep: one field is the flag, its help, and the key in the file.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RepSettings {
    /// Cell name, unique in the cluster
    #[arg(long, env = "VENDUE_CELL", value_name = "NAME")]
    pub(super) cell: Option<String>,
    /// Availability zone [default: default]
    #[arg(long, env = "VENDUE_ZONE", value_name = "NAME")]
    pub(super) zone: Option<String>,
    /// Memory to offer: MiB, or with a unit such as 512M or 64G
    #[arg(long, env = "VENDUE_MEMORY", value_name = "SIZE", value_parser = parse_mib)]
    #[serde(deserialize_with = "size")]
    pub(super) memory: Option<i64>,
    /// Disk to offer: MiB, or with a unit [default: unlimited]
    #[arg(long, env = "VENDUE_DISK", value_name = "SIZE", value_parser = parse_mib)]
    #[serde(deserialize_with = "size")]
    pub(super) disk: Option<i64>,
    /// Number of instances to accept [default: unlimited]
    #[arg(long, env = "VENDUE_CONTAINERS", value_name = "N")]
    pub(super) containers: Option<i64>,
    /// CPU to offer, thousandths of a core; not enforced [default: 0]
    #[arg(long, env = "VENDUE_CPU", value_name = "MILLIS")]
    pub(super) cpu: Option<i64>,
    /// Named resource to offer, such as gpu=4; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = named_amount)]
    #[serde(with = "pairs", skip_serializing_if = "Vec::is_empty")]
    pub(super) extra: Vec<(String, i64)>,
    /// Set of equal devices to offer, such as gpu=8x1000:V100M32 (8 of 1000 each); may be repeated
    #[arg(long, value_name = "NAME=NxEACH[:MODEL]", value_parser = devices::set)]
    #[serde(with = "device_sets", skip_serializing_if = "Vec::is_empty")]
    pub(super) devices: Vec<(String, placement::DeviceSet)>,
    /// Variable that tells instances their devices, such as CUDA_VISIBLE_DEVICES={gpu}; may be repeated
    #[arg(long, value_name = "VARIABLE=TEMPLATE", value_parser = pair)]
    #[serde(with = "pairs", skip_serializing_if = "Vec::is_empty")]
    pub(super) device_env: Vec<(String, String)>,
    /// Stack to offer; may be repeated
    #[arg(long, value_name = "STACK")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) stack: Vec<String>,
    /// Placement tag: only work that asks for it is accepted; may be repeated
    #[arg(long, value_name = "TAG")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) placement_tag: Vec<String>,
    /// Rack of the machine
    #[arg(long, value_name = "NAME")]
    pub(super) rack: Option<String>,
    /// File that keeps what `vendue cells set` changes over a restart [default: in --state-dir]
    #[arg(
        long,
        env = "VENDUE_ATTRIBUTES",
        value_name = "FILE",
        alias = "attributes"
    )]
    pub(super) attributes_file: Option<PathBuf>,
    /// Address at which instances with a port can be reached [default: 127.0.0.1]
    #[arg(long, env = "VENDUE_ADDRESS", value_name = "ADDRESS")]
    pub(super) address: Option<String>,
    /// First and last port for instances that ask for one [default: 61001-65535]
    #[arg(long, value_name = "FIRST-LAST")]
    pub(super) ports: Option<String>,
    /// Time between two advertisements, at most half of --ttl [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(super) interval: Option<Span>,
    /// How long an advertisement is valid, at most 1h; auctioneers cut what is longer than their --max-ttl [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(super) ttl: Option<Span>,
    /// Time between two lists of all instances for observers [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(super) heartbeat: Option<Span>,
    /// How long an instance may take to end after SIGTERM, before SIGKILL [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(super) grace: Option<Span>,
    /// How long instances go on in a drain that names no deadline [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(super) drain_deadline: Option<Span>,
    /// User that all instances run as; only root may name one [default: one of --users for each
    /// instance when the rep is root, else its own]
    #[arg(long, value_name = "USER")]
    pub(super) run_as: Option<String>,
    /// Users and groups that a rep which is root gives to instances, by number; nothing else may use
    /// them [default: 70000-79999]
    #[arg(long, value_name = "FIRST-LAST")]
    pub(super) users: Option<String>,
    /// Directory for the directories of instances [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub(super) state_dir: Option<PathBuf>,
    /// Directory with files that requests may name as secrets (run.secrets) [default: none]
    #[arg(long, value_name = "DIR")]
    pub(super) secrets: Option<PathBuf>,
    /// How much of what instances are made from (run.source) is kept in --state-dir; 0 keeps nothing [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_mib)]
    #[serde(deserialize_with = "size")]
    pub(super) source_cache: Option<i64>,
    /// How long an instance's source may take until it is fetched and unpacked [default: 2m]
    #[arg(long, value_name = "TIME", value_parser = span)]
    pub(super) source_timeout: Option<Span>,
    /// File with authorities (PEM) that servers of sources may be of, beside those that the system trusts [default: none]
    #[arg(long, value_name = "FILE")]
    pub(super) source_ca: Option<PathBuf>,
    /// Shell script that starts an unpacked droplet [default: one that runs its start command, or its script `startup`]
    #[arg(long, value_name = "FILE")]
    pub(super) droplet_script: Option<PathBuf>,
    /// Shell script that stages an app (run.staging): makes a droplet of it [default: none, and the cell stages nothing]
    #[arg(long, value_name = "FILE")]
    pub(super) staging_script: Option<PathBuf>,
    /// How memory limits are enforced: auto (cgroup, else watch), watch (polling) or off
    /// [default: auto]
    #[arg(long, value_name = "HOW", value_parser = ["auto", "watch", "off"])]
    pub(super) memory_limit: Option<String>,
    /// Memory limit of instances that ask for 0: a size, unlimited, or refuse [default: 64M]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "text_or_number")]
    pub(super) memory_if_zero: Option<String>,
    /// Disk limit of instances that ask for 0: a size, unlimited, or refuse [default: 64M]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "text_or_number")]
    pub(super) disk_if_zero: Option<String>,
    /// Most processes and threads of an instance [default: 1024]
    #[arg(long, value_name = "N")]
    pub(super) max_processes: Option<u32>,
    /// Most open files of each process of an instance [default: 4096]
    #[arg(long, value_name = "N")]
    pub(super) max_files: Option<u32>,
    /// Run nothing: accept work and report it as running, for load tests [default: false]
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) simulated: bool,
    #[arg(skip)]
    #[serde(skip_serializing_if = "Table::is_empty")]
    pub(super) attributes: Table,
}

impl RepSettings {
    pub(super) fn config(mut self) -> anyhow::Result<rep::RepConfig> {
        let processes = self.take_processes()?;
        let cell = self.cell.ok_or_else(|| {
            Usage::because("a cell needs a name: --cell NAME, or `cell` in the file of --config")
        })?;
        let memory = self.memory.ok_or_else(|| {
            Usage::because(
                "a cell needs memory to offer: --memory SIZE, or `memory` in the file of --config",
            )
        })?;
        let mut total = Table::new();
        let amounts = [
            ("memory_mb", Some(memory)),
            ("disk_mb", self.disk),
            ("containers", self.containers),
            ("cpu_millis", self.cpu),
        ];
        for (name, amount) in amounts {
            total.extend(amount.map(|amount| (name.to_owned(), Value::from(amount))));
        }
        let extra = self.extra.into_iter().map(|(n, v)| (n, Value::from(v)));
        total.insert("extra".into(), Value::Table(extra.collect()));
        let zone = self.zone.unwrap_or_else(|| String::from("default"));
        let mut total: Resources = from_table("total", total)?;
        total.devices = self.devices.into_iter().collect();
        let mut config = rep::RepConfig::new(cell, zone, total);

        let mut attributes = self.attributes;
        let lists = [
            ("stacks", self.stack),
            ("placement_tags", self.placement_tag),
        ];
        for (name, list) in lists {
            if !list.is_empty() {
                attributes.insert(name.into(), list.into());
            }
        }
        attributes.extend(self.rack.map(|rack| ("rack".to_owned(), rack.into())));
        // the cell's own number, which is not part of the attributes that cells share
        if let Some(index) = attributes.remove("index") {
            let number = index.as_integer().and_then(|n| u32::try_from(n).ok());
            let wrong = || format!("attributes.index: {index} is not allowed; expected 0 or more");
            config.index = number.ok_or_else(|| Usage::because(wrong()))?;
        }
        config.attributes = from_table("attributes", attributes)?;
        config.attributes_file = self.attributes_file;
        set(&mut config.address, self.address);
        set(&mut config.interval, self.interval);
        set(&mut config.ttl, self.ttl);
        set(&mut config.heartbeat, self.heartbeat);
        set(&mut config.grace, self.grace);
        set(&mut config.drain_deadline, self.drain_deadline);
        config.executor = if self.simulated {
            rep::ExecutorKind::Simulated(rep::SimulatedConfig::default())
        } else {
            rep::ExecutorKind::Process(processes)
        };
        Ok(config)
    }

    /// Returns how instances are run, removing the settings for it.
    fn take_processes(&mut self) -> anyhow::Result<rep::ProcessConfig> {
        let mut process = rep::ProcessConfig {
            run_as: self.run_as.take(),
            state_dir: self.state_dir.take(),
            secrets: self.secrets.take(),
            device_env: std::mem::take(&mut self.device_env).into_iter().collect(),
            ..rep::ProcessConfig::default()
        };
        let ports = self.ports.as_deref();
        let ports = ports.map(|text| range("ports", text, "61001-65535"));
        set(&mut process.ports, ports.transpose()?);
        let users = self.users.as_deref();
        let users = users.map(|text| range("users", text, "70000-79999"));
        set(&mut process.users, users.transpose()?);
        if let Some(how) = self.memory_limit.take() {
            let how = rep::MemoryLimit::deserialize(Value::String(how));
            process.memory = how.map_err(|e| Usage::because(format_args!("memory-limit: {e}")))?;
        }
        let memory = self.memory_if_zero.as_deref();
        let memory = memory.map(|text| if_zero("memory-if-zero", text));
        set(&mut process.memory_if_zero, memory.transpose()?);
        let disk = self.disk_if_zero.as_deref();
        let disk = disk.map(|text| if_zero("disk-if-zero", text));
        set(&mut process.disk_if_zero, disk.transpose()?);
        let cache = self.source_cache.and_then(|mib| u64::try_from(mib).ok());
        set(&mut process.source_cache_mb, cache);
        set(&mut process.source_timeout, self.source_timeout);
        process.source_ca = self.source_ca.take();
        process.droplet_script.clone_from(&self.droplet_script);
        process.staging_script.clone_from(&self.staging_script);
        set(&mut process.max_processes, self.max_processes);
        set(&mut process.max_files, self.max_files);
        Ok(process)
    }
}

fn set<T>(field: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *field = value;
    }
}

fn from_table<T: serde::de::DeserializeOwned>(what: &str, table: Table) -> anyhow::Result<T> {
    T::deserialize(table).map_err(|e| {
        let text = e.to_string();
        Usage::because(format_args!("{what}: {}", text.trim_end()))
    })
}

fn range<N: std::str::FromStr + PartialOrd>(
    name: &str,
    text: &str,
    such_as: &str,
) -> anyhow::Result<(N, N)> {
    let range = text
        .split_once('-')
        .and_then(|(first, last)| Some((first.trim().parse().ok()?, last.trim().parse().ok()?)));
    range.filter(|(first, last)| first <= last).ok_or_else(|| {
        Usage::because(format_args!(
            "{name}: {text:?} is not a range; expected FIRST-LAST, such as {such_as}"
        ))
    })
}

/// Parses the limit for an instance that asks for nothing.
fn if_zero(name: &str, text: &str) -> anyhow::Result<rep::IfZero> {
    let limit = || {
        let mib = parse_mib(text).ok().and_then(|mib| u32::try_from(mib).ok());
        mib.filter(|mib| *mib > 0).map(rep::IfZero::Limit)
    };
    let found = match text {
        "refuse" => Some(rep::IfZero::Refuse),
        "unlimited" => Some(rep::IfZero::Unlimited),
        _ => limit(),
    };
    found.ok_or_else(|| {
        Usage::because(format_args!(
            "{name}: {text:?} is not allowed; expected a size of at least 1M, unlimited or refuse"
        ))
    })
}

pub(crate) fn span(text: &str) -> Result<Span, humantime::DurationError> {
    humantime::parse_duration(text).map(Span)
}

fn named_amount(text: &str) -> Result<(String, i64), String> {
    let (name, amount) = text.split_once('=').ok_or("expected NAME=N")?;
    let amount = amount.parse().map_err(|_| "expected a number after =")?;
    Ok((name.to_owned(), amount))
}

/// Reads a size: MiB as a number, or a text with a unit.
pub(crate) fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Integer(mib) if mib >= 0 => Ok(Some(mib)),
        Value::String(text) => parse_mib(&text).map(Some).map_err(D::Error::custom),
        other => Err(D::Error::custom(format_args!(
            "{other} is not a size; expected a number of MiB such as 512, or one with a unit such as \
             \"64M\""
        ))),
    }
}

/// Reads a text or, in a file, also a number.
fn text_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::String(text) => Ok(Some(text)),
        Value::Integer(number) => Ok(Some(number.to_string())),
        other => Err(D::Error::custom(format_args!(
            "{other} is not allowed; expected a size such as \"64M\", unlimited or refuse"
        ))),
    }
}

/// Named values: a table in the file, pairs as flags.
mod pairs {
    use std::collections::BTreeMap;

    use super::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        pairs: &[(String, T)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let table: BTreeMap<&String, &T> =
            pairs.iter().map(|(name, value)| (name, value)).collect();
        table.serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, T)>, D::Error> {
        let table = BTreeMap::<String, T>::deserialize(deserializer)?;
        Ok(table.into_iter().collect())
    }
}

/// Sets of devices: like [`pairs`], with only the keys that a cell's configuration has.
mod device_sets {
    use std::collections::BTreeMap;

    use placement::DeviceSet;

    pub(super) use super::pairs::serialize;
    use super::{Deserialize, Deserializer};

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Set {
        count: u32,
        each: i64,
        model: Option<String>,
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, DeviceSet)>, D::Error> {
        let table = BTreeMap::<String, Set>::deserialize(deserializer)?;
        let plain = |(name, set): (String, Set)| {
            let mut devices = DeviceSet::new(set.count, set.each);
            devices.model = set.model;
            (name, devices)
        };
        Ok(table.into_iter().map(plain).collect())
    }
}
