//! `app history`: the versions of an app.

use bytes::Bytes;
use comfy_table::Cell;
use shared::wire::{AppHistory, AppVersion};

use super::{connect, in_words};
use crate::{
    cluster::{Peer, TIMEOUT},
    context::{Exit, Format, Global},
    output::{self, note},
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "`vendue app undo APP` returns to the version that is marked undo. Of an older one \
                  `vendue app show APP --version N` shows the definition."
)]
pub(crate) struct HistoryArgs {
    /// The app
    app: String,
}

/// Lists the versions.
pub(super) async fn history(global: &Global, args: &HistoryArgs) -> anyhow::Result<Exit> {
    let cluster = connect(global, &args.app).await?;
    let subject = cluster.subjects.app("history", &args.app);
    let asked = cluster.ask_raw(Peer::Manager, subject, Bytes::new(), TIMEOUT);
    let history: AppHistory = serde_json::from_slice(&asked.await?)?;
    if cluster.format == Format::Json {
        output::json(&history)?;
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["VERSION", "TIME", "IS", "FIELD", "BEFORE", "AFTER"])
        .optional(&["TIME"])
        .text("AFTER");
    for version in &history.versions {
        for row in rows(version) {
            table.add_row(row);
        }
        if version.more {
            note(format_args!(
                "version {}: more fields differ",
                version.version
            ));
        }
    }
    table.print()?;
    Ok(Exit::Ok)
}

/// Returns a row for each field that changed, and at least one.
fn rows(version: &AppVersion) -> Vec<Vec<Cell>> {
    let mark = match (version.current, version.undo) {
        (true, _) => "wanted",
        (false, true) => "undo",
        (false, false) => "",
    };
    let time = version.time.as_deref().unwrap_or("-");
    let begin = [version.version.to_string(), time.into(), mark.into()];
    let row =
        |begin: &[String; 3], rest: [String; 3]| begin.iter().chain(&rest).map(Cell::new).collect();
    if version.changes.is_empty() {
        return vec![row(&begin, [const { String::new() }; 3])];
    }
    let repeated = [const { String::new() }; 3];
    let changes = version.changes.iter().enumerate();
    changes
        .map(|(i, change)| {
            let begin = if i == 0 { &begin } else { &repeated };
            let (before, after) = (change.before.as_ref(), change.after.as_ref());
            row(
                begin,
                [change.field.clone(), in_words(before), in_words(after)],
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use shared::wire::FieldChange;

    use super::*;

    #[test]
    fn a_version_has_a_row_for_each_change_and_one_at_least() {
        let change = |field: &str| FieldChange {
            field: field.into(),
            before: Some(1.into()),
            after: None,
        };
        let version = |changes| AppVersion {
            version: 3,
            current: true,
            undo: false,
            time: None,
            changes,
            more: false,
        };
        let texts = |changes| -> Vec<Vec<String>> {
            let rows = rows(&version(changes));
            let texts = |row: Vec<Cell>| row.iter().map(Cell::content).collect();
            rows.into_iter().map(texts).collect()
        };
        assert_eq!(texts(vec![]), [["3", "-", "wanted", "", "", ""]]);
        assert_eq!(
            texts(vec![change("a"), change("b")]),
            [
                ["3", "-", "wanted", "a", "1", "-"],
                ["", "", "", "b", "1", "-"]
            ]
        );
    }
}
