//! Shows the result of changing an app, to people and to programs.

use comfy_table::Cell;
use serde::Serialize;
use shared::wire::{AppChanged, FieldChange, to_bytes};

use super::{CHANGE_PATIENCE, changes_table, in_words, wait};
use crate::{
    cluster::{Cluster, Peer},
    context::{Exit, Format},
    output::{self, note},
    table::Table,
};

/// Asks a manager for a change.
pub(super) async fn ask(
    cluster: &Cluster,
    verb: &str,
    app: &str,
    body: &impl Serialize,
) -> anyhow::Result<AppChanged> {
    let subject = cluster.subjects.app(verb, app);
    let asked = cluster.ask(Peer::Manager, subject, body, CHANGE_PATIENCE);
    asked.await
}

/// Reports the result of one change, and waits for its instances if requested.
pub(super) async fn report(
    cluster: &Cluster,
    changed: AppChanged,
    waiting: &wait::Waiting,
    target: wait::Target,
) -> anyhow::Result<Exit> {
    if cluster.format == Format::Table {
        output::say(in_a_line(&changed))?;
        print_changes([&changed])?;
    }
    let waited = waiting.until_ready(cluster, vec![target]).await?;
    if cluster.format == Format::Json {
        let mut document: serde_json::Value = serde_json::from_slice(&to_bytes(&changed))?;
        if let Some(waited) = &waited {
            document["waited"] = serde_json::to_value(waited)?;
        }
        output::json(&document)?;
        return Ok(wait::exit(waited.as_deref().unwrap_or_default()));
    }
    wait::print(waited.as_deref().unwrap_or_default())
}

/// Formats `web: changed, version 4`.
pub(super) fn in_a_line(changed: &AppChanged) -> String {
    let what = match (changed.changed, changed.created, changed.dry_run) {
        (false, ..) => "unchanged",
        (true, true, false) => "created",
        (true, true, true) => "would be created",
        (true, false, false) => "changed",
        (true, false, true) => "would change",
    };
    format!("{}: {what}, version {}", changed.app, changed.version)
}

/// Prints the fields that differ, if any.
pub(super) fn print_changes<'a>(
    all: impl IntoIterator<Item = &'a AppChanged>,
) -> anyhow::Result<()> {
    let mut table = changes_table();
    let (mut rows, mut more) = (0, Vec::new());
    for changed in all {
        rows += changed.changes.len();
        add_rows(&mut table, &changed.app, &changed.changes);
        if changed.more {
            more.push(changed.app.as_str());
        }
    }
    if rows > 0 {
        table.print()?;
    }
    if !more.is_empty() {
        note(format_args!("{}: more fields differ", more.join(", ")));
    }
    Ok(())
}

fn add_rows(table: &mut Table, app: &str, changes: &[FieldChange]) {
    for change in changes {
        table.add_row(vec![
            Cell::new(app),
            Cell::new(&change.field),
            Cell::new(in_words(change.before.as_ref())),
            Cell::new(in_words(change.after.as_ref())),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_in_a_line() {
        let line = |changed, created, dry_run| {
            in_a_line(&AppChanged {
                app: "web".into(),
                version: 4,
                changed,
                created,
                dry_run,
                ..AppChanged::default()
            })
        };
        assert_eq!(line(false, false, false), "web: unchanged, version 4");
        assert_eq!(line(false, false, true), "web: unchanged, version 4");
        assert_eq!(line(true, true, false), "web: created, version 4");
        assert_eq!(line(true, true, true), "web: would be created, version 4");
        assert_eq!(line(true, false, false), "web: changed, version 4");
        assert_eq!(line(true, false, true), "web: would change, version 4");
    }
}
