//! DEAs as cells of a cluster: a scripted estate on one side, starts and stops on the other.

use std::collections::BTreeMap;

use placement::Cell;
use serde_json::{Value, json};

use super::{super::*, advertisement, bodies::START};

mod any;

/// A bridge with this many slots, and its clock.
struct World {
    bridge: Bridge,
    now_ms: u64,
    /// The last advertisement of each cell; removed when the cell is withdrawn.
    cells: BTreeMap<String, Cell>,
}

impl World {
    fn new(slots: usize) -> Self {
        let options = BridgeOptions {
            name: "dea".into(),
            mark: "m".into(),
            slots,
            estate: EstateOptions::default(),
            settle_ms: 0,
        };
        Self {
            bridge: Bridge::new(options, 0).unwrap(),
            now_ms: 0,
            cells: BTreeMap::new(),
        }
    }

    fn take(&mut self, out: Vec<BridgeOutput>) -> Vec<BridgeOutput> {
        let mut rest = Vec::new();
        for output in out {
            match output {
                BridgeOutput::Advertise(cell) => _ = self.cells.insert(cell.cell.clone(), *cell),
                BridgeOutput::Withdraw(cell) => _ = self.cells.remove(&cell),
                other => rest.push(other),
            }
        }
        rest
    }

    fn handle(&mut self, input: BridgeInput<'_>) -> Vec<BridgeOutput> {
        let out = self.bridge.handle(self.now_ms, input);
        self.take(out)
    }

    fn hear(&mut self, subject: &str, body: &Value) -> Vec<BridgeOutput> {
        let body = body.to_string();
        let body = body.as_bytes();
        self.handle(BridgeInput::Heard { subject, body })
    }

    fn advertise(&mut self, dea: &str, memory: i64) {
        let body = advertisement(dea, "z1", memory, &json!({}));
        assert_eq!(self.hear("dea.advertise", &body), []);
    }

    /// Starts an instance of 512 MB, with 1024 MB of disk.
    fn start(&mut self, cell: &str, id: &str) -> Vec<BridgeOutput> {
        let start = Box::new(DeaStart::read(START.as_bytes()).unwrap().body);
        self.handle(BridgeInput::Start { cell, id, start })
    }

    fn stop(&mut self, id: &str) -> Vec<BridgeOutput> {
        let cell = self.bridge.holder(id).unwrap_or_default();
        self.handle(BridgeInput::Stop { cell: &cell, id })
    }

    /// Lets time pass, with every tick that is due. Returns the outputs with their times.
    fn pass(&mut self, ms: u64) -> Vec<(u64, BridgeOutput)> {
        let until = self.now_ms + ms;
        let mut all = Vec::new();
        while self.bridge.next_ms() <= until {
            self.now_ms = self.now_ms.max(self.bridge.next_ms());
            let out = self.handle(BridgeInput::Tick);
            all.extend(out.into_iter().map(|output| (self.now_ms, output)));
        }
        self.now_ms = until;
        all
    }

    fn beat(&mut self, dea: &str, instances: &[(&str, &str)]) -> Vec<BridgeOutput> {
        let droplets: Vec<Value> = instances
            .iter()
            .map(|(id, state)| instance(id, state))
            .collect();
        self.hear("dea.heartbeat", &json!({"dea": dea, "droplets": droplets}))
    }

    fn found(&mut self, dea: &str, id: &str, state: &str) -> Vec<BridgeOutput> {
        let mut body = instance(id, state);
        body["dea"] = json!(dea);
        let body = body.to_string();
        self.handle(BridgeInput::Found(body.as_bytes()))
    }

    fn exited(&mut self, id: &str, status: i64, description: &str) -> Vec<BridgeOutput> {
        let mut body = instance(id, "CRASHED");
        (body["reason"], body["exit_status"]) = (json!("CRASHED"), json!(status));
        body["exit_description"] = json!(description);
        self.hear("droplet.exited", &body)
    }
}

/// Returns index 2 of the app of [`START`].
fn instance(id: &str, state: &str) -> Value {
    json!({"cc_partition": "default", "droplet": "5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f", "version": format!("vendue-m-0-{id}"),
           "instance": "c0ffee", "index": 2, "state": state, "state_timestamp": 1.5})
}

fn answer(id: &str, answer: BridgeAnswer) -> BridgeOutput {
    BridgeOutput::Answer {
        id: id.into(),
        answer,
    }
}

fn refused(id: &str, reason: &str) -> BridgeOutput {
    answer(
        id,
        BridgeAnswer::Refused {
            reason: reason.into(),
        },
    )
}

fn state(cell: &str, id: &str, state: BridgeInstanceState) -> BridgeOutput {
    BridgeOutput::Instance {
        cell: cell.into(),
        id: id.into(),
        app: "5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f".into(),
        index: 2,
        state,
    }
}

