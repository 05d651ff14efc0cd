//! `logs`: shows what an app prints.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant, UNIX_EPOCH},
};

use anyhow::anyhow;
use futures_util::{StreamExt, stream::FuturesUnordered};
use placement::Span;
use shared::{
    InstanceId,
    wire::{Instance, LogLine, Logs, LogsAnswer, code},
};

use super::{instance_table, instances, one_cell};
use crate::{
    cluster::Cluster,
    context::{Exit, Failure, Format, Global, Usage},
    output::{self, counted, note, printable},
    senders::Senders,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each line begins with APP.INDEX and the cell, then a sign: | for standard output, ! for \
                  standard error, # for what the cell says of the instance. Cells keep the last lines of \
                  each instance, also for some minutes after it has ended."
)]
pub(crate) struct LogsArgs {
    /// The app
    app: String,
    /// Only instances with this index
    #[arg(long, value_name = "N")]
    index: Option<u32>,
    /// Only the instance with this id (`vendue ps --wide` shows ids)
    #[arg(long, value_name = "UUID")]
    instance: Option<InstanceId>,
    /// How many lines of each instance, the last ones
    #[arg(long, short = 'n', default_value_t = 100, value_name = "N")]
    lines: usize,
    /// Only lines that are no older than this, such as 5m
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    since: Option<Duration>,
    /// Begin each line with its time, by its cell's clock (UTC)
    #[arg(long, short)]
    timestamps: bool,
    /// Continue with new lines until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
}

impl LogsArgs {
    fn wants(&self, instance: &Instance) -> bool {
        self.index.is_none_or(|index| index == instance.index)
            && self.instance.is_none_or(|id| id == instance.instance)
    }

    /// Describes what was requested.
    fn which(&self) -> String {
        let app = &self.app;
        match (self.instance, self.index) {
            (Some(id), _) => format!("instance {id} of {app}"),
            (None, Some(index)) => format!("instance of {app} with index {index}"),
            (None, None) => format!("instance of {app}"),
        }
    }
}

/// Prints the last lines that the cells remember, then follows new ones.
pub(crate) async fn logs(global: &Global, args: &LogsArgs) -> anyhow::Result<Exit> {
    placement::check_name("APP", &args.app).map_err(Usage::invalid)?;
    let cluster = Cluster::connect(global).await?;
    let _told = args.follow.then(|| cluster.tell_of_connection());
    let index = args.index.map_or("*".into(), |i| i.to_string());
    // subscribed before asking, so that no line is missed
    let subject = cluster.subjects.log(&args.app, &index, "*");
    let mut live = cluster.bus.client.subscribe(subject).await?;
    let subscribed = Instant::now();
    let answers = instances::held(&cluster, Some(&args.app)).await?;
    let asked = answers.cells.len();
    instance_table::note_what_is_missing(&answers);
    let instances = answers.instances.into_iter();
    let wanted = instances.filter(|located| args.wants(&located.instance));
    let cells: BTreeSet<String> = wanted.map(|located| located.cell).collect();
    if cells.is_empty() && !args.follow {
        let (which, cells) = (args.which(), counted(asked, "cell"));
        return Err(Failure::because(
            code::NOT_FOUND,
            format_args!("no {which} on {cells}"),
        ));
    }
    // lines printed since then arrive both ways
    let mut twice = Vec::new();
    for line in remembered(&cluster, args, cells).await {
        show(&line, args, cluster.format)?;
        if u128::from(line.age_ms) <= subscribed.elapsed().as_millis() {
            twice.push(line);
        }
    }
    if !args.follow {
        return Ok(Exit::Ok);
    }
    let senders = Senders::default();
    while let Some(message) = live.next().await {
        let Some(line) = senders.line(&cluster.subjects, &message) else {
            continue;
        };
        match twice.iter().position(|seen| same(seen, &line)) {
            Some(seen) => drop(twice.swap_remove(seen)),
            None if args.instance.is_some_and(|id| id != line.instance) => {}
            None => show(&line, args, cluster.format)?,
        }
    }
    Err(anyhow!("the connection to NATS is closed"))
}

fn same(a: &LogLine, b: &LogLine) -> bool {
    (a.instance, a.time_ms, &a.stream, &a.text) == (b.instance, b.time_ms, &b.stream, &b.text)
}

/// Returns the lines that the cells still hold, oldest first.
async fn remembered(cluster: &Cluster, args: &LogsArgs, cells: BTreeSet<String>) -> Vec<LogLine> {
    let question = Logs {
        v: shared::VERSION,
        app: args.app.clone(),
        index: args.index,
        instance: args.instance,
        since: args.since.map(Span),
        lines: Some(args.lines),
    };
    let question = &question;
    let mut asked: FuturesUnordered<_> = cells
        .into_iter()
        .map(|cell| async move {
            let timeout = Duration::from_secs(2);
            one_cell::ask::<LogsAnswer>(cluster, &cell, "logs", question, timeout).await
        })
        .collect();
    let mut lines = Vec::new();
    while let Some(answer) = asked.next().await {
        match answer {
            Ok(answer) => lines.extend(answer.lines),
            Err(e) => note(format_args!("{e:#}")),
        }
    }
    lines.sort_by_key(|line| std::cmp::Reverse(line.age_ms));
    lines
}

fn show(line: &LogLine, args: &LogsArgs, format: Format) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::json_line(line);
    }
    let time = if args.timestamps {
        let printed = UNIX_EPOCH + Duration::from_millis(line.time_ms);
        format!("{} ", humantime::format_rfc3339_millis(printed))
    } else {
        String::new()
    };
    let from = format!("{time}{}.{} {}", line.app, line.index, line.cell);
    if line.dropped > 0 {
        let dropped = counted(usize::try_from(line.dropped)?, "line");
        output::say(format_args!("{from} # {dropped} dropped"))?;
    }
    let sign = match line.stream.as_str() {
        "stdout" => "|",
        "stderr" => "!",
        _ => "#",
    };
    let text = printable(&line.text);
    Ok(output::say(format_args!("{from} {sign} {text}"))?)
}
