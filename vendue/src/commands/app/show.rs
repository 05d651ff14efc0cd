//! `app show`: shows an app's state and its definition.

use shared::wire::{AppLook, AppShown};

use super::{connect, fields, list};
use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Format, Global},
    output::{self, note},
    table::Table,
};

#[derive(Debug, clap::Args)]
pub(crate) struct ShowArgs {
    /// The app
    app: String,
    /// The definition of this version, as `vendue app history` lists them
    #[arg(long, value_name = "N")]
    version: Option<u32>,
}

/// Asks a manager for an app.
pub(super) async fn ask(
    cluster: &Cluster,
    app: &str,
    version: Option<u32>,
) -> anyhow::Result<AppShown> {
    let question = AppLook {
        v: shared::VERSION,
        version,
    };
    let subject = cluster.subjects.app("show", app);
    let asked = cluster.ask(Peer::Manager, subject, &question, TIMEOUT);
    asked.await
}

/// Shows the app.
pub(super) async fn show(global: &Global, args: &ShowArgs) -> anyhow::Result<Exit> {
    let cluster = connect(global, &args.app).await?;
    let shown = ask(&cluster, &args.app, args.version).await?;
    if cluster.format == Format::Json {
        output::json(&shown)?;
        return Ok(Exit::Ok);
    }
    for line in in_words(&shown) {
        output::say(line)?;
    }
    let mut rows = Vec::new();
    fields(&shown.definition, "", &mut rows);
    let mut table = Table::new(&["FIELD", "VALUE"]).text("VALUE");
    for (field, value) in rows {
        table.add_row([field, value]);
    }
    table.print()?;
    note(format_args!(
        "`vendue status {}` shows its instances; values of the environment are not shown",
        args.app
    ));
    Ok(Exit::Ok)
}

fn in_words(shown: &AppShown) -> Vec<String> {
    let status = &shown.status;
    let counts = [
        (status.running, "running"),
        (status.starting, "starting"),
        (status.crashed, "waiting after a crash"),
        (status.given_up, "given up after crashes"),
        (status.suspect, "on lost cells"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(n, what)| format!(", {n} {what}")).collect();
    let (app, wanted, rollout) = (&status.app, status.wanted, list::rollout(status));
    let mut lines = vec![
        format!("{app}: {wanted} wanted{}", counts.concat()),
        format!("version {} ({rollout}), uid {}", status.version, status.uid),
    ];
    lines.extend(status.why.as_ref().map(|why| format!("why: {why}")));
    if shown.version != status.version {
        lines.push(format!("the definition of version {}:", shown.version));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_state_is_said_before_the_definition() {
        let status = list::tests::status(json!({
            "version": 4, "running": 1, "crashed": 1, "rollout": "running", "why": "no room",
        }));
        let shown = AppShown {
            v: shared::VERSION,
            manager: "m".into(),
            acting: true,
            status,
            version: 3,
            definition: json!({}),
        };
        assert_eq!(
            in_words(&shown),
            [
                "web: 2 wanted, 1 running, 1 waiting after a crash",
                "version 4 (running), uid 00000001",
                "why: no room",
                "the definition of version 3:",
            ]
        );
    }
}
