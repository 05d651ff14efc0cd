//! Moving apps from DEAs to cells: the machines of `dea-in` and of simulated DEAs, together with reps, an auctioneer
//! and a manager.

mod bridge;
mod estate;

use std::collections::BTreeMap;

use advertiser::dea::DeaStart;
use serde::Serialize;
use serde_json::json;

use self::{bridge::BridgeNode, estate::EstateNode};
use super::{
    CheckReport, Violation,
    cell::CellNode,
    invariants::Invariants,
    script::{Fault, Script, Step, What},
    world::World,
};

/// A hundred DEAs, a third of them in each zone, …
const DEAS: usize = 100;
const ZONES: [&str; 3] = ["z0", "z1", "z2"];
/// … and cells with another stack.
const CELLS: usize = 20;
/// The number of apps, and the instances of each, of this size.
const APPS: usize = 20;
const INSTANCES: u32 = 10;
const MEMORY_MB: i64 = 64;
/// The time of each step, in ms: all apps are put on DEAs; half of them move to cells; a zone is lost and the bridge
/// restarted.
const PUT_MS: u64 = 20_000;
const MOVE_MS: u64 = 65_000;
const LOSE_MS: u64 = 125_000;
const END_MS: u64 = 225_000;
/// Interval between two looks at what runs.
const LOOK_MS: u64 = 250;

/// The nodes: an auctioneer, the cells, a manager, the client, the bridge, the estate.
const BRIDGE: usize = CELLS + 3;
const ESTATE: usize = BRIDGE + 1;

/// Puts the app of this number, for DEAs or for cells.
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

/// Returns whether an app is moved to cells.
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
    let restart = |node, for_ms| What::Fail {
        node,
        fault: Fault::Restart,
        for_ms,
    };
    steps.extend(lost.map(|cell| step(LOSE_MS, restart(1 + cell, stays_down_ms))));
    steps.push(step(LOSE_MS, restart(BRIDGE, 3_000)));
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

/// How often each index of each app runs on DEAs and on cells.
#[derive(Debug, Default)]
struct Running {
    on_deas: BTreeMap<(String, u32), u32>,
    on_cells: BTreeMap<(String, u32), u32>,
}

impl Running {
    fn of(world: &World<'_>) -> Self {
        let mut running = Self::default();
        let estate = world.node::<EstateNode>(ESTATE);
        let instances = estate
            .into_iter()
            .flat_map(|estate| estate.deas.instances());
        for (_, DeaStart { droplet, index, .. }) in instances {
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

    fn look(&self, at_ms: u64) -> EstateLook {
        let mut all: BTreeMap<&(String, u32), u32> = BTreeMap::new();
        for (index, count) in self.on_deas.iter().chain(&self.on_cells) {
            *all.entry(index).or_default() += count;
        }
        EstateLook {
            at_ms,
            on_deas: self.on_deas.len(),
            on_cells: self.on_cells.len(),
            missing: (APPS * INSTANCES as usize).saturating_sub(all.len()),
            twice: all.values().filter(|count| **count > 1).count(),
        }
    }

    /// Checks that everything runs once and where it belongs; the error says what does not.
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

/// Lets the cells of the scenario run droplets of the other stack.
fn adapt(world: &mut World<'_>) {
    for cell in 0..CELLS {
        world.with(1 + cell, |node: &mut CellNode| {
            zone_of(cell).clone_into(&mut node.attributes.zone);
            node.attributes.stacks = vec!["cflinuxfs3".to_owned()];
            node.attributes.droplets = true;
        });
    }
}

/// The findings of one look; looks are 250 ms apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EstateLook {
    /// When, in milliseconds of virtual time.
    pub at_ms: u64,
    /// Indices that run on DEAs.
    pub on_deas: usize,
    /// Indices that run on cells.
    pub on_cells: usize,
    /// Indices that run nowhere.
    pub missing: usize,
    /// Indices that run more than once.
    pub twice: usize,
}

/// The result of moving apps from DEAs to cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EstateRun {
    /// The seed of all random choices.
    pub seed: u64,
    /// The DEAs, in three zones.
    pub deas: usize,
    /// The cells, in the same zones.
    pub cells: usize,
    /// The apps; half of them are moved.
    pub apps: usize,
    /// The indices of all apps.
    pub indices: usize,
    /// From when the apps are put until all of them run on DEAs, each index once, in milliseconds; none = they never
    /// do.
    pub deployed_ms: Option<u64>,
    /// From when half of them are put for cells until these run only there.
    pub moved_ms: Option<u64>,
    /// The most indices that run nowhere during the move.
    pub moving_missing: usize,
    /// The most indices that run more than once during the move, on both sides or on one.
    pub moving_twice: usize,
    /// The most indices that run nowhere after a zone of both was lost, with the bridge away for 3 s.
    pub lost: usize,
    /// From that loss until each index runs once again.
    pub recovered_ms: Option<u64>,
    /// The most indices that run more than once after the loss.
    pub recovering_twice: usize,
    /// The least free memory that a DEA had at any time, in MB: below 0 it was promised twice.
    pub least_dea_memory_mb: i64,
    /// A broken promise of the protocol.
    pub broken: Option<String>,
    /// What is wrong at the end.
    pub wrong_at_end: Option<String>,
    /// Number of simulated events.
    pub events: u64,
    /// What ran when, with an entry for each change.
    #[serde(skip)]
    pub looks: Vec<EstateLook>,
}

impl EstateRun {
    /// Returns whether everything promised and wanted was achieved.
    pub fn is_right(&self) -> bool {
        self.broken.is_none() && self.wrong_at_end.is_none() && self.least_dea_memory_mb >= 0
    }

