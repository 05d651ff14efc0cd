//! Cells as DEAs: a scripted Cloud Controller on one side, scripted cells on the other.

use placement::{Cell, Resources, Usage};
use serde_json::{Value, json};
use shared::{
    Incarnation, InstanceId,
    wire::{
        Acceptance, CellStart, Event, EventInstance, InstanceState, Refusal, kind, parse_change,
    },
};
use uuid::Uuid;

use super::{
    DeaOutConfig,
    cells::{OutCells, OutOutput, key_of},
};
use crate::dea::{DeaBody, DeaHeartbeat, DeaInstanceState};

mod staging;

const NOON: u64 = 1_700_000_000_000;
const START: &str = r#"{"droplet":"orders","name":"orders","stack":"linux","uris":["orders.example.test"],"prod":false,"sha1":null,
    "executableFile":"deprecated","executableUri":"http://me:secret@a/d","version":"v1","services":[],
    "limits":{"mem":256,"disk":512,"fds":256},"env":["A=b"],"cc_partition":"default","console":false,"debug":null,
    "start_command":"./run","health_check_timeout":null,"vcap_application":{},"index":2,"egress_network_rules":[]}"#;

struct World {
    cells: OutCells,
    now_ms: u64,
    said: Vec<(String, Value)>,
    starts: Vec<CellStart>,
    stops: Vec<InstanceId>,
    /// The subject of starts for the last DEA.
    own: String,
    /// The subjects that it listens to as a cell that stages apps.
    staging: Vec<String>,
    unlistened: Vec<String>,
}

impl World {
    fn new() -> Self {
        let config = DeaOutConfig::new("out", vec!["c1".into(), "c2".into()]);
        let mut world = Self {
            cells: OutCells::new(config, Uuid::from_u128(1)),
            now_ms: NOON,
            said: Vec::new(),
            starts: Vec::new(),
            stops: Vec::new(),
            own: String::new(),
            staging: Vec::new(),
            unlistened: Vec::new(),
        };
        world.advertise(1, &|_| ());
        world
    }

    fn take(&mut self, out: Vec<OutOutput>) {
        for output in out {
            match output {
                OutOutput::ToEstate { subject, body } => {
                    let body = serde_json::from_slice(&body.0).unwrap();
                    self.said.push((subject, body));
                }
                OutOutput::Listen { subject } if subject.starts_with("staging.") => {
                    self.staging.push(subject);
                }
                OutOutput::Listen { subject } => self.own = subject,
                OutOutput::Unlisten { subject } => self.unlistened.push(subject),
                OutOutput::Start { cell, body } => {
                    assert_eq!(cell, "c1");
                    self.starts.push(serde_json::from_slice(&body.0).unwrap());
                }
                OutOutput::Stop { stop, .. } => self.stops.extend(stop.instances),
            }
        }
    }

    /// Makes the cell `c1`, of 1,024 MB in zone z1, advertise.
    fn advertise(&mut self, incarnation: u128, change: &dyn Fn(&mut Cell)) {
        let mut cell = Cell::new("c1", Resources::new(1_024, 4_096, 10));
        let attributes = cell.attributes_mut();
        attributes.zone = "z1".into();
        attributes.stacks = vec!["linux".into()];
        attributes.droplets = true;
        change(&mut cell);
        let about = (Incarnation::from_u128(incarnation), 5_000, 15_000);
        let out = self.cells.advertised(self.now_ms, about, &cell);
        self.take(out);
    }

    /// Makes the cell `c1` advertise only what it has available. Returns whether that could be used.
    fn change(&mut self, incarnation: u128, available_mb: i64) -> bool {
        let incarnation = Incarnation::from_u128(incarnation);
        let body = json!({
            "cell": "c1", "incarnation": incarnation, "seq": 2, "since": 1, "ttl": "15s",
            "available": {"memory_mb": available_mb, "disk_mb": 4096, "containers": 10},
        });
        let (_, change) = parse_change(body.to_string().as_bytes()).unwrap();
        let about = (incarnation, 5_000, 15_000);
        let out = self.cells.changed(self.now_ms, about, "c1", &change);
        let used = out.is_some();
        self.take(out.unwrap_or_default());
        used
    }

