//! `task`: tasks that managers store and carry out at most once.

mod cancel;
mod list;
mod result;
mod run;
pub(crate) mod submit;
mod wait;

use std::time::Duration;

use futures_util::{StreamExt, stream};
use placement::Invalid;
use serde::{Serialize, de::DeserializeOwned};
use shared::wire::{AppAction, TaskList, TaskListed, TaskStatus, code, to_bytes};

use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Failure, Global, Usage, failure_code},
    output::{note, with_progress},
};

/// How long to wait for what a manager stores before it answers: it tries for 8 s, and then a write may have to wait
/// for its turn and for 3 s.
const PATIENCE: Duration = Duration::from_secs(20);

/// Maximum number of pages, with 500 tasks each.
const MAX_PAGES: usize = 200;
/// Maximum number of ids in one question.
const MAX_IDS: usize = 500;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A manager stores each task before it answers, starts it when there is room, runs it at most once, and \
                  keeps its result for an hour. `vendue start` starts a task without storing it.\n\n\
                  Needs a manager: `vendue up` has one, `vendue manager` runs one."
)]
pub(crate) struct TaskArgs {
    #[command(subcommand)]
    command: TaskCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TaskCommand {
    /// Store and run the tasks that files describe
    Run(run::RunArgs),
    /// List tasks and other stored start requests
    List(list::ListArgs),
    /// Show a task: its state, its cell, its attempts
    Show(result::ShowArgs),
    /// Show how tasks ended; of a single one also its last output
    Result(result::ResultArgs),
    /// Cancel tasks: waiting ones are not started, running ones are stopped
    Cancel(cancel::CancelArgs),
    /// Wait until tasks have ended
    Wait(wait::WaitArgs),
}

impl TaskArgs {
    /// Notes that Ctrl-C ends no task.
    pub(crate) fn note_interrupted(&self) {
        if matches!(self.command, TaskCommand::Run(_) | TaskCommand::Wait(_)) {
            note(
                "what is stored goes on: `vendue task list` shows it, `vendue task cancel` ends it",
            );
        }
    }

    /// Runs the subcommand.
    pub(crate) async fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        match &self.command {
            TaskCommand::Run(args) => run::run(global, args).await,
            TaskCommand::List(args) => list::list(global, args).await,
            TaskCommand::Show(args) => result::show(global, args).await,
            TaskCommand::Result(args) => result::results(global, args).await,
            TaskCommand::Cancel(args) => cancel::cancel(global, args).await,
            TaskCommand::Wait(args) => wait::wait(global, args).await,
        }
    }
}

/// Which tasks are meant: by their ids, or all of an app.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Which {
    /// The ids of the tasks
    #[arg(value_name = "TASK")]
    ids: Vec<String>,
    /// All tasks of this app
    #[arg(long, value_name = "APP")]
    app: Option<String>,
}

impl Which {
    fn check(&self) -> anyhow::Result<()> {
        for id in &self.ids {
            check_id(id)?;
        }
        match &self.app {
            Some(app) => placement::check_name("--app", app).map_err(Usage::invalid),
            None => Ok(()),
        }
    }
}

fn check_id(id: &str) -> anyhow::Result<()> {
    shared::check_stored_id(id).map_err(|mut invalid| {
        invalid.field = "TASK".into();
        Usage::invalid(invalid)
    })
}

/// Returns those of the selected tasks that are known, in the order of their ids.
async fn known(cluster: &Cluster, which: &Which) -> anyhow::Result<Vec<TaskStatus>> {
    if which.ids.is_empty() {
        return Ok(all(cluster, which.app.clone()).await?.tasks);
    }
    let mut known = Vec::new();
    for ids in which.ids.chunks(MAX_IDS) {
        let mut question = TaskList {
            v: shared::VERSION,
            ids: ids.to_vec(),
            ..TaskList::default()
        };
        for _ in 0..MAX_PAGES {
            let page = page(cluster, &question).await?;
            known.extend(page.tasks);
            question.after = page.next;
            if question.after.is_none() {
                break;
            }
        }
    }
    known.sort_by(|a, b| a.id.cmp(&b.id));
    known.dedup_by(|a, b| a.id == b.id);
    Ok(known)
}

