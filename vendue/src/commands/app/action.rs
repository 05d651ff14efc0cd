//! `app stop`, `start`, `delete`, `undo`, `pause` and `resume`: they only need the app's name.

use shared::wire::AppAction;

use super::{changed, connect, wait};
use crate::context::{Exit, Global};

#[derive(Debug, clap::Args)]
pub(crate) struct ActionArgs {
    /// The app
    pub(super) app: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    app: ActionArgs,
    #[command(flatten)]
    waiting: wait::Waiting,
}

/// Sends the action, and waits for the instances if the command supports it.
pub(super) async fn act(
    global: &Global,
    verb: &str,
    args: &ActionArgs,
    waiting: Option<&wait::Waiting>,
) -> anyhow::Result<Exit> {
    let cluster = connect(global, &args.app).await?;
    let question = AppAction { v: shared::VERSION };
    let changed = changed::ask(&cluster, verb, &args.app, &question).await?;
    let target = wait::Target::running(&changed);
    let none = wait::Waiting::default();
    changed::report(&cluster, changed, waiting.unwrap_or(&none), target).await
}

/// Runs an action that starts instances.
pub(super) async fn start(global: &Global, verb: &str, args: &StartArgs) -> anyhow::Result<Exit> {
    act(global, verb, &args.app, Some(&args.waiting)).await
}
