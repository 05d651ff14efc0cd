//! The command line: its definition, and how commands are run.

use std::process::ExitCode;

use clap::{Parser, Subcommand, builder::styling::Styles};
use shared::{
    nats::PermissionViolation,
    telemetry::{self, LogFormat},
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    bench, commands,
    context::{Exit, Failure, Global, failure_code},
    report::report,
    terminal,
};

/// Places work on cells (machines that run it) over NATS: cells say what they have, an auctioneer decides.
#[derive(Debug, Parser)]
#[command(name = "vendue", version, styles = Styles::plain(), max_term_width = 100)]
#[command(mut_subcommands = taking_negative_numbers)]
#[command(
    after_help = "To begin with: `vendue up` starts a cluster here, `vendue run` something in it, `vendue ps` \
                  shows it; `vendue demo` shows it all.\n\
                  Exit codes: 0 done, 1 failed, 2 bad usage or a bad file, 3 unplaced or queued."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the instances that a file (or standard input) describes
    Start(commands::start::StartArgs),
    /// Start instances of a command
    Run(Box<commands::run::RunArgs>),
    /// Stop an app or some of its instances
    Stop(commands::stop::StopArgs),
    /// List instances: what runs, what is queued, what crashed
    Ps(commands::ps::PsArgs),
    /// Show the state of one app with its instances, or of all apps
    Status(commands::status::StatusArgs),
    /// Keep apps running: put them, and list, scale, update or stop them
    App(Box<commands::app::AppArgs>),
    /// Store tasks, run each at most once, and show their results
    Task(Box<commands::task::TaskArgs>),
    /// Wait until all instances of an app run, or its tasks have exited
    Wait(commands::wait::WaitArgs),
    /// List cells; show one, or change its attributes
    Cells(commands::cells::CellsArgs),
    /// Show events as they happen
    Events(commands::events::EventsArgs),
    /// Show the output of an app's instances
    Logs(commands::logs::LogsArgs),
    /// Drain a cell: it accepts no new work, and its instances are stopped
    Drain(commands::drain::DrainArgs),
    /// Cordon a cell: it accepts no new work, and keeps what it runs
    Cordon(commands::drain::CordonArgs),
    /// Let a cell that was drained or cordoned take work again
    Uncordon(commands::drain::CordonArgs),
    /// Move instances of apps so that zones and cells are even again, or show which
    Rebalance(Box<commands::rebalance::RebalanceArgs>),
    /// Explain why an app's instances were placed where they are, or not at all
    Explain(commands::explain::ExplainArgs),
    /// Show where work would go: by a scenario file, or with --live on the cluster
    Place(Box<commands::place::PlaceArgs>),
    /// Count how many more instances of a size fit: on the cluster, or by a scenario file
    Capacity(Box<commands::capacity::CapacityArgs>),
    /// Simulate a scenario in virtual time under one policy or several, and report
    Sim(Box<commands::sim::SimArgs>),
    /// List, print and check policies; needs no cluster
    #[command(subcommand)]
    Policy(commands::policy::PolicyCommand),
    /// Look at Cloud Foundry's DEAs, by what they publish
    Legacy(Box<commands::legacy::LegacyArgs>),
    /// Check whether a cluster is there; for containers and scripts
    Health(commands::health::HealthArgs),
    /// Print the version
    Version,
    /// Print shell completions
    #[command(
        after_help = "Cells, apps, policies and other values are completed, too. vendue must be in PATH: \
                      the shell asks it.\n\nTo install:\n  \
        bash:  echo 'source <(vendue completions bash)' >> ~/.bashrc\n  \
        zsh:   echo 'source <(vendue completions zsh)' >> ~/.zshrc    (after compinit)\n  \
        fish:  echo 'vendue completions fish | source' > ~/.config/fish/completions/vendue.fish"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Make keys, and the NATS server's permissions for them
    Auth(commands::auth::AuthArgs),
    /// Start a whole cluster here: a private nats-server, an auctioneer, a manager and cells
    Up(commands::up::UpArgs),
    /// Show a cluster at work from start to end
    Demo(commands::demo::DemoArgs),
    /// Run a cell agent until stopped
    Rep(Box<commands::rep_role::RepArgs>),
    /// Run an auctioneer until stopped
    Auctioneer(commands::roles::AuctioneerArgs),
    /// Run a manager, which keeps apps running, until stopped
    Manager(Box<commands::manager_role::ManagerArgs>),
    /// Make cells of Cloud Foundry's DEAs, or DEAs of cells, until stopped
    Advertiser(Box<commands::advertiser_role::AdvertiserArgs>),
    /// Measure vendue on this machine, compared with plain NATS
    #[command(subcommand)]
    Bench(bench::Bench),
    /// A small HTTP server for examples: says on $PORT which instance it is
    #[command(hide = true)]
    Web(commands::web::WebArgs),
}

