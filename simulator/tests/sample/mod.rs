//! Synthetic outcomes: rich, hostile, empty and large. They obey what `SimOutcome` promises, but nothing was simulated.

use std::collections::BTreeMap;

use placement::random::{STEP, mix};
use simulator::outcome::{
    Balance, Bounds, CellEnd, Figures, Histogram, InstanceEnd, MostEven, OverTime, Sample,
    SimOutcome, SimRun, Spread, Traffic,
};

/// A name that an attacker would give an app, a cell or a policy.
pub(crate) const HOSTILE: &str =
    "</script><img src=x onerror=\"alert('x')\">&amp;\u{1b}[31m\u{202e}";

/// Random-looking numbers from a seed (splitmix64).
pub(crate) struct Draw(pub u64);

impl Draw {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        number % end
    }
}

/// Returns two days of 20 cells under three policies: few apps with many instances, some that were there before, tasks,
/// a lost cell, refusals, and every chart in use.
pub(crate) fn two_days() -> SimOutcome {
    let packed = [0.93, 0.9, 0.88, 0.84, 0.8, 0.71, 0.4, 0.05, 0.0, 0.0];
    let even = [0.62, 0.6, 0.58, 0.57, 0.61, 0.6, 0.55, 0.63, 0.59, 0.56];
    let random = [0.8, 0.35, 0.5, 0.66, 0.9, 0.45, 0.72, 0.58, 0.3, 0.61];
    let runs = [
        ("diego", even),
        ("diego-bin-pack", packed),
        ("random", random),
    ]
    .into_iter()
    .enumerate()
    .map(|(at, (policy, loads))| two_days_run(at as u64, policy, &loads))
    .collect();
    SimOutcome {
        v: 1,
        name: "mendix-48h".to_owned(),
        description: "Apps of 2, 4, 8 and 16 GB are started, stopped and scaled for two days on 20 cells of \
                      64 GB; how much memory is stranded when an app of 16 GB must always fit?"
            .to_owned(),
        seed: 1,
        command: "vendue sim examples/mendix-48h.toml --policy diego --policy diego-bin-pack --policy random \
                  --seed 1"
            .to_owned(),
        scenario: SCENARIO.to_owned(),
        over: "in-process".to_owned(),
        interrupted: false,
        warnings: Vec::new(),
        seeds: None,
        runs,
    }
}

const SCENARIO: &str = r#"name = "mendix-48h"
policies = ["diego", { preset = "diego-bin-pack", label = "diego-bin-pack" }, "random"]
seed = 1
duration = "48h"
price_per_cell_hour = 0.5

[[groups]]
count = 10
zone = "z1"
total = { memory_mb = 65536, disk_mb = 262144, containers = 250 }

[[groups]]
count = 10
zone = "z2"
total = { memory_mb = 65536, disk_mb = 262144, containers = 250 }

[[workload]]
arrivals = { every = "exponential:30s", from = "0s", until = "48h" }
app = { name = "app-{n}", instances = "1..4", memory_mb = [[2048, 0.5], [4096, 0.3], [8192, 0.15], [16384, 0.05]] }
lifetime = "lognormal:6h,1.0"
"#;

const APPS: [&str; 16] = [
    "checkout",
    "catalogue",
    "search-indexer",
    "payments",
    "session-store",
    "mail-out",
    "reports",
    "thumbnails",
    "admin",
    "webhooks",
    "ledger-export",
    "status-page",
    "nightly-batch",
    "canary",
    "backfill",
    "old-platform",
];

