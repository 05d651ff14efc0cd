//! A bridge to hundreds of DEAs over a real nats-server: it is killed and started again, and starts at the same time as a
//! Cloud Controller. The DEAs are facades, with cells that do at once what they are told.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use advertiser::dea::{
    Bridge, BridgeAnswer, BridgeInput, BridgeInstanceState, BridgeOptions, BridgeOutput,
    DeaInstanceState, DeaLimits, DeaStart, Estate, EstateOptions, Facade, FacadeEvent, FacadeInput,
    FacadeOptions, FacadeOutput, FacadeRoom, subjects,
};
use async_nats::{Client, Message};
use futures_util::{StreamExt, stream::select_all};
use testkit::{NatsServer, eventually_within};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::sleep,
};

/// Long enough for a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);
const DEAS: usize = 200;

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// Until a time of [`now_ms`].
async fn until(at_ms: u64) {
    sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()))).await;
}

/// DEAs of 2 GB in two zones, all on one connection. They say things more often than real ones.
struct Deas {
    client: Client,
    facades: BTreeMap<String, (Facade, FacadeRoom)>,
    counts: Arc<Mutex<usize>>,
}

impl Deas {
    async fn run(mut self) {
        let mut subscriptions = Vec::new();
        let every = [subjects::STOP, subjects::FIND, "dea.*.start"];
        for subject in every {
            subscriptions.push(self.client.subscribe(subject).await.unwrap());
        }
        let mut messages = select_all(subscriptions);
        self.greet().await;
        loop {
            let next = self.facades.values().map(|(facade, _)| facade.next_ms());
            let next_ms = next.min().unwrap();
            tokio::select! {
                message = messages.next() => self.heard(&message.unwrap()).await,
                () = until(next_ms) => self.tick(next_ms).await,
            }
            let running = self.facades.values();
            let running = running.map(|(facade, _)| facade.count(DeaInstanceState::Running));
            *self.counts.lock().unwrap() = running.sum();
        }
    }

    async fn greet(&mut self) {
        for n in 0..DEAS {
            let id = format!("d{n}");
            let seed = u64::try_from(n).unwrap();
            let mut options = FacadeOptions::new(&id, "10.0.0.1", vec!["cflinuxfs2".into()], seed);
            options.zone = format!("z{}", n % 2);
            (options.advertise_ms, options.heartbeat_ms) = (1_000, 1_000);
            let room = FacadeRoom {
                memory: 2_048,
                available_memory: 2_048,
                available_disk: None,
            };
            let (facade, out) = Facade::new(options, room, now_ms()).unwrap();
            self.facades.insert(id.clone(), (facade, room));
            self.perform(&id, out).await;
        }
    }

    async fn heard(&mut self, message: &Message) {
        let subject = message.subject.as_str();
        let own = subject
            .strip_prefix("dea.")
            .and_then(|rest| rest.strip_suffix(".start"));
        let ids: Vec<String> = match own {
            Some(id) => vec![id.to_owned()],
            None => self.facades.keys().cloned().collect(),
        };
        for id in ids {
            let Some((facade, _)) = self.facades.get_mut(&id) else {
                continue;
            };
            let heard = FacadeInput::Heard {
                subject,
                reply: message.reply.as_deref(),
                body: &message.payload,
            };
            let out = facade.handle(now_ms(), heard);
            self.perform(&id, out).await;
        }
    }

    async fn tick(&mut self, due_ms: u64) {
        let ids: Vec<String> = self.facades.keys().cloned().collect();
        for id in ids {
            let (facade, _) = self.facades.get_mut(&id).unwrap();
            if facade.next_ms() <= due_ms {
                let out = facade.handle(now_ms(), FacadeInput::Tick);
                self.perform(&id, out).await;
            }
        }
    }

