//! `run`: sends a start request built from the command line.

use std::{collections::BTreeMap, time::Duration};

use placement::{DeviceNeed, Kind, Request, Run, Span};

use super::{already, devices, extra, request_file, source::SourceArgs, start, stop};
use crate::{
    cluster::Cluster,
    context::{Exit, Global, Usage},
    output::note,
};

#[derive(Debug, clap::Args)]
#[command(
    override_usage = "vendue run APP --memory SIZE --disk SIZE [OPTIONS] -- COMMAND [ARGUMENT]...",
    after_help = "Sizes are MiB, or have a unit: 64M, 1.5G. The command is not given to a shell: for pipes \
                  and variables use -- sh -c '...'\n\n\
                  Example: vendue run web --memory 64M --disk 64M --port -- python3 -m http.server"
)]
pub(crate) struct RunArgs {
    /// The app's name
    #[arg(value_name = "APP")]
    words: Vec<String>,
    /// The same as APP
    #[arg(long = "app", value_name = "APP")]
    app: Option<String>,
    /// Memory for each instance
    #[arg(long, value_name = "SIZE", value_parser = shared::size::parse_mib)]
    memory: i64,
    /// Disk for each instance
    #[arg(long, value_name = "SIZE", value_parser = shared::size::parse_mib)]
    disk: i64,
    /// How many instances
    #[arg(long, default_value_t = 1, value_name = "N")]
    instances: u32,
    /// Only the instances with these indices, such as 3,5-7: to add to an app that runs
    #[arg(long, value_name = "LIST", conflicts_with = "instances")]
    indices: Option<String>,
    /// Thousandths of a core for each instance
    #[arg(long, default_value_t = 0, value_name = "MILLIS")]
    cpu: i64,
    /// A named resource for each instance, such as gpu=1; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = pair)]
    extra: Vec<(String, String)>,
    /// Devices for each instance: gpu=2 (all of two), gpu=1x220 (so much of one), gpu=1x220:T4|P100 (of
    /// these models); may be repeated
    #[arg(long, value_name = "NAME=N[xAMOUNT][:MODELS]", value_parser = devices::need)]
    devices: Vec<(String, DeviceNeed)>,
    /// The stack that its cells must have
    #[arg(long, value_name = "NAME")]
    stack: Option<String>,
    /// Start a task: it runs once and ends
    #[arg(long)]
    task: bool,
    /// Near one of these: app:NAME, tag:KEY=VALUE, rack:NAME, instance:UUID; may be repeated
    #[arg(long, value_name = "ITEM")]
    near: Vec<String>,
    /// Far from all of these; the same forms
    #[arg(long, value_name = "ITEM")]
    far: Vec<String>,
    /// --near and --far are demands instead of hints
    #[arg(long)]
    strict: bool,
    /// Ask for cells with this placement tag; may be repeated
    #[arg(long = "placement-tag", value_name = "TAG")]
    placement_tags: Vec<String>,
    /// Tag the new instances, so that --near and --far can name them; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// The tenant it belongs to
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// An expression that rates cells, if the policy is an objective, such as "-r.AvailableMemoryMB"
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true)]
    objective: Option<String>,
    /// Set an environment variable of the command; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    #[command(flatten)]
    source: SourceArgs,
    /// Give each instance a port of its own, in $PORT
    #[arg(long)]
    port: bool,
    /// How long instances that fit nowhere are queued [default: 0s]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    queue_timeout: Option<Duration>,
    /// Start even if the app runs already; its instances then run beside the new ones
    #[arg(long)]
    again: bool,
    /// The command and its arguments, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| format!("{text:?}: expected NAME=VALUE"))?;
    Ok((key.into(), value.into()))
}

impl RunArgs {
    /// Returns the app's name. Leftover words are a command without its `--`.
    fn app(&self) -> anyhow::Result<&str> {
        let (app, left_over) = match (&self.app, self.words.as_slice()) {
            (Some(app), words) => (app, words),
            (None, [app, words @ ..]) => (app, words),
            (None, []) => {
                return Err(Usage::because(
                    "APP: missing; expected `vendue run APP ...`",
                ));
            }
        };
        if !left_over.is_empty() {
            let words = left_over.join(" ");
            return Err(Usage::because(format_args!(
                "unexpected {words:?}: the command stands last, after --, as in \
                 `vendue run {app} --memory 64M --disk 64M -- {words}`"
            )));
        }
        if self.command.is_empty() {
            return Err(Usage::because(format_args!(
                "no COMMAND: it stands last, after --, as in \
                 `vendue run {app} --memory 64M --disk 64M -- sleep 60`"
            )));
        }
        Ok(app)
    }

    /// Notes that Ctrl-C ends the wait for an answer, but does not withdraw the request.
    pub(crate) fn note_interrupted(&self) {
        if let Ok(app) = self.app() {
            note(format_args!(
                "what was asked for may be started, or stay queued: `vendue status {app}` shows it, \
                 `vendue stop {app}` stops and cancels it"
            ));
        }
    }

    fn request(&self) -> anyhow::Result<Request> {
        let mut request = Request::new(self.app()?, self.memory, self.disk);
        if let Some(text) = &self.indices {
            let indices = stop::indices(text)?;
            request.instances = indices.iter().max().map_or(0, |last| last + 1);
            request.indices = Some(indices);
        } else {
            request.instances = self.instances;
        }
        request.kind = if self.task { Kind::Task } else { Kind::Lrp };
        request.cpu_millis = self.cpu;
        request.extra = extra::amounts(&self.extra)?;
        request.devices = self.devices.iter().cloned().collect();
        request.stack.clone_from(&self.stack);
        request.near.clone_from(&self.near);
        request.far.clone_from(&self.far);
        request.strict = self.strict;
        request.placement_tags.clone_from(&self.placement_tags);
        request.tags = self.tags.iter().cloned().collect();
        request.owner.clone_from(&self.owner);
        request.objective.clone_from(&self.objective);
        request.queue_timeout = self.queue_timeout.map(Span);
        request.run = Some(Run {
            command: self.command.clone(),
            env: self.env.iter().cloned().collect::<BTreeMap<_, _>>(),
            port: self.port,
            secrets: Vec::new(),
            source: self.source.source(),
            droplet: None,
            staging: None,
        });
        request.check().map_err(Usage::invalid)?;
        Ok(request)
    }
}

/// Starts instances of a command.
pub(crate) async fn run(global: &Global, args: &RunArgs) -> anyhow::Result<Exit> {
    let text = serde_json::to_string(&args.request()?)?;
    let request = request_file::check("the command line", &text)?;
    let cluster = Cluster::connect(global).await?;
    if !args.again {
        already::refuse(&cluster, &request).await?;
    }
    start::send(&cluster, request).await
}
