//! `app wait`, and `--wait` of commands that start something: wait until everything wanted runs.

use std::time::Duration;

use serde::Serialize;
use shared::wire::{AppChanged, AppStatus, Rollout, code};
use tokio::time::{Instant, sleep};

use super::{check_app, list, show};
use crate::{
    cluster::Cluster,
    context::{Exit, Failure, Format, Global, failure_code},
    output::{self, note},
};

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(500);
/// An instance is unplaced if it found no place for this long while nothing was in progress: a reason that persists for
/// a shorter time may refer to an earlier desired state.
const UNPLACED_FOR: Duration = Duration::from_secs(3);
/// The time within which every manager has heard what one has stored.
const HEARD_OF: Duration = Duration::from_secs(5);
/// Temporary errors.
const TEMPORARY: [&str; 2] = [failure_code::UNREACHABLE, failure_code::NO_ANSWER];
/// Waits shorter than this say nothing; longer ones report changes.
const QUIET: Duration = Duration::from_secs(2);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 0 when all instances that are wanted run in the wanted version and are healthy (for \
                  `update.min_healthy`, when the version is new), or when none is wanted and none runs; with 3 when \
                  instances are not placed; with 1 when the rollout failed, an index crashed too often, or the time \
                  is up."
)]
pub(crate) struct WaitArgs {
    /// The apps
    #[arg(value_name = "APP", required = true)]
    apps: Vec<String>,
    /// How long to wait at most
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// The options of commands that can wait for what they began.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct Waiting {
    /// Wait until everything that is wanted runs; exit codes as of `vendue app wait`
    #[arg(long)]
    wait: bool,
    /// With --wait: how long at most [default: 10m]
    #[arg(long, value_name = "TIME", requires = "wait", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,
}

/// The default timeout: how long a rollout may be without progress unless its app says otherwise.
const TIMEOUT: Duration = Duration::from_secs(600);

impl Waiting {
    /// Waits if that is requested.
    pub(super) async fn until_ready(
        &self,
        cluster: &Cluster,
        targets: Vec<Target>,
    ) -> anyhow::Result<Option<Vec<Waited>>> {
        if !self.wait {
            return Ok(None);
        }
        until_ready(cluster, targets, self.timeout.unwrap_or(TIMEOUT))
            .await
            .map(Some)
    }
}

/// What is waited for. A manager that has not heard of a change yet shows the earlier state, which does not count.
#[derive(Debug)]
pub(super) struct Target {
    app: String,
    /// At least this version.
    version: u32,
    /// The number of instances; none = the one that the manager reports.
    wanted: Option<u32>,
    /// Whether it is to run: being stopped is not the awaited state.
    runs: bool,
}

impl Target {
    /// Returns an app as it is.
    fn of(app: &str) -> Self {
        Self {
            app: app.to_owned(),
            version: 0,
            wanted: None,
            runs: false,
        }
    }

    /// Returns an app after a change that leaves it running.
    pub(super) fn running(changed: &AppChanged) -> Self {
        Self {
            app: changed.app.clone(),
            version: changed.version,
            wanted: None,
            runs: true,
        }
    }