/// Returns what is published to DEAs, as JSON with its subject.
fn published(out: &[BridgeOutput]) -> Vec<(String, Value)> {
    let read = |output: &BridgeOutput| match output {
        BridgeOutput::Publish { subject, body } => {
            Some((subject.clone(), serde_json::from_slice(&body.0).unwrap()))
        }
        _ => None,
    };
    out.iter().filter_map(read).collect()
}

#[test]
fn a_dea_is_a_cell_with_what_it_has_left() {
    let mut world = World::new(2);
    world.hear(
        "dea.advertise",
        &advertisement("d1", "z 1", 512, &json!({"a": 2})),
    );
    let cell = &world.cells["dea-0"];
    assert_eq!(cell.check(), Ok(()));
    assert_eq!((cell.zone.as_str(), cell.count_of("a")), ("z1", 2));
    assert_eq!(
        (cell.available.memory_mb, cell.available.disk_mb),
        (512, Some(40_960))
    );
    assert_eq!(cell.stacks, ["cflinuxfs2"]);
    assert_eq!(cell.dea.as_deref(), Some("d1"));
    // overcommitted, without a disk limit, in no zone
    let odd = json!({"id": "d2", "stacks": "s", "available_memory": -1.5, "app_id_to_count": null,
                     "placement_properties": {"zone": null}});
    world.hear("dea.advertise", &odd);
    let cell = &world.cells["dea-1"];
    assert_eq!(cell.check(), Ok(()));
    assert_eq!((cell.zone.as_str(), cell.available.memory_mb), ("null", -2));
    assert_eq!(
        (cell.available.disk_mb, world.bridge.dea_of("dea-1")),
        (None, Some("d2"))
    );
}

#[test]
fn slots_are_kept_until_their_dea_is_forgotten() {
    let mut world = World::new(2);
    for dea in ["d1", "d2", "d3"] {
        world.advertise(dea, 100);
    }
    assert_eq!(world.bridge.without_slot(0), 1);
    assert_eq!(world.cells.len(), 2);
    // d1 restarts under another id; its slot becomes free when the old id is forgotten
    world.now_ms = 25_000;
    world.advertise("d2", 100);
    world.advertise("d4", 100);
    world.pass(6_000);
    assert_eq!(world.cells.keys().collect::<Vec<_>>(), ["dea-1"]);
    world.advertise("d4", 100);
    assert_eq!(world.bridge.dea_of("dea-0"), Some("d4"));
    for bad in ["dea-2", "dea-00", "dea-", "dea", "x-0", "dea--1"] {
        assert_eq!(world.bridge.dea_of(bad), None, "{bad}");
    }
    for slots in [0, MAX_SLOTS + 1] {
        let options = BridgeOptions {
            name: "d".into(),
            mark: "m".into(),
            slots,
            estate: EstateOptions::default(),
            settle_ms: 0,
        };
        assert!(Bridge::new(options, 0).is_err());
    }
}

#[test]
fn a_start_is_sent_and_the_reply_of_the_dea_is_its_acknowledgement() {
    let mut world = World::new(1);
    world.advertise("d1", 1_024);
    let out = world.start("dea-0", "i1");
    let [(subject, body)] = &published(&out)[..] else {
        panic!("{out:?}");
    };
    assert_eq!(subject, "dea.d1.start");
    let mut golden: Value = serde_json::from_str(START).unwrap();
    golden["version"] = json!("vendue-m-0-i1");
    assert_eq!(body, &golden, "nothing else is changed");
    assert!(!format!("{out:?}").contains("hush"));
    // immediately after the start, and again
    let again = world.pass(150);
    let [_, first @ BridgeOutput::Ask { subject, body }] = &out[..] else {
        panic!("{out:?}");
    };
    assert_eq!(again, [(100, first.clone())]);
    let question: Value = serde_json::from_slice(body).unwrap();
    let droplet = &golden["droplet"];
    assert_eq!(*subject, "dea.find.droplet");
    assert_eq!(
        question,
        json!({"droplet": droplet, "version": "vendue-m-0-i1", "indices": [2]})
    );
    let placed = answer("i1", BridgeAnswer::Placed);
    let starting = state("dea-0", "i1", BridgeInstanceState::Starting);
    assert_eq!(world.found("d1", "i1", "BORN"), [placed.clone(), starting]);
    assert_eq!(world.found("d1", "i1", "BORN"), [], "answered once");
    assert_eq!(world.pass(2_000), [], "nobody is asked any more");
    let running = state("dea-0", "i1", BridgeInstanceState::Running);
    assert_eq!(world.beat("d1", &[("i1", "RUNNING")]), [running]);
    assert_eq!(world.beat("d1", &[("i1", "EVACUATING")]), []);
    assert_eq!(world.start("dea-0", "i1"), [placed], "a repeat");
}

