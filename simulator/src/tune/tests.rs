//! A search finds better weights, and the same ones each time.
#![allow(clippy::unwrap_used)] // a test may panic
#![allow(clippy::float_cmp)] // the same values, or whole numbers

use super::*;

/// Dissimilar work on few cells; the policy hardly considers how full they are.
const WORK: &str = r#"
[[groups]]
count = 4
total = { memory_mb = 1000, disk_mb = 10000, containers = 100 }
[[workload]]
apps = { count = 30, name = "a-{n}", memory_mb = "10..90", disk_mb = "1..9" }
"#;

const UNEVEN: &str = r#"
name = "uneven"
order = "largest-first"
bids = false
[[stage]]
filter = "memory"
[[stage]]
score = "resources"
of = ["memory"]
weight = 0.01
[[stage]]
score = "index"
weight = 0.05
[[stage]]
pick = "lowest"
"#;

fn settings(goal: Goal) -> TuneSettings {
    TuneSettings {
        goals: vec![goal],
        seeds: 1..4,
        tries: 30,
        seed: 7,
        name: "tuned".into(),
    }
}

#[test]
fn a_search_finds_better_weights_and_the_same_again() {
    let scenario = Scenario::read(WORK, true).unwrap();
    let policy = Policy::parse(UNEVEN).unwrap();
    let found = search(&scenario, &policy, &settings(Goal::Balance), &mut |_| true).unwrap();
    assert_eq!((found.tries, found.interrupted), (30, false));
    assert_eq!(found.policy.name(), "tuned");
    let of = |is: &dyn Fn(&Tried) -> bool| {
        let tried = found.frontier.iter().find(|tried| is(tried)).unwrap();
        tried.values["balance"]
    };
    let (own, chosen) = (of(&|t| t.own), of(&|t| t.chosen));
    assert!(chosen < own / 2.0, "{own} {chosen}");
    let again = search(&scenario, &policy, &settings(Goal::Balance), &mut |_| true).unwrap();
    assert_eq!(found.frontier, again.frontier);
    assert_eq!(found.policy.to_toml(), again.policy.to_toml());
    let policies = (&policy, &found.policy);
    let unseen = unseen(&scenario, 100..104, &[Goal::Balance], policies, &mut |_| {
        true
    });
    let compared = unseen.unwrap().unwrap().remove("balance").unwrap();
    assert_eq!((compared.better, compared.worse), (4, 0), "{compared:?}");
    assert!(compared.after.mean < compared.before.mean);
}

#[test]
fn no_other_try_of_the_frontier_is_better() {
    let scenario = Scenario::read(WORK, true).unwrap();
    let policy = Policy::parse(UNEVEN).unwrap();
    let mut settings = settings(Goal::Balance);
    settings.goals.push(Goal::Stranded);
    let found = search(&scenario, &policy, &settings, &mut |_| true).unwrap();
    let frontier: Vec<&Tried> = found.frontier.iter().filter(|t| !t.own).collect();
    for a in &frontier {
        for b in &frontier {
            let names = ["balance", "stranded"];
            let worse = names.iter().any(|name| a.values[name] > b.values[name]);
            let equal = names.iter().all(|name| a.values[name] == b.values[name]);
            let allocates = a.values["allocated"] < b.values["allocated"];
            assert!(worse || allocates || equal, "{a:?} beats {b:?}");
        }
    }
}

#[test]
fn a_search_can_be_ended() {
    let scenario = Scenario::read(WORK, true).unwrap();
    let policy = Policy::parse(UNEVEN).unwrap();
    let mut stop = |progress: TuneProgress| progress.tries < 3;
    let found = search(&scenario, &policy, &settings(Goal::Balance), &mut stop).unwrap();
    assert_eq!((found.tries, found.interrupted), (3, true));
}

#[test]
fn a_policy_without_weights_is_refused() {
    let scenario = Scenario::read(WORK, true).unwrap();
    let policy = Policy::preset("random").unwrap();
    let refused = search(&scenario, &policy, &settings(Goal::Balance), &mut |_| true);
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .starts_with("random: has no score")
    );
}

#[test]
fn what_is_allocated_is_of_what_could_be() {
    let mut figures = crate::outcome::Figures::default();
    assert_eq!(Goal::Allocated.value(&figures), 100.0);
    figures.bounds = Some(crate::outcome::Bounds {
        gap: BTreeMap::from([("memory".into(), 2.0), ("instances".into(), 4.0)]),
        ..crate::outcome::Bounds::default()
    });
    assert_eq!(Goal::Allocated.value(&figures), 97.0);
}
