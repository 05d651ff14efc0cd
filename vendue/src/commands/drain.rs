//! `drain`, `cordon`, `uncordon`: take a cell out of service and put it back.

use std::time::Duration;

use placement::Span;
use serde_json::{Value, json};
use shared::wire::{Cordon, CordonAnswer, Drain, DrainAnswer, code};
use tokio::time::{Instant, sleep};

use super::one_cell;
use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Failure, Format, Global, Usage, failure_code},
    output::{self, counted, note},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Follows until nothing is left; Ctrl-C ends that, and the cell goes on draining. What a manager keeps \
                  running is started elsewhere before it is stopped here; nothing else is. The cell stays out of \
                  service, also after a restart, until `vendue uncordon CELL`."
)]
pub(crate) struct DrainArgs {
    /// The cell
    cell: String,
    /// How long its instances may continue to run
    #[arg(long, value_name = "TIME", default_value = "30s",
          value_parser = humantime::parse_duration)]
    deadline: Duration,
    /// Do not wait until nothing is left
    #[arg(long)]
    no_wait: bool,
    /// The rep ends with 0 when nothing is left
    #[arg(long)]
    exit: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct CordonArgs {
    /// The cell
    cell: String,
}

/// Pause between two looks at what is left.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How much longer than its deadline a drain may take, as instances have a grace period.
const PATIENCE: Duration = Duration::from_secs(120);

/// Asks a cell to drain, and follows the drain.
pub(crate) async fn drain(global: &Global, args: &DrainArgs) -> anyhow::Result<Exit> {
    placement::check_name("CELL", &args.cell).map_err(Usage::invalid)?;
    let cluster = Cluster::connect(global).await?;
    let question = Drain {
        v: shared::VERSION,
        deadline: Some(Span(args.deadline)),
        exit: args.exit,
    };
    let answer: DrainAnswer =
        one_cell::ask(&cluster, &args.cell, "drain", &question, TIMEOUT).await?;
    let people = cluster.format == Format::Table;
    if people {
        output::say(begun(&answer))?;
    }
    note_if_forgotten(&answer.cell, answer.kept);
    let mut document = json!(answer);
    if !args.no_wait {
        follow(&cluster, args).await?;
        document["left"] = json!(0);
    }
    if !people {
        output::json(&document)?;
    } else if !args.no_wait {
        output::say(ended(args))?;
    }
    Ok(Exit::Ok)
}

fn begun(answer: &DrainAnswer) -> String {
    let (cell, deadline) = (&answer.cell, answer.deadline);
    let kinds = [
        (
            answer.managed,
            format!("{} replaced elsewhere first", answer.managed),
        ),
        (answer.tasks, counted(answer.tasks, "task")),
    ];
    let kinds = kinds.into_iter().filter(|(count, _)| *count > 0);
    let kinds: Vec<String> = kinds.map(|(_, text)| text).collect();
    let kinds = match kinds.as_slice() {
        [] => String::new(),
        kinds => format!(" ({})", kinds.join(", ")),
    };
    let instances = counted(answer.instances, "instance");
    let stop = if answer.instances == 1 {
        "stops"
    } else {
        "stop"
    };
    let when = match deadline.0 {
        Duration::ZERO => "now".to_owned(),
        _ => format!("within {deadline}"),
    };
    match answer.instances {
        0 => format!("{cell} accepts no new work, and runs nothing"),
        _ => format!("{cell} accepts no new work; its {instances}{kinds} {stop} {when}"),
    }
}

fn ended(args: &DrainArgs) -> String {
    let cell = &args.cell;
    if args.exit {
        format!("{cell} is empty, and its rep has ended")
    } else {
        format!("{cell} is empty; `vendue uncordon {cell}` lets it take work again")
    }
}

fn note_if_forgotten(cell: &str, kept: bool) {
    if !kept {
        note(format_args!(
            "this lasts until the rep or the bridge of {cell} restarts; a rep with --state-dir DIR keeps it"
        ));
    }
}

/// Returns when the cell has nothing left and, if requested, its rep has ended.
async fn follow(cluster: &Cluster, args: &DrainArgs) -> anyhow::Result<()> {
    let until = Instant::now() + args.deadline + PATIENCE;
    let mut said = String::new();
    loop {
        let state = match state(cluster, &args.cell).await {
            Ok(Some(state)) => state,
            Ok(None) => {
                if !args.exit {
                    note("its rep has ended meanwhile");
                }
                return Ok(());
            }
            // a rep that is ending may have received the question without answering it any more
            Err(error) if args.exit && is_unanswered(&error) && Instant::now() < until => continue,
            Err(error) => return Err(error),
        };
        let left = left(&state);
        let Some(left) = left else {
            if !args.exit {
                return Ok(());
            }
            sleep(LOOK_AGAIN).await;
            continue;
        };
        if state["evacuating"] != true {
            let text = format!(
                "{} was uncordoned meanwhile: it takes work again",
                args.cell
            );
            return Err(Failure::because(failure_code::FAILED, text));
        }
        if Instant::now() > until {
            let text = format!("{} has not ended everything: {left}", args.cell);
            return Err(Failure::because(failure_code::FAILED, text));
        }
        if said != left {
            note(&left);
            said = left;
        }
        sleep(LOOK_AGAIN).await;
    }
}