    /// Records what runs now.
    fn look(&mut self, at_ms: u64, running: &Running) {
        let look = running.look(at_ms);
        let since = |began_ms: u64| Some(at_ms - began_ms);
        if (PUT_MS..MOVE_MS).contains(&at_ms) {
            if self.deployed_ms.is_none() && running.is_right(false).is_ok() {
                self.deployed_ms = since(PUT_MS);
            }
        } else if (MOVE_MS..LOSE_MS).contains(&at_ms) {
            self.moving_missing = self.moving_missing.max(look.missing);
            self.moving_twice = self.moving_twice.max(look.twice);
            if self.moved_ms.is_none() && running.is_right(true).is_ok() {
                self.moved_ms = since(MOVE_MS);
            }
        } else if at_ms >= LOSE_MS {
            self.lost = self.lost.max(look.missing);
            self.recovering_twice = self.recovering_twice.max(look.twice);
            let is_whole = look.missing == 0 && look.twice == 0 && self.lost > 0;
            // an index that was found running once may be lost to a restart again
            self.recovered_ms = match self.recovered_ms {
                recovered if is_whole => recovered.or(since(LOSE_MS)),
                _ => None,
            };
        }
        let last = self.looks.last().copied().unwrap_or_default();
        if (EstateLook { at_ms, ..last }) != look {
            self.looks.push(look);
        }
    }
}

/// Plays the scenario: 100 DEAs and 20 cells in three zones; 20 apps of 10 instances are put on DEAs, half of them
/// moved to cells, and one zone of both is lost while the bridge restarts. `watch` gets the virtual time and its end
/// now and then, and ends the run by returning false.
pub fn move_from_deas(seed: u64, watch: &mut dyn FnMut(u64, u64) -> bool) -> EstateRun {
    let script = script(seed);
    let mut world = World::begun(&script, false);
    world.add(Box::new(BridgeNode::new(DEAS + 10)));
    world.add(Box::new(EstateNode::new(DEAS, &ZONES, 1_024)));
    adapt(&mut world);
    let mut run = EstateRun {
        seed,
        deas: DEAS,
        cells: CELLS,
        apps: APPS,
        indices: APPS * INSTANCES as usize,
        ..EstateRun::default()
    };
    let mut invariants = Invariants::default();
    let mut report = CheckReport::default();
    let (mut looked_ms, mut is_lost) = (0, false);
    while world.now_ms() < END_MS && world.goes_on(&mut report) {
        if let Some(Violation {
            invariant, what, ..
        }) = invariants.after_step(&world)
        {
            run.broken = Some(format!("{invariant}: {what}"));
            break;
        }
        world.sent.clear();
        let now_ms = world.now_ms();
        if now_ms >= LOSE_MS && !is_lost {
            is_lost = true;
            world.with(ESTATE, |estate: &mut EstateNode| estate.lose(ZONES[1]));
        }
        if now_ms >= looked_ms + LOOK_MS {
            looked_ms = now_ms;
            run.look(now_ms, &Running::of(&world));
            if !watch(now_ms, END_MS) {
                break;
            }
        }
    }
    run.wrong_at_end = Running::of(&world).is_right(true).err();
    run.events = report.events;
    if let Some(estate) = world.node::<EstateNode>(ESTATE) {
        run.least_dea_memory_mb = estate.deas.least_memory_mb;
    }
    run
}
