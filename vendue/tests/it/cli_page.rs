//! Checks that docs/CLI.md describes the JSON document of every command.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use serde_json::Value;

use crate::common::{Up, checkout, end, is_old_server, run, vendue};

/// The fields of a document: those that are always present, and optional ones.
type Fields = (BTreeSet<String>, BTreeSet<String>);

/// Returns the commands of the page with the fields of their documents.
fn page() -> BTreeMap<String, Fields> {
    let page = fs::read_to_string(checkout().join("docs/CLI.md")).unwrap();
    let commands = page.split("## Commands").nth(1).unwrap();
    let rows = commands.lines().filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let document = columns[4].split(';').next().unwrap();
        let (mut always, mut optional) = (BTreeSet::new(), BTreeSet::new());
        let parts: Vec<&str> = document.split('`').collect();
        for pair in parts[1..].chunks(2) {
            let fields = if pair.get(1).is_some_and(|after| after.starts_with('?')) {
                &mut optional
            } else {
                &mut always
            };
            fields.insert(pair[0].to_owned());
        }
        (columns[1].trim_matches('`').to_owned(), (always, optional))
    })
    .collect()
}

fn keys(document: &Value) -> BTreeSet<String> {
    document.as_object().unwrap().keys().cloned().collect()
}

#[track_caller]
pub(crate) fn check(command: &str, document: &Value) {
    let page = page();
    let (always, optional) = &page[command];
    assert_eq!(document["v"], 1, "{command}: {document}");
    let keys = keys(document);
    let missing: Vec<_> = always.difference(&keys).collect();
    assert!(missing.is_empty(), "{command}: no {missing:?}: {document}");
    let listed: BTreeSet<String> = always.union(optional).cloned().collect();
    let unlisted: Vec<_> = keys.difference(&listed).collect();
    assert!(
        unlisted.is_empty(),
        "{command}: {unlisted:?} are not listed: {document}"
    );
}

#[test]
fn every_command_is_on_the_page() {
    let page = page();
    let help = run(&["--help"]).out;
    let commands = help.split("Commands:").nth(1).unwrap();
    let commands = commands.split("\n\n").next().unwrap();
    let names: Vec<&str> = commands
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.len() > 15, "{help}");
    for name in names {
        let listed = page.keys().any(|row| row.split(' ').next() == Some(name));
        assert!(listed, "{name} is not in docs/CLI.md");
    }
}

#[test]
fn documents_without_a_cluster_are_as_documented() {
    let json = |code: i32, line: &str| {
        let args: Vec<&str> = line.split(' ').chain(["--output", "json"]).collect();
        run(&args).expect(code, &[]).json()
    };
    for (command, code, line) in [
        ("version", 0, "version"),
        ("place FILE", 3, "place examples/scenario.json"),
        (
            "place FILE",
            3,
            "place examples/scenario.json --explain=cells",
        ),
        (
            "capacity",
            0,
            "capacity --memory 64M --disk 1 --scenario examples/scenario.json",
        ),
        (
            "capacity",
            3,
            "capacity --memory 64G --disk 1 --scenario examples/scenario.json",
        ),
        ("policy list", 0, "policy list"),
        ("policy show NAME", 0, "policy show dea"),
        (
            "policy check FILE",
            0,
            "policy check examples/policy.toml --tree",
        ),
        ("policy check FILE", 2, "policy check README.md"),
        (
            "policy tune SCENARIO",
            0,
            "policy tune small-cold-4 --policy diego --for balance --seeds 1 --tries 2",
        ),
        ("sim --list", 0, "sim --list"),
        ("sim SCENARIO", 0, "sim small-cold-4"),
    ] {
        check(command, &json(code, line));
    }
    for (code, line, name, field) in [
        (2, "ps --nosuch", "invalid_request", Some("--nosuch")),
        (
            2,
            "capacity --memory x --disk 1",
            "invalid_request",
            Some("--memory"),
        ),
        (2, "drain a.b", "invalid_request", Some("CELL")),
        (2, "place /no/such/file.json", "invalid_request", None),
        (2, "up --policy nosuch", "invalid_request", None),
        (1, "ps --nats 127.0.0.1:1", "unreachable", None),
    ] {
        let error = &json(code, line)["error"];
        assert_eq!(error["code"], name, "{line}: {error}");
        assert_eq!(error["field"].as_str(), field, "{line}: {error}");
        let message = error["message"].as_str().unwrap();
        assert!(
            !message.is_empty() && !message.contains("Usage"),
            "{line}: {error}"
        );
    }
}