    async fn perform(&mut self, id: &str, out: Vec<FacadeOutput>) {
        let mut left = std::collections::VecDeque::from(out);
        while let Some(output) = left.pop_front() {
            let (facade, room) = self.facades.get_mut(id).unwrap();
            let (key, events) = match output {
                FacadeOutput::Publish { subject, body } => {
                    self.client.publish(subject, body.0.into()).await.unwrap();
                    continue;
                }
                FacadeOutput::Start { key, start } => {
                    room.available_memory -= start.limits.mem;
                    (key, vec![FacadeEvent::Accepted, FacadeEvent::Running(None)])
                }
                // every instance here is of the same size
                FacadeOutput::Stop { key } => {
                    room.available_memory += start().limits.mem;
                    (key, vec![FacadeEvent::Stopped])
                }
            };
            assert!(room.available_memory >= 0, "memory was promised twice");
            facade.handle(now_ms(), FacadeInput::Room(*room));
            for event in events {
                let key = &key;
                left.extend(facade.handle(now_ms(), FacadeInput::Instance { key, event }));
            }
        }
    }
}

/// An instance of 512 MB: four of them fill a DEA.
fn start() -> DeaStart {
    DeaStart {
        droplet: "app".into(),
        version: "v".into(),
        stack: "cflinuxfs2".into(),
        cc_partition: "default".into(),
        limits: DeaLimits {
            mem: 512,
            disk: 1_024,
            fds: 256,
        },
        ..DeaStart::default()
    }
}

/// What a test has a bridge do.
enum Order {
    Start(String, String),
    Stop(String),
}

/// What is known of a bridge, from outside.
#[derive(Default)]
struct Seen {
    /// The cell that each DEA is.
    cells: BTreeMap<String, String>,
    answers: BTreeMap<String, BridgeAnswer>,
    states: BTreeMap<String, BridgeInstanceState>,
}

struct RunningBridge {
    orders: UnboundedSender<Order>,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl RunningBridge {
    async fn begin(client: Client) -> Self {
        let (orders, received) = unbounded_channel();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut subscriptions = Vec::new();
        for subject in Estate::SUBJECTS {
            subscriptions.push(client.subscribe(subject).await.unwrap());
        }
        client.flush().await.unwrap();
        let task = drive(client, subscriptions, received, Arc::clone(&seen));
        let task = tokio::spawn(task);
        Self { orders, seen, task }
    }

    fn start(&self, cell: &str, id: &str) {
        let order = Order::Start(cell.to_owned(), id.to_owned());
        self.orders.send(order).unwrap();
    }

    /// Waits until so many are of a kind.
    async fn until<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        expected: T,
        look: impl Fn(&Seen) -> T,
    ) {
        let found = async || {
            let found = look(&self.seen.lock().unwrap());
            (found == expected)
                .then_some(())
                .ok_or(format!("{found:?}"))
        };
        eventually_within(PATIENCE, what, found).await;
    }
}

fn running(seen: &Seen) -> usize {
    let states = seen.states.values();
    states
        .filter(|state| **state == BridgeInstanceState::Running)
        .count()
}

async fn drive(
    client: Client,
    subscriptions: Vec<async_nats::Subscriber>,
    mut orders: UnboundedReceiver<Order>,
    seen: Arc<Mutex<Seen>>,
) {
    let options = BridgeOptions {
        name: "dea".into(),
        slots: DEAS,
        // longer than a slow machine may pause
        estate: EstateOptions { expiry_s: 60 },
        settle_ms: 0,
    };
    let mut bridge = Bridge::new(options, now_ms()).unwrap();
    let mut messages = select_all(subscriptions);
    let inbox = client.new_inbox();
    let mut replies = client.subscribe(inbox.clone()).await.unwrap();
    loop {
        let next_ms = bridge.next_ms();
        let out = tokio::select! {
            message = messages.next() => {
                let message = message.unwrap();
                let (subject, body) = (message.subject.as_str(), &message.payload[..]);
                bridge.handle(now_ms(), BridgeInput::Heard { subject, body })
            }
            reply = replies.next() => {
                bridge.handle(now_ms(), BridgeInput::Found(&reply.unwrap().payload))
            }
            order = orders.recv() => match order {
                None => return,
                Some(Order::Stop(id)) => bridge.handle(now_ms(), BridgeInput::Stop { id: &id }),
                Some(Order::Start(cell, id)) => {
                    let start = Box::new(start());
                    let (cell, id) = (cell.as_str(), id.as_str());
                    bridge.handle(now_ms(), BridgeInput::Start { cell, id, start })
                }
            },
            () = until(next_ms) => bridge.handle(now_ms(), BridgeInput::Tick),
        };
        for output in out {
            match output {
                BridgeOutput::Publish { subject, body } => {
                    client.publish(subject, body.0.into()).await.unwrap();
                }
                BridgeOutput::Ask { subject, body } => {
                    let asked = client.publish_with_reply(subject, inbox.clone(), body.into());
                    asked.await.unwrap();
                }
                told => note(&seen, &bridge, told),
            }
        }
    }
}