/// Lets options take values such as -5, although none accepts it: as a value rather than an unknown option it leads to
/// an error that says what was expected.
fn taking_negative_numbers(command: clap::Command) -> clap::Command {
    let taking = |arg: clap::Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        let is_size = names.first().is_some_and(|name| name == "SIZE");
        if !arg.get_action().takes_values() {
            arg
        } else if is_size {
            arg.allow_hyphen_values(true) // -5M is not a number
        } else {
            arg.allow_negative_numbers(true)
        }
    };
    command
        .mut_args(taking)
        .mut_subcommands(taking_negative_numbers)
}

/// Runs the given command and returns its exit code.
pub(crate) fn run(cli: &Cli) -> ExitCode {
    let default_log = match cli.command {
        Command::Rep(_) | Command::Auctioneer(_) | Command::Manager(_) | Command::Advertiser(_) => {
            "info"
        }
        _ => "warn",
    };
    telemetry::init(
        cli.global.log.as_deref().unwrap_or(default_log),
        LogFormat::Auto,
    );
    terminal::set_wide(cli.global.wide);
    let runtime = match cli.command.runtime() {
        Ok(runtime) => runtime,
        Err(e) => return report(&e.into(), cli.global.output),
    };
    let code = match runtime.block_on(cli.command.run(&cli.global)) {
        Ok(exit) => exit.into(),
        Err(error) => report(&error, cli.global.output),
    };
    // a blocked read of standard input must not keep the process alive
    runtime.shutdown_background();
    code
}

impl Command {
    /// Returns whether it runs until it is told to end, and handles that itself.
    fn is_role(&self) -> bool {
        if let Command::Policy(policy) = self {
            return policy.is_search();
        }
        matches!(
            self,
            Command::Up(_)
                | Command::Sim(_)
                | Command::Rep(_)
                | Command::Auctioneer(_)
                | Command::Manager(_)
                | Command::Advertiser(_)
                | Command::Bench(_)
                | Command::Web(_)
        )
    }

    /// Returns whether it decides by itself what a violation of the server's permissions means.
    fn handles_violations(&self) -> bool {
        matches!(
            self,
            Command::Up(_)
                | Command::Rep(_)
                | Command::Auctioneer(_)
                | Command::Manager(_)
                | Command::Advertiser(_)
        )
    }