/// Returns all pages as one.
async fn all(cluster: &Cluster, app: Option<String>) -> anyhow::Result<TaskListed> {
    let mut question = TaskList {
        v: shared::VERSION,
        app,
        ..TaskList::default()
    };
    let mut listed = page(cluster, &question).await?;
    for _ in 1..MAX_PAGES {
        let Some(after) = listed.next.take() else {
            break;
        };
        question.after = Some(after.clone());
        let more = page(cluster, &question).await?;
        listed.tasks.extend(more.tasks);
        listed.acting &= more.acting;
        // pages only go forward
        listed.next = more.next.filter(|next| *next > after);
    }
    Ok(listed)
}

async fn page(cluster: &Cluster, question: &TaskList) -> anyhow::Result<TaskListed> {
    let subject = cluster.subjects.task_list();
    let asked = cluster.ask(Peer::ManagerOfTasks, subject, question, TIMEOUT);
    asked.await
}

/// Returns the ids of the tasks that managers know, for completion.
pub(crate) async fn ids(cluster: &Cluster) -> Vec<String> {
    let listed = page(cluster, &TaskList::default()).await;
    let tasks = listed.map_or(Vec::new(), |listed| listed.tasks);
    tasks.into_iter().map(|task| task.id).collect()
}

/// Why an operation on one task failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Error {
    code: String,
    message: String,
}

/// An error together with the task's id.
#[derive(Debug, Serialize)]
struct ErrorOf {
    id: String,
    #[serde(flatten)]
    error: Error,
}

impl Error {
    fn of(error: &anyhow::Error) -> Self {
        let failure = error.downcast_ref::<Failure>();
        let code = if error.is::<Usage>() {
            code::INVALID_REQUEST
        } else {
            failure.map_or(failure_code::FAILED, |failure| &failure.code)
        };
        Self {
            code: code.to_owned(),
            message: error.to_string(),
        }
    }

    fn invalid(invalid: &Invalid) -> Self {
        Self {
            code: code::INVALID_REQUEST.to_owned(),
            message: invalid.to_string(),
        }
    }

    /// Returns a single error if no manager received any of the questions.
    fn unreachable(errors: &[&Self]) -> Option<anyhow::Error> {
        let first = errors.first()?;
        let all = errors.iter().all(|e| e.code == failure_code::UNREACHABLE);
        all.then(|| Failure::because(&first.code, &first.message))
    }

    /// Returns the exit code: bad usage, failed, or success.
    fn exit<'a>(errors: impl Iterator<Item = &'a Self>) -> Exit {
        let codes: Vec<&str> = errors.map(|error| error.code.as_str()).collect();
        if codes.contains(&code::INVALID_REQUEST) {
            Exit::BadUsage
        } else if codes.is_empty() {
            Exit::Ok
        } else {
            Exit::Failed
        }
    }
}

/// The answers about several tasks.
struct Answers<T> {
    answers: Vec<T>,
    errors: Vec<ErrorOf>,
}

impl<T> Answers<T> {
    /// Reports the failures on standard error.
    fn tell_errors(&self) {
        for ErrorOf { id, error } in &self.errors {
            note(format_args!("{id}: {}", error.message));
        }
    }

    fn exit(&self) -> Exit {
        Error::exit(self.errors.iter().map(|of| &of.error))
    }
}

/// Asks about each task, several at once; the answers keep the order. An error about one task does not affect the
/// others, but it is the command's if it is about the only task or if no manager answers.
async fn about_each<T: DeserializeOwned>(
    cluster: &Cluster,
    verb: &str,
    ids: Vec<String>,
    patience: Duration,
) -> anyhow::Result<Answers<T>> {
    let one = async |id: String| {
        let body = to_bytes(&AppAction { v: shared::VERSION });
        let (who, subject) = (Peer::ManagerOfTasks, cluster.subjects.task(verb, &id));
        let asked = cluster.ask_quietly(who, subject, body, patience).await;
        let answer = asked.and_then(|answer| Ok(serde_json::from_slice::<T>(&answer)?));
        (id, answer)
    };
    let asked = stream::iter(ids).map(one).buffered(submit::AT_ONCE);
    let asked = with_progress("waiting for the manager", asked.collect::<Vec<_>>()).await;
    let only = asked.len() == 1;
    let (mut answers, mut errors) = (Vec::new(), Vec::new());
    for (id, answer) in asked {
        match answer {
            Ok(answer) => answers.push(answer),
            Err(error) if only => return Err(error),
            Err(error) => {
                let error = Error::of(&error);
                errors.push(ErrorOf { id, error });
            }
        }
    }
    let all: Vec<&Error> = errors.iter().map(|of| &of.error).collect();
    match Error::unreachable(&all) {
        Some(error) if answers.is_empty() => Err(error),
        _ => Ok(Answers { answers, errors }),
    }
}
