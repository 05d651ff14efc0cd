//! Running a rep: its settings, from flags and from a TOML file with the same names, and its program.

use std::{fmt::Write, path::PathBuf};

use anyhow::Context;
use clap::Args;
use placement::Span;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use shared::{Subjects, nats::NatsOptions, shutdown, size::parse_mib};
use toml::{Table, Value};

use crate::{
    cluster::{connect, nats_options, short_name},
    context::{Exit, Global, Usage},
    output,
};

/// What a rep is started with.
#[derive(Debug, clap::Args)]
pub(crate) struct RepArgs {
    /// TOML file with settings named like these flags; flags replace what is in it
    #[arg(long, env = "VENDUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the settings as a complete commented file for --config, and exit
    #[arg(long)]
    print_config: bool,
    #[command(flatten)]
    settings: RepSettings,
}

/// The settings of a rep: one field is the flag, its help, and the key in the file.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct RepSettings {
    /// Cell name, unique in the cluster
    #[arg(long, env = "VENDUE_CELL", value_name = "NAME")]
    cell: Option<String>,
    /// Availability zone [default: default]
    #[arg(long, env = "VENDUE_ZONE", value_name = "NAME")]
    zone: Option<String>,
    /// Memory to offer: MiB, or with a unit such as 512M or 64G
    #[arg(long, env = "VENDUE_MEMORY", value_name = "SIZE", value_parser = parse_mib)]
    #[serde(deserialize_with = "size")]
    memory: Option<i64>,
    /// Disk to offer: MiB, or with a unit; not enforced [default: unlimited]
    #[arg(long, env = "VENDUE_DISK", value_name = "SIZE", value_parser = parse_mib)]
    #[serde(deserialize_with = "size")]
    disk: Option<i64>,
    /// Number of instances to accept [default: unlimited]
    #[arg(long, env = "VENDUE_CONTAINERS", value_name = "N")]
    containers: Option<i64>,
    /// CPU to offer, thousandths of a core; not enforced [default: 0]
    #[arg(long, env = "VENDUE_CPU", value_name = "MILLIS")]
    cpu: Option<i64>,
    /// Named resource to offer, such as gpu=4; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = named_amount)]
    #[serde(with = "amounts", skip_serializing_if = "Vec::is_empty")]
    extra: Vec<(String, i64)>,
    /// Stack to offer; may be repeated
    #[arg(long, value_name = "STACK")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stack: Vec<String>,
    /// Placement tag: only work that asks for it is accepted; may be repeated
    #[arg(long, value_name = "TAG")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    placement_tag: Vec<String>,
    /// Rack of the machine
    #[arg(long, value_name = "NAME")]
    rack: Option<String>,
    /// File that keeps what `vendue cells set` changes over a restart [default: in --state-dir]
    #[arg(
        long,
        env = "VENDUE_ATTRIBUTES",
        value_name = "FILE",
        alias = "attributes"
    )]
    attributes_file: Option<PathBuf>,
    /// Address at which instances with a port can be reached [default: 127.0.0.1]
    #[arg(long, env = "VENDUE_ADDRESS", value_name = "ADDRESS")]
    address: Option<String>,
    /// First and last port for instances that ask for one [default: 61001-65535]
    #[arg(long, value_name = "FIRST-LAST")]
    ports: Option<String>,
    /// Time between two advertisements, at most half of --ttl [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    interval: Option<Span>,
    /// How long an advertisement is valid [default: 15s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    ttl: Option<Span>,
    /// Time between two lists of all instances for observers [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    heartbeat: Option<Span>,
    /// How long an instance may take to end after SIGTERM, before SIGKILL [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    grace: Option<Span>,
    /// How long instances go on in a drain that names no deadline [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = span)]
    drain_deadline: Option<Span>,
    /// User that instances run as; only root may name one [default: nobody when the rep is root]
    #[arg(long, value_name = "USER")]
    run_as: Option<String>,
    /// Directory for the directories of instances [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// How memory limits are enforced: auto (cgroup, else watch), watch (polling) or off
    /// [default: auto]
    #[arg(long, value_name = "HOW", value_parser = ["auto", "watch", "off"])]
    memory_limit: Option<String>,
    /// Run nothing: accept work and report it as running, for load tests [default: false]
    #[arg(long)]
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    simulated: bool,
    #[arg(skip)]
    nats: Option<String>,
    #[arg(skip)]
    prefix: Option<String>,
    #[arg(skip)]
    #[serde(skip_serializing_if = "Table::is_empty")]
    attributes: Table,
}

