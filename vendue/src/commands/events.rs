//! `events`: what happens, as it happens.

use std::time::Duration;

use anyhow::anyhow;
use futures_util::StreamExt;
use shared::wire::Event;
use tokio::time::{Instant, timeout_at};

use crate::{
    cluster::Cluster,
    context::{Exit, Format, Global, Usage},
    output::{self, note},
};

#[derive(Debug, clap::Args)]
pub(crate) struct EventsArgs {
    /// Events of this app or cell only
    about: Option<String>,
    /// Until Ctrl-C, instead of for some seconds
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// How long to listen without --follow
    #[arg(long = "for", value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration)]
    time: Duration,
    /// End after so many events
    #[arg(long, value_name = "N")]
    count: Option<usize>,
}

/// Prints events until told to end.
pub(crate) async fn events(global: &Global, args: &EventsArgs) -> anyhow::Result<Exit> {
    if let Some(about) = &args.about {
        placement::check_name("ABOUT", about).map_err(Usage::because)?;
    }
    let cluster = Cluster::connect(global).await?;
    let subject = match &args.about {
        Some(about) => cluster.subjects.event("*", about),
        None => cluster.subjects.events(),
    };
    let mut messages = cluster.bus.client.subscribe(subject.clone()).await?;
    cluster.bus.client.flush().await?;
    if args.follow {
        note(format_args!("listening on {subject}; Ctrl-C ends"));
    } else {
        let time = humantime::format_duration(args.time);
        note(format_args!(
            "listening on {subject} for {time} (--follow goes on)"
        ));
    }
    let until = (!args.follow).then(|| Instant::now() + args.time);
    let mut left = args.count.unwrap_or(usize::MAX);
    while left > 0 {
        let next = match until {
            Some(until) => match timeout_at(until, messages.next()).await {
                Ok(next) => next,
                Err(_) => break,
            },
            None => messages.next().await,
        };
        let message = next.ok_or_else(|| anyhow!("the connection to NATS is closed"))?;
        match serde_json::from_slice::<Event>(&message.payload) {
            Ok(event) => show(&event, cluster.format)?,
            Err(e) => note(format_args!("{}: cannot be read: {e}", message.subject)),
        }
        left -= 1;
    }
    Ok(Exit::Ok)
}

fn show(event: &Event, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json_line(event),
        Format::Table => Ok(output::say(line(event))?),
    }
}

/// One line: `placed web 0-2: 0 on z1-cell-0, …`.
fn line(event: &Event) -> String {
    let mut text = format!("{:<13} {}", event.kind, event.about());
    if let Some(indices) = &event.indices {
        text += &format!(" {indices}");
    }
    if let (Some(_), Some(cell)) = (&event.app, &event.cell) {
        text += &format!(" on {cell}");
    }
    let alone = event.instances.len() == 1;
    let parts = event.instances.iter().take(8).map(|i| instance(i, alone));
    let parts: Vec<String> = parts.filter(|part| !part.is_empty()).collect();
    if !parts.is_empty() {
        text += &format!(": {}", parts.join(", "));
    }
    if event.instances.len() > 8 {
        text += ", …";
    }
    if let Some(reason) = &event.reason {
        text += &format!(" ({reason})");
    }
    text
}

/// What is known of an instance beside its index; the index, too, when there are others.
fn instance(instance: &shared::wire::EventInstance, alone: bool) -> String {
    let mut words = Vec::new();
    if let Some(cell) = &instance.cell {
        words.push(format!("on {cell}"));
    }
    if let Some(port) = instance.port {
        words.push(format!("port {port}"));
    }
    words.extend(instance.ended.clone());
    if !words.is_empty() && !alone {
        words.insert(0, instance.index.to_string());
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::wire::EventInstance;

    #[test]
    fn a_line_says_who_where_and_why() {
        let mut event = Event::app("placed", "web");
        event.indices = Some("0-1".into());
        let on = |index, cell: &str| EventInstance {
            index,
            cell: Some(cell.into()),
            ..EventInstance::default()
        };
        event.instances = vec![on(0, "z1"), on(1, "z2")];
        assert_eq!(line(&event), "placed        web 0-1: 0 on z1, 1 on z2");
        event.indices = Some("0".into());
        event.instances.pop();
        assert_eq!(line(&event), "placed        web 0: on z1");
        let mut lost = Event::cell("cell-lost", "z1");
        lost.reason = Some("not heard for 15s".into());
        assert_eq!(line(&lost), "cell-lost     z1 (not heard for 15s)");
    }
}
