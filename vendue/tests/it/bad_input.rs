//! Mistakes of people and machines, each of which gets a clear answer.

use std::{fs, net::TcpListener, process::Stdio};

use crate::common::{Up, end, run, until, vendue};

#[test]
fn no_server_and_wrong_credentials() {
    run(&["ps", "--nats", "127.0.0.1:1"]).expect(1, &["127.0.0.1:1", "vendue up"]);
    let up = Up::with(&["--cells", "1"]);
    let (_, address) = up.url.rsplit_once('@').unwrap();
    for url in [
        format!("nats://{address}"),
        format!("nats://wrong@{address}"),
    ] {
        let said = run(&["cells", "--nats", &url]);
        said.expect(1, &["authorization violation", "TOKEN"]);
        assert!(
            !said.err.contains("wrong"),
            "secrets are not repeated: {said:?}"
        );
    }
    run(&["cells", "--nats", &up.url]).expect(0, &[]);
}

#[test]
fn a_port_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    run(&["up", "--port", &port]).expect(1, &["is in use", &port, "--port 0"]);
}

#[test]
fn nats_server_missing_or_not_one() {
    let said = end(vendue().arg("up").env("NATS_SERVER_BIN", "/no/such/server"));
    said.expect(1, &["NATS_SERVER_BIN=/no/such/server"]);
    let empty = tempfile::tempdir().unwrap();
    // a copy, so that there is no .tools near it
    let program = empty.path().join("vendue");
    fs::copy(env!("CARGO_BIN_EXE_vendue"), &program).unwrap();
    let mut command = std::process::Command::new(&program);
    command
        .arg("up")
        .env_remove("NATS_SERVER_BIN")
        .env_remove("NATS_URL");
    command.env("PATH", "/usr/bin:/bin").current_dir(&empty);
    if !["/usr/bin", "/bin"]
        .iter()
        .any(|d| std::path::Path::new(d).join("nats-server").exists())
    {
        let tools_of = format!(".tools/ of {}", empty.path().display());
        end(&mut command).expect(
            1,
            &[
                "nats-server is not installed",
                "PATH: /usr/bin:/bin",
                &tools_of,
                "make tools",
                "export NATS_SERVER_BIN=",
                "vendue up --nats URL",
            ],
        );
    }
    let said = end(vendue().arg("up").env("NATS_SERVER_BIN", "/bin/false"));
    said.expect(1, &["nats-server ended"]);
}

#[test]
fn a_server_that_is_joined_must_be_there() {
    run(&["up", "--nats", "127.0.0.1:1"]).expect(1, &["127.0.0.1:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_that_cannot_run_are_reported_as_crashed() {
    let up = Up::with(&["--cells", "2", "--zones", "1"]);
    let start = |app: &str, kind: &[&str], command: &[&str]| {
        let args = [
            &["run", "--app", app, "--memory", "16", "--disk", "16"],
            kind,
            &["--"],
            command,
        ];
        up.run(&args.concat()).expect(0, &["placed"]);
    };
    start("nothing", &["--task"], &["/no/such/program"]);
    up.run(&["wait", "nothing"]).expect(1, &["crashed"]);
    up.run(&["ps", "nothing", "--all"])
        .expect(0, &["No such file"]);
    start(
        "brief",
        &["--task"],
        &["sh", "-c", "echo last words; exit 7"],
    );
    up.run(&["wait", "brief"]).expect(1, &["exit 7"]);
    up.run(&["logs", "brief"]).expect(0, &["last words"]);
    // a long-running process that ends at once is restarted several times, then given up
    start("flap", &[], &["false"]);
    until("the cell to give up", || {
        let crashed = up.instances("flap", "crashed");
        (crashed.len() == 1 && crashed[0]["restarts"] == 4)
            .then_some(())
            .ok_or(format!("{:?}", up.json(&["ps", "flap", "--all"])))
    })
    .await;
    up.run(&["status", "flap"])
        .expect(1, &["0 of 1 running, 1 crashed"]);
    up.run(&["ps", "flap"]).expect(0, &["crashed", "exit 1"]);
}

#[test]
fn an_unknown_stack_is_named() {
    let up = Up::with(&["--cells", "1", "--cell-stack", "cflinuxfs4"]);
    let args = [
        "run", "--app", "a", "--memory", "1", "--disk", "1", "--stack",
    ];
    let said = up.run(&[&args[..], &["windows2019", "--", "sleep", "1"]].concat());
    said.expect(3, &["found no compatible cell for required stack"]);
    up.run(&[&args[..], &["cflinuxfs4", "--", "sleep", "1"]].concat())
        .expect(0, &[]);
}

#[tokio::test]
async fn a_body_over_max_payload() {
    let options = testkit::Options {
        max_payload: Some(4096),
        ..testkit::Options::default()
    };
    let server = testkit::NatsServer::start_with(options).await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("long.json");
    let env = "x".repeat(5000);
    let text = format!(
        r#"{{"app":"a","memory_mb":1,"disk_mb":1,"run":{{"command":["true"],"env":{{"X":"{env}"}}}}}}"#
    );
    fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let said = run(&["start", &file, "--nats", &server.url()]);
    said.expect(2, &["bytes", "4096"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_cells_of_one_name() {
    let up = Up::with(&["--cells", "1"]);
    let args = [
        "rep",
        "--cell",
        "z1-cell-0",
        "--memory",
        "64",
        "--nats",
        up.url.as_str(),
    ];
    run(&args).expect(1, &["z1-cell-0", "name"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_auctioneers_may_run() {
    let up = Up::with(&["--cells", "1"]);
    let mut command = vendue();
    command.args([
        "auctioneer",
        "--name",
        "second",
        "--policy",
        "dea",
        "--nats",
        &up.url,
    ]);
    let mut second = command.stderr(Stdio::piped()).spawn().unwrap();
    until("both to answer", || {
        let names: std::collections::BTreeSet<String> = (0..10)
            .map(|_| {
                up.json(&["health"])["auctioneer"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        (names.len() == 2).then_some(()).ok_or(format!("{names:?}"))
    })
    .await;
    up.run(&["health", "--role", "auctioneer", "--name", "second"])
        .expect(0, &["dea"]);
    up.run(&["health", "--role", "auctioneer", "--name", "auctioneer-0"])
        .expect(0, &["diego"]);
    up.run(&["health", "--role", "auctioneer", "--name", "third"])
        .expect(1, &["third"]);
    second.kill().unwrap();
    second.wait().unwrap();
}
