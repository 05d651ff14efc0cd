//! Estates of DEAs in the check: the machines of `dea-in` and of simulated DEAs beside reps, auctioneers and a manager.

mod bridge;
mod estate;

use std::collections::{BTreeMap, BTreeSet};

use advertiser::dea::DeaStart;
use serde_json::json;

use self::{bridge::BridgeNode, estate::EstateNode};
use super::fails;
use crate::check::{
    CheckReport,
    cell::CellNode,
    invariants::Invariants,
    script::{Fault, Script, Step, What},
    world::World,
};

/// A hundred DEAs, a third of them in each zone, …
const DEAS: usize = 100;
const ZONES: [&str; 3] = ["z0", "z1", "z2"];
/// … and cells, which have another stack.
const CELLS: usize = 20;
/// Each app has so many instances, of this size.
const APPS: usize = 20;
const INSTANCES: u32 = 10;
const MEMORY_MB: i64 = 64;
/// The time of each step, ms: all apps are on DEAs; half of them move to cells; a zone is lost, the bridge restarted.
const PUT_MS: u64 = 20_000;
const MOVE_MS: u64 = 65_000;
const LOSE_MS: u64 = 125_000;
const END_MS: u64 = 225_000;
/// What is put runs after this, …
const DEPLOYED_MS: u64 = 40_000;
/// … and what was lost with a zone: 30 s until a DEA is given up, some more as many are lost at once.
const LOST_MS: u64 = 90_000;
/// Between two looks at what runs.
const LOOK_MS: u64 = 250;

/// The nodes: an auctioneer, the cells, a manager, the client, the bridge, the estate.
const BRIDGE: usize = CELLS + 3;
const ESTATE: usize = BRIDGE + 1;

/// The app of this number, for DEAs or for cells.
fn put(app: usize, stack: &str) -> What {
    let definition = json!({
        "app": name(app), "instances": INSTANCES, "memory_mb": MEMORY_MB, "disk_mb": 1, "stack": stack,
        "run": {"droplet": {"uri": "http://127.0.0.1:1/droplet", "stack": stack}},
        "update": {"max_in_flight": 3, "min_healthy": "1s"},
    });
    What::Command {
        app: name(app),
        text: format!("put {definition}"),
    }
}

fn name(app: usize) -> String {
    format!("app{app}")
}

/// Whether it is moved to cells.
fn moves(app: usize) -> bool {
    app < APPS / 2
}

fn script(seed: u64) -> Script {
    let step = |at_ms, what| Step { at_ms, what };
    let mut steps: Vec<Step> = (0..APPS)
        .map(|app| step(PUT_MS, put(app, "cflinuxfs2")))
        .collect();
    let moved = (0..APPS).filter(|app| moves(*app));
    steps.extend(moved.map(|app| step(MOVE_MS, put(app, "cflinuxfs3"))));
    let lost = (0..CELLS).filter(|cell| zone_of(*cell) == ZONES[1]);
    let stays_down_ms = END_MS - LOSE_MS;
    steps.extend(lost.map(|cell| step(LOSE_MS, fails(1 + cell, Fault::Restart, stays_down_ms))));
    steps.push(step(LOSE_MS, fails(BRIDGE, Fault::Restart, 3_000)));
    Script {
        seed,
        policy: "dea",
        auctioneers: 1,
        cells: vec![2_048; CELLS],
        requests: Vec::new(),
        steps,
        overtake_us: 2_000,
        duplicates: 0,
        managers: 1,
        apps: (0..APPS).map(name).collect(),
        tasks: Vec::new(),
    }
}

fn zone_of(cell: usize) -> &'static str {
    ZONES[cell % ZONES.len()]
}

/// What runs: how often each index of each app, on DEAs and on cells.
#[derive(Debug, Default)]
struct Running {
    on_deas: BTreeMap<(String, u32), u32>,
    on_cells: BTreeMap<(String, u32), u32>,
}

