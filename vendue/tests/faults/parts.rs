//! A cluster of separate processes on a real server, each of which can be killed, frozen or cut off.

use std::{
    collections::BTreeMap,
    fs::File,
    path::Path,
    process::{Child, Stdio},
    time::Duration,
};

use async_nats::Client;
use futures_util::StreamExt;
use nats_server::spawn;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use shared::{
    Subjects, ask,
    wire::{
        Event, Instance, Instances, InstancesAnswer, Outcome, PoolAnswer, StartReply, to_bytes,
    },
};
use testkit::{NatsServer, eventually};

/// The ttl of cells in these tests.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// One process of the cluster, killed when this goes out of scope and when the test's process ends.
pub(crate) struct Part(Child);

impl Part {
    /// Starts any of vendue's roles.
    pub(crate) fn start(url: &str, arguments: &[&str]) -> Self {
        let mut command = spawn::command(Path::new(env!("CARGO_BIN_EXE_vendue")));
        command
            .args(arguments)
            .env("NATS_URL", url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log_of(arguments));
        Self(spawn::spawn(command).expect("start vendue"))
    }

    pub(crate) fn auctioneer(url: &str, policy: &str) -> Self {
        Self::start(url, &["auctioneer", "--policy", policy])
    }

    /// Starts a cell with a simulated executor.
    pub(crate) fn simulated(url: &str, name: &str) -> Self {
        Self::rep(url, name, &["--simulated"])
    }

