//! `ps`: what runs, what waits for room and what crashed.

use std::{
    collections::BTreeMap,
    io::{IsTerminal, stdout},
    time::Duration,
};

use serde_json::json;
use shared::wire::{InstanceState, QueuedGroup};

use super::{
    app_status::AppStatus,
    instance_table,
    instances::{self, Answers, Located},
};
use crate::{
    cluster::Cluster,
    context::{Exit, Format, Global, Usage},
    output::{self, counted, note},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Crashed instances come first, unless another instance of the same index runs. Cells \
                  remember instances that have ended for about 10 minutes, stopped ones for 1 minute."
)]
pub(crate) struct PsArgs {
    /// Only instances of this app
    app: Option<String>,
    /// Also instances that exited, were stopped or were replaced
    #[arg(long, short)]
    all: bool,
    /// Only instances on this cell; may be repeated
    #[arg(long, value_name = "CELL")]
    cell: Vec<String>,
    /// Only instances in this zone; may be repeated
    #[arg(long, value_name = "ZONE")]
    zone: Vec<String>,
    /// Only the addresses of running instances, one per line
    #[arg(long)]
    addresses: bool,
    /// Show the list again every 2 seconds until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
}

/// The pause between two looks of `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(2);

/// Lists instances.
pub(crate) async fn ps(global: &Global, args: &PsArgs) -> anyhow::Result<Exit> {
    args.check(global.output)?;
    let cluster = Cluster::connect(global).await?;
    if !args.watch {
        let answers = look(&cluster, args).await?;
        show(global, args, &answers)?;
        return Ok(Exit::Ok);
    }
    loop {
        let answers = look(&cluster, args).await?;
        if stdout().is_terminal() {
            // from the upper left corner of an empty screen
            output::say("\x1b[2J\x1b[H")?;
        }
        let time = humantime::format_rfc3339_seconds(std::time::SystemTime::now());
        output::say(format_args!("{time}, every 2s; Ctrl-C ends"))?;
        show(global, args, &answers)?;
        tokio::time::sleep(WATCH_PAUSE).await;
    }
}

impl PsArgs {
    fn check(&self, format: Format) -> anyhow::Result<()> {
        let names = self.app.iter().map(|name| ("APP", name));
        let names = names.chain(self.cell.iter().map(|name| ("--cell", name)));
        let names = names.chain(self.zone.iter().map(|name| ("--zone", name)));
        for (what, name) in names {
            placement::check_name(what, name).map_err(Usage::invalid)?;
        }
        if self.watch && format == Format::Json {
            return Err(Usage::because(
                "--watch shows a table again and again; for programs: \
                 `vendue events --follow --output json`",
            ));
        }
        Ok(())
    }

    fn wants_place(&self, located: &Located) -> bool {
        let wants = |names: &[String], name: &String| names.is_empty() || names.contains(name);
        wants(&self.cell, &located.cell) && wants(&self.zone, &located.zone)
    }
}

/// Asks, and leaves only what was asked for.
async fn look(cluster: &Cluster, args: &PsArgs) -> anyhow::Result<Answers> {
    let mut answers = instances::held_and_queued(cluster, args.app.as_deref()).await?;
    if !args.all {
        keep_present(&mut answers);
    }
    answers
        .instances
        .retain(|located| args.wants_place(located));
    if !args.cell.is_empty() || !args.zone.is_empty() {
        answers.queued.clear(); // what waits is nowhere
        answers.queued_unlisted = 0;
    }
    Ok(answers)
}

/// Drops what ended, but for what crashed and was not replaced.
fn keep_present(answers: &mut Answers) {
    let mut queued: BTreeMap<&str, Vec<&QueuedGroup>> = BTreeMap::new();
    for group in &answers.queued {
        queued.entry(&group.app).or_default().push(group);
    }
    let kept: Vec<Located> = answers
        .instances
        .chunk_by(|a, b| a.instance.app == b.instance.app)
        .flat_map(|of_app| {
            let app = of_app[0].instance.app.as_str();
            let queued = queued.get(app).into_iter().flatten().copied();
            AppStatus::new(of_app, queued).now
        })
        .filter(|located| located.lives() || located.instance.state == InstanceState::Crashed)
        .cloned()
        .collect();
    answers.instances = kept;
}

fn show(global: &Global, args: &PsArgs, answers: &Answers) -> anyhow::Result<()> {
    instance_table::note_what_is_missing(answers);
    if args.addresses {
        return show_addresses(global.output, answers);
    }
    if global.output == Format::Json {
        return output::json(&answers.document());
    }
    if answers.instances.is_empty() && answers.queued.is_empty() {
        let cells = counted(answers.cells.len(), "cell");
        note(format_args!("no instances on {cells}"));
        return Ok(());
    }
    instance_table::print(&answers.instances, &answers.queued, global.wide)
}

fn show_addresses(format: Format, answers: &Answers) -> anyhow::Result<()> {
    let running = answers
        .instances
        .iter()
        .filter(|located| located.instance.state == InstanceState::Running);
    let addresses: Vec<String> = running.filter_map(Located::endpoint).collect();
    if format == Format::Json {
        return output::json(&json!({"v": shared::VERSION, "addresses": addresses}));
    }
    for address in addresses {
        output::say(address)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::app_status::tests::{group, located};

    #[test]
    fn without_all_only_what_lives_waits_or_crashed_is_shown() {
        let texts = [
            "lrp 0 running 1",
            "lrp 0 crashed 9",
            "lrp 1 crashed 1",
            "lrp 2 stopped 1",
            "lrp 3 exited 1",
            "lrp 4 crashed 1",
        ];
        let mut answers = Answers {
            instances: texts.iter().map(|text| located(text)).collect(),
            queued: vec![group("4")],
            ..Answers::default()
        };
        keep_present(&mut answers);
        let shown = |located: &Located| (located.instance.index, located.state());
        let shown: Vec<_> = answers.instances.iter().map(shown).collect();
        assert_eq!(shown, [(0, "running"), (1, "crashed")]);
    }
}
