//! A cell that behaves as a DEA, as its Cloud Controller, router and health manager expect.

use serde_json::{Value, json};

use super::{super::*, bodies::START};

mod staging;

const APP: &str = "5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f";

struct World {
    facade: Facade,
    now_ms: u64,
}

/// Creates a facade with 2 GB of memory and 4 GB of disk, and returns it with its first messages.
fn begin() -> (World, Vec<FacadeOutput>) {
    let mut options = FacadeOptions::new("d1", "10.0.16.9", vec!["cflinuxfs2".into()], 7);
    options.zone = "z1".into();
    let room = FacadeRoom {
        memory: 2_048,
        available_memory: 2_048,
        available_disk: Some(4_096),
    };
    let now_ms = 1_450_000_000_250;
    let (facade, out) = Facade::new(options, room, now_ms).unwrap();
    (World { facade, now_ms }, out)
}

impl World {
    fn new() -> Self {
        begin().0
    }

    fn hear(&mut self, subject: &str, body: &Value) -> Vec<FacadeOutput> {
        let body = body.to_string();
        let heard = FacadeInput::Heard {
            subject,
            reply: Some("_INBOX.cc"),
            body: body.as_bytes(),
        };
        self.facade.handle(self.now_ms, heard)
    }

    fn happens(&mut self, key: &str, event: FacadeEvent) -> Vec<FacadeOutput> {
        self.facade
            .handle(self.now_ms, FacadeInput::Instance { key, event })
    }

    /// Starts an index. Returns the key given to the cell.
    fn start(&mut self, index: u32) -> String {
        let mut body: Value = serde_json::from_str(START).unwrap();
        body["index"] = json!(index);
        let out = self.hear("dea.d1.start", &body);
        match &out[..] {
            [FacadeOutput::Start { key, start }] => {
                assert_eq!((start.index, start.droplet.as_str()), (index, APP));
                key.clone()
            }
            other => panic!("{other:?}"),
        }
    }

    /// Starts an index, and lets it run.
    fn run(&mut self, index: u32) -> String {
        let key = self.start(index);
        assert_eq!(self.happens(&key, FacadeEvent::Accepted), []);
        self.happens(&key, FacadeEvent::Running(Some(61_003)));
        key
    }

    fn pass(&mut self, ms: u64) -> Vec<(String, Value)> {
        let until = self.now_ms + ms;
        let mut all = Vec::new();
        while self.facade.next_ms() <= until {
            self.now_ms = self.facade.next_ms();
            let out = self.facade.handle(self.now_ms, FacadeInput::Tick);
            all.extend(published(&out));
        }
        self.now_ms = until;
        all
    }

    /// Returns its advertisement when asked.
    fn advertisement(&mut self) -> Value {
        let out = self.hear("dea.locate", &json!({}));
        published(&out).remove(0).1
    }
}

fn published(out: &[FacadeOutput]) -> Vec<(String, Value)> {
    let read = |output: &FacadeOutput| match output {
        FacadeOutput::Publish { subject, body } => {
            Some((subject.clone(), serde_json::from_slice(&body.0).unwrap()))
        }
        _ => None,
    };
    out.iter().filter_map(read).collect()
}

fn subjects_of(out: &[(String, Value)]) -> Vec<&str> {
    out.iter().map(|(subject, _)| subject.as_str()).collect()
}

#[test]
fn it_greets_and_advertises_and_then_keeps_its_intervals() {
    let (mut world, out) = begin();
    let said = published(&out);
    assert_eq!(subjects_of(&said), ["dea.start", "dea.advertise"]);
    assert_eq!(
        said[0].1,
        json!({"id": "d1", "ip": "10.0.16.9", "version": "0.0.1"})
    );
    let empty = json!({"id": "d1", "stacks": ["cflinuxfs2"], "available_memory": 2048, "available_disk": 4096,
                       "app_id_to_count": {}, "placement_properties": {"zone": "z1"}});
    assert_eq!(said[1].1, empty);
    let said = world.pass(20_000);
    let count = |subject: &str| said.iter().filter(|(said, _)| said == subject).count();
    assert_eq!(
        (count("dea.advertise"), count("dea.heartbeat"), said.len()),
        (4, 2, 6)
    );
    let beat = said.iter().find(|(subject, _)| subject == "dea.heartbeat");
    assert_eq!(beat.unwrap().1, json!({"droplets": [], "dea": "d1"}));
    let bad = FacadeOptions::new("a.b", "", Vec::new(), 0);
    assert!(Facade::new(bad, FacadeRoom::default(), 0).is_err());
}

