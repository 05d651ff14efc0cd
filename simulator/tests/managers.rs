//! Scenarios with managers: what is kept running, and what the figures say about it.
#![allow(clippy::unwrap_used)] // a test may panic

use simulator::{
    RunSettings,
    outcome::{Kept, SimRun},
    scenario::Scenario,
    shipped,
};

const CELLS: &str = r#"
duration = "3m"
managers = 2
[[groups]]
count = 4
zone = "z1"
total = { memory_mb = 4000, disk_mb = 4000, containers = 100 }
[[groups]]
count = 4
zone = "z2"
total = { memory_mb = 4000, disk_mb = 4000, containers = 100 }
"#;

const WEB: &str = r#"
[[apps]]
put = { app = "web", instances = 40, memory_mb = 20, disk_mb = 1, update = { max_in_flight = 10, min_healthy = "0s" } }
"#;

/// The default ttl of a cell, in milliseconds.
const TTL_MS: f64 = 15_000.0;

fn read(text: &str) -> Scenario {
    Scenario::read(&format!("{CELLS}\n{text}"), true).unwrap_or_else(|e| panic!("{e}"))
}

fn play(scenario: &Scenario, seed: u64) -> SimRun {
    let settings = RunSettings {
        seed,
        verbatim: false,
    };
    let contender = &scenario.contenders[0];
    simulator::run(scenario, contender, settings, &mut |_| true)
        .unwrap()
        .0
}

fn kept(text: &str) -> Kept {
    let run = play(&read(&format!("{WEB}\n{text}")), 1);
    assert_eq!(run.notes, [""; 0], "{text}");
    run.figures.kept.unwrap()
}

/// Checks that everything wanted runs at the end, and nothing twice.
fn assert_whole(kept: &Kept, wanted: u64) {
    assert_eq!(kept.wanted, wanted);
    assert_eq!((kept.missing.end, kept.unrecovered), (0.0, 0), "{kept:?}");
    assert_eq!(kept.rollouts_unfinished, 0, "{kept:?}");
}

#[test]
fn what_is_put_runs() {
    let kept = kept("");
    assert_whole(&kept, 40);
    assert_eq!((kept.lost, kept.duplicates, kept.rollouts), (0, 0, 0));
    assert!(kept.start_ms.max < 2_000.0, "{kept:?}");
    assert!(kept.traffic.delivered > 100, "{kept:?}");
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let fault = "[[faults]]\nat = \"1m\"\nkind = \"zone-lost\"\nzone = \"z2\"\n";
    let scenario = read(&format!("{WEB}{fault}"));
    let json = |seed| serde_json::to_string(&play(&scenario, seed)).unwrap();
    assert_eq!(json(1), json(1));
    assert_ne!(json(1), json(2));
}

#[test]
fn what_is_lost_with_its_cells_runs_again() {
    let kept = kept("[[faults]]\nat = \"1m\"\nfor = \"1m\"\nkind = \"zone-lost\"\nzone = \"z2\"");
    assert_whole(&kept, 40);
    assert_eq!((kept.lost, kept.duplicates), (20, 0), "{kept:?}");
    assert!(kept.recovery_ms.min >= TTL_MS - 5_000.0, "{kept:?}");
    assert!(kept.recovery_ms.max <= 2.0 * TTL_MS, "{kept:?}");
}

/// A zone is away for a minute, and its share of each app moves to the other one.
const ZONE_LOST: &str =
    "[[faults]]\nat = \"20s\"\nfor = \"40s\"\nkind = \"zone-lost\"\nzone = \"z2\"\n";

#[test]
fn a_zone_that_is_back_stays_empty_until_somebody_rebalances() {
    let without = play(&read(&format!("{WEB}{ZONE_LOST}")), 1);
    assert_eq!(without.figures.apps_sharing_zones, 1);
    assert_eq!(without.figures.kept.unwrap().moved, 0);
    let text = format!("rebalance = \"4/2s\"\n{CELLS}\n{WEB}{ZONE_LOST}");
    let with = play(&Scenario::read(&text, true).unwrap(), 1);
    let kept = with.figures.kept.unwrap();
    assert_whole(&kept, 40);
    assert_eq!((kept.moved, kept.failed_moves), (20, 0), "{kept:?}");
    // a move is not a loss
    assert_eq!(kept.lost, 20, "{kept:?}");
    assert_eq!(with.figures.apps_sharing_zones, 0);
    let zones = with.figures.per_zone;
    assert!(zones.max <= zones.mean, "{zones:?}");
}