impl RepArgs {
    /// The file with the flags over it.
    fn merged(&self) -> anyhow::Result<RepSettings> {
        let file = match &self.config {
            None => RepSettings::default(),
            Some(file) => read(file)?,
        };
        let mut table = Table::try_from(file)?;
        table.extend(Table::try_from(self.settings.clone())?);
        Ok(RepSettings::deserialize(table)?)
    }
}

fn read(file: &std::path::Path) -> anyhow::Result<RepSettings> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string());
    let text = text.map_err(|e| Usage::because(format_args!("{e:#}")))?;
    let settings = toml::from_str(&text).map_err(|e| {
        Usage::because(format_args!(
            "{}: {}",
            file.display(),
            e.to_string().trim_end()
        ))
    })?;
    Ok(settings)
}

impl RepSettings {
    fn config(self) -> anyhow::Result<rep::RepConfig> {
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
        let mut config = rep::RepConfig::new(cell, zone, from_table("total", total)?);

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
        // the cell's own number, which attributes that cells share do not hold
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
            let mut process = rep::ProcessConfig {
                run_as: self.run_as,
                state_dir: self.state_dir,
                ..rep::ProcessConfig::default()
            };
            set(
                &mut process.ports,
                self.ports.as_deref().map(ports).transpose()?,
            );
            if let Some(how) = self.memory_limit {
                let how = rep::MemoryLimit::deserialize(Value::String(how));
                process.memory =
                    how.map_err(|e| Usage::because(format_args!("memory-limit: {e}")))?;
            }
            rep::ExecutorKind::Process(process)
        };
        Ok(config)
    }

    /// Every setting: the default where there is one, else an example.
    fn example() -> Self {
        let defaults = rep::RepConfig::new("cell-a", "default", placement::Resources::default());
        let (first, last) = rep::ProcessConfig::default().ports;
        let list = |item: &str| vec![item.to_owned()];
        Self {
            cell: Some(defaults.cell),
            zone: Some(defaults.zone),
            memory: Some(4_096),
            disk: Some(20_480),
            containers: Some(100),
            cpu: Some(4_000),
            extra: vec![("gpu".into(), 4)],
            stack: list("docker"),
            placement_tag: list("isolated"),
            rack: Some("r1".into()),
            attributes_file: Some("/var/lib/vendue/attributes.json".into()),
            address: Some(defaults.address),
            ports: Some(format!("{first}-{last}")),
            interval: Some(defaults.interval),
            ttl: Some(defaults.ttl),
            heartbeat: Some(defaults.heartbeat),
            grace: Some(defaults.grace),
            drain_deadline: Some(defaults.drain_deadline),
            run_as: Some("nobody".into()),
            state_dir: Some("/var/lib/vendue".into()),
            memory_limit: Some("auto".into()),
            simulated: true,
            nats: Some("nats://127.0.0.1:4222".into()),
            prefix: Some("vendue".into()),
            attributes: Table::new(),
        }
    }

    /// A complete file: what is set, and every other key in a comment.
    fn print(&self) -> anyhow::Result<String> {
        let given = Table::try_from(self.clone())?;
        let examples = Table::try_from(Self::example())?;
        let mut text = String::from(
            "# Settings of a cell: vendue rep --config FILE\n\
             # Each key is the flag of the same name; the flag replaces what stands here.\n\
             # Lines that begin with `# ` and a key show its default, or an example.\n",
        );
        let flags = Self::augment_args(clap::Command::new("rep"));
        let everywhere = Global::augment_args(clap::Command::new("rep"));
        let everywhere = everywhere.get_arguments();
        let in_file = everywhere.filter(|arg| ["nats", "prefix"].contains(&arg.get_id().as_str()));
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
        known.remove("zone"); // stands above, as a key of its own
        known.insert("index".into(), 0.into());
        for (key, value) in known {
            if !self.attributes.contains_key(&key) {
                writeln!(text, "# {key} = {value}")?;
            }
        }
        Ok(text)
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

fn ports(text: &str) -> anyhow::Result<(u16, u16)> {
    let range = text
        .split_once('-')
        .and_then(|(first, last)| Some((first.trim().parse().ok()?, last.trim().parse().ok()?)));
    range.filter(|(first, last)| first <= last).ok_or_else(|| {
        Usage::because(format_args!(
            "ports: {text:?} is no range; expected FIRST-LAST, such as 61001-65535"
        ))
    })
}

fn span(text: &str) -> Result<Span, humantime::DurationError> {
    humantime::parse_duration(text).map(Span)
}

fn named_amount(text: &str) -> Result<(String, i64), String> {
    let (name, amount) = text.split_once('=').ok_or("expected NAME=N")?;
    let amount = amount.parse().map_err(|_| "expected a number after =")?;
    Ok((name.to_owned(), amount))
}

/// MiB as a number, or a text with a unit.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Integer(mib) if mib >= 0 => Ok(Some(mib)),
        Value::String(text) => parse_mib(&text).map(Some).map_err(D::Error::custom),
        other => Err(D::Error::custom(format_args!(
            "{other} is no size: expected a number of MiB such as 512, or one with a unit such as \
             \"64M\""
        ))),
    }
}

