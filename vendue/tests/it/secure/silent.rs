//! No refusal is silent: commands fail at once and name the subject, and roles end or warn.

use std::{fs, process::Stdio};

use super::cluster::Secure;
use crate::common::until;

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_refused_fails_and_names_the_subject() {
    let (secure, _roles) = Secure::cluster().await;
    for (who, line, subject) in [
        (
            "alice",
            "drain cell-a",
            "publish to vendue.cell.cell-a.drain",
        ),
        (
            "alice",
            "cells set cell-a rack=r1",
            "publish to vendue.cell.cell-a.set",
        ),
        ("alice", "sim record --for 10s", "vendue."),
        (
            "alice",
            "ps --inbox-prefix _INBOX.bob",
            "subscribe to _INBOX.bob.",
        ),
        ("alice", "ps --identity bob", "bob"),
        ("obs", "cells", "publish to vendue.pool"),
        ("obs", "ps", "publish to vendue."),
        ("obs", "health", "publish to vendue.pool"),
        (
            "obs",
            "run web --memory 1 --disk 1 -- true",
            "publish to vendue.",
        ),
        // without --force, a manager is first asked whether it keeps the app running
        ("obs", "stop web --force", "publish to vendue.stop"),
        ("obs", "app scale web 2", "publish to vendue.app.scale.web"),
        ("obs", "logs web --follow", "vendue."),
        ("met", "logs web", "vendue."),
        ("met", "explain web", "publish to vendue.explain"),
        ("rec", "wait web", "vendue."),
        ("cell-a", "events --for 10s", "subscribe to vendue.event.>"),
        ("cell-a", "ps", "vendue."),
        (
            "auc-0",
            "drain cell-a",
            "publish to vendue.cell.cell-a.drain",
        ),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let said = secure.run(who, &args);
        assert_eq!(said.code, Some(1), "{who} {line}: {said:?}");
        let said_so = said.err.contains("not permitted to ") && said.err.contains(subject);
        assert!(said_so, "{who} {line}: {said:?}");
    }
    let said = secure.run("alice", &["drain", "cell-a", "--output", "json"]);
    assert_eq!(said.expect(1, &[]).json()["error"]["code"], "not_permitted");
    // refused commands had no effect
    secure.run("alice", &["health"]).expect(0, &["2 cells"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_with_the_credentials_of_another_ends_and_names_the_subject() {
    let secure = Secure::server().await;
    for (who, line, subject) in [
        ("cell-a", "rep --cell cell-b --memory 64", "cell-b"),
        ("alice", "rep --cell cell-a --memory 64", "cell-a"),
        ("cell-a", "auctioneer", "vendue-auctioneer"),
        ("alice", "auctioneer --name auc-0", "auc-0"),
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        let said = secure.run(who, &args);
        assert_eq!(said.code, Some(1), "{who} {line}: {said:?}");
        // the connection may warn of another refusal while the error is printed
        let said_so = said.err.lines().any(|line| {
            let all = ["not permitted to ", subject, "credentials"];
            all.iter().all(|part| line.contains(part))
        });
        assert!(said_so, "{who} {line}: {said:?}");
    }
}

/// A mistake in the permissions of a cell must not end its instances.
#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_runs_something_warns_and_goes_on() {
    let mut secure = Secure::server().await;
    let _auctioneer = secure.auctioneer();
    let log = secure.dir.join("rep.log");
    let mut rep = secure.command("cell-a", &["rep", "--cell", "cell-a", "--memory", "64"]);
    let mut rep = rep.stderr(fs::File::create(&log).unwrap());
    rep = rep.stdin(Stdio::null());
    let mut rep = rep.spawn().unwrap();
    secure.healthy(1).await;
    let run = [
        "run", "web", "--memory", "16", "--disk", "1", "--", "sleep", "1000",
    ];
    secure.run("alice", &run).expect(0, &["placed"]);
    secure.run("alice", &["wait", "web"]).expect(0, &[]);

    let config = secure.dir.join("vendue-auth.conf");
    let right = fs::read_to_string(&config).unwrap();
    let wrong = right.replace("\"vendue.cell.cell-a.start q\"", "\"vendue.nothing\"");
    assert_ne!(right, wrong);
    fs::write(&config, wrong).unwrap();
    secure.server.restart().await;
    until("the cell to warn", || {
        let said = fs::read_to_string(&log).unwrap();
        let warned = said.contains("not permitted to subscribe to vendue.cell.cell-a.start");
        warned.then_some(()).ok_or(said)
    })
    .await;
    until("the cell to answer again", || {
        let said = secure.run("alice", &["status", "web"]);
        let runs = said.code == Some(0) && said.out.contains("1 running");
        runs.then_some(()).ok_or(format!("{said:?}"))
    })
    .await;
    assert!(rep.try_wait().unwrap().is_none());
    rep.kill().unwrap();
    rep.wait().unwrap();
}
