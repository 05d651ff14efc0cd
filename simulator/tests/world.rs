//! The cluster in virtual time: determinism, aggregated messages, faults, and the end of a run.
#![allow(clippy::unwrap_used)] // a test may panic

use simulator::{RunSettings, outcome::SimRun, scenario::Scenario};

const CELLS: &str = r#"
[[groups]]
count = 3
zone = "z1"
total = { memory_mb = 1000, disk_mb = 4000, containers = 100 }
running = [{ app = "old-{n}", count = "1..3", memory_mb = 10, disk_mb = 1 }]
[[groups]]
count = 3
zone = "z2"
total = { memory_mb = 1000, disk_mb = 4000, containers = 100 }
"#;

fn read(text: &str) -> Scenario {
    Scenario::read(&format!("{text}\n{CELLS}"), true).unwrap_or_else(|e| panic!("{e}"))
}

fn play(scenario: &Scenario, seed: u64, verbatim: bool) -> SimRun {
    let settings = RunSettings { seed, verbatim };
    let contender = &scenario.contenders[0];
    simulator::run(scenario, contender, settings, &mut |_| true)
        .unwrap()
        .0
}

const ARRIVALS: &str = r#"
duration = "30m"
auctioneers = 2
start_takes = "3s"
restart_lost_after = "10s"
[[workload]]
arrivals = { every = "exponential:20s" }
app = { name = "app-{n}", instances = "1..5", memory_mb = [[64, 0.7], [300, 0.3]], disk_mb = 10 }
lifetime = "exponential:5m"
scale = { every = "exponential:2m", by = "-2..2" }
[[faults]]
at = "5m"
for = "2m"
kind = "cell-lost"
cells = ["z1-cell-0"]
[[faults]]
at = "10m"
for = "1m"
kind = "zone-cut"
zone = "z2"
[[faults]]
at = "15m"
for = "2s"
kind = "auctioneer-restart"
auctioneer = 1
[[faults]]
at = "20m"
for = "30s"
kind = "nats-away"
[[faults]]
at = "24m"
for = "2m"
kind = "cell-drain"
cells = ["z2-cell-0"]
deadline = "20s"
"#;

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let lossy = format!("{ARRIVALS}[network]\nlatency = \"exponential:2ms\"\nloss = 0.01\n");
    for text in [ARRIVALS, lossy.as_str()] {
        let scenario = read(text);
        let json = |seed| serde_json::to_string(&play(&scenario, seed, false)).unwrap();
        assert_eq!(json(1), json(1));
        assert_ne!(json(1), json(2));
    }
}

#[test]
fn aggregated_messages_are_those_that_would_have_been_simulated() {
    // with a constant latency, no draw depends on which messages are simulated
    let text = format!("{ARRIVALS}[network]\nlatency = \"constant:1ms\"\n");
    let scenario = read(&text);
    for seed in 1..=3 {
        let (aggregated, simulated) = (play(&scenario, seed, false), play(&scenario, seed, true));
        assert_eq!(aggregated, simulated, "seed {seed}");
        let bids = aggregated.figures.messages["bid"];
        assert!(bids.delivered > 100, "{bids:?}");
    }
}

#[test]
fn aggregated_mode_gives_the_same_figures() {
    let work = r#"
[network]
latency = "constant:1ms"
[[workload]]
arrivals = { every = "exponential:10m", until = "23h" }
app = { name = "app-{n}", instances = 2, memory_mb = 100, disk_mb = 10 }
lifetime = "exponential:1h"
[[faults]]
at = "10h"
for = "1h"
kind = "zone-lost"
zone = "z2"
[[faults]]
at = "15h"
for = "5m"
kind = "cell-cut"
cells = ["z1-cell-1"]
"#;
    let simulated = play(&read(&format!("duration = \"24h\"\n{work}")), 1, false).figures;
    let aggregated = play(&read(&format!("duration = \"24h 1m\"\n{work}")), 1, false).figures;
    assert_eq!(simulated.asked, aggregated.asked);
    assert_eq!(
        (simulated.placed, simulated.unplaced, simulated.lost),
        (aggregated.placed, aggregated.unplaced, aggregated.lost)
    );
    assert_eq!(simulated.auctions, aggregated.auctions);
    assert_eq!(simulated.per_cell, aggregated.per_cell);
    for kind in ["bid", "start", "request", "outcome"] {
        let sent = |f: &simulator::outcome::Figures| f.messages[kind].sent;
        assert_eq!(sent(&simulated), sent(&aggregated), "{kind}");
    }
    // advertisements that were not simulated are aggregated by the mean of the interval
    for kind in ["advertisement", "echo", "heartbeat"] {
        let (a, b) = (
            simulated.messages[kind].sent as f64,
            aggregated.messages[kind].sent as f64,
        );
        assert!((a / b - 1.0).abs() < 0.005, "{kind}: {a} {b}");
    }
}

