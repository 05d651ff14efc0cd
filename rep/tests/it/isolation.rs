//! What an instance cannot reach: rights, other processes, descriptors. Most of these tests need root, which gives each
//! instance a user of its own.

use std::{fs, process::Command};

use placement::Kind;
use rep::ExecutorKind;
use serde_json::{Value, json as value};
use shared::{
    proc,
    wire::{InstanceState, Work},
};
use testkit::{NatsServer, eventually};

use crate::{
    apart::{NOBODY, SECRET, apart, client_of, home_of, open_directory},
    harness::{Cell, command, field, json, parent, process_config},
};

/// Returns the lines of an app's output.
async fn output(cell: &Cell, app: &str) -> Vec<String> {
    let answer = cell.ask("logs", json(&value!({"app": app}))).await;
    let lines: Vec<Value> = field(&answer, "lines");
    lines
        .iter()
        .map(|line| line["text"].as_str().unwrap().to_owned())
        .collect()
}

fn task(app: &str, script: &str) -> Work {
    Work {
        kind: Kind::Task,
        ..command(app, &["sh", "-c", script])
    }
}

#[tokio::test]
async fn an_instance_has_no_rights_and_its_limits() {
    let server = NatsServer::start().await;
    let mut config = process_config("rights");
    if let ExecutorKind::Process(process) = &mut config.executor {
        (process.max_files, process.max_processes) = (77, 78);
    }
    let cell = Cell::start(&server, config).await;
    let script = "cat /proc/self/status /proc/self/limits; stat -c 'directory %a %u' $TMPDIR; \
                  id -u; id -G; ls /proc/self/fd; echo open > /dev/stdout";
    let work = task("look", script);
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let ended = cell.wait_for(id, InstanceState::Exited).await;
    assert_eq!(ended.ended.as_deref(), Some("exit 0"));
    let said = output(&cell, "look").await;
    let all = said.join("\n");
    let line = |begins: &str| {
        let line = said.iter().find(|line| line.starts_with(begins));
        let words = line
            .unwrap_or_else(|| panic!("{begins}: {all}"))
            .split_whitespace();
        words
            .skip(begins.split_whitespace().count())
            .collect::<Vec<_>>()
    };
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(line(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(line("NoNewPrivs:"), ["1"]);
    assert_eq!(line("Max core file size")[..2], ["0", "0"]);
    assert_eq!(line("Max open files")[..2], ["77", "77"]);
    // its standard streams, and what `ls` opens
    assert!(all.contains("\n0\n1\n2\n3\nopen"), "{all}");
    assert_eq!(line("directory")[0], "700");
    if rustix::process::geteuid().is_root() {
        assert_eq!(line("CapBnd:"), ["0000000000000000"]);
        assert_eq!(line("Max processes")[..2], ["78", "78"]);
        let user: u32 = line("directory")[1].parse().unwrap();
        assert!((70_000..=79_999).contains(&user), "{user}");
        assert_eq!(line("Uid:"), vec![user.to_string(); 4]);
        assert_eq!(line("Gid:"), vec![user.to_string(); 4]);
        assert_eq!(line("Groups:"), Vec::<&str>::new());
    }
    cell.end().await;
}

/// A process that can open a terminal can type on behalf of its user, if the kernel allows that.
#[tokio::test]
async fn an_instance_has_no_terminal() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("terminal")).await;
    let work = command("web", &["sleep", "1000"]);
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let pid = cell.wait_for(id, InstanceState::Running).await.pid.unwrap();
    // after the name: state, parent, process group, session, terminal
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<i32> = stat.rsplit_once(") ").unwrap().1[2..]
        .split(' ')
        .map_while(|field| field.parse().ok())
        .collect();
    let [parent, _, session, terminal] = fields[..4] else {
        panic!("{stat}")
    };
    assert_eq!(
        (session, terminal),
        (parent, 0),
        "a session of its supervisor: {stat}"
    );
    cell.end().await;
}

#[tokio::test]
async fn two_instances_are_two_users() {
    if !rustix::process::geteuid().is_root() {
        return; // without root, the users are the rep's own, as documented
    }
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("users")).await;
    let mut users = Vec::new();
    for _ in 0..3 {
        let work = command("web", &["sleep", "1000"]);
        let id = work.instance;
        cell.must_start(vec![work]).await;
        let pid = cell.wait_for(id, InstanceState::Running).await.pid.unwrap();
        users.push(proc::user(pid).unwrap());
    }
    let distinct: std::collections::BTreeSet<&u32> = users.iter().collect();
    assert_eq!(distinct.len(), 3, "{users:?}");
    cell.end().await;
}