fn two_days_cells(seed: u64, policy: &str, loads: &[f64]) -> Vec<CellEnd> {
    let mut draw = Draw(seed + 7);
    let mut next_index = [0_u32; APPS.len()];
    let mut cells = Vec::new();
    for zone in ["z1", "z2"] {
        for (at, load) in loads.iter().enumerate() {
            let gone = policy == "random" && zone == "z2" && at == 8;
            let mut instances = Vec::new();
            let mut used = 0;
            while !gone && (used as f64) < load * 65536.0 {
                let app = (draw.below(16) * draw.below(16) / 15) as usize;
                let memory_mb = [2048, 4096, 8192, 16384][[0, 0, 1, 1, 2, 0, 1, 3][app % 8]];
                if used + memory_mb > 65536 {
                    break;
                }
                used += memory_mb;
                let index = next_index[app];
                next_index[app] += 1;
                let before = app == 15;
                instances.push(InstanceEnd {
                    app: app as u32,
                    index,
                    count: 1,
                    memory_mb,
                    before,
                    task: app == 12,
                });
            }
            cells.push(CellEnd {
                cell: format!("{zone}-cell-{at}"),
                zone: zone.to_owned(),
                memory_mb: 65536,
                used_mb: used,
                gone,
                instances,
            });
        }
    }
    cells
}

fn two_days_run(seed: u64, policy: &str, loads: &[f64]) -> SimRun {
    let cells = two_days_cells(seed, policy, loads);
    let mut figures = figures_of(&cells, seed);
    figures.virtual_ms = 172_800_000;
    // the same for all runs, so that they can be compared
    figures.asked = 261;
    figures.saved = Some(if policy == "diego-bin-pack" {
        96.0
    } else {
        0.0
    });
    figures.spare_cells = if policy == "diego-bin-pack" { 4 } else { 0 };
    figures
        .extra
        .insert("reboot hits".to_owned(), 12.5 + seed as f64);
    SimRun {
        policy: policy.to_owned(),
        figures,
        cells,
        apps: APPS.iter().map(|app| (*app).to_owned()).collect(),
        wait_histogram: Histogram {
            bounds: vec![
                0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0, 10_000.0, 60_000.0,
            ],
            counts: vec![0, 12, 340, 1210 - 200 * seed, 820, 95, 31, 8, 2, 0, 0, 0],
        },
        rounds_histogram: Histogram {
            bounds: vec![1.0, 2.0, 3.0, 4.0, 5.0],
            counts: vec![0, 2100 - 300 * seed, 180 * (seed + 1), 40, 2, 0],
        },
        load_histogram: load_histogram(loads),
        series: series(seed, 172_800_000, 20),
        refusals: if seed == 1 {
            Vec::new()
        } else {
            vec![
                ("insufficient resources: memory".to_owned(), 31 + seed),
                ("insufficient resources: memory, containers".to_owned(), 4),
            ]
        },
        demand_of: String::new(),
        demand_steps: Vec::new(),
        notes: Vec::new(),
    }
}

fn load_histogram(loads: &[f64]) -> Histogram {
    let mut counts = vec![0; 10];
    for load in loads {
        counts[((load * 10.0) as usize).min(9)] += 2;
    }
    Histogram {
        bounds: (1..10).map(|tenth| f64::from(tenth) / 10.0).collect(),
        counts,
    }
}

fn series(seed: u64, until_ms: u64, cells: u64) -> Vec<Sample> {
    let mut draw = Draw(seed);
    let mut walk = 0.0_f64;
    (0..240_u64)
        .map(|at| {
            let x = at as f64 / 239.0;
            walk += draw.below(100) as f64 / 100.0 - 0.5;
            let used = (0.6 * (1.0 - (-6.0 * x).exp()) + 0.04 * (x * 12.0).sin() + walk * 0.004)
                .clamp(0.0, 1.0);
            let sd = [0.03, 0.3, 0.15][seed as usize % 3];
            let lost = u64::from(seed == 2 && (120..150).contains(&at));
            Sample {
                at_ms: at * until_ms / 239,
                instances: (used * 400.0) as u64,
                waiting: if at % 40 < 4 { draw.below(9) } else { 0 },
                missing: 0,
                used,
                used_min: (used - 1.9 * sd).max(0.0),
                used_max: (used + 1.7 * sd).min(1.0),
                used_sd: sd,
                stranded_mb: used * [260_000.0, 40_000.0, 150_000.0][seed as usize % 3]
                    + walk.abs() * 4000.0,
                largest_fit_mb: [24_576.0, 65_536.0, 32_768.0][seed as usize % 3] * (1.0 - 0.3 * x),
                empty_cells: if seed == 1 {
                    (cells as f64 * (1.0 - used) * 0.5) as u64
                } else {
                    0
                },
                cells: cells - lost,
            }
        })
        .collect()
}