#[test]
fn without_managers_nobody_moves_anything() {
    let text =
        "rebalance = \"1/10s\"\n[[groups]]\ncount = 1\ntotal = { memory_mb = 1, disk_mb = 1 }\n";
    let error = Scenario::read(text, true).unwrap_err().to_string();
    assert!(
        error.contains("rebalance") && error.contains("managers"),
        "{error}"
    );
    let text = text.replace("1/10s", "often");
    let error = Scenario::read(&text, true).unwrap_err().to_string();
    assert!(error.contains("such as 1/10s"), "{error}");
}

#[test]
fn a_cell_that_is_cut_off_makes_duplicates_until_it_is_back() {
    let fault =
        "[[faults]]\nat = \"30s\"\nfor = \"40s\"\nkind = \"cell-cut\"\ncells = [\"z1-cell-0\"]";
    let kept = kept(fault);
    assert_whole(&kept, 40);
    assert!(kept.lost >= 4 && kept.duplicates == kept.lost, "{kept:?}");
    let longest_ms = kept.longest_duplicate_ms as f64;
    assert!(longest_ms > 10_000.0 && kept.duplicate_s > 10.0, "{kept:?}");
}

#[test]
fn what_runs_on_a_drained_cell_is_replaced_before_it_ends() {
    let fault =
        "[[faults]]\nat = \"1m\"\nfor = \"1m\"\nkind = \"cell-drain\"\ncells = [\"z1-cell-0\"]";
    let kept = kept(fault);
    assert_whole(&kept, 40);
    assert_eq!((kept.lost, kept.missing.max), (0, 40.0), "{kept:?}");
    assert!(kept.duplicates >= 4, "{kept:?}");
}

#[test]
fn apps_are_scaled_rolled_out_and_deleted() {
    let kept = kept(
        r#"
[[apps]]
put = { count = 3, app = "many-{n}", instances = 2, memory_mb = 20, disk_mb = 1 }
[[apps]]
at = "20s"
scale = { app = "web", instances = 50 }
[[apps]]
at = "40s"
restart = { app = "web" }
[[apps]]
at = "40s"
delete = { app = "many-{n}" }
[[apps]]
at = "80s"
stop = { app = "web" }
[[apps]]
at = "100s"
start = { app = "web" }
"#,
    );
    assert_whole(&kept, 50);
    assert_eq!((kept.rollouts, kept.lost), (1, 0), "{kept:?}");
    assert!(kept.rollout_ms.max < 30_000.0, "{kept:?}");
    assert_eq!(kept.refused_commands, 0);
}

#[test]
fn another_manager_takes_over() {
    let kept = kept(
        r#"
[[faults]]
at = "1m"
for = "10m"
kind = "manager-restart"
[[faults]]
at = "62s"
kind = "cell-lost"
cells = ["z1-cell-0"]
"#,
    );
    assert_whole(&kept, 40);
    assert!(kept.lost >= 4, "{kept:?}");
    assert!(kept.recovery_ms.max < 60_000.0, "{kept:?}");
}

#[test]
fn everything_goes_on_after_nats_was_away_and_under_losses() {
    let kept = kept(
        "[network]\nloss = 0.01\n[[faults]]\nat = \"1m\"\nfor = \"30s\"\nkind = \"nats-away\"",
    );
    assert_whole(&kept, 40);
    assert_eq!(kept.lost, 0, "{kept:?}");
}

#[test]
fn a_command_that_is_refused_is_told() {
    let run = play(
        &read(&format!(
            "{WEB}[[apps]]\nat = \"10s\"\nundo = {{ app = \"web\" }}"
        )),
        1,
    );
    assert_eq!(run.figures.kept.unwrap().refused_commands, 1);
    assert!(run.notes[0].contains("web was refused"), "{:?}", run.notes);
}

