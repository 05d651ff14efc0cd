//! A rep in a separate process: what is left when it, or a supervisor, is killed.

use std::{fs, path::Path};

use placement::Kind;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json as value};
use shared::wire::{Instance, InstanceState, Work};
use testkit::{NatsServer, eventually};
use uuid::Uuid;

use crate::{
    apart::{NOBODY, apart, client_of, home_of},
    harness::{Cell, command, lives, next_where, parent, process_config, processes_with},
};

#[tokio::test]
async fn a_killed_rep_leaves_no_process_and_no_directory() {
    let server = NatsServer::start().await;
    let home = tempfile::tempdir().unwrap();
    let mut rep = apart(&server, "killed", &value!({"state_dir": home.path()}), None);
    let cell = client_of(&server, "killed").await;
    let word = Uuid::new_v4().to_string();
    let script =
        format!("sh -c 'sleep 1000; : {word}' & setsid sh -c 'sleep 1000; : {word}' & wait");
    let work: Vec<Work> = (0..3)
        .map(|_| command("web", &["sh", "-c", &script]))
        .collect();
    cell.must_start(work).await;
    eventually("all processes", async || {
        let found = processes_with(&word).len();
        if found >= 9 { Ok(()) } else { Err(found) }
    })
    .await;
    rep.kill();
    eventually("no process", async || {
        let found = processes_with(&word);
        if found.is_empty() {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    eventually("no directory", async || {
        let mut left = fs::read_dir(home.path().join("instances")).unwrap();
        left.next().is_none()
    })
    .await;
}

#[tokio::test]
async fn sigterm_ends_a_rep_and_its_instances_in_order() {
    let server = NatsServer::start().await;
    let home = tempfile::tempdir().unwrap();
    let mut rep = apart(
        &server,
        "ordered",
        &value!({"state_dir": home.path()}),
        None,
    );
    let cell = client_of(&server, "ordered").await;
    let mut adverts = cell
        .client
        .subscribe("vendue.cell.ordered.advert")
        .await
        .unwrap();
    let mut log = cell.client.subscribe("vendue.log.>").await.unwrap();
    cell.client.flush().await.unwrap();
    let work = command(
        "web",
        &[
            "sh",
            "-c",
            "trap 'echo bye; exit 0' TERM; echo hi; while :; do sleep 0.05; done",
        ],
    );
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let running = cell.wait_for(id, InstanceState::Running).await;
    next_where(&mut log, |line| line["text"] == "hi").await;
    signal(rep.pid(), Signal::TERM);
    next_where(&mut adverts, |advert| advert["ttl"] == "0s").await;
    next_where(&mut log, |line| line["text"] == "bye").await;
    let status = tokio::task::spawn_blocking(move || rep.wait());
    assert!(status.await.unwrap().success());
    assert!(!lives(running.pid.unwrap()));
}

#[tokio::test]
async fn a_killed_supervisor_takes_its_instance_with_it() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("orphan")).await;
    let word = Uuid::new_v4().to_string();
    let work = Work {
        kind: Kind::Task,
        ..command("web", &["sh", "-c", &format!("sleep 1000; : {word}")])
    };
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let running = cell.wait_for(id, InstanceState::Running).await;
    let supervisor = parent(running.pid.unwrap());
    signal(supervisor.unsigned_abs(), Signal::KILL);
    let ended = cell.wait_for(id, InstanceState::Crashed).await;
    assert!(ended.ended.unwrap().contains("its supervisor was lost"));
    eventually("no process", async || processes_with(&word).is_empty()).await;
    cell.end().await;
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Kills a rep and a supervisor such that neither can react to the death of the other.
async fn kill_both(rep: u32, instance: &Instance) {
    let supervisor = parent(instance.pid.unwrap()).unsigned_abs();
    for each in [rep, supervisor] {
        signal(each, Signal::STOP);
    }
    eventually("both to be stopped", async || {
        shared::proc::is_stopped(rep) && shared::proc::is_stopped(supervisor)
    })
    .await;
    for each in [supervisor, rep] {
        signal(each, Signal::KILL);
    }
    eventually("both to be dead", async || {
        !lives(rep) && !lives(supervisor)
    })
    .await;
}

/// What is left of a rep that was killed together with a supervisor.
struct Left {
    /// A word in the command line of each process.
    word: String,
    /// What ran.
    work: Work,
}

/// Starts a rep with an instance of three processes, and kills it and the instance's supervisor. Returns none if
/// nothing is left: every rep on this machine, including those of other tests, ends what it finds without a rep, when
/// it starts and every 30 s.
async fn leave(
    server: &NatsServer,
    name: &str,
    executor: &Value,
    user: Option<u32>,
) -> Option<Left> {
    let mut rep = apart(server, name, executor, user);
    let cell = client_of(server, name).await;
    let word = Uuid::new_v4().to_string();
    let script = format!(
        "touch /dev/shm/{word}; sh -c 'sleep 1000; : {word}' & setsid sh -c 'sleep 1000; : {word}' & \
         wait"
    );
    let work = command("web", &["sh", "-c", &script]);
    cell.must_start(vec![work.clone()]).await;
    let running = cell.wait_for(work.instance, InstanceState::Running).await;
    eventually("all processes", async || {
        let found = processes_with(&word).len();
        if found >= 3 { Ok(()) } else { Err(found) }
    })
    .await;
    kill_both(rep.pid(), &running).await;
    rep.wait();
    if processes_with(&word).len() < 3 {
        let _ = fs::remove_file(Path::new("/dev/shm").join(&word));
        return None;
    }
    Some(Left { word, work })
}

/// Starts a cell in this place, kills its rep and supervisor, and starts it again.
async fn leaves_and_ends(name: &str, executor: &Value, user: Option<u32>) {
    let server = NatsServer::start().await;
    let home = home_of(user);
    let executor = merged(executor, home.path());
    let mut left = None;
    for _ in 0..10 {
        left = leave(&server, name, &executor, user).await;
        if left.is_some() {
            break;
        }
    }
    let Left { word, work } = left.expect("in ten attempts nobody was left to end it");

    let _again = apart(&server, name, &executor, user);
    let cell = client_of(&server, name).await;
    assert_eq!(processes_with(&word), Vec::<u32>::new());
    let homes = fs::read_dir(home.path().join("instances")).unwrap();
    assert_eq!(homes.count(), 1, "that of the new one");
    // files outside its directory can only be found if the instance has a user of its own
    let alone = user.is_none() && executor.get("run_as").is_none();
    let shared_file = Path::new("/dev/shm").join(&word);
    assert_eq!(shared_file.exists(), !alone);
    let _ = fs::remove_file(shared_file);
    let id = work.instance;
    cell.must_start(vec![work]).await;
    cell.wait_for(id, InstanceState::Running).await;
}

fn merged(executor: &Value, home: &Path) -> Value {
    let mut executor = executor.clone();
    executor["state_dir"] = value!(home);
    executor
}

#[tokio::test]
async fn a_restarted_rep_ends_what_was_left_in_control_groups() {
    leaves_and_ends("left-groups", &value!({}), None).await;
}

#[tokio::test]
async fn a_restarted_rep_ends_what_was_left_without_control_groups() {
    leaves_and_ends("left-users", &value!({"memory": "off"}), None).await;
}

/// Needs root, to become another user.
#[tokio::test]
async fn a_restarted_rep_without_root_ends_what_was_left() {
    leaves_and_ends("left-nobody", &value!({}), Some(NOBODY)).await;
    leaves_and_ends(
        "left-one",
        &value!({"run_as": "nobody", "memory": "off"}),
        None,
    )
    .await;
}
