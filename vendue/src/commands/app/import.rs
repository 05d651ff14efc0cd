//! `app import`: puts or restores the apps of an exported file.

use std::time::Duration;

use comfy_table::Cell;
use shared::wire::{AppExport, AppImport, AppImportResult, AppImported, code, to_bytes};

use super::file;
use crate::{
    cluster::{Cluster, Peer},
    context::{Exit, Format, Global},
    output,
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without --restore each app is put: it gets a new version where it is different. --restore is for a \
                  bucket that was lost: apps keep their ids and versions, so that managers take over what runs."
)]
pub(crate) struct ImportArgs {
    /// A file that `vendue app export` wrote; - reads standard input
    file: String,
    /// Keep bucket, uid and version, so that what runs is taken over; only for apps that are not stored
    #[arg(long)]
    restore: bool,
}

/// Maximum number of apps in a message.
const MAX_APPS: usize = 1_000;
/// How long a message may take, as a manager stores its apps one after the other.
const PATIENCE: Duration = Duration::from_secs(120);

/// Imports the apps.
pub(super) async fn import(global: &Global, args: &ImportArgs) -> anyhow::Result<Exit> {
    let apps = file::exported(&args.file)?;
    let cluster = Cluster::connect(global).await?;
    let Some(imported) = put(&cluster, apps, args.restore).await? else {
        return Ok(Exit::Ok);
    };
    match cluster.format {
        Format::Json => output::json(&imported)?,
        Format::Table => print(&imported.apps)?,
    }
    Ok(exit(&imported.apps))
}

/// Puts or restores these apps. Returns one answer for all of them; none if there are none.
pub(crate) async fn put(
    cluster: &Cluster,
    apps: Vec<AppExport>,
    restore: bool,
) -> anyhow::Result<Option<AppImported>> {
    let most = cluster.bus.client.server_info().max_payload;
    let mut imported: Option<AppImported> = None;
    for apps in messages(apps, most) {
        let question = AppImport {
            v: shared::VERSION,
            restore,
            apps,
        };
        let subject = cluster.subjects.app_import();
        let asked = cluster.ask(Peer::Manager, subject, &question, PATIENCE);
        let answer: AppImported = asked.await?;
        match &mut imported {
            None => imported = Some(answer),
            Some(imported) => imported.apps.extend(answer.apps),
        }
    }
    Ok(imported)
}

/// Splits apps into messages as large as possible. An app that is too large by itself is refused when it is sent.
fn messages(apps: Vec<AppExport>, most: usize) -> Vec<Vec<AppExport>> {
    let frame = 64;
    let mut messages: Vec<Vec<AppExport>> = Vec::new();
    let mut size = usize::MAX;
    for app in apps {
        let more = to_bytes(&app).len() + 1;
        let full = messages.last().is_none_or(|last| last.len() >= MAX_APPS);
        if full || size.saturating_add(more) > most {
            messages.push(Vec::new());
            size = frame;
        }
        size += more;
        if let Some(last) = messages.last_mut() {
            last.push(app);
        }
    }
    messages
}

fn print(apps: &[AppImportResult]) -> anyhow::Result<()> {
    let mut table = Table::new(&["APP", "VERSION", "OUTCOME", "REASON"]).text("REASON");
    for result in apps {
        let version = result
            .version
            .map_or("-".into(), |version| version.to_string());
        let outcome = match (&result.error, result.changed) {
            (Some(_), _) => "refused",
            (None, true) => "imported",
            (None, false) => "unchanged",
        };
        let reason = result.error.as_ref().map_or("", |error| &error.message);
        table.add_row([&result.app, &version, outcome, reason].map(Cell::new));
    }
    Ok(table.print()?)
}

/// Returns the first exit code that applies to any app: invalid, not accepted.
fn exit(apps: &[AppImportResult]) -> Exit {
    let mut errors = apps.iter().filter_map(|result| result.error.as_ref());
    match errors.clone().next() {
        None => Exit::Ok,
        Some(_) if errors.any(|error| error.code == code::INVALID_REQUEST) => Exit::BadUsage,
        Some(_) => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::wire::WireError;

    use super::*;

    #[test]
    fn a_message_has_as_many_apps_as_fit() {
        let app = |i: usize| AppExport {
            definition: json!({"app": format!("app-{i:04}"), "text": "x".repeat(100)}),
            ..AppExport::default()
        };
        let apps: Vec<AppExport> = (0..2_500).map(app).collect();
        let split = |most| -> Vec<usize> {
            let messages = messages(apps.clone(), most);
            let import = |apps: &Vec<AppExport>| AppImport {
                v: shared::VERSION,
                restore: true,
                apps: apps.clone(),
            };
            assert!(
                messages
                    .iter()
                    .all(|apps| apps.len() == 1 || to_bytes(&import(apps)).len() <= most)
            );
            assert_eq!(messages.concat(), apps);
            messages.iter().map(Vec::len).collect()
        };
        assert_eq!(split(1_000_000), [1_000, 1_000, 500]);
        assert!(split(10_000).len() > 25);
        assert_eq!(split(10).len(), 2_500);
    }

    #[test]
    fn the_worst_app_is_the_exit_code() {
        let result = |text: &str| AppImportResult {
            app: "web".into(),
            version: None,
            changed: true,
            error: (text != "put").then(|| WireError::new(text, "")),
        };
        for (texts, expected) in [
            ("put put", Exit::Ok),
            ("put conflict", Exit::Failed),
            ("conflict invalid_request put", Exit::BadUsage),
        ] {
            let results: Vec<_> = texts.split(' ').map(result).collect();
            assert_eq!(exit(&results), expected, "{texts}");
        }
    }
}
