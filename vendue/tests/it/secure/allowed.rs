//! What each role may do works with the real programs, and nothing that they do is refused.

use super::cluster::Secure;

/// An identity, a command, and its exit code.
const COMMANDS: &[(&str, i32, &str)] = &[
    ("alice", 0, "health"),
    ("alice", 0, "health --role nats"),
    ("alice", 0, "health --role auctioneer --name auc-0"),
    ("alice", 0, "health --role rep --cell cell-a"),
    ("alice", 0, "cells"),
    ("alice", 0, "cells show cell-a"),
    (
        "alice",
        0,
        "run web --memory 16 --disk 16 --instances 2 -- sh -c 'echo ready; sleep 1000'",
    ),
    ("alice", 0, "wait web --instances 2"),
    ("alice", 0, "ps"),
    ("alice", 0, "status web"),
    ("alice", 0, "logs web"),
    ("alice", 0, "explain web --cells"),
    ("alice", 0, "capacity --memory 16 --disk 16"),
    ("alice", 0, "place --live examples/worker.json"),
    ("alice", 0, "run once --task --memory 16 --disk 16 -- true"),
    ("alice", 0, "wait once"),
    ("alice", 0, "run bad --memory 16 --disk 16 -- false"),
    ("alice", 3, "run large --memory 64G --disk 16 -- true"),
    ("alice", 0, "ps --all"),
    ("alice", 0, "events --for 100ms"),
    ("op", 0, "cells set cell-a rack=r1"),
    ("op", 0, "ps"),
    ("op", 0, "health"),
    ("obs", 0, "events --for 100ms"),
    ("met", 0, "cells"),
    ("met", 0, "events --for 100ms"),
    ("rec", 0, "sim record --for 100ms"),
    ("cell-a", 0, "health --role rep --cell cell-a"),
    ("auc-0", 0, "health --role auctioneer --name auc-0"),
    ("alice", 0, "stop web"),
    ("op", 0, "drain cell-b --deadline 1s"),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_role_can_do_its_work_and_nothing_of_it_is_refused() {
    let (secure, mut roles) = Secure::cluster().await;
    for (who, code, line) in COMMANDS {
        let mut args = Vec::new();
        let mut quoted = line.split('\'');
        args.extend(quoted.next().unwrap().split_whitespace());
        args.extend(quoted.next());
        let said = secure.run(who, &args);
        assert_eq!(said.code, Some(*code), "{who} {line}: {said:?}");
        assert!(!said.err.contains("permitted"), "{who} {line}: {said:?}");
    }
    let file = secure.dir.join("later.json");
    let later = r#"{"app":"later","memory_mb":64000,"disk_mb":1,"queue_timeout":"5m","run":{"command":["true"]}}"#;
    std::fs::write(&file, later).unwrap();
    let start = secure.run("alice", &["start", file.to_str().unwrap()]);
    start.expect(3, &["queued"]);
    secure.run("alice", &["ps"]).expect(0, &["later"]);
    secure.run("alice", &["stop", "later"]).expect(0, &[]);
    for role in &mut roles[..2] {
        role.end();
    }
    let log = secure.server.log();
    let refused: Vec<&str> = log.lines().filter(|l| l.contains("Violation")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn services_are_listed_and_counted_for_those_who_may() {
    let (secure, _roles) = Secure::cluster().await;
    for (who, subjects) in [
        (
            "op",
            &[
                "$SRV.PING",
                "$SRV.INFO.vendue-cell",
                "$SRV.STATS.vendue-auctioneer",
            ][..],
        ),
        (
            "met",
            &["$SRV.STATS.vendue-cell", "$SRV.STATS.vendue-auctioneer"],
        ),
    ] {
        let raw = secure.raw(who).await;
        for subject in subjects {
            let answer = raw.client.request(*subject, "".into()).await;
            assert!(answer.is_ok(), "{who} {subject}: {answer:?}");
        }
        assert_eq!(raw.refusals(), [""; 0], "{who}");
    }
}
