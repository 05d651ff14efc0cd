//! `events`: shows events as they happen.

use std::time::{Duration, SystemTime};

use anyhow::anyhow;
use clap::builder::PossibleValuesParser;
use futures_util::StreamExt;
use serde_json::json;
use shared::wire::{Event, kind};
use tokio::time::{Instant, timeout_at};

use super::reasons::why;
use crate::{
    cluster::Cluster,
    context::{Exit, Format, Global, Usage},
    output::{self, counted, note},
    senders::Senders,
};

/// Returns every kind of event that `--kind` accepts.
fn kinds() -> PossibleValuesParser {
    let of_all = [
        &kind::OF_AUCTIONEERS[..],
        &kind::OF_CELLS,
        &kind::OF_MANAGERS,
    ];
    PossibleValuesParser::new(of_all.concat())
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Events are not stored: only those that happen while this command listens are shown, with \
                  the time at which they arrived (UTC). `vendue explain APP` tells of past decisions, \
                  `vendue ps --all` of instances that have ended."
)]
pub(crate) struct EventsArgs {
    /// Only events of this app or cell
    #[arg(value_name = "APP|CELL")]
    about: Option<String>,
    /// Only events of these kinds
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_parser = kinds())]
    kind: Vec<String>,
    /// Listen until Ctrl-C
    #[arg(long, short, conflicts_with = "time")]
    pub(crate) follow: bool,
    /// How long to listen
    #[arg(long = "for", value_name = "TIME", default_value = "5s",
          value_parser = humantime::parse_duration)]
    time: Duration,
    /// End after this many events
    #[arg(long, value_name = "N")]
    count: Option<usize>,
}

/// Prints events until the time is up.
pub(crate) async fn events(global: &Global, args: &EventsArgs) -> anyhow::Result<Exit> {
    if let Some(about) = &args.about {
        placement::check_name("APP|CELL", about).map_err(Usage::invalid)?;
    }
    let cluster = Cluster::connect(global).await?;
    let _told = cluster.tell_of_connection();
    let subject = match &args.about {
        Some(about) => cluster.subjects.event("*", about, "*"),
        None => cluster.subjects.events(),
    };
    let mut messages = cluster.bus.client.subscribe(subject.clone()).await?;
    cluster.bus.client.flush().await?;
    let time = placement::Span(args.time);
    if args.follow {
        note(format_args!("listening on {subject}; Ctrl-C ends"));
    } else {
        note(format_args!(
            "listening on {subject} for {time}; --follow listens until Ctrl-C"
        ));
    }
    let until = (!args.follow).then(|| Instant::now() + args.time);
    let most = args.count.unwrap_or(usize::MAX);
    let (senders, mut shown) = (Senders::default(), 0);
    while shown < most {
        let next = match until {
            Some(until) => match timeout_at(until, messages.next()).await {
                Ok(next) => next,
                Err(_) => break,
            },
            None => messages.next().await,
        };
        let message = next.ok_or_else(|| anyhow!("the connection to NATS is closed"))?;
        let event = senders.event(&cluster.subjects, &message);
        if let Some(event) = event.filter(|event| args.wants(event)) {
            show(&event, cluster.format)?;
            shown += 1;
        }
    }
    if shown < most {
        let shown = counted(shown, "event");
        note(format_args!("{shown} in {time}"));
        cluster.check_connected()?;
    }
    Ok(Exit::Ok)
}

impl EventsArgs {
    fn wants(&self, event: &Event) -> bool {
        self.kind.is_empty() || self.kind.contains(&event.kind)
    }
}

fn show(event: &Event, format: Format) -> anyhow::Result<()> {
    let now = humantime::format_rfc3339_millis(SystemTime::now());
    if format == Format::Json {
        let mut document = json!(event);
        document["received"] = json!(now.to_string());
        return output::json_line(&document);
    }
    Ok(output::say(format_args!("{now} {}", line(event)))?)
}

/// Maximum number of an event's instances that are named.
const NAMED: usize = 8;

/// Formats one line: `placed web 0-2: 0 on z1-cell-0, …`.
fn line(event: &Event) -> String {
    let mut text = format!("{:<13} {}", event.kind, event.about());
    if let Some(indices) = &event.indices {
        text += &format!(" {indices}");
    }
    if let (Some(_), Some(cell)) = (&event.app, &event.cell) {
        text += &format!(" on {cell}");
    }
    // for stopped instances, the kind of event and the index say everything
    if event.kind != kind::STOPPED {
        let alone = event.instances.len() == 1;
        let named = event.instances.iter().take(NAMED);
        let parts: Vec<String> = named
            .map(|i| instance(i, alone))
            .filter(|part| !part.is_empty())
            .collect();
        if !parts.is_empty() {
            text += &format!(": {}", parts.join(", "));
        }
        if event.instances.len() > NAMED {
            text += &format!(" and {} more", event.instances.len() - NAMED);
        }
    }
    let reason = why(event.reason.as_deref(), &event.tally);
    if !reason.is_empty() {
        text += &format!(" ({reason})");
    }
    text
}

/// Describes an instance without its index, unless there are others.
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
    fn every_kind_of_event_can_be_asked_for() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            events: EventsArgs,
        }
        let lists = [
            &kind::OF_CELLS[..],
            &kind::OF_AUCTIONEERS,
            &kind::OF_MANAGERS,
        ];
        for kind in lists.concat() {
            let line = <Line as clap::Parser>::try_parse_from(["events", "--kind", kind]);
            assert_eq!(line.unwrap().events.kind, [kind]);
        }
    }

    #[test]
    fn a_line_has_app_cell_and_reason() {
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
        let mut stopped = Event::app("stopped", "web");
        (stopped.cell, stopped.indices) = (Some("z1".into()), Some("1,3".into()));
        let ended = |index| EventInstance {
            index,
            port: Some(61_003),
            ended: Some("stopped".into()),
            ..EventInstance::default()
        };
        stopped.instances = vec![ended(1), ended(3)];
        assert_eq!(line(&stopped), "stopped       web 1,3 on z1");
    }
}
