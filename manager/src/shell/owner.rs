//! The task that owns the machine.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use shared::{
    clock::Clock,
    shutdown::CancellationToken,
    wire::{WireError, code},
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{sleep_until, timeout},
};

use super::{
    Counted, ManagerError, Shell, counters,
    desk::{Desk, Ready},
    service::{Asked, ReplyTo, RequestService},
    store::StoreError,
};
use crate::{
    ids::{Revision, WriteId},
    io::{ManagerInput, ManagerOutput, TaskInput, TaskOutput, WriteResult},
    manager::Manager,
    stored::StoredKey,
};

/// Maximum number of inputs of one kind that are taken before the machine runs, as the lease must not wait for long.
const AT_ONCE: usize = 256;
/// Maximum number of concurrent writes; all others but those of the lease wait.
const WRITES: usize = 256;
/// Maximum number of answers being read or sent; further requests are refused.
const ANSWERS: usize = 1_024;
/// How long to wait at the end for what is in flight.
const LEAVE: Duration = Duration::from_secs(3);
/// How often the service's counters are updated.
const FIGURES: Duration = Duration::from_secs(1);

pub(super) struct Owner {
    shell: Shell,
    machine: Manager,
    clock: Clock,
    /// What cells and auctioneers report.
    heard: mpsc::Receiver<ManagerInput>,
    /// What the watch of the buckets shows.
    shown: mpsc::Receiver<ManagerInput>,
    asked: mpsc::Receiver<Asked>,
    desk: Desk,
    /// Each ends with the input that reports its result.
    writes: JoinSet<ManagerInput>,
    permits: Arc<Semaphore>,
    answers: JoinSet<()>,
    /// Number of messages that the client had dropped by the last step.
    dropped: u64,
    acting: bool,
}

impl Shell {
    /// Returns the result of a write, and counts it if it failed.
    fn result_of(
        &self,
        stored: Result<WriteResult, StoreError>,
        key: &impl std::fmt::Display,
    ) -> WriteResult {
        stored.unwrap_or_else(|error| {
            self.drops.failed_writes.fetch_add(1, Ordering::Relaxed);
            let (logged, left_out) = self.write_lines.next(Instant::now());
            if logged {
                tracing::warn!(%key, %error, left_out, "a write failed");
            }
            WriteResult::Failed
        })
    }
}

impl Owner {
    pub(super) fn new(
        shell: Shell,
        machine: Manager,
        clock: Clock,
        heard: mpsc::Receiver<ManagerInput>,
        shown: mpsc::Receiver<ManagerInput>,
        asked: mpsc::Receiver<Asked>,
    ) -> Self {
        Self {
            shell,
            machine,
            clock,
            heard,
            shown,
            asked,
            desk: Desk::default(),
            writes: JoinSet::new(),
            permits: Arc::new(Semaphore::new(WRITES)),
            answers: JoinSet::new(),
            dropped: 0,
            acting: false,
        }
    }

