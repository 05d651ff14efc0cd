//! A recording of a live cluster as a scenario: the cells with their instances at the beginning, and every request and
//! stop with its time.

use std::collections::BTreeMap;

use placement::{Cell, Counts, Request};
use serde_json::{Map, Value, json};
use shared::wire::{
    Instance, InstancesAnswer, StartBody, Stop, parse, parse_cell, parse_change, parse_start,
};

/// Maximum number of requests and stops in a recording.
pub const MAX_DEMANDS: usize = 1_000_000;

/// Properties shared by identical instances: app, memory, disk, kind, and for each set how many devices with how much.
type Held = (String, i64, i64, String, Vec<(String, usize, i64)>);

/// The recording so far.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    cells: BTreeMap<String, Cell>,
    held: BTreeMap<String, Vec<Instance>>,
    work: Vec<(u64, Value)>,
    /// Number of malformed messages, and of requests beyond [`MAX_DEMANDS`].
    pub left_out: u64,
}

impl Recording {
    /// Records an advertisement; only the first one of each cell is used.
    pub fn advert(&mut self, body: &[u8]) {
        match parse_cell(body) {
            // a change of a cell that has advertised everything before, or soon does
            Err(_) if parse_change(body).is_ok() => {}
            Ok(cell) => drop(self.cells.entry(cell.cell.clone()).or_insert(cell)),
            Err(_) => self.left_out += 1,
        }
    }

    /// Records the instances that a cell listed at the beginning.
    pub fn holds(&mut self, answer: InstancesAnswer) {
        let held = self.held.entry(answer.cell).or_default();
        held.extend(answer.instances);
    }

    /// Records a message with start requests, received `at_ms` after the beginning, without commands and environments.
    pub fn start(&mut self, at_ms: u64, body: &[u8]) {
        let requests = match parse_start(body) {
            Ok(StartBody::One(one)) => vec![*one],
            Ok(StartBody::Many(many)) => many,
            Err(_) => Vec::new(),
        };
        if requests.is_empty() {
            self.left_out += 1;
        }
        for request in requests {
            match request {
                Ok(parsed) => {
                    let request = Request {
                        run: None,
                        ..(*parsed.request).clone()
                    };
                    self.demand(at_ms, "start", &json!(request));
                }
                Err(_) => self.left_out += 1,
            }
        }
    }

    /// Records a stop. A stop by instance ids is left out, as a replay has different ids.
    pub fn stop(&mut self, at_ms: u64, body: &[u8]) {
        match parse::<Stop>(body, &mut Vec::new()) {
            Ok(stop) if stop.instances.is_empty() => {
                let what = json!({ "app": stop.app, "indices": stop.indices });
                self.demand(at_ms, "stop", &what);
            }
            _ => self.left_out += 1,
        }
    }

    fn demand(&mut self, at_ms: u64, kind: &str, what: &Value) {
        if self.work.len() >= MAX_DEMANDS {
            self.left_out += 1;
            return;
        }
        let at = format!("{at_ms}ms");
        self.work.push((at_ms, json!({ "at": at, kind: what })));
    }

    /// Returns the number of cells.
    pub fn cells(&self) -> usize {
        self.cells.len()
    }

    /// Returns the number of requests and stops.
    pub fn demands(&self) -> usize {
        self.work.len()
    }

    /// Returns the scenario as TOML; `lasted_ms` is the length of the recording.
    pub fn scenario(
        &self,
        name: &str,
        policy: &str,
        lasted_ms: u64,
    ) -> Result<String, toml::ser::Error> {
        let cells: Vec<Value> = self.cells.values().map(|cell| self.cell(cell)).collect();
        let mut work: Vec<&(u64, Value)> = self.work.iter().collect();
        work.sort_by_key(|(at_ms, _)| *at_ms);
        let mut requests = 0;
        let work: Vec<Value> = work
            .into_iter()
            .map(|(_, entry)| {
                let mut entry = entry.clone();
                // a repeated id would mean the same request
                if let Some(start) = entry.get_mut("start").and_then(Value::as_object_mut) {
                    start.insert("id".into(), format!("recorded-{requests}").into());
                    requests += 1;
                }
                entry
            })
            .collect();
        let scenario = json!({
            "name": name,
            "description": format!("recorded: {} cells, {} requests and stops", cells.len(), work.len()),
            "policy": policy,
            "duration": format!("{lasted_ms}ms"),
            "cells": cells,
            "workload": work,
        });
        toml::to_string(&scenario)
    }

