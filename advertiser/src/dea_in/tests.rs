//! The cells of a bridge: a scripted estate on one side, messages of the cluster on the other.

use std::collections::BTreeMap;

use placement::Kind;
use serde_json::{Value, json};
use shared::wire::{
    Acceptance, Advert, CellStart, Event, InstanceState, Instances, Stop, Work, instance_id,
};

use super::{
    DeaInConfig,
    cells::{CellService, CellsOutput, DeaCells},
    queries::DeaBid,
};
use crate::dea::{BridgeInput, BridgeOptions};

mod others;

const APP: &str = "5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f";
const NOON: u64 = 1_700_000_000_000;

/// A modification of a start.
type Change = fn(&mut CellStart);

struct World {
    cells: DeaCells,
    now_ms: u64,
    /// What was sent to the DEAs, by subject.
    sent: Vec<(String, Value)>,
    adverts: BTreeMap<String, Advert>,
    events: Vec<Event>,
    answers: BTreeMap<u64, (u64, Acceptance)>,
    heartbeats: usize,
}

fn config(settle_ms: u64) -> DeaInConfig {
    DeaInConfig {
        name: "dea".into(),
        slots: 4,
        expiry_s: 10,
        settle_ms,
    }
}

fn options(settle_ms: u64) -> BridgeOptions {
    BridgeOptions {
        mark: "m".into(),
        ..config(settle_ms).options("vendue")
    }
}

impl World {
    fn new(settle_ms: u64, now_ms: u64) -> Self {
        Self {
            cells: DeaCells::new(options(settle_ms), now_ms).unwrap(),
            now_ms,
            sent: Vec::new(),
            adverts: BTreeMap::new(),
            events: Vec::new(),
            answers: BTreeMap::new(),
            heartbeats: 0,
        }
    }

    fn take(&mut self, out: Vec<CellsOutput>) {
        for output in out {
            match output {
                CellsOutput::ToDeas { subject, body } => {
                    let body = serde_json::from_slice(&body.0).unwrap();
                    self.sent.push((subject, body));
                }
                CellsOutput::AskDeas { subject, body } => {
                    let body = serde_json::from_slice(&body).unwrap();
                    self.sent.push((subject.to_owned(), body));
                }
                CellsOutput::Advertise(advert) => {
                    let name = advert.cell.cell.clone();
                    if let Some(before) = self.adverts.get(&name) {
                        assert!(before.seq < advert.seq, "seq goes up");
                    }
                    if advert.ttl.0.is_zero() {
                        self.adverts.remove(&name);
                    } else {
                        assert_eq!(advert.cell.check(), Ok(()));
                        self.adverts.insert(name, *advert);
                    }
                }
                CellsOutput::Heartbeat(_) => self.heartbeats += 1,
                CellsOutput::Event { cell, mut event } => {
                    event.by = cell;
                    self.events.push(*event);
                }
                CellsOutput::Reply { .. } => {}
                CellsOutput::Answer { ticket, answer } => {
                    let double = self.answers.insert(ticket, (self.now_ms, *answer));
                    assert_eq!(double, None, "answered twice");
                }
            }
        }
    }

    fn hear(&mut self, subject: &str, body: &Value) {
        let body = body.to_string();
        let body = body.as_bytes();
        let out = self
            .cells
            .hear(self.now_ms, BridgeInput::Heard { subject, body });
        self.take(out);
    }

    fn advertise(&mut self, dea: &str, counts: &Value) {
        let body = json!({"id": dea, "stacks": ["cflinuxfs2"], "available_memory": 1_024,
            "available_disk": 4_096, "app_id_to_count": counts, "placement_properties": {"zone": "z1"}});
        self.hear("dea.advertise", &body);
    }