    fn hear(&mut self, subject: &str, body: &str) {
        let out = self
            .cells
            .heard(self.now_ms, subject, Some("_INBOX.x"), body.as_bytes());
        self.take(out);
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while self.cells.next_ms(self.now_ms) <= until {
            self.now_ms = self.now_ms.max(self.cells.next_ms(self.now_ms));
            let out = self.cells.tick(self.now_ms);
            self.take(out);
        }
        self.now_ms = until;
    }

    fn start(&mut self) -> InstanceId {
        self.hear(&self.own.clone(), START);
        self.starts.last().unwrap().work[0].instance
    }

    fn answer(&mut self, accepted: &[InstanceId], refused: Option<(InstanceId, &str)>) {
        let refused = refused.map(|(instance, reason)| Refusal {
            instance,
            reason: reason.into(),
            needs: None,
            has: None,
        });
        let answer = Acceptance {
            v: shared::VERSION,
            cell: "c1".into(),
            incarnation: Incarnation::from_u128(1),
            seq: 9,
            available: Resources::new(768, 3_584, 9),
            apps: [].into(),
            accepted: accepted.to_vec(),
            refused: refused.into_iter().collect(),
        };
        let out = self.cells.answered(self.now_ms, &answer);
        self.take(out);
    }

    fn event(&mut self, kind: &str, instance: InstanceId, ended: Option<&str>) {
        let event = Event {
            cell: Some("c1".into()),
            instances: vec![EventInstance {
                instance: Some(instance),
                port: Some(61_001),
                ended: ended.map(str::to_owned),
                is_final: ended.is_some(),
                ..EventInstance::default()
            }],
            ..Event::app(kind, "orders")
        };
        let out = self.cells.event(self.now_ms, "c1", &event);
        self.take(out);
    }

    /// Makes the cell list these instances, all running and started by the facade.
    fn list(&mut self, instances: &[InstanceId]) {
        let listed = |id: &InstanceId| {
            let mut instance = testkit::lists::instance(*id, "orders", 2);
            instance.state = InstanceState::Running;
            instance.request = format!("dea-out-out-{}", key_of(*id)).parse().ok();
            (instance.address, instance.port) = (Some("10.0.0.7".into()), Some(61_001));
            instance.usage = Some(Usage {
                memory_mb: 41,
                cpu_millis: 250,
            });
            instance
        };
        let mut list = testkit::lists::list("c1", instances.iter().map(listed).collect());
        list.incarnation = Incarnation::from_u128(1);
        let out = self.cells.listed(self.now_ms, &list);
        self.take(out);
    }

    fn of(&self, subject: &str) -> Vec<&Value> {
        let said = self.said.iter();
        let said = said.filter(|(said, _)| said == subject);
        said.map(|(_, body)| body).collect()
    }

    fn last(&self, subject: &str) -> &Value {
        self.of(subject).last().unwrap()
    }
}

