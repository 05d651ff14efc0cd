//! Bounds against all assignments of small scenarios, and against what policies place.
#![allow(clippy::unwrap_used)] // a test may panic
#![allow(clippy::float_cmp)] // whole numbers

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::{RunSettings, scenario::Scenario};

/// A cell with one or more gpus: memory, disk, containers, and the number of gpus of 1,000.
type CellSizes = (i64, i64, i64, usize);
/// What an app asks for: memory, disk, number of gpus, and the amount of each.
type AppSizes = (i64, i64, usize, i64);

fn text(cells: &[CellSizes], apps: &[AppSizes], policies: &str) -> String {
    let mut text = format!("policies = [{policies}]\n");
    for (n, (memory, disk, containers, gpus)) in cells.iter().enumerate() {
        let devices = match gpus {
            0 => String::new(),
            gpus => format!(", devices = {{ gpu = {{ count = {gpus}, each = 1000 }} }}"),
        };
        writeln!(
            text,
            "[[groups]]\nzone = \"z{n}\"\ntotal = {{ memory_mb = {memory}, disk_mb = {disk}, containers = {containers}{devices} }}"
        )
        .unwrap();
    }
    for (n, (memory, disk, gpus, amount)) in apps.iter().enumerate() {
        let devices = match gpus {
            0 => String::new(),
            gpus => format!(", devices = {{ gpu = {{ count = {gpus}, amount = {amount} }} }}"),
        };
        writeln!(
            text,
            "[[workload]]\nstart = {{ app = \"a{n}\", memory_mb = {memory}, disk_mb = {disk}{devices} }}"
        )
        .unwrap();
    }
    text
}

/// The value of an app in a bound.
type Value = fn(&AppSizes) -> i64;
/// The free amounts: for each cell memory, disk, containers, and what each gpu has.
type Free = Vec<(i64, i64, i64, Vec<i64>)>;

/// Returns the most that any assignment places, by value.
fn best(free: &mut Free, apps: &[AppSizes], value: Value) -> i64 {
    let Some(((memory, disk, gpus, amount), rest)) = apps.split_first() else {
        return 0;
    };
    let mut most = best(free, rest, value);
    for c in 0..free.len() {
        let fits = free[c].0 >= *memory && free[c].1 >= *disk && free[c].2 >= 1;
        for chosen in subsets(free[c].3.len(), *gpus) {
            let before = free[c].clone();
            let has = chosen.iter().all(|gpu| before.3[*gpu] >= *amount);
            if !fits || !has {
                continue;
            }
            let (left, gpus_left) = (&before, &mut free[c]);
            gpus_left.0 = left.0 - memory;
            gpus_left.1 = left.1 - disk;
            gpus_left.2 = left.2 - 1;
            for gpu in &chosen {
                gpus_left.3[*gpu] -= amount;
            }
            most = most.max(value(&apps[0]) + best(free, rest, value));
            free[c] = before;
        }
    }
    most
}

fn subsets(of: usize, size: usize) -> Vec<Vec<usize>> {
    let all = (0..1_usize << of).filter(|set| set.count_ones() as usize == size);
    all.map(|set| (0..of).filter(|n| set >> n & 1 == 1).collect())
        .collect()
}

fn free(cells: &[CellSizes]) -> Free {
    let of = |(memory, disk, containers, gpus): &CellSizes| {
        (*memory, *disk, *containers, vec![1_000; *gpus])
    };
    cells.iter().map(of).collect()
}

/// Returns the bounds for cells as they are or, without pairs, with all cells merged into one.
fn bound_with(text: &str, most_pairs: usize) -> BTreeMap<String, f64> {
    let scenario = Scenario::read(text, true).unwrap();
    let demands = scenario.demands(1).unwrap();
    let policy = Policy::preset("vendue").unwrap();
    let work = Work::of(&scenario, &demands, &policy, most_pairs);
    let measures = work.measures().iter();
    let at_most = measures.map(|measure| (measure.name().to_owned(), work.at_most(measure)));
    at_most.collect()
}

fn bound(text: &str) -> BTreeMap<String, f64> {
    bound_with(text, work::MOST_PAIRS)
}

