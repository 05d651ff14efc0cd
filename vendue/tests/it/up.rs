//! `vendue up`: how it starts, and that it never leaves anything behind.

use std::{
    fs::{File, Permissions},
    io::{BufRead, BufReader},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::common::{Up, end, processes_with, run, until, vendue, vendue_at};

/// Starts a cluster with instances; returns it with the mark of all its processes.
async fn marked() -> (Up, String) {
    marked_as(vendue()).await
}

/// Starts it with this program.
async fn marked_as(mut command: Command) -> (Up, String) {
    let mark = uuid::Uuid::new_v4().to_string();
    command
        .args(["up", "--port", "0", "--grace", "2s"])
        .env("TEST_MARK", &mark);
    let up = Up::of(command);
    // one that leaves a child behind, and one that refuses to end
    let script =
        format!("trap '' TERM; sh -c 'sleep 1000; : {mark}' & while :; do sleep 1; done; : {mark}");
    let args = [
        "run",
        "--app",
        "stubborn",
        "--memory",
        "16",
        "--disk",
        "16",
        "--instances",
        "4",
    ];
    up.run(&[&args[..], &["--", "sh", "-c", &script]].concat())
        .expect(0, &[]);
    up.run(&["wait", "stubborn"]).expect(0, &["4 running"]);
    until("all processes to be there", || {
        let count = processes_with(&mark).len();
        (count >= 10)
            .then_some(())
            .ok_or(format!("{count} processes"))
    })
    .await;
    (up, mark)
}

async fn all_gone(mark: &str) {
    until("every process to be gone", || {
        let left = processes_with(mark);
        left.is_empty()
            .then_some(())
            .ok_or(format!("{left:?} are left"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_it_in_order() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let (mut up, mark) = marked().await;
        up.signal(signal);
        if signal == Signal::HUP && shared::proc::is_ignored(signal.as_raw()) {
            // the tests themselves were started with nohup
            up.signal(Signal::TERM);
        }
        let status = up.child.wait().unwrap();
        assert!(status.success(), "{signal:?}: {status}");
        all_gone(&mark).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_nohup_it_stays_when_the_terminal_is_closed() {
    let mut shell = vendue_at(Path::new("sh"));
    let program = env!("CARGO_BIN_EXE_vendue");
    shell.args(["-c", "trap '' HUP; exec \"$@\"", "sh", program]);
    let (mut up, mark) = marked_as(shell).await;
    up.signal(Signal::HUP);
    let more = ["run", "--app", "more", "--memory", "16", "--disk", "16"];
    up.run(&[&more[..], &["--", "sleep", "1000"]].concat())
        .expect(0, &[]);
    up.run(&["wait", "more"]).expect(0, &["1 running"]);
    up.run(&["wait", "stubborn"]).expect(0, &["4 running"]);
    up.signal(Signal::TERM);
    assert!(up.child.wait().unwrap().success());
    all_gone(&mark).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_it_leaves_nothing_behind() {
    let (mut up, mark) = marked().await;
    up.signal(Signal::KILL);
    up.child.wait().unwrap();
    all_gone(&mark).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_server_it_ends_with_an_error() {
    let (mut up, mark) = marked().await;
    let servers = processes_with(&mark).into_iter().filter(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.starts_with("nats-server"))
    });
    let servers: Vec<u32> = servers.collect();
    assert_eq!(servers.len(), 1);
    let (token, _) = up
        .url
        .trim_start_matches("nats://")
        .split_once('@')
        .unwrap();
    let command = std::fs::read_to_string(format!("/proc/{}/cmdline", servers[0])).unwrap();
    assert!(
        !command.contains(token),
        "the token is for all to see: {command:?}"
    );
    let pid = rustix::process::Pid::from_raw(i32::try_from(servers[0]).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    assert_eq!(up.child.wait().unwrap().code(), Some(1));
    all_gone(&mark).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_run_the_program_wherever_it_is() {
    // root's instances run as nobody, which may not even look into this directory
    let private = tempfile::Builder::new()
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .unwrap();
    let program = private.path().join("vendue");
    std::fs::hard_link(env!("CARGO_BIN_EXE_vendue"), &program).unwrap();
    let mut command = vendue_at(&program);
    command
        .args(["up", "--port", "0", "--cells", "1", "--zones", "1"])
        .env("PATH", "/usr/bin:/bin");
    let up = Up::of(command);
    up.run(&["start", "examples/web.json"])
        .expect(0, &["placed"]);
    up.run(&["wait", "web"]).expect(0, &["3 running"]);
    // it would be restarted whenever it failed, so what runs now has never failed
    let running = up.instances("web", "running");
    assert!(running.iter().all(|i| i["restarts"] == 0), "{running:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_with_its_terminal() {
    let mark = uuid::Uuid::new_v4().to_string();
    // `script` of util-linux provides a terminal, which disappears when `script` is killed
    let line = format!("{} up --port 0 --cells 1", env!("CARGO_BIN_EXE_vendue"));
    let script = Command::new("script")
        .args(["-q", "-c", &line, "/dev/null"])
        .env("TEST_MARK", &mark)
        .env("NATS_SERVER_BIN", testkit::server_binary())
        .env_remove("NATS_URL")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut script) = script else {
        assert_ne!(
            std::env::var("CI").as_deref(),
            Ok("true"),
            "`script` of util-linux is missing"
        );
        eprintln!("SKIPPED: `script` of util-linux is missing");
        return;
    };
    let out = BufReader::new(script.stdout.take().unwrap());
    assert!(
        out.lines()
            .map_while(Result::ok)
            .any(|line| line.contains("in another terminal"))
    );
    script.kill().unwrap();
    script.wait().unwrap();
    all_gone(&mark).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_prints_commands_and_uses_another_port_if_4222_is_taken() {
    // if another process already has the port, it may release it at any time
    let taken = TcpListener::bind("127.0.0.1:4222");
    let mut child = vendue()
        .args(["up", "--cells", "3", "--zones", "2", "--policy", "dea"])
        // if this test fails, it ends with it
        .arg("--until-stdin-ends")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap);
    // the last line is the third command, for the nats tool
    let mut said = Vec::new();
    for line in lines {
        let is_last = line.starts_with("nats ");
        said.push(line);
        if is_last {
            break;
        }
    }
    let text = said.join("\n");
    if taken.is_ok() {
        assert!(text.contains("port 4222 is taken"), "{text}");
    }
    assert!(
        text.contains("3 cells in 2 zones") && text.contains("policy dea"),
        "{text}"
    );
    let [export, .., run, ps, nats] = &said[..] else {
        panic!("an export and three commands: {text}");
    };
    let url = export.strip_prefix("export NATS_URL=").expect(&text);
    for typed in [run, ps] {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("{export}; {typed}")])
            .env_remove("NATS_URL");
        end(&mut shell).expect(0, &["web"]);
    }
    // the nats tool may be missing, so a client sends what it would send
    let (subject, body) = nats
        .split_once("request ")
        .unwrap()
        .1
        .split_once(' ')
        .unwrap();
    let options = shared::nats::NatsOptions {
        url: url.into(),
        name: "nats-tool".into(),
        ..Default::default()
    };
    let client = shared::nats::connect(&options).await.unwrap().client;
    let body = body.trim_matches('\'').to_owned();
    let reply = client
        .request(subject.to_owned(), body.into())
        .await
        .unwrap();
    let reply: serde_json::Value = serde_json::from_slice(&reply.payload).unwrap();
    assert_eq!(reply["outcome"], "placed", "{reply}");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_authentication_and_on_a_server_that_runs() {
    let open = Up::with(&["--cells", "1", "--no-auth"]);
    assert!(!open.url.contains('@'));
    open.run(&["health"]).expect(0, &[]);
    // a second cluster on the first one's server, under another prefix
    let mut joined = vendue();
    joined.args([
        "up", "--cells", "2", "--zones", "1", "--nats", &open.url, "--prefix", "second",
    ]);
    let joined = Up::of(joined);
    let cells = joined.json(&["cells", "--prefix", "second"]);
    assert_eq!(cells["total"], 2);
    assert_eq!(open.json(&["cells"])["total"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn apps_that_were_put_are_there_again_after_a_restart() {
    apps_are_kept(&[]);
}

/// The keys differ, but the account of stored state is the same.
#[tokio::test(flavor = "multi_thread")]
async fn apps_that_were_put_securely_are_there_again_after_a_restart() {
    apps_are_kept(&["--secure"]);
}

fn apps_are_kept(options: &[&str]) {
    let data = tempfile::tempdir().unwrap();
    let log = data.path().join("log");
    let started = |data: &std::path::Path| {
        let mut command = vendue();
        command.stderr(File::create(&log).unwrap());
        command
            .args(["up", "--port", "0", "--cells", "1", "--grace", "1s"])
            .args(options)
            .arg("--data")
            .arg(data);
        Up::of(command)
    };
    let file = data.path().join("kept.json");
    let definition = r#"{"app":"kept","instances":2,"memory_mb":16,"disk_mb":16,"run":{"command":["sleep","1000"]}}"#;
    std::fs::write(&file, definition).unwrap();
    run(&["up", "--data", file.to_str().unwrap()]).expect(2, &["--data", "directory"]);
    let mut up = started(data.path());
    let second = ["up", "--port", "0", "--data", data.path().to_str().unwrap()];
    run(&second).expect(2, &["another `vendue up`"]);
    if up.said["manager"] == false {
        // this server is too old for a manager, so the cluster works without one
        up.run(&["health"]).expect(0, &[]);
        return;
    }
    up.run(&["app", "put", file.to_str().unwrap()])
        .expect(0, &[]);
    up.run(&["wait", "kept", "--instances", "2"])
        .expect(0, &["2 running"]);
    up.signal(Signal::TERM);
    assert!(up.child.wait().unwrap().success());
    let said = std::fs::read_to_string(&log).unwrap();
    let (_, at_the_end) = said.split_once("stopping:").expect(&said);
    assert!(!at_the_end.contains("WARN"), "{said}");
    let up = started(data.path());
    up.run(&["wait", "kept", "--instances", "2", "--timeout", "60s"])
        .expect(0, &["2 running"]);
}
