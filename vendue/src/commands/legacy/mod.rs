//! `legacy`: observes estates of DEAs through the messages that they publish. It publishes nothing itself.

mod listen;
mod picture;
mod place;
mod watch;

use crate::context::{Exit, Global};

#[derive(Debug, clap::Args)]
pub(crate) struct LegacyArgs {
    #[command(subcommand)]
    command: LegacyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum LegacyCommand {
    /// Show the DEAs that are heard, their zones and apps, and the senders of what cannot be read
    Watch(watch::WatchArgs),
    /// Show which DEAs a Cloud Controller would choose, and why
    Place(place::PlaceArgs),
}

impl LegacyArgs {
    /// Listens and reports what was heard.
    pub(crate) async fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        match &self.command {
            LegacyCommand::Watch(args) => watch::watch(global, args).await,
            LegacyCommand::Place(args) => place::place(global, args).await,
        }
    }

    /// Returns whether it shows something repeatedly until Ctrl-C.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(&self.command, LegacyCommand::Watch(args) if args.watch)
    }
}
