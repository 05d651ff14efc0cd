//! `run`: a start request put together from the command line.

use std::{collections::BTreeMap, time::Duration};

use placement::{Kind, Request, Run, Span};
use shared::wire::InstanceState;

use super::{
    instances::{self, Located},
    ps::question,
    start,
};
use crate::{
    cluster::Cluster,
    context::{Exit, Global, Usage},
};

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The app's name
    #[arg(long)]
    app: String,
    /// MiB of memory for each instance
    #[arg(long, value_name = "MIB")]
    memory: i64,
    /// MiB of disk for each instance
    #[arg(long, value_name = "MIB")]
    disk: i64,
    /// How many instances
    #[arg(long, default_value_t = 1, value_name = "N")]
    instances: u32,
    /// Thousandths of a core for each instance
    #[arg(long, default_value_t = 0, value_name = "MILLIS")]
    cpu: i64,
    /// A named resource for each instance, such as gpu=1; may be repeated
    #[arg(long, value_name = "NAME=N", value_parser = pair)]
    extra: Vec<(String, String)>,
    /// The root filesystem it needs
    #[arg(long)]
    stack: Option<String>,
    /// Runs once and ends
    #[arg(long)]
    task: bool,
    /// Near one of these: app:NAME, tag:KEY=VALUE, rack:NAME, instance:UUID; may be repeated
    #[arg(long, value_name = "ITEM")]
    near: Vec<String>,
    /// Far from all of these; the same forms
    #[arg(long, value_name = "ITEM")]
    far: Vec<String>,
    /// Near and far are demands, not hints
    #[arg(long)]
    strict: bool,
    /// A placement tag it asks for; may be repeated
    #[arg(long = "placement-tag", value_name = "TAG")]
    placement_tags: Vec<String>,
    /// A tag of the new instances; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Who it belongs to
    #[arg(long)]
    owner: Option<String>,
    /// An objective of its own, where the policy has one, such as "-r.AvailableMemoryMB"
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true)]
    objective: Option<String>,
    /// A variable in the environment of the command; may be repeated
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    /// It wants a port of its own, named in $PORT
    #[arg(long)]
    port: bool,
    /// How long it waits for room when there is none
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    queue_timeout: Option<Duration>,
    /// Even if an app of this name runs already
    #[arg(long)]
    again: bool,
    /// The command and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| format!("{text:?} has no name and value; expected NAME=VALUE"))?;
    Ok((key.into(), value.into()))
}

impl RunArgs {
    fn request(&self) -> anyhow::Result<Request> {
        let mut request = Request::new(self.app.as_str(), self.memory, self.disk);
        request.kind = if self.task { Kind::Task } else { Kind::Lrp };
        request.instances = self.instances;
        request.cpu_millis = self.cpu;
        for (name, amount) in &self.extra {
            let amount = amount.parse().map_err(|_| {
                Usage::because(format_args!("--extra {name}={amount}: expected a number"))
            })?;
            request.extra.insert(name.clone(), amount);
        }
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
        });
        request.check().map_err(Usage::because)?;
        Ok(request)
    }
}

/// Starts instances of a command.
pub(crate) async fn run(global: &Global, args: &RunArgs) -> anyhow::Result<Exit> {
    let text = serde_json::to_string(&args.request()?)?;
    let request = start::check("the command line", &text)?;
    let cluster = Cluster::connect(global).await?;
    if !args.again {
        refuse_if_it_runs(&cluster, &args.app).await?;
    }
    start::send(&cluster, request).await
}

/// Below an app manager nobody can see that an app is started twice, in two batches: a person
/// hardly means to.
async fn refuse_if_it_runs(cluster: &Cluster, app: &str) -> anyhow::Result<()> {
    let answers = instances::all(cluster, &question(Some(app))).await?;
    let stays = |i: &&Located| i.lives() && i.instance.state != InstanceState::Stopping;
    let count = answers.instances.iter().filter(stays).count();
    if count == 0 {
        return Ok(());
    }
    anyhow::bail!(
        "{app} runs already: {count} instances\n\
         `vendue stop {app}` stops them, another --app names another one, --again starts more"
    )
}