    /// Starts a cell that runs processes, as the user who runs the test.
    pub(crate) fn rep(url: &str, name: &str, more: &[&str]) -> Self {
        let zone = name.split('-').next().expect("a zone in the name");
        let mut arguments = vec!["rep", "--cell", name, "--zone", zone];
        let standard = [("--memory", "1024"), ("--disk", "1024"), ("--ttl", "3s")];
        for (flag, value) in standard {
            if !more.contains(&flag) {
                arguments.extend([flag, value]);
            }
        }
        arguments.extend(["--interval", "1s", "--grace", "2s"]);
        arguments.extend(more);
        Self::start(url, &arguments)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).expect("a pid");
        kill_process(Pid::from_raw(pid).expect("a pid"), signal).expect("send a signal");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns whether it has not ended.
    pub(crate) fn lives(&mut self) -> bool {
        self.0.try_wait().expect("wait").is_none()
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().expect("kill");
        self.0.wait().expect("wait");
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn ended(&mut self) -> bool {
        eventually("the process to end", async || {
            self.0.try_wait().expect("wait")
        })
        .await
        .success()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // it may already have ended
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns where a part writes its log: to a file in the directory `LOGS`, if that is set.
fn log_of(arguments: &[&str]) -> Stdio {
    let Some(folder) = std::env::var_os("LOGS") else {
        return Stdio::inherit();
    };
    let mut named = arguments
        .windows(2)
        .filter(|pair| ["--name", "--cell"].contains(&pair[0]));
    let name = named.next().map_or(arguments[0], |pair| pair[1]);
    let path = Path::new(&folder).join(format!("{name}.log"));
    let file = File::options().create(true).append(true).open(&path);
    file.unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        .into()
}

/// A test's view of the cluster.
pub(crate) struct Observer {
    pub(crate) client: Client,
    pub(crate) subjects: Subjects,
}

impl Observer {
    pub(crate) async fn of(server: &NatsServer) -> Self {
        Self::of_all(std::slice::from_ref(server)).await
    }

    /// Connects to whichever of these servers answers.
    pub(crate) async fn of_all(servers: &[NatsServer]) -> Self {
        let urls: Vec<String> = servers.iter().map(NatsServer::url).collect();
        // a frozen server is left quickly if there is another one
        let ping = if urls.len() > 1 { 1 } else { 60 };
        let client = async_nats::ConnectOptions::new()
            .reconnect_delay_callback(|_| Duration::from_millis(50))
            .ping_interval(Duration::from_secs(ping))
            .connection_timeout(Duration::from_secs(2))
            .connect(urls)
            .await
            .expect("a client");
        Self {
            client,
            subjects: Subjects::new("vendue").expect("a prefix"),
        }
    }

    /// Returns the cells that an auctioneer knows, by name, and whether each is silent.
    pub(crate) async fn pool(&self) -> Result<BTreeMap<String, bool>, String> {
        let answer = self.client.request(self.subjects.pool(), "".into()).await;
        let answer = answer.map_err(|e| e.to_string())?;
        let pool: PoolAnswer =
            serde_json::from_slice(&answer.payload).map_err(|e| e.to_string())?;
        Ok(pool
            .cells
            .into_iter()
            .map(|c| (c.cell.cell, c.silent))
            .collect())
    }

    /// Waits until exactly these cells are known.
    pub(crate) async fn cells(&self, names: &[&str]) {
        let what = format!("the pool to be {names:?}");
        eventually(&what, async || {
            let pool = self.pool().await?;
            let same = pool.keys().map(String::as_str).eq(names.iter().copied());
            if same {
                Ok(())
            } else {
                Err(format!("{pool:?}"))
            }
        })
        .await;
    }

    /// Requests instances of a command that only waits.
    pub(crate) async fn start(
        &self,
        id: &str,
        app: &str,
        instances: u32,
    ) -> Result<StartReply, String> {
        let request = json!({"id": id, "app": app, "instances": instances, "memory_mb": 16,
            "disk_mb": 16, "run": {"command": ["sleep", "1000"]}});
        let answer = self
            .client
            .request(self.subjects.start(), to_bytes(&request))
            .await;
        let answer = answer.map_err(|e| e.to_string())?;
        serde_json::from_slice(&answer.payload).map_err(|_| format!("{answer:?}"))
    }

    /// Like [`Observer::start`], but with a new request each time until all of it is placed (the same request would get
    /// the same answer).
    pub(crate) async fn placed(&self, id: &str, app: &str, instances: u32) -> StartReply {
        let mut attempt = 0;
        eventually("a placement", async || {
            attempt += 1;
            match self
                .start(&format!("{id}-{attempt}"), app, instances)
                .await?
            {
                reply if reply.outcome == Outcome::Placed => Ok(reply),
                reply => Err(format!("{reply:?}")),
            }
        })
        .await
    }

    /// Returns every instance that the cells list, with its cell. Asks again until all cells answer, as some may only
    /// just be reconnecting.
    async fn listed(&self, cells: usize, app: Option<&str>) -> Vec<(String, Instance)> {
        eventually("all cells to say what runs", async || {
            let (mut listed, mut answered) = (Vec::new(), 0);
            let question = Instances {
                v: shared::VERSION,
                app: app.map(str::to_owned),
                ..Instances::default()
            };
            let heard = |message: async_nats::Message| {
                let answer: InstancesAnswer =
                    serde_json::from_slice(&message.payload).expect("instances");
                answered += usize::from(!answer.more);
                let cell = answer.cell;
                listed.extend(answer.instances.into_iter().map(|i| (cell.clone(), i)));
                answered == cells
            };
            let (subject, body) = (self.subjects.instances(), to_bytes(&question));
            let wait = Duration::from_secs(2);
            let ended = ask::gather(&self.client, subject, body, wait, None, heard).await;
            match ended {
                Ok(_) if answered == cells => Ok(listed),
                other => Err(format!("{answered} of {cells} cells answered, {other:?}")),
            }
        })
        .await
    }

    /// Returns every instance on every cell, by id.
    pub(crate) async fn instances(&self, cells: usize) -> BTreeMap<shared::InstanceId, Instance> {
        let listed = self.listed(cells, None).await;
        listed.into_iter().map(|(_, i)| (i.instance, i)).collect()
    }

    /// Returns the cells on which an instance of the app holds its place, one entry per instance.
    pub(crate) async fn holders(&self, cells: usize, app: &str) -> Vec<String> {
        use shared::wire::InstanceState::{Crashed, Exited};
        let mut listed = self.listed(cells, Some(app)).await;
        listed.retain(|(_, instance)| ![Crashed, Exited].contains(&instance.state));
        listed.into_iter().map(|(cell, _)| cell).collect()
    }

    /// Returns the running instances, each with its cell, in order.
    pub(crate) async fn running(&self, cells: usize) -> Vec<(String, String)> {
        let mut listed = self.listed(cells, None).await;
        listed.retain(|(_, instance)| instance.state == shared::wire::InstanceState::Running);
        let pairs = listed
            .into_iter()
            .map(|(cell, i)| (i.instance.to_string(), cell));
        let mut pairs: Vec<_> = pairs.collect();
        pairs.sort();
        pairs
    }

    /// Stops an app.
    pub(crate) async fn stop(&self, app: &str) {
        let stop = to_bytes(&json!({ "app": app }));
        let answer = self.client.request(self.subjects.stop(), stop).await;
        answer.expect("an answer to a stop");
    }

    /// Returns everything that happens from now on.
    pub(crate) async fn events(&self) -> Events {
        let subscription = self
            .client
            .subscribe(self.subjects.events())
            .await
            .expect("subscribe");
        self.client.flush().await.expect("flush");
        Events {
            subscription,
            seen: Vec::new(),
        }
    }
}

/// Events, in the order of their arrival.
pub(crate) struct Events {
    subscription: async_nats::Subscriber,
    seen: Vec<Event>,
}

impl Events {
    /// Waits for an event of this kind about this app or cell; earlier events are kept.
    pub(crate) async fn wait(&mut self, kind: &str, about: &str) -> Event {
        let found = async {
            while let Some(message) = self.subscription.next().await {
                let event: Event = serde_json::from_slice(&message.payload).expect("an event");
                self.seen.push(event.clone());
                if event.kind == kind && event.about() == about {
                    return event;
                }
            }
            panic!("the subscription ended");
        };
        let patience = testkit::DEFAULT_DEADLINE;
        let found = tokio::time::timeout(patience, found).await;
        found.unwrap_or_else(|_| panic!("no {kind} event about {about}; seen: {:?}", self.seen))
    }

    /// Returns how many events of this kind have been seen.
    pub(crate) fn count(&self, kind: &str) -> usize {
        self.seen.iter().filter(|e| e.kind == kind).count()
    }
}

/// Returns whether a process is alive, rather than a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.trim_start().chars().next());
    state.is_some_and(|s| s != 'Z' && s != 'X')
}

/// Returns the pids of instances, each of which must have one.
pub(crate) fn pids(instances: &BTreeMap<shared::InstanceId, Instance>) -> Vec<u32> {
    instances
        .values()
        .map(|i| i.pid.unwrap_or_else(|| panic!("no pid: {i:?}")))
        .collect()
}

/// Returns a reply as JSON, for panic messages.
pub(crate) fn shown(reply: &StartReply) -> Value {
    serde_json::to_value(reply).unwrap_or_default()
}
