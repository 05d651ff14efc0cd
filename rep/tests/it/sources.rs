//! Sources of instances: fetched, checked, kept and unpacked by real processes.

use std::{fs, os::unix::fs::MetadataExt, path::Path, sync::Arc, time::Duration};

use placement::{Kind, Run, RunSource, Span};
use rep::{ExecutorKind, RepConfig};
use sha2::{Digest, Sha256};
use shared::wire::{Instance, InstanceState, Work};
use testkit::{NatsServer, eventually};

use crate::{
    apart::open_directory,
    harness::{Cell, command, lives, next_where, process_config, processes_with, subscribe},
    web::{Reply, Web},
};

fn kept_in(directory: &Path, timeout: Duration) -> RepConfig {
    let mut config = process_config("a");
    if let ExecutorKind::Process(process) = &mut config.executor {
        process.state_dir = Some(directory.to_owned());
        process.source_timeout = Span(timeout);
    }
    config
}

const LONG: Duration = Duration::from_secs(60);

pub(crate) fn sum(bytes: &[u8]) -> String {
    format!("{:x}", Sha256::digest(bytes))
}

/// Returns an archive with a program that exits with this code.
fn program(code: u32) -> Vec<u8> {
    let script = format!("#!/bin/sh\ncat data/text\nexit {code}\n");
    let mut builder = tar::Builder::new(Vec::new());
    for (path, mode, text) in [
        ("bin/run", 0o755, script.as_str()),
        ("data/text", 0o644, "unpacked\n"),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_mode(mode);
        header.set_size(text.len() as u64);
        builder
            .append_data(&mut header, path, text.as_bytes())
            .unwrap();
    }
    let tar = builder.into_inner().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &tar).unwrap();
    gzip.finish().unwrap()
}

/// Returns a task made from this source.
pub(crate) fn task(words: &[&str], url: String, sha256: String) -> Work {
    let work = command("task", words);
    let run = Run {
        source: Some(RunSource { url, sha256 }),
        ..work.run.as_deref().cloned().unwrap()
    };
    Work {
        kind: Kind::Task,
        run: Some(Arc::new(run)),
        ..work
    }
}

/// Runs this work to its end.
pub(crate) async fn ended(cell: &Cell, work: Work) -> Instance {
    let id = work.instance;
    cell.must_start(vec![work]).await;
    eventually("the end", async || {
        let all = cell.instances().await;
        let ended =
            |i: &&Instance| matches!(i.state, InstanceState::Exited | InstanceState::Crashed);
        let found = all.iter().filter(ended).find(|i| i.instance == id);
        found.cloned().ok_or_else(|| format!("{all:?}"))
    })
    .await
}

/// Returns why this work could not be started.
async fn failure(cell: &Cell, work: Work) -> String {
    let ended = ended(cell, work).await;
    assert_eq!(ended.state, InstanceState::Crashed, "{ended:?}");
    ended.ended.unwrap()
}