    /// Sets the wanted number of instances.
    pub(super) fn with(mut self, instances: u32) -> Self {
        self.wanted = Some(instances);
        self
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Ended {
    Ready,
    Failed,
    Unplaced,
    Timeout,
}

/// The result for one app.
#[derive(Debug, Serialize)]
pub(super) struct Waited {
    app: String,
    outcome: Ended,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    status: Option<AppStatus>,
}

/// The progress of an app at one look.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Pending,
    /// Nothing is in progress, and this is why some instance found no place.
    NoPlace(String),
    Ready,
    Failed(String),
}

/// Runs `app wait`.
pub(super) async fn wait(global: &Global, args: &WaitArgs) -> anyhow::Result<Exit> {
    args.apps.iter().try_for_each(|app| check_app(app))?;
    let cluster = Cluster::connect(global).await?;
    let targets = args.apps.iter().map(|app| Target::of(app)).collect();
    let waited = until_ready(&cluster, targets, args.timeout).await?;
    if cluster.format == Format::Json {
        output::json(&serde_json::json!({"v": shared::VERSION, "apps": waited}))?;
        return Ok(exit(&waited));
    }
    print(&waited)
}

/// Waits for the apps one after the other; all of them progress meanwhile.
async fn until_ready(
    cluster: &Cluster,
    targets: Vec<Target>,
    timeout: Duration,
) -> anyhow::Result<Vec<Waited>> {
    let until = Instant::now() + timeout;
    let mut waited = Vec::new();
    for target in targets {
        waited.push(one(cluster, target, until).await?);
    }
    Ok(waited)
}

async fn one(cluster: &Cluster, target: Target, until: Instant) -> anyhow::Result<Waited> {
    let (began, mut said) = (Instant::now(), String::new());
    let mut no_place_since: Option<Instant> = None;
    let mut last: Option<AppStatus> = None;
    let mut crashes = false;
    loop {
        let progress = match show::ask(cluster, &target.app, None).await {
            Ok(shown) => {
                let progress = judge(&target, &shown.status);
                last = Some(shown.status);
                progress
            }
            // tolerated, as a manager may be being replaced
            Err(error) if last.is_some() && has_code(&error, &TEMPORARY) => Progress::Pending,
            // an app that was just put
            Err(error)
                if target.runs
                    && last.is_none()
                    && began.elapsed() < HEARD_OF
                    && has_code(&error, &[code::NOT_FOUND]) =>
            {
                Progress::Pending
            }
            Err(error) => return Err(error),
        };
        let ended = |outcome, why, status| Waited {
            app: target.app.clone(),
            outcome,
            why,
            status,
        };
        let late = Instant::now() >= until;
        match progress {
            Progress::Ready => return Ok(ended(Ended::Ready, None, last)),
            Progress::Failed(why) => return Ok(ended(Ended::Failed, Some(why), last)),
            Progress::NoPlace(why) => {
                let since = *no_place_since.get_or_insert_with(Instant::now);
                if late || since.elapsed() >= UNPLACED_FOR {
                    return Ok(ended(Ended::Unplaced, Some(why), last));
                }
            }
            Progress::Pending => no_place_since = None,
        }
        if late {
            let why = last
                .as_ref()
                .map(list::why_not)
                .filter(|why| !why.is_empty());
            return Ok(ended(Ended::Timeout, why, last));
        }
        let now = last.as_ref().map_or(String::new(), in_words);
        if now != said && began.elapsed() > QUIET {
            note(format_args!("… {}: {now}", target.app));
            said = now;
        }
        if !crashes && last.as_ref().is_some_and(|status| status.crashed > 0) {
            crashes = true;
            let app = &target.app;
            note(format_args!(
                "… {app}: instances crash: `vendue ps {app} --all` says how, `vendue logs {app}` shows what they wrote"
            ));
        }
        sleep(PAUSE.min(until - Instant::now())).await;
    }
}

fn has_code(error: &anyhow::Error, codes: &[&str]) -> bool {
    let failure = error.downcast_ref::<Failure>();
    failure.is_some_and(|failure| codes.contains(&failure.code.as_str()))
}

fn judge(target: &Target, status: &AppStatus) -> Progress {
    let present = status.running + status.starting;
    let behind = status.version < target.version
        || target.wanted.is_some_and(|wanted| status.wanted != wanted)
        || target.runs && status.wanted == 0;
    if status.went_back || (!behind && status.rollout == Rollout::Failed) {
        let why = status.why.clone();
        return Progress::Failed(why.unwrap_or_else(|| "the rollout failed".into()));
    }
    if behind {
        return Progress::Pending;
    }
    if status.wanted == 0 {
        return if present == 0 {
            Progress::Ready
        } else {
            Progress::Pending
        };
    }
    if status.given_up > 0 {
        let why = status.why.clone();
        return Progress::Failed(why.unwrap_or_else(|| "it crashed too often".into()));
    }
    if status.rollout == Rollout::Done && status.running >= status.wanted {
        return Progress::Ready;
    }
    match &status.unplaced {
        Some(why) if status.starting == 0 => Progress::NoPlace(why.clone()),
        _ => Progress::Pending,
    }
}

/// Formats `2 of 3 running, 1 starting, rollout running`.
fn in_words(status: &AppStatus) -> String {
    let mut words = format!("{} of {} running", status.running, status.wanted);
    for (count, what) in [(status.starting, "starting"), (status.crashed, "crashed")] {
        if count > 0 {
            words += &format!(", {count} {what}");
        }
    }
    words += &format!(", rollout {}", list::rollout(status));
    if status.rollout != Rollout::Done {
        words += &format!(" ({} complete)", status.complete);
    }
    words
}

/// Returns the exit code of the worst result: failed, unplaced, ready.
pub(super) fn exit(waited: &[Waited]) -> Exit {
    let any = |outcomes: &[Ended]| waited.iter().any(|one| outcomes.contains(&one.outcome));
    if any(&[Ended::Failed, Ended::Timeout]) {
        Exit::Failed
    } else if any(&[Ended::Unplaced]) {
        Exit::Unplaced
    } else {
        Exit::Ok
    }
}

/// Prints a line for each app; failures are explained on standard error.
pub(super) fn print(waited: &[Waited]) -> anyhow::Result<Exit> {
    for one in waited {
        let status = one.status.as_ref().map_or(String::new(), in_words);
        output::say(format_args!("{}: {status}", one.app))?;
        let what = match one.outcome {
            Ended::Ready => continue,
            Ended::Failed => "failed",
            Ended::Unplaced => "not placed; it is tried again when there may be room",
            Ended::Timeout => {
                "not ready when the time was up; `vendue app show` and `vendue ps --all` say more"
            }
        };
        let why = one
            .why
            .as_ref()
            .map_or(String::new(), |why| format!(": {why}"));
        note(format_args!("{}: {what}{why}", one.app));
    }
    Ok(exit(waited))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        Ended::{Failed, Ready, Timeout, Unplaced},
        *,
    };

