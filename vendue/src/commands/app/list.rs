//! `app list`: lists the apps, one per line.

use comfy_table::{Cell, Color};
use shared::wire::{AppList, AppListed, AppStatus, Rollout};

use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Format, Global},
    output::{self, note},
    table::Table,
};

/// Maximum number of pages, with 500 apps each.
const MAX_PAGES: usize = 1_000;

/// Lists the apps.
pub(super) async fn list(global: &Global) -> anyhow::Result<Exit> {
    let cluster = Cluster::connect(global).await?;
    let listed = all(&cluster).await?;
    if cluster.format == Format::Json {
        output::json(&listed)?;
        return Ok(Exit::Ok);
    }
    if listed.apps.is_empty() {
        note("no apps; `vendue app put FILE` puts one");
        return Ok(Exit::Ok);
    }
    print(&listed.apps)?;
    Ok(Exit::Ok)
}

/// Returns all pages as one.
pub(crate) async fn all(cluster: &Cluster) -> anyhow::Result<AppListed> {
    let mut listed = page(cluster, None).await?;
    for _ in 1..MAX_PAGES {
        let Some(after) = listed.next.take() else {
            break;
        };
        let more = page(cluster, Some(after.clone())).await?;
        listed.apps.extend(more.apps);
        listed.acting &= more.acting;
        // pages only go forward
        listed.next = more.next.filter(|next| *next > after);
    }
    Ok(listed)
}

async fn page(cluster: &Cluster, after: Option<String>) -> anyhow::Result<AppListed> {
    let question = AppList {
        v: shared::VERSION,
        after,
        limit: None,
    };
    let subject = cluster.subjects.app_list();
    let asked = cluster.ask(Peer::Manager, subject, &question, TIMEOUT);
    asked.await
}

fn print(apps: &[AppStatus]) -> anyhow::Result<()> {
    let columns = [
        "APP", "WANTED", "RUNNING", "STARTING", "CRASHED", "VERSION", "ROLLOUT", "WHY NOT",
    ];
    let mut table = Table::new(&columns)
        .optional(&["VERSION", "ROLLOUT"])
        .text("WHY NOT");
    for status in apps {
        table.add_row(vec![
            Cell::new(&status.app),
            Cell::new(status.wanted),
            Cell::new(status.running),
            Cell::new(status.starting),
            Cell::new(status.crashed + status.given_up),
            Cell::new(status.version),
            rollout_cell(status),
            Cell::new(why_not(status)),
        ]);
    }
    Ok(table.print()?)
}

/// Explains why not everything runs; empty if it does.
pub(super) fn why_not(status: &AppStatus) -> String {
    let lost = match status.suspect {
        0 => None,
        n => Some(format!("{n} on lost cells")),
    };
    let parts: Vec<String> = status.why.clone().into_iter().chain(lost).collect();
    parts.join("; ")
}

/// Returns in one word what is happening to the app.
pub(super) fn rollout(status: &AppStatus) -> &'static str {
    match status.rollout {
        _ if status.deleted => "deleted",
        _ if status.stopped => "stopped",
        Rollout::Running => "running",
        Rollout::Paused => "paused",
        Rollout::Done => "done",
        Rollout::Failed => "failed",
    }
}

fn rollout_cell(status: &AppStatus) -> Cell {
    let word = rollout(status);
    let color = match word {
        "done" => Color::Green,
        "running" | "paused" => Color::Yellow,
        "failed" => Color::Red,
        _ => Color::Reset,
    };
    Cell::new(word).fg(color)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// Returns an app whose instances all run, with other values for some fields.
    pub(crate) fn status(fields: serde_json::Value) -> AppStatus {
        let mut whole = json!({
            "app": "web", "uid": "00000001", "version": 1, "wanted": 2, "running": 2, "starting": 0,
            "complete": 2, "rollout": "done",
        });
        if let serde_json::Value::Object(fields) = fields {
            for (field, value) in fields {
                whole[field] = value;
            }
        }
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn an_app_is_listed_with_what_is_done_and_what_is_missing() {
        for (fields, word, why) in [
            (json!({}), "done", ""),
            (json!({"stopped": true, "wanted": 0}), "stopped", ""),
            (json!({"deleted": true, "stopped": true}), "deleted", ""),
            (
                json!({"rollout": "paused", "why": "no room"}),
                "paused",
                "no room",
            ),
            (
                json!({"rollout": "failed", "why": "it crashed", "suspect": 3}),
                "failed",
                "it crashed; 3 on lost cells",
            ),
        ] {
            let status = status(fields);
            assert_eq!((rollout(&status), why_not(&status).as_str()), (word, why));
        }
    }
}
