//! `rebalance`: plans which instances of apps to move so that zones and cells are even again, and moves them.

mod apply;
mod gather;

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use comfy_table::Cell;
use placement::{Evenness, LoadBy, Move, MoveReason, PlanContext, Rate, Rebalance};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use self::{
    apply::{Moved, Moves},
    gather::{Gathered, LeftOut},
};
use super::policy_file;
use crate::{
    cluster::Cluster,
    context::{Exit, Format, Global, Usage},
    output::{self, counted, note, with_progress},
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Only apps that a manager keeps running are moved, and only by --apply. A new instance is healthy \
                  before the old one is stopped. The first move that fails ends it. After Ctrl-C no further move begins, \
                  and those that have begun are waited for; another Ctrl-C ends at once, and the manager completes them.\n\n\
                  Example: vendue rebalance --apply --rate 2/30s"
)]
pub(crate) struct RebalanceArgs {
    /// Only show the moves, those that help most first, and what they change (the default)
    #[arg(long, conflicts_with = "apply")]
    plan: bool,
    /// Carry out the moves
    #[arg(long)]
    apply: bool,
    /// So many moves at once, and the next ones this long after these began, at the earliest
    #[arg(
        long,
        value_name = "N/TIME",
        default_value = "1/10s",
        requires = "apply"
    )]
    rate: Rate,
    /// What makes a cell full
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    by: By,
    /// Only instances of this app; may be repeated
    #[arg(long, value_name = "APP")]
    app: Vec<String>,
    /// No more moves than this
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max_moves: u32,
    /// Policy that chooses the new cells: a preset's name or a file [default: the auctioneer's]
    #[arg(long, value_name = "NAME|FILE")]
    policy: Option<String>,
    /// Whether moves have begun, and whether Ctrl-C was pressed since.
    #[arg(skip)]
    moves: Stop,
}

/// How Ctrl-C ends the moves.
#[derive(Debug, Default)]
struct Stop {
    begun: AtomicBool,
    pressed: CancellationToken,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum By {
    /// The memory that is reserved on it
    #[default]
    Reserved,
    /// The memory and cpu that its instances use
    Usage,
}

/// The document printed with `--output json`.
#[derive(Serialize)]
struct Document<'a> {
    auctioneer: &'a str,
    policy: &'a str,
    by: By,
    moves: &'a [Move],
    before: Evenness,
    after: Evenness,
    left_out: &'a [LeftOut],
    #[serde(skip_serializing_if = "Option::is_none")]
    results: Option<&'a [Moved]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Evenness>,
}

impl RebalanceArgs {
    /// Lets no further move begin. Returns whether those that have begun are waited for.
    pub(crate) fn stop(&self) -> bool {
        let begun = self.moves.begun.load(Ordering::Relaxed);
        if begun {
            note("no further move begins; waiting for those that have begun (Ctrl-C ends at once)");
            self.moves.pressed.cancel();
        }
        begun
    }

