//! `app restart`: replaces every instance.

use shared::wire::AppRestart;

use super::{changed, connect, show, wait};
use crate::context::{Exit, Global};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "So many instances at once as the app's `update.max_in_flight` says (1 if it says nothing), \
                  unless an option says otherwise."
)]
pub(crate) struct RestartArgs {
    /// The app
    app: String,
    /// One instance after the other
    #[arg(long, group = "how_many")]
    one_by_one: bool,
    /// Half of them at once
    #[arg(long, group = "how_many")]
    half: bool,
    /// So many at once
    #[arg(long, group = "how_many", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(placement::MAX_INSTANCES)))]
    at_once: Option<u32>,
    #[command(flatten)]
    waiting: wait::Waiting,
}

/// Restarts the app.
pub(super) async fn restart(global: &Global, args: &RestartArgs) -> anyhow::Result<Exit> {
    let cluster = connect(global, &args.app).await?;
    let max_in_flight = if args.one_by_one {
        Some(1)
    } else if args.half {
        let wanted = show::ask(&cluster, &args.app, None).await?.status.wanted;
        Some(wanted.div_ceil(2).max(1))
    } else {
        args.at_once
    };
    let question = AppRestart {
        v: shared::VERSION,
        max_in_flight,
    };
    let changed = changed::ask(&cluster, "restart", &args.app, &question).await?;
    let target = wait::Target::running(&changed);
    changed::report(&cluster, changed, &args.waiting, target).await
}
