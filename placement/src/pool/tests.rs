//! The two ways of telling a pool of a cell, and what it expects.

use super::*;
use crate::{random::SplitMix64, request::Kind};

/// Two pools get the same reports, one of them with the apps passed separately.
#[test]
fn apps_beside_a_cell_are_as_good_as_in_it() {
    let (mut plain, mut beside) = (Pool::default(), Pool::default());
    let mut random = SplitMix64::new(1);
    for _ in 0..1_000 {
        let mut cell = Cell::new(
            format!("c{}", random.draw() % 3),
            Resources::new(100, 100, 10),
        );
        let apps = (0..6).filter_map(|app| {
            let count = u32::try_from(random.draw() % 3).unwrap();
            (count > 0).then(|| (format!("app-{app}"), count))
        });
        let apps: Vec<(String, u32)> = apps.collect();
        let listed: Vec<(&str, u32)> = apps.iter().map(|(n, c)| (n.as_str(), *c)).collect();
        beside.put_with_apps(cell.clone(), &listed);
        cell.counts.apps = apps.into_iter().collect();
        plain.put(cell);
        assert!(plain.cells().eq(beside.cells()));
        for app in 0..6 {
            let app = format!("app-{app}");
            assert_eq!(plain.holders.of(&app), beside.holders.of(&app));
        }
    }
}

/// One pool gets a cell's whole reports and its debits after each; the other what has changed, and the same debits.
#[test]
fn a_change_is_as_good_as_a_whole_report() {
    let (mut whole, mut changed) = (Pool::default(), Pool::default());
    let mut random = SplitMix64::new(1);
    let mut reported = Cell::new("c", Resources::new(1_000, 1_000, 100));
    for pool in [&mut whole, &mut changed] {
        pool.put(reported.clone());
    }
    let mut debits: Vec<Job> = Vec::new();
    for _ in 0..2_000 {
        let mut request = Request::new(format!("app-{}", random.draw() % 4), 10, 1);
        request.owner = random.draw().is_multiple_of(2).then(|| "acme".to_owned());
        request.tags = [("env".to_owned(), format!("{}", random.draw() % 2))].into();
        if random.draw().is_multiple_of(4) {
            request.kind = Kind::Task;
        }
        let job = Job {
            request: Arc::new(request),
            index: 0,
        };
        for pool in [&mut whole, &mut changed] {
            pool.debit("c", &job, None);
        }
        debits.push(job);
        if !random.draw().is_multiple_of(3) {
            continue;
        }
        // some of the debits have arrived, one of them may have ended again, and others have started and ended
        let (shown, hidden): (Vec<Job>, Vec<Job>) = debits
            .drain(..)
            .partition(|_| random.draw().is_multiple_of(2));
        let before = reported.clone();
        for job in shown
            .iter()
            .skip(usize::from(random.draw().is_multiple_of(2)))
        {
            reported.debit(&job.request, None);
        }
        let other = Request::new(format!("app-{}", random.draw() % 4), 10, 1);
        match random.draw() % 3 {
            0 => _ = reported.debit(&other, None),
            _ if reported.count_of(&other.app) > 0 => reported.credit(&other, None),
            _ => {}
        }
        let change = CellChange {
            available: reported.available.clone(),
            starting: reported.counts.starting,
            apps: difference(&before.counts.apps, &reported.counts.apps),
            tasks: reported.counts.tasks,
            evacuating: false,
            cordoned: false,
            owners: difference(&before.counts.owners, &reported.counts.owners),
            tags: difference(&before.counts.tags, &reported.counts.tags),
            cpu_capped: reported.counts.cpu_capped,
            cpu_uncapped: reported.counts.cpu_uncapped,
        };
        whole.put(reported.clone());
        for job in &hidden {
            whole.debit("c", job, None);
        }
        let [shown, left] = [&shown, &hidden].map(|jobs| jobs.iter().map(|j| (&*j.request, None)));
        changed.change("c", &change, shown, left);
        assert_eq!(whole.get("c"), changed.get("c"));
        for app in 0..4 {
            let app = format!("app-{app}");
            assert_eq!(whole.holders.of(&app), changed.holders.of(&app));
        }
        debits = hidden;
    }
}

fn difference(
    before: &BTreeMap<String, u32>,
    now: &BTreeMap<String, u32>,
) -> BTreeMap<String, u32> {
    let names = before.keys().chain(now.keys());
    let differs = |name: &&String| before.get(*name) != now.get(*name);
    let count = |name: &String| (name.clone(), now.get(name).copied().unwrap_or(0));
    names.filter(differs).map(count).collect()
}

#[test]
fn the_work_to_expect_is_what_was_learnt_or_what_the_file_gives() {
    let mut pool = Pool::default();
    for _ in 0..40 {
        pool.learn(&Request::new("a", 64, 1));
    }
    let vendue = Policy::preset("vendue").unwrap();
    let (learnt, requests) = pool.expected(&vendue);
    assert_eq!((learnt.sizes().len(), requests), (1, 40));
    assert_eq!(learnt.sizes()[0].size.memory_mb, 64);
    let text = "name = \"t\"\n[[stage]]\nscore = \"fragmentation\"\nof = \"memory\"\n[[stage]]\npick = \"lowest\"\n\
                [[expected]]\nshare = 1\nmemory_mb = 32";
    let given = Policy::parse(text).unwrap();
    let (given, requests) = pool.expected(&given);
    assert_eq!((given.sizes()[0].size.memory_mb, requests), (32, 0));
}

#[test]
fn each_form_of_policy_has_its_engine() {
    for (preset, engine) in [
        ("diego", "ordered"),
        ("dea", "halves"),
        ("dapi", "columnar"),
    ] {
        assert_eq!(Pool::engine(&Policy::preset(preset).unwrap()), engine);
    }
}