/// Named resources: a table in the file, pairs as flags.
mod amounts {
    use std::collections::BTreeMap;

    use super::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        pairs: &[(String, i64)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let table: BTreeMap<_, _> = pairs.iter().cloned().collect();
        table.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(String, i64)>, D::Error> {
        let table = BTreeMap::<String, i64>::deserialize(deserializer)?;
        Ok(table.into_iter().collect())
    }
}

/// Runs a cell until it is stopped or drained.
pub(crate) async fn rep(global: &Global, args: &RepArgs) -> anyhow::Result<Exit> {
    let mut settings = args.merged()?;
    if args.print_config {
        output::say(settings.print()?.trim_end())?;
        return Ok(Exit::Ok);
    }
    let global = in_cluster(global, settings.nats.take(), settings.prefix.take());
    let config = settings.config()?;
    // before anything is said of the connection
    rep::validate(&config).map_err(unusable)?;
    let subjects = Subjects::new(global.prefix.as_str()).map_err(Usage::because)?;
    let shutdown = shutdown::on_signals()?;
    let options = NatsOptions {
        identity: Some(config.cell.clone()),
        ..nats_options(&global, &short_name(&format!("rep-{}", config.cell)), true)
    };
    let bus = connect(&options).await?;
    let (cell, zone, url) = (&config.cell, &config.zone, &bus.url);
    tracing::info!(cell, zone, url, "starting rep");
    let ended = rep::run(config, bus, subjects, shutdown).await;
    let ended = ended.map_err(rep_error)?;
    tracing::info!(reason = ended.reason(), "rep stopped");
    Ok(Exit::Ok)
}

/// The file's address and prefix count where no flag and no variable says otherwise.
fn in_cluster(global: &Global, nats: Option<String>, prefix: Option<String>) -> Global {
    let mut global = global.clone();
    if global.url().is_none() && global.context.is_none() {
        global.nats = nats;
    }
    if global.prefix == DEFAULT_PREFIX {
        global.prefix = prefix.unwrap_or(global.prefix);
    }
    global
}

const DEFAULT_PREFIX: &str = "vendue";

/// What is wrong with the settings, named as the flags are.
fn unusable(error: rep::RepError) -> anyhow::Error {
    match error {
        rep::RepError::Config(mut invalid) => {
            if let Some(flag) = flag_of(&invalid.field) {
                flag.clone_into(&mut invalid.field);
            }
            Usage::because(invalid)
        }
        rep::RepError::Executor(error) => Usage::because(error),
        other => other.into(),
    }
}

/// The flag that sets this field of a rep's configuration.
fn flag_of(field: &str) -> Option<&'static str> {
    Some(match field {
        "cell" => "--cell",
        "zone" => "--zone",
        "total.memory_mb" => "--memory",
        "total.disk_mb" => "--disk",
        "total.containers" => "--containers",
        "total.cpu_millis" => "--cpu",
        "address" => "--address",
        "interval" => "--interval",
        "heartbeat" => "--heartbeat",
        "attributes_file" => "--attributes-file",
        _ => return None,
    })
}