#[test]
fn every_instance_has_an_outcome_under_faults_and_losses() {
    let text = format!("{ARRIVALS}[network]\nlatency = \"uniform:1ms..20ms\"\nloss = 0.02\n");
    let text = text.replace(
        "exponential:20s\" }",
        "exponential:20s\", until = \"20m\" }",
    );
    for seed in 1..=5 {
        let run = play(&read(&text), seed, false);
        let f = &run.figures;
        assert_eq!(f.placed + f.unplaced + f.waiting, f.asked, "seed {seed}");
        assert_eq!(f.waiting, 0, "seed {seed}");
        assert!(f.lost > 0, "seed {seed}");
        assert_eq!(run.wait_histogram.counts.iter().sum::<u64>(), f.placed);
        let held: u64 = run
            .cells
            .iter()
            .flat_map(|c| &c.instances)
            .map(|i| u64::from(i.count))
            .sum();
        let counted = f.per_cell.mean * run.cells.len() as f64;
        assert!((held as f64 - counted).abs() < 1e-6, "{held} {counted}");
        for cell in &run.cells {
            let memory: i64 = cell.instances.iter().map(|i| i.memory_mb).sum();
            assert_eq!(memory, cell.used_mb, "{}", cell.cell);
            assert!(cell.used_mb <= cell.memory_mb, "{}", cell.cell);
        }
    }
}

#[test]
fn a_lost_cell_gets_work_again_after_its_return() {
    let text = r#"
duration = "10m"
[[workload]]
at = "2m"
apps = { count = 20, name = "while-{n}", memory_mb = 10, disk_mb = 1 }
[[workload]]
at = "6m"
apps = { count = 60, name = "after-{n}", memory_mb = 10, disk_mb = 1 }
[[faults]]
at = "1m"
for = "4m"
kind = "zone-lost"
zone = "z1"
"#;
    let run = play(&read(text), 1, false);
    let held = |zone: &str, name: &str| -> usize {
        let cells = run.cells.iter().filter(|cell| cell.zone == zone);
        let apps = cells
            .flat_map(|cell| &cell.instances)
            .map(|i| &run.apps[i.app as usize]);
        apps.filter(|app| app.starts_with(name)).count()
    };
    assert_eq!((held("z1", "while"), held("z2", "while")), (0, 20));
    assert!(held("z1", "after") >= 20, "{}", held("z1", "after"));
    assert_eq!(held("z1", "old"), 0);
    assert!(run.figures.lost >= 3);
    let least = run.series.iter().map(|sample| sample.cells).min();
    assert_eq!(least, Some(3));
}

#[test]
fn queued_instances_are_placed_when_there_is_room() {
    let text = r#"
duration = "5m"
[[workload]]
start = { app = "big", instances = 7, memory_mb = 900, disk_mb = 1, queue_timeout = "3m" }
[[workload]]
at = "1m"
stop = { app = "big", indices = [0] }
"#;
    let run = play(&read(text), 1, false);
    let f = &run.figures;
    assert_eq!((f.asked, f.placed, f.unplaced, f.waiting), (7, 7, 0, 0));
    assert!(
        f.wait_ms.max > 60_000.0 && f.wait_ms.max < 70_000.0,
        "{:?}",
        f.wait_ms
    );
}

#[test]
fn a_cut_cell_keeps_its_instances_and_a_restarted_auctioneer_learns_all_cells() {
    let text = r#"
duration = "5m"
[[workload]]
at = "30s"
start = { app = "a", instances = 12, memory_mb = 10, disk_mb = 1 }
[[workload]]
at = "3m"
start = { id = "later", app = "b", instances = 6, memory_mb = 10, disk_mb = 1 }
[[faults]]
at = "1m"
for = "30s"
kind = "cell-cut"
cells = ["z1-cell-0", "z2-cell-0"]
[[faults]]
at = "2m"
for = "5s"
kind = "auctioneer-restart"
"#;
    let run = play(&read(text), 1, false);
    assert_eq!(run.figures.lost, 0);
    assert_eq!((run.figures.placed, run.figures.asked), (18, 18));
    let app = run.apps.iter().position(|app| app == "b").unwrap();
    for cell in &run.cells {
        let count = cell
            .instances
            .iter()
            .filter(|i| i.app as usize == app)
            .count();
        assert_eq!(count, 1, "{}", cell.cell);
    }
}