    pub(super) async fn own(
        mut self,
        requests: mpsc::Sender<Asked>,
        mut tasks: JoinSet<()>,
        shutdown: CancellationToken,
    ) -> Result<(), ManagerError> {
        let mut connected = self.shell.bus.connected.clone();
        let mut figures = tokio::time::interval(FIGURES);
        let mut refused = Box::pin(self.shell.clone().refused());
        let mut inputs = Vec::with_capacity(AT_ONCE);
        let (mut shown, mut heard) = (Vec::new(), Vec::new());
        let mut service = None;
        inputs.push(time_of_day());
        loop {
            if service.is_none() && self.machine.is_ready() {
                let open = RequestService::open(&self.shell, &requests, &mut tasks);
                service = Some(open.await?);
                let apps = self.machine.count();
                tracing::info!(apps, "ready: accepting requests");
            }
            let now_ms = self.clock.now_ms();
            let wake = self
                .clock
                .instant(self.machine.next_ms().min(now_ms + 1_000));
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                error = &mut refused => return Err(error),
                changed = connected.changed() => {
                    changed.map_err(|_| ManagerError::Closed)?;
                    if !*connected.borrow_and_update() {
                        inputs.push(ManagerInput::Interrupted);
                    }
                }
                Some(ended) = self.writes.join_next() => inputs.extend(ended.ok()),
                _ = self.shown.recv_many(&mut shown, AT_ONCE) => {}
                Some(asked) = self.asked.recv() => self.take(asked, &mut inputs),
                _ = self.heard.recv_many(&mut heard, AT_ONCE) => {}
                Some(_) = self.answers.join_next() => continue,
                _ = figures.tick() => {
                    self.tell_figures();
                    inputs.push(time_of_day());
                }
                () = sleep_until(wake) => {}
                Some(ended) = tasks.join_next() => {
                    tracing::debug!(?ended, "a task of the manager ended");
                    return Err(ManagerError::Closed);
                }
            }
            inputs.append(&mut shown);
            inputs.append(&mut heard);
            self.step(&mut inputs).await;
        }
        if let Some(mut service) = service {
            service.close().await;
        }
        self.leave().await;
        tasks.abort_all();
        Ok(())
    }

    fn take(&mut self, asked: Asked, inputs: &mut Vec<ManagerInput>) {
        if self.answers.len() >= ANSWERS {
            self.shell.count(Counted::Request);
            let error = WireError::new(code::OVERLOADED, "too many requests wait; try again");
            return self.answer(asked.to, Err(error));
        }
        let ready = self.desk.take(&self.shell, &self.machine, asked, inputs);
        self.ready(ready);
    }

    fn ready(&mut self, ready: Option<Ready>) {
        match ready {
            None => {}
            Some(Ready::Answer(to, answer)) => self.answer(to, answer),
            Some(Ready::TaskView(view)) => {
                let shell = self.shell.clone();
                self.answers.spawn(async move {
                    let body = view.body(&shell).await;
                    shell.answer(view.to, body).await;
                });
            }
            Some(Ready::View(view)) => {
                let shell = self.shell.clone();
                self.answers.spawn(async move {
                    let body = view.body(&shell).await;
                    shell.answer(view.to, body).await;
                });
            }
        }
    }

    fn answer(&mut self, to: ReplyTo, answer: Result<Bytes, WireError>) {
        let shell = self.shell.clone();
        self.answers
            .spawn(async move { shell.answer(to, answer).await });
    }

    /// Passes the inputs to the machine and carries out its outputs.
    async fn step(&mut self, inputs: &mut Vec<ManagerInput>) {
        let dropped = self.shell.bus.dropped.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.dropped, dropped) < dropped {
            inputs.push(ManagerInput::Interrupted);
        }
        loop {
            let now_ms = self.clock.now_ms();
            for input in inputs.drain(..) {
                self.machine.take(now_ms, input);
            }
            let outputs = self.machine.run(now_ms);
            let others = self.carry_out(outputs, inputs);
            self.shell.send_all(others).await;
            // an import continues with its next command
            if inputs.is_empty() {
                break;
            }
        }
        self.log_acting();
    }

    /// Begins writes and answers, and returns the remaining outputs.
    fn carry_out(
        &mut self,
        outputs: Vec<ManagerOutput>,
        inputs: &mut Vec<ManagerInput>,
    ) -> Vec<ManagerOutput> {
        let mut others = Vec::new();
        for output in outputs {
            match output {
                ManagerOutput::Write {
                    write,
                    key,
                    value,
                    expected,
                } => self.write(write, key, value, expected),
                ManagerOutput::Reply { to, answer } => {
                    let ready = self.desk.answered(&self.shell, to, answer, inputs);
                    self.ready(ready);
                }
                ManagerOutput::Moved { to, answer } => {
                    let ready = self.desk.moved(&self.shell, to, answer);
                    self.ready(ready);
                }
                ManagerOutput::Granted { to, reply } => {
                    let ready = self.desk.granted(&self.shell, to, reply);
                    self.ready(ready);
                }
                ManagerOutput::Task(output) => self.carry_out_task(*output),
                other => others.push(other),
            }
        }
        others
    }

    fn write(
        &mut self,
        write: WriteId,
        key: StoredKey,
        value: Option<Bytes>,
        expected: Option<Revision>,
    ) {
        let shell = self.shell.clone();
        let permits = Arc::clone(&self.permits);
        self.writes.spawn(async move {
            let _permit = match key {
                StoredKey::Lease => None,
                _ => permits.acquire_owned().await.ok(),
            };
            let stored = shell.store.write(&key, value, expected).await;
            let result = shell.result_of(stored, &key);
            ManagerInput::WriteEnded { write, result }
        });
    }

    fn carry_out_task(&mut self, output: TaskOutput) {
        match output {
            TaskOutput::Reply { to, answer } => {
                let ready = self.desk.task_answered(&self.shell, to, answer);
                self.ready(ready);
            }
            TaskOutput::Write {
                write,
                id,
                value,
                expected,
                ttl,
            } => {
                let shell = self.shell.clone();
                let permits = Arc::clone(&self.permits);
                self.writes.spawn(async move {
                    let _permit = permits.acquire_owned().await.ok();
                    let stored = shell.store.write_task(&id, value, expected, ttl).await;
                    let result = shell.result_of(stored, &id);
                    ManagerInput::Task(TaskInput::Written { write, result })
                });
            }
        }
    }

    fn log_acting(&mut self) {
        let acting = self.machine.is_acting();
        if std::mem::replace(&mut self.acting, acting) == acting {
            return;
        }
        let (apps, instances) = (self.machine.count(), self.machine.instances());
        if acting {
            tracing::info!(apps, instances, "the lease is held: this manager acts");
        } else {
            tracing::warn!(apps, instances, "this manager does not act any more");
        }
    }

    fn tell_figures(&self) {
        let newer = self.machine.meets_newer();
        self.shell.newer.store(newer, Ordering::Relaxed);
        let figures = counters::figures(&self.shell, &self.machine);
        let told = self.shell.figures.lock();
        *told.unwrap_or_else(PoisonError::into_inner) = figures;
    }

    /// Gives the lease back, waits for ongoing writes, and sends the remaining answers.
    async fn leave(mut self) {
        if std::mem::take(&mut self.acting) {
            tracing::info!("the lease is given back");
        }
        let mut inputs = vec![ManagerInput::Leave];
        let end = async {
            loop {
                self.step(&mut inputs).await;
                match self.writes.join_next().await {
                    Some(ended) => inputs.extend(ended.ok()),
                    None => break,
                }
            }
            while self.answers.join_next().await.is_some() {}
            self.shell.bus.client.flush().await
        };
        if timeout(LEAVE, end).await.is_err() {
            tracing::warn!("the last messages may not have been sent");
        }
    }
}

/// Returns the time of day. As it may be set at any time, the machine is told once a second.
fn time_of_day() -> ManagerInput {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let unix_ms = since_1970.map_or(0, shared::clock::millis);
    ManagerInput::Task(TaskInput::Time { unix_ms })
}