/// A configuration that no cell may have is bad usage.
pub(crate) fn rep_error(error: rep::RepError) -> anyhow::Error {
    match error {
        rep::RepError::Config(invalid) => Usage::because(invalid),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        rep: RepArgs,
    }

    fn args(more: &[&str]) -> Result<RepArgs, String> {
        let line = Line::try_parse_from([&["rep"], more].concat());
        line.map(|line| line.rep).map_err(|e| e.to_string())
    }

    fn config(more: &[&str]) -> Result<rep::RepConfig, String> {
        let config = args(more)?.merged().and_then(RepSettings::config);
        config.map_err(|e| e.to_string())
    }

    /// The configuration from a file with this text, and flags.
    fn from_file(text: &str, more: &[&str]) -> Result<rep::RepConfig, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let file = ["--config", file.path().to_str().unwrap()];
        config(&[&file, more].concat())
    }

    #[test]
    fn named_resources_come_from_flags_or_the_file() {
        let flags = [
            "--cell", "a", "--memory", "64", "--extra", "gpu=4", "--extra", "fpga=1",
        ];
        let total = config(&flags).unwrap().total;
        assert_eq!((total.extra("gpu"), total.extra("fpga")), (4, 1));
        assert_eq!(total.disk_mb, None, "unlimited, as nobody said");
        let error = config(&["--cell", "a", "--memory", "64", "--extra", "gpu=x"]).unwrap_err();
        assert!(
            error.contains("gpu=x") && error.contains("expected a number"),
            "{error}"
        );
        let text = "cell = 'a'\nmemory = 64\nextra = {gpu = 4, fpga = 1}\n";
        assert_eq!(from_file(text, &[]).unwrap().total, total);
    }

    #[test]
    fn sizes_have_units_in_flags_and_in_the_file() {
        let with_flags = config(&["--cell", "a", "--memory", "1.5G", "--disk", "2T"]).unwrap();
        assert_eq!(with_flags.total.memory_mb, 1_536);
        assert_eq!(with_flags.total.disk_mb, Some(2 * 1_024 * 1_024));
        let text = "cell = 'a'\nmemory = '1536MiB'\ndisk = 2097152\n";
        assert_eq!(from_file(text, &[]).unwrap(), with_flags);
        for (wrong, said) in [
            ("'64X'", "\"X\""),
            ("-1", "-1 is no size"),
            ("true", "true is no"),
        ] {
            let error = from_file(&format!("cell = 'a'\nmemory = {wrong}\n"), &[]).unwrap_err();
            assert!(error.contains("memory") && error.contains(said), "{error}");
        }
    }

    #[test]
    fn a_flag_replaces_what_is_in_the_file() {
        let text = "cell = 'a'\nzone = 'z1'\nmemory = 64\nttl = '20s'\nstack = ['x']\nrack = 'r1'\n\
                    [attributes]\nreserved = true\n";
        let config = from_file(text, &["--zone", "z2", "--stack", "y"]).unwrap();
        assert_eq!((config.cell.as_str(), config.zone.as_str()), ("a", "z2"));
        assert_eq!(config.attributes.stacks, ["y"]);
        assert_eq!(config.attributes.rack.as_deref(), Some("r1"));
        assert!(config.attributes.reserved);
        assert_eq!(config.ttl, span("20s").unwrap());
    }

    #[test]
    fn what_is_unknown_is_reported_before_what_is_missing() {
        let error = from_file("zone = 'zd'\nfoo = 1\n", &[]).unwrap_err();
        assert!(error.contains("unknown field `foo`"), "{error}");
        let error = from_file("zone = 'zd'\n", &["--memory", "1"]).unwrap_err();
        assert!(error.contains("--cell NAME"), "{error}");
        let error = from_file("cell = 'a'\n", &[]).unwrap_err();
        assert!(error.contains("--memory SIZE"), "{error}");
        let error = from_file("cell = 'a'\nmemory = 1\n[attributes]\nrak = 'r1'\n", &[]);
        let error = error.unwrap_err();
        assert!(
            error.contains("attributes") && error.contains("rak"),
            "{error}"
        );
    }

    #[test]
    fn ranges_of_ports_are_checked() {
        let with = |ports| config(&["--cell", "a", "--memory", "1", "--ports", ports]);
        let rep::ExecutorKind::Process(process) = with("7000-7001").unwrap().executor else {
            panic!("no processes");
        };
        assert_eq!(process.ports, (7_000, 7_001));
        for wrong in ["7001-7000", "7000", "a-b", "1-70000"] {
            let error = with(wrong).unwrap_err();
            assert!(
                error.starts_with("ports:") && error.contains(wrong),
                "{error}"
            );
        }
    }

    /// The lines that show a default or an example, as settings.
    fn uncommented(text: &str) -> String {
        let setting = |line: &str| {
            let (key, _) = line.split_once(" = ")?;
            let is_key = key
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b"-_".contains(&b));
            is_key.then(|| line.to_owned())
        };
        let lines = text.lines().map(|line| {
            let rest = line.strip_prefix("# ");
            let rest = rest.filter(|rest| setting(rest).is_some() || *rest == "[attributes]");
            rest.unwrap_or(line)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_printed_file_is_complete_and_is_accepted() {
        let flags = [
            "--cell", "a", "--memory", "2G", "--extra", "gpu=4", "--run-as", "nobody",
        ];
        let printed = args(&flags).unwrap().merged().unwrap().print().unwrap();
        assert_eq!(from_file(&printed, &[]).unwrap(), config(&flags).unwrap());
        // every flag is a key
        for flag in RepSettings::augment_args(clap::Command::new("rep")).get_arguments() {
            let key = flag.get_long().unwrap();
            let shown = printed.contains(&format!("\n{key} = "))
                || printed.contains(&format!("\n# {key} = "));
            assert!(shown, "{key} is missing in\n{printed}");
        }
        // and what stands in the comments is accepted too
        let all = uncommented(&printed);
        let settings: RepSettings = toml::from_str(&all).unwrap_or_else(|e| panic!("{e}\n{all}"));
        assert_eq!(settings.memory, Some(2_048));
        assert_eq!(settings.nats, RepSettings::example().nats);
        settings.config().unwrap();
    }

    #[test]
    fn the_defaults_in_the_help_are_those_of_the_rep() {
        let examples = Table::try_from(RepSettings::example()).unwrap();
        for key in [
            "zone",
            "address",
            "ports",
            "interval",
            "ttl",
            "heartbeat",
            "grace",
            "drain-deadline",
        ] {
            let flags = RepSettings::augment_args(clap::Command::new("rep"));
            let flag = flags
                .get_arguments()
                .find(|f| f.get_long() == Some(key))
                .unwrap();
            let help = flag.get_help().unwrap().to_string();
            let default = examples[key].as_str().unwrap();
            assert!(
                help.ends_with(&format!("[default: {default}]")),
                "{key}: {help}"
            );
        }
    }
}
