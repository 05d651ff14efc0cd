mod outcome;
mod scenarios;

use std::{collections::BTreeSet, time::Duration};

use placement::Resources;
use proptest::prelude::*;

use super::*;
use crate::{
    demand::DemandAction,
    network::Network,
    outcome::SimRun,
    random::{Distribution, Random},
};

/// Returns the cells of the simulator of 2014: 100 of each resource.
fn cells(n: u32) -> Vec<Cell> {
    let cell = |i| Cell::new(format!("rep-{i}"), Resources::new(100, 100, 100));
    (0..n).map(cell).collect()
}

/// Adds `count` instances of size 1, each of its own app, that are already there.
fn preload(cell: &mut Cell, count: u32) {
    for i in 0..count {
        cell.debit(&Request::new(format!("old-{}-{i}", cell.cell), 1, 1), None);
    }
    cell.counts.starting = 0;
}

fn start(request: Request) -> Demand {
    Demand {
        at_ms: 0,
        action: DemandAction::Start {
            request: Arc::new(request),
            lifetime_ms: None,
        },
    }
}

fn unique(count: u32, size: i64) -> Vec<Request> {
    let request = |i| Request::new(format!("unique-{size}-{i}"), size, size);
    (0..count).map(request).collect()
}

/// Returns the mix of 2014, shuffled: instances of size 1, 2 and 4, half of them apps of one instance, the other half
/// of four apps for each size.
fn mixed(counts: [u32; 3]) -> Vec<Demand> {
    let mut requests = Vec::new();
    for (count, size) in counts.into_iter().zip([1, 2, 4]) {
        requests.extend(unique(count / 2, size));
        for i in 0..count / 2 {
            let colour = ["purple", "red", "orange", "teal"][(i % 4) as usize];
            let mut request = Request::new(format!("{colour}-{size}"), size, size);
            request.instances = count;
            request.indices = Some(vec![i / 4]);
            requests.push(request);
        }
    }
    Random::new(1).shuffle(&mut requests);
    requests.into_iter().map(start).collect()
}

fn red(instances: u32) -> Vec<Demand> {
    let mut request = Request::new("red", 1, 1);
    request.instances = instances;
    vec![start(request)]
}

/// Returns settings with slow starts and auctions in the requested order, so that what each test counts is easy to
/// follow.
fn setting(algorithm: Algorithm, seed: u64) -> AuctionSettings {
    AuctionSettings {
        rules: Rules {
            order: Order::AsAsked,
            ..Rules::with_slow_starts(algorithm)
        },
        network: Network {
            latency: Distribution::parse("uniform:1ms..2ms").unwrap(),
            loss: 0.0,
        },
        seed,
        until_ms: None,
    }
}

/// Runs the auctions and checks the invariants.
fn check(cells: &[Cell], demands: &[Demand], setting: &AuctionSettings) -> AuctionsResult {
    let result = run(cells, demands, setting);
    for cell in &result.cells {
        let free = &cell.available;
        let over = free.memory_mb < 0 || free.disk_mb < Some(0) || free.containers < Some(0);
        assert!(!over, "{} is over-committed: {free:?}", cell.cell);
    }
    let rounds = result.placements.iter().map(|p| p.rounds);
    assert!(
        rounds
            .into_iter()
            .all(|n| (1..=setting.rules.max_rounds).contains(&n))
    );
    let sent = |kind: &str| result.messages.get(kind).map_or(0, |t| t.sent);
    for (question, answer) in [
        ("bid request", "bid"),
        ("reserve", "reserve answer"),
        ("release", "release answer"),
        ("run", "run answer"),
        ("stop", "stop answer"),
    ] {
        let delivered = result.messages.get(question).map_or(0, |t| t.delivered);
        assert!(sent(answer) <= delivered, "{question}");
        if setting.network.loss == 0.0 {
            assert_eq!(sent(answer), sent(question), "{question}");
        }
    }
    if setting.until_ms.is_none() && setting.network.loss == 0.0 {
        let placed = result.placements.iter().map(|p| p.communications);
        let failed = result.failures.iter().map(|f| f.communications);
        let sum: u64 = placed.chain(failed).map(u64::from).sum();
        let questions = sent("bid request") + sent("reserve") + sent("release") + sent("run");
        // cancelled auctions appear in the messages only
        assert!(
            sum == questions || result.cancelled > 0,
            "{sum} {questions}"
        );
        assert_eq!(sent("run"), result.placements.len() as u64);
        assert_eq!(result.leaked, 0);
    }
    result
}

/// Returns the number of new instances by cell.
fn new_by_cell(result: &AuctionsResult) -> Vec<f64> {
    let mut counts = vec![0.0; result.cells.len()];
    for placement in &result.placements {
        counts[placement.cell as usize] += 1.0;
    }
    counts
}

