//! What a shell is offered, asked in the way shells ask.

use std::{
    collections::BTreeSet,
    net::TcpListener,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use crate::common::{Up, end, run, until, vendue};

/// Puts the program where a shell finds it.
fn in_path(command: &mut Command) -> &mut Command {
    let program = Path::new(env!("CARGO_BIN_EXE_vendue"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    command.env("PATH", path)
}

/// Returns what bash offers after this line, of whose last word bash itself only sees the part after its breaks.
fn bash(env: &[(&str, &str)], line: &str) -> BTreeSet<String> {
    let current = line.rsplit([' ', '=', ':', '@']).next().unwrap();
    let script = r#"source <(vendue completions bash)
        COMP_LINE=$1 COMP_POINT=${#1}
        _vendue vendue "$2" ""
        printf '%s\n' "${COMPREPLY[@]}""#;
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash", line, current]);
    command.env("XDG_CONFIG_HOME", "/no/such/directory");
    command.env_remove("NATS_URL").envs(env.iter().copied());
    let said = end(in_path(&mut command).current_dir(crate::common::checkout()));
    assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{line}");
    let lines = said.out.lines().filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

fn offered(up: &Up, line: &str) -> BTreeSet<String> {
    bash(&[("NATS_URL", &up.url)], line)
}

#[track_caller]
fn assert_has(offered: &BTreeSet<String>, wanted: &[&str]) {
    for name in wanted {
        assert!(offered.contains(*name), "no {name} in {offered:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_zones_and_apps_are_those_of_the_cluster() {
    let up = Up::start();
    up.run(&["start", "examples/web.json"]).expect(0, &[]);
    let cells = ["z1-cell-0", "z1-cell-1", "z2-cell-0", "z2-cell-1"];
    for line in [
        "drain ",
        "cells show ",
        "cells set z",
        "ps --cell ",
        "events z",
        "ps --cell=",
    ] {
        // a busy machine may miss the deadline
        until(line, || {
            let offered = offered(&up, &format!("vendue {line}"));
            let all = cells.iter().all(|cell| offered.contains(*cell));
            all.then_some(()).ok_or(format!("{offered:?}"))
        })
        .await;
    }
    for (line, expected) in [
        ("drain z1", &["z1-cell-0", "z1-cell-1"][..]),
        ("place --live x.json --without z2-cell-1", &["z2-cell-1"]),
        (
            "place --live x.json --add-cells 2:like=z2-cell-1",
            &["z2-cell-1"],
        ),
        ("ps --zone z", &["z1", "z2"]),
        ("ps we", &["web"]),
        ("wait ", &["web"]),
        ("logs w", &["web"]),
    ] {
        until(line, || {
            let offered = offered(&up, &format!("vendue {line}"));
            let same = expected.iter().all(|name| offered.contains(*name));
            let none_else = offered
                .iter()
                .all(|o| o.starts_with('-') || expected.contains(&o.as_str()));
            (same && none_else)
                .then_some(())
                .ok_or(format!("{offered:?}"))
        })
        .await;
    }
    // the cluster in the line, whose address bash splits
    let line = format!("vendue --nats {} drain z1-cell-0", up.url);
    until("the cell", || {
        let offered = bash(&[], &line);
        offered
            .contains("z1-cell-0")
            .then_some(())
            .ok_or(format!("{offered:?}"))
    })
    .await;
    let line = "vendue --prefix other drain z1-cell-0";
    assert_eq!(offered(&up, line), BTreeSet::new());
    until("fish and zsh", || {
        let ask = |shell: &str| {
            let mut command = vendue();
            command
                .env("VENDUE_COMPLETE", shell)
                .env("NATS_URL", &up.url);
            command.env("_CLAP_COMPLETE_INDEX", "2");
            end(command.args(["--", "vendue", "drain", "z2-cell-1"]))
        };
        let both = [ask("fish"), ask("zsh")];
        let all = both.iter().all(|said| said.out.contains("z2-cell-1"));
        all.then_some(()).ok_or(format!("{both:?}"))
    })
    .await;
}

#[test]
fn commands_policies_scenarios_and_files_need_no_cluster() {
    let nowhere = [("NATS_URL", "127.0.0.1:1")];
    let offered = |line: &str| bash(&nowhere, line);
    let commands = offered("vendue ");
    assert_has(&commands, &["run", "ps", "cells", "completions"]);
    assert!(!commands.contains("web"), "{commands:?}");
    for line in ["vendue we", "vendue super", "vendue up --until"] {
        assert_eq!(offered(line), BTreeSet::new(), "{line}");
    }
    assert_has(&offered("vendue policy show "), &["dea", "diego"]);
    assert_has(&offered("vendue place x.json --policy=di"), &["diego"]);
    assert_has(
        &offered("vendue auctioneer --policy examples/po"),
        &["examples/policy.toml"],
    );
    let old = "diego-2014-random";
    assert_has(&offered("vendue sim mendix-48h --policy "), &["dapi", old]);
    assert!(!offered("vendue up --policy ").contains(old));
    assert_has(&offered("vendue sim mendix-4"), &["mendix-48h"]);
    assert_has(
        &offered("vendue sim examples/sc"),
        &["examples/scenario.json"],
    );
    assert_has(&offered("vendue start examples/w"), &["examples/web.json"]);
    assert_has(
        &offered("vendue events --kind placed,cell-l"),
        &["placed,cell-lost"],
    );
    assert_has(&offered("vendue cells --where ra"), &["rack"]);
    assert_has(&offered("vendue cells set c1 next_re"), &["next_reboot="]);
    assert_eq!(offered("vendue drain z"), BTreeSet::new());
}

#[test]
fn a_server_that_says_nothing_is_not_waited_for() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("nats://{}", mute.local_addr().unwrap());
    let began = Instant::now();
    assert_eq!(
        bash(&[("NATS_URL", &url)], "vendue drain z"),
        BTreeSet::new()
    );
    // half of the time that a connection may take
    assert!(
        began.elapsed() < Duration::from_millis(2_500),
        "{:?}",
        began.elapsed()
    );
}

#[test]
fn every_shell_has_its_script() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let said = run(&["completions", shell]);
        said.expect(0, &["VENDUE_COMPLETE", "vendue"]);
    }
    run(&["completions", "csh"]).expect(2, &["csh", "bash"]);
}
