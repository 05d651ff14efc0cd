//! `task wait`: waits until tasks have ended.

use std::{collections::BTreeMap, time::Duration};

use shared::wire::{TaskState, TaskStatus, code};
use tokio::time::{Instant, sleep};

use super::{Which, known, list};
use crate::{
    cluster::Cluster,
    context::{Exit, Failure, Format, Global, failure_code},
    output::{self, note},
};

/// Pause between two looks: the first, the longest, and the growth factor.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const GROWTH: f64 = 1.3;
/// The time within which every manager has heard what one has stored.
const HEARD_OF: Duration = Duration::from_secs(5);
/// Waits shorter than this say nothing; longer ones report changes, at most this often.
const QUIET: Duration = Duration::from_secs(5);
/// The default timeout.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3_600);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The exit code is that of the worst task: 0 if all succeeded, 3 if some found no room in time, 1 if any \
                  failed, was cancelled, or has not ended when the time is up."
)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    which: Which,
    /// How long to wait at most
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Runs `task wait`.
pub(super) async fn wait(global: &Global, args: &WaitArgs) -> anyhow::Result<Exit> {
    args.which.check()?;
    let cluster = Cluster::connect(global).await?;
    until_over(&cluster, Waited::new(&args.which), args.timeout).await
}

/// What is waited for, and what is known about it.
pub(super) struct Waited {
    /// All tasks of this app, including those stored meanwhile.
    app: Option<String>,
    /// By id; none = nothing is known about it yet.
    tasks: BTreeMap<String, Option<TaskStatus>>,
    /// A task that a manager did not know when it was last asked; `of APP` if none of the app is known.
    missing: Option<String>,
    /// Whether all have ended.
    done: bool,
}

impl Waited {
    fn new(which: &Which) -> Self {
        Self {
            app: which.app.clone(),
            tasks: which.ids.iter().map(|id| (id.clone(), None)).collect(),
            missing: None,
            done: false,
        }
    }

    /// Waits for these stored tasks.
    pub(super) fn stored(tasks: Vec<TaskStatus>) -> Self {
        Self {
            app: None,
            done: tasks.iter().all(|task| task.state.is_over()),
            tasks: tasks.into_iter().map(|t| (t.id.clone(), Some(t))).collect(),
            missing: None,
        }
    }

    /// Returns those that have not ended or are unknown.
    fn open(&self) -> Vec<String> {
        let is_over = |task: &TaskStatus| task.state.is_over();
        let open = self.tasks.iter();
        let open = open.filter(|(_, task)| !task.as_ref().is_some_and(is_over));
        open.map(|(id, _)| id.clone()).collect()
    }

    /// Returns what to ask for: tasks that have not ended. Once all have, the app is asked for again, as it may have
    /// further tasks.
    fn question(&self) -> Which {
        let ids = self.open();
        let app = self.app.clone().filter(|_| ids.is_empty());
        Which { ids, app }
    }

    /// Records the answer to a question. A task that was seen to have ended stays so, as its result may be deleted
    /// meanwhile, or another manager may not have heard of its end.
    fn take(&mut self, question: &Which, answer: Vec<TaskStatus>) {
        let answered = |id: &&String| answer.iter().any(|task| task.id == **id);
        self.missing = question.ids.iter().find(|id| !answered(id)).cloned();
        for task in answer {
            let known = self.tasks.entry(task.id.clone()).or_default();
            if !known.as_ref().is_some_and(|task| task.state.is_over()) {
                *known = Some(task);
            }
        }
        if self.tasks.is_empty() {
            self.missing = self.app.as_ref().map(|app| format!("of {app}"));
        }
        let all_asked = self.app.is_none() || question.app.is_some();
        self.done = all_asked && self.missing.is_none() && self.open().is_empty();
    }

    /// Returns what is known, in the order of the ids.
    fn known(&self) -> Vec<TaskStatus> {
        self.tasks.values().flatten().cloned().collect()
    }
}

/// Waits, and prints the results.
pub(super) async fn until_over(
    cluster: &Cluster,
    mut waited: Waited,
    timeout: Duration,
) -> anyhow::Result<Exit> {
    let began = Instant::now();
    let (mut told, mut heard, mut pause) = (began, began, FIRST_PAUSE);
    while !waited.done {
        let question = waited.question();
        match known(cluster, &question).await {
            Ok(known) => waited.take(&question, known),
            // tolerated, as a manager may be being replaced
            Err(error) if !waited.known().is_empty() && is_temporary(&error) => {}
            Err(error) => return Err(error),
        }
        let late = began.elapsed() >= timeout;
        match &waited.missing {
            None => heard = Instant::now(),
            Some(which) if late || heard.elapsed() >= HEARD_OF => return Err(unknown(which)),
            Some(_) => {}
        }
        if waited.done || late {
            break;
        }
        if told.elapsed() >= QUIET {
            told = Instant::now();
            let (left, all) = (waited.open().len(), waited.tasks.len());
            note(format_args!("… {left} of {all} have not ended"));
        }
        pause = if waited.open().is_empty() {
            FIRST_PAUSE
        } else {
            pause.mul_f64(GROWTH).min(LONGEST_PAUSE)
        };
        sleep(pause.min(timeout.saturating_sub(began.elapsed()))).await;
    }
    let tasks = waited.known();
    if cluster.format == Format::Json {
        output::document(&serde_json::json!({ "outcome": outcome(&tasks), "tasks": tasks }))?;
    } else {
        list::print(&tasks)?;
    }
    Ok(exit(&tasks))
}

