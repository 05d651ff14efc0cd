//! Both directions against each other in virtual time: cells that behave as DEAs, a bridge that turns them into cells,
//! and a Cloud Controller that places work at the same time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use placement::{PlanContext, Policy, Request};

use super::{super::*, bodies::START};

/// How long a cell takes to accept, to start and to stop an instance, in ms.
const ACCEPT_MS: u64 = 10;
const RUN_MS: u64 = 150;
const STOP_MS: u64 = 50;
/// The subject on which a bridge gets replies.
const INBOX: &str = "_INBOX.bridge";
const APP: &str = "5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f";

/// A machine: what it publishes, and what it has.
struct Machine {
    facade: Facade,
    room: FacadeRoom,
    reserved: BTreeMap<String, i64>,
    due: BTreeSet<(u64, String, u8)>,
}

/// A message on its way.
struct Message {
    subject: String,
    reply: Option<&'static str>,
    body: Vec<u8>,
}

struct World {
    now_ms: u64,
    machines: BTreeMap<String, Machine>,
    bridge: Bridge,
    cloud_controller: Estate,
    bus: VecDeque<Message>,
    answers: BTreeMap<String, (u64, BridgeAnswer)>,
    states: BTreeMap<String, BridgeInstanceState>,
}

fn new_bridge(now_ms: u64) -> Bridge {
    let options = BridgeOptions {
        name: "dea".into(),
        mark: "m".into(),
        slots: 200,
        estate: EstateOptions { expiry_s: 15 },
        settle_ms: 0,
    };
    Bridge::new(options, now_ms).unwrap()
}

impl World {
    /// Creates a world with this many DEAs of 2 GB in two zones, which have all advertised.
    fn new(deas: u64) -> Self {
        let mut world = Self {
            now_ms: 1_000_000,
            machines: BTreeMap::new(),
            bridge: new_bridge(1_000_000),
            cloud_controller: Estate::default(),
            bus: VecDeque::new(),
            answers: BTreeMap::new(),
            states: BTreeMap::new(),
        };
        for n in 0..deas {
            // not all at the same time
            world.pass(4_999 / deas);
            world.add(&format!("d{n}"), n);
        }
        world.pass(5_000);
        world
    }

    fn add(&mut self, id: &str, n: u64) {
        let mut options = FacadeOptions::new(id, "10.0.0.1", vec!["cflinuxfs2".into()], n);
        options.zone = format!("z{}", n % 2);
        let room = FacadeRoom {
            memory: 2_048,
            available_memory: 2_048,
            available_disk: None,
        };
        let (facade, out) = Facade::new(options, room, self.now_ms).unwrap();
        let machine = Machine {
            facade,
            room,
            reserved: BTreeMap::new(),
            due: BTreeSet::new(),
        };
        self.machines.insert(id.to_owned(), machine);
        self.of_machine(id, out);
        self.deliver();
    }

    fn of_machine(&mut self, id: &str, out: Vec<FacadeOutput>) {
        let now_ms = self.now_ms;
        let machine = self.machines.get_mut(id).unwrap();
        for output in out {
            match output {
                FacadeOutput::Publish { subject, body } => self.bus.push_back(Message {
                    subject,
                    reply: None,
                    body: body.0,
                }),
                FacadeOutput::Start { key, start } => {
                    machine.reserved.insert(key.clone(), start.limits.mem);
                    machine.due.insert((now_ms + ACCEPT_MS, key.clone(), 0));
                    machine.due.insert((now_ms + RUN_MS, key, 1));
                }
                FacadeOutput::Stage { .. } => panic!("these cells do not stage"),
                FacadeOutput::Stop { key } => _ = machine.due.insert((now_ms + STOP_MS, key, 2)),
            }
        }
    }

    fn of_bridge(&mut self, out: Vec<BridgeOutput>) {
        for output in out {
            let (subject, body, reply) = match output {
                BridgeOutput::Publish { subject, body } => (subject, body.0, None),
                BridgeOutput::Ask { subject, body } => (subject.to_owned(), body, Some(INBOX)),
                BridgeOutput::Answer { id, answer } => {
                    let double = self.answers.insert(id, (self.now_ms, answer));
                    assert_eq!(double, None, "answered twice");
                    continue;
                }
                BridgeOutput::Instance { id, state, .. } => {
                    self.states.insert(id, state);
                    continue;
                }
                BridgeOutput::Advertise(cell) => {
                    assert_eq!(cell.check(), Ok(()));
                    continue;
                }
                BridgeOutput::Withdraw(_) => continue,
            };
            self.bus.push_back(Message {
                subject,
                reply,
                body,
            });
        }
    }