fn as_run(cells: &[Cell], demands: &[Demand], result: &AuctionsResult) -> SimRun {
    outcome("auctions", cells, demands, result, Some(0.5))
}

/// Returns preloaded cells: all but `empty` have 50 instances.
fn imbalanced(empty: usize) -> Vec<Cell> {
    let mut cells = cells(100);
    let full = cells.len() - empty;
    cells[..full].iter_mut().for_each(|cell| preload(cell, 50));
    cells
}

/// Returns preloaded cells with 78 to 80 instances each.
fn watters(n: u32) -> Vec<Cell> {
    let mut cells = cells(n);
    for (cell, i) in cells.iter_mut().zip(0..) {
        preload(cell, 78 + i % 3);
    }
    cells
}

fn apps(count: u32) -> Vec<Demand> {
    unique(count, 1).into_iter().map(start).collect()
}

fn count(demand: &Demand) -> usize {
    match &demand.action {
        DemandAction::Start { request, .. } => request
            .indices
            .as_ref()
            .map_or(request.instances as usize, Vec::len),
        DemandAction::Stop { .. } => 0,
    }
}

#[test]
fn all_rebid_needs_rounds_under_contention() {
    let max_rounds = |at_once| {
        let mut setting = setting(Algorithm::AllRebid, 1);
        setting.rules.at_once = at_once;
        let result = check(&cells(10), &apps(40), &setting);
        assert!(new_by_cell(&result).iter().all(|n| (3.0..=5.0).contains(n)));
        result.placements.iter().map(|p| p.rounds).max().unwrap()
    };
    assert_eq!(max_rounds(1), 1);
    assert!(max_rounds(20) > 1);
}

#[test]
fn an_instance_that_fits_nowhere_reaches_the_maximum_of_rounds() {
    for algorithm in Algorithm::ALL {
        let mut setting = setting(algorithm, 1);
        setting.rules.max_rounds = 7;
        let demands = [
            start(Request::new("big", 101, 1)),
            start(Request::new("fits", 100, 1)),
        ];
        let result = check(&cells(4), &demands, &setting);
        let [failure] = &result.failures[..] else {
            panic!("one failure");
        };
        assert_eq!((failure.rounds, failure.reason), (7, NO_ROOM_TEXT));
        assert_eq!(
            failure.communications,
            if algorithm == Algorithm::Random {
                7
            } else {
                28
            }
        );
        assert_eq!(result.placements.len(), 1);
    }
}

const NO_ROOM_TEXT: &str = "insufficient resources for instance";

#[test]
fn only_cells_with_the_stack_and_tags_are_asked() {
    let mut cells = cells(6);
    cells[1].attributes_mut().stacks = vec!["linux".into()];
    cells[2].attributes_mut().stacks = vec!["linux".into()];
    cells[2].evacuating = true;
    cells[3].attributes_mut().placement_tags = vec!["gold".into()];
    cells[4].attributes_mut().optional_placement_tags = vec!["silver".into()];
    let with = |stack: Option<&str>, tag: Option<&str>| {
        let mut request = Request::new("app", 1, 1);
        request.instances = 12;
        request.stack = stack.map(str::to_owned);
        request.placement_tags = tag.map(str::to_owned).into_iter().collect();
        let result = check(&cells, &[start(request)], &setting(Algorithm::PickBest, 1));
        let used: BTreeSet<u32> = result.placements.iter().map(|p| p.cell).collect();
        let why = result.failures.first().map(|f| (f.reason, f.rounds));
        (used.into_iter().collect::<Vec<_>>(), why)
    };
    assert_eq!(with(None, None), (vec![0, 1, 4, 5], None));
    assert_eq!(with(Some("linux"), None), (vec![1], None));
    assert_eq!(with(None, Some("gold")), (vec![3], None));
    assert_eq!(with(None, Some("silver")), (vec![4], None));
    let none = Some(("no cell has the requested stack and placement tags", 0));
    assert_eq!(with(Some("windows"), None), (vec![], none));
}

#[test]
fn instances_wait_for_an_auctioneer_and_more_auctioneers_are_quicker() {
    let waits_us = |auctioneers| {
        let mut setting = setting(Algorithm::PickBest, 1);
        setting.rules.at_once = 2;
        setting.rules.auctioneers = auctioneers;
        setting.rules.run = Distribution::Constant(Duration::from_millis(900));
        setting.network.latency = Distribution::Constant(Duration::from_millis(1));
        let result = check(&cells(4), &apps(8), &setting);
        result
            .placements
            .iter()
            .map(|p| p.wait_us)
            .collect::<Vec<_>>()
    };
    // bid 2 ms, reserve 2 ms; the order to run travels for 1 ms, takes 900 ms, and is answered
    let (first, turn) = (5_000, 906_000);
    let expected: Vec<u64> = (0..8).map(|i| first + i / 2 * turn).collect();
    assert_eq!(waits_us(1), expected);
    let four = waits_us(4);
    assert!(four.iter().max() < expected.last() && four[0] == first);
}

