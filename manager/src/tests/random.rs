//! Invariants that hold whatever happens.

use std::collections::BTreeSet;

use proptest::prelude::*;
use shared::{
    InstanceId,
    wire::{InstanceState, kind},
};

use super::world::{Sent, TTL, World, app};
use crate::{AppCommand, ManagerInput, ManagerOutput, WaveId};

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Put { instances: u32, template: u8 },
    Command(u8),
    Crash(usize, u64),
    Silent(usize, bool),
    Draining(usize, bool),
    Restart(usize),
    Foreign(usize),
    Duplicate(usize, u32),
    LeaseDown(bool),
    Deaf(bool),
    Full(bool),
    Interrupted,
    KvInterrupted,
    LoseState,
    NextManager,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let cell = 0_usize..4;
    let step = prop_oneof![
        6 => (100_u64..30_000).prop_map(Step::Pass),
        2 => (1_u32..6, 0_u8..3).prop_map(|(instances, template)| Step::Put { instances, template }),
        2 => (0_u8..8).prop_map(Step::Command),
        4 => (0_usize..8, 0_u64..400_000).prop_map(|(n, ran)| Step::Crash(n, ran)),
        2 => (cell.clone(), any::<bool>()).prop_map(|(n, on)| Step::Silent(n, on)),
        2 => (cell.clone(), any::<bool>()).prop_map(|(n, on)| Step::Draining(n, on)),
        1 => cell.clone().prop_map(Step::Restart),
        1 => cell.clone().prop_map(Step::Foreign),
        1 => (cell, 0_u32..6).prop_map(|(n, index)| Step::Duplicate(n, index)),
        1 => any::<bool>().prop_map(Step::LeaseDown),
        1 => any::<bool>().prop_map(Step::Deaf),
        1 => any::<bool>().prop_map(Step::Full),
        1 => Just(Step::Interrupted),
        1 => Just(Step::KvInterrupted),
        1 => Just(Step::LoseState),
        1 => Just(Step::NextManager),
    ];
    proptest::collection::vec(step, 1..40)
}

const NAMES: [&str; 4] = ["c1", "c2", "c3", "c4"];

/// What was learned about the run.
#[derive(Default)]
struct Watched {
    /// Ids of instances that do not belong to the manager.
    foreign: BTreeSet<InstanceId>,
    requests: BTreeSet<String>,
    stopped_or_deleted: bool,
}

fn command(w: &mut World, n: u8, watched: &mut Watched) {
    let command = match n {
        0 => AppCommand::Stop,
        1 => AppCommand::Start,
        2 => AppCommand::Restart {
            max_in_flight: Some(2),
        },
        3 => AppCommand::Delete,
        4 => AppCommand::Undo,
        5 => AppCommand::Pause,
        6 => AppCommand::Resume,
        n => AppCommand::Scale(u32::from(n)),
    };
    match n {
        0 | 3 => watched.stopped_or_deleted = true,
        1 => watched.stopped_or_deleted = false,
        _ => {}
    }
    w.command(command);
}

fn lose_state(w: &mut World) {
    let states = w.values.keys().filter(|key| key.starts_with("state."));
    for key in states.cloned().collect::<Vec<String>>() {
        w.store(&key, None);
    }
}

