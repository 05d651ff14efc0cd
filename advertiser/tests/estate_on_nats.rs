//! A bridge to hundreds of DEAs over a real nats-server: it is killed and restarted, and starts instances at the same
//! time as a Cloud Controller.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use advertiser::{
    SimulatedEstate,
    dea::{
        Bridge, BridgeAnswer, BridgeInput, BridgeInstanceState, BridgeOptions, BridgeOutput,
        DeaLimits, DeaStart, Estate, EstateOptions, FacadeOptions, SimulatedDeas, subjects,
    },
};
use async_nats::Client;
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

/// Waits until a time of [`now_ms`].
async fn until(at_ms: u64) {
    sleep(Duration::from_millis(at_ms.saturating_sub(now_ms()))).await;
}

/// Returns an instance of 512 MB: four of them fill a DEA.
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

/// An order of a test to a bridge.
enum Order {
    Start(String, String),
    Stop(String),
}

/// What is visible of a bridge from outside.
#[derive(Default)]
struct Seen {
    /// The cell that stands for each DEA.
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

    /// Waits until `look` returns the expected value.
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
        mark: "m".into(),
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
            // a DEA says why it refused an instance before it replies that the instance has crashed
            biased;
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
                Some(Order::Stop(id)) => {
                    let cell = bridge.holder(&id).unwrap_or_default();
                    let stop = BridgeInput::Stop { cell: &cell, id: &id };
                    bridge.handle(now_ms(), stop)
                }
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

/// Starts DEAs of 2 GB in two zones on a server of their own. They speak more often than real ones.
async fn estate() -> (NatsServer, SimulatedEstate) {
    let server = NatsServer::start().await;
    let deas = SimulatedEstate::start(server.client().await, SimulatedDeas::default()).await;
    let deas = deas.unwrap();
    for n in 0..DEAS {
        let seed = u64::try_from(n).unwrap();
        let stacks = vec!["cflinuxfs2".to_owned()];
        let mut options = FacadeOptions::new(&format!("d{n}"), "10.0.0.1", stacks, seed);
        options.zone = format!("z{}", n % 2);
        (options.advertise_ms, options.heartbeat_ms) = (1_000, 1_000);
        deas.act(|deas, now_ms| deas.add(now_ms, options, 2_048).unwrap());
    }
    (server, deas)
}

/// Returns how many instances run.
fn count(deas: &SimulatedEstate) -> usize {
    deas.look(|deas| {
        assert!(deas.least_memory_mb >= 0, "memory was promised twice");
        deas.instances().count()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_deas_through_a_bridge_that_is_killed() {
    let (server, deas) = estate().await;
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
        // on a machine that is too slow for the 800 ms, the answer is unknown
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
    assert_eq!(count(&deas), DEAS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_and_a_cloud_controller_start_on_the_same_deas() {
    let (server, deas) = estate().await;
    let bridge = RunningBridge::begin(server.client().await).await;
    bridge
        .until("a cell for each DEA", DEAS, |seen| seen.cells.len())
        .await;
    let cloud_controller = server.client().await;
    let body = serde_json::to_vec(&start()).unwrap();
    // for each of ten DEAs, six instances where four fit
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
        let running = count(&deas);
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
}