    /// Returns the cell with its instances; without a list of instances, as it advertised itself.
    fn cell(&self, cell: &Cell) -> Value {
        let mut fields = match json!(cell) {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        let Some(held) = self.held.get(&cell.cell) else {
            return fields.into();
        };
        for field in ["available"].into_iter().chain(Counts::FIELDS) {
            fields.remove(field);
        }
        let mut counts: BTreeMap<Held, u64> = BTreeMap::new();
        for instance in held.iter().filter(|instance| instance.ended.is_none()) {
            let app = instance.app.clone();
            let kind = instance.kind.to_string();
            let devices = instance.devices.iter();
            let devices =
                devices.map(|(name, share)| (name.clone(), share.numbers.len(), share.amount));
            let (memory_mb, disk_mb) = (instance.memory_mb, instance.disk_mb);
            let held = (app, memory_mb, disk_mb, kind, devices.collect());
            *counts.entry(held).or_default() += 1;
        }
        let running = counts.into_iter().map(|((app, memory_mb, disk_mb, kind, devices), count)| {
            let mut running = json!({
                "app": app, "count": count, "memory_mb": memory_mb, "disk_mb": disk_mb, "kind": kind,
            });
            if !devices.is_empty() {
                let need = |(name, count, amount)| (name, json!({"count": count, "amount": amount}));
                running["devices"] = devices.into_iter().map(need).collect();
            }
            running
        });
        fields.insert("running".into(), running.collect());
        fields.into()
    }
}

#[cfg(test)]
mod tests {
    use shared::wire::to_bytes;

    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn a_recording_reads_as_a_scenario() {
        let mut recording = Recording::default();
        let mut cell = Cell::new("c1", placement::Resources::new(1000, 2000, 10));
        cell.attributes_mut().zone = "z1".into();
        cell.debit(&Request::new("old", 100, 10), None);
        let mut advert = json!(cell);
        advert["incarnation"] = json!(uuid::Uuid::nil());
        recording.advert(&to_bytes(&advert));
        recording.advert(b"nonsense");
        let held = json!({
            "cell": "c1", "zone": "z1", "incarnation": uuid::Uuid::nil(),
            "instances": [{ "instance": uuid::Uuid::nil(), "app": "old", "index": 0,
                            "state": "running", "age_ms": 5, "memory_mb": 100, "disk_mb": 10 }],
        });
        recording.holds(serde_json::from_value(held).unwrap());
        let one = r#"{"app":"a","memory_mb":10,"disk_mb":1,"run":{"command":["secret"]}}"#;
        recording.start(1_500, one.as_bytes());
        recording.start(1_500, format!("[{one},{{}}]").as_bytes());
        recording.stop(61_000, br#"{"app":"a","indices":[0]}"#);
        assert_eq!(
            (recording.cells(), recording.demands(), recording.left_out),
            (1, 3, 2)
        );

        let text = recording.scenario("yesterday", "dea", 120_000).unwrap();
        assert!(!text.contains("secret"), "{text}");
        let scenario = Scenario::read(&text, true).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(scenario.base.running["c1"].len(), 1);
        assert_eq!(scenario.base.cells[0].available.memory_mb, 900);
        assert_eq!(scenario.duration_ms, Some(120_000));
        let demands = scenario.demands(1).unwrap();
        let at: Vec<u64> = demands.iter().map(|demand| demand.at_ms).collect();
        assert_eq!(at, [1_500, 1_500, 61_000]);
    }
}