#[test]
fn an_instance_counts_from_the_moment_at_which_it_is_sent() {
    let mut world = World::new();
    let key = world.start(2);
    assert_eq!(key.len(), 32);
    let said = world.advertisement();
    assert_eq!(
        (&said["available_memory"], &said["available_disk"]),
        (&json!(1_536), &json!(3_072))
    );
    assert_eq!(said["app_id_to_count"], json!({APP: 1}));
    // the cell has accepted it, and has less left
    let room = FacadeRoom {
        memory: 2_048,
        available_memory: 1_536,
        available_disk: Some(3_072),
    };
    world.happens(&key, FacadeEvent::Accepted);
    world.facade.handle(world.now_ms, FacadeInput::Room(room));
    assert_eq!(world.advertisement()["available_memory"], 1_536);
    let out = world.happens(&key, FacadeEvent::Running(Some(61_003)));
    let said = published(&out);
    assert_eq!(subjects_of(&said), ["router.register", "dea.heartbeat"]);
    let route = &said[0].1;
    assert_eq!(route["private_instance_id"].as_str().unwrap().len(), 64);
    assert_eq!(
        (&route["host"], &route["port"], &route["uris"]),
        (
            &json!("10.0.16.9"),
            &json!(61_003),
            &json!(["orders.example.test"])
        )
    );
    let shown = json!({"cc_partition": "default", "droplet": APP, "version": "7b3f1c9e-1111-4222-8333-444455556666",
        "instance": key, "index": 2, "state": "RUNNING", "state_timestamp": 1_450_000_000.25});
    assert_eq!(said[1].1, json!({"droplets": [shown], "dea": "d1"}));
    let again = world.hear(
        "router.start",
        &json!({"minimumRegisterIntervalInSeconds": 20}),
    );
    assert_eq!(published(&again)[0].1, *route);
    assert!(subjects_of(&world.pass(20_000)).contains(&"router.register"));
}

#[test]
fn what_does_not_fit_crashes_at_once_and_says_what_is_short() {
    let mut world = World::new();
    for (limits, short) in [
        (json!({"mem": 2_049, "disk": 1, "fds": 1}), "memory"),
        (json!({"mem": 2_049, "disk": 4_097, "fds": 1}), "disk"),
    ] {
        let mut body: Value = serde_json::from_str(START).unwrap();
        body["limits"] = limits;
        let said = published(&world.hear("dea.d1.start", &body));
        let exited = &said[0].1;
        assert_eq!(subjects_of(&said), ["droplet.exited"]);
        assert_eq!(
            exited["exit_description"],
            format!("Not enough {short} resource available.")
        );
        assert_eq!(
            (
                &exited["reason"],
                &exited["exit_status"],
                &exited["crash_timestamp"]
            ),
            (&json!("CRASHED"), &json!(-1), &json!(1_450_000_000))
        );
        let exited = DeaExited::read(exited.to_string().as_bytes()).unwrap().body;
        assert!(exited.is_refusal());
    }
    let said = world.advertisement();
    assert_eq!(
        said["available_memory"], 2_048,
        "the cell has all that it had"
    );
    assert_eq!(
        said["app_id_to_count"],
        json!({APP: 2}),
        "crashed ones count until they are forgotten"
    );
    world.pass(10_000);
    assert_eq!(
        world.facade.count(DeaInstanceState::Crashed),
        2,
        "both of the same moment"
    );
    world.pass(3_600_000);
    assert_eq!(world.advertisement()["app_id_to_count"], json!({}));
}

#[test]
fn what_a_dea_drops_is_dropped() {
    let mut world = World::new();
    let mut body: Value = serde_json::from_str(START).unwrap();
    body["cc_partition"] = json!(null);
    assert_eq!(world.hear("dea.d1.start", &body), []);
    body["cc_partition"] = json!("default");
    body["limits"]["mem"] = json!(-512);
    assert_eq!(world.hear("dea.d1.start", &body), []);
    assert_eq!(world.facade.malformed, 2);
    assert_eq!(
        world.hear("dea.d2.start", &serde_json::from_str(START).unwrap()),
        []
    );
    assert_eq!(
        world.hear("dea.stop", &json!({"droplet": APP, "states": ["NOSUCH"]})),
        []
    );
    assert_eq!(world.facade.malformed, 3);
}

#[test]
fn stops_mean_what_their_filters_say() {
    let mut world = World::new();
    let keys = [world.run(0), world.run(1), world.start(2)];
    let stopped = |out: &[FacadeOutput]| -> Vec<String> {
        let keys = out.iter().filter_map(|output| match output {
            FacadeOutput::Stop { key } => Some(key.clone()),
            _ => None,
        });
        keys.collect()
    };
    let out = world.hear("dea.stop", &json!({"droplet": APP, "version": "another"}));
    assert_eq!(out, []);
    let out = world.hear("dea.stop", &json!({"droplet": APP, "indices": [1, 7]}));
    assert_eq!(stopped(&out), [keys[1].clone()]);
    assert_eq!(subjects_of(&published(&out)), ["router.unregister"]);
    assert_eq!(
        world.happens(&keys[1], FacadeEvent::Stopped),
        [],
        "nothing more is said of it"
    );
    let crash = FacadeEvent::Crashed {
        exit_status: 1,
        description: "app crashed".into(),
    };
    let said = published(&world.happens(&keys[0], crash));
    assert_eq!(subjects_of(&said), ["router.unregister", "droplet.exited"]);
    // crashed instances are not stopped
    let out = world.hear("dea.stop", &json!({"droplet": APP}));
    assert_eq!(stopped(&out), [keys[2].clone()]);
}

