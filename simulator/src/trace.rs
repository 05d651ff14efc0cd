//! Traces: nodes and pods in CSV become cells and demands. The expected columns are those of the public openb traces;
//! [`Columns`] maps others.
//!
//! A node becomes a cell: memory and cpu unchanged, disk and containers unlimited unless mapped, and its gpus a set of
//! devices `gpu` of its model, of 1,000 each. A pod becomes an app of one instance that lives from `creation_time` to
//! `deletion_time`; it asks for `num_gpu` devices with `gpu_milli` of each, of any model named in `gpu_spec` (separated
//! by `|`). The decisions of the trace's own scheduler (`pod_phase`, `scheduled_time`, `qos`) are ignored.

mod columns;
mod resample;
mod table;

use std::{collections::BTreeSet, io::Read, sync::Arc};

use placement::{Cell, DeviceNeed, DeviceSet, Kind, MAX_AMOUNT, MAX_DEVICES, Request, Resources};

pub use columns::Columns;
pub use resample::Resample;
pub(crate) use resample::{capacity, wanted};
use table::{Row, Table};

use crate::demand::{Demand, DemandAction};

/// The set of devices of a cell with gpus.
pub const GPU: &str = "gpu";
/// The amount of each gpu, in thousandths of it.
const EACH: i64 = 1_000;
/// Maximum number of nodes in a trace.
pub const MAX_NODES: usize = 100_000;
/// Maximum number of pods in a trace.
pub const MAX_PODS: usize = 1_000_000;
/// The latest time, in seconds: a hundred years.
const LATEST_S: f64 = 100.0 * 365.0 * 86_400.0;

/// A file to read, and its name for errors.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a, R> {
    /// Its name as the user knows it.
    pub name: &'a str,
    /// Its text.
    pub text: R,
}

/// The cells and demands of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// In the order of the file.
    pub cells: Vec<Cell>,
    /// Sorted by time, then in the order of the file. The first pod arrives at 0.
    pub demands: Vec<Demand>,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It is not CSV, or an I/O error occurred.
    #[error("{file}: not readable as CSV")]
    Csv {
        /// The file.
        file: String,
        /// The cause, with the line if it has one.
        #[source]
        source: csv::Error,
    },
    /// A column is missing.
    #[error("{file}: column {column:?} (for {field}) is missing; the columns are {there}")]
    NoColumn {
        /// The file.
        file: String,
        /// The column.
        column: String,
        /// The field that it is for.
        field: &'static str,
        /// The columns of the file.
        there: String,
    },
    /// A field has an invalid value.
    #[error(
        "{file}: line {line}, column {column:?}: {value:?} is not allowed; expected {expected}"
    )]
    Value {
        /// The file.
        file: String,
        /// The line, counted from 1, the header.
        line: u64,
        /// The column's name.
        column: String,
        /// The value.
        value: String,
        /// What was expected.
        expected: String,
    },
    /// It has too many lines.
    #[error("{file}: more than {most} lines; expected at most {most}")]
    TooLong {
        /// The file.
        file: String,
        /// The bound.
        most: usize,
    },
}

/// Reads nodes and pods. `kind` determines whether pods become apps or tasks. If `timed`, pods need their times;
/// otherwise they arrive at 0 in the order of the file, and stay.
pub fn read<N: Read, P: Read>(
    nodes: Source<'_, N>,
    pods: Source<'_, P>,
    columns: &Columns,
    kind: Kind,
    timed: bool,
) -> Result<Trace, TraceError> {
    let mut cells = Vec::new();
    let mut names = BTreeSet::new();
    let mut table = Table::open(nodes, &columns.nodes, MAX_NODES)?;
    while let Some(row) = table.next()? {
        let mut cell = node(&row)?;
        unique(&row, "sn", &mut names)?;
        cell.index = u32::try_from(cells.len()).unwrap_or(u32::MAX);
        cells.push(cell);
    }
    let mut work = read_pods(pods, columns, kind, timed)?;
    work.sort_by_key(|pod| pod.created_ms);
    let first_ms = work.first().map_or(0, |pod| pod.created_ms);
    let demand = |pod: Pod| Demand {
        at_ms: pod.created_ms - first_ms,
        action: DemandAction::Start {
            request: Arc::new(pod.request),
            lifetime_ms: pod.lifetime_ms,
        },
    };
    Ok(Trace {
        cells,
        demands: work.into_iter().map(demand).collect(),
    })
}