/// Returns a counter of the cell.
async fn counter(cell: &Cell, name: &str) -> u64 {
    let answer = cell.client.request("$SRV.STATS", "".into()).await.unwrap();
    let stats: serde_json::Value = serde_json::from_slice(&answer.payload).unwrap();
    let data = &stats["endpoints"][0]["data"];
    data[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {stats}"))
}

#[tokio::test]
async fn an_archive_is_fetched_once_by_the_instance_and_unpacked_for_each() {
    let server = NatsServer::start().await;
    let state = open_directory();
    let archive = program(7);
    let name = sum(&archive);
    let web = Web::start([
        ("/web.tar.gz", Reply::Redirect("/moved".into())),
        ("/moved", Reply::Body(archive)),
    ])
    .await;
    let cell = Cell::start(&server, kept_in(state.path(), LONG)).await;
    let work = || task(&["bin/run"], web.url("/web.tar.gz"), name.clone());
    // two at the same time: one fetches, and the other waits for it
    let (one, other) = (work(), work());
    let ids = [one.instance, other.instance];
    cell.must_start(vec![one, other]).await;
    for id in ids {
        let ended = cell.wait_for(id, InstanceState::Crashed).await;
        assert_eq!(ended.ended.as_deref(), Some("exit 7"));
    }
    let again = ended(&cell, work()).await;
    assert_eq!(again.ended.as_deref(), Some("exit 7"));
    let asked = web.asked();
    assert_eq!(
        asked.len(),
        2,
        "the archive and the redirect to it: {asked:?}"
    );
    let own = rustix::process::geteuid().as_raw();
    for one in &asked {
        assert!(own != 0 || (70_000..=79_999).contains(&one.user), "{one:?}");
    }
    assert_eq!(
        cell.state().await["cached_blobs"],
        serde_json::json!([name])
    );
    assert_eq!(counter(&cell, "sources_fetched").await, 1);
    assert_eq!(counter(&cell, "sources_cached").await, 2);
    let left = fs::read_dir(state.path().join("sources/a"))
        .unwrap()
        .count();
    assert_eq!(left, 1, "nothing but the archive");
    cell.end().await;
    // it is still there in the next run of the rep
    let cell = Cell::start(&server, kept_in(state.path(), LONG)).await;
    assert_eq!(
        cell.state().await["cached_blobs"],
        serde_json::json!([name])
    );
    cell.end().await;
}

/// Needs root, which gives each instance a user of its own.
#[tokio::test]
async fn no_instance_can_reach_what_the_cell_keeps() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let server = NatsServer::start().await;
    let state = open_directory();
    let script = "#!/bin/sh\nls \"$1\" && exit 3; cat \"$1/$2\" && exit 4; exit 0\n";
    let name = sum(script.as_bytes());
    let web = Web::start([("/run", Reply::Body(script.into()))]).await;
    let cell = Cell::start(&server, kept_in(state.path(), LONG)).await;
    let kept = state.path().join("sources/a");
    let words = ["./source", kept.to_str().unwrap(), &name];
    let first = ended(&cell, task(&words, web.url("/run"), name.clone())).await;
    assert_eq!(first.ended.as_deref(), Some("exit 0"));
    for path in [kept.clone(), kept.join(&name)] {
        let data = fs::metadata(&path).unwrap();
        assert_eq!(
            (data.uid(), data.mode() & 0o077),
            (0, 0),
            "{}",
            path.display()
        );
    }
    // a blob that has changed since is fetched again
    fs::write(kept.join(&name), "other").unwrap();
    let words = ["./source", "/nosuch", "x"];
    let again = ended(&cell, task(&words, web.url("/run"), name)).await;
    assert_eq!(again.ended.as_deref(), Some("exit 0"));
    assert_eq!(web.asked().len(), 2);
    cell.end().await;
}

#[tokio::test]
async fn what_cannot_be_had_says_why() {
    let server = NatsServer::start().await;
    let mut events = subscribe(&server, "vendue.event.*.task.a").await;
    let state = open_directory();
    let large = vec![1; (1 << 20) + 1];
    let web = Web::start([
        ("/loop", Reply::Redirect("/loop?s3cret".into())),
        ("/large", Reply::Body(large.clone())),
        ("/wrong", Reply::Body(b"other".to_vec())),
        ("/broken", Reply::Status(500)),
        ("/bad", Reply::Redirect("nosuch://user:s3cret@host/".into())),
    ])
    .await;
    let cell = Cell::start(&server, kept_in(state.path(), LONG)).await;
    let (expected, actual) = (sum(b"expected"), sum(b"other"));
    let of = |path: &str| {
        let url = format!("http://me:s3cret@127.0.0.1:{}{path}?key=s3cret", web.port);
        let mut work = task(&["true"], url, expected.clone());
        work.disk_mb = 1;
        work
    };
    for (path, why) in [
        ("/loop", "more than 5 redirects; expected 5 at most"),
        (
            "/large",
            "more than 1 MiB; expected at most the instance's disk limit",
        ),
        ("/broken", "HTTP 500; expected 200"),
        ("/nosuch", "HTTP 404; expected 200"),
        (
            "/wrong",
            &format!("run.source.sha256: {actual}; expected {expected}"),
        ),
        ("/bad", "run.source.url: "),
    ] {
        let said = failure(&cell, of(path)).await;
        let begins = said.starts_with("run.source.");
        assert!(
            begins && said.contains(why) && !said.contains("s3cret"),
            "{path}: {said}"
        );
        let event = next_where(&mut events, |event| event["kind"] == "crashed").await;
        let text = event.to_string();
        assert!(text.contains(&said) && !text.contains("s3cret"), "{text}");
    }
    let redirects = web
        .asked()
        .iter()
        .filter(|one| one.path.starts_with("/loop"))
        .count();
    assert_eq!(redirects, 6);
    assert!(
        web.asked()
            .iter()
            .any(|one| one.authorization == "Basic bWU6czNjcmV0")
    );
    assert_eq!(counter(&cell, "sources_failed").await, 6);
    // a port that nobody listens on
    let nobody = task(&["true"], "http://127.0.0.1:1/".into(), expected.clone());
    let said = failure(&cell, nobody).await;
    assert!(
        said.starts_with("run.source.url: http://127.0.0.1:1/: "),
        "{said}"
    );
    // an instance that is allowed enough disk space can have the large one
    let mut work = task(&["test", "-s", "source"], web.url("/large"), sum(&large));
    work.disk_mb = 4;
    assert_eq!(ended(&cell, work).await.ended.as_deref(), Some("exit 0"));
    let left = fs::read_dir(state.path().join("sources/a"))
        .unwrap()
        .count();
    assert_eq!(left, 1, "of the others nothing is kept");
    cell.end().await;
}