/// Instances are started before, during and after the drain: which are on the cell, and when?
#[test]
fn a_drained_cell_ends_its_instances_at_the_deadline_leaves_and_returns_empty() {
    let start = |id: &str, at: &str, instances: u32| {
        format!(
            "[[workload]]\nat = \"{at}\"\nstart = {{ id = \"{id}\", app = \"{id}\", \
             instances = {instances}, memory_mb = 10, disk_mb = 1 }}\n"
        )
    };
    let work = [start("before", "30s", 12), start("during", "65s", 12)].concat();
    let drain = "[[faults]]\nat = \"1m\"\nfor = \"2m\"\nkind = \"cell-drain\"\n\
                 cells = [\"z1-cell-0\"]\ndeadline = \"20s\"\n";
    let ending_at = |duration: &str, more: &str| {
        let text = format!("duration = \"{duration}\"\n{work}{more}{drain}");
        play(&read(&text), 1, false)
    };
    let on_it = |run: &SimRun, app: &str| {
        let cell = run.cells.iter().find(|cell| cell.cell == "z1-cell-0");
        let apps = cell
            .unwrap()
            .instances
            .iter()
            .map(|i| &run.apps[i.app as usize]);
        apps.filter(|name| *name == app).count()
    };
    let draining = ending_at("75s", "");
    assert!(on_it(&draining, "before") > 0, "its instances go on");
    assert_eq!((on_it(&draining, "during"), draining.figures.lost), (0, 0));
    let left = ending_at("100s", "");
    assert_eq!(on_it(&left, "before"), 0);
    assert!(left.figures.lost >= on_it(&draining, "before") as u64);
    let returned = ending_at("5m", &start("after", "4m", 12));
    assert_eq!(
        (on_it(&returned, "before"), on_it(&returned, "during")),
        (0, 0)
    );
    assert!(on_it(&returned, "after") > 0);
    let least = returned.series.iter().map(|sample| sample.cells).min();
    assert_eq!(least, Some(5));
}

/// Instances from before the first request are stopped like all others.
#[test]
fn instances_of_before_can_be_stopped() {
    let cells = "[[groups]]\ntotal = { memory_mb = 1000 }\n\
                 running = [{ app = \"old\", count = 3, memory_mb = 10 }]\n";
    let text = format!(
        "duration = \"1m\"\n[[workload]]\nat = \"10s\"\nstop = {{ app = \"old\" }}\n{cells}"
    );
    let scenario = Scenario::read(&text, true).unwrap_or_else(|e| panic!("{e}"));
    let left: usize = play(&scenario, 1, false)
        .cells
        .iter()
        .map(|cell| cell.instances.len())
        .sum();
    assert_eq!(left, 0);
}

#[test]
fn the_watcher_can_end_a_run() {
    let scenario = read(ARRIVALS);
    let settings = RunSettings {
        seed: 1,
        verbatim: true,
    };
    let mut told = 0;
    let mut watch = |progress: simulator::Progress| {
        told += 1;
        assert_eq!(progress.end_ms, 30 * 60_000);
        told < 3
    };
    let (run, interrupted) =
        simulator::run(&scenario, &scenario.contenders[0], settings, &mut watch).unwrap();
    assert!(interrupted);
    assert!(run.figures.virtual_ms < 30 * 60_000);
    assert!(!run.series.is_empty());
}

#[test]
fn auctions_of_2014_are_contenders_too() {
    let text = "policies = [\"diego-2014-random\", \"diego-2014-all-rebid\", { auctions_2014 = { algorithm = \"pick_best\" }, label = \"mine\" }]\n\
                [[workload]]\napps = { count = 30, name = \"a-{n}\", memory_mb = 10, disk_mb = 1 }\n";
    let scenario = read(text);
    for contender in &scenario.contenders {
        let settings = RunSettings {
            seed: 1,
            verbatim: false,
        };
        let run = simulator::run(&scenario, contender, settings, &mut |_| true)
            .unwrap()
            .0;
        assert_eq!(run.figures.placed, 30, "{}", contender.label);
    }
    assert_eq!(scenario.contenders[2].label, "mine");
}

/// With many cells some message is always in transit; the run still ends after the last outcome.
#[test]
fn a_run_without_a_duration_ends_though_cells_keep_advertising() {
    let text = r#"
auctioneers = 4
[[groups]]
count = 300
prefix = "many"
total = { memory_mb = 1000, disk_mb = 4000 }
[adverts]
interval = "100ms"
[network]
latency = "uniform:10ms..30ms"
[[workload]]
start = { app = "web", instances = 4, memory_mb = 10, disk_mb = 1 }
"#;
    let run = play(&read(text), 1, false);
    assert_eq!((run.figures.placed, run.figures.waiting), (4, 0));
    assert!(
        run.figures.virtual_ms < 120_000,
        "{}",
        run.figures.virtual_ms
    );
}

