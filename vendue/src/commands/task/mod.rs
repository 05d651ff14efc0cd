//! `task`: tasks that managers have stored, and carry out at most once.

mod cancel;
mod list;
mod result;
mod run;
pub(crate) mod submit;
mod wait;

use shared::wire::{TaskList, TaskListed, TaskStatus};

use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Global, Usage},
};

/// More pages than these are not asked for: 500 tasks each.
const MAX_PAGES: usize = 200;
/// Ids in one question.
const MAX_IDS: usize = 500;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A manager stores a task before it says so, starts it when there is room, runs it at most once, and \
                  keeps its result for an hour. `vendue start` starts a task once, without storing it.\n\n\
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
    /// List the tasks, and the start requests that were stored
    List(list::ListArgs),
    /// Show a task: how far it is, where it runs
    Show(result::ShowArgs),
    /// Show how tasks ended, with the last of their output
    Result(result::ResultArgs),
    /// Cancel tasks: what waits is not started, what runs is stopped
    Cancel(cancel::CancelArgs),
    /// Wait until tasks are over
    Wait(wait::WaitArgs),
}

impl TaskArgs {
    /// Does it.
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

/// Those that are known of these, in the order of their ids.
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

/// All pages in one.
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
        // pages only go on
        listed.next = more.next.filter(|next| *next > after);
    }
    Ok(listed)
}

async fn page(cluster: &Cluster, question: &TaskList) -> anyhow::Result<TaskListed> {
    let subject = cluster.subjects.task_list();
    cluster.ask(Peer::Manager, subject, question, TIMEOUT).await
}

/// The ids of the tasks that managers know, for completion.
pub(crate) async fn ids(cluster: &Cluster) -> Vec<String> {
    let listed = page(cluster, &TaskList::default()).await;
    let tasks = listed.map_or(Vec::new(), |listed| listed.tasks);
    tasks.into_iter().map(|task| task.id).collect()
}
