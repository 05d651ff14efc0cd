//! One process per instance, each under its own supervisor (see [`crate::supervisor`]).

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{
        fs::{PermissionsExt, chown},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, mpsc as threads},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use async_nats::Client;
use placement::{HealthCheck, Run};
use shared::InstanceId;
use shared::{
    Subjects,
    clock::millis,
    wire::{LogLine, Logs as Wanted, Work},
};
use tokio::{runtime::Handle, sync::mpsc};

use super::{
    ExecutorError,
    environment::{DeviceVariables, environment},
    follow::{EndSignal, Started, follow},
    form_orders::FormOrders,
    forms::{self, Scripts},
    groups::Groups,
    home::Home,
    jobs::next_job,
    logs::{Left, Logs},
    ports::{Port, Ports},
    probe::Prober,
    usage::Meter,
    users::{User, Users},
};
use crate::{
    config::{ProcessConfig, RepConfig},
    ledger::{CheckOf, EndReason, ExecutorReport, InstanceChange, RunningProcess},
    outbox::{Counters, Outbox},
    secrets::{Secrets, write_below},
    sources::Sources,
    supervisor::{Orders, SourceOrders},
    tree,
};

/// The most reports that wait for the cell; beyond that, followers wait.
const REPORTS: usize = 1_024;
/// How long a supervisor may take to read its orders.
const INSTRUCT: Duration = Duration::from_secs(5);
/// How often to look for what other reps have left: a supervisor may be killed at any time.
const SWEEP: Duration = Duration::from_secs(30);

/// The instances of one cell.
#[derive(Debug)]
pub(crate) struct Processes {
    /// To the thread that starts supervisors; none once closed.
    jobs: Option<threads::Sender<Job>>,
    spawner: Option<JoinHandle<()>>,
    reports: mpsc::Receiver<ExecutorReport>,
    /// Ends that attempt.
    running: HashMap<InstanceId, (u32, EndSignal)>,
    logs: Arc<Logs>,
    sources: Arc<Sources>,
    groups: Groups,
    prober: Prober,
    meter: Arc<Mutex<Meter>>,
    reports_to: mpsc::Sender<ExecutorReport>,
}

/// One instance to start.
#[derive(Debug)]
struct Job {
    work: Arc<Work>,
    attempt: u32,
    end: EndSignal,
}

/// Owned by the spawning thread.
struct Spawner {
    cell: String,
    zone: String,
    devices: DeviceVariables,
    grace_ms: u64,
    limits: ProcessConfig,
    scripts: Scripts,
    secrets: Secrets,
    sources: Arc<Sources>,
    counters: Arc<Counters>,
    supervisor: PathBuf,
    users: Users,
    home: Home,
    groups: Groups,
    ports: Ports,
    logs: Arc<Logs>,
    reports: mpsc::Sender<ExecutorReport>,
    runtime: Handle,
}