#[test]
fn without_a_reply_a_start_is_unknown_and_settled_by_a_heartbeat() {
    let mut world = World::new(1);
    world.advertise("d1", 1_024);
    world.start("dea-0", "i1");
    let times: Vec<_> = world.pass(5_000).into_iter().collect();
    let at: Vec<u64> = times.iter().map(|(at, _)| *at).collect();
    assert_eq!(at, [100, 300, 600, 800]);
    assert_eq!(times[3].1, answer("i1", BridgeAnswer::Unknown));
    assert_eq!(world.beat("d1", &[]), [], "it may be on its way");
    let running = state("dea-0", "i1", BridgeInstanceState::Running);
    assert_eq!(world.beat("d1", &[("i1", "RUNNING")]), [running]);
}

#[test]
fn a_start_of_which_nothing_is_ever_heard_is_lost_after_three_heartbeats() {
    let mut world = World::new(1);
    world.advertise("d1", 1_024);
    world.start("dea-0", "i1");
    world.pass(1_000);
    for (after_ms, lost) in [(10_000, false), (18_999, false), (1, true), (10_000, false)] {
        world.pass(after_ms);
        world.advertise("d1", 1_024);
        let out = world.beat("d1", &[]);
        let expected = [state("dea-0", "i1", BridgeInstanceState::Lost)];
        assert_eq!(out == expected, lost, "{out:?}");
    }
}

#[test]
fn a_dea_without_room_refuses_and_one_known_to_be_full_is_not_asked() {
    let mut world = World::new(1);
    world.advertise("d1", 1_024);
    world.start("dea-0", "i1");
    let out = world.exited("i1", -1, "Not enough memory resource available.");
    assert_eq!(out, [refused("i1", "insufficient resources: memory")]);
    // the DEA continues to list it as crashed
    assert_eq!(world.beat("d1", &[("i1", "CRASHED")]), []);
    assert_eq!(world.pass(2_000), []);
    assert_eq!(published(&world.start("dea-0", "i2")).len(), 1);
    assert_eq!(published(&world.start("dea-0", "i3")).len(), 1);
    let cell = world.bridge.cell("dea-0", world.now_ms).unwrap();
    assert_eq!(
        (cell.available.memory_mb, cell.available.disk_mb),
        (0, Some(38_912))
    );
    assert_eq!(cell.counts.apps.values().sum::<u32>(), 2);
    let full = refused("i4", "insufficient resources: memory");
    assert_eq!(world.start("dea-0", "i4"), [full]);
}

/// The advertisement may have been sent before the start arrived: the race by which Cloud Controllers promise memory
/// twice.
#[test]
fn an_advertisement_takes_back_only_starts_that_the_dea_has_confirmed() {
    let mut world = World::new(1);
    let left = |world: &World| {
        world
            .bridge
            .cell("dea-0", world.now_ms)
            .unwrap()
            .available
            .memory_mb
    };
    world.advertise("d1", 1_024);
    world.start("dea-0", "i1");
    world.start("dea-0", "i2");
    world.found("d1", "i1", "STARTING");
    world.advertise("d1", 1_024);
    assert_eq!(left(&world), 512, "i1 is in it, i2 perhaps not");
    world.found("d1", "i2", "STARTING");
    world.advertise("d1", 0);
    assert_eq!(left(&world), 0);
    world.advertise("d1", 512);
    world.start("dea-0", "i3");
    world.pass(14_000);
    world.advertise("d1", 512);
    assert_eq!(left(&world), 0);
    world.pass(1_000);
    world.advertise("d1", 512);
    assert_eq!(left(&world), 512, "three advertisements without it");
}

#[test]
fn an_instance_that_was_to_be_stopped_is_stopped_until_it_is() {
    let mut world = World::new(1);
    world.advertise("d1", 1_024);
    world.start("dea-0", "i1");
    world.found("d1", "i1", "RUNNING");
    let out = world.stop("i1");
    let [(subject, body)] = &published(&out)[..] else {
        panic!("{out:?}");
    };
    let droplet = "5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f";
    assert_eq!(subject, "dea.stop");
    assert_eq!(
        body,
        &json!({"droplet": droplet, "version": "vendue-m-0-i1", "indices": [2]})
    );
    assert_eq!(
        published(&world.beat("d1", &[("i1", "RUNNING")])).len(),
        1,
        "once more"
    );
    let stopped = state("dea-0", "i1", BridgeInstanceState::Stopped);
    assert_eq!(world.beat("d1", &[]), [stopped]);
    assert_eq!(world.stop("i1"), []);
}

