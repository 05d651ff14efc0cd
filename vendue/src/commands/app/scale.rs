//! `app scale`: sets the number of instances.

use shared::wire::AppScale;

use super::{changed, connect, wait};
use crate::context::{Exit, Global};

#[derive(Debug, clap::Args)]
pub(crate) struct ScaleArgs {
    /// The app
    app: String,
    /// How many instances
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(placement::MAX_INSTANCES)))]
    instances: u32,
    #[command(flatten)]
    waiting: wait::Waiting,
}

/// Scales the app.
pub(super) async fn scale(global: &Global, args: &ScaleArgs) -> anyhow::Result<Exit> {
    let cluster = connect(global, &args.app).await?;
    let question = AppScale {
        v: shared::VERSION,
        instances: args.instances,
    };
    let changed = changed::ask(&cluster, "scale", &args.app, &question).await?;
    let target = wait::Target::running(&changed).with(args.instances);
    changed::report(&cluster, changed, &args.waiting, target).await
}
