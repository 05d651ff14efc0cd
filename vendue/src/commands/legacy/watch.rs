//! `legacy watch`: shows the DEAs that are heard.

use advertiser::dea::DeaState;
use comfy_table::Cell;

use super::{
    listen::{ListenArgs, Listener},
    picture::{DeaRow, Picture},
};
use crate::{
    context::{Exit, Format, Global, Usage},
    output::{self, counted, note},
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Nothing is published. A DEA is live while a Cloud Controller would place on it, shutdown when it has said \
                  that it takes no more work, and silent when only its heartbeats are heard, or nothing any more.\n\n\
                  Example: vendue legacy watch --expiry 15s --apps"
)]
pub(super) struct WatchArgs {
    #[command(flatten)]
    listen: ListenArgs,
    /// Also list every app with the zones that it runs in
    #[arg(long)]
    apps: bool,
    /// Show what is known again every 2 seconds, until Ctrl-C
    #[arg(long)]
    pub(super) watch: bool,
}

/// Listens and shows what was heard.
pub(super) async fn watch(global: &Global, args: &WatchArgs) -> anyhow::Result<Exit> {
    if args.watch && global.output == Format::Json {
        return Err(Usage::because(
            "--watch shows tables again and again; for programs: `vendue legacy watch --output json`",
        ));
    }
    let mut listener = Listener::begin(global, &args.listen).await?;
    if args.watch {
        loop {
            listener.listen(output::WATCH_PAUSE).await?;
            output::begin_look()?;
            show(&listener, args)?;
        }
    }
    let time = placement::Span(args.listen.time);
    note(format_args!("listening to DEAs for {time}"));
    listener.listen(args.listen.time).await?;
    if global.output == Format::Json {
        listener.note_doubts();
        output::document(&Picture::of(&listener.estate, listener.now_ms()))?;
    } else {
        show(&listener, args)?;
    }
    Ok(Exit::Ok)
}

fn show(listener: &Listener, args: &WatchArgs) -> anyhow::Result<()> {
    let picture = Picture::of(&listener.estate, listener.now_ms());
    listener.note_doubts();
    if !picture.deas.is_empty() {
        deas(&picture).print()?;
        output::say("")?;
        zones(&picture).print()?;
    }
    if args.apps && !picture.apps.is_empty() {
        output::say("")?;
        apps(&picture).print()?;
    }
    if !picture.senders.is_empty() {
        output::say("")?;
        senders(&picture).print()?;
    }
    note(summary(&picture));
    Ok(())
}

/// Formats `2 DEAs live, 1 shutdown, 0 silent; 3 apps, 7 instances; 12 messages understood, 0 malformed`.
fn summary(picture: &Picture) -> String {
    let [live, shutdown, silent] =
        [DeaState::Live, DeaState::ShutDown, DeaState::Silent].map(|state| picture.count(state));
    let instances: u64 = picture.apps.values().map(|app| app.instances).sum();
    let instances = counted(usize::try_from(instances).unwrap_or(usize::MAX), "instance");
    let malformed: u64 = picture.senders.iter().map(|sender| sender.malformed).sum();
    let mut text = format!(
        "{} live, {shutdown} shutdown, {silent} silent; {}, {instances}; {} messages understood, {malformed} malformed",
        counted(live, "DEA"),
        counted(picture.apps.len(), "app"),
        picture.heard,
    );
    if picture.of_others > 0 {
        text += &format!(
            "; {} malformed or odd of further senders",
            picture.of_others
        );
    }
    text
}

fn deas(picture: &Picture) -> Table {
    let header = [
        "DEA",
        "ZONE",
        "STATE",
        "MEMORY",
        "DISK",
        "STACKS",
        "APPS",
        "INSTANCES",
        "RUNNING",
        "HEARD",
        "EXPIRES",
        "IP",
    ];
    let optional = &[
        "IP", "RUNNING", "EXPIRES", "APPS", "STACKS", "DISK", "HEARD",
    ];
    let mut table = Table::new(&header).optional(optional);
    for row in &picture.deas {
        table.add_row(dea(row));
    }
    table
}

fn dea(row: &DeaRow) -> Vec<Cell> {
    let none = || "-".to_owned();
    let running = row.states.as_ref().map(|states| {
        let running = states.get("RUNNING").copied().unwrap_or(0);
        running.to_string()
    });
    let disk = match (row.disk_mb, row.memory_mb) {
        (Some(disk), _) => format!("{disk} MiB"),
        (None, Some(_)) => "unlimited".to_owned(),
        (None, None) => none(),
    };
    vec![
        Cell::new(&row.dea),
        Cell::new(row.zone.as_deref().map_or_else(none, plain)),
        Cell::new(row.state),
        Cell::new(row.memory_mb.map_or_else(none, |mb| format!("{mb} MiB"))),
        Cell::new(disk),
        Cell::new(plain(&row.stacks.join(", "))),
        Cell::new(row.apps),
        Cell::new(row.instances),
        Cell::new(running.unwrap_or_else(none)),
        Cell::new(format_args!("{} ago", output::age(row.age_ms))),
        Cell::new(
            row.expires_ms
                .map_or_else(none, |ms| format!("in {}", output::age(ms))),
        ),
        Cell::new(row.ip.as_deref().map_or_else(none, plain)),
    ]
}

/// Makes text of a DEA, which may contain anything, safe for a terminal.
fn plain(text: &str) -> String {
    text.replace(char::is_control, " ")
}

fn zones(picture: &Picture) -> Table {
    let mut table = Table::new(&["ZONE", "DEAS", "MEMORY", "MOST ON ONE", "INSTANCES"]);
    for (zone, row) in &picture.zones {
        table.add_row([
            Cell::new(plain(zone)),
            Cell::new(row.deas),
            Cell::new(format_args!("{} MiB", row.memory_mb)),
            Cell::new(format_args!("{} MiB", row.most_memory_mb)),
            Cell::new(row.instances),
        ]);
    }
    table
}

fn apps(picture: &Picture) -> Table {
    let mut table = Table::new(&["APP", "INSTANCES", "DEAS", "ZONES"]);
    for (app, row) in &picture.apps {
        let zones: Vec<&str> = row.zones.iter().map(String::as_str).collect();
        table.add_row([
            Cell::new(app),
            Cell::new(row.instances),
            Cell::new(row.deas),
            Cell::new(plain(&zones.join(", "))),
        ]);
    }
    table
}

fn senders(picture: &Picture) -> Table {
    let mut table = Table::new(&["SENDER", "MALFORMED", "ODD", "LAST ON", "WHY"]).text("WHY");
    for row in &picture.senders {
        table.add_row([
            Cell::new(row.sender.as_deref().unwrap_or("(unnamed)")),
            Cell::new(row.malformed),
            Cell::new(row.odd),
            Cell::new(row.subject),
            Cell::new(&row.why),
        ]);
    }
    table
}