impl Processes {
    pub(crate) fn start(
        config: &RepConfig,
        (process, scripts): (&ProcessConfig, Scripts),
        client: &Client,
        subjects: &Subjects,
        counters: Arc<Counters>,
    ) -> Result<Self, ExecutorError> {
        let users = Users::choose(process, &config.cell)?;
        let home = Home::make(process, &config.cell);
        let no_directory = |source| ExecutorError::Directory {
            directory: process.state_dir.clone(),
            source,
        };
        let home = home.map_err(no_directory)?;
        let sources = Sources::open(process, &config.cell).map_err(no_directory)?;
        let sources = Arc::new(sources);
        let (groups, text) = Groups::choose(process.memory, &config.cell);
        users.make_locks()?;
        sweep(&groups, &users, &home);
        users.check_unused()?;
        tracing::info!(cell = config.cell, home = %home.path().display(), "{text}");
        users.log(&config.cell);
        let outbox = Outbox::new(client.clone(), Arc::clone(&counters));
        let logs = Logs::new(
            &config.cell,
            subjects.clone(),
            outbox,
            Arc::clone(&counters),
        );
        let (reports_to, reports) = mpsc::channel(REPORTS);
        let (jobs, jobs_of) = threads::channel();
        let spawner = Spawner {
            cell: config.cell.clone(),
            zone: config.zone.clone(),
            devices: DeviceVariables::of(&config.total, &process.device_env),
            grace_ms: millis(config.grace.0),
            limits: process.clone(),
            scripts,
            secrets: Secrets::of(process.secrets.as_deref()),
            sources: Arc::clone(&sources),
            counters,
            supervisor: process.supervisor.clone().unwrap_or_else(supervisor),
            users,
            home,
            groups: groups.clone(),
            ports: Ports::new(process.ports, &config.cell),
            logs: Arc::clone(&logs),
            reports: reports_to.clone(),
            runtime: Handle::current(),
        };
        // a supervisor gets a signal when the thread that started it ends, so the thread must last
        let spawner = std::thread::Builder::new()
            .name("spawner".into())
            .spawn(move || spawner.serve(&jobs_of))
            .map_err(ExecutorError::Thread)?;
        Ok(Self {
            jobs: Some(jobs),
            spawner: Some(spawner),
            reports,
            running: HashMap::new(),
            logs,
            sources,
            groups,
            prober: Prober::new(reports_to.clone()),
            meter: Arc::default(),
            reports_to,
        })
    }

    pub(crate) fn launch(&mut self, work: &Arc<Work>, attempt: u32) {
        let end = EndSignal::default();
        self.running.insert(work.instance, (attempt, end.clone()));
        let job = Job {
            work: Arc::clone(work),
            attempt,
            end,
        };
        if let Some(jobs) = &self.jobs {
            // the thread lives as long as this sender
            let _ = jobs.send(job);
        }
    }

    pub(crate) fn end(&mut self, instance: InstanceId, attempt: u32, at_once: bool) {
        if let Some((running, end)) = self.running.get(&instance)
            && *running == attempt
        {
            if at_once {
                end.killed.cancel();
            } else {
                end.asked.cancel();
            }
        }
    }

    /// Runs one check of an attempt, and reports the result.
    pub(crate) fn check(
        &self,
        attempt: (InstanceId, u32),
        of: CheckOf,
        check: &Arc<HealthCheck>,
        port: Option<u16>,
    ) {
        self.prober.check(attempt, of, Arc::clone(check), port);
    }

    /// Measures what these processes use and reports it. Skipped while the last measurement is still running or too
    /// many reports wait: the next one makes up for it.
    pub(crate) fn measure(&self, all: Vec<RunningProcess>) {
        let (meter, reports) = (Arc::clone(&self.meter), self.reports_to.clone());
        tokio::task::spawn_blocking(move || {
            let Ok(mut meter) = meter.try_lock() else {
                return;
            };
            for (one, usage) in meter.measure(&all) {
                let measured = ExecutorReport {
                    instance: one.instance,
                    attempt: one.attempt,
                    change: InstanceChange::Measured(usage),
                };
                let _ = reports.try_send(measured);
            }
        });
    }

    pub(crate) async fn next_report(&mut self) -> ExecutorReport {
        let Some(report) = self.reports.recv().await else {
            return std::future::pending().await;
        };
        if matches!(report.change, InstanceChange::Ended(_)) {
            self.running.remove(&report.instance);
        }
        report
    }

    pub(crate) fn take_left(&self, instance: &InstanceId) -> Option<Left> {
        self.logs.take_left(instance)
    }

    pub(crate) fn log_lines(&self, wanted: &Wanted, most: usize) -> Vec<LogLine> {
        self.logs.last(wanted, most)
    }

    /// Returns the names of the cached sources, if they have changed since the last call.
    pub(crate) fn cached_blobs(&self) -> Option<Vec<String>> {
        self.sources.news()
    }