fn note(seen: &Mutex<Seen>, bridge: &Bridge, told: BridgeOutput) {
    let mut seen = seen.lock().unwrap();
    match told {
        BridgeOutput::Advertise(cell) => {
            assert_eq!(cell.check(), Ok(()));
            let dea = bridge.dea_of(&cell.cell).unwrap().to_owned();
            seen.cells.insert(dea, cell.cell);
        }
        BridgeOutput::Withdraw(cell) => seen.cells.retain(|_, known| *known != cell),
        BridgeOutput::Answer { id, answer } => {
            let double = seen.answers.insert(id, answer);
            assert!(double.is_none(), "answered twice");
        }
        BridgeOutput::Instance { id, state, .. } => _ = seen.states.insert(id, state),
        BridgeOutput::Publish { .. } | BridgeOutput::Ask { .. } => {}
    }
}

/// DEAs on a server of their own, and how many instances run on them.
async fn estate() -> (NatsServer, JoinHandle<()>, Arc<Mutex<usize>>) {
    let server = NatsServer::start().await;
    let counts = Arc::new(Mutex::new(0));
    let deas = Deas {
        client: server.client().await,
        facades: BTreeMap::new(),
        counts: Arc::clone(&counts),
    };
    (server, tokio::spawn(deas.run()), counts)
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_deas_through_a_bridge_that_is_killed() {
    let (server, deas, counts) = estate().await;
    let bridge = RunningBridge::begin(server.client().await).await;
    bridge
        .until("a cell for each DEA", DEAS, |seen| seen.cells.len())
        .await;
    for n in 0..2 * DEAS {
        bridge.start(&format!("dea-{}", n % DEAS), &format!("i{n}"));
    }
    bridge
        .until("an answer to each start", 2 * DEAS, |seen| {
            seen.answers.len()
        })
        .await;
    {
        let seen = bridge.seen.lock().unwrap();
        // on a machine that is too slow for the 800 ms the answer is that nobody knows
        let refused = |answer: &BridgeAnswer| matches!(answer, BridgeAnswer::Refused { .. });
        assert!(!seen.answers.values().any(refused));
    }
    bridge
        .until("every instance to run", 2 * DEAS, running)
        .await;
    bridge.task.abort();
    let again = RunningBridge::begin(server.client().await).await;
    again
        .until("what runs to be known again", 2 * DEAS, running)
        .await;
    for n in 0..DEAS {
        again.orders.send(Order::Stop(format!("i{n}"))).unwrap();
    }
    again
        .until("half of them to be stopped", DEAS, running)
        .await;
    assert_eq!(*counts.lock().unwrap(), DEAS);
    deas.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_and_a_cloud_controller_start_on_the_same_deas() {
    let (server, deas, counts) = estate().await;
    let bridge = RunningBridge::begin(server.client().await).await;
    bridge
        .until("a cell for each DEA", DEAS, |seen| seen.cells.len())
        .await;
    let cloud_controller = server.client().await;
    let body = serde_json::to_vec(&start()).unwrap();
    // six for the room of four on each of ten DEAs
    for n in 0..10 {
        for of_dea in 0..3 {
            let sent =
                cloud_controller.publish(subjects::start(&format!("d{n}")), body.clone().into());
            sent.await.unwrap();
            let dea = format!("d{n}");
            let cell = bridge.seen.lock().unwrap().cells[&dea].clone();
            bridge.start(&cell, &format!("{dea}-{of_dea}"));
        }
    }
    bridge
        .until("an answer to each start", 30, |seen| seen.answers.len())
        .await;
    let full = async || {
        let running = *counts.lock().unwrap();
        (running == 40)
            .then_some(())
            .ok_or(format!("{running} run"))
    };
    eventually_within(PATIENCE, "ten full DEAs", full).await;
    let seen = bridge.seen.lock().unwrap();
    for (id, answer) in &seen.answers {
        if let BridgeAnswer::Refused { reason } = answer {
            assert_eq!(reason, "insufficient resources: memory", "{id}");
        }
    }
    deas.abort();
}