fn messages_of(placed: u64, seed: u64) -> BTreeMap<String, Traffic> {
    let mut messages = BTreeMap::new();
    let kinds = [
        "advertisement",
        "bid request",
        "bid",
        "start",
        "start answer",
        "request",
        "reply",
    ];
    for (at, kind) in kinds.into_iter().enumerate() {
        // a kind that only some policies use
        if kind == "bid" && seed == 2 {
            continue;
        }
        let sent = placed * (at as u64 + 1) / 2 + seed;
        messages.insert(
            kind.to_owned(),
            Traffic {
                sent,
                delivered: sent * 2 + 1,
                bytes: sent * 611,
            },
        );
    }
    messages
}

/// Returns figures that match the cells where that is easy, and are invented otherwise.
fn figures_of(cells: &[CellEnd], seed: u64) -> Figures {
    let placed: u64 = cells
        .iter()
        .flat_map(|c| &c.instances)
        .map(|i| u64::from(i.count))
        .sum();
    let wait = 4.0 + seed as f64 * 1.7;
    let messages = messages_of(placed, seed);
    let sum = |of: fn(&Traffic) -> u64| messages.values().map(of).sum();
    let traffic = Traffic {
        sent: sum(|t| t.sent),
        delivered: sum(|t| t.delivered),
        bytes: sum(|t| t.bytes),
    };
    let over_time = |scale: f64| OverTime {
        end: scale * 1.1,
        mean: scale,
        min: 0.0,
        max: scale * 1.0 / 0.37,
    };
    Figures {
        virtual_ms: 0,
        asked: placed + 40,
        placed,
        unplaced: 35 * (1 - seed % 2),
        waiting: 5,
        lost: seed,
        wait_ms: Spread {
            min: 0.61,
            mean: wait,
            p50: wait * 0.9,
            p99: wait * 8.3,
            max: wait * 411.0,
        },
        rounds: Spread {
            min: 1.0,
            mean: 1.0 + 0.1 * seed as f64,
            p50: 1.0,
            p99: 3.0,
            max: 4.0,
        },
        auctions: 1234,
        messages,
        traffic,
        distribution: 0.031_25 + 0.2 * seed as f64,
        distribution_before: 0.0,
        sd_of_share: BTreeMap::from([("memory".to_owned(), 0.021)]),
        most_starting: 3 * seed,
        per_cell: balance([12.1, 1.0 / 3.0, 11.0, 14.0, 1.157]),
        per_zone: balance([121.0, 2.0, 119.0, 123.0, 1.017]),
        apps_sharing_cells: 3 * seed,
        apps_sharing_zones: 1,
        stranded_mb: over_time(241_000.0 / (1.0 + seed as f64)),
        largest_fit_mb: over_time(16_384.0),
        empty_cells: over_time(2.0 * seed as f64),
        spare_cells: 0,
        saved: None,
        packing: None,
        bounds: Some(bounds()),
        most_even: Some(MostEven {
            bound: 0.25,
            gap: 0.125,
        }),
        kept: None,
        extra: BTreeMap::new(),
    }
}

fn balance([mean, sd, min, max, max_over_mean]: [f64; 5]) -> Balance {
    Balance {
        mean,
        sd,
        min,
        max,
        max_over_mean,
        sd_over_mean: sd / mean,
    }
}

fn bounds() -> Bounds {
    let one = |value| BTreeMap::from([("memory".to_owned(), value)]);
    Bounds {
        placed: one(1_536.0),
        at_most: one(1_600.0),
        gap: one(4.0),
    }
}

