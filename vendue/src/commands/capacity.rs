//! `capacity`: how many more instances of a size fit, on the cluster or on a scenario file.

use std::time::{SystemTime, UNIX_EPOCH};

use comfy_table::Cell;
use placement::{Capacity, DeviceNeed, Explain, Kind, PlanContext, Policy, Pool, Request};
use shared::wire::{CapacityAnswer, Expected};

use super::{devices, extra, instances, place, policy_file, reasons::why, request_file, run::pair};
use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Format, Global, Usage},
    output::{self, counted, note},
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(after_help = "The exit code is 3 when none fits.\n\n\
                  Example: vendue capacity --memory 256M --disk 1G --policy dea")]
pub(crate) struct CapacityArgs {
    /// Memory for each instance: MiB, or with a unit such as 64M or 1G
    #[arg(long, value_name = "SIZE", value_parser = shared::size::parse_mib)]
    memory: i64,
    /// Disk for each instance: MiB, or with a unit such as 64M or 1G
    #[arg(long, value_name = "SIZE", value_parser = shared::size::parse_mib)]
    disk: i64,
    /// Thousandths of a core for each instance
    #[arg(long, default_value_t = 0, value_name = "MILLIS")]
    cpu: i64,
    /// A named resource for each instance, such as gpu=1; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = pair)]
    extra: Vec<(String, String)>,
    /// Devices for each instance: gpu=2 (all of two), gpu=1x220 (so much of one), gpu=1x220:T4|P100 (of
    /// these models); may be repeated
    #[arg(long, value_name = "NAME=N[xAMOUNT][:MODELS]", value_parser = devices::need)]
    devices: Vec<(String, DeviceNeed)>,
    /// Stack that the instances need
    #[arg(long)]
    stack: Option<String>,
    /// Placement tag that the instances ask for; may be repeated
    #[arg(long = "placement-tag", value_name = "TAG")]
    placement_tags: Vec<String>,
    /// Kind of the instances
    #[arg(long, value_enum, default_value_t)]
    kind: What,
    /// Policy whose filters decide what fits: a preset's name or a file [default: the auctioneer's, or
    /// the scenario's]
    #[arg(long, value_name = "NAME|FILE")]
    policy: Option<String>,
    /// Count on the cells of a scenario file (JSON or TOML) instead of a cluster; - reads standard input
    #[arg(long, value_name = "FILE")]
    scenario: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Long-running
    #[default]
    Lrp,
    /// Runs once
    Task,
}

impl CapacityArgs {
    fn request(&self) -> anyhow::Result<Request> {
        let mut request = Request::new("-", self.memory, self.disk);
        request.cpu_millis = self.cpu;
        request.extra = extra::amounts(&self.extra)?;
        request.devices = self.devices.iter().cloned().collect();
        request.stack.clone_from(&self.stack);
        request.placement_tags.clone_from(&self.placement_tags);
        request.kind = match self.kind {
            What::Lrp => Kind::Lrp,
            What::Task => Kind::Task,
        };
        request.check().map_err(Usage::invalid)?;
        Ok(request)
    }
}

/// Counts without starting anything.
pub(crate) async fn capacity(global: &Global, args: &CapacityArgs) -> anyhow::Result<Exit> {
    let request = args.request()?;
    let other = args.policy.as_deref().map(policy_file::load).transpose()?;
    let answer = match (&args.scenario, other) {
        (Some(file), _) => on_scenario(file, args.policy.as_deref(), &request)?,
        (None, Some(policy)) => by_policy(global, &policy, &request).await?,
        (None, None) => live(global, &request).await?,
    };
    for warning in &answer.warnings {
        note(format_args!("warning: {warning}"));
    }
    if global.output == Format::Json {
        output::json(&answer)?;
    } else {
        print(&answer.capacity)?;
        let (policy, cells) = (&answer.policy, counted(answer.cells, "cell"));
        note(format_args!(
            "{cells}, counted by {} (policy {policy})",
            answer.auctioneer
        ));
        if let Some(expected) = &answer.expected {
            print_expected(expected)?;
        }
    }
    Ok(if answer.capacity.fits == 0 {
        Exit::Unplaced
    } else {
        Exit::Ok
    })
}

