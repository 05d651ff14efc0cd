//! `task wait`: until tasks are over.

use std::time::Duration;

use shared::wire::{TaskState, TaskStatus, code};
use tokio::time::{Instant, sleep};

use super::{Which, known, list};
use crate::{
    cluster::Cluster,
    context::{Exit, Failure, Format, Global, failure_code},
    output::{self, note},
};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);
/// What a manager has stored, each has heard of after so long at most.
const HEARD_OF: Duration = Duration::from_secs(5);
/// Quick waits say nothing; long ones say what changes, at most this often.
const QUIET: Duration = Duration::from_secs(5);
/// How long to wait unless it is said otherwise.
pub(super) const TIMEOUT: Duration = Duration::from_secs(3_600);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with the worst of them: 0 when all succeeded, 3 when some were never started because there was \
                  no room in time, 1 when any failed or was cancelled, or the time is up."
)]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    which: Which,
    /// How long to wait at most
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Waits.
pub(super) async fn wait(global: &Global, args: &WaitArgs) -> anyhow::Result<Exit> {
    args.which.check()?;
    let cluster = Cluster::connect(global).await?;
    until_over(&cluster, &args.which, args.timeout).await
}

/// Waits, and prints what came of them.
pub(super) async fn until_over(
    cluster: &Cluster,
    which: &Which,
    timeout: Duration,
) -> anyhow::Result<Exit> {
    let began = Instant::now();
    let mut tasks: Vec<TaskStatus> = Vec::new();
    let mut told = began;
    loop {
        match known(cluster, which).await {
            Ok(known) => tasks = known,
            // a manager that is being replaced is waited for
            Err(error) if !tasks.is_empty() && is_temporary(&error) => {}
            Err(error) => return Err(error),
        }
        let left = tasks.iter().filter(|task| !task.state.is_over()).count();
        let missing = missing(which, &tasks);
        if left == 0 && missing.is_empty() {
            break;
        }
        if let (Some(id), true) = (missing.first(), began.elapsed() >= HEARD_OF) {
            return Err(Failure::because(
                code::NOT_FOUND,
                format_args!("no task {id} is known; results are kept for an hour"),
            ));
        }
        if began.elapsed() >= timeout {
            break;
        }
        if told.elapsed() >= QUIET {
            told = Instant::now();
            let all = tasks.len();
            note(format_args!("… {left} of {all} are not over"));
        }
        sleep(PAUSE.min(timeout.saturating_sub(began.elapsed()))).await;
    }
    if cluster.format == Format::Json {
        output::document(&serde_json::json!({ "outcome": outcome(&tasks), "tasks": tasks }))?;
    } else if tasks.is_empty() {
        note("no tasks of it are known; results are kept for an hour");
    } else {
        list::print(&tasks)?;
    }
    Ok(exit(&tasks))
}

fn is_temporary(error: &anyhow::Error) -> bool {
    let failure = error.downcast_ref::<Failure>();
    let codes = [failure_code::UNREACHABLE, failure_code::NO_ANSWER];
    failure.is_some_and(|f| codes.contains(&f.code.as_str()) || f.code == code::INTERNAL)
}

fn missing<'a>(which: &'a Which, tasks: &[TaskStatus]) -> Vec<&'a str> {
    let known = |id: &&String| tasks.iter().any(|task| task.id == **id);
    let missing = which.ids.iter().filter(|id| !known(id));
    missing.map(String::as_str).collect()
}

/// The worst of them, in a word.
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

    fn task(state: TaskState, unplaced: bool) -> TaskStatus {
        TaskStatus {
            id: "x".into(),
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
            (vec![], Exit::Ok),
            (vec![(Succeeded, false), (Placed, false)], Exit::Ok),
            (vec![(Succeeded, false), (Failed, true)], Exit::Unplaced),
            (vec![(Failed, true), (Failed, false)], Exit::Failed),
            (vec![(Succeeded, false), (Cancelled, false)], Exit::Failed),
            (vec![(Failed, true), (Running, false)], Exit::Failed),
        ] {
            let tasks: Vec<_> = states.iter().map(|(s, u)| task(*s, *u)).collect();
            assert_eq!(exit(&tasks), expected, "{states:?}");
        }
    }
}
