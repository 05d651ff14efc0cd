//! Running the two programs between an estate of DEAs and a cluster.

mod dea_in;
mod dea_out;
mod ends;
mod estate;

use clap::Subcommand;

use crate::context::{Exit, Global};

#[derive(Debug, clap::Args)]
pub(crate) struct AdvertiserArgs {
    #[command(subcommand)]
    command: AdvertiserCommand,
}

#[derive(Debug, Subcommand)]
enum AdvertiserCommand {
    /// Make a cell of each DEA, until stopped
    DeaIn(Box<dea_in::DeaInArgs>),
    /// Make a DEA of each of some cells, for Cloud Controllers, until stopped
    DeaOut(Box<dea_out::DeaOutArgs>),
}

impl AdvertiserArgs {
    /// Runs one of them until it is stopped.
    pub(crate) async fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        match &self.command {
            AdvertiserCommand::DeaIn(args) => dea_in::dea_in(global, args).await,
            AdvertiserCommand::DeaOut(args) => dea_out::dea_out(global, args).await,
        }
    }
}
