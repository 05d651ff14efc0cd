//! `ps`: shows what runs, what waits for room and what crashed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use shared::wire::{InstanceState, QueuedGroup};

use super::{
    app_status::AppStatus,
    instance_table::{self, Columns},
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
    /// Only the addresses of instances that run and are ready, one per line
    #[arg(long)]
    addresses: bool,
    /// Also what each instance uses: memory, and cpu in thousandths of a core
    #[arg(long, conflicts_with = "addresses")]
    usage: bool,
    /// Show the list again every 2 seconds until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
}

/// Lists instances.
pub(crate) async fn ps(global: &Global, args: &PsArgs) -> anyhow::Result<Exit> {
    args.check(global.output)?;
    let cluster = Cluster::connect(global).await?;
    if !args.watch {
        let found = look(&cluster, args).await?;
        show(global, args, &found)?;
        return Ok(Exit::Ok);
    }
    watch(global, args, &cluster).await
}

/// Lists repeatedly. After the first list, a look without any answer is reported rather than shown as an empty list.
async fn watch(global: &Global, args: &PsArgs, cluster: &Cluster) -> anyhow::Result<Exit> {
    let _told = cluster.tell_of_connection();
    let mut found = Ok(look(cluster, args).await?);
    loop {
        output::begin_look()?;
        match &found {
            Ok(found) => show(global, args, found)?,
            Err(e) => note(format_args!("no list: {e:#}; asking again")),
        }
        tokio::time::sleep(output::WATCH_PAUSE).await;
        found = look(cluster, args).await;
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

/// The requested instances.
#[derive(Debug)]
struct Found {
    answers: Answers,
    /// Number of ended instances, which are only shown with `--all`.
    ended: usize,
}

/// Asks, and keeps only what was requested.
async fn look(cluster: &Cluster, args: &PsArgs) -> anyhow::Result<Found> {
    let mut answers = instances::held_and_queued(cluster, args.app.as_deref()).await?;
    answers
        .instances
        .retain(|located| args.wants_place(located));
    let all = answers.instances.len();
    if !args.all {
        keep_present(&mut answers);
    }
    let ended = all - answers.instances.len();
    if !args.cell.is_empty() || !args.zone.is_empty() {
        answers.queued.clear(); // waiting work has no place
        answers.queued_unlisted = 0;
    }
    Ok(Found { answers, ended })
}

/// Returns a line for each requested place from which no cell answers.
fn unheard(args: &PsArgs, answers: &Answers) -> Vec<String> {
    let cells: BTreeSet<&str> = answers.cells.keys().map(String::as_str).collect();
    let zones: BTreeSet<&str> = answers.cells.values().map(String::as_str).collect();
    let silent = |name: &str| answers.silent.iter().any(|silent| silent == name);
    let line = |what: &str, name: &str, known: &BTreeSet<&str>| {
        let known: Vec<&str> = known.iter().copied().collect();
        let hint = placement::nearest(name, &known)
            .map_or(String::new(), |near| format!("; did you mean {near}?"));
        format!("no {what} {name} answers{hint}")
    };
    let no_cells = args.cell.iter().map(String::as_str);
    let no_cells = no_cells.filter(|name| !cells.contains(name) && !silent(name));
    let no_cells = no_cells.map(|name| line("cell", name, &cells));
    let no_zones = args.zone.iter().map(String::as_str);
    let no_zones = no_zones.filter(|name| !zones.contains(name));
    let no_zones = no_zones.map(|name| line("zone", name, &zones));
    no_cells.chain(no_zones).collect()
}

/// Returns the message if there is nothing to list.
fn nothing(args: &PsArgs, found: &Found) -> String {
    let cells = counted(found.answers.cells.len(), "cell");
    let of = args
        .app
        .as_ref()
        .map_or(String::new(), |app| format!(" of {app}"));
    let there = if args.cell.is_empty() && args.zone.is_empty() {
        format!("no instances{of} on {cells}")
    } else {
        format!("no instances{of} there ({cells} answered)")
    };
    match found.ended {
        0 => there,
        1 => format!("{there}; 1 has ended: --all shows it"),
        n => format!("{there}; {n} have ended: --all shows them"),
    }
}

/// Drops ended instances, except for crashed ones that were not replaced.
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

fn show(global: &Global, args: &PsArgs, found: &Found) -> anyhow::Result<()> {
    let answers = &found.answers;
    instance_table::note_what_is_missing(answers);
    unheard(args, answers).into_iter().for_each(note);
    if args.addresses {
        return show_addresses(global.output, answers);
    }
    if global.output == Format::Json {
        return output::json(&answers.document());
    }
    if answers.instances.is_empty() && answers.queued.is_empty() {
        note(nothing(args, found));
        return Ok(());
    }
    let columns = Columns {
        ids: global.wide,
        usage: args.usage,
    };
    instance_table::print(&answers.instances, &answers.queued, columns)
}

fn show_addresses(format: Format, answers: &Answers) -> anyhow::Result<()> {
    let addresses = addresses(answers);
    if format == Format::Json {
        return output::json(&json!({"v": shared::VERSION, "addresses": addresses}));
    }
    for address in addresses {
        output::say(address)?;
    }
    Ok(())
}

/// Returns the addresses to which requests may be sent.
fn addresses(answers: &Answers) -> Vec<String> {
    let usable = answers.instances.iter().filter(|located| {
        let instance = &located.instance;
        instance.state == InstanceState::Running && instance.ready != Some(false)
    });
    usable.filter_map(Located::endpoint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::app_status::tests::{group, located};

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        ps: PsArgs,
    }

    fn args(line: &str) -> PsArgs {
        let words = line.split(' ').filter(|word| !word.is_empty());
        <Line as clap::Parser>::parse_from(std::iter::once("ps").chain(words)).ps
    }

    #[test]
    fn places_that_nobody_answers_from_are_named() {
        let cells = [("z1-cell-0", "z1"), ("z2-cell-0", "z2")];
        let answers = Answers {
            cells: cells.map(|(c, z)| (c.to_owned(), z.to_owned())).into(),
            silent: vec!["z3-cell-0".into()],
            ..Answers::default()
        };
        let said = |line: &str| unheard(&args(line), &answers);
        let known = "--cell z1-cell-0 --cell z3-cell-0 --zone z2";
        assert_eq!(said(known), [""; 0]);
        assert_eq!(
            said("--cell z1-cel-0 --zone nowhere"),
            [
                "no cell z1-cel-0 answers; did you mean z1-cell-0?",
                "no zone nowhere answers"
            ]
        );
    }

    #[test]
    fn where_nothing_runs_what_has_ended_is_hinted_at() {
        let said = |line: &str, ended| {
            let answers = Answers::default();
            nothing(&args(line), &Found { answers, ended })
        };
        assert_eq!(said("", 0), "no instances on 0 cells");
        assert_eq!(
            said("web", 1),
            "no instances of web on 0 cells; 1 has ended: --all shows it"
        );
        assert_eq!(
            said("--zone z1", 3),
            "no instances there (0 cells answered); 3 have ended: --all shows them"
        );
    }

    #[test]
    fn who_is_not_ready_has_no_address() {
        let mut answers = Answers {
            instances: ["lrp 0 running 1", "lrp 1 running 1", "lrp 2 starting 1"]
                .map(located)
                .into(),
            ..Answers::default()
        };
        for (located, ready) in answers
            .instances
            .iter_mut()
            .zip([Some(true), Some(false), None])
        {
            (located.instance.port, located.instance.ready) = (Some(61_001), ready);
        }
        assert_eq!(addresses(&answers), ["127.0.0.1:61001"]);
        answers.instances[1].instance.ready = None;
        assert_eq!(addresses(&answers).len(), 2);
    }

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