fn unknown(which: &str) -> anyhow::Error {
    Failure::because(
        code::NOT_FOUND,
        format_args!("no task {which} is known; results are kept for an hour"),
    )
}

fn is_temporary(error: &anyhow::Error) -> bool {
    let failure = error.downcast_ref::<Failure>();
    let codes = [failure_code::UNREACHABLE, failure_code::NO_ANSWER];
    failure.is_some_and(|f| codes.contains(&f.code.as_str()) || f.code == code::INTERNAL)
}

/// Returns the worst state in a word.
fn outcome(tasks: &[TaskStatus]) -> &'static str {
    let any = |what: &dyn Fn(&TaskStatus) -> bool| tasks.iter().any(what);
    if any(&|task| task.state == TaskState::Failed && !task.unplaced) {
        "failed"
    } else if any(&|task| task.state == TaskState::Cancelled) {
        "cancelled"
    } else if any(&|task| !task.state.is_over()) {
        "timeout"
    } else if any(&|task| task.unplaced) {
        "unplaced"
    } else {
        "succeeded"
    }
}

fn exit(tasks: &[TaskStatus]) -> Exit {
    match outcome(tasks) {
        "succeeded" => Exit::Ok,
        "unplaced" => Exit::Unplaced,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use placement::Kind;

    use super::*;

    fn task(id: &str, state: TaskState, unplaced: bool) -> TaskStatus {
        TaskStatus {
            id: id.into(),
            app: "a".into(),
            kind: Kind::Task,
            state,
            cell: None,
            attempts: 1,
            placed: 0,
            submitted_ms: 0,
            started_ms: None,
            ended_ms: None,
            exit_code: None,
            signal: None,
            cancelled: false,
            unplaced,
            why: None,
        }
    }

    #[test]
    fn the_worst_of_them_is_the_exit_code() {
        use TaskState::{Cancelled, Failed, Placed, Running, Succeeded};
        for (states, expected) in [
            (vec![(Succeeded, false), (Placed, false)], Exit::Ok),
            (vec![(Succeeded, false), (Failed, true)], Exit::Unplaced),
            (vec![(Failed, true), (Failed, false)], Exit::Failed),
            (vec![(Succeeded, false), (Cancelled, false)], Exit::Failed),
            (vec![(Failed, true), (Running, false)], Exit::Failed),
        ] {
            let tasks = states.iter().map(|(state, u)| task("x", *state, *u));
            assert_eq!(exit(&tasks.collect::<Vec<_>>()), expected, "{states:?}");
        }
    }

    /// Answers the next question with these states.
    fn answer(waited: &mut Waited, states: &[(&str, TaskState)]) -> Which {
        let question = waited.question();
        let tasks = states.iter().map(|(id, state)| task(id, *state, false));
        waited.take(&question, tasks.collect());
        question
    }

    #[test]
    fn what_was_seen_to_be_over_is_not_asked_for_again_and_counts() {
        use TaskState::{Failed, Running, Succeeded, Waiting};
        let app = Which {
            ids: Vec::new(),
            app: Some("a".into()),
        };
        let mut waited = Waited::new(&app);
        answer(&mut waited, &[("x", Failed), ("y", Running)]);
        let question = answer(&mut waited, &[("y", Succeeded)]);
        assert_eq!((question.ids, question.app), (vec!["y".into()], None));
        assert!(!waited.done, "there may be further ones");
        // the result of x was deleted, y's manager is behind, z is new
        answer(&mut waited, &[("y", Running), ("z", Waiting)]);
        assert_eq!(waited.open(), ["z"]);
        answer(&mut waited, &[("z", Succeeded)]);
        answer(&mut waited, &[]);
        assert!(waited.done);
        assert_eq!(waited.known().len(), 3);
        assert_eq!(exit(&waited.known()), Exit::Failed);
    }

    #[test]
    fn what_no_manager_knows_is_missing() {
        use TaskState::{Running, Succeeded};
        let mut of_app = Waited::new(&Which {
            ids: Vec::new(),
            app: Some("typo".into()),
        });
        answer(&mut of_app, &[]);
        assert_eq!(of_app.missing.as_deref(), Some("of typo"));
        let mut of_ids = Waited::new(&Which {
            ids: vec!["x".into(), "y".into()],
            app: None,
        });
        answer(&mut of_ids, &[("x", Succeeded)]);
        assert_eq!(of_ids.missing.as_deref(), Some("y"));
        answer(&mut of_ids, &[("y", Running)]);
        assert_eq!((of_ids.missing.as_deref(), of_ids.done), (None, false));
        answer(&mut of_ids, &[]);
        assert_eq!((of_ids.missing.as_deref(), of_ids.done), (Some("y"), false));
        let mut stored = Waited::stored(vec![task("x", Running, false)]);
        answer(&mut stored, &[]);
        assert_eq!(stored.missing.as_deref(), Some("x"));
        answer(&mut stored, &[("x", Succeeded)]);
        assert!(stored.done);
    }
}