#[test]
fn documents_of_keys_are_as_documented() {
    let files = tempfile::tempdir().unwrap();
    let dir = files.path().join("auth");
    let json = |line: &str| {
        let args: Vec<&str> = line.split(' ').chain(["--output", "json"]).collect();
        end(vendue().arg("auth").args(args).arg("--dir").arg(&dir))
            .expect(0, &[])
            .json()
    };
    check("auth init", &json("init"));
    for (line, role, name) in [
        ("add-cell c1 c2", "cell", "c1"),
        ("add-auctioneer a1", "auctioneer", "a1"),
        ("add-manager m1", "manager", "m1"),
        ("add-user alice", "user", "alice"),
        ("add-user olga --role operator", "operator", "olga"),
    ] {
        let document = json(line);
        // the page says that the others are like this one
        check("auth add-cell NAME", &document);
        let added = &document["added"][0];
        let expected = ["context", "key", "name", "nkey", "role"].map(String::from);
        assert_eq!(keys(added), expected.into(), "{line}: {added}");
        assert_eq!(
            (&added["role"], &added["name"]),
            (&role.into(), &name.into())
        );
        for file in ["key", "context"] {
            let file = added[file].as_str().unwrap();
            assert!(fs::exists(file).unwrap(), "{line}: {added}");
        }
    }
    check("auth remove NAME", &json("remove c2"));
    check("auth print", &json("print"));
    let signing_keys = json("print --format jwt");
    assert_eq!(
        keys(&signing_keys),
        ["signing_keys", "v"].map(String::from).into()
    );
    let error = end(vendue()
        .args(["auth", "remove", "nobody", "--output", "json", "--dir"])
        .arg(&dir));
    let error = &error.expect(2, &[]).json()["error"];
    assert_eq!(error["code"], "invalid_request", "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_a_cluster_are_as_documented() {
    let up = Up::with(&["--cells", "2"]);
    check("up", &up.said);
    let json = |code: i32, line: &str| {
        let args: Vec<&str> = line.split(' ').chain(["--output", "json"]).collect();
        up.run(&args).expect(code, &[]).json()
    };
    for (command, code, line) in [
        ("start FILE", 0, "start examples/web.json"),
        ("wait APP", 0, "wait web"),
        ("wait APP", 1, "wait nobody --timeout 1ms"),
        ("ps", 0, "ps"),
        ("ps --addresses", 0, "ps --addresses"),
        ("status", 0, "status"),
        ("status APP", 0, "status web"),
        ("explain APP", 0, "explain web --cells"),
        (
            "place --live FILE",
            0,
            "place --live examples/worker.json --explain",
        ),
        ("capacity", 0, "capacity --memory 64M --disk 1M"),
        ("capacity", 3, "capacity --memory 64G --disk 1M"),
        ("cells", 0, "cells"),
        ("cells set CELL", 0, "cells set z1-cell-0 rack=r1"),
        ("health", 0, "health"),
        ("health", 0, "health --role nats"),
        ("health", 0, "health --role rep"),
        ("health", 0, "health --role rep --cell z1-cell-0"),
        ("health", 0, "health --role auctioneer"),
        ("health", 0, "health --role auctioneer --name auctioneer-0"),
        ("stop APP", 0, "stop web"),
        ("drain CELL", 0, "drain z2-cell-0 --deadline 1s"),
    ] {
        if line.contains("nobody") {
            assert_eq!(json(code, line)["error"]["code"], "failed");
            continue;
        }
        check(command, &json(code, line));
    }
    if !is_old_server() {
        for line in [
            "health --role manager",
            "health --role manager --name manager-0",
        ] {
            check("health", &json(0, line));
        }
        assert_eq!(
            json(1, "health --role manager --name nosuch")["error"]["code"],
            "failed"
        );
    }
    let error = &json(1, "cells show nosuch")["error"];
    assert_eq!(error["code"], "not_found", "{error}");
    assert!(
        error["message"].as_str().unwrap().contains("z1-cell-0"),
        "{error}"
    );
    let args = [
        "run", "large", "--memory", "64G", "--disk", "1", "--output", "json", "--", "x",
    ];
    let reply = up.run(&args).expect(3, &[]).json();
    let (always, optional) = &page()["start FILE"];
    let keys = keys(&reply);
    assert!(always.is_subset(&keys), "{reply}");
    assert!(
        keys.iter()
            .all(|k| always.contains(k) || optional.contains(k)),
        "{reply}"
    );
}
