//! Limits that end an instance, or that keep it from growing.

use std::{
    fs,
    path::{Path, PathBuf},
};

use placement::Kind;
use rep::{ExecutorKind, IfZero, MemoryLimit, ProcessConfig, RepConfig};
use shared::{
    proc,
    wire::{InstanceState, Work},
};
use testkit::{NatsServer, eventually};

use crate::harness::{Cell, command, json, lives, process_config};

fn config_with(name: &str, change: impl FnOnce(&mut ProcessConfig)) -> RepConfig {
    let mut config = process_config(name);
    if let ExecutorKind::Process(process) = &mut config.executor {
        change(process);
    }
    config
}

fn task(script: &str) -> Work {
    Work {
        kind: Kind::Task,
        ..command("task", &["sh", "-c", script])
    }
}

/// Runs this work, and returns how its instance ended.
async fn end_of(cell: &Cell, work: Work, state: InstanceState) -> String {
    let id = work.instance;
    cell.must_start(vec![work]).await;
    cell.wait_for(id, state).await.ended.unwrap()
}

#[tokio::test]
async fn too_much_disk_ends_it() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("disk")).await;
    let fills = Work {
        disk_mb: 2,
        ..task("mkdir -p a/b; head -c 4m /dev/zero > a/b/file; sleep 1000")
    };
    let ended = end_of(&cell, fills, InstanceState::Crashed).await;
    assert_eq!(ended, "over its disk limit");
    let deep = task("for i in $(seq 200); do mkdir d; cd d; done; sleep 1000");
    let ended = end_of(&cell, deep, InstanceState::Crashed).await;
    assert_eq!(ended, "over its limit of files");
    cell.end().await;
}

#[tokio::test]
async fn a_fork_bomb_stays_within_its_limit_and_ends() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config_with("bomb", |p| p.max_processes = 60)).await;
    let work = command(
        "bomb",
        &[
            "sh",
            "-c",
            "bomb() { bomb | bomb & }; bomb & exec sleep 1000",
        ],
    );
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let pid = cell.wait_for(id, InstanceState::Running).await.pid.unwrap();
    let user = proc::user(pid).unwrap();
    let processes = || proc::every().filter(|pid| proc::user(*pid) == Some(user) && lives(*pid));
    if rustix::process::geteuid().is_root() {
        assert!(processes().count() <= 60);
    }
    cell.ask("stop", json(&serde_json::json!({"app": "bomb"})))
        .await;
    cell.wait_for(id, InstanceState::Exited).await;
    if rustix::process::geteuid().is_root() {
        eventually("no process", async || processes().next().is_none()).await;
    }
    cell.end().await;
}

#[tokio::test]
async fn too_many_processes_are_seen_where_the_user_is_shared() {
    let server = NatsServer::start().await;
    let config = config_with("count", |process| {
        process.max_processes = 10;
        process.memory = MemoryLimit::Watch;
        // no user of the instance's own; for root, that is not the default
        process.run_as = rustix::process::geteuid()
            .is_root()
            .then(|| "nobody".into());
    });
    let cell = Cell::start(&server, config).await;
    let many = task("for i in $(seq 20); do sleep 1000 & done; wait");
    let ended = end_of(&cell, many, InstanceState::Crashed).await;
    assert_eq!(ended, "over its limit of processes");
    cell.end().await;
}

#[tokio::test]
async fn what_asks_for_no_memory_has_the_limit_of_the_cell() {
    let server = NatsServer::start().await;
    let cell = Cell::start(
        &server,
        config_with("zero", |p| p.memory_if_zero = IfZero::Limit(40)),
    )
    .await;
    let nothing = |script| Work {
        memory_mb: 0,
        disk_mb: 0,
        ..task(script)
    };
    let small = nothing("test $MEMORY_LIMIT = 40m");
    assert_eq!(end_of(&cell, small, InstanceState::Exited).await, "exit 0");
    let large = nothing("head -c 200m /dev/zero | tail");
    let ended = end_of(&cell, large, InstanceState::Crashed).await;
    assert_eq!(ended, "over its memory limit");
    cell.end().await;

    let refuse = |p: &mut ProcessConfig| {
        (p.memory_if_zero, p.disk_if_zero) = (IfZero::Refuse, IfZero::Refuse);
    };
    let cell = Cell::start(&server, config_with("refuse", refuse)).await;
    let start = cell.start_of(vec![nothing("true")]).await;
    let refused = cell.send(&start).await.refused;
    let expected = "memory_mb is 0: this cell takes no instance without a limit";
    assert_eq!(refused[0].reason, expected);
    cell.end().await;
}

/// Returns the control group of a process, where version 2 is mounted.
fn group_of(pid: u32) -> PathBuf {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    Path::new("/sys/fs/cgroup").join(group.unwrap_or_else(|| panic!("{groups}")))
}

/// Returns whether reps can use control groups version 2 here; prints a note if not.
fn has_version_2() -> bool {
    let file = "/sys/fs/cgroup/cgroup.controllers";
    let controllers = fs::read_to_string(file).unwrap_or_default();
    let both = ["memory", "pids"];
    let has = both.map(|name| controllers.split_whitespace().any(|c| c == name));
    let can = rustix::process::geteuid().is_root() && has == [true; 2];
    if !can {
        eprintln!("LEFT OUT: needs root and {both:?} in {file}, which has {controllers:?}");
    }
    can
}

#[tokio::test]
async fn control_groups_version_2_bound_memory_swap_and_processes() {
    if !has_version_2() {
        return;
    }
    let server = NatsServer::start().await;
    let config = config_with("version-2", |process| {
        process.max_processes = 20;
        // a user shared with others, so the user's own limit does not apply
        process.run_as = Some("nobody".into());
    });
    let cell = Cell::start(&server, config).await;
    let bomb = "bomb() { bomb | bomb & }; bomb; exec sleep 1000";
    let work = command("bomb", &["sh", "-c", bomb]);
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let pid = cell.wait_for(id, InstanceState::Running).await.pid.unwrap();
    let group = group_of(pid);
    let setting = |file: &str| {
        fs::read_to_string(group.join(file))
            .unwrap()
            .trim()
            .to_owned()
    };
    assert_eq!(setting("memory.max"), (100_u64 << 20).to_string());
    assert_eq!(setting("memory.oom.group"), "1");
    assert_eq!(setting("pids.max"), "21");
    // a kernel without swap accounting has no such file
    let swap = fs::read_to_string(group.join("memory.swap.max")).unwrap_or("0".into());
    assert_eq!(swap.trim(), "0");
    eventually("the kernel to refuse a process", async || {
        let events = setting("pids.events");
        if events == "max 0" {
            Err(events)
        } else {
            Ok(())
        }
    })
    .await;
    let count: u32 = setting("pids.current").parse().unwrap();
    assert!((1..=21).contains(&count), "{count}");
    cell.ask("stop", json(&serde_json::json!({"app": "bomb"})))
        .await;
    cell.wait_for(id, InstanceState::Exited).await;
    assert!(!group.exists());

    // one of two processes exceeds the limit, and both end
    let hog = task("sleep 1000 & dd if=/dev/zero of=/dev/null bs=200M count=1; sleep 1000");
    let ended = end_of(&cell, hog, InstanceState::Crashed).await;
    assert_eq!(ended, "over its memory limit");
    cell.end().await;
}