#[test]
fn a_cell_that_runs_droplets_is_a_dea() {
    let mut world = World::new();
    let subjects: Vec<&str> = world.said.iter().map(|(s, _)| s.as_str()).collect();
    assert_eq!(subjects, ["dea.start", "dea.advertise"]);
    let said = world.last("dea.advertise").clone();
    assert_eq!(
        (
            &said["available_memory"],
            &said["available_disk"],
            &said["stacks"]
        ),
        (&json!(1_024), &json!(4_096), &json!(["linux"]))
    );
    assert_eq!(said["placement_properties"], json!({"zone": "z1"}));
    world.pass(5_000);
    world.advertise(1, &|cell| cell.available.memory_mb = 100);
    world.pass(5_000);
    assert_eq!(world.last("dea.advertise")["available_memory"], 100);
    assert_eq!(world.of("dea.heartbeat").len(), 1);
    assert!(world.change(1, 200) && world.change(2, 300));
    world.pass(5_000);
    let available = &world.last("dea.advertise")["available_memory"];
    assert_eq!(
        *available, 200,
        "the change of another incarnation is left alone"
    );
    assert!(!world.change(1, 2_000), "more than the cell has");
    // a cell that is no longer heard says nothing as a DEA
    let before = world.said.len();
    world.pass(60_000);
    let after = world.of("dea.advertise").len();
    assert!(world.said.len() - before < 10);
    world.pass(60_000);
    assert_eq!(world.of("dea.advertise").len(), after);
    // a new rep means a new DEA
    world.advertise(2, &|_| ());
    assert_ne!(world.last("dea.advertise")["id"], said["id"]);
    let greeted = world.of("dea.start").len();
    world.advertise(3, &|cell| cell.attributes_mut().droplets = false);
    assert_eq!(world.of("dea.start").len(), greeted, "it runs no droplets");
}

