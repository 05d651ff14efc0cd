//! `task show` and `task result`.

use shared::wire::{TaskShown, TaskState, TaskStatus};

use super::{Which, check_id, known, list};
use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Format, Global},
    output::{self, age, note},
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
    after_help = "Exits with 0 when all of them are over, whatever came of them; `vendue task wait` says that by its \
                  exit code. One task is shown with the last of its output."
)]
pub(crate) struct ResultArgs {
    #[command(flatten)]
    which: Which,
}

async fn ask(cluster: &Cluster, verb: &str, id: &str) -> anyhow::Result<TaskShown> {
    let subject = cluster.subjects.task(verb, id);
    let question = shared::wire::AppAction { v: shared::VERSION };
    cluster
        .ask(Peer::Manager, subject, &question, TIMEOUT)
        .await
}

/// Shows one.
pub(super) async fn show(global: &Global, args: &ShowArgs) -> anyhow::Result<Exit> {
    check_id(&args.id)?;
    let cluster = Cluster::connect(global).await?;
    let shown = ask(&cluster, "show", &args.id).await?;
    if cluster.format == Format::Json {
        output::json(&shown)?;
    } else {
        print_one(&shown.task)?;
    }
    Ok(Exit::Ok)
}

/// Shows how they ended.
pub(super) async fn results(global: &Global, args: &ResultArgs) -> anyhow::Result<Exit> {
    args.which.check()?;
    let cluster = Cluster::connect(global).await?;
    let ids: Vec<String> = if args.which.app.is_some() {
        let known = known(&cluster, &args.which).await?;
        known.into_iter().map(|task| task.id).collect()
    } else {
        args.which.ids.clone()
    };
    let mut shown = Vec::new();
    for id in &ids {
        shown.push(ask(&cluster, "result", id).await?);
    }
    let over = shown.iter().all(|shown| shown.task.state.is_over());
    let exit = if over { Exit::Ok } else { Exit::Failed };
    if cluster.format == Format::Json {
        let one = |shown: &TaskShown| {
            let mut task = serde_json::to_value(&shown.task).unwrap_or_default();
            if let Some(output) = &shown.output {
                task["output"] = output.as_str().into();
            }
            task
        };
        let tasks: Vec<_> = shown.iter().map(one).collect();
        output::document(&serde_json::json!({ "tasks": tasks }))?;
        return Ok(exit);
    }
    match shown.as_slice() {
        [] => note("no tasks of it are known; results are kept for an hour"),
        [one] => {
            print_one(&one.task)?;
            match &one.output {
                Some(output) => output::say(format_args!("\n{}", output.trim_end_matches('\n')))?,
                None if over => note("its output is not known: no manager heard of its end"),
                None => {}
            }
        }
        many => {
            let tasks: Vec<TaskStatus> = many.iter().map(|shown| shown.task.clone()).collect();
            list::print(&tasks)?;
        }
    }
    if !over {
        note("not all of them are over: `vendue task wait` waits");
    }
    Ok(exit)
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
        ("attempts", task.attempts.to_string()),
    ];
    if task.state != TaskState::Waiting {
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
    rows.extend(task.why.clone().map(|why| ("why", why)));
    let mut table = Table::new(&["FIELD", "VALUE"]).text("VALUE");
    for (field, value) in rows {
        table.add_row([field.to_owned(), value]);
    }
    Ok(table.print()?)
}