    /// Ends the spawning thread; a remaining supervisor notices that and ends its instance.
    pub(crate) async fn close(&mut self) {
        self.jobs = None;
        self.reports.close();
        if let Some(spawner) = self.spawner.take() {
            let _ = tokio::task::spawn_blocking(move || spawner.join()).await;
        }
        self.groups.close();
        self.logs.flush().await;
    }
}

impl Spawner {
    fn serve(mut self, jobs: &threads::Receiver<Job>) {
        let mut swept = Instant::now();
        loop {
            let sweep = || sweep(&self.groups, &self.users, &self.home);
            let Some(job) = next_job(jobs, &mut swept, SWEEP, sweep) else {
                return;
            };
            let (instance, attempt) = (job.work.instance, job.attempt);
            let started = if job.end.is_given() {
                Err("stopped before it was started".into())
            } else {
                self.spawn(job)
            };
            match started {
                Ok(started) => {
                    let reports = self.reports.clone();
                    self.runtime.spawn(follow(started, reports));
                }
                Err(why) => {
                    let report = ExecutorReport {
                        instance,
                        attempt,
                        change: InstanceChange::Ended(EndReason::Failed(why)),
                    };
                    // the receiver is gone once the cell has ended
                    let _ = self.reports.blocking_send(report);
                }
            }
        }
    }

    fn spawn(&mut self, job: Job) -> Result<Started, String> {
        let run = job.work.run.clone().ok_or("nothing to run")?;
        let port = run
            .needs_port()
            .then(|| self.ports.take().ok_or("no port is free"));
        let port = port.transpose()?;
        let name = format!("{}-{}", job.work.instance, job.attempt);
        let directory = self.home.path().join(&name);
        let place = (port.as_ref(), directory.as_path());
        let form = forms::orders(&job.work, &run, place, &self.scripts)?;
        let user = self.users.take()?;
        let sink = self.logs.sink(&job.work);
        let memory_mb = self.limits.memory_if_zero.limit_mb(job.work.memory_mb);
        let of_instance = (port.as_ref(), memory_mb, directory.as_path());
        let variables = self.variables(&job.work, &run, form.as_ref(), of_instance);
        let environment = variables.inspect_err(|_| nothing_is_left(user.as_ref()))?;
        let max_processes = u64::from(self.limits.max_processes);
        let group = self.groups.group(&name, memory_mb, max_processes);
        let mut watch_memory = matches!(self.groups, Groups::Watch);
        let (cgroup, bounds_processes) = group.unwrap_or_else(|e| {
            let text = format!("cannot make a control group ({e}): limits enforced by polling");
            sink.line("vendue", text);
            watch_memory = true;
            (None, false)
        });
        let user_lock = user.as_ref().and_then(|user| user.own.as_ref());
        let counted = bounds_processes || user_lock.is_some();
        let orders = Orders {
            parent: std::process::id(),
            grace_ms: self.grace_ms,
            user: user.as_ref().map(|user| (user.uid, user.gid)),
            user_lock: user_lock.map(|lock| lock.path.clone()),
            cgroup,
            watch_mb: if watch_memory { memory_mb } else { 0 },
            disk_mb: self.limits.disk_if_zero.limit_mb(job.work.disk_mb),
            max_processes,
            watch_processes: if counted { 0 } else { max_processes },
            max_files: u64::from(self.limits.max_files),
            directory,
            has_result: form.as_ref().is_some_and(|form| form.has_result),
            source: self.source(&run, form.as_ref()),
            command: command(&run, form.as_ref()),
            environment,
        };
        let file = form.and_then(|form| form.file);
        let (child, socket) = self.start(&orders, &run, file).inspect_err(|_| {
            let _ = orders.cgroup.as_ref().map(fs::remove_dir);
            let _ = tree::remove(&orders.directory);
            nothing_is_left(user.as_ref());
        })?;
        Ok(Started {
            instance: job.work.instance,
            attempt: job.attempt,
            child,
            socket,
            port,
            sink,
            sources: Arc::clone(&self.sources),
            counters: Arc::clone(&self.counters),
            end: job.end,
            cgroup: orders.cgroup,
            directory: orders.directory,
            user,
        })
    }