fn apply(w: &mut World, step: &Step, watched: &mut Watched) {
    match step {
        Step::Pass(ms) => w.pass(*ms),
        Step::Put {
            instances,
            template,
        } => {
            watched.stopped_or_deleted = false;
            w.put(&app(
                "A",
                *instances,
                &format!(r#","tags":{{"t":"{template}"}}"#),
            ));
        }
        Step::Command(n) => command(w, *n, watched),
        Step::Crash(n, ran_ms) => {
            let all: Vec<(String, InstanceId)> = (0..8).flat_map(|index| w.at(index)).collect();
            if let Some((cell, id)) = all.get(*n).filter(|(_, id)| !watched.foreign.contains(id)) {
                w.end(cell, *id, kind::CRASHED, *ran_ms);
            }
        }
        Step::Silent(n, on) => w.cell(NAMES[*n]).silent = *on,
        Step::Draining(n, on) => {
            w.cell(NAMES[*n]).draining = *on;
            w.cell(NAMES[*n]).seq += 1;
        }
        Step::Restart(n) => {
            let cell = w.cell(NAMES[*n]);
            cell.incarnation += 10;
            cell.held.clear();
            cell.seq = 1;
        }
        Step::Foreign(n) => {
            for request in ["r-1", "m-00000001-00000002-1-1"] {
                let id = w.add(NAMES[*n], request, 0, InstanceState::Running);
                watched.foreign.insert(id);
            }
        }
        Step::Duplicate(n, index) => {
            if w.manager.status("A").is_some() {
                let request = w.id("1-1");
                let on = w.at(*index);
                let id = shared::wire::instance_id(&request, "A", placement::Kind::Lrp, *index);
                if !on.iter().any(|(_, at)| *at == id) {
                    w.add(NAMES[*n], &request, *index, InstanceState::Running);
                }
            }
        }
        Step::LeaseDown(on) => w.lease_down = *on,
        Step::Deaf(on) => w.deaf = *on,
        Step::Full(on) => w.full = *on,
        Step::Interrupted => w.give(ManagerInput::Interrupted),
        Step::KvInterrupted => {
            w.give(ManagerInput::KvInterrupted);
            w.show_all();
        }
        Step::LoseState => lose_state(w),
        Step::NextManager => {
            if !w.lease_down {
                w.next_manager();
            }
        }
    }
}

/// Checks what was sent, and then forgets it.
fn check(w: &mut World, watched: &mut Watched) -> Result<(), TestCaseError> {
    let sent = std::mem::take(&mut w.sent);
    for start in &sent.starts {
        let id = WaveId::parse(&start.id).expect("a wave");
        watched.requests.insert(start.id.clone());
        // 11: no start above the wanted number
        let indices = start.indices.as_ref().unwrap();
        prop_assert!(indices.iter().all(|index| *index < start.instances));
        prop_assert!(id.version >= 1 && id.wave >= 1);
    }
    for (_, ids) in &sent.stops {
        for id in ids {
            // 1, 2: only its own, by id
            prop_assert!(!watched.foreign.contains(id), "stopped {}", id);
        }
    }
    // 4: nothing without a fresh lease and messages
    if w.lease_down && w.deaf {
        let late = w.now;
        w.pass(6_000);
        prop_assert!(!w.manager.is_acting(), "at {}", late);
        w.sent = Sent::default();
    }
    Ok(())
}

/// 16: with quiet inputs and enough room, the desired state is reached and outputs cease.
fn comes_to_rest(w: &mut World, watched: &Watched) -> Result<(), TestCaseError> {
    (w.lease_down, w.deaf, w.full) = (false, false, false);
    for name in NAMES {
        (w.cell(name).silent, w.cell(name).draining) = (false, false);
        w.cell(name).seq += 1;
    }
    w.command(AppCommand::Resume);
    w.pass(2_500_000);
    w.sent = Sent::default();
    let revision = w.revision;
    w.pass(60_000);
    prop_assert!(w.sent.starts.is_empty(), "{:?}", w.sent.starts);
    prop_assert!(w.sent.stops.is_empty(), "{:?}", w.sent.stops);
    prop_assert!(w.revision - revision <= 31, "writes at rest");
    let Some(status) = w.manager.status("A") else {
        return Ok(());
    };
    let wanted = if watched.stopped_or_deleted || status.stopped || status.deleted {
        0
    } else {
        status.wanted
    };
    if status.went_back {
        return Ok(());
    }
    let is_present = |(cell, id): &(String, InstanceId)| {
        let wave = WaveId::parse(&w.cells[cell].held[id].request);
        wave.is_some_and(|wave| wave.uid.to_string() == status.uid)
    };
    let all = |index: u32| {
        let mut at = w.at(index);
        at.retain(|(_, id)| !watched.foreign.contains(id));
        at
    };
    let own = |index: u32| all(index).iter().filter(|at| is_present(at)).count();
    // instances of a creation that was forgotten while their cell was silent are left alone and counted
    let left = (0..8).flat_map(all).filter(|at| !is_present(at)).count();
    prop_assert_eq!(left as u64, w.manager.orphans());
    for index in 0..8 {
        let expected = usize::from(index < wanted);
        prop_assert_eq!(
            own(index),
            expected,
            "index {}: {:?} {:?}",
            index,
            w.at(index),
            status
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn it_stops_nothing_of_others_and_comes_to_rest(steps in steps()) {
        let mut w = World::new();
        w.obey = true;
        let mut watched = Watched::default();
        for step in &steps {
            apply(&mut w, step, &mut watched);
            check(&mut w, &mut watched)?;
        }
        comes_to_rest(&mut w, &watched)?;
    }

    /// 5: the same inputs give the same outputs.
    #[test]
    fn the_same_inputs_give_the_same_outputs(steps in steps()) {
        let run = || {
            let mut w = World::new();
            w.obey = true;
            let mut starts = Vec::new();
            let mut stops = Vec::new();
            for step in &steps {
                apply(&mut w, step, &mut Watched::default());
                starts.append(&mut w.sent.starts);
                stops.append(&mut w.sent.stops);
            }
            (starts, stops, w.values)
        };
        prop_assert_eq!(run(), run());
    }
}

/// 10: time alone changes nothing.
#[test]
fn time_alone_sends_nothing() {
    let mut w = super::world::three();
    w.cell("c1").silent = true;
    w.deaf = true;
    w.lease_down = true;
    let mut sent = Vec::new();
    for _ in 0..10_000 {
        w.now += TTL / 10;
        sent.extend(w.manager.handle(w.now, ManagerInput::Tick));
    }
    let acts = |output: &ManagerOutput| {
        matches!(output, ManagerOutput::Start(_) | ManagerOutput::Stop { .. })
    };
    assert!(!sent.iter().any(acts));
}
