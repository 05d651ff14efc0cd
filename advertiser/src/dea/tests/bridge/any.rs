//! A bridge under arbitrary messages of DEAs and the cluster, in any order.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::{World, advertisement, refused};
use crate::dea::BridgeOutput;

#[derive(Clone, Debug)]
enum Act {
    Advertise(usize, i64),
    Shutdown(usize),
    Beat(usize, Vec<(usize, usize)>),
    Start(usize, usize),
    Stop(usize),
    Found(usize, usize, usize),
    Exited(usize, bool),
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let (dea, id, state) = (0..3_usize, 0..6_usize, 0..4_usize);
    prop_oneof![
        (dea.clone(), -100..2_000_i64).prop_map(|(dea, memory)| Act::Advertise(dea, memory)),
        dea.clone().prop_map(Act::Shutdown),
        (
            dea.clone(),
            prop::collection::vec((id.clone(), state.clone()), 0..4)
        )
            .prop_map(|(dea, listed)| Act::Beat(dea, listed)),
        (dea.clone(), id.clone()).prop_map(|(cell, id)| Act::Start(cell, id)),
        id.clone().prop_map(Act::Stop),
        (dea, id.clone(), state).prop_map(|(dea, id, state)| Act::Found(dea, id, state)),
        (id, any::<bool>()).prop_map(|(id, full)| Act::Exited(id, full)),
        (0..20_000_u64).prop_map(Act::Pass),
    ]
}

const IDS: [&str; 6] = ["i0", "i1", "i2", "i3", "i4", "i5"];
const STATES: [&str; 4] = ["STARTING", "RUNNING", "CRASHED", "EVACUATING"];

fn perform(world: &mut World, act: Act) -> Vec<BridgeOutput> {
    let dea = |n: usize| ["d0", "d1", "d2"][n];
    match act {
        Act::Advertise(n, memory) => {
            let body = advertisement(dea(n), "z1", memory, &json!({}));
            world.hear("dea.advertise", &body)
        }
        Act::Shutdown(n) => world.hear(
            "dea.shutdown",
            &json!({"id": dea(n), "app_id_to_count": {}}),
        ),
        Act::Beat(n, listed) => {
            let listed: Vec<_> = listed
                .iter()
                .map(|(id, state)| (IDS[*id], STATES[*state]))
                .collect();
            world.beat(dea(n), &listed)
        }
        Act::Start(cell, id) => world.start(&format!("dea-{cell}"), IDS[id]),
        Act::Stop(id) => world.stop(IDS[id]),
        Act::Found(n, id, state) => world.found(dea(n), IDS[id], STATES[state]),
        Act::Exited(id, true) => world.exited(IDS[id], -1, "Not enough disk resource available."),
        Act::Exited(id, false) => world.exited(IDS[id], 1, "app crashed"),
        Act::Pass(ms) => world
            .pass(ms)
            .into_iter()
            .map(|(_, output)| output)
            .collect(),
    }
}

proptest! {
    /// Whatever DEAs say, in whatever order, every start that was sent is answered once, within 800 ms, and the cells
    /// are valid.
    #[test]
    fn every_start_is_answered_once(acts in prop::collection::vec(act(), 0..60)) {
        let mut world = World::new(2);
        let mut open: BTreeMap<String, u64> = BTreeMap::new();
        for act in acts {
            let started = match &act {
                Act::Start(cell, id) => Some((format!("dea-{cell}"), IDS[*id])),
                _ => None,
            };
            if let Some((cell, id)) = &started
                && let Some(holder) = world.bridge.holder(id).filter(|holder| holder != cell)
            {
                let out = perform(&mut world, act);
                prop_assert_eq!(out, [refused(id, &format!("{holder} has it"))]);
                continue;
            }
            if let Some((_, id)) = started {
                open.entry(id.to_owned()).or_insert(world.now_ms);
            }
            for output in perform(&mut world, act) {
                if let BridgeOutput::Answer { id, .. } = output {
                    prop_assert!(open.remove(&id).is_some(), "{} was answered twice", id);
                }
            }
            let now_ms = world.now_ms;
            prop_assert!(open.values().all(|at| now_ms < at + 800 || now_ms == *at));
            for cell in world.cells.values() {
                prop_assert_eq!(cell.check(), Ok(()));
            }
        }
        for (_, output) in world.pass(800) {
            if let BridgeOutput::Answer { id, .. } = output {
                prop_assert!(open.remove(&id).is_some(), "{} was answered twice", id);
            }
        }
        prop_assert!(open.is_empty(), "not answered: {:?}", open);
    }
}
