//! A large fleet at rest.

use std::time::{Duration, Instant};

use placement::Kind;
use shared::wire::{InstanceState, InstancesAnswer, instance_id};

use super::world::{Held, Sent, TTL, World, app};
use crate::{AppCommand, ManagerInput, ManagerOutput, Revision};

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
                restarts: 0,
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
        w.give(ManagerInput::Echo);
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
            w.give(ManagerInput::Listed { question, list });
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
        w.give(ManagerInput::Echo);
    }
    assert!(w.sent.starts.is_empty() && w.sent.stops.is_empty());
    // the lease is renewed, and nothing else is stored
    assert!(w.revision - revision <= 31, "{}", w.revision - revision);
}

/// Measures a large fleet: its memory and the cost of a round of heartbeats. Run it alone, with `--release --ignored
/// --nocapture`.
#[test]
#[ignore = "a measurement"]
fn a_quarter_of_a_million_instances() {
    let (apps, each, cells) = (10_000_u32, 25_u32, 1_000_u32);
    let before = resident_mb();
    let mut manager = crate::Manager::new(crate::ManagerSettings {
        holder: "m-1".into(),
        seed: 1,
    });
    let mut now = 1_000;
    let kv = |key: String, revision: Revision, value: bytes::Bytes| ManagerInput::Kv {
        key,
        revision,
        value: Some(value),
    };
    let meta = bytes::Bytes::from_static(br#"{"format":1,"bucket":"0000000b"}"#);
    manager.take(now, kv("meta".into(), Revision(1), meta));
    for n in 0..apps {
        let name = format!("app-{n}");
        let definition = serde_json::to_value(app(&name, each, "")).unwrap();
        let record = serde_json::json!({"format":1,"uid":format!("{n:08x}"),"version":1,"definition":definition});
        let value = shared::wire::to_bytes(&record);
        manager.take(
            now,
            kv(format!("app.{name}"), Revision(u64::from(n) + 2), value),
        );
    }
    let out = manager.handle(
        now,
        ManagerInput::KvReady {
            revision: Revision(20_000),
        },
    );
    answer(&mut manager, now, out);
    let mut rounds = Vec::new();
    for round in 0..6 {
        let (mut spent, mut parsed) = (Duration::ZERO, Duration::ZERO);
        for part in 0..100 {
            now += 100;
            let begun = Instant::now();
            let out = manager.handle(now, ManagerInput::Echo);
            answer(&mut manager, now, out);
            spent += begun.elapsed();
            for cell in part * cells / 100..(part + 1) * cells / 100 {
                let body = shared::wire::to_bytes(&list(cell, cells, apps, each, round));
                let begun = Instant::now();
                let list: InstancesAnswer = shared::wire::read(&body).unwrap();
                parsed += begun.elapsed();
                let begun = Instant::now();
                let list = Box::new(list);
                let question = None;
                let out = manager.handle(now, ManagerInput::Listed { question, list });
                answer(&mut manager, now, out);
                spent += begun.elapsed();
            }
        }
        rounds.push((spent.as_millis(), parsed.as_millis()));
    }
    let running: u32 = (0..apps)
        .map(|n| manager.status(&format!("app-{n}")).unwrap().running)
        .sum();
    println!("running {running}, {:?}", manager.counters());
    println!("resident: {} MiB, before: {before} MiB", resident_mb());
    println!("milliseconds of ten seconds in the machine, and to parse the lists: {rounds:?}");
    assert_eq!(running, apps * each);
}

/// Returns the list of a cell, which has every `cells`th instance.
fn list(cell: u32, cells: u32, apps: u32, each: u32, round: u64) -> InstancesAnswer {
    let instance = |n: u32| {
        let (app, index) = (n / each, n % each);
        let request = format!("m-0000000b-{app:08x}-1-1");
        let name = format!("app-{app}");
        let id = instance_id(&request, &name, Kind::Lrp, index);
        serde_json::json!({"instance":id,"app":name,"index":index,"kind":"lrp","request":request,
            "state":"running","age_ms":round * 10_000,"memory_mb":16,"disk_mb":16})
    };
    let instances: Vec<_> = (0..apps * each)
        .skip(cell as usize)
        .step_by(cells as usize)
        .map(instance)
        .collect();
    let list = serde_json::json!({"cell":format!("cell-{cell}"),"zone":"z1",
        "incarnation":"018f0000-0000-4000-8000-000000000001","seq":1 + round,"instances":instances});
    serde_json::from_value(list).unwrap()
}

/// Acknowledges every write.
fn answer(manager: &mut crate::Manager, now: u64, out: Vec<ManagerOutput>) {
    let mut waiting = out;
    while let Some(output) = waiting.pop() {
        if let ManagerOutput::Write { write, .. } = output {
            let result = crate::WriteResult::Written(Revision(30_000 + write.0));
            waiting.extend(manager.handle(now, ManagerInput::WriteEnded { write, result }));
        }
    }
}

fn resident_mb() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse::<usize>().ok());
    pages.unwrap_or(0) * 4 / 1_024
}