    /// Creates the runtime. A role alone in its process gets one thread: it has one connection and one state machine,
    /// and passing messages between threads costs more than a second thread gains.
    fn runtime(&self) -> std::io::Result<tokio::runtime::Runtime> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        if matches!(self, Command::Rep(_) | Command::Auctioneer(_)) {
            builder.worker_threads(1);
        }
        builder.enable_all().build()
    }

    async fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        let work = self.dispatch(global);
        if self.handles_violations() {
            return work.await;
        }
        let interrupted = async {
            if self.is_role() {
                std::future::pending::<()>().await;
            }
            // one stream for both, so that a second Ctrl-C is not missed
            let Ok(mut pressed) = signal(SignalKind::interrupt()) else {
                return std::future::pending().await;
            };
            pressed.recv().await;
            if self.ends_itself() {
                pressed.recv().await;
            }
        };
        let violations = &global.violations;
        let done = tokio::select! {
            done = work => done,
            // there is no point in waiting for an answer that will not come
            violation = violations.first(|_| true) => Err(not_permitted(&violation)),
            () = interrupted => Ok(self.interrupted()),
        };
        match violations.remembered() {
            // the result may be incomplete
            Some(violation) => Err(not_permitted(&violation)),
            None => done,
        }
    }

    /// Tells the command of the first Ctrl-C. Returns whether it ends by itself then, which takes a while; another Ctrl-C
    /// ends it at once.
    fn ends_itself(&self) -> bool {
        match self {
            Command::Rebalance(args) => args.stop(),
            _ => false,
        }
    }

    /// Handles Ctrl-C, which is the normal end of a stream and aborts everything else.
    fn interrupted(&self) -> Exit {
        match self {
            Command::Run(args) => args.note_interrupted(),
            Command::Rebalance(args) => args.note_interrupted(),
            Command::Task(args) => args.note_interrupted(),
            _ => {}
        }
        let stream = match self {
            Command::Events(args) => args.follow,
            Command::Logs(args) => args.follow,
            Command::Ps(args) => args.watch,
            Command::Legacy(args) => args.is_stream(),
            _ => false,
        };
        if stream { Exit::Ok } else { Exit::Interrupted }
    }

    async fn dispatch(&self, global: &Global) -> anyhow::Result<Exit> {
        match self {
            Command::Start(args) => commands::start::start(global, args).await,
            Command::Run(args) => commands::run::run(global, args).await,
            Command::Stop(args) => commands::stop::stop(global, args).await,
            Command::Ps(args) => commands::ps::ps(global, args).await,
            Command::Status(args) => commands::status::status(global, args).await,
            Command::App(args) => args.run(global).await,
            Command::Task(args) => args.run(global).await,
            Command::Wait(args) => commands::wait::wait(global, args).await,
            Command::Cells(args) => commands::cells::cells(global, args).await,
            Command::Events(args) => commands::events::events(global, args).await,
            Command::Logs(args) => commands::logs::logs(global, args).await,
            Command::Drain(args) => commands::drain::drain(global, args).await,
            Command::Cordon(args) => commands::drain::cordon(global, args).await,
            Command::Uncordon(args) => commands::drain::uncordon(global, args).await,
            Command::Rebalance(args) => {
                Box::pin(commands::rebalance::rebalance(global, args)).await
            }
            Command::Explain(args) => commands::explain::explain(global, args).await,
            Command::Place(args) => commands::place::place(global, args).await,
            Command::Capacity(args) => commands::capacity::capacity(global, args).await,
            Command::Sim(args) => Box::pin(commands::sim::sim(global, args)).await,
            Command::Policy(policy) => policy.run(global).await,
            Command::Auth(args) => args.run(global),
            Command::Legacy(args) => args.run(global).await,
            Command::Health(args) => commands::health::health(global, args).await,
            Command::Up(args) => commands::up::up(global, args).await,
            Command::Demo(args) => commands::demo::demo(args).await,
            Command::Rep(args) => commands::rep_role::rep(global, args).await,
            Command::Auctioneer(args) => commands::roles::auctioneer(global, args).await,
            Command::Manager(args) => commands::manager_role::manager(global, args).await,
            Command::Advertiser(args) => args.run(global).await,
            Command::Bench(bench) => bench.run(global).await,
            Command::Web(args) => commands::web::web(args).await,
            Command::Version => commands::version::version(global.output),
            Command::Completions { shell } => commands::version::completions(*shell),
        }
    }
}

fn not_permitted(violation: &PermissionViolation) -> anyhow::Error {
    Failure::because(
        failure_code::NOT_PERMITTED,
        format_args!(
            "{violation}: the NATS server's permissions do not allow it; \
             other credentials (--nkey, --creds, --context) may"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