    #[test]
    fn what_is_ready_what_is_awaited_and_what_has_failed() {
        let failed = |why: &str| Progress::Failed(why.into());
        let no_place = || Progress::NoPlace("memory".into());
        for (fields, expected) in [
            (json!({}), Progress::Ready),
            (json!({"rollout": "running"}), Progress::Pending),
            (json!({"rollout": "paused"}), Progress::Pending),
            (json!({"running": 1}), Progress::Pending),
            (json!({"running": 1, "crashed": 1}), Progress::Pending),
            (json!({"running": 1, "unplaced": "memory"}), no_place()),
            (
                json!({"running": 1, "starting": 1, "unplaced": "memory"}),
                Progress::Pending,
            ),
            (
                json!({"rollout": "failed", "why": "it crashed"}),
                failed("it crashed"),
            ),
            (
                json!({"running": 1, "given_up": 1, "why": "often"}),
                failed("often"),
            ),
            (json!({"went_back": true, "why": "older"}), failed("older")),
            // a stopped app is to end
            (json!({"wanted": 0, "stopped": true}), Progress::Pending),
            (
                json!({"wanted": 0, "running": 0, "stopped": true}),
                Progress::Ready,
            ),
        ] {
            let progress = judge(&Target::of("web"), &list::tests::status(fields.clone()));
            assert_eq!(progress, expected, "{fields}");
        }
    }

    #[test]
    fn what_was_before_a_change_does_not_count() {
        let changed = AppChanged {
            app: "web".into(),
            version: 2,
            ..AppChanged::default()
        };
        let target = Target::running(&changed).with(3);
        for (fields, expected) in [
            (json!({}), Progress::Pending),
            (json!({"rollout": "failed"}), Progress::Pending),
            (json!({"version": 2}), Progress::Pending),
            (
                json!({"version": 2, "wanted": 0, "running": 0}),
                Progress::Pending,
            ),
            (
                json!({"version": 2, "wanted": 3, "running": 3}),
                Progress::Ready,
            ),
            (
                json!({"version": 3, "wanted": 3, "running": 3}),
                Progress::Ready,
            ),
        ] {
            assert_eq!(
                judge(&target, &list::tests::status(fields.clone())),
                expected,
                "{fields}"
            );
        }
    }

    #[test]
    fn the_worst_of_several_apps_is_the_exit_code() {
        let exit = |outcomes: &[Ended]| {
            let one = |outcome: &Ended| Waited {
                app: "web".into(),
                outcome: *outcome,
                why: None,
                status: None,
            };
            exit(&outcomes.iter().map(one).collect::<Vec<_>>())
        };
        assert_eq!(exit(&[]), Exit::Ok);
        assert_eq!(exit(&[Ready, Ready]), Exit::Ok);
        assert_eq!(exit(&[Ready, Unplaced]), Exit::Unplaced);
        assert_eq!(exit(&[Failed, Unplaced]), Exit::Failed);
        assert_eq!(exit(&[Timeout, Ready]), Exit::Failed);
    }
}