fn on_scenario(
    file: &str,
    other: Option<&str>,
    request: &Request,
) -> anyhow::Result<CapacityAnswer> {
    let scenario = place::scenario(file, &request_file::read(file)?, other)?;
    let draw = scenario.draw(Explain::Winner);
    let capacity = scenario.pool().capacity(request, &scenario.policy, &draw);
    Ok(answer(
        request_file::named(file),
        &scenario.policy,
        scenario.cells.len(),
        capacity,
    ))
}

/// Asks an auctioneer, which uses its own policy and pool.
async fn live(global: &Global, request: &Request) -> anyhow::Result<CapacityAnswer> {
    let cluster = Cluster::connect(global).await?;
    let subject = cluster.subjects.capacity();
    cluster
        .ask(Peer::Auctioneer, subject, request, TIMEOUT)
        .await
}

/// Counts by another policy than the auctioneer's: its cells are fetched and counted here.
async fn by_policy(
    global: &Global,
    policy: &Policy,
    request: &Request,
) -> anyhow::Result<CapacityAnswer> {
    let cluster = Cluster::connect(global).await?;
    let known = instances::pool(&cluster, TIMEOUT).await?;
    let mut pool = Pool::default();
    for entry in known.cells {
        pool.put(entry.cell);
    }
    // planned reboots are dates
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let draw = PlanContext {
        now_ms: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
        ..PlanContext::default()
    };
    let capacity = pool.capacity(request, policy, &draw);
    Ok(answer(&known.auctioneer, policy, pool.len(), capacity))
}

fn answer(by: &str, policy: &Policy, cells: usize, capacity: Capacity) -> CapacityAnswer {
    CapacityAnswer {
        v: shared::VERSION,
        auctioneer: by.to_owned(),
        policy: policy.name().to_owned(),
        cells,
        capacity,
        expected: None,
        warnings: Vec::new(),
    }
}

/// Prints the expected work as a table.
fn print_expected(expected: &Expected) -> anyhow::Result<()> {
    let source = match expected.requests {
        0 => "given by the policy".to_owned(),
        n => format!("learnt from {}", counted(n, "request")),
    };
    output::say(format_args!("\nExpected work, {source}:"))?;
    let mut table = Table::new(&["SHARE", "MEMORY", "DISK", "CPU", "OTHER"])
        .optional(&["CPU", "OTHER"])
        .text("OTHER");
    for expected in &expected.sizes {
        let size = &expected.size;
        let extras = size
            .extra
            .iter()
            .map(|(name, amount)| format!("{name}={amount}"));
        let devices = size.devices.iter().map(|(name, need)| {
            let amount = need
                .amount
                .map_or(String::new(), |amount| format!("x{amount}"));
            format!("{name}={}{amount}", need.count)
        });
        table.add_row([
            format!("{:.1} %", 100.0 * expected.share),
            size.memory_mb.to_string(),
            size.disk_mb.to_string(),
            size.cpu_millis.to_string(),
            extras.chain(devices).collect::<Vec<_>>().join(" "),
        ]);
    }
    table.print()?;
    Ok(())
}

fn print(capacity: &Capacity) -> anyhow::Result<()> {
    let mut table = Table::new(&["ZONE", "MORE FIT", "ON CELLS", "MOST ON ONE"]);
    for (zone, room) in &capacity.zones {
        table.add_row([
            Cell::new(zone),
            Cell::new(room.fits),
            Cell::new(room.cells),
            Cell::new(room.most_on_a_cell),
        ]);
    }
    let cells: u64 = capacity.zones.values().map(|zone| zone.cells).sum();
    let most = capacity
        .zones
        .values()
        .map(|zone| zone.most_on_a_cell)
        .max();
    table.add_row([
        Cell::new("all"),
        Cell::new(capacity.fits),
        Cell::new(cells),
        Cell::new(most.unwrap_or_default()),
    ]);
    table.print()?;
    if let Some(reason) = &capacity.reason {
        output::say(why(Some(reason), &capacity.tally))?;
    }
    Ok(())
}
