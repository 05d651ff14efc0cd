//! `stop`: stops an app, or some of its instances.

use std::time::Duration;

use comfy_table::Cell;
use shared::InstanceId;
use shared::wire::{Stop, StopOutcome, StopReply, parse_indices};

use super::{
    app_status::AppStatus,
    instances::{self, Answers, Located},
    managed,
};
use crate::{
    cluster::{Cluster, Peer},
    context::{Exit, Format, Global, Usage},
    output::{self, counted, note},
    table::Table,
};

#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    /// The app
    app: String,
    /// Only the instances with these indices, such as 0,2-4
    #[arg(long, value_name = "LIST")]
    indices: Option<String>,
    /// Only the instance with this id (`vendue ps --wide` shows ids); may be repeated
    #[arg(long, value_name = "UUID")]
    instance: Vec<InstanceId>,
    /// Also of an app that a manager keeps running, which then starts others for them
    #[arg(long)]
    force: bool,
}

/// Parses the value of `--indices`.
pub(crate) fn indices(text: &str) -> anyhow::Result<Vec<u32>> {
    parse_indices(text, MAX_INDICES).ok_or_else(|| {
        Usage::because(format_args!(
            "--indices {text:?}: expected a list like 0,2-4 of at most {MAX_INDICES} indices"
        ))
    })
}

/// Maximum number of instances of one request.
const MAX_INDICES: usize = 100_000;

/// Stops what matches.
pub(crate) async fn stop(global: &Global, args: &StopArgs) -> anyhow::Result<Exit> {
    placement::check_name("APP", &args.app).map_err(Usage::invalid)?;
    let indices = args.indices.as_deref().map_or(Ok(Vec::new()), indices)?;
    let cluster = Cluster::connect(global).await?;
    if !args.force {
        managed::refuse_stop(&cluster, &args.app).await?;
    }
    let question = Stop {
        v: shared::VERSION,
        app: args.app.clone(),
        indices,
        instances: args.instance.clone(),
        claim: None,
    };
    let subject = cluster.subjects.stop();
    let patience = Duration::from_secs(6);
    let mut reply: StopReply = cluster
        .ask(Peer::Auctioneer, subject, &question, patience)
        .await?;
    reply.stopped.sort_by_key(|stopped| stopped.index);
    if cluster.format == Format::Json {
        output::json(&reply)?;
    } else {
        print(&reply)?;
    }
    if reply.outcome == StopOutcome::None {
        let answers = instances::held(&cluster, Some(&args.app)).await;
        match answers {
            Ok(answers) => note(nothing_to_stop(&args.app, &answers)),
            Err(e) => note(format_args!(
                "no instance of {} was told to stop; {e:#}",
                args.app
            )),
        }
    }
    Ok(match reply.outcome {
        StopOutcome::Stopped => Exit::Ok,
        StopOutcome::None | StopOutcome::Partial => Exit::Failed,
    })
}

fn print(reply: &StopReply) -> anyhow::Result<()> {
    if !reply.stopped.is_empty() {
        let mut table = Table::new(&["APP", "INDEX", "CELL", "INSTANCE"]);
        for stopped in &reply.stopped {
            table.add_row(vec![
                Cell::new(&reply.app),
                Cell::new(stopped.index),
                Cell::new(stopped.cell.as_deref().unwrap_or("-")),
                Cell::new(stopped.instance),
            ]);
        }
        table.print()?;
    }
    let app = &reply.app;
    let told = format!("{} told to stop", counted(reply.count, "instance"));
    match reply.outcome {
        StopOutcome::None => {}
        StopOutcome::Stopped if reply.cancelled > 0 => {
            let cancelled = counted(reply.cancelled, "queued instance");
            note(format_args!("{app}: {told}, {cancelled} cancelled"));
        }
        StopOutcome::Stopped => note(format_args!("{app}: {told}")),
        StopOutcome::Partial => note(format_args!(
            "{app}: {told}; no answer from {}, which may still run some: try again",
            reply.silent.join(", ")
        )),
    }
    Ok(())
}

/// Says that nothing was stopped, and what had already ended.
fn nothing_to_stop(app: &str, answers: &Answers) -> String {
    if answers.instances.is_empty() {
        return format!("nothing to stop: no instance of {app} was found");
    }
    if answers.instances.iter().any(Located::lives) {
        return format!("nothing to stop: no instance of {app} matches");
    }
    let words = AppStatus::ended_in_words(&answers.instances);
    format!("nothing to stop: all instances of {app} have ended ({words})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::app_status::tests::located;

    #[test]
    fn a_stop_without_a_match_lists_what_there_is() {
        let said = |texts: &[&str]| {
            let instances = texts.iter().map(|text| located(text)).collect();
            nothing_to_stop(
                "a",
                &Answers {
                    instances,
                    ..Answers::default()
                },
            )
        };
        assert_eq!(said(&[]), "nothing to stop: no instance of a was found");
        assert_eq!(
            said(&["lrp 0 crashed 1", "lrp 1 crashed 1", "lrp 2 stopped 1"]),
            "nothing to stop: all instances of a have ended (2 crashed, 1 stopped)"
        );
        assert_eq!(
            said(&["lrp 0 running 1"]),
            "nothing to stop: no instance of a matches"
        );
    }

    #[test]
    fn indices_are_read_or_refused_with_the_value() {
        assert_eq!(indices("0,2-4").unwrap(), [0, 2, 3, 4]);
        for bad in ["", "x", "4-2", "0-100000"] {
            let error = indices(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("--indices {bad:?}")), "{error}");
        }
    }
}