    /// Lets time pass, with every tick that is due.
    fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        while self.cells.next_ms() <= until {
            self.now_ms = self.now_ms.max(self.cells.next_ms());
            let out = self.cells.tick(self.now_ms);
            self.take(out);
        }
        self.now_ms = until;
    }

    /// Sends index 0 of request `w-1` to `dea-0`, after `change`, with this ticket.
    fn start(&mut self, ticket: u64, change: impl FnOnce(&mut CellStart)) {
        self.start_on("dea-0", ticket, change);
    }

    fn start_on(&mut self, cell: &str, ticket: u64, change: impl FnOnce(&mut CellStart)) {
        let state = self.cells.state(self.now_ms, cell, None).unwrap();
        let mut start = CellStart {
            v: shared::VERSION,
            auction: uuid::Uuid::from_u128(7).into(),
            incarnation: state.incarnation,
            expires_ms: shared::clock::CellTime::from_ms(self.now_ms + 5_000),
            work: vec![work("w-1", 0)],
        };
        change(&mut start);
        let body = shared::wire::to_bytes(&start);
        let out = self.cells.start(self.now_ms, cell, ticket, &body);
        self.take(out.unwrap());
    }

    /// Makes the DEA report an instance, in a reply or a heartbeat.
    fn says(&mut self, version: &str, state: &str) -> Value {
        let instance = json!({"droplet": APP, "version": version, "instance": "c0ffee", "index": 0,
            "state": state, "state_timestamp": 1.5});
        let mut found = instance.clone();
        found["dea"] = json!("d1");
        let found = found.to_string();
        let out = self
            .cells
            .hear(self.now_ms, BridgeInput::Found(found.as_bytes()));
        self.take(out);
        instance
    }

    fn beat(&mut self, droplets: &[Value]) {
        self.hear("dea.heartbeat", &json!({"dea": "d1", "droplets": droplets}));
    }

    fn refused(&self, ticket: u64) -> &str {
        let (_, answer) = &self.answers[&ticket];
        assert_eq!((answer.accepted.len(), answer.refused.len()), (0, 1));
        &answer.refused[0].reason
    }

    fn listed(&self) -> Vec<(InstanceState, Option<String>)> {
        let all = self
            .cells
            .instances(self.now_ms, "dea-0", &Instances::default());
        let all = all.unwrap().instances.into_iter();
        all.map(|i| (i.state, i.request.map(|r| r.as_str().to_owned())))
            .collect()
    }

    /// Returns how many ids the cell lists as running.
    fn running(&self) -> usize {
        let filter = Instances {
            ids_only: true,
            ..Instances::default()
        };
        let list = self.cells.instances(self.now_ms, "dea-0", &filter).unwrap();
        assert!(list.instances.is_empty());
        list.ids.len()
    }
}

/// Returns an instance of a droplet of 256 MB.
fn work(request: &str, index: u32) -> Work {
    let instance = instance_id(request, APP, Kind::Lrp, index);
    let run = json!({"droplet": {"uri": "http://me:s3cret@a/d", "environment": {"A": "b"}}});
    Work {
        index,
        request: Some(request.parse().unwrap()),
        run: Some(serde_json::from_value(run).unwrap()),
        ..Work::new(instance, APP, 256, 512)
    }
}

fn world() -> World {
    let mut world = World::new(0, NOON);
    world.advertise("d1", &json!({}));
    world
}

