use clap::{Args, Parser};

use super::{settings::span, *};

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
    let config = args(more)?
        .merged()
        .and_then(|(_, settings)| settings.config());
    config.map_err(|e| e.to_string())
}

/// Returns the configuration from a file with this text and flags.
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
    let flags = [
        "--cell",
        "a",
        "--memory",
        "64",
        "--devices",
        "gpu=8x1000:T4",
        "--device-env",
        "X={gpu}",
    ];
    let with_devices = config(&flags).unwrap();
    let gpus = &with_devices.total.devices["gpu"];
    assert_eq!(
        (gpus.count, gpus.each, gpus.model.as_deref()),
        (8, 1000, Some("T4"))
    );
    let text = "cell = 'a'\nmemory = 64\ndevice-env = {X = '{gpu}'}\n\
                [devices]\ngpu = {count = 8, each = 1000, model = 'T4'}\n";
    assert_eq!(from_file(text, &[]).unwrap(), with_devices);
    for wrong in [
        "gpu = {count = 8}",
        "gpu = {count = 8, each = 1, modle = 'T4'}",
    ] {
        let text = format!("cell = 'a'\nmemory = 64\n[devices]\n{wrong}\n");
        assert!(from_file(&text, &[]).is_err(), "{wrong}");
    }
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
        ("-1", "-1 is not a size"),
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

#[test]
fn limits_of_instances_come_from_flags_or_the_file() {
    let flags = [
        "--cell",
        "a",
        "--memory",
        "1",
        "--users",
        "80000-80009",
        "--memory-if-zero",
        "32M",
        "--disk-if-zero",
        "refuse",
        "--max-processes",
        "9",
        "--max-files",
        "99",
    ];
    let from_flags = config(&flags).unwrap();
    let rep::ExecutorKind::Process(process) = &from_flags.executor else {
        panic!("no processes");
    };
    assert_eq!(process.users, (80_000, 80_009));
    assert_eq!(process.memory_if_zero, rep::IfZero::Limit(32));
    assert_eq!(process.disk_if_zero, rep::IfZero::Refuse);
    assert_eq!((process.max_processes, process.max_files), (9, 99));
    let text = "cell = 'a'\nmemory = 1\nusers = '80000-80009'\nmemory-if-zero = 32\n\
                disk-if-zero = 'refuse'\nmax-processes = 9\nmax-files = 99\n";
    assert_eq!(from_file(text, &[]).unwrap(), from_flags);
    for wrong in ["0", "none", "-1"] {
        let option = format!("--memory-if-zero={wrong}");
        let error = config(&["--cell", "a", "--memory", "1", &option]).unwrap_err();
        assert!(error.contains("refuse") && error.contains(wrong), "{error}");
    }
}

/// Returns the lines that show a default or an example, as settings.
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

fn printed(flags: &[&str], connection: &Connection) -> String {
    let (_, settings) = args(flags).unwrap().merged().unwrap();
    settings.print(connection).unwrap()
}

fn read(text: &str) -> (Connection, RepSettings) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    connection::read(file.path()).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

#[test]
fn the_printed_file_is_complete_and_is_accepted() {
    let flags = [
        "--cell", "a", "--memory", "2G", "--extra", "gpu=4", "--run-as", "nobody",
    ];
    let printed = printed(&flags, &Connection::default());
    assert_eq!(from_file(&printed, &[]).unwrap(), config(&flags).unwrap());
    // every flag is a key, and so is everything about the connection
    let flags = RepSettings::augment_args(clap::Command::new("rep"));
    let own = flags.get_arguments().map(|flag| flag.get_long().unwrap());
    let of_connection = Connection::example().table().unwrap();
    for key in own.chain(of_connection.keys().map(String::as_str)) {
        let shown =
            printed.contains(&format!("\n{key} = ")) || printed.contains(&format!("\n# {key} = "));
        assert!(shown, "{key} is missing in\n{printed}");
    }
    // and the content of the comments is accepted too
    let all = uncommented(&printed);
    let (connection, settings) = read(&all);
    assert_eq!(settings.memory, Some(2_048));
    assert_eq!(connection, Connection::example());
    settings.config().unwrap();
    // settings of the connection are printed unchanged
    let text = "nkey = 'c1.nk'\ntls-ca = 'ca.pem'\ntls-first = true\n";
    let (given, _) = read(text);
    assert_eq!(read(&self::printed(&[], &given)).0, given);
}

#[test]
fn the_defaults_in_the_help_are_those_of_the_rep() {
    let examples = Table::try_from(RepSettings::example()).unwrap();
    for key in [
        "zone",
        "address",
        "ports",
        "users",
        "memory-if-zero",
        "disk-if-zero",
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

#[test]
fn credentials_on_the_command_line_are_noticed() {
    for word in ["nats://token@host:4222", "--nats=tls://a:b@host"] {
        assert!(has_credentials(word), "{word}");
    }
    for word in ["nats://host:4222", "a@b", "--cell"] {
        assert!(!has_credentials(word), "{word}");
    }
}
