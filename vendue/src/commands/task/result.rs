//! `task show` and `task result`.

use placement::Kind;
use shared::wire::{AppAction, TaskShown, TaskStatus};

use super::{Answers, Which, about_each, check_id, known, list};
use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Format, Global},
    output::{self, age, note, printable, say},
    table::Table,
};

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The id of the task
    #[arg(value_name = "TASK")]
    id: String,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exits with 0 if all have ended, however they ended; the exit code of `vendue task wait` says how. The \
                  last output is shown if there is only one task."
)]
pub(crate) struct ResultArgs {
    #[command(flatten)]
    which: Which,
}

/// Shows one task.
pub(super) async fn show(global: &Global, args: &ShowArgs) -> anyhow::Result<Exit> {
    check_id(&args.id)?;
    let cluster = Cluster::connect(global).await?;
    let subject = cluster.subjects.task("show", &args.id);
    let (who, question) = (Peer::ManagerOfTasks, AppAction { v: shared::VERSION });
    let shown: TaskShown = cluster.ask(who, subject, &question, TIMEOUT).await?;
    if cluster.format == Format::Json {
        output::json(&shown)?;
    } else {
        print_one(&shown.task)?;
    }
    Ok(Exit::Ok)
}

/// Shows how the tasks ended.
pub(super) async fn results(global: &Global, args: &ResultArgs) -> anyhow::Result<Exit> {
    args.which.check()?;
    let cluster = Cluster::connect(global).await?;
    let ids: Vec<String> = if args.which.app.is_some() {
        let known = known(&cluster, &args.which).await?;
        known.into_iter().map(|task| task.id).collect()
    } else {
        args.which.ids.clone()
    };
    let shown = about_each::<TaskShown>(&cluster, "result", ids, TIMEOUT).await?;
    let over = shown.answers.iter().all(|one| one.task.state.is_over());
    let exit = match shown.exit() {
        Exit::Ok if !over => Exit::Failed,
        exit => exit,
    };
    if cluster.format == Format::Json {
        let tasks: Vec<_> = shown.answers.iter().map(with_output).collect();
        output::document(&serde_json::json!({ "tasks": tasks, "errors": shown.errors }))?;
        return Ok(exit);
    }
    print_results(&shown)?;
    shown.tell_errors();
    if !over {
        note("some have not ended; `vendue task wait` waits for them");
    }
    Ok(exit)
}

fn with_output(shown: &TaskShown) -> serde_json::Value {
    let mut task = serde_json::to_value(&shown.task).unwrap_or_default();
    if let Some(output) = &shown.output {
        task["output"] = output.as_str().into();
    }
    task
}

fn print_results(shown: &Answers<TaskShown>) -> anyhow::Result<()> {
    match shown.answers.as_slice() {
        [] if shown.errors.is_empty() => {
            note("no task of the app is known; results are kept for an hour");
        }
        [] => {}
        [one] => {
            print_one(&one.task)?;
            match &one.output {
                Some(output) => print_output(output)?,
                // of what did not run or was lost nobody has any
                None if one.task.exit_code.is_some() || one.task.signal.is_some() => {
                    note("its output is missing: no manager received it");
                }
                None => {}
            }
        }
        many => {
            let tasks: Vec<TaskStatus> = many.iter().map(|shown| shown.task.clone()).collect();
            list::print(&tasks)?;
        }
    }
    Ok(())
}

/// Prints the last output of a task, after an empty line.
fn print_output(output: &str) -> anyhow::Result<()> {
    let lines = output.trim_end_matches('\n').lines().map(printable);
    let text: Vec<String> = lines.collect();
    Ok(say(format_args!("\n{}", text.join("\n")))?)
}

fn print_one(task: &TaskStatus) -> anyhow::Result<()> {
    let time = |ms: u64| {
        let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(ms);
        humantime::format_rfc3339_millis(time).to_string()
    };
    let mut rows = vec![
        ("task", task.id.clone()),
        ("app", task.app.clone()),
        ("kind", task.kind.to_string()),
        ("state", task.state.to_string()),
    ];
    rows.extend(list::attempts(task).map(|count| ("attempts", count.to_string())));
    if task.kind == Kind::Task && task.state.is_over() {
        rows.push(("exit", list::exit(task)));
    }
    rows.extend(task.cell.clone().map(|cell| ("cell", cell)));
    if task.placed > 0 {
        rows.push(("placed", task.placed.to_string()));
    }
    rows.push(("submitted", time(task.submitted_ms)));
    rows.extend(task.started_ms.map(|ms| ("started", time(ms))));
    rows.extend(task.ended_ms.map(|ms| ("ended", time(ms))));
    rows.extend(list::took(task).map(|ms| ("took", age(ms))));
    rows.extend(list::why(task).map(|why| ("why", printable(why))));
    let mut table = Table::new(&["FIELD", "VALUE"]).text("VALUE");
    for (field, value) in rows {
        table.add_row([field.to_owned(), value]);
    }
    Ok(table.print()?)
}
