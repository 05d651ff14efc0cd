use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::demand::{Demand, DemandAction};

#[derive(Debug, Deserialize)]
struct File {
    workload: Vec<WorkloadTable>,
}

/// Reads like a scenario's reader: TOML, then typed with paths.
fn read(toml: &str) -> Result<Vec<WorkloadTable>, String> {
    let table: toml::Table = toml.parse().unwrap();
    let json = serde_json::to_value(table).unwrap();
    let file: Result<File, _> = serde_path_to_error::deserialize(json);
    file.map(|file| file.workload)
        .map_err(|e| format!("{}: {}", e.path(), e.inner()))
}

fn run(toml: &str, duration: Option<&str>, seed: u64) -> Result<Vec<Demand>, String> {
    let tables = read(toml)?;
    let duration = duration.map(|d| humantime::parse_duration(d).unwrap().as_millis());
    let duration_ms = duration.map(|ms| u64::try_from(ms).unwrap());
    demands(&tables, duration_ms, seed).map_err(|e| e.to_string())
}

fn list(toml: &str, duration: Option<&str>) -> Vec<Demand> {
    run(toml, duration, 1).unwrap()
}

/// Formats `at start app indices lifetime` or `at stop app indices`, for short tables.
fn line(demand: &Demand) -> String {
    let at = demand.at_ms;
    match &demand.action {
        DemandAction::Start {
            request,
            lifetime_ms,
        } => {
            let indices = match &request.indices {
                Some(indices) => format!("{indices:?}"),
                None => format!("{}x{}", request.instances, request.memory_mb),
            };
            let life = lifetime_ms.map_or(String::new(), |ms| format!(" for {ms}"));
            format!("{at} start {} {indices}{life}", request.app)
        }
        DemandAction::Stop { app, indices } => format!("{at} stop {app} {indices:?}"),
    }
}

fn lines(toml: &str, duration: Option<&str>) -> Vec<String> {
    list(toml, duration).iter().map(line).collect()
}

#[test]
fn fixed_lists_come_by_time_and_in_the_order_of_the_tables() {
    let toml = r#"
        [[workload]]
        at = "2s"
        stop = { app = "red", indices = [1] }
        [[workload]]
        at = "1s"
        start = { app = "blue", instances = 2, memory_mb = 5, disk_mb = 1, owner = "me" }
        lifetime = "constant:1s"
        [[workload]]
        start = { id = "mine", app = "red", instances = 40, memory_mb = 1, disk_mb = 1 }
        [[workload]]
        at = "1s"
        start = { kind = "task", app = "once", memory_mb = 7, disk_mb = 1 }
        lifetime = "constant:90s"
    "#;
    let expected = [
        "0 start red 40x1",
        "1000 start blue 2x5",
        "1000 start once 1x7 for 90000",
        "2000 stop red [1]",
        "2000 stop blue []",
    ];
    assert_eq!(lines(toml, None), expected);
    let ids: Vec<_> = list(toml, None)
        .iter()
        .filter_map(|d| match &d.action {
            DemandAction::Start { request, .. } => {
                Some((request.id.clone(), request.owner.clone()))
            }
            DemandAction::Stop { .. } => None,
        })
        .collect();
    let own = |id: &str, owner: Option<&str>| (id.to_owned(), owner.map(str::to_owned));
    let expected = [
        own("mine", None),
        own("w1-0", Some("me")),
        own("w3-0", None),
    ];
    assert_eq!(ids, expected);
}

#[test]
fn apps_come_at_once_under_names_of_their_own() {
    let toml = r#"
        [[workload]]
        at = "5ms"
        apps = { count = 3, name = "one-{n}", instances = 2, memory_mb = 4, disk_mb = 1, cpu_millis = 5, extra = { gpu_milli = 250 }, stack = "linux", tags = { role = "a" } }
    "#;
    assert_eq!(
        lines(toml, None),
        [
            "5 start one-0 2x4",
            "5 start one-1 2x4",
            "5 start one-2 2x4"
        ]
    );
    let DemandAction::Start { request, .. } = &list(toml, None)[2].action else {
        panic!("a start");
    };
    let mut expected = Request::new("one-2", 4, 1);
    expected.id = "w0-2".into();
    expected.instances = 2;
    expected.cpu_millis = 5;
    expected.extra.insert("gpu_milli".into(), 250);
    expected.stack = Some("linux".into());
    expected.tags.insert("role".into(), "a".into());
    assert_eq!(**request, expected);
}