/// Until the end of 2014 a DEA without instances sent no heartbeat, and a stop was not told in another way.
#[test]
fn a_dea_without_heartbeats_is_believed_by_its_counts() {
    let app = "5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f";
    let mut world = World::new(1);
    world.advertise("d1", 1_024);
    world.start("dea-0", "i1");
    world.found("d1", "i1", "RUNNING");
    assert_eq!(world.beat("d1", &[("i1", "RUNNING")]), []);
    world.stop("i1");
    let mut said = |counts: &Value| {
        world.pass(5_000);
        let body = advertisement("d1", "z1", 1_024, counts);
        world.hear("dea.advertise", &body)
    };
    for _ in 0..5 {
        assert_eq!(said(&json!({})), [], "its heartbeat may still come");
    }
    assert_eq!(said(&json!({app: 1})), []);
    assert_eq!(said(&Value::Null), [], "that says nothing");
    let stopped = state("dea-0", "i1", BridgeInstanceState::Stopped);
    assert_eq!(said(&json!({})), [stopped]);
    assert_eq!(said(&json!({})), []);
}

#[test]
fn crashes_and_losses_are_told_once() {
    let mut world = World::new(1);
    world.advertise("d1", 4_096);
    for id in ["i1", "i2"] {
        world.start("dea-0", id);
        world.found("d1", id, "RUNNING");
    }
    let crashed = BridgeInstanceState::Crashed {
        exit_status: 137,
        description: "out of memory".into(),
    };
    assert_eq!(
        world.exited("i1", 137, "out of memory"),
        [state("dea-0", "i1", crashed)]
    );
    assert_eq!(world.exited("i1", 137, "out of memory"), []);
    assert_eq!(
        world.beat("d1", &[("i1", "CRASHED"), ("i2", "RUNNING")]),
        []
    );
    let lost = state("dea-0", "i2", BridgeInstanceState::Lost);
    assert_eq!(world.beat("d1", &[]), [lost]);
    assert_eq!(world.beat("d1", &[]), []);
}

#[test]
fn a_new_bridge_learns_everything_from_heartbeats() {
    let mut world = World::new(4);
    world.advertise("d1", 1_024);
    let others = json!({"droplet": "a", "version": "7b3f1c9e-1111", "instance": "i", "index": 0,
                        "state": "RUNNING", "state_timestamp": 1.5});
    let body = json!({"dea": "d1", "droplets": [instance("i1", "RUNNING"), others]});
    let running = state("dea-0", "i1", BridgeInstanceState::Running);
    assert_eq!(
        world.hear("dea.heartbeat", &body),
        [running],
        "what is not the cluster's is left alone"
    );
    assert_eq!(
        world.start("dea-0", "i1"),
        [answer("i1", BridgeAnswer::Placed)]
    );
    assert_eq!(published(&world.stop("i1")).len(), 1);
}

#[test]
fn a_dea_that_leaves_takes_no_work_and_keeps_what_it_has_until_it_is_gone() {
    let mut world = World::new(1);
    world.advertise("d1", 1_024);
    world.start("dea-0", "i1");
    world.found("d1", "i1", "RUNNING");
    assert!(!world.cells["dea-0"].evacuating);
    world.hear("dea.shutdown", &json!({"id": "d1", "app_id_to_count": {}}));
    assert!(world.cells["dea-0"].evacuating);
    assert_eq!(world.start("dea-0", "i2"), [refused("i2", "draining")]);
    for _ in 0..6 {
        world.pass(10_000);
        assert_eq!(world.beat("d1", &[("i1", "EVACUATING")]), []);
    }
    let out = world.pass(31_000);
    let lost = state("dea-0", "i1", BridgeInstanceState::Lost);
    assert_eq!(
        out.into_iter()
            .map(|(_, output)| output)
            .collect::<Vec<_>>(),
        [lost]
    );
    assert!(world.cells.is_empty());
}

#[test]
fn what_cannot_be_sent_is_refused() {
    let mut world = World::new(1);
    assert_eq!(
        world.start("dea-0", "i1"),
        [refused("i1", "draining")],
        "no DEA"
    );
    world.advertise("d1", 1_024);
    assert_eq!(
        world.start("dea-1", "i1"),
        [refused("i1", "draining")],
        "no such cell"
    );
    for id in ["", "a.b", "x y", &"x".repeat(101)] {
        let out = world.start("dea-0", id);
        assert!(format!("{out:?}").contains("expected 1 to 100"), "{out:?}");
    }
    world.now_ms = 10_000;
    assert_eq!(
        world.start("dea-0", "i1"),
        [refused("i1", "draining")],
        "expired"
    );
}