fn at(at_ms: u64, action: DemandAction) -> Demand {
    Demand { at_ms, action }
}

#[test]
fn stops_and_lifetimes_give_the_room_back() {
    let full = |app: &str, lifetime_ms| {
        let request = Arc::new(Request::new(app, 100, 1));
        DemandAction::Start {
            request,
            lifetime_ms,
        }
    };
    let stop = |app: &str, indices: &[u32]| DemandAction::Stop {
        app: app.into(),
        indices: indices.to_vec(),
    };
    let mut setting = setting(Algorithm::PickBest, 1);
    setting.rules.at_once = 1;
    let demands = [
        at(0, full("first", Some(5_000))),
        at(0, full("refused", None)),
        at(30_000, full("second", None)),
        at(40_000, stop("second", &[7])),
        at(50_000, stop("second", &[])),
        at(60_000, full("third", None)),
        at(60_000, full("cancelled", None)),
        at(60_000, stop("cancelled", &[0])),
        at(60_001, stop("third", &[])),
        at(70_000, full("fourth", None)),
    ];
    let result = check(&cells(1), &demands, &setting);
    let names: Vec<_> = result
        .placements
        .iter()
        .map(|p| p.request.app.as_str())
        .collect();
    assert_eq!(names, ["first", "second", "third", "fourth"]);
    let ended: Vec<_> = result.placements.iter().map(|p| p.ended_us).collect();
    let first = ended[0].unwrap() - result.placements[0].at_us;
    assert!((5_800_000..=5_900_000).contains(&first), "{first}");
    assert!((50_001_000..=50_002_000).contains(&ended[1].unwrap()));
    // stopped during its auction: it ends as soon as it is placed
    let third = ended[2].unwrap() - result.placements[2].at_us;
    assert!((1_000..=2_000).contains(&third), "{third}");
    assert_eq!(ended[3], None);
    assert_eq!((result.failures.len(), result.cancelled), (1, 1));
    let cell = &result.cells[0];
    assert_eq!(cell.counts.apps.keys().collect::<Vec<_>>(), ["fourth"]);
    assert_eq!((cell.available.memory_mb, cell.counts.starting), (0, 0));
}

#[test]
fn a_lost_message_costs_a_timeout_and_may_leak_a_reservation() {
    let mut seen = [0; 3];
    for (algorithm, seed) in Algorithm::ALL
        .into_iter()
        .flat_map(|a| (0..8).map(move |s| (a, s)))
    {
        let mut setting = setting(algorithm, seed);
        setting.network.loss = 0.1;
        let demands = apps(30);
        let result = check(&cells(12), &demands, &setting);
        assert_eq!(result.placements.len() + result.failures.len(), 30);
        let used: i64 = result
            .cells
            .iter()
            .map(|c| 100 - c.available.memory_mb)
            .sum();
        let held = i64::try_from(result.leaked + result.placements.len() as u64).unwrap();
        assert_eq!(used, held, "what is used is placed or leaked");
        let why: BTreeSet<_> = result.failures.iter().map(|f| f.reason).collect();
        seen[0] += result.leaked;
        seen[1] += u64::from(why.contains("the winner did not get the order to run"));
        seen[2] += u64::from(result.placements.iter().any(|p| p.wait_us > 1_000_000));
    }
    assert!(seen.iter().all(|n| *n > 0), "{seen:?}");
}

#[test]
fn an_answer_later_than_the_timeout_is_missing() {
    let mut setting = setting(Algorithm::PickBest, 1);
    setting.rules.max_rounds = 3;
    setting.network.latency = Distribution::Constant(Duration::from_millis(501));
    let result = check(&cells(4), &apps(1), &setting);
    let failure = &result.failures[0];
    assert_eq!((failure.rounds, failure.at_us), (3, 3_000_000));
}

#[test]
fn nothing_happens_after_the_end() {
    let mut setting = setting(Algorithm::PickBest, 1);
    setting.until_ms = Some(2_000);
    let mut demands = apps(100);
    demands.push(at(3_000, demands[0].action.clone()));
    let result = check(&cells(4), &demands, &setting);
    assert_eq!(result.placements.len() as u64 + result.waiting, 100);
    assert!((40..=60).contains(&result.placements.len()));
    assert_eq!(result.ended_ms, 2_000);
}