#[test]
fn a_start_is_sent_to_the_cell_and_told_of_when_it_runs() {
    let mut world = World::new();
    let id = world.start();
    let work = world.starts[0].work[0].clone();
    assert_eq!(
        (work.app.as_str(), work.index, work.memory_mb),
        ("orders", 2, 256)
    );
    let droplet = work.run.unwrap().droplet.clone().unwrap();
    assert_eq!(droplet.0["start_command"], "./run");
    assert_eq!(droplet.0["environment"], json!(["A=b"]));
    // what was sent is subtracted until the cell reports what it has left
    world.hear("dea.locate", "");
    assert_eq!(world.last("dea.advertise")["available_memory"], 768);
    world.answer(&[id], None);
    world.hear("dea.locate", "");
    assert_eq!(world.last("dea.advertise")["available_memory"], 768);
    // routers cannot be told before the address is known
    world.event(kind::RUNNING, id, None);
    assert!(world.of("router.register").is_empty());
    world.list(&[id]);
    let route = world.last("router.register");
    assert_eq!(
        (&route["host"], &route["port"]),
        (&json!("10.0.0.7"), &json!(61_001))
    );
    assert_eq!(route["uris"], json!(["orders.example.test"]));
    let beat = world.last("dea.heartbeat").to_string();
    let beat = DeaHeartbeat::read(beat.as_bytes()).unwrap().body;
    assert_eq!(beat.droplets[0].state, DeaInstanceState::Running);
    assert_eq!(
        (beat.droplets[0].version.as_str(), beat.droplets[0].index),
        ("v1", 2)
    );
    world.hear(
        "dea.find.droplet",
        r#"{"droplet":"orders","include_stats":true}"#,
    );
    assert_eq!(world.last("_INBOX.x")["stats"]["host"], "10.0.0.7");
    world.hear("dea.stop", r#"{"droplet":"orders","indices":[2]}"#);
    assert_eq!(world.stops, [id]);
    assert_eq!(world.of("router.unregister").len(), 1);
    world.event(kind::STOPPED, id, Some("stopped"));
    world.hear("dea.locate", "");
    assert_eq!(world.last("dea.advertise")["app_id_to_count"], json!({}));
}

#[test]
fn what_the_cell_has_measured_is_in_the_replies_of_its_dea() {
    let mut world = World::new();
    let instance = world.start();
    world.answer(&[instance], None);
    world.list(&[instance]);
    let question = r#"{"droplet":"orders","include_stats":true}"#;
    world.hear("dea.find.droplet", question);
    let stats = &world.last("_INBOX.x")["stats"];
    let usage =
        json!({"time": "2023-11-14 22:13:20 +0000", "cpu": 0.25, "mem": 41 << 20, "disk": 0});
    assert_eq!(stats["usage"], usage);
    world.hear("dea.status", "{}");
    assert_eq!(world.last("_INBOX.x")["used_memory"], 41);
}

#[test]
fn what_a_cell_refuses_or_does_not_answer_has_crashed() {
    let mut world = World::new();
    let id = world.start();
    world.answer(&[], Some((id, "insufficient resources: memory")));
    let ended = world.last("droplet.exited");
    assert_eq!(
        ended["exit_description"],
        "Not enough memory resource available."
    );
    assert_eq!(
        (&ended["reason"], &ended["exit_status"]),
        (&json!("CRASHED"), &json!(-1))
    );
    let silent = world.start();
    let sent = world.starts.len();
    world.pass(7_000);
    assert_eq!(world.starts.len(), sent + 3, "it is sent again");
    assert!(
        world.starts[sent..]
            .iter()
            .all(|s| s.work[0].instance == silent)
    );
    world.pass(2_000);
    assert_eq!(world.stops, [silent]);
    assert_eq!(
        world.last("droplet.exited")["exit_description"],
        "the cell has not answered"
    );
    assert_eq!(world.cells.counters().unanswered, 1);
    // a late answer changes nothing
    world.answer(&[silent], None);
    assert_eq!(world.of("droplet.exited").len(), 2);
}

#[test]
fn crashes_are_told_once_they_are_final_and_missed_ends_are_found() {
    let mut world = World::new();
    let first = world.start();
    world.answer(&[first], None);
    world.list(&[first]);
    world.event(kind::CRASHED, first, None);
    assert!(
        world.of("droplet.exited").is_empty(),
        "it is started again on its cell"
    );
    world.event(kind::CRASHED, first, Some("exit 3"));
    let ended = world.last("droplet.exited");
    assert_eq!(
        (&ended["exit_status"], &ended["exit_description"]),
        (&json!(3), &json!("exit 3"))
    );
    let second = world.start();
    world.answer(&[second], None);
    world.list(&[second]);
    world.pass(6_000);
    world.advertise(1, &|_| ());
    world.list(&[]);
    assert_eq!(world.of("droplet.exited").len(), 2);
    // from an earlier run: nobody in the estate knows it
    let left = InstanceId::from_u128(77);
    world.list(&[left]);
    assert_eq!(world.stops, [left]);
}

#[test]
fn a_cell_that_is_emptied_evacuates_and_is_another_dea_afterwards() {
    let mut world = World::new();
    let id = world.start();
    world.answer(&[id], None);
    world.list(&[id]);
    let dea = world.last("dea.advertise")["id"].clone();
    // a cordoned cell keeps what it runs, but has no room
    world.advertise(1, &|cell| (cell.evacuating, cell.cordoned) = (true, true));
    world.hear("dea.locate", "");
    assert_eq!(world.last("dea.advertise")["available_memory"], 0);
    world.advertise(1, &|cell| cell.evacuating = true);
    assert_eq!(world.last("dea.shutdown")["id"], dea);
    assert_eq!(world.last("droplet.exited")["reason"], "DEA_EVACUATION");
    world.event(kind::STOPPED, id, Some("stopped"));
    world.advertise(1, &|_| ());
    assert_ne!(world.last("dea.advertise")["id"], dea);
}

#[test]
fn at_the_end_everything_is_stopped() {
    let mut world = World::new();
    let id = world.start();
    world.answer(&[id], None);
    world.list(&[id]);
    let out = world.cells.shut_down(world.now_ms);
    world.take(out);
    assert_eq!(world.of("dea.shutdown").len(), 1);
    assert_eq!(world.of("router.unregister").len(), 1);
    assert_eq!(world.stops, [id]);
}

#[test]
fn bad_settings_are_refused() {
    let long = DeaOutConfig::new(&"x".repeat(81), vec!["a".into()]);
    assert_eq!(long.check().unwrap_err().field, "name");
    let cells = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    for (names, ms, field) in [
        (&[][..], 5_000, "cells"),
        (&["a", "a"], 5_000, "cells"),
        (&["a.b"], 5_000, "cells"),
        (&["a"], 5, "advertise"),
    ] {
        let mut config = DeaOutConfig::new("out", cells(names));
        config.advertise_ms = ms;
        assert_eq!(config.check().unwrap_err().field, field, "{names:?}");
    }
    let with = |change: fn(&mut DeaOutConfig)| {
        let mut config = DeaOutConfig::new("out", cells(&["a"]));
        change(&mut config);
        config.check().map_err(|invalid| invalid.field)
    };
    assert_eq!(with(|_| ()), Ok(()));
    assert_eq!(with(|c| c.max_ttl_ms = 99), Err("max-ttl".into()));
    assert_eq!(with(|c| c.staging_ms = 0), Err("staging-time".into()));
    assert_eq!(
        with(|c| c.staging_memory_mb = -1),
        Err("staging-memory".into())
    );
    assert_eq!(
        with(|c| c.staging_disk_mb = i64::MAX),
        Err("staging-disk".into())
    );
}

fn emptied(cell: &mut Cell) {
    cell.evacuating = true;
}

/// Its DEA has said that it takes no more work, and is replaced only when nothing runs there any more.
#[test]
fn a_cell_that_takes_work_again_before_it_is_empty_is_a_new_dea_once_it_is_empty() {
    let mut world = World::new();
    let instance = world.start();
    world.answer(&[instance], None);
    world.event(kind::RUNNING, instance, None);
    let before = world.own.clone();
    world.advertise(1, &emptied);
    world.advertise(1, &|_| ());
    world.advertise(1, &|_| ());
    assert_eq!(world.own, before);
    assert_eq!(world.of("dea.start").len(), 1);
    world.event(kind::STOPPED, instance, Some("stopped"));
    world.advertise(1, &|_| ());
    assert_ne!(world.own, before);
    assert_eq!(world.of("dea.start").len(), 2);
    assert_eq!(world.unlistened, [before]);
    let starts = world.starts.len();
    world.start();
    assert!(world.starts.len() > starts, "it takes work");
}

#[test]
fn a_stop_that_the_cell_did_not_hear_is_sent_again() {
    let mut world = World::new();
    let instance = world.start();
    world.answer(&[instance], None);
    world.event(kind::RUNNING, instance, None);
    world.hear("dea.stop", r#"{"droplet":"orders"}"#);
    assert_eq!(world.stops, [instance]);
    world.list(&[instance]);
    assert_eq!(world.stops, [instance, instance]);
    world.event(kind::STOPPED, instance, Some("stopped"));
    world.pass(11_000);
    world.list(&[]);
    assert_eq!(world.stops.len(), 2);
    assert_eq!(world.last("dea.heartbeat")["droplets"], json!([]));
}

/// Whatever the cell answers to a start that has been stopped, the resources that it was to take become free again.
#[test]
fn a_start_that_is_stopped_before_its_answer_takes_nothing_in_the_end() {
    for answered in [Some(true), Some(false), None] {
        let mut world = World::new();
        let instance = world.start();
        world.hear("dea.stop", r#"{"droplet":"orders"}"#);
        assert_eq!(world.stops, [instance]);
        match answered {
            Some(true) => {
                world.answer(&[instance], None);
                world.event(kind::STOPPED, instance, Some("stopped"));
            }
            Some(false) => world.answer(&[], Some((instance, "stopped"))),
            None => {}
        }
        world.pass(4_000);
        world.advertise(1, &|_| ());
        world.hear("dea.locate", "");
        let memory = &world.last("dea.advertise")["available_memory"];
        assert_eq!(*memory, 1_024, "{answered:?}");
        assert!(world.of("droplet.exited").is_empty(), "{answered:?}");
    }
}