    fn deliver(&mut self) {
        while let Some(message) = self.bus.pop_front() {
            let (subject, body) = (message.subject.as_str(), &message.body[..]);
            if subject == INBOX {
                let out = self.bridge.handle(self.now_ms, BridgeInput::Found(body));
                self.of_bridge(out);
                continue;
            }
            let heard = EstateInput::Heard { subject, body };
            self.cloud_controller.handle(self.now_ms, heard);
            let out = self
                .bridge
                .handle(self.now_ms, BridgeInput::Heard { subject, body });
            self.of_bridge(out);
            let ids: Vec<String> = self.machines.keys().cloned().collect();
            for id in ids {
                let heard = FacadeInput::Heard {
                    subject,
                    reply: message.reply,
                    body,
                };
                let machine = self.machines.get_mut(&id).unwrap();
                let out = machine.facade.handle(self.now_ms, heard);
                self.of_machine(&id, out);
            }
        }
    }

    /// Makes a cell do something by itself.
    fn happens(&mut self, id: &str, key: &str, what: u8) {
        let machine = self.machines.get_mut(id).unwrap();
        let event = match what {
            0 => FacadeEvent::Accepted,
            1 => FacadeEvent::Running(Some(61_000)),
            _ => {
                machine.reserved.remove(key);
                machine.due.retain(|(_, other, _)| other != key);
                FacadeEvent::Stopped
            }
        };
        let accepted = machine.reserved.values().sum::<i64>();
        machine.room.available_memory = machine.room.memory - accepted;
        assert!(
            machine.room.available_memory >= 0,
            "memory was promised twice"
        );
        let room = FacadeInput::Room(machine.room);
        machine.facade.handle(self.now_ms, room);
        let input = FacadeInput::Instance { key, event };
        let out = machine.facade.handle(self.now_ms, input);
        self.of_machine(id, out);
        self.deliver();
    }

    fn pass(&mut self, ms: u64) {
        let until = self.now_ms + ms;
        loop {
            let ticks = self.machines.iter().map(|(id, m)| (m.facade.next_ms(), id));
            let due = self.machines.iter();
            let due = due.filter_map(|(id, m)| Some((m.due.first()?.clone(), id)));
            let tick = ticks.min().map(|(at, id)| (at, id.clone()));
            let due = due.min().map(|(due, id)| (due, id.clone()));
            let at = [
                Some(self.bridge.next_ms()),
                tick.as_ref().map(|tick| tick.0),
                due.as_ref().map(|due| due.0.0),
            ];
            let at = at.into_iter().flatten().min().unwrap_or(u64::MAX);
            if at > until {
                break;
            }
            self.now_ms = self.now_ms.max(at);
            if let Some(((due_ms, key, what), id)) = due.filter(|due| due.0.0 == at) {
                let machine = self.machines.get_mut(&id).unwrap();
                machine.due.remove(&(due_ms, key.clone(), what));
                self.happens(&id, &key, what);
            } else if let Some((_, id)) = tick.filter(|tick| tick.0 == at) {
                let machine = self.machines.get_mut(&id).unwrap();
                let out = machine.facade.handle(self.now_ms, FacadeInput::Tick);
                self.of_machine(&id, out);
            } else {
                let out = self.bridge.handle(self.now_ms, BridgeInput::Tick);
                self.of_bridge(out);
            }
            self.deliver();
        }
        self.now_ms = until;
    }

    fn start(&mut self, cell: &str, id: &str, index: u32) {
        let mut start = DeaStart::read(START.as_bytes()).unwrap().body;
        start.index = index;
        let start = Box::new(start);
        let out = self
            .bridge
            .handle(self.now_ms, BridgeInput::Start { cell, id, start });
        self.of_bridge(out);
        self.deliver();
    }

    fn stop(&mut self, id: &str) {
        let cell = self.bridge.holder(id).unwrap_or_default();
        let stop = BridgeInput::Stop { cell: &cell, id };
        let out = self.bridge.handle(self.now_ms, stop);
        self.of_bridge(out);
        self.deliver();
    }

    /// Returns the cell that stands for this DEA.
    fn cell_of(&self, dea: &str) -> String {
        let cells = (0..200).map(|n| format!("dea-{n}"));
        let mut cells = cells.filter(|cell| self.bridge.dea_of(cell) == Some(dea));
        cells.next().unwrap()
    }

    /// Makes a Cloud Controller start an instance on the DEA that it chooses.
    fn cloud_controller_starts(&mut self, index: u32) {
        let mut request = Request::new(APP, 512, 1_024);
        request.stack = Some("cflinuxfs2".into());
        let policy = Policy::preset("dea").unwrap();
        let context = PlanContext::default();
        let choice = self
            .cloud_controller
            .choose(self.now_ms, &request, &policy, &context);
        let dea = choice.decisions[0].cell.clone().unwrap();
        self.start_as_cloud_controller(&dea, index);
    }

    fn start_as_cloud_controller(&mut self, dea: &str, index: u32) {
        let mut start = DeaStart::read(START.as_bytes()).unwrap().body;
        start.index = index;
        self.bus.push_back(Message {
            subject: subjects::start(dea),
            reply: None,
            body: serde_json::to_vec(&start).unwrap(),
        });
        self.deliver();
    }