#[test]
fn mistakes_in_apps_name_field_value_and_what_is_expected() {
    let put = "put = { app = \"web\", memory_mb = 1, disk_mb = 1 }";
    for (text, parts) in [
        ("[[apps]]\nat = \"1s\"", "apps[0]|exactly one of"),
        (
            &format!("[[apps]]\n{put}\nstop = {{ app = \"web\" }}"),
            "apps[0]|exactly one of",
        ),
        (
            "[[apps]]\nstop = { app = \"nosuch\" }",
            "apps[0].stop.app|nosuch|a put before",
        ),
        (
            "[[apps]]\nput = { app = \"web\", memory_mb = 1, disk_mb = 1, memori = 2 }",
            "apps[0].put|memori",
        ),
        (
            "[[apps]]\nput = { app = \"web-{n}\", memory_mb = 1, disk_mb = 1 }",
            "apps[0].put.app|count",
        ),
        (
            "[[apps]]\nput = { count = 0, app = \"web-{n}\" }",
            "apps[0].put.count|0|1 to",
        ),
        (
            &format!("[[apps]]\n{put}\n[[apps]]\nscale = {{ app = \"web\", instances = 0 }}"),
            "apps[1].scale.instances|0",
        ),
        ("restart_lost_after = \"1s\"", "restart_lost_after|managers"),
        (
            "policies = [\"diego-2014-random\"]",
            "policies|diego-2014-random|managers",
        ),
        (
            "[[faults]]\nat = \"1s\"\nkind = \"manager-restart\"\nmanager = 2",
            "faults[0].manager|2|managers (2)",
        ),
    ] {
        // keys of the top level come before tables
        let file = if text.starts_with("[[") {
            format!("{CELLS}{text}")
        } else {
            format!("{text}\n{CELLS}")
        };
        let error = Scenario::read(&file, true);
        let error = error.unwrap_err().to_string();
        for part in parts.split('|') {
            assert!(error.contains(part), "{text}\n{error}\nhas no {part}");
        }
    }
    let without = CELLS.replace("duration = \"3m\"", "");
    let error = Scenario::read(&without, true).unwrap_err().to_string();
    assert!(error.contains("duration: missing"), "{error}");
    let without = CELLS.replace("managers = 2", "");
    let error = Scenario::read(&format!("{without}{WEB}"), true).unwrap_err();
    assert!(error.to_string().contains("managers: 0"), "{error}");
}

#[test]
fn the_manuals_example_is_read() {
    let manual = include_str!("../../docs/SIMULATOR.md");
    let example = manual
        .split("```toml\n")
        .find(|part| part.starts_with("managers = "));
    let example = example.unwrap().split("```").next().unwrap();
    let (top, tables) = example.split_once("\n\n").unwrap();
    let cells = CELLS.split_once("[[groups]]").unwrap().1;
    let scenario = Scenario::read(&format!("{top}\n[[groups]]{cells}{tables}"), true).unwrap();
    assert_eq!(scenario.commands.len(), 1 + 100 + 1 + 1 + 100);
    assert_eq!(scenario.warnings, [""; 0]);
}

/// Plays a shipped scenario with these replacements, at the first of its sizes if it has several.
fn shipped(name: &str, smaller: &[(&str, &str)]) -> Kept {
    let mut text = shipped::find(name).unwrap().to_owned();
    for (from, to) in smaller {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    let scenario = Scenario::read(&text, true).unwrap_or_else(|e| panic!("{name}: {e}"));
    play(&scenario, 1).figures.kept.unwrap()
}

/// Like the shipped scenario, but with a tenth of the cells and apps, as the full size takes long in debug builds.
#[test]
fn half_of_the_cells_lost_at_once_is_made_up_for_in_two_ttls() {
    let smaller = [
        ("count = 100\nzone", "count = 10\nzone"),
        ("count = 100,", "count = 10,"),
    ];
    let kept = shipped("apps-half-lost", &smaller);
    assert_whole(&kept, 1_000);
    assert!((450..=550).contains(&kept.lost), "{kept:?}");
    assert!(kept.recovery_ms.max <= 2.0 * TTL_MS + 10_000.0, "{kept:?}");
    assert_eq!(kept.duplicates, 0);
}

#[test]
fn a_zone_that_is_lost_and_returns_costs_nothing_but_time() {
    let kept = shipped("apps-zone-lost", &[]);
    assert_whole(&kept, 600);
    assert!((190..=210).contains(&kept.lost), "{kept:?}");
    assert!(kept.recovery_ms.max <= 2.0 * TTL_MS, "{kept:?}");
}

#[test]
fn a_rollout_of_a_thousand_instances_takes_less_than_half_a_minute() {
    let kept = shipped("apps-rollout", &[]);
    assert_whole(&kept, 1_000);
    assert_eq!((kept.rollouts, kept.lost), (1, 0), "{kept:?}");
    assert!(kept.rollout_ms.max < 30_000.0, "{kept:?}");
    // instances are replaced before they are stopped
    assert!(kept.missing.mean < 10.0, "{kept:?}");
}