#[test]
fn the_watcher_can_end_a_run() {
    let mut setting = setting(Algorithm::Random, 1);
    setting.rules.max_rounds = 10_000;
    // each of the 50 fits nowhere and asks 10,000 times
    let mut request = Request::new("big", 101, 1);
    request.instances = 50;
    let mut seen = Vec::new();
    let mut watch = |now_ms| {
        seen.push(now_ms);
        seen.len() < 3
    };
    let (result, ended) = run_watched(&cells(4), &[start(request)], &setting, &mut watch);
    assert!(ended && result.waiting > 0);
    assert_eq!(seen.len(), 3);
    assert!(seen.is_sorted() && result.ended_ms.abs_diff(seen[2]) <= 1);
}

#[test]
fn tasks_are_not_kept_apart() {
    let mut request = Request::new("batch", 10, 1);
    request.kind = placement::Kind::Task;
    request.instances = 3;
    let mut cells = cells(2);
    preload(&mut cells[1], 50);
    let result = check(&cells, &[start(request)], &setting(Algorithm::PickBest, 1));
    assert_eq!(new_by_cell(&result), [3.0, 0.0]);
    assert_eq!(result.cells[0].counts.tasks, 3);
}

#[test]
fn rules_that_a_file_does_not_set_are_the_algorithms_defaults() {
    let read = |text: &str| toml::from_str::<Rules>(text).map_err(|e| e.to_string());
    for algorithm in Algorithm::ALL {
        let text = format!("algorithm = \"{algorithm}\"");
        assert_eq!(read(&text).unwrap(), Rules::of(algorithm));
        assert_eq!(algorithm.name().parse(), Ok(algorithm));
        assert_eq!(algorithm.name().replace('_', "-").parse(), Ok(algorithm));
    }
    assert_eq!(Rules::of(Algorithm::ReserveNBest).max_rounds, 40);
    assert_eq!(Rules::of(Algorithm::AllRebid).max_rounds, 100);
    let text = "algorithm = \"pick_best\"\nmax_rounds = 3\nrun = \"constant:0s\"\ntimeout = \"2s\"";
    let rules = read(text).unwrap();
    assert_eq!(
        (rules.max_rounds, rules.timeout),
        (3, Duration::from_secs(2))
    );
    assert_eq!(rules.run, Distribution::Constant(Duration::ZERO));
    for (line, part) in [
        ("rounds = 3", "unknown field `rounds`"),
        ("order = \"backwards\"", "`as-asked`"),
        (
            "max_rounds = 0",
            "max_rounds: 0 is not allowed; expected a number from 1 to 10000",
        ),
        ("pool_fraction = 1.5", "pool_fraction: 1.5"),
        ("at_once = 0", "at_once: 0"),
        ("timeout = \"0s\"", "timeout: 0ns"),
    ] {
        let error = read(&format!("algorithm = \"random\"\n{line}")).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    assert!(
        "all_vote"
            .parse::<Algorithm>()
            .unwrap_err()
            .to_string()
            .contains("all_rebid")
    );
}

#[test]
fn the_pool_is_a_share_of_the_cells_but_not_too_few() {
    let rules = Rules::of(Algorithm::AllRebid);
    for (cells, pool) in [
        (0, 0),
        (4, 4),
        (10, 10),
        (25, 10),
        (51, 11),
        (100, 20),
        (1250, 250),
    ] {
        assert_eq!(rules.pool(cells), pool, "{cells}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn every_instance_has_one_outcome_and_no_cell_too_much(
        seed: u64,
        algorithm in proptest::sample::select(Algorithm::ALL.to_vec()),
        sizes in proptest::collection::vec((1_i64..60, 1_u32..6, 0_u64..3_000, proptest::option::of(0_u64..4_000)), 1..20),
        loss in proptest::sample::select(vec![0.0, 0.05, 1.0]),
        auctioneers in 1_u32..4,
    ) {
        let mut demands: Vec<Demand> = sizes.iter().enumerate().map(|(i, (size, n, at_ms, life))| {
            let mut request = Request::new(format!("app-{i}"), *size, 1);
            request.instances = *n;
            let (request, lifetime_ms) = (Arc::new(request), *life);
            at(*at_ms, DemandAction::Start { request, lifetime_ms })
        }).collect();
        demands.sort_by_key(|d| d.at_ms);
        let mut setting = setting(algorithm, seed);
        setting.network.loss = loss;
        setting.rules.auctioneers = auctioneers;
        setting.rules.max_rounds = 5;
        let result = check(&cells(5), &demands, &setting);
        prop_assert_eq!(&result, &run(&cells(5), &demands, &setting));
        let asked: usize = demands.iter().map(count).sum();
        prop_assert_eq!(result.placements.len() + result.failures.len(), asked);
        prop_assert_eq!((result.waiting, result.cancelled), (0, 0));
        let run = as_run(&cells(5), &demands, &result);
        let last = run.series.last().unwrap();
        let alive = result.placements.iter().filter(|p| p.ended_us.is_none()).count();
        prop_assert_eq!(last.instances, alive as u64);
    }
}