#[tokio::test]
async fn a_slow_server_does_not_hold_an_instance_for_ever() {
    let server = NatsServer::start().await;
    let state = open_directory();
    let web = Web::start([("/stuck", Reply::Stuck)]).await;
    let cell = Cell::start(&server, kept_in(state.path(), Duration::from_secs(1))).await;
    let said = failure(&cell, task(&["true"], web.url("/stuck"), sum(b"x"))).await;
    assert!(said.contains("--source-timeout"), "{said}");
    cell.end().await;
}

#[tokio::test]
async fn an_instance_can_be_stopped_while_it_is_fetched() {
    let server = NatsServer::start().await;
    let state = open_directory();
    let web = Web::start([("/stuck", Reply::Stuck)]).await;
    let cell = Cell::start(&server, kept_in(state.path(), LONG)).await;
    let works = [0, 1].map(|_| task(&["true"], web.url("/stuck"), sum(b"x")));
    let ids = works.each_ref().map(|work| work.instance);
    cell.must_start(works.to_vec()).await;
    web.is_asked("/stuck").await;
    let ours = |pid: &u32| lives(*pid) && parent_is_ours(*pid);
    let fetching = processes_with("supervise-source\0fetch");
    assert!(fetching.iter().any(ours));
    // the other one waits for the first
    assert_eq!(web.asked().len(), 1);
    let stop = serde_json::json!({"app": "task"});
    cell.ask("stop", crate::harness::json(&stop)).await;
    for id in ids {
        let ended = cell.wait_for(id, InstanceState::Exited).await;
        assert_eq!(ended.ended.as_deref(), Some("stopped"));
    }
    assert_eq!(fetching.iter().filter(|pid| ours(pid)).count(), 0);
    assert_eq!(counter(&cell, "sources_failed").await, 0);
    assert_eq!(
        fs::read_dir(state.path().join("sources/a"))
            .unwrap()
            .count(),
        0
    );
    cell.end().await;
}

/// Returns whether this test's process started it by way of a supervisor.
fn parent_is_ours(pid: u32) -> bool {
    let Ok(supervisor) = u32::try_from(crate::harness::parent(pid)) else {
        return false;
    };
    lives(supervisor) && crate::harness::parent(supervisor).unsigned_abs() == std::process::id()
}

#[tokio::test]
async fn without_a_state_directory_it_is_fetched_each_time() {
    let server = NatsServer::start().await;
    let archive = program(0);
    let name = sum(&archive);
    let web = Web::start([("/web.tar.gz", Reply::Body(archive))]).await;
    let cell = Cell::start(&server, process_config("a")).await;
    for _ in 0..2 {
        let work = task(&["bin/run"], web.url("/web.tar.gz"), name.clone());
        assert_eq!(ended(&cell, work).await.ended.as_deref(), Some("exit 0"));
    }
    assert_eq!(web.asked().len(), 2);
    assert_eq!(cell.state().await["cached_blobs"], serde_json::Value::Null);
    cell.end().await;
}