fn check_bounds(cells: &[CellSizes], apps: &[AppSizes]) -> Result<(), TestCaseError> {
    let text = text(cells, apps, "\"vendue\"");
    let (bounds, as_one) = (bound(&text), bound_with(&text, 0));
    let values: [(&str, Value); 4] = [
        ("instances", |_| 1),
        ("memory", |app| app.0),
        ("disk", |app| app.1),
        ("gpu", |app| i64::try_from(app.2).unwrap() * app.3),
    ];
    for (name, value) in values {
        let most = best(&mut free(cells), apps, value) as f64;
        let bound = bounds.get(name).copied().unwrap_or(0.0);
        prop_assert!(bound >= most, "{}: {} below {}", name, bound, most);
        let asked: i64 = apps.iter().map(value).sum();
        prop_assert!(bound <= asked as f64, "{}: {} above {}", name, bound, asked);
        let as_one = as_one.get(name).copied().unwrap_or(0.0);
        prop_assert!(as_one >= most, "{}: {} below {}", name, as_one, most);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_assignment_places_more(
        cells in prop::collection::vec((1_i64..20, 1_i64..20, 1_i64..5, Just(0)), 1..4),
        apps in prop::collection::vec((1_i64..15, 1_i64..15, Just(0), Just(0)), 1..7),
    ) {
        check_bounds(&cells, &apps)?;
    }

    #[test]
    fn no_assignment_to_devices_gives_more(
        cells in prop::collection::vec((Just(100), Just(100), Just(9), 0_usize..3), 1..3),
        apps in prop::collection::vec(
            (1_i64..60, Just(1), 0_usize..3, prop::sample::select(vec![250, 400, 500, 600, 1_000])), 1..5),
    ) {
        check_bounds(&cells, &apps)?;
    }

    #[test]
    fn of_one_size_the_bound_is_what_fits(
        cells in prop::collection::vec((1_i64..60, 1_i64..60, 1_i64..9, Just(0)), 1..5),
        memory in 1_i64..20,
        disk in 1_i64..20,
        count in 1_usize..30,
    ) {
        let apps = vec![(memory, disk, 0, 0); count];
        let fits: i64 = cells.iter().map(|c| (c.0 / memory).min(c.1 / disk).min(c.2)).sum();
        let most = fits.min(i64::try_from(count).unwrap()) as f64;
        let bounds = bound(&text(&cells, &apps, "\"vendue\""));
        prop_assert_eq!(bounds["instances"], most);
        prop_assert_eq!(bounds["memory"], most * memory as f64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_policy_places_more(
        cells in prop::collection::vec((1_i64..20, 1_i64..20, 1_i64..5, 0_usize..2), 1..4),
        apps in prop::collection::vec((1_i64..15, 1_i64..15, 0_usize..2, Just(400)), 1..9),
        seed in 0_u64..100,
    ) {
        let text = text(&cells, &apps, "\"vendue\", \"diego\", \"dea\", \"dapi\", \"random\"");
        let scenario = Scenario::read(&text, true).unwrap();
        for contender in &scenario.contenders {
            let settings = RunSettings { seed, verbatim: false };
            let (run, _) = crate::run(&scenario, contender, settings, &mut |_| true).unwrap();
            let bounds = run.figures.bounds.unwrap();
            prop_assert_eq!(bounds.placed["instances"], run.figures.placed as f64);
            for (name, gap) in &bounds.gap {
                prop_assert!(*gap >= 0.0, "{} {}: {:?}", run.policy, name, bounds);
            }
            if let Some(most_even) = run.figures.most_even {
                prop_assert!(most_even.gap >= 0.0, "{}: {:?}", run.policy, most_even);
            }
        }
    }
}

#[test]
fn what_ends_or_may_be_lost_takes_no_room_at_the_end() {
    let cell = "[[groups]]\ncount = 1\ntotal = { memory_mb = 10, disk_mb = 10, containers = 9 }\n";
    let start = |app: &str| {
        format!("[[workload]]\nstart = {{ app = \"{app}\", memory_mb = 10, disk_mb = 1 }}\n")
    };
    let both = start("a") + &start("b");
    assert_eq!(bound(&format!("{cell}{both}"))["instances"], 1.0);
    let stop = "[[workload]]\nat = \"1s\"\nstop = { app = \"a\" }\n";
    assert_eq!(bound(&format!("{cell}{both}{stop}"))["instances"], 2.0);
    let fault = "[[faults]]\nat = \"1s\"\nkind = \"zone-lost\"\nzone = \"default\"\n";
    let lossy = format!("duration = \"1m\"\n{cell}{both}{fault}");
    assert_eq!(bound(&lossy)["instances"], 2.0);
    // a request that fits no cell is never placed
    let large = start("c").replace("memory_mb = 10", "memory_mb = 11");
    assert_eq!(bound(&format!("{lossy}{large}"))["instances"], 2.0);
    // of two requests for one index, one instance is replaced and takes no room at the end
    let twice = start("a") + &start("a");
    assert_eq!(bound(&format!("{cell}{twice}"))["instances"], 2.0);
}

#[test]
fn only_cells_that_offer_the_stack_count() {
    let group = |stack: &str| {
        format!(
            "[[groups]]\nzone = \"{stack}\"\nstacks = [\"{stack}\"]\ntotal = {{ memory_mb = 20, disk_mb = 20, containers = 9 }}\n"
        )
    };
    let work = "[[workload]]\napps = { count = 9, name = \"a-{n}\", memory_mb = 10, disk_mb = 1, stack = \"x\" }\n";
    let text = group("x") + &group("y") + work;
    assert_eq!(bound(&text)["instances"], 2.0);
}
