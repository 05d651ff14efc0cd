//! Follows one instance from start to end: its supervisor's reports and its output.

use std::{
    fs,
    os::{fd::OwnedFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    process::Child,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use shared::InstanceId;
use shared::shutdown::CancellationToken;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::unix::pipe,
    sync::mpsc,
    time::{Instant, sleep_until, timeout},
};

use super::{
    groups,
    logs::{Lines, Sink},
    ports::Port,
    users::{User, end_users},
};
use crate::{
    ledger::{EndReason, ExecutorReport, InstanceChange, SUPERVISOR_LOST},
    leftovers,
    outbox::Counters,
    sources::Sources,
    supervisor::{END, KILL, SourceFrom, SupervisorReport},
    tree,
};

/// How long to wait for the last output of an instance after its end.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// The most bytes per second that are read of an instance's output; an instance that writes more has to wait.
const OUTPUT_PER_SECOND: usize = 4 << 20;

/// How often to try to remove a control group after its processes were killed.
const REMOVE_TRIES: u32 = 100;
/// The pause between two tries.
const REMOVE_PAUSE: Duration = Duration::from_millis(10);

/// The signal that an instance is to end: it is asked to, or killed at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct EndSignal {
    pub(crate) asked: CancellationToken,
    pub(crate) killed: CancellationToken,
}

impl EndSignal {
    /// Returns whether it was given, either way.
    pub(crate) fn is_given(&self) -> bool {
        self.asked.is_cancelled() || self.killed.is_cancelled()
    }
}

/// An instance whose supervisor has been started.
pub(crate) struct Started {
    pub(crate) instance: InstanceId,
    pub(crate) attempt: u32,
    pub(crate) child: Child,
    pub(crate) socket: UnixStream,
    pub(crate) port: Option<Port>,
    pub(crate) sink: Sink,
    pub(crate) sources: Arc<Sources>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) end: EndSignal,
    pub(crate) cgroup: Option<PathBuf>,
    pub(crate) directory: PathBuf,
    pub(crate) user: Option<User>,
}

/// Follows an instance to its end. When the end is reported, nothing of the instance is left.
pub(crate) async fn follow(mut started: Started, reports: mpsc::Sender<ExecutorReport>) {
    let sink = Arc::new(started.sink);
    let stdout = started.child.stdout.take().map(OwnedFd::from);
    let stderr = started.child.stderr.take().map(OwnedFd::from);
    let output = [
        tokio::spawn(read_output(stdout, "stdout", Arc::clone(&sink))),
        tokio::spawn(read_output(stderr, "stderr", Arc::clone(&sink))),
    ];
    let report = |change| ExecutorReport {
        instance: started.instance,
        attempt: started.attempt,
        change,
    };
    let (mut pid, port) = (None, started.port.as_ref().map(Port::number));
    let (statuses_to, mut statuses) = mpsc::channel(4);
    let listening = tokio::spawn(listen(started.socket, started.end, statuses_to));
    let mut how = None;
    while let Some(status) = statuses.recv().await {
        match status {
            SupervisorReport::Runs(number) => {
                pid = Some(number);
                let running = report(InstanceChange::Running { pid, port });
                // the receiver is gone once the cell has ended
                let _ = reports.send(running).await;
            }
            SupervisorReport::Source(from) => {
                count(&started.counters, from);
                let sources = Arc::clone(&started.sources);
                // before it is reported as running, so that the cell is then advertised with what it has cached
                let _ = tokio::task::spawn_blocking(move || sources.settle()).await;
            }
            SupervisorReport::Note(text) => {
                tracing::warn!(instance = %started.instance, "{text}");
                sink.line("vendue", text);
            }
            SupervisorReport::Result(text) => sink.result(&text),
            SupervisorReport::Ended(ended) => how = Some(ended),
        }
    }
    let _ = listening.await;
    let mut child = started.child;
    let (cgroup, directory, user) = (started.cgroup, started.directory, started.user);
    let lost = how.is_none();
    let status = tokio::task::spawn_blocking(move || {
        let status = child.wait();
        if lost {
            clean_up(pid, cgroup.as_deref(), &directory, user.as_ref());
        }
        status
    });
    let status = status.await;
    let how = how.unwrap_or_else(|| {
        let status = match status {
            Ok(Ok(status)) => status.to_string(),
            Ok(Err(e)) => e.to_string(),
            Err(e) => e.to_string(),
        };
        EndReason::Failed(format!("{SUPERVISOR_LOST} ({status})"))
    });
    for reader in output {
        let stop = reader.abort_handle();
        if timeout(LAST_OUTPUT, reader).await.is_err() {
            stop.abort();
        }
    }
    if let EndReason::Failed(why) = &how {
        sink.line("vendue", why.clone());
    }
    sink.close();
    drop(started.port);
    let _ = reports.send(report(InstanceChange::Ended(how))).await;
}

