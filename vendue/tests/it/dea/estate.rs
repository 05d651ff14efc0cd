//! Scripted DEAs on a nats-server of their own: they behave as `Facade` does, which was written after the originals, and say
//! everything more often.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use advertiser::dea::{
    DeaStart, Facade, FacadeEvent, FacadeInput, FacadeOptions, FacadeOutput, FacadeRoom, subjects,
};
use async_nats::{Client, Message};
use futures_util::{StreamExt, stream::select_all};
use testkit::NatsServer;
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinHandle,
    time::sleep,
};

/// What a test has a DEA do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Its first instance fails.
    Crash,
    /// It is emptied.
    Evacuate,
    /// Its machine is gone.
    Vanish,
}

/// What runs: by DEA and the facade's name of the instance.
pub(super) type Running = BTreeMap<(String, String), DeaStart>;

pub(super) struct Estate {
    pub(super) server: NatsServer,
    running: Arc<Mutex<Running>>,
    orders: UnboundedSender<(String, Order)>,
    task: JoinHandle<()>,
}

impl Drop for Estate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Deas {
    client: Client,
    facades: BTreeMap<String, (Facade, FacadeRoom)>,
    running: Arc<Mutex<Running>>,
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

impl Estate {
    /// So many DEAs of 1,024 MB, `d0` and so on, in two zones.
    pub(super) async fn of(count: usize) -> Self {
        let server = NatsServer::start().await;
        let running = Arc::default();
        let (orders, ordered) = unbounded_channel();
        let deas = Deas {
            client: server.client().await,
            facades: BTreeMap::new(),
            running: Arc::clone(&running),
        };
        let task = tokio::spawn(deas.run(count, ordered));
        Self {
            server,
            running,
            orders,
            task,
        }
    }

    pub(super) fn order(&self, dea: &str, order: Order) {
        self.orders.send((dea.to_owned(), order)).unwrap();
    }

    pub(super) fn running(&self) -> Running {
        self.running.lock().unwrap().clone()
    }

    /// How many instances run.
    pub(super) fn count(&self) -> usize {
        self.running.lock().unwrap().len()
    }
}

impl Deas {
    async fn run(mut self, count: usize, mut orders: UnboundedReceiver<(String, Order)>) {
        let mut subscriptions = Vec::new();
        for subject in [
            subjects::STOP,
            subjects::FIND,
            subjects::LOCATE,
            subjects::HEALTH_MANAGER_START,
            "dea.*.start",
        ] {
            subscriptions.push(self.client.subscribe(subject).await.unwrap());
        }
        let mut messages = select_all(subscriptions);
        self.client.flush().await.unwrap();
        for n in 0..count {
            self.greet(n).await;
        }
        loop {
            let next = self.facades.values().map(|(facade, _)| facade.next_ms());
            let next_ms = next.min().unwrap_or(u64::MAX);
            let pause = Duration::from_millis(next_ms.saturating_sub(now_ms()).min(1_000));
            tokio::select! {
                message = messages.next() => self.heard(&message.unwrap()).await,
                order = orders.recv() => match order {
                    Some((dea, order)) => self.ordered(&dea, order).await,
                    None => return,
                },
                () = sleep(pause) => self.tick().await,
            }
        }
    }

    async fn greet(&mut self, n: usize) {
        let id = format!("d{n}");
        let seed = u64::try_from(n).unwrap();
        let mut options = FacadeOptions::new(&id, "10.0.0.1", vec!["cflinuxfs2".into()], seed);
        options.zone = format!("z{}", n % 2);
        (options.advertise_ms, options.heartbeat_ms) = (300, 500);
        let room = FacadeRoom {
            memory: 1_024,
            available_memory: 1_024,
            available_disk: None,
        };
        let (facade, out) = Facade::new(options, room, now_ms()).unwrap();
        self.facades.insert(id.clone(), (facade, room));
        self.perform(&id, out).await;
    }

    async fn heard(&mut self, message: &Message) {
        let ids: Vec<String> = self.facades.keys().cloned().collect();
        for id in ids {
            let heard = FacadeInput::Heard {
                subject: &message.subject,
                reply: message.reply.as_deref(),
                body: &message.payload,
            };
            let (facade, _) = self.facades.get_mut(&id).unwrap();
            let out = facade.handle(now_ms(), heard);
            self.perform(&id, out).await;
        }
    }

    async fn tick(&mut self) {
        let ids: Vec<String> = self.facades.keys().cloned().collect();
        for id in ids {
            let (facade, _) = self.facades.get_mut(&id).unwrap();
            if facade.next_ms() <= now_ms() {
                let out = facade.handle(now_ms(), FacadeInput::Tick);
                self.perform(&id, out).await;
            }
        }
    }

    async fn ordered(&mut self, dea: &str, order: Order) {
        let Some((facade, room)) = self.facades.get_mut(dea) else {
            return;
        };
        let out = match order {
            Order::Evacuate => facade.handle(now_ms(), FacadeInput::Evacuate),
            Order::Vanish => {
                self.facades.remove(dea);
                self.running.lock().unwrap().retain(|(on, _), _| on != dea);
                return;
            }
            Order::Crash => {
                let mut running = self.running.lock().unwrap();
                let first = running.keys().find(|(on, _)| on == dea).cloned();
                let Some(first) = first else {
                    return;
                };
                let start = running.remove(&first).unwrap();
                room.available_memory += start.limits.mem;
                drop(running);
                facade.handle(now_ms(), FacadeInput::Room(*room));
                let event = FacadeEvent::Crashed {
                    exit_status: 3,
                    description: "exit 3".into(),
                };
                let key = &first.1;
                facade.handle(now_ms(), FacadeInput::Instance { key, event })
            }
        };
        self.perform(dea, out).await;
    }

    /// The cells behind the facades do at once what they are told.
    async fn perform(&mut self, id: &str, out: Vec<FacadeOutput>) {
        let mut left = VecDeque::from(out);
        while let Some(output) = left.pop_front() {
            let (facade, room) = self.facades.get_mut(id).unwrap();
            let (key, events) = match output {
                FacadeOutput::Publish { subject, body } => {
                    self.client.publish(subject, body.0.into()).await.unwrap();
                    continue;
                }
                FacadeOutput::Start { key, start } => {
                    room.available_memory -= start.limits.mem;
                    let at = (id.to_owned(), key.clone());
                    self.running.lock().unwrap().insert(at, *start);
                    (key, vec![FacadeEvent::Accepted, FacadeEvent::Running(None)])
                }
                FacadeOutput::Stop { key } => {
                    let at = (id.to_owned(), key.clone());
                    let stopped = self.running.lock().unwrap().remove(&at);
                    room.available_memory += stopped.map_or(0, |start| start.limits.mem);
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
