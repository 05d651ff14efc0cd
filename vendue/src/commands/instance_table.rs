//! The table of instances and of work that waits for room, for `ps` and `status`.

use comfy_table::Cell;
use shared::wire::{InstanceState, QueuedGroup};

use super::{
    devices,
    instances::{Answers, Located},
    reasons::why,
};
use crate::{
    output::{self, note},
    table::Table,
};

const HEADER: [&str; 11] = [
    "APP", "INDEX", "KIND", "STATE", "ZONE", "CELL", "AGE", "ADDRESS", "MEMORY", "RESTARTS", "NOTE",
];

/// Optional columns.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Columns {
    /// The ids of instances.
    pub(crate) ids: bool,
    /// The resource usage of instances.
    pub(crate) usage: bool,
}

/// Prints crashed instances first, then all others, then what is queued. There is a column for devices if an instance
/// has some.
pub(crate) fn print<'a>(
    instances: impl IntoIterator<Item = &'a Located>,
    queued: &[QueuedGroup],
    columns: Columns,
) -> anyhow::Result<()> {
    let mut header = HEADER.to_vec();
    if columns.usage {
        header.extend(["USES", "CPU"]);
    }
    if columns.ids {
        header.push("INSTANCE");
    }
    let instances: Vec<&Located> = instances.into_iter().collect();
    let shows_devices = instances.iter().any(|i| !i.instance.devices.is_empty());
    if shows_devices {
        header.push("DEVICES");
    }
    let mut table = Table::new(&header)
        .optional(&["RESTARTS", "MEMORY", "KIND", "ZONE", "ADDRESS"])
        .text("NOTE");
    let (crashed, others): (Vec<_>, Vec<_>) = instances
        .into_iter()
        .partition(|located| located.instance.state == InstanceState::Crashed);
    for located in crashed.into_iter().chain(others) {
        let mut row = instance_row(located);
        if columns.usage {
            row.extend(usage(located));
        }
        if columns.ids {
            row.push(Cell::new(located.instance.instance));
        }
        if shows_devices {
            row.push(Cell::new(devices::given(&located.instance.devices)));
        }
        table.add_row(row);
    }
    for group in queued {
        let mut row = queued_row(group);
        if columns.usage {
            row.extend([Cell::new("-"), Cell::new("-")]);
        }
        if columns.ids {
            row.push(Cell::new("-"));
        }
        if shows_devices {
            row.push(Cell::new("-"));
        }
        table.add_row(row);
    }
    Ok(table.print()?)
}

fn instance_row(located: &Located) -> Vec<Cell> {
    let instance = &located.instance;
    vec![
        Cell::new(&instance.app),
        Cell::new(instance.index),
        Cell::new(instance.kind),
        output::state_cell(located.state()),
        Cell::new(&located.zone),
        Cell::new(&located.cell),
        Cell::new(output::age(instance.age_ms)),
        Cell::new(located.endpoint().unwrap_or_else(|| "-".into())),
        Cell::new(format_args!("{} MiB", instance.memory_mb)),
        Cell::new(instance.restarts),
        Cell::new(note_of(located)),
    ]
}

/// Formats the usage last measured by its cell, which measures with each heartbeat.
fn usage(located: &Located) -> [Cell; 2] {
    match located.instance.usage {
        Some(usage) => [
            Cell::new(format_args!("{} MiB", usage.memory_mb)),
            Cell::new(usage.cpu_millis),
        ],
        None => [Cell::new("-"), Cell::new("-")],
    }
}

/// Returns how it ended, or ended before it was restarted, or that it is not ready; empty for a stopped one, whose
/// state says it.
fn note_of(located: &Located) -> &str {
    if located.was_stopped() {
        return "";
    }
    let instance = &located.instance;
    if instance.state == InstanceState::Running && instance.ready == Some(false) {
        return "not ready";
    }
    instance.ended.as_deref().unwrap_or_default()
}

fn queued_row(group: &QueuedGroup) -> Vec<Cell> {
    let left = output::age(group.left_ms);
    let reason = why(Some(&group.reason), &group.tally);
    vec![
        Cell::new(&group.app),
        Cell::new(&group.indices),
        Cell::new(group.kind),
        output::state_cell("queued"),
        Cell::new("-"),
        Cell::new("-"),
        Cell::new(output::age(group.waited_ms)),
        Cell::new("-"),
        Cell::new("-"),
        Cell::new("-"),
        Cell::new(format_args!("{reason}; waits {left} more")),
    ]
}

/// Names the cells that did not answer, if any.
pub(crate) fn silent_in_words(answers: &Answers) -> Option<String> {
    let of = output::counted(answers.silent.len(), "cell");
    let cells = answers.silent.join(", ");
    (!cells.is_empty()).then(|| format!("no answer from {of} ({cells})"))
}

/// Warns about what is missing from the answers.
pub(crate) fn note_what_is_missing(answers: &Answers) {
    if let Some(silent) = silent_in_words(answers) {
        note(format_args!("{silent}: what runs there is not shown"));
    }
    if answers.queued_unlisted > 0 {
        let more = output::counted(answers.queued_unlisted, "queued instance");
        note(format_args!("{more} more not listed"));
    }
}