    fn running(&self) -> usize {
        let states = self.states.values();
        states
            .filter(|state| **state == BridgeInstanceState::Running)
            .count()
    }
}

#[test]
fn starts_are_acknowledged_by_the_first_question() {
    let mut world = World::new(100);
    let began_ms = world.now_ms;
    for n in 0..300_u32 {
        let cell = format!("dea-{}", n % 100);
        world.start(&cell, &format!("i{n}"), n);
    }
    world.pass(2_000);
    assert_eq!(world.answers.len(), 300);
    for (id, (at_ms, answer)) in &world.answers {
        assert_eq!(
            (answer, at_ms - began_ms),
            (&BridgeAnswer::Placed, 0),
            "{id}"
        );
    }
    assert_eq!(world.running(), 300);
    let rows: Vec<_> = world.bridge.estate().senders.iter().collect();
    assert!(rows.is_empty(), "{rows:?}");
    world.pass(20_000);
    assert_eq!(world.running(), 300, "nothing is taken for lost");
}

/// Both see the same advertisement.
#[test]
fn a_bridge_and_a_cloud_controller_never_get_the_same_memory() {
    let mut world = World::new(1);
    for n in 0..4 {
        world.start_as_cloud_controller("d0", n);
        world.start("dea-0", &format!("i{n}"), n);
    }
    world.pass(30_000);
    let placed = world
        .answers
        .values()
        .filter(|(_, answer)| *answer == BridgeAnswer::Placed);
    assert_eq!(
        placed.count(),
        2,
        "four of 512 MB fit, and two are the other's"
    );
    for (_, answer) in world.answers.values() {
        let full = "insufficient resources: memory";
        let refused = matches!(answer, BridgeAnswer::Refused { reason } if reason == full);
        assert!(refused || *answer == BridgeAnswer::Placed, "{answer:?}");
    }
    assert_eq!(world.running(), 2);
}

#[test]
fn a_cloud_controller_places_on_cells_as_on_deas() {
    let mut world = World::new(4);
    for n in 0..8 {
        world.cloud_controller_starts(n);
        world.pass(6_000);
    }
    let instances = world.machines.values();
    let on_each: Vec<usize> = instances
        .map(|machine| machine.facade.count(DeaInstanceState::Running))
        .collect();
    assert_eq!(on_each, [2; 4], "spread over zones and DEAs");
    assert_eq!(
        world.running(),
        0,
        "a bridge leaves alone what is not its own"
    );
}

#[test]
fn a_bridge_that_was_killed_knows_everything_again() {
    let mut world = World::new(10);
    for n in 0..20_u32 {
        world.start(&format!("dea-{}", n % 10), &format!("i{n}"), n);
    }
    // in the middle of that
    world.pass(50);
    world.bridge = new_bridge(world.now_ms);
    world.states.clear();
    world.pass(11_000);
    assert_eq!(world.running(), 20);
    world.stop("i7");
    world.pass(11_000);
    assert_eq!(world.states["i7"], BridgeInstanceState::Stopped);
    assert_eq!(world.running(), 19);
}

#[test]
fn a_dea_that_starts_again_has_another_id_and_lost_what_it_had() {
    let mut world = World::new(2);
    let (cell, other) = (world.cell_of("d0"), world.cell_of("d1"));
    world.start(&cell, "i0", 0);
    world.start(&other, "i1", 1);
    world.pass(1_000);
    world.machines.remove("d0");
    world.add("d0-again", 7);
    world.pass(60_000);
    assert_eq!(world.states["i0"], BridgeInstanceState::Lost);
    assert_eq!(world.states["i1"], BridgeInstanceState::Running);
    let again = world.cell_of("d0-again");
    assert_ne!(again, other);
    world.start(&again, "i2", 0);
    world.pass(1_000);
    assert_eq!(world.states["i2"], BridgeInstanceState::Running);
}

/// The instance is started elsewhere before it is stopped, so one is running at every moment.
#[test]
fn a_dea_is_emptied_without_a_moment_at_which_nothing_runs() {
    let mut world = World::new(2);
    let (from, to) = (world.cell_of("d0"), world.cell_of("d1"));
    world.start(&from, "old", 0);
    world.pass(1_000);
    let machine = world.machines.get_mut("d0").unwrap();
    let out = machine.facade.handle(world.now_ms, FacadeInput::Evacuate);
    world.of_machine("d0", out);
    world.deliver();
    let cell = world.bridge.cell(&from, world.now_ms).unwrap();
    assert!(cell.evacuating);
    assert_eq!(world.running(), 1, "it goes on");
    world.start(&to, "new", 0);
    world.pass(1_000);
    assert_eq!(world.running(), 2);
    world.stop("old");
    world.pass(11_000);
    assert_eq!(world.states["old"], BridgeInstanceState::Stopped);
    assert_eq!(world.running(), 1);
    assert_eq!(world.machines["d0"].reserved.len(), 0);
}