#[test]
fn every_instance_that_matches_answers_a_question() {
    let mut world = World::new();
    let key = world.run(0);
    world.start(1);
    let used = DeaUsage {
        cpu: DeaNumber::Float(0.25),
        mem: DeaNumber::Integer(3 << 20),
        ..DeaUsage::default()
    };
    world.happens(&key, FacadeEvent::Used(used));
    world.now_ms += 5_000;
    let out = world.hear(
        "dea.find.droplet",
        &json!({"droplet": APP, "include_stats": true}),
    );
    let replies = published(&out);
    assert_eq!(subjects_of(&replies), ["_INBOX.cc", "_INBOX.cc"]);
    let running = replies
        .iter()
        .find(|(_, body)| body["state"] == "RUNNING")
        .unwrap();
    let stats = json!({"name": "orders", "uris": ["orders.example.test"], "host": "10.0.16.9", "port": 61_003,
        "uptime": 5, "mem_quota": 536_870_912, "disk_quota": 1_073_741_824, "fds_quota": 16_384,
        "usage": {"time": "2015-12-13 09:46:45 +0000", "cpu": 0.25, "mem": 3 << 20, "disk": 0}});
    let found = json!({"dea": "d1", "droplet": APP, "version": "7b3f1c9e-1111-4222-8333-444455556666", "instance": key,
        "index": 0, "state": "RUNNING", "state_timestamp": 1_450_000_000.25, "staged": format!("/{key}"), "stats": stats});
    assert_eq!(running.1, found);
    let born = replies
        .iter()
        .find(|(_, body)| body["state"] == "BORN")
        .unwrap();
    assert!(born.1.get("stats").is_none());
    let out = world.hear("dea.find.droplet", &json!({"droplet": "another"}));
    assert_eq!(out, []);
    let status = published(&world.hear("dea.status", &json!({})));
    let status = &status[0].1;
    assert_eq!(
        (
            &status["max_memory"],
            &status["used_memory"],
            &status["num_clients"]
        ),
        (&json!(2_048), &json!(3), &json!(null))
    );
    let beat = published(&world.hear("healthmanager.start", &json!({})));
    assert_eq!(subjects_of(&beat), ["dea.heartbeat"]);
}

#[test]
fn an_update_moves_routes_and_a_new_version_brings_a_new_id() {
    let mut world = World::new();
    let key = world.run(0);
    let uris = json!(["shop.example.test"]);
    let version = "7b3f1c9e-1111-4222-8333-444455556666";
    let said = published(&world.hear(
        "dea.update",
        &json!({"droplet": APP, "uris": uris, "version": version}),
    ));
    assert_eq!(subjects_of(&said), ["router.unregister", "router.register"]);
    assert_eq!(
        (&said[0].1["uris"], &said[1].1["uris"]),
        (&json!(["orders.example.test"]), &uris)
    );
    let said = published(&world.hear(
        "dea.update",
        &json!({"droplet": APP, "uris": uris, "version": "v2"}),
    ));
    assert_eq!(subjects_of(&said), ["dea.heartbeat"]);
    let shown = &said[0].1["droplets"][0];
    assert_eq!(shown["version"], "v2");
    assert_ne!(shown["instance"], json!(key));
    // to the cell it is the same as before
    let stopped = world.hear("dea.stop", &json!({"droplet": APP, "version": "v2"}));
    assert!(stopped.contains(&FacadeOutput::Stop { key }));
}

#[test]
fn a_cell_that_is_emptied_says_so_once_and_goes_on_until_everything_is_stopped() {
    let mut world = World::new();
    let key = world.run(0);
    let said = published(&world.facade.handle(world.now_ms, FacadeInput::Evacuate));
    assert_eq!(
        subjects_of(&said),
        ["dea.shutdown", "droplet.exited", "dea.heartbeat"]
    );
    assert_eq!(
        said[0].1,
        json!({"id": "d1", "ip": "10.0.16.9", "version": "0.0.1", "app_id_to_count": {APP: 1}})
    );
    assert_eq!(said[1].1["reason"], "DEA_EVACUATION");
    assert!(said[1].1.get("crash_timestamp").is_none());
    assert_eq!(said[2].1["droplets"][0]["state"], "EVACUATING");
    assert_eq!(world.facade.handle(world.now_ms, FacadeInput::Evacuate), []);
    assert_eq!(
        world.hear("dea.d1.start", &serde_json::from_str(START).unwrap()),
        []
    );
    assert_eq!(world.hear("dea.locate", &json!({})), []);
    let said = world.pass(20_000);
    assert_eq!(
        subjects_of(&said),
        ["dea.heartbeat", "dea.heartbeat", "router.register"]
    );
    let out = world.hear("dea.stop", &json!({"droplet": APP}));
    assert!(out.contains(&FacadeOutput::Stop { key: key.clone() }));
    world.happens(&key, FacadeEvent::Stopped);
    let said = world.pass(10_000);
    assert_eq!(said[0].1, json!({"droplets": [], "dea": "d1"}));
}
