//! Sources of instances, as people use them: the cell that already has a source is preferred.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use testkit::NatsServer;

use crate::{
    common::{end, run, until, vendue},
    roles::Role,
};

/// A source, and its checksum.
const SCRIPT: &str = "#!/bin/sh\nexec sleep 1000\n";
const SHA256: &str = "70c11d97725b2248e523d3ea4b03ae5cbbb43aaaec260ff25fdfc0275bc377b6";

/// Serves this content for every request; returns the port and the number of requests. It ends with the test.
fn serve(content: &'static str) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            for line in lines.map_while(Result::ok) {
                if line.is_empty() {
                    break;
                }
            }
            count.fetch_add(1, Ordering::Relaxed);
            let length = content.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close");
            let _ = write!(stream, "{head}\r\n\r\n{content}");
        }
    });
    (port, asked)
}

fn rep(url: &str, cell: &str, state: &Path) -> Role {
    let mut command = vendue();
    command.args([
        "rep",
        "--cell",
        cell,
        "--memory",
        "1000",
        "--disk",
        "1000",
        "--state-dir",
    ]);
    Role::start(command.arg(state).args(["--grace", "1s", "--nats", url]))
}

fn at(url: &str, args: &[&str]) -> Command {
    let mut command = vendue();
    command.args(args).env("NATS_URL", url);
    command
}

async fn healthy(url: &str, cells: usize) {
    until("the cells", || {
        let said = run(&["cells", "--output", "json", "--nats", url]);
        let there = said.code == Some(0) && said.json()["total"] == cells;
        there.then_some(()).ok_or(format!("{said:?}"))
    })
    .await;
}

/// Returns the cell on which an app's instance runs.
async fn cell_of(url: &str, app: &str) -> String {
    until("an instance", || {
        let said = end(at(url, &["ps", app, "--output", "json"]).arg("--all"));
        let instance = &said.json()["instances"][0];
        let cell = instance["cell"]
            .as_str()
            .filter(|_| instance["state"] == "running");
        cell.map(str::to_owned).ok_or(format!("{said:?}"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objective_prefers_the_cell_that_has_what_a_request_needs() {
    let server = NatsServer::start().await;
    let url = server.url();
    let state = tempfile::tempdir().unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    let (port, asked) = serve(SCRIPT);
    let source = format!("http://me:s3cret@127.0.0.1:{port}/web");
    let sha256 = SHA256;
    let mut auctioneer = vendue();
    auctioneer.args(["auctioneer", "--policy", "objective", "--nats", &url]);
    let _auctioneer = Role::start(&mut auctioneer);
    let _a = rep(&url, "a", state.path());
    healthy(&url, 1).await;
    let start = |app: &str, more: &[&str]| {
        let mut command = at(&url, &["run", app, "--memory", "16", "--disk", "16"]);
        command.args(more);
        end(&mut command).expect(0, &["placed"]);
    };
    let made_from = ["--source", &source, "--sha256", sha256, "--", "./source"];
    start("7", &made_from);
    assert_eq!(cell_of(&url, "7").await, "a");
    let cells = || run(&["cells", "show", "a", "--output", "json", "--nats", &url]);
    until("the source to be advertised", || {
        let said = cells();
        let there = said.out.contains(sha256);
        there.then_some(()).ok_or(format!("{said:?}"))
    })
    .await;
    // the other cell has more room
    let _b = rep(&url, "b", state.path());
    healthy(&url, 2).await;
    start("8", &["--", "sleep", "1000"]);
    assert_eq!(cell_of(&url, "8").await, "b", "without a source");
    let file = state.path().join("app.json");
    fs::write(
        &file,
        r#"{"app":"9","memory_mb":16,"disk_mb":16,"run":{"command":["./source"]}}"#,
    )
    .unwrap();
    let mut command = at(&url, &["start", "--source", &source, "--sha256", sha256]);
    end(command.arg(&file)).expect(0, &["placed"]);
    assert_eq!(cell_of(&url, "9").await, "a", "the one that has it");
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    // usage
    let mut command = at(
        &url,
        &["start", "--source", "ftp://a/b", "--sha256", sha256],
    );
    end(command.arg(&file)).expect(2, &["run.source.url"]);
    end(at(&url, &["start", "--source", &source]).arg(&file)).expect(2, &["--sha256"]);
}
