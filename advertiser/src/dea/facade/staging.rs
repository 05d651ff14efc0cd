//! The staging of apps by a facade: requests, replies, and giving up.
//!
//! A task gets two replies: first that it has begun, or why not, and then how it ended. A stopped task gets a reply of
//! its own at once, and no further one.

use serde_json::{Map, Value};

use super::{Facade, FacadeEvent, FacadeOutput, MAX_FACADE_INSTANCES, publish};
use crate::dea::{
    DeaInstanceState, DeaStaged, DeaStagingBegun, DeaStagingFailed, DeaStagingStart, DeaStart,
    Hidden, StagingRun, subjects,
};

/// How long the result of a task may take to arrive after its process has ended.
const RESULT_MS: u64 = 5_000;

/// The staging of an app, for the cell.
#[derive(Clone, Debug, PartialEq)]
pub struct FacadeStaging {
    /// The app.
    pub app: String,
    /// MB.
    pub memory_mb: i64,
    /// MB.
    pub disk_mb: i64,
    /// What to stage.
    pub run: StagingRun,
}

/// How staging ended on the cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FacadeStaged {
    /// Why it failed; none if its command has exited with code 0.
    pub failed: Option<String>,
    /// What the command reports about the droplet: `droplet_sha1`, `detected_buildpack` and so on, as in the reply.
    pub left: Hidden<Map<String, Value>>,
    /// The end of its output.
    pub output: Hidden<Option<String>>,
}

/// A staging task of a Cloud Controller.
#[derive(Debug)]
pub(super) struct StagingTask {
    task_id: String,
    app: String,
    reply: Option<String>,
    /// The start of index 0, which is sent once there is a droplet.
    start: DeaStart,
    memory_mb: i64,
    disk_mb: i64,
    /// Whether the cell has accepted it.
    begun: bool,
    /// Whether it was told to end, and nobody waits for it any more.
    stopped: bool,
    /// When it is given up.
    due_ms: u64,
    /// How its process ended, while its result may still be on its way.
    ended: Option<String>,
}

impl StagingTask {
    pub(super) fn app(&self) -> &str {
        &self.app
    }

    pub(super) fn state(&self) -> DeaInstanceState {
        if self.stopped {
            DeaInstanceState::Stopping
        } else {
            DeaInstanceState::Running
        }
    }
}

/// Returns why it failed, in the words of DEAs.
fn error(why: &str) -> String {
    format!("Error staging: {why}")
}

impl Facade {
    pub(super) fn set_stages(&mut self, stages: bool, out: &mut Vec<FacadeOutput>) {
        if std::mem::replace(&mut self.stages, stages) != stages && !self.evacuating {
            self.advertise_staging(out);
        }
    }

    /// Returns whether the cell stages apps.
    pub fn stages(&self) -> bool {
        self.stages
    }

    /// Returns the additional subjects to subscribe to if the cell stages apps. The last one is this DEA's own.
    pub fn staging_subjects(&self) -> [String; 3] {
        let own = subjects::staging_start(&self.options.id);
        [
            subjects::STAGING_STOP.to_owned(),
            subjects::STAGING_LOCATE.to_owned(),
            own,
        ]
    }

    /// Advertises the room for staging, if apps are staged.
    pub(super) fn advertise_staging(&self, out: &mut Vec<FacadeOutput>) {
        if self.stages {
            let advertisement = self.staging_advertisement();
            out.push(publish(subjects::STAGING_ADVERTISE, &advertisement));
        }
    }

    /// Returns the memory and disk, in MB, of each task that was sent to the cell and has not been accepted yet.
    pub(super) fn staging_sent(&self) -> impl Iterator<Item = (i64, i64)> {
        let sent = self.staging.values().filter(|task| !task.begun);
        sent.map(|task| (task.memory_mb, task.disk_mb))
    }

    pub(super) fn staging_next_ms(&self) -> u64 {
        let due = self.staging.values().filter(|task| !task.stopped);
        due.map(|task| task.due_ms).min().unwrap_or(u64::MAX)
    }