#[test]
fn requests_that_share_an_instance_share_its_outcome() {
    for (at, stop) in [("0s", ""), ("1ms", ""), ("2m", "")] {
        let text = format!(
            "[[workload]]\nstart = {{ app = \"web\", instances = 3, memory_mb = 10, disk_mb = 1 }}\n\
             [[workload]]\nat = \"{at}\"\nstart = {{ app = \"web\", instances = 3, memory_mb = 10, disk_mb = 1 }}\n{stop}"
        );
        let f = play(&read(&text), 1, false).figures;
        assert_eq!((f.asked, f.placed, f.waiting), (6, 6, 0), "{at}");
        assert!(f.virtual_ms < 200_000, "{at}: {}", f.virtual_ms);
    }
}

#[test]
fn queued_requests_that_share_an_instance_share_its_outcome() {
    let text = r#"
[[workload]]
start = { app = "old", instances = 6, memory_mb = 950, disk_mb = 1 }
[[workload]]
at = "1s"
start = { app = "web", memory_mb = 900, disk_mb = 1, queue_timeout = "3m" }
[[workload]]
at = "2s"
start = { app = "web", memory_mb = 900, disk_mb = 1, queue_timeout = "3m" }
[[workload]]
at = "1m"
stop = { app = "old" }
"#;
    let f = play(&read(text), 1, false).figures;
    assert_eq!((f.asked, f.placed, f.waiting), (8, 8, 0));
    assert!(f.virtual_ms < 200_000, "{}", f.virtual_ms);
}

#[test]
fn a_scenario_that_asks_for_nothing_ends_at_once() {
    let f = play(&read(""), 1, false).figures;
    assert_eq!((f.asked, f.placed), (0, 0));
    assert!(f.virtual_ms <= 61_000, "{}", f.virtual_ms);
    let cells = Scenario::read(CELLS, true).unwrap().base.cells;
    let node = |cell: &placement::Cell| format!("{},1000,{}\n", cell.cell, cell.total.memory_mb);
    let nodes: String = cells.iter().map(node).collect();
    let files = |name: &str| match name {
        "nodes" => Ok(format!("sn,cpu_milli,memory_mib\n{nodes}").into_bytes()),
        _ => Ok(b"name,cpu_milli,memory_mib,creation_time,deletion_time\n".to_vec()),
    };
    let text = "trace = { nodes = \"nodes\", pods = \"pods\" }";
    let empty = Scenario::read_with(text, true, &files).unwrap();
    assert!(play(&empty, 1, false).figures.virtual_ms <= 61_000);
}

#[test]
fn a_run_without_progress_ends_with_a_note() {
    let text = r#"
[[workload]]
at = "1s"
start = { app = "web", instances = 3, memory_mb = 10, disk_mb = 1 }
[[faults]]
at = "0s"
kind = "nats-away"
"#;
    let run = play(&read(text), 1, false);
    assert_eq!((run.figures.asked, run.figures.waiting), (3, 3));
    let [note] = &run.notes[..] else {
        panic!("one note: {:?}", run.notes)
    };
    assert!(
        note.contains("nothing changed: 3 instances have no outcome"),
        "{note}"
    );
    // the end of a fault is waited for, however late
    let ends = text.replace("kind =", "for = \"5h\"\nkind =");
    let run = play(&read(&ends), 1, false);
    assert_eq!((run.figures.placed, run.notes.len()), (3, 0));
}

#[test]
fn shares_and_starts_are_counted_by_cell() {
    let text = r#"
policy = "diego"
start_takes = "5s"
[[groups]]
count = 1
zone = "z1"
total = { memory_mb = 1000, containers = 100 }
[[groups]]
count = 1
zone = "z2"
total = { memory_mb = 4000, cpu_millis = 8000 }
[[workload]]
start = { app = "web", instances = 4, memory_mb = 100, disk_mb = 0, cpu_millis = 0 }
[[workload]]
at = "20s"
start = { app = "late", instances = 2, memory_mb = 100, disk_mb = 0, cpu_millis = 2000 }
"#;
    let scenario = Scenario::read(text, true).unwrap_or_else(|e| panic!("{e}"));
    let figures = play(&scenario, 1, false).figures;
    assert_eq!(figures.placed, 6);
    // two of the app on each, and both of the late ones where there is cpu: a fifth and a tenth of the memory
    let sd = |of: &str| figures.sd_of_share.get(of).copied();
    assert!(
        sd("memory").is_some_and(|sd| (sd - 0.05).abs() < 1e-9),
        "{figures:?}"
    );
    assert_eq!(
        (sd("cpu"), sd("disk")),
        (Some(0.0), None),
        "of cells that have it"
    );
    assert_eq!(
        figures.most_starting, 2,
        "not 4: the first ran when the late ones came"
    );
    let sd_over_mean = figures.per_cell.sd_over_mean;
    assert!((sd_over_mean - 1.0 / 3.0).abs() < 1e-9, "{sd_over_mean}");
}
