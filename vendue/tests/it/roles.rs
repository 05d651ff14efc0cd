//! The roles as compose runs them: separately, patiently, and configured by flags, variables and files.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Child, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use testkit::NatsServer;

use crate::common::{Finished, end, run, until, until_healthy, vendue};

pub(crate) struct Role(Child);

impl Role {
    pub(crate) fn start(command: &mut std::process::Command) -> Self {
        Self(command.stderr(Stdio::null()).spawn().unwrap())
    }

    /// Starts it likewise, with its whole log in a file.
    pub(crate) fn logged(command: &mut std::process::Command, log: &std::path::Path) -> Self {
        let log = fs::File::create(log).unwrap();
        command.env("VENDUE_LOG", "debug").stderr(log);
        Self(command.spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    pub(crate) fn end(&mut self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        // it may already have ended
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn apart_in_any_order_also_before_the_server() {
    // a port for a server that is not there yet
    let mut server = NatsServer::with_token("secret").await;
    let url = server.url();
    server.stop();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("cell.toml");
    let text = "zone = \"z9\"\ngrace = \"1s\"\nmemory = 100\n[attributes]\nrack = \"r1\"\n";
    fs::write(&file, text).unwrap();
    let mut rep = vendue();
    rep.args(["rep", "--memory", "200", "--config"]).arg(&file);
    rep.env("NATS_URL", &url).env("VENDUE_CELL", "c1");
    let mut rep = Role::start(&mut rep);
    let mut auctioneer = vendue();
    auctioneer.args(["auctioneer", "--policy", "dea", "--nats", &url]);
    let mut auctioneer = Role::start(&mut auctioneer);
    run(&["health", "--nats", &url]).expect(1, &["cannot connect"]);

    server.restart().await;
    until_healthy(&url, &[]).await;
    let cells = run(&["cells", "--output", "json", "--nats", &url]).json();
    let cell = &cells["cells"][0]["cell"];
    assert_eq!(
        (&cell["cell"], &cell["zone"], &cell["rack"]),
        (&"c1".into(), &"z9".into(), &"r1".into())
    );
    assert_eq!(
        cell["total"]["memory_mb"], 200,
        "the command line comes on top of the file"
    );
    assert_eq!(cells["policy"], "dea");
    let mut start = vendue();
    start.args([
        "run", "--app", "a", "--memory", "16", "--disk", "1", "--", "sleep", "1000",
    ]);
    end(start.env("NATS_URL", &url)).expect(0, &["placed"]);
    auctioneer.end();
    end(vendue().args(["wait", "a"]).env("NATS_URL", &url)).expect(0, &["1 running"]);
    rep.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_set_clusters_apart() {
    let server = NatsServer::start().await;
    let url = server.url();
    let role = |prefix: &str, args: &[&str]| {
        let mut command = vendue();
        command
            .args(args)
            .args(["--nats", &url])
            .env("VENDUE_PREFIX", prefix);
        Role::start(&mut command)
    };
    let rep = ["rep", "--cell", "same", "--memory", "64", "--simulated"];
    let _roles = [
        role("one", &["auctioneer"]),
        role("one", &rep),
        role("two", &["auctioneer"]),
        role("two", &rep),
    ];
    for prefix in ["one", "two"] {
        until_healthy(&url, &["--prefix", prefix]).await;
    }
    let args = [
        "run", "--app", "a", "--memory", "1", "--disk", "1", "--prefix", "one", "--nats", &url,
    ];
    run(&[&args[..], &["--", "true"]].concat()).expect(0, &[]);
    run(&["status", "a", "--prefix", "one", "--nats", &url]).expect(0, &["1 running"]);
    run(&["status", "a", "--prefix", "two", "--nats", &url]).expect(1, &["no instance"]);
}

/// A directory like `~/.config` with contexts of the nats tool.
struct Contexts(tempfile::TempDir);

impl Contexts {
    fn new(contexts: &[(&str, String)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("nats/context");
        fs::create_dir_all(&dir).unwrap();
        for (name, text) in contexts {
            fs::write(dir.join(format!("{name}.json")), text).unwrap();
        }
        Self(home)
    }

    fn select(&self, name: &str) {
        fs::write(self.0.path().join("nats/context.txt"), format!("{name}\n")).unwrap();
    }

    fn health(&self, env: &[(&str, &str)], args: &[&str]) -> Finished {
        let mut command = vendue();
        command.args(["health", "--role", "nats"]).args(args);
        command.env("XDG_CONFIG_HOME", self.0.path());
        end(command.envs(env.iter().copied()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_of_the_nats_tool_is_named_by_flag_by_variable_or_selected() {
    let server = NatsServer::with_token("secret").await;
    let address = server.address();
    let good = format!(r#"{{"url":"nats://{address}","token":"secret","colour":"red"}}"#);
    let bad = r#"{"url":"nats://127.0.0.1:1"}"#.to_owned();
    let contexts = Contexts::new(&[("mine", good), ("bad", bad)]);
    let nowhere = ("NATS_URL", "127.0.0.1:1");
    // a flag brings its own address
    let said = contexts.health(&[nowhere], &["--context", "mine"]);
    said.expect(0, &["healthy", "colour"]);
    contexts
        .health(&[], &["--context", "other"])
        .expect(2, &["other.json", "bad, mine"]);
    contexts
        .health(&[], &["--context", "../x"])
        .expect(2, &["../x"]);
    // a flag takes precedence over the environment, which takes precedence over the selection
    let mine = ("NATS_CONTEXT", "mine");
    contexts.select("bad");
    contexts.health(&[mine], &[]).expect(0, &["healthy"]);
    contexts
        .health(&[mine], &["--context", "bad"])
        .expect(1, &["context bad"]);
    contexts
        .health(&[], &[])
        .expect(1, &["127.0.0.1:1", "context bad"]);
    contexts.select("mine");
    contexts.health(&[], &[]).expect(0, &["healthy"]);
    contexts
        .health(&[("NATS_CONTEXT", "bad")], &[])
        .expect(1, &["context bad"]);
    // with an address, no context is used that was not requested
    contexts
        .health(&[nowhere, mine], &[])
        .expect(1, &["127.0.0.1:1"]);
    let with_address = ["--nats", &address];
    let said = contexts.health(&[mine], &with_address);
    said.expect(1, &["authorization violation"]);
    let with_both = [&with_address[..], &["--context", "mine"]].concat();
    contexts.health(&[], &with_both).expect(0, &["healthy"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_of_a_context_begin_at_home() {
    let text = r#"{"url":"nats://127.0.0.1:1","creds":"~/no-such.creds"}"#;
    let contexts = Contexts::new(&[("mine", text.to_owned())]);
    let said = contexts.health(&[("HOME", "/home-of-a-test")], &["--context", "mine"]);
    said.expect(2, &["/home-of-a-test/no-such.creds"]);
}

#[test]
fn invalid_settings_of_a_role_are_bad_usage_and_the_only_error() {
    let rep = ["rep", "--cell", "a", "--memory"];
    let rep = |settings: &[&'static str]| [&rep, settings].concat();
    for (role, fault) in [
        (vec!["auctioneer", "--name", "a b"], "--name: \"a b\""),
        (rep(&["1", "--zone", "a b"]), "--zone: \"a b\""),
        (rep(&["0"]), "--memory: 0"),
        (rep(&["1", "--containers", "0"]), "--containers: 0"),
        (rep(&["1", "--address", "a b"]), "--address: \"a b\""),
        (rep(&["1", "--ttl", "1s"]), "--interval: 5s"),
        (rep(&["1", "--heartbeat", "1ms"]), "--heartbeat: 1ms"),
        (
            rep(&["1", "--run-as", "no-such-user"]),
            "no user \"no-such-user\"",
        ),
    ] {
        let ended = run(&[&role[..], &["--nats", "nats://127.0.0.1:1"]].concat());
        ended.expect(2, &[fault]);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_settings_says_how_a_role_connects() {
    let home = tempfile::tempdir().unwrap();
    let pair = nkeys::KeyPair::new_user();
    let key = home.path().join("c1.nk");
    fs::write(&key, pair.seed().unwrap()).unwrap();
    let server = NatsServer::with_config(&format!(
        "authorization {{ users: [{{ nkey: {} }}] }}\n",
        pair.public_key()
    ))
    .await;
    let (url, key) = (server.url(), key.to_str().unwrap());
    let connection = format!("nats = \"{url}\"\nnkey = \"{key}\"\n");
    let role = |name: &str, settings: &str| {
        let file = home.path().join(format!("{name}.toml"));
        fs::write(&file, format!("{connection}{settings}")).unwrap();
        let mut command = vendue();
        command.arg(name).arg("--config").arg(file);
        command
    };
    let mut auctioneer = role("auctioneer", "name = \"a1\"\n");
    let settings = "cell = \"c1\"\nmemory = 64\nsimulated = true\n";
    let mut rep = role("rep", settings);
    let (mut auctioneer, mut cell) = (Role::start(&mut auctioneer), Role::start(&mut rep));
    until_healthy(&url, &["--nkey", key]).await;
    // options and variables take precedence over the file
    let mut rep = role("rep", settings);
    end(rep.args(["--nkey", "/no/such.nk"])).expect(2, &["/no/such.nk"]);
    let mut rep = role("rep", settings);
    end(rep.env("NATS_NKEY", "/no/other.nk")).expect(2, &["/no/other.nk"]);
    let mut rep = role("rep", "tls-cert = \"c1.pem\"\ncell = \"c1\"\nmemory = 64\n");
    end(&mut rep).expect(2, &["certificate", "without its key"]);
    let mut rep = role("rep", "tls-first = 3\n");
    end(&mut rep).expect(2, &["rep.toml", "line 3", "tls-first"]);
    cell.end();
    auctioneer.end();
}

#[test]
fn a_role_warns_of_a_file_with_its_credentials_that_everybody_can_read() {
    let home = tempfile::tempdir().unwrap();
    let set = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    set(home.path(), 0o755);
    let [key, settings] = ["c1.nk", "rep.toml"].map(|name| home.path().join(name));
    fs::write(&key, nkeys::KeyPair::new_user().seed().unwrap()).unwrap();
    // there is nothing to connect to; the certificate without a key ends the rep
    let text =
        "nats = \"nats://t0k@127.0.0.1:1\"\ncell = \"c1\"\nmemory = 64\ntls-cert = \"c1.pem\"\n";
    fs::write(&settings, text).unwrap();
    for (mode, warned) in [(0o644, true), (0o600, false)] {
        set(&key, mode);
        set(&settings, mode);
        let mut rep = vendue();
        rep.args(["rep", "--config"])
            .arg(&settings)
            .arg("--nkey")
            .arg(&key);
        let said = end(&mut rep);
        said.expect(2, &["without its key"]);
        for file in [&key, &settings] {
            let warning = format!("chmod 600 {}", file.display());
            assert_eq!(said.err.contains(&warning), warned, "{said:?}");
        }
        assert!(!said.err.contains("t0k"), "{said:?}");
    }
}

/// Whoever may advertise can make up any number of cells, each with any number of apps.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_cells_does_not_fill_the_log() {
    const CELLS: usize = 2_000;
    let server = NatsServer::start().await;
    let home = tempfile::tempdir().unwrap();
    let log = home.path().join("log");
    let mut auctioneer = vendue();
    auctioneer.args(["auctioneer", "--nats", &server.url(), "--name", "a1"]);
    let auctioneer = auctioneer.stderr(fs::File::create(&log).unwrap()).spawn();
    let _auctioneer = Role(auctioneer.unwrap());
    let client = server.client().await;
    let apps: serde_json::Map<_, _> = (0..200).map(|n| (format!("app-{n}"), 1.into())).collect();
    let say = async |nth: usize, ttl: &str| {
        let cell = format!("flood-{nth}");
        let resources = serde_json::json!({"memory_mb": 1, "disk_mb": 1, "containers": 1});
        let advert = serde_json::json!({"v": 1, "incarnation": "018f0000-0000-4000-8000-000000000001",
            "seq": if ttl == "0s" { 2 } else { 1 }, "clock_ms": 1, "ttl": ttl, "cell": cell, "zone": "z1", "total": resources,
            "available": resources, "apps": apps});
        let subject = format!("vendue.cell.{cell}.advert");
        client
            .publish(subject, advert.to_string().into())
            .await
            .unwrap();
    };
    let lines = |what: &str| {
        let text = fs::read_to_string(&log).unwrap();
        let lines = text.lines().filter(|line| line.contains(what));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    until("the auctioneer to listen", || {
        let listens = !lines("starting auctioneer").is_empty();
        let said = run(&["health", "--nats", &server.url(), "--role", "auctioneer"]);
        (listens && said.code == Some(0))
            .then_some(())
            .ok_or(said.err)
    })
    .await;
    for (ttl, what) in [("1m", "joined"), ("0s", "lost")] {
        for nth in 0..CELLS {
            say(nth, ttl).await;
        }
        // each further one is in a later second, which reports what was left out in the seconds before
        let mut more = CELLS;
        testkit::eventually(&format!("what was left out of cells {what}"), async || {
            more += 1;
            say(more, "1m").await;
            say(more, "0s").await;
            !lines(&format!("cells {what}, and not logged")).is_empty()
        })
        .await;
        let logged = lines(&format!("cell {what}"));
        assert!(logged.len() < CELLS / 2, "{}", logged.len());
        assert!(logged.iter().all(|line| line.len() < 1_000), "{logged:?}");
    }
}