#[test]
fn a_start_is_sent_acknowledged_listed_and_stopped() {
    let mut world = world();
    world.start(1, |_| ());
    assert!(world.answers.is_empty());
    assert_eq!(world.sent[0].0, "dea.d1.start");
    let sent = &world.sent[0].1;
    assert_eq!(
        (&sent["version"], &sent["env"], &sent["stack"]),
        (
            &json!("vendue-m-0-r0-w-1"),
            &json!(["A=b"]),
            &json!("cflinuxfs2")
        )
    );
    assert_eq!(
        sent["limits"],
        json!({"mem": 256, "disk": 512, "fds": 16_384})
    );
    world.pass(150);
    assert_eq!(world.sent[1].0, "dea.find.droplet");
    let instance = world.says("vendue-m-0-r0-w-1", "RUNNING");
    let (_, answer) = world.answers[&1].clone();
    assert_eq!((answer.accepted.len(), answer.refused.len()), (1, 0));
    assert_eq!(answer.available.memory_mb, 768);
    world.pass(200);
    let advert = &world.adverts["dea-0"];
    assert_eq!(advert.recent, answer.accepted);
    assert_eq!(
        (advert.cell.available.memory_mb, advert.cell.droplets_only),
        (768, true)
    );
    assert_eq!(
        world.listed(),
        [(InstanceState::Running, Some("w-1".into()))]
    );
    assert_eq!(world.running(), 1);
    // a repeat is accepted without being sent
    let sent = world.sent.len();
    world.start(2, |_| ());
    assert_eq!(world.answers[&2].1.accepted.len(), 1);
    assert_eq!(world.sent.len(), sent);
    let stop = Stop::read(format!(r#"{{"app":"{APP}"}}"#).as_bytes()).unwrap();
    let mut out = Vec::new();
    let answer = world.cells.stop(world.now_ms, "dea-0", &stop, &mut out);
    world.take(out);
    assert_eq!(answer.stopped.len(), 1);
    assert_eq!(world.sent.last().unwrap().0, "dea.stop");
    assert_eq!(world.listed()[0].0, InstanceState::Stopping);
    assert_eq!(world.running(), 0);
    // it did not hear the stop, so it is told again
    world.beat(&[instance]);
    assert_eq!(world.sent.last().unwrap().0, "dea.stop");
    world.beat(&[]);
    assert_eq!(world.listed()[0].0, InstanceState::Exited);
    let kinds: Vec<&str> = world
        .events
        .iter()
        .map(|event| event.kind.as_str())
        .collect();
    assert_eq!(kinds, ["running", "stopped"]);
    world.start(3, |_| ());
    assert_eq!(world.refused(3), "stopped");
}

#[test]
fn a_start_without_a_sign_is_answered_in_800_ms_and_settled_by_a_heartbeat() {
    let mut world = world();
    world.start(1, |start| start.work.push(work("w-1", 1)));
    world.pass(2_000);
    let (at_ms, answer) = &world.answers[&1];
    assert!(*at_ms <= NOON + 800);
    assert_eq!((answer.accepted.len(), answer.refused.len()), (0, 0));
    assert_eq!(world.listed().len(), 2);
    let before = world.adverts["dea-0"].recent.len();
    assert_eq!(before, 0);
    let version = "vendue-m-0-r0-w-1";
    let instance = json!({"droplet": APP, "version": version, "instance": "c0ffee", "index": 0,
        "state": "RUNNING", "state_timestamp": 1.5});
    world.beat(&[instance]);
    world.pass(200);
    assert_eq!(world.adverts["dea-0"].recent.len(), 1);
    assert_eq!(world.events[0].kind, "running");
    world.pass(9_000);
    world.advertise("d1", &json!({}));
    // the other one never came to exist
    world.pass(9_000);
    world.advertise("d1", &json!({}));
    world.pass(9_000);
    world.advertise("d1", &json!({}));
    world.pass(5_000);
    world.beat(&[
        json!({"droplet": APP, "version": version, "instance": "c0ffee", "index": 0,
        "state": "RUNNING", "state_timestamp": 1.5}),
    ]);
    assert_eq!(world.events.last().unwrap().kind, "crashed");
}

#[test]
fn what_a_dea_cannot_run_is_refused_without_being_sent() {
    let mut world = world();
    let cases: [(Change, &str); 8] = [
        (|s| s.work[0].run = None, "the cell runs only droplets"),
        (
            |s| s.work[0].run = Some(serde_json::from_value(json!({"command": ["x"]})).unwrap()),
            "the cell runs only droplets",
        ),
        (|s| s.incarnation = uuid::Uuid::nil().into(), "restarted"),
        (
            |s| s.expires_ms = shared::clock::CellTime::from_ms(5),
            "stale",
        ),
        (
            |s| s.work[0].memory_mb = 2_000,
            "insufficient resources: memory",
        ),
        (
            |s| s.work[0].disk_mb = 9_000,
            "insufficient resources: disk",
        ),
        (
            |s| {
                let droplet = json!({"droplet": {"uri": "http://x", "services": "s3cret"}});
                s.work[0].run = Some(serde_json::from_value(droplet).unwrap());
            },
            "run.droplet.services: a text is not allowed; expected a list",
        ),
        (
            |s| s.work[0].kind = Kind::Task,
            "the cell runs only droplets",
        ),
    ];
    for (ticket, (change, reason)) in (1..).zip(cases) {
        world.start(ticket, change);
        assert_eq!(world.refused(ticket), reason);
    }
    world.advertise("d1", &json!({APP: 3}));
    world.start(20, |s| s.work[0].believed = Some(2));
    assert_eq!(world.refused(20), "changed");
    world
        .cells
        .serve(world.now_ms, "dea-0", CellService::Cordoned);
    world.start(21, |_| ());
    assert_eq!(world.refused(21), "cordoned");
    assert!(world.sent.is_empty());
    assert!(world.listed().is_empty());
}

#[test]
fn a_restarted_bridge_is_the_same_cells_as_before() {
    let mut world = world();
    world.advertise("d0", &json!({}));
    world.start(1, |_| ());
    let instance = world.says("vendue-m-0-r0-w-1", "RUNNING");
    world.pass(500);
    let before = world.adverts["dea-0"].clone();
    let mut again = World::new(11_000, world.now_ms + 1_000);
    // the other DEA is heard first, and has to wait
    again.advertise("d0", &json!({}));
    again.advertise("d1", &json!({APP: 1}));
    assert!(again.adverts.is_empty());
    again.beat(&[instance]);
    assert_eq!(
        again.listed(),
        [(InstanceState::Running, Some("w-1".into()))]
    );
    again.pass(200);
    let after = &again.adverts["dea-0"];
    assert_eq!(after.incarnation, before.incarnation);
    assert!(after.seq > before.seq && after.clock_ms > before.clock_ms);
    assert_eq!(after.recent, before.recent);
    again.pass(9_000);
    again.advertise("d0", &json!({}));
    assert_eq!(again.adverts.len(), 1);
    again.pass(3_000);
    assert_eq!(
        again.adverts.len(),
        2,
        "the other one is a cell, too, by now"
    );
    assert_eq!(again.cells.bridge().dea_of("dea-1"), Some("d0"));
}

#[test]
fn a_dea_that_falls_silent_is_cordoned_and_then_withdrawn() {
    let mut world = world();
    assert_eq!(world.adverts["dea-0"].ttl.0.as_secs(), 10);
    world.pass(11_000);
    let silent = &world.adverts["dea-0"];
    assert!(silent.cell.evacuating && silent.cell.cordoned);
    world.advertise("d1", &json!({}));
    assert!(!world.adverts["dea-0"].cell.evacuating);
    world.hear("dea.shutdown", &json!({"id": "d1", "app_id_to_count": {}}));
    let leaving = &world.adverts["dea-0"];
    assert!(leaving.cell.evacuating && !leaving.cell.cordoned);
    world.pass(32_000);
    assert!(world.adverts.is_empty());
    assert_eq!(world.cells.state(world.now_ms, "dea-0", None), None);
}

#[test]
fn a_drained_cell_stops_at_its_deadline_and_bids_say_what_has_changed() {
    let mut world = world();
    world.start(1, |_| ());
    world.says("vendue-m-0-r0-w-1", "RUNNING");
    let auction = uuid::Uuid::from_u128(9).into();
    let full = world.cells.bid(world.now_ms, "dea-0", auction);
    assert!(matches!(full, Some(DeaBid::Full(_))), "{full:?}");
    world.pass(200);
    let same = world.cells.bid(world.now_ms, "dea-0", auction);
    assert!(matches!(same, Some(DeaBid::Unchanged(_))), "{same:?}");
    assert_eq!(world.cells.bid(world.now_ms, "dea-1", auction), None);
    let until_ms = world.now_ms + 3_000;
    let out = world
        .cells
        .serve(world.now_ms, "dea-0", CellService::Draining(until_ms));
    world.take(out);
    let cell = &world.adverts["dea-0"].cell;
    assert!(cell.evacuating && !cell.cordoned);
    assert_eq!(world.events.last().unwrap().kind, "cell-draining");
    world.pass(2_000);
    assert_ne!(world.sent.last().unwrap().0, "dea.stop");
    world.pass(2_000);
    assert_eq!(world.sent.last().unwrap().0, "dea.stop");
    assert!(world.heartbeats >= 1);
}

#[test]
fn no_text_of_what_is_to_run_shows_credentials() {
    let work = work("w-1", 0);
    let run = work.run.as_ref().unwrap();
    let droplet = crate::dea::DropletRun::of(run.droplet.as_ref().unwrap()).unwrap();
    let start = droplet.start(
        crate::dea::DropletInstance {
            app: APP,
            index: 0,
            memory_mb: 1,
            disk_mb: 1,
        },
        "s",
    );
    for text in [
        format!("{work:?}"),
        format!("{droplet:?}"),
        format!("{start:?}"),
    ] {
        assert!(!text.contains("s3cret"), "{text}");
    }
    let again = crate::dea::DropletRun::of_start(&start).to_droplet();
    let again = crate::dea::DropletRun::of(&again).unwrap();
    assert_eq!(again.uri, droplet.uri);
    assert_eq!(again.environment, droplet.environment);
}

#[test]
fn bad_settings_are_refused() {
    for (change, field) in [
        ((|c| c.name = "a b".into()) as fn(&mut DeaInConfig), "name"),
        (|c| c.slots = 0, "slots"),
        (|c| c.expiry_s = 0, "expiry"),
    ] {
        let mut config = config(0);
        change(&mut config);
        assert_eq!(config.check().unwrap_err().field, field);
    }
    assert_eq!(config(0).cells().last().as_deref(), Some("dea-3"));
}