fn count(counters: &Counters, from: SourceFrom) {
    let counter = match from {
        SourceFrom::Network => &counters.sources_fetched,
        SourceFrom::Cache => &counters.sources_cached,
        SourceFrom::Nowhere => &counters.sources_failed,
    };
    counter.fetch_add(1, Ordering::Relaxed);
}

/// Passes on the supervisor's reports, and tells it when the instance is to end.
async fn listen(socket: UnixStream, end: EndSignal, statuses: mpsc::Sender<SupervisorReport>) {
    let socket = socket
        .set_nonblocking(true)
        .and_then(|()| tokio::net::UnixStream::from_std(socket));
    let Ok(socket) = socket else {
        return;
    };
    let (reader, mut writer) = socket.into_split();
    let mut lines = BufReader::with_capacity(512, reader).lines();
    let (mut end_sent, mut kill_sent) = (false, false);
    loop {
        tokio::select! {
            () = end.asked.cancelled(), if !end_sent => {
                end_sent = true;
                // a supervisor that has ended needs no message
                let _ = writer.write_all(&[END]).await;
            }
            () = end.killed.cancelled(), if !kill_sent => {
                kill_sent = true;
                let _ = writer.write_all(&[KILL]).await;
            }
            line = lines.next_line() => match line {
                Ok(Some(line)) => {
                    if let Some(status) = SupervisorReport::from_line(&line) {
                        let _ = statuses.send(status).await;
                    }
                }
                _ => return,
            }
        }
    }
}

async fn read_output(pipe: Option<OwnedFd>, stream: &'static str, sink: Arc<Sink>) {
    let Some(Ok(mut pipe)) = pipe.map(pipe::Receiver::from_owned_fd) else {
        return;
    };
    let mut bytes = vec![0; 4_096];
    let mut lines = Lines::default();
    let (mut second, mut count) = (Instant::now(), 0);
    while let Ok(n @ 1..) = pipe.read(&mut bytes).await {
        lines.feed(&bytes[..n], |line| sink.line(stream, line));
        count += n;
        if count >= OUTPUT_PER_SECOND {
            // in the meantime the instance's writes block: it must not take all of the rep's time
            sleep_until(second + Duration::from_secs(1)).await;
            (second, count) = (Instant::now(), 0);
        }
    }
    if let Some(rest) = lines.rest() {
        sink.line(stream, rest);
    }
}

/// Does what the supervisor would have done, had it not been killed itself, for those processes of the instance that
/// can be found without it.
fn clean_up(pid: Option<u32>, cgroup: Option<&Path>, directory: &Path, user: Option<&User>) {
    let group = pid.and_then(|n| i32::try_from(n).ok());
    if let Some(group) = group.and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    if let Some(cgroup) = cgroup {
        groups::kill(cgroup);
        // the group can only be removed once its last process has been reaped
        for _ in 0..REMOVE_TRIES {
            if fs::remove_dir(cgroup).is_ok() || !cgroup.exists() {
                break;
            }
            std::thread::sleep(REMOVE_PAUSE);
        }
    }
    if let Some((uid, lock)) = user.and_then(|user| Some((user.uid, user.own.as_ref()?))) {
        if end_users(&[uid]) {
            lock.nothing_is_left();
        }
    } else {
        let directory = directory.to_owned();
        leftovers::kill_all(|| leftovers::processes_in(std::slice::from_ref(&directory)));
    }
    let _ = tree::remove(directory);
}