/// Returns the requests of the pods in the order of the file; their times are ignored.
pub fn requests<P: Read>(
    pods: Source<'_, P>,
    columns: &Columns,
    kind: Kind,
) -> Result<Vec<Request>, TraceError> {
    let pods = read_pods(pods, columns, kind, false)?;
    Ok(pods.into_iter().map(|pod| pod.request).collect())
}

fn read_pods<P: Read>(
    pods: Source<'_, P>,
    columns: &Columns,
    kind: Kind,
    timed: bool,
) -> Result<Vec<Pod>, TraceError> {
    let mut names = BTreeSet::new();
    let mut work = Vec::new();
    let wanted = columns.of_pods(timed);
    let mut table = Table::open(pods, &wanted, MAX_PODS)?;
    while let Some(row) = table.next()? {
        unique(&row, "name", &mut names)?;
        work.push(pod(&row, kind, timed)?);
    }
    Ok(work)
}

fn unique(
    row: &Row<'_>,
    field: &'static str,
    names: &mut BTreeSet<String>,
) -> Result<(), TraceError> {
    let name = row.text(field);
    if names.insert(name.to_owned()) {
        return Ok(());
    }
    Err(row.wrong(field, "each name once"))
}

fn node(row: &Row<'_>) -> Result<Cell, TraceError> {
    let amount = |field, most| row.number(field, most);
    let mut total = Resources {
        memory_mb: amount("memory_mib", MAX_AMOUNT)?.unwrap_or(0),
        disk_mb: amount("disk_mib", MAX_AMOUNT)?,
        containers: amount("containers", MAX_AMOUNT)?,
        cpu_millis: amount("cpu_milli", MAX_AMOUNT)?.unwrap_or(0),
        ..Resources::default()
    };
    if let Some(count) = gpus(row, "gpu")? {
        let mut set = DeviceSet::new(count, EACH);
        set.model = models(row, "model")?.into_iter().next();
        total.devices.insert(GPU.into(), set);
    }
    let mut cell = Cell::new(row.name("sn")?, total);
    if !row.text("zone").is_empty() {
        cell.attributes_mut().zone = row.name("zone")?;
    }
    Ok(cell)
}

/// Returns the number of gpus; none if it is 0.
fn gpus(row: &Row<'_>, field: &'static str) -> Result<Option<u32>, TraceError> {
    let count = row.number(field, MAX_DEVICES.into())?;
    Ok(count.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0))
}

/// Returns the models that a field names, sorted.
fn models(row: &Row<'_>, field: &'static str) -> Result<Vec<String>, TraceError> {
    let models = row.text(field).split('|').map(str::trim);
    let models: BTreeSet<&str> = models.filter(|model| !model.is_empty()).collect();
    if models.len() > 64 || models.iter().any(|model| model.len() > 128) {
        return Err(row.wrong(field, "at most 64 models of at most 128 characters"));
    }
    Ok(models.into_iter().map(str::to_owned).collect())
}

struct Pod {
    created_ms: u64,
    lifetime_ms: Option<u64>,
    request: Request,
}

fn pod(row: &Row<'_>, kind: Kind, timed: bool) -> Result<Pod, TraceError> {
    let name = row.name("name")?;
    let amount = |field| row.number(field, MAX_AMOUNT).map(Option::unwrap_or_default);
    let mut request = Request::new(&name, amount("memory_mib")?, amount("disk_mib")?);
    request.id = name;
    request.kind = kind;
    request.cpu_millis = amount("cpu_milli")?;
    // a share of each gpu; without the column, the whole of each
    let share = row.number("gpu_milli", EACH)?.unwrap_or(EACH);
    let models = models(row, "gpu_spec")?;
    if let Some(count) = gpus(row, "num_gpu")?.filter(|_| share > 0) {
        let mut need = DeviceNeed::new(count, Some(share));
        need.models = models;
        request.devices.insert(GPU.into(), need);
    }
    if !timed {
        return Ok(Pod {
            created_ms: 0,
            lifetime_ms: None,
            request,
        });
    }
    let created = row.seconds("creation_time")?;
    let Some(created_s) = created else {
        return Err(row.wrong("creation_time", "seconds"));
    };
    let deleted_s = row.seconds("deletion_time")?;
    if deleted_s.is_some_and(|deleted_s| deleted_s < created_s) {
        return Err(row.wrong("deletion_time", "a time that is not before the creation"));
    }
    let created_ms = millis(created_s);
    Ok(Pod {
        created_ms,
        lifetime_ms: deleted_s.map(|deleted_s| millis(deleted_s) - created_ms),
        request,
    })
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked before
fn millis(seconds: f64) -> u64 {
    (seconds * 1000.0).round() as u64
}

#[cfg(test)]
mod tests;