    /// Handles a task that was read. If there is no room, saying so is the only reply.
    pub(super) fn stage(
        &mut self,
        now_ms: u64,
        start: DeaStagingStart,
        reply: Option<&str>,
        out: &mut Vec<FacadeOutput>,
    ) {
        let limits = start.start_message.limits;
        if limits.mem < 0 || limits.disk < 0 {
            self.malformed += 1; // it would make room
            return;
        }
        let (memory_mb, disk_mb) = self.options.staging_mb;
        let (memory_mb, disk_mb) = (memory_mb.max(limits.mem), disk_mb.max(limits.disk));
        let full = self.staging.len() >= MAX_FACADE_INSTANCES;
        self.dropped += u64::from(full);
        let short = self.short_of(memory_mb, disk_mb);
        if let Some(resource) = short.or(full.then_some("task")) {
            self.not_staged += 1;
            let error = format!("Not enough {resource} resources available");
            return respond(reply, &failed(&start.task_id, error), out);
        }
        let key = self.draw_id();
        let staging = FacadeStaging {
            app: start.app_id.clone(),
            memory_mb,
            disk_mb,
            run: StagingRun::of_start(&start),
        };
        let task = StagingTask {
            task_id: start.task_id,
            app: start.app_id,
            reply: reply.map(str::to_owned),
            start: start.start_message,
            memory_mb,
            disk_mb,
            begun: false,
            stopped: false,
            due_ms: now_ms + self.options.staging_ms,
            ended: None,
        };
        self.staging.insert(key.clone(), task);
        let staging = Box::new(staging);
        out.push(FacadeOutput::Stage { key, staging });
    }

    /// Handles an event of the cell about a task, which is ignored if the task is unknown.
    pub(super) fn staging_happened(
        &mut self,
        now_ms: u64,
        key: &str,
        event: FacadeEvent,
        out: &mut Vec<FacadeOutput>,
    ) {
        let Some(task) = self.staging.get_mut(key) else {
            return;
        };
        let has_ended = matches!(event, FacadeEvent::Crashed { .. } | FacadeEvent::Stopped);
        if task.stopped && has_ended {
            self.staging.remove(key);
            return;
        }
        match event {
            FacadeEvent::Accepted | FacadeEvent::Running(_) if task.begun => {}
            FacadeEvent::Accepted | FacadeEvent::Running(_) => {
                task.begun = true;
                let begun = begun(&task.task_id, None);
                respond(task.reply.as_deref().filter(|_| !task.stopped), &begun, out);
            }
            FacadeEvent::Crashed { description, .. } if !task.begun => {
                self.not_staged += 1;
                let begun = begun(&task.task_id, Some(error(&description)));
                respond(task.reply.as_deref(), &begun, out);
                self.staging.remove(key);
            }
            // its result says more, and may be on its way
            FacadeEvent::Crashed { description, .. } => {
                task.ended = Some(format!("{description}; more was not heard from the cell"));
                task.due_ms = task.due_ms.min(now_ms + RESULT_MS);
            }
            FacadeEvent::Stopped => {
                task.ended = Some("task stopped".to_owned());
                task.due_ms = task.due_ms.min(now_ms + RESULT_MS);
            }
            FacadeEvent::Staged(staged) => self.staged(now_ms, key, *staged, out),
            FacadeEvent::Used(_) => {}
        }
    }

    /// Handles the end of a task. After the reply the same DEA starts index 0.
    fn staged(
        &mut self,
        now_ms: u64,
        key: &str,
        staged: FacadeStaged,
        out: &mut Vec<FacadeOutput>,
    ) {
        let Some(task) = self.staging.remove(key).filter(|task| !task.stopped) else {
            return;
        };
        let answer = answer(&task.task_id, staged);
        respond(task.reply.as_deref(), &answer, out);
        if answer.error.is_some() {
            self.not_staged += 1;
            return;
        }
        self.staged += 1;
        let start = DeaStart {
            sha1: answer.droplet_sha1,
            ..task.start
        };
        // without an address the cell has no droplet: a health manager then has the missing index 0 started elsewhere
        let can_start = !self.evacuating && !start.executable_uri.0.is_empty();
        if can_start && self.instances.len() < MAX_FACADE_INSTANCES {
            // the cell decides: its last report may not yet include what staging has released
            self.start_unless(None, now_ms, start, out);
        }
    }

    /// Handles that the cell has lost its tasks: whoever waits for one gets the reply that is due, with an error.
    pub(super) fn lose_staging(&mut self, out: &mut Vec<FacadeOutput>) {
        let tasks = std::mem::take(&mut self.staging).into_values();
        for task in tasks.filter(|task| !task.stopped) {
            self.not_staged += 1;
            let (reply, why) = (task.reply.as_deref(), "the cell was restarted".to_owned());
            if task.begun {
                let staged = FacadeStaged {
                    failed: Some(why),
                    ..FacadeStaged::default()
                };
                respond(reply, &answer(&task.task_id, staged), out);
            } else {
                respond(reply, &begun(&task.task_id, Some(error(&why))), out);
            }
        }
    }