#[tokio::test]
async fn files_outside_the_directory_go_with_the_user() {
    if !rustix::process::geteuid().is_root() {
        return; // without a user of its own, its files cannot be found, as documented
    }
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("files")).await;
    let work = task(
        "leave",
        "mkdir -p /tmp/$INSTANCE_ID/below && touch /tmp/$INSTANCE_ID/below/file \
         /dev/shm/$INSTANCE_ID /var/tmp/$INSTANCE_ID",
    );
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let ended = cell.wait_for(id, InstanceState::Exited).await;
    assert_eq!(ended.ended.as_deref(), Some("exit 0"));
    for directory in ["/tmp", "/dev/shm", "/var/tmp"] {
        let path = format!("{directory}/{id}");
        assert!(!fs::exists(&path).unwrap(), "{path}");
    }
    cell.end().await;
}

/// A program that prints, for each process, what it may do to that process.
const REACH: &str = r#"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>
static int readable(int pid, const char *file) {
    char path[64], byte;
    snprintf(path, sizeof path, "/proc/%d/%s", pid, file);
    int fd = open(path, O_RDONLY);
    /* nothing is mapped at 0: EIO is an answer of the memory */
    return fd >= 0 && (read(fd, &byte, 1) >= 0 || errno == EIO);
}
int main(int count, char **words) {
    for (int n = 1; n < count; n++) {
        int pid = atoi(words[n]);
        if (readable(pid, "environ")) printf("%d environ\n", pid);
        if (readable(pid, "mem")) printf("%d mem\n", pid);
        if (ptrace(PTRACE_SEIZE, pid, 0, 0) == 0) printf("%d ptrace\n", pid);
        if (kill(pid, 0) == 0) printf("%d kill\n", pid);
    }
    printf("done\n");
}
"#;

/// Returns what an instance of this cell may do to another one, to both supervisors, and to the rep.
async fn reached(name: &str, user: Option<u32>) -> Vec<String> {
    let server = NatsServer::start().await;
    let tools = open_directory();
    let [source, reach] = ["reach.c", "reach"].map(|name| tools.path().join(name));
    fs::write(&source, REACH).unwrap();
    let built = Command::new("cc")
        .arg("-o")
        .args([&reach, &source])
        .status();
    assert!(built.unwrap().success());

    let home = home_of(user);
    let rep = apart(&server, name, &value!({"state_dir": home.path()}), user);
    let cell = client_of(&server, name).await;
    // a process has no environment while its program is being loaded
    assert!(
        proc::environment(rep.pid())
            .windows(SECRET.len())
            .any(|w| w == SECRET.as_bytes())
    );
    let other = command("other", &["sleep", "1000"]);
    let id = other.instance;
    cell.must_start(vec![other]).await;
    let other = cell.wait_for(id, InstanceState::Running).await.pid.unwrap();
    let script = format!(
        "{} $PPID {} {} {other}",
        reach.display(),
        rep.pid(),
        parent(other)
    );
    cell.must_start(vec![task("reach", &script)]).await;
    let said = eventually("all acts to be tried", async || {
        let said = output(&cell, "reach").await;
        if said.last().is_some_and(|line| line == "done") {
            Ok(said)
        } else {
            Err(said.join("; "))
        }
    })
    .await;
    let names = [(rep.pid(), "rep"), (other, "other")];
    let names = names.map(|(pid, name)| (pid.to_string(), name));
    let named = |line: &String| {
        let (pid, act) = line.split_once(' ')?;
        let name = names.iter().find(|(known, _)| known == pid);
        Some(format!(
            "{act} {}",
            name.map_or("supervisor", |(_, name)| name)
        ))
    };
    let mut acts: Vec<String> = said.iter().filter_map(named).collect();
    acts.sort();
    acts
}

#[tokio::test]
async fn an_instance_cannot_read_trace_or_signal_anything_of_the_cell() {
    if rustix::process::geteuid().is_root() {
        assert_eq!(reached("reach-root", None).await, Vec::<String>::new());
    }
}

/// Needs root, to become another user.
#[tokio::test]
async fn without_root_the_memory_of_the_rep_and_of_supervisors_is_closed() {
    let user = rustix::process::geteuid().is_root().then_some(NOBODY);
    let acts = reached("reach-nobody", user).await;
    // they have the same user, so signals and other instances are accessible
    let expected = [
        "kill other",
        "kill rep",
        "kill supervisor",
        "kill supervisor",
    ];
    let of_others: Vec<&String> = acts.iter().filter(|act| !act.ends_with("other")).collect();
    assert_eq!(of_others, expected[1..], "{acts:?}");
}