#[test]
fn arrivals_keep_to_their_times_and_counts() {
    let table = |arrivals: &str| {
        format!(
            "[[workload]]\narrivals = {{ {arrivals} }}\n\
             app = {{ name = \"a{{n}}\", memory_mb = 1, disk_mb = 1 }}"
        )
    };
    let times = |arrivals: &str, duration| {
        let times = list(&table(arrivals), duration);
        times.iter().map(|d| d.at_ms).collect::<Vec<_>>()
    };
    let every = "every = \"constant:10s\"";
    assert_eq!(times(every, Some("40s")), [10_000, 20_000, 30_000]);
    let given = format!("{every}, from = \"5s\", until = \"26s\"");
    assert_eq!(times(&given, None), [15_000, 25_000]);
    assert_eq!(
        times(&format!("{every}, count = 2"), None),
        [10_000, 20_000]
    );
    let given = format!("{every}, apps = 2, count = 3");
    assert_eq!(times(&given, None), [10_000, 10_000, 20_000]);
    // 48 hours of one every 30 s on average: 5,760 of them, sd 76
    let count = times("every = \"exponential:30s\"", Some("48h")).len();
    assert!((5_400..6_120).contains(&count), "{count}");
    // fractions of a millisecond add up
    let fine = times("every = \"constant:1.5ms\", count = 4", None);
    assert_eq!(fine, [1, 3, 4, 6]);
}

const MENDIX: &str = r#"
    [[workload]]
    arrivals = { every = "exponential:30s", until = "48h" }
    app = { name = "app-{n}", instances = "1..4", memory_mb = [[2048, 0.5], [4096, 0.3], [8192, 0.15], [16384, 0.05]], disk_mb = 1024 }
    lifetime = "lognormal:6h,1.0"
    scale = { every = "exponential:4h", by = "-2..2" }
"#;

/// Applies the list and returns how many instances of each app there are after each demand.
fn play(demands: &[Demand]) -> BTreeMap<String, Vec<usize>> {
    let mut alive: BTreeMap<&str, std::collections::BTreeSet<u32>> = BTreeMap::new();
    let mut counts: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for demand in demands {
        let app = match &demand.action {
            DemandAction::Start { request, .. } => {
                let there = alive.entry(&request.app).or_default();
                let all = (0..request.instances).collect();
                for index in request.indices.as_ref().unwrap_or(&all) {
                    assert!(there.insert(*index), "{index} of {} runs", request.app);
                }
                &request.app
            }
            DemandAction::Stop { app, indices } => {
                let there = alive.get_mut(app.as_str()).unwrap();
                if indices.is_empty() {
                    there.clear();
                }
                for index in indices {
                    assert_eq!(there.last(), Some(indices.last().unwrap()));
                    assert!(there.contains(index));
                }
                there.retain(|index| !indices.contains(index));
                app
            }
        };
        let there = &alive[app.as_str()];
        let contiguous = there
            .iter()
            .copied()
            .eq(0..u32::try_from(there.len()).unwrap());
        assert!(contiguous, "{app}: {there:?}");
        counts.entry(app.clone()).or_default().push(there.len());
    }
    counts
}