    /// Returns the environment: what the cell sets, then what a form such as a droplet needs, then what the request
    /// adds, as on DEAs, then secrets.
    fn variables(
        &self,
        work: &Work,
        run: &Run,
        form: Option<&FormOrders>,
        (port, memory_mb, directory): (Option<&Port>, u64, &Path),
    ) -> Result<BTreeMap<OsString, OsString>, String> {
        let (cell, zone) = (&self.cell, &self.zone);
        let devices = &self.devices;
        let mut variables = environment(cell, zone, work, port, memory_mb, directory, devices)?;
        let of_form = form.iter().flat_map(|form| &form.variables);
        variables.extend(of_form.map(|(name, value)| (name.into(), value.into())));
        let added = run.env.iter().filter(|_| form.is_some());
        variables.extend(added.map(|(name, value)| (name.into(), value.into())));
        variables.extend(self.secrets.variables(run)?);
        Ok(variables)
    }

    fn source(&self, run: &Run, form: Option<&FormOrders>) -> Option<SourceOrders> {
        // cached sources are named by their SHA-256, which droplets do not have
        let cache = self.sources.directory().filter(|_| form.is_none());
        let cache = cache.map(Path::to_owned);
        let of_form = form.and_then(|form| form.source.clone());
        Some(SourceOrders {
            what: of_form.or_else(|| run.source.clone())?,
            cache,
            timeout_ms: millis(self.limits.source_timeout.0),
            authorities: self.limits.source_ca.clone(),
        })
    }

    fn start(
        &self,
        orders: &Orders,
        run: &Run,
        file: Option<(&str, Vec<u8>)>,
    ) -> Result<(Child, UnixStream), String> {
        let directory = &orders.directory;
        let about = |e: io::Error| format!("{}: {e}", directory.display());
        fs::create_dir(directory).map_err(about)?;
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).map_err(about)?;
        if let Some((uid, gid)) = orders.user {
            chown(directory, Some(uid), Some(gid)).map_err(about)?;
        }
        self.secrets.write_files(run, directory, orders.user)?;
        if let Some((name, content)) = file {
            let written = write_below(directory, Path::new(name), &content, orders.user);
            written.map_err(|e| format!("{name}: {e}"))?;
        }
        let (mut ours, theirs) = UnixStream::pair().map_err(|e| e.to_string())?;
        let mut child = Command::new(&self.supervisor)
            // the directory as an argument identifies the instance in process lists
            .args([OsStr::new("supervise"), directory.as_os_str()])
            .env_clear()
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start its supervisor: {e}"))?;
        let sent = ours
            .set_write_timeout(Some(INSTRUCT))
            .and_then(|()| orders.write_to(&mut ours));
        if let Err(error) = sent {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("cannot instruct its supervisor: {error}"));
        }
        Ok((child, ours))
    }
}

/// Returns the command to execute.
fn command(run: &Run, form: Option<&FormOrders>) -> Vec<OsString> {
    let words = form.map_or(&run.command, |form| &form.command);
    words.iter().map(Into::into).collect()
}

/// Releases the user of an instance that was not started.
fn nothing_is_left(user: Option<&User>) {
    if let Some(lock) = user.and_then(|user| user.own.as_ref()) {
        lock.nothing_is_left();
    }
}

/// Ends and removes what is left of reps that were killed together with supervisors.
fn sweep(groups: &Groups, users: &Users, home: &Home) {
    groups.sweep();
    users.sweep();
    home.sweep();
}

/// Returns the small supervisor program next to `vendue`, or otherwise the running program, even if its file has been
/// replaced.
fn supervisor() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    let small = own.with_file_name("vendue-supervisor");
    if own.file_name().is_some_and(|name| name == "vendue") && small.is_file() {
        return small;
    }
    "/proc/self/exe".into()
}