    /// Notes that moves go on without this command.
    pub(crate) fn note_interrupted(&self) {
        if self.moves.begun.load(Ordering::Relaxed) {
            note(
                "a move that has begun is completed by the manager: `vendue rebalance --plan` shows what is left",
            );
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        for app in &self.app {
            placement::check_name("--app", app).map_err(Usage::invalid)?;
        }
        Ok(())
    }
}

/// Plans, and moves if requested.
pub(crate) async fn rebalance(global: &Global, args: &RebalanceArgs) -> anyhow::Result<Exit> {
    args.check()?;
    let other = args.policy.as_deref().map(policy_file::load).transpose()?;
    let cluster = Cluster::connect(global).await?;
    let gathered = gather::gather(&cluster, &args.app).await?;
    let policy = match other {
        Some(policy) => policy,
        None => gathered.policy()?,
    };
    let planned = plan(&gathered, args, &policy).await;
    let people = cluster.format == Format::Table;
    if people {
        print(&planned, &gathered.left_out)?;
    }
    let mut results = None;
    let mut measured = None;
    if args.apply && !planned.moves.is_empty() {
        args.moves.begun.store(true, Ordering::Relaxed);
        let moves = Moves::new(&cluster, args.rate, &args.moves.pressed);
        results = Some(moves.carry_out(&planned.moves).await);
        // moves are advertised at once: the figures are those of the cluster, not of the plan
        match gather::gather(&cluster, &args.app).await {
            Ok(now) => measured = Some(plan(&now, args, &policy).await.before),
            Err(error) => note(format_args!("the figures now are not known: {error}")),
        }
    }
    if people {
        if let Some(results) = &results {
            print_results(results, planned.moves.len(), planned.before, measured)?;
        } else if !args.apply && !planned.moves.is_empty() {
            note("nothing was moved: --apply moves");
        }
    } else {
        output::document(&Document {
            auctioneer: &gathered.auctioneer,
            policy: policy.name(),
            by: args.by,
            moves: &planned.moves,
            before: planned.before,
            after: planned.after,
            left_out: &gathered.left_out,
            results: results.as_deref(),
            measured,
        })?;
    }
    Ok(match results {
        Some(results) => exit(&results, planned.moves.len()),
        None => Exit::Ok,
    })
}

/// Returns the exit code: failed, or ended by Ctrl-C before all was done, or success.
fn exit(results: &[Moved], planned: usize) -> Exit {
    if results.iter().any(|moved| !moved.is_done()) {
        Exit::Failed
    } else if results.len() < planned {
        Exit::Interrupted
    } else {
        Exit::Ok
    }
}

async fn plan(gathered: &Gathered, args: &RebalanceArgs, policy: &placement::Policy) -> Rebalance {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    // planned reboots are dates
    let context = PlanContext {
        now_ms: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
        ..PlanContext::default()
    };
    let (pool, movable) = (gathered.pool.clone(), gathered.movable.clone());
    let (usage, by) = (gathered.usage.clone(), args.by);
    let (policy, most) = (policy.clone(), args.max_moves as usize);
    let work = tokio::task::spawn_blocking(move || {
        let load_by = match by {
            By::Reserved => LoadBy::Reserved,
            By::Usage => LoadBy::Usage(&usage),
        };
        pool.rebalance(movable, load_by, (&policy, &context), most)
    });
    with_progress("planning", work).await.unwrap_or_default()
}

fn print(planned: &Rebalance, left_out: &[LeftOut]) -> anyhow::Result<()> {
    for one in left_out {
        note(format_args!("{} is left as it is: {}", one.app, one.why));
    }
    if planned.moves.is_empty() {
        output::say("no move would make zones or cells more even")?;
    } else {
        let columns = ["APP", "INDEX", "FROM", "TO", "WHY"];
        let mut table = Table::new(&columns).optional(&["WHY"]);
        for one in &planned.moves {
            table.add_row(vec![
                Cell::new(&one.app),
                Cell::new(one.index),
                Cell::new(&one.from),
                Cell::new(&one.to),
                Cell::new(why(one.why)),
            ]);
        }
        table.print()?;
    }
    let moves = counted(planned.moves.len(), "move");
    let after = (!planned.moves.is_empty()).then_some((moves.as_str(), planned.after));
    print_evenness(planned.before, after)
}

fn why(reason: MoveReason) -> &'static str {
    match reason {
        MoveReason::Zone => "its zone has too many of the app",
        MoveReason::Load => "its cell is fuller than others",
    }
}

/// Prints the figures now, and after the named action.
fn print_evenness(before: Evenness, after: Option<(&str, Evenness)>) -> anyhow::Result<()> {
    let after_what = after.map(|(what, _)| format!("AFTER {what}").to_uppercase());
    let columns = ["", "NOW"].into_iter().chain(after_what.as_deref());
    let mut table = Table::new(&columns.collect::<Vec<_>>());
    let after = after.map_or(before, |(_, after)| after);
    let percent = |value: f64| format!("{value:.0} %");
    let mib = |value: i64| format!("{value} MiB");
    for (name, now, then) in [
        (
            "instances in zones that have too many of their app",
            before.uneven.to_string(),
            after.uneven.to_string(),
        ),
        (
            "load of the fullest cell",
            percent(before.fullest),
            percent(after.fullest),
        ),
        (
            "load of the emptiest cell",
            percent(before.emptiest),
            percent(after.emptiest),
        ),
        (
            "memory stranded on cells without room for the largest instance",
            mib(before.stranded_mb),
            mib(after.stranded_mb),
        ),
    ] {
        let then = after_what.is_some().then_some(then);
        table.add_row([name.to_owned(), now].into_iter().chain(then));
    }
    Ok(table.print()?)
}

fn print_results(
    results: &[Moved],
    planned: usize,
    before: Evenness,
    measured: Option<Evenness>,
) -> anyhow::Result<()> {
    let done = results.iter().filter(|moved| moved.is_done()).count();
    output::say(format_args!(
        "{} of {} done",
        done,
        counted(planned, "move")
    ))?;
    if let Some(measured) = measured {
        let moves = counted(done, "move");
        print_evenness(before, Some((moves.as_str(), measured)))?;
    }
    if done < planned {
        note("`vendue rebalance --plan` shows what is left, and --apply goes on");
    }
    Ok(())
}