#[test]
fn a_scaled_app_takes_the_next_indices_gives_the_highest_and_keeps_one() {
    let demands = run(MENDIX, Some("48h"), 3).unwrap();
    let counts = play(&demands);
    let (mut ended, mut grew, mut shrank) = (0, 0, 0);
    for counts in counts.values() {
        let (last, before) = counts.split_last().unwrap();
        assert!(before.iter().all(|count| *count >= 1));
        ended += usize::from(*last == 0);
        grew += usize::from(counts.windows(2).any(|pair| pair[1] > pair[0]));
        shrank += usize::from(before.windows(2).any(|pair| pair[1] < pair[0]));
    }
    let apps = counts.len();
    assert!(ended > apps / 2 && ended < apps, "{ended} of {apps} ended");
    assert!(
        grew > apps / 4 && shrank > apps / 5,
        "{grew} {shrank} of {apps}"
    );
    // sizes and counts occur according to their weights
    let sizes = demands.iter().filter_map(|d| match &d.action {
        DemandAction::Start { request, .. } if request.indices.is_none() => Some(request),
        _ => None,
    });
    let mut by_size: BTreeMap<i64, usize> = BTreeMap::new();
    let mut by_count: BTreeMap<u32, usize> = BTreeMap::new();
    for request in sizes {
        *by_size.entry(request.memory_mb).or_default() += 1;
        *by_count.entry(request.instances).or_default() += 1;
    }
    for (size, share) in [(2048, 0.5), (4096, 0.3), (8192, 0.15), (16384, 0.05)] {
        let found = by_size[&size] as f64 / apps as f64;
        assert!((found - share).abs() < 0.02, "{size}: {found}");
    }
    assert_eq!(by_count.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert!(by_count.values().all(|n| n.abs_diff(apps / 4) < apps / 20));
}

#[test]
fn a_table_that_is_added_changes_no_other() {
    let other = r#"
        [[workload]]
        apps = { count = 5, name = "x-{n}", memory_mb = "1..9", disk_mb = 1 }
    "#;
    let alone = run(MENDIX, Some("48h"), 1).unwrap();
    let both = run(&format!("{MENDIX}{other}"), Some("48h"), 1).unwrap();
    let of = |demand: &&Demand| match &demand.action {
        DemandAction::Start { request, .. } => request.app.starts_with("app"),
        DemandAction::Stop { app, .. } => app.starts_with("app"),
    };
    assert!(both.iter().filter(of).eq(alone.iter()));
    assert_ne!(alone, run(MENDIX, Some("48h"), 2).unwrap());
}

/// A table (`;;` separates lines), and what its error must contain.
const WRONG: &str = r#"
    colour = 1 => workload[0].colour | expected one of `at`, `start`
    => workload[0] | none of these | exactly one of
    START ;; APP => workload[0].app | only beside arrivals
    at = "soon" => workload[0].at | soon | like "4s"
    at = "200years" ;; START => workload[0].at | a hundred years
    start = { app = "red", memory_mb = 1, disk_mb = 1, colour = 2 } => workload[0].start | unknown field `colour`
    start = { app = "red", memory_mb = "x", disk_mb = 1 } => workload[0].start | memory_mb | "x" | an integer
    start = { app = "r d", memory_mb = 1, disk_mb = 1 } => workload[0].start.app | r d | A-Z
    stop = { app = "r d" } => workload[0].stop.app | r d
    stop = { app = "red", index = 1 } => workload[0].stop.index | `indices`
    apps = { count = 0, SIZED } => workload[0].apps | count: 0 | from 1 to 1000000
    apps = { count = 2, name = "a", memory_mb = 1, disk_mb = 1 } => workload[0].apps.name | "a" | {n}
    apps = { count = 2, name = "a {n}", memory_mb = 1, disk_mb = 1 } => workload[0].apps.app | a 0
    apps = { count = 2, name = "a{n}", disk_mb = 1 } => workload[0].apps | missing field `memory_mb`
    apps = { count = 2, name = "a{n}", memory_mb = "3..1", disk_mb = 1 } => memory_mb: "3..1" | "1..4"
    apps = { count = 2, name = "a{n}", memory_mb = [[1, -1]], disk_mb = 1 } => memory_mb: [[1,-1]] | [[2048, 0.5]
    apps = { count = 2, name = "a{n}", memory_mb = "-5..1", disk_mb = 1 } => workload[0].apps.memory_mb | -5 | 0 to 2147483647
    apps = { count = 2, SIZED, instances = "0..1" } => workload[0].apps.instances | 0 | from 1 to 100000
    apps = { count = 2, SIZED, extra = { gpu = "x" } } => workload[0].apps | extra.gpu: "x"
    apps = { count = 2, SIZED, colour = 1 } => workload[0].apps | unknown field `colour`
    apps = { count = 2, SIZED, id = "i" } => workload[0].apps | unknown field `id`
    apps = { count = 1000, SIZED, instances = 10001 } => workload[0] | at most 10000000
    arrivals = { every = "constant:1s" } => workload[0].app | nothing
    arrivals = { every = "constant:1s" } ;; APP => workload[0].arrivals.until | duration
    arrivals = { every = "constant:0s", until = "1s" } ;; APP => workload[0].arrivals.every | 0ns | 1ms or more
    arrivals = { every = "often", until = "1s" } ;; APP => workload[0].arrivals.every | "often" | exponential:30s
    arrivals = { every = "constant:1s", until = "1s", apps = "0..2" } ;; APP => workload[0].arrivals.apps | 1 or more
    at = "1s" ;; arrivals = { every = "constant:1s", until = "1s" } ;; APP => workload[0].at | beside arrivals
    START ;; scale = { every = "constant:1s", by = 1 } => workload[0].scale | lifetime
    START ;; lifetime = "constant:1h" ;; scale = { every = "constant:1m", by = 99999 } => workload[0].scale.instances | 100000
    START ;; lifetime = "constant:1year" ;; scale = { every = "constant:1ms", by = 0 } => workload[0] | at most 1000000 starts
    start = { app = "t", kind = "task", memory_mb = 1, disk_mb = 1 } ;; lifetime = "constant:1s" ;; scale = { every = "constant:1s", by = 1 } => workload[0].scale | task
"#;

#[test]
fn errors_name_path_value_and_expectation() {
    let mut cases = 0;
    for case in WRONG.lines().filter(|case| !case.trim().is_empty()) {
        let (table, parts) = case.split_once("=>").unwrap();
        let table = table
            .replace(";;", "\n")
            .replace(
                "START",
                "start = { app = \"red\", memory_mb = 1, disk_mb = 1 }",
            )
            .replace("APP", "app = { SIZED }")
            .replace("SIZED", "name = \"a{n}\", memory_mb = 1, disk_mb = 1");
        let error = run(&format!("[[workload]]\n{table}"), None, 1).unwrap_err();
        for part in parts.split('|').map(str::trim) {
            assert!(error.contains(part), "{table}\n{error}\nhas no {part}");
        }
        cases += 1;
    }
    assert_eq!(cases, 32);
    let twice = "[[workload]]\napps = { count = 2, name = \"a{n}\", memory_mb = 1, disk_mb = 1 }\n";
    let error = run(&format!("{twice}{twice}"), None, 1).unwrap_err();
    assert!(error.contains("workload[1].apps.name: a0"), "{error}");
}

/// The manual's examples are parsed as described.
#[test]
fn the_manuals_examples_are_read() {
    let manual = include_str!("../../../docs/SIMULATOR.md");
    let block = manual.split("```toml").nth(1).unwrap();
    let first = list(block.split("```").next().unwrap(), Some("48h"));
    assert_eq!(
        first.iter().map(line).collect::<Vec<_>>(),
        ["10000 start red 40x256"]
    );
    let app = "app = { name = \"a{n}\", memory_mb = 1, disk_mb = 1 }";
    let mut kinds = 0;
    for code in manual.split('`') {
        let more = match code.split_once(" = {").map(|(field, _)| field) {
            Some("start" | "stop" | "apps") => "",
            Some("arrivals") => app,
            _ => continue,
        };
        let toml = format!("[[workload]]\n{code}\n{more}");
        assert!(!run(&toml, None, 1).unwrap().is_empty(), "{code}");
        kinds += 1;
    }
    assert_eq!(kinds, 5);
    let names = ["constant:", "exponential:", "uniform:", "lognormal:"];
    let is_one = |code: &&str| names.iter().any(|name| code.starts_with(name));
    let texts: Vec<_> = manual.split('`').filter(is_one).collect();
    assert!(texts.len() >= 4);
    for text in texts {
        text.parse::<Distribution>().unwrap();
    }
}

fn amount(value: &Value) -> Amount {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn amounts_have_bounds_and_values_of_weight_0_never_occur() {
    for (value, low, high) in [
        (json!(4), 4, 4),
        (json!("-2..2"), -2, 2),
        (json!("78 .. 80"), 78, 80),
        (json!([[5, 1], [9, 0], [7, 2.5]]), 5, 7),
    ] {
        let amount = amount(&value);
        assert_eq!((amount.low(), amount.high()), (low, high), "{value}");
        let mut random = crate::random::Random::new(1);
        let drawn: Vec<i64> = (0..200).map(|_| amount.sample(&mut random)).collect();
        assert_eq!(drawn.iter().min(), Some(&low), "{value}");
        assert_eq!(drawn.iter().max(), Some(&high), "{value}");
        assert!(!drawn.contains(&9));
    }
}

proptest! {
    #[test]
    fn lists_are_sorted_bounded_by_the_duration_and_repeatable(
        seed: u64, minutes in 1_u64..300, every in 1_u64..60,
    ) {
        let toml = MENDIX.replace("exponential:30s", &format!("exponential:{every}m"));
        let duration = format!("{minutes}m");
        let one = run(&toml, Some(&duration), seed).unwrap();
        prop_assert!(one.is_sorted_by_key(|d| d.at_ms));
        prop_assert!(one.iter().all(|d| d.at_ms < minutes * 60_000));
        let ids: std::collections::BTreeSet<_> = one.iter().filter_map(|d| match &d.action {
            DemandAction::Start { request, .. } => Some(request.id.clone()),
            DemandAction::Stop { .. } => None,
        }).collect();
        let starts = one.iter().filter(|d| matches!(d.action, DemandAction::Start { .. })).count();
        prop_assert_eq!(ids.len(), starts);
        play(&one);
        prop_assert_eq!(&one, &run(&toml, Some(&duration), seed).unwrap());
    }
}
