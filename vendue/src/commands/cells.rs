//! `cells`: shows the pool as an auctioneer sees it or one cell as it describes itself, and changes operators'
//! settings.

use comfy_table::Cell;
use serde_json::Value;
use shared::wire::{CellSet, CellSetAnswer, PoolCell};

use super::{condition::Condition, devices, instances, one_cell};
use crate::{
    cluster::{Cluster, TIMEOUT},
    context::{Exit, Format, Global, Usage},
    output::{self, note},
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CellsArgs {
    /// Only cells of which this is true, such as 'platform<20260301', rack=r1 or
    /// 'available.memory_mb>=512'; with several, all must be true. The error about an unknown FIELD
    /// lists all fields
    #[arg(long = "where", value_name = "FIELD OP VALUE")]
    conditions: Vec<Condition>,
    #[command(subcommand)]
    command: Option<CellsCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum CellsCommand {
    /// Show all that a cell advertises
    Show {
        /// The cell
        cell: String,
    },
    /// Change attributes of a cell; one with an attributes file keeps them over a restart
    Set {
        /// The cell
        cell: String,
        /// Such as next_reboot=2026-12-01, rack=r1, traits.ssd=true, placement_tags=a,b; null = as
        /// configured
        #[arg(required = true, value_name = "ATTRIBUTE=VALUE", value_parser = attribute)]
        attributes: Vec<(String, Value)>,
    },
}

fn attribute(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} has no value; expected ATTRIBUTE=VALUE"))?;
    let value = rep::attribute_value(name, value).map_err(|e| e.to_string())?;
    Ok((name.to_owned(), value))
}

/// Lists cells, or runs the subcommand on one.
pub(crate) async fn cells(global: &Global, args: &CellsArgs) -> anyhow::Result<Exit> {
    match &args.command {
        None => list(global, &args.conditions).await,
        Some(CellsCommand::Show { cell }) => show(global, cell).await,
        Some(CellsCommand::Set { cell, attributes }) => set(global, cell, attributes).await,
    }
}

async fn show(global: &Global, cell: &str) -> anyhow::Result<Exit> {
    placement::check_name("CELL", cell).map_err(Usage::invalid)?;
    let cluster = Cluster::connect(global).await?;
    let question = serde_json::json!({});
    let state: Value = one_cell::ask(&cluster, cell, "state", &question, TIMEOUT).await?;
    if cluster.format == Format::Json {
        output::json(&state)?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["FIELD", "VALUE"]).text("VALUE");
    for (name, value) in state.as_object().into_iter().flatten() {
        match value {
            Value::Object(parts) => {
                for (part, value) in parts {
                    table.add_row([format!("{name}.{part}"), plain(value)]);
                }
            }
            value => {
                table.add_row([name.clone(), plain(value)]);
            }
        }
    }
    table.print()?;
    Ok(Exit::Ok)
}

/// Formats a value: texts without quotes, lists with commas.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

async fn set(global: &Global, cell: &str, attributes: &[(String, Value)]) -> anyhow::Result<Exit> {
    placement::check_name("CELL", cell).map_err(Usage::invalid)?;
    let cluster = Cluster::connect(global).await?;
    let question = CellSet {
        v: shared::VERSION,
        set: attributes.iter().cloned().collect(),
    };
    let answer: CellSetAnswer = one_cell::ask(&cluster, cell, "set", &question, TIMEOUT).await?;
    if cluster.format == Format::Json {
        output::json(&answer)?;
    } else {
        let changed = answer.changed.iter();
        let changed: Vec<String> = changed.map(|(n, v)| format!("{n}={}", plain(v))).collect();
        let changed = if changed.is_empty() {
            "nothing".into()
        } else {
            changed.join(" ")
        };
        output::say(format_args!(
            "{cell} differs from its configuration by: {changed}"
        ))?;
    }
    if !answer.kept && !answer.changed.is_empty() {
        note(format_args!(
            "this lasts until {cell} restarts; to keep it, start its rep with --attributes-file FILE"
        ));
    }
    Ok(Exit::Ok)
}

async fn list(global: &Global, conditions: &[Condition]) -> anyhow::Result<Exit> {
    let cluster = Cluster::connect(global).await?;
    let mut pool = instances::pool(&cluster, TIMEOUT).await?;
    let all = pool.cells.len();
    pool.cells
        .retain(|entry| conditions.iter().all(|c| c.accepts(&entry.cell)));
    if cluster.format == Format::Json {
        output::json(&pool)?;
        return Ok(Exit::Ok);
    }
    print(&pool.cells, global.wide)?;
    let (auctioneer, policy) = (pool.auctioneer, pool.policy);
    let cells = if conditions.is_empty() {
        output::counted(all, "cell")
    } else {
        format!("{} of {}", pool.cells.len(), output::counted(all, "cell"))
    };
    note(format_args!(
        "{cells}, as {auctioneer} sees them (policy {policy})"
    ));
    Ok(Exit::Ok)
}

/// Prints the cells. There is an extra column if a cell keeps work away or all columns are requested, and one if a cell
/// has devices.
fn print(cells: &[PoolCell], wide: bool) -> anyhow::Result<()> {
    let mut header = vec![
        "CELL",
        "ZONE",
        "STATE",
        "MEMORY FREE",
        "DISK FREE",
        "CONTAINERS",
        "CPU FREE",
        "INSTANCES",
        "HEARD",
    ];
    let kept: Vec<String> = cells.iter().map(|entry| kept_for(&entry.cell)).collect();
    let shows_kept = wide || kept.iter().any(|kept| !kept.is_empty());
    if shows_kept {
        header.insert(3, "KEPT FOR");
    }
    let shows_devices = cells
        .iter()
        .any(|entry| !entry.cell.total.devices.is_empty());
    if shows_devices {
        header.push("DEVICES FREE");
    }
    let mut table = Table::new(&header)
        .optional(&["HEARD", "CPU FREE", "CONTAINERS", "DISK FREE", "INSTANCES"])
        .text("KEPT FOR");
    for (entry, kept) in cells.iter().zip(kept) {
        let mut row = row(entry);
        if shows_kept {
            let kept = if kept.is_empty() { "-".into() } else { kept };
            row.insert(3, Cell::new(kept));
        }
        if shows_devices {
            let (available, total) = (&entry.cell.available, &entry.cell.total);
            row.push(Cell::new(devices::free(available, total)));
        }
        table.add_row(row);
    }
    Ok(table.print()?)
}

/// Describes whose work a cell with room takes exclusively, so that others get nothing there.
fn kept_for(cell: &placement::Cell) -> String {
    let mut kept = Vec::new();
    if cell.reserved {
        kept.push("its operator (reserved)".to_owned());
    }
    if cell.control_plane {
        kept.push("the control plane".to_owned());
    }
    if !cell.placement_tags.is_empty() {
        let tags = cell.placement_tags.join(", ");
        kept.push(format!("placement tags {tags}"));
    }
    kept.join("; ")
}

fn row(entry: &PoolCell) -> Vec<Cell> {
    let cell = &entry.cell;
    let instances: u32 = cell.counts.apps.values().sum::<u32>() + cell.counts.tasks;
    let of = |free: Option<i64>, total: Option<i64>, unit: &str| match (free, total) {
        (Some(free), Some(total)) => format!("{free}/{total}{unit}"),
        _ => "unlimited".into(),
    };
    let (free, total) = (&cell.available, &cell.total);
    let cpu = match total.cpu_millis {
        0 => "none".to_owned(),
        all => format!("{}/{all}m", free.cpu_millis),
    };
    vec![
        Cell::new(&cell.cell),
        Cell::new(&cell.zone),
        Cell::new(state(entry)),
        Cell::new(of(Some(free.memory_mb), Some(total.memory_mb), " MiB")),
        Cell::new(of(free.disk_mb, total.disk_mb, " MiB")),
        Cell::new(of(free.containers, total.containers, "")),
        Cell::new(cpu),
        Cell::new(instances),
        Cell::new(format_args!("{} ago", output::age(entry.age_ms))),
    ]
}

fn state(entry: &PoolCell) -> &str {
    let cell = &entry.cell;
    let instances = cell.counts.apps.values().sum::<u32>() + cell.counts.tasks;
    match (cell.evacuating, cell.cordoned, entry.silent) {
        (true, true, _) => "cordoned",
        (true, false, _) if instances == 0 => "drained",
        (true, false, _) => "draining",
        (false, _, true) => "silent",
        (false, _, false) => &cell.status,
    }
}

#[cfg(test)]
mod tests {
    use placement::Resources;

    use super::*;

    #[test]
    fn a_cell_says_whom_it_is_kept_for() {
        let mut cell = placement::Cell::new("a", Resources::new(1, 1, 1));
        assert_eq!(kept_for(&cell), "");
        let attributes = placement::Attributes {
            reserved: true,
            placement_tags: vec!["gpu".into(), "ssd".into()],
            ..placement::Attributes::default()
        };
        cell.attributes = attributes.into();
        assert_eq!(
            kept_for(&cell),
            "its operator (reserved); placement tags gpu, ssd"
        );
    }
}