/// Returns what the cell advertises; none if no rep of this name answers.
async fn state(cluster: &Cluster, cell: &str) -> anyhow::Result<Option<Value>> {
    let subject = cluster.subjects.cell(cell, "state");
    let question = json!({});
    let asked = cluster.ask(Peer::Cell(cell), subject, &question, TIMEOUT);
    match asked.await {
        Ok(state) => Ok(Some(state)),
        Err(e) => match e.downcast_ref::<Failure>() {
            Some(failure) if failure.code == code::NOT_FOUND => Ok(None),
            _ => Err(e),
        },
    }
}

fn is_unanswered(error: &anyhow::Error) -> bool {
    let failure = error.downcast_ref::<Failure>();
    failure.is_some_and(|failure| failure.code == failure_code::NO_ANSWER)
}

/// Describes what a cell still has; none if it has nothing.
fn left(state: &Value) -> Option<String> {
    let apps = state["apps"].as_object().into_iter().flatten();
    let mut parts: Vec<String> = apps.map(|(app, count)| format!("{app} {count}")).collect();
    let tasks = state["tasks"].as_u64().unwrap_or(0);
    if tasks > 0 {
        let tasks = usize::try_from(tasks).unwrap_or(usize::MAX);
        parts.push(counted(tasks, "task"));
    }
    let more = parts.len().saturating_sub(LISTED);
    parts.truncate(LISTED);
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    (!parts.is_empty()).then(|| format!("left: {}", parts.join(", ")))
}

/// Maximum number of apps named in a line.
const LISTED: usize = 10;

/// Asks a cell to accept no new work and keep what it runs.
pub(crate) async fn cordon(global: &Global, args: &CordonArgs) -> anyhow::Result<Exit> {
    let (format, answer) = ask(global, &args.cell, "cordon").await?;
    if format == Format::Table {
        let instances = counted(answer.instances, "instance");
        output::say(format_args!(
            "{} accepts no new work and keeps what it runs: {instances}",
            answer.cell
        ))?;
    }
    note_if_forgotten(&answer.cell, answer.kept);
    Ok(Exit::Ok)
}

/// Asks a cell to accept work again.
pub(crate) async fn uncordon(global: &Global, args: &CordonArgs) -> anyhow::Result<Exit> {
    let (format, answer) = ask(global, &args.cell, "uncordon").await?;
    if format == Format::Table {
        output::say(format_args!("{} accepts work", answer.cell))?;
    }
    Ok(Exit::Ok)
}

async fn ask(global: &Global, cell: &str, what: &str) -> anyhow::Result<(Format, CordonAnswer)> {
    placement::check_name("CELL", cell).map_err(Usage::invalid)?;
    let cluster = Cluster::connect(global).await?;
    let question = Cordon::default();
    let answer: CordonAnswer = one_cell::ask(&cluster, cell, what, &question, TIMEOUT).await?;
    if cluster.format == Format::Json {
        output::json(&answer)?;
    }
    Ok((cluster.format, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_counted_by_app() {
        assert_eq!(left(&json!({"cell":"a"})), None);
        let state = json!({"apps":{"web":2,"db":1},"tasks":1});
        assert_eq!(left(&state).unwrap(), "left: db 1, web 2, 1 task");
        let apps: serde_json::Map<_, _> = (0..12).map(|n| (format!("a{n:02}"), json!(1))).collect();
        assert!(
            left(&json!({ "apps": apps }))
                .unwrap()
                .ends_with("a09 1, 2 more")
        );
    }

    #[test]
    fn a_drain_says_what_it_waits_for() {
        let mut answer = DrainAnswer {
            v: shared::VERSION,
            cell: "a".into(),
            instances: 1,
            managed: 0,
            tasks: 0,
            deadline: Span(Duration::from_secs(5)),
            exit: false,
            kept: true,
        };
        assert_eq!(
            begun(&answer),
            "a accepts no new work; its 1 instance stops within 5s"
        );
        (answer.instances, answer.managed, answer.tasks) = (5, 3, 1);
        assert_eq!(
            begun(&answer),
            "a accepts no new work; its 5 instances (3 replaced elsewhere first, 1 task) stop within 5s"
        );
    }
}
