//! `vendue bench apps`: how soon a manager has everything running again, and what that costs. The manager, the
//! auctioneer and the simulated cells are separate processes, on a private nats-server with JetStream.

mod crashes;
mod fleet;
mod loss;
mod report;
mod rest;
mod rollout;
mod stored;

use std::time::Duration;

use shared::shutdown;

use self::report::{Report, Target};
use crate::{
    context::{Exit, Format, Global},
    output::{self, note},
    table::Table,
};

/// Measures a manager that keeps apps running on simulated cells.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AppsArgs {
    /// What to measure [default: everything]
    #[arg(value_enum, value_name = "WHAT")]
    what: Vec<What>,
    /// Divide the numbers of cells, apps and instances by this, for a quick look
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    divide: u32,
    /// How long to measure the manager at rest
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    idle: Duration,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// From the event of an end to the next instance, 100 cells with 100 instances that end again and again
    Crashes,
    /// A new version of 1,000 instances on 100 cells, 50 in flight
    Rollout,
    /// Half of 200 cells with 10,000 instances is lost at once
    Loss,
    /// 1,000 tasks on 100 cells, from the first submission to the last end
    Tasks,
    /// Durable requests that are acknowledged in a second, 256 in flight, each write on the disk
    Durable,
    /// A manager's memory and processor time, 250,000 instances of 10,000 apps on 1,000 cells
    Rest,
}

const ALL: [What; 6] = [
    What::Crashes,
    What::Rollout,
    What::Loss,
    What::Tasks,
    What::Durable,
    What::Rest,
];

/// Divides sizes for a quick look.
#[derive(Clone, Copy, Debug)]
struct Divided(u32);

impl Divided {
    /// Returns a divided count; at least `least`.
    fn of(self, count: u32, least: u32) -> u32 {
        (count / self.0).max(least)
    }
}

/// Runs the requested benchmarks, each on its own cluster, and prints the results.
pub(crate) async fn run_apps(global: &Global, args: &AppsArgs) -> anyhow::Result<Exit> {
    let end = shutdown::on_signals()?;
    tokio::select! {
        done = Box::pin(measure(global, args)) => done,
        () = end.cancelled() => Ok(Exit::Interrupted),
    }
}

async fn measure(global: &Global, args: &AppsArgs) -> anyhow::Result<Exit> {
    let sizes = Divided(args.divide);
    let mut report = Report::default();
    for what in ALL {
        if !args.what.is_empty() && !args.what.contains(&what) {
            continue;
        }
        match what {
            What::Crashes => report.crashes = Some(crashes::measure(global, sizes).await?),
            What::Rollout => report.rollout = Some(rollout::measure(global, sizes).await?),
            What::Loss => report.loss = Some(loss::measure(global, sizes).await?),
            What::Tasks => report.tasks = Some(stored::tasks(global, sizes).await?),
            What::Durable => report.durable = Some(stored::durable(global, sizes).await?),
            What::Rest => report.rest = Some(rest::measure(global, sizes, args.idle).await?),
        }
    }
    print(global.output, &report)?;
    if args.divide > 1 {
        note("a smaller cluster than that of the aims: no figures to compare with them");
    }
    Ok(Exit::Ok)
}

fn print(format: Format, report: &Report) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::document(report);
    }
    let mut table = Table::new(&["", "figure", "aim", "beside"]);
    for Target {
        what,
        figure,
        aim,
        beside,
    } in report.rows()
    {
        table.add_row([what, figure, aim, beside]);
    }
    Ok(table.print()?)
}
