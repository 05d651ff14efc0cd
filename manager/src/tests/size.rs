//! A large fleet at rest.

use placement::Kind;
use shared::wire::{InstanceState, instance_id};

use super::world::{Held, Sent, TTL, World, app};
use crate::AppCommand;

/// Cells, and apps of 25 instances.
const CELLS: usize = 50;
const APPS: usize = 200;

#[test]
fn a_fleet_at_rest_is_looked_at_and_nothing_is_sent() {
    let names: Vec<String> = (0..CELLS).map(|n| format!("d{n:03}")).collect();
    let cells: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut w = World::bare(Default::default(), &cells);
    w.show_all();
    w.pass(2 * TTL);
    for n in 0..APPS {
        let name = format!("app-{n}");
        let definition = Box::new(app(&name, 25, ""));
        w.command_to(&name, AppCommand::Put(definition));
    }
    let starts = std::mem::take(&mut w.sent.starts);
    assert_eq!(starts.len(), APPS);
    for (n, start) in starts.iter().enumerate() {
        let mut on = Vec::new();
        for index in start.indices.clone().unwrap() {
            let name = &names[(n * 25 + index as usize) % CELLS];
            let id = instance_id(&start.id, &start.app, Kind::Lrp, index);
            let since_ms = w.now;
            let cell = w.cell(name);
            cell.seq += 1;
            let held = Held {
                request: start.id.clone(),
                index,
                state: InstanceState::Running,
                since_ms,
            };
            cell.held.insert(id, held);
            on.push((index, name.as_str()));
        }
        w.placed(&start.id, &on);
    }
    // each list names the app of each of its instances
    let apps: std::collections::BTreeMap<String, String> = starts
        .into_iter()
        .map(|start| (start.id, start.app))
        .collect();
    w.deaf = true;
    for _ in 0..40 {
        w.now += 1_000;
        w.give(crate::ManagerInput::Echo);
        if !w.now.is_multiple_of(10_000) {
            continue;
        }
        for name in &names {
            let mut list = Box::new(w.list_of(name));
            for instance in &mut list.instances {
                let request = instance.request.as_ref().unwrap();
                instance.app.clone_from(&apps[request.as_str()]);
            }
            let question = None;
            w.give(crate::ManagerInput::Listed { question, list });
        }
    }
    let running: u32 = apps
        .values()
        .map(|app| w.manager.status(app).unwrap().running)
        .sum();
    assert_eq!(running as usize, APPS * 25);
    w.sent = Sent::default();
    let revision = w.revision;
    for _ in 0..60 {
        w.now += 1_000;
        w.give(crate::ManagerInput::Echo);
    }
    assert!(w.sent.starts.is_empty() && w.sent.stops.is_empty());
    // the lease is renewed, and nothing else is stored
    assert!(w.revision - revision <= 31, "{}", w.revision - revision);
}