impl Running {
    fn of(world: &World<'_>) -> Self {
        let mut running = Self::default();
        let estate: &EstateNode = world.node(ESTATE).unwrap();
        for (_, DeaStart { droplet, index, .. }) in estate.deas.instances() {
            let key = (droplet.clone(), *index);
            *running.on_deas.entry(key).or_default() += 1;
        }
        for cell in world.all::<CellNode>() {
            for process in cell.processes.values() {
                let key = (process.app.clone(), process.index);
                *running.on_cells.entry(key).or_default() += 1;
            }
        }
        running
    }

    /// How many indices of an app run.
    fn indices(&self, app: &str) -> usize {
        let both = self.on_deas.keys().chain(self.on_cells.keys());
        let indices: BTreeSet<u32> = both
            .filter(|(of, _)| of == app)
            .map(|(_, index)| *index)
            .collect();
        indices.len()
    }

    /// Everything runs once, where it belongs.
    fn is_right(&self, moved: bool) -> Result<(), String> {
        for app in 0..APPS {
            let of_app = |all: &BTreeMap<(String, u32), u32>| -> Vec<(u32, u32)> {
                let of = all.iter().filter(|((of, _), _)| *of == name(app));
                of.map(|((_, index), count)| (*index, *count)).collect()
            };
            let (here, there) = if moved && moves(app) {
                (&self.on_cells, &self.on_deas)
            } else {
                (&self.on_deas, &self.on_cells)
            };
            let once: Vec<(u32, u32)> = (0..INSTANCES).map(|index| (index, 1)).collect();
            let (here, there) = (of_app(here), of_app(there));
            if here != once || !there.is_empty() {
                return Err(format!("{}: {here:?} and {there:?} elsewhere", name(app)));
            }
        }
        Ok(())
    }
}

/// The cells of the scenario run droplets of the other stack.
fn adapt(world: &mut World<'_>) {
    for cell in 0..CELLS {
        world.with(1 + cell, |node: &mut CellNode| {
            node.attributes.zone = zone_of(cell).to_owned();
            node.attributes.stacks = vec!["cflinuxfs3".to_owned()];
            node.attributes.droplets = true;
        });
    }
}

fn play(seed: u64) {
    let script = script(seed);
    let mut world = World::begun(&script, false);
    world.add(Box::new(BridgeNode::new(DEAS + 10)));
    world.add(Box::new(EstateNode::new(DEAS, &ZONES, 1_024)));
    adapt(&mut world);
    let mut invariants = Invariants::default();
    let mut report = CheckReport::default();
    let (mut looked_ms, mut is_lost) = (0, false);
    while world.now_ms() < END_MS && world.goes_on(&mut report) {
        let violation = invariants.after_step(&world);
        assert_eq!(violation, None, "seed {seed}");
        world.sent.clear();
        let now_ms = world.now_ms();
        if now_ms >= LOSE_MS && !is_lost {
            is_lost = true;
            world.with(ESTATE, |estate: &mut EstateNode| estate.lose(ZONES[1]));
        }
        if now_ms < looked_ms + LOOK_MS {
            continue;
        }
        looked_ms = now_ms;
        let running = Running::of(&world);
        for (from_ms, to_ms, moved) in [(PUT_MS, MOVE_MS, false), (MOVE_MS, LOSE_MS, true)] {
            if (from_ms + DEPLOYED_MS..to_ms).contains(&now_ms) {
                assert_eq!(running.is_right(moved), Ok(()), "{now_ms} ms");
            }
        }
        // also while half of them move, and again once a zone was lost for a while
        let all_run =
            (PUT_MS + DEPLOYED_MS..LOSE_MS).contains(&now_ms) || now_ms > LOSE_MS + LOST_MS;
        for app in (0..APPS).map(name).filter(|_| all_run) {
            let indices = running.indices(&app);
            assert_eq!(
                indices, INSTANCES as usize,
                "{app}, {now_ms} ms, seed {seed}"
            );
        }
    }
    assert_eq!(Running::of(&world).is_right(true), Ok(()), "seed {seed}");
    let estate: &EstateNode = world.node(ESTATE).unwrap();
    assert!(
        estate.deas.least_memory_mb >= 0,
        "memory was promised twice"
    );
}

#[test]
fn half_of_the_apps_move_from_deas_to_cells_and_a_zone_of_both_is_lost() {
    play(0);
}