/// Returns an outcome in which every text is an attack.
pub(crate) fn hostile() -> SimOutcome {
    let mut outcome = two_days();
    let evil = |text: &mut String| text.insert_str(0, HOSTILE);
    outcome.interrupted = true;
    for text in [
        &mut outcome.name,
        &mut outcome.description,
        &mut outcome.command,
    ] {
        evil(text);
    }
    evil(&mut outcome.scenario);
    evil(&mut outcome.over);
    for run in &mut outcome.runs {
        evil(&mut run.policy);
        run.apps.iter_mut().for_each(evil);
        for cell in &mut run.cells {
            evil(&mut cell.cell);
            evil(&mut cell.zone);
        }
        run.refusals.push((HOSTILE.to_owned(), 1));
        run.figures.extra.insert(format!("{HOSTILE}/~"), 1.0);
        run.figures
            .messages
            .insert(HOSTILE.to_owned(), Traffic::default());
    }
    outcome
}

/// Returns the same with so many blocks that they are drawn on canvases.
pub(crate) fn hostile_canvas() -> SimOutcome {
    let mut outcome = large(2, 40, 3000);
    for run in &mut outcome.runs {
        run.policy.insert_str(0, HOSTILE);
        run.apps
            .iter_mut()
            .for_each(|app| app.insert_str(0, HOSTILE));
        run.cells
            .iter_mut()
            .for_each(|cell| cell.cell.insert_str(0, HOSTILE));
    }
    outcome
}

/// Returns an outcome without runs, and one whose run is empty.
pub(crate) fn empty() -> [SimOutcome; 2] {
    let mut none = two_days();
    none.runs.clear();
    let mut nothing = two_days();
    nothing.runs.truncate(1);
    let run = &mut nothing.runs[0];
    run.figures = Figures::default();
    run.cells.clear();
    run.apps.clear();
    run.series.clear();
    run.refusals.clear();
    for histogram in [
        &mut run.wait_histogram,
        &mut run.rounds_histogram,
        &mut run.load_histogram,
    ] {
        *histogram = Histogram::default();
    }
    [none, nothing]
}

/// Returns an outcome with `apps` apps of four instances on `cells` cells, one entry for each app and cell, under
/// `runs` policies: 1,250 cells and 62,500 apps are 250,000 instances.
pub(crate) fn large(runs: u64, cells: u64, apps: u32) -> SimOutcome {
    let mut outcome = two_days();
    outcome.name = format!("cold-start-{cells}");
    outcome.description = format!("{apps} apps of 4 instances on {cells} cells.");
    outcome.runs = (0..runs).map(|seed| large_run(seed, cells, apps)).collect();
    outcome
}

fn large_run(seed: u64, cells: u64, apps: u32) -> SimRun {
    let mut draw = Draw(seed + 99);
    let zones = 3;
    let memory_mb = i64::from(apps) * 4 * 3 / 2 / cells as i64 * 256;
    let mut ends: Vec<CellEnd> = (0..cells)
        .map(|at| CellEnd {
            cell: format!("z{}-cell-{}", at * zones / cells + 1, at),
            zone: format!("z{}", at * zones / cells + 1),
            memory_mb,
            used_mb: 0,
            gone: false,
            instances: Vec::new(),
        })
        .collect();
    for app in 0..apps {
        for index in 0..4 {
            let cell = (u64::from(app * 4 + index) * 7 + draw.below(1 + 40 * seed)) % cells;
            let cell = &mut ends[cell as usize];
            cell.used_mb += 256;
            cell.instances.push(InstanceEnd {
                app,
                index,
                count: 1,
                memory_mb: 256,
                before: index == 0 && app % 10 == 0,
                task: false,
            });
        }
    }
    let loads: Vec<f64> = ends
        .iter()
        .map(|c| c.used_mb as f64 / c.memory_mb as f64)
        .collect();
    SimRun {
        policy: format!("policy-{seed}"),
        figures: figures_of(&ends, seed),
        cells: ends,
        apps: (0..apps).map(|app| format!("app-{app}")).collect(),
        wait_histogram: Histogram {
            bounds: vec![10.0, 100.0],
            counts: vec![10, 900, 3],
        },
        rounds_histogram: Histogram {
            bounds: vec![1.0, 2.0],
            counts: vec![0, 250_000, 0],
        },
        load_histogram: load_histogram(&loads),
        series: series(seed, 60_000, cells),
        refusals: Vec::new(),
        demand_of: String::new(),
        demand_steps: Vec::new(),
        notes: Vec::new(),
    }
}
