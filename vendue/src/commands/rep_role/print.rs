//! Prints a rep's settings as a complete file with comments.

use std::fmt::Write;

use clap::Args;
use placement::DeviceSet;
use toml::Table;

use super::settings::RepSettings;
use crate::{commands::connection::Connection, context::Global};

impl RepSettings {
    /// Returns every setting, with its default if it has one, else an example.
    pub(super) fn example() -> Self {
        let defaults = rep::RepConfig::new("cell-a", "default", placement::Resources::default());
        let process = rep::ProcessConfig::default();
        let range = |first: u32, last: u32| Some(format!("{first}-{last}"));
        let list = |item: &str| vec![item.to_owned()];
        Self {
            cell: Some(defaults.cell),
            zone: Some(defaults.zone),
            memory: Some(4_096),
            disk: Some(20_480),
            containers: Some(100),
            cpu: Some(4_000),
            extra: vec![("licence".into(), 4)],
            devices: vec![("gpu".into(), DeviceSet::new(8, 1_000))],
            device_env: vec![("CUDA_VISIBLE_DEVICES".into(), "{gpu}".into())],
            stack: list("docker"),
            placement_tag: list("isolated"),
            rack: Some("r1".into()),
            attributes_file: Some("/var/lib/vendue/attributes.json".into()),
            address: Some(defaults.address),
            ports: range(process.ports.0.into(), process.ports.1.into()),
            interval: Some(defaults.interval),
            ttl: Some(defaults.ttl),
            heartbeat: Some(defaults.heartbeat),
            grace: Some(defaults.grace),
            drain_deadline: Some(defaults.drain_deadline),
            run_as: Some("nobody".into()),
            users: range(process.users.0, process.users.1),
            state_dir: Some("/var/lib/vendue".into()),
            secrets: Some("/etc/vendue/secrets".into()),
            source_cache: i64::try_from(process.source_cache_mb).ok(),
            source_timeout: Some(process.source_timeout),
            source_ca: Some("/etc/vendue/ca.pem".into()),
            droplet_script: Some("/etc/vendue/droplet.sh".into()),
            staging_script: Some("/etc/vendue/staging.sh".into()),
            memory_limit: Some("auto".into()),
            memory_if_zero: Some("64M".into()),
            disk_if_zero: Some("64M".into()),
            max_processes: Some(process.max_processes),
            max_files: Some(process.max_files),
            simulated: true,
            attributes: Table::new(),
        }
    }

    /// Returns a complete file: the settings that are set, and every other key in a comment.
    pub(super) fn print(&self, connection: &Connection) -> anyhow::Result<String> {
        let mut given = Table::try_from(self.clone())?;
        given.extend(connection.table()?);
        let mut examples = Table::try_from(Self::example())?;
        let of_connection = Connection::example().table()?;
        let mut text = String::from(
            "# Settings of a cell: vendue rep --config FILE\n\
             # Each key is the flag of the same name; the flag replaces what stands here.\n\
             # Lines that begin with `# ` and a key show its default, or an example.\n",
        );
        let flags = Self::augment_args(clap::Command::new("rep"));
        let everywhere = Global::augment_args(clap::Command::new("rep"));
        let everywhere = everywhere.get_arguments();
        let in_file = everywhere.filter(|arg| {
            arg.get_long()
                .is_some_and(|key| of_connection.contains_key(key))
        });
        examples.extend(of_connection.clone());
        for arg in flags.get_arguments().chain(in_file) {
            let Some(key) = arg.get_long() else {
                continue;
            };
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            write!(text, "\n# {}\n", help.replace('\n', "\n# "))?;
            match (given.get(key), examples.get(key)) {
                (Some(value), _) => writeln!(text, "{key} = {value}")?,
                (None, Some(example)) => writeln!(text, "# {key} = {example}")?,
                (None, None) => {}
            }
        }
        text.push_str(
            "\n# What else operators state about the cell; `vendue cells set` changes it while the \
             cell runs.\n",
        );
        let own = if self.attributes.is_empty() { "# " } else { "" };
        writeln!(text, "{own}[attributes]")?;
        for (key, value) in &self.attributes {
            writeln!(text, "{key} = {value}")?;
        }
        let mut known = Table::try_from(placement::Attributes::default())?;
        known.remove("zone"); // already printed as a key of its own
        known.insert("index".into(), 0.into());
        for (key, value) in known {
            if !self.attributes.contains_key(&key) {
                writeln!(text, "# {key} = {value}")?;
            }
        }
        Ok(text)
    }
}