    /// Ends tasks that take too long or have ended without a result.
    pub(super) fn end_overdue_staging(&mut self, now_ms: u64, out: &mut Vec<FacadeOutput>) {
        let overdue = |task: &StagingTask| !task.stopped && task.due_ms <= now_ms;
        let tasks = self.staging.iter();
        let keys = tasks.filter(|(_, task)| overdue(task));
        let keys: Vec<String> = keys.map(|(key, _)| key.clone()).collect();
        for key in keys {
            let Some(task) = self.staging.get_mut(&key) else {
                continue;
            };
            self.not_staged += 1;
            let late = format!("not done after {} s", self.options.staging_ms / 1_000);
            let ended = task.ended.clone();
            let staged = FacadeStaged {
                failed: Some(ended.unwrap_or(late)),
                ..FacadeStaged::default()
            };
            respond(task.reply.as_deref(), &answer(&task.task_id, staged), out);
            self.end_staging(&key, out);
        }
    }

    /// Ends a task that nobody waits for any more. If it runs, it is stopped, and remembered until it has ended.
    fn end_staging(&mut self, key: &str, out: &mut Vec<FacadeOutput>) {
        let has_ended = |task: &StagingTask| task.ended.is_some();
        if self.staging.get(key).is_some_and(has_ended) {
            self.staging.remove(key);
        } else if let Some(task) = self.staging.get_mut(key) {
            task.stopped = true;
            out.push(FacadeOutput::Stop {
                key: key.to_owned(),
            });
        }
    }

    /// Stops the staging of an app, or of all apps.
    pub(super) fn stop_staging(&mut self, app: Option<&str>, out: &mut Vec<FacadeOutput>) {
        let meant = |task: &StagingTask| !task.stopped && app.is_none_or(|app| app == task.app());
        let keys = self.staging.iter().filter(|(_, task)| meant(task));
        let keys: Vec<String> = keys.map(|(key, _)| key.clone()).collect();
        for key in keys {
            if let Some(task) = self.staging.get(&key) {
                let stopped = failed(&task.task_id, error("task stopped"));
                respond(task.reply.as_deref(), &stopped, out);
            }
            self.not_staged += 1;
            self.end_staging(&key, out);
        }
    }
}

fn respond(reply: Option<&str>, body: &impl serde::Serialize, out: &mut Vec<FacadeOutput>) {
    out.extend(reply.map(|reply| publish(reply, body)));
}

fn failed(task_id: &str, error: String) -> DeaStagingFailed {
    DeaStagingFailed {
        task_id: task_id.to_owned(),
        error,
    }
}

fn begun(task_id: &str, error: Option<String>) -> DeaStagingBegun {
    DeaStagingBegun {
        task_id: task_id.to_owned(),
        // there is no file server
        task_streaming_log_url: Hidden(None),
        error,
    }
}

/// Returns the second reply. A task that reports no droplet has failed, whatever its exit code.
fn answer(task_id: &str, staged: FacadeStaged) -> DeaStaged {
    let left = &staged.left.0;
    let text = |key: &str| left.get(key).and_then(Value::as_str).map(str::to_owned);
    let is_sha1 = |text: &String| text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit());
    let sha1 = text("droplet_sha1").filter(is_sha1);
    let unknown = "its result has no droplet_sha1 of 40 hexadecimal digits";
    let why = staged.failed.as_deref();
    let why = why.or(sha1.is_none().then_some(unknown));
    let info = left.get("error_info").and_then(Value::as_object);
    DeaStaged {
        task_id: task_id.to_owned(),
        detected_buildpack: text("detected_buildpack"),
        buildpack_key: text("buildpack_key"),
        droplet_sha1: sha1,
        detected_start_command: Hidden(text("detected_start_command")),
        procfile: Hidden(
            left.get("procfile")
                .filter(|value| !value.is_null())
                .cloned(),
        ),
        app_id: None,
        task_log: staged.output,
        error: why.map(error),
        error_info: info.filter(|_| why.is_some()).cloned(),
    }
}
