//! `auth`: the identities of a cluster, and the server's configuration for them.

use std::path::PathBuf;

use advertiser::dea::MAX_SLOTS;
use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use shared::{Subjects, permissions::Role};

use crate::{
    auth::{Directory, Entry, Roster, server_config, signing_keys},
    context::{Exit, Format, Global, Usage},
    output::{self, note, say},
};

#[derive(Debug, clap::Args)]
pub(crate) struct AuthArgs {
    /// Directory of the roster (the list of identities), the keys and the configuration made from them
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "VENDUE_AUTH_DIR",
        default_value = "vendue-auth"
    )]
    dir: PathBuf,
    #[command(subcommand)]
    command: AuthCommand,
}

#[derive(Debug, Subcommand)]
enum AuthCommand {
    /// Make the directory; --nats, --tls-ca and --tls-first are written into its contexts
    Init,
    /// Add cells, each with a key and a context
    AddCell {
        /// Name of the cell
        #[arg(required = true)]
        name: Vec<String>,
    },
    /// Add auctioneers, each with a key and a context
    AddAuctioneer {
        /// Name of the auctioneer
        #[arg(required = true)]
        name: Vec<String>,
    },
    /// Add managers, each with two keys and contexts: NAME for the cluster, NAME-state for what it stores
    AddManager {
        /// Name of the manager
        #[arg(required = true)]
        name: Vec<String>,
    },
    /// Add bridges, which make cells of DEAs (`vendue advertiser dea-in`), each with a key and a context
    AddBridge {
        /// Name of the bridge; its cells are NAME-0, NAME-1 and so on
        #[arg(required = true)]
        name: Vec<String>,
        /// How many cells each may have: the number of DEAs, and one more for each that may restart within 30 s
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=MAX_SLOTS as i64))]
        slots: u32,
    },
    /// Add facades, which make DEAs of cells (`vendue advertiser dea-out`), each with a key and a context
    AddFacade {
        /// Name of the facade
        #[arg(required = true)]
        name: Vec<String>,
        /// Cells that it may make DEAs of
        #[arg(long, required = true, value_delimiter = ',', value_name = "CELL")]
        cells: Vec<String>,
    },
    /// Add users, or programs that only observe, each with a key and a context
    AddUser {
        /// Name of the user
        #[arg(required = true)]
        name: Vec<String>,
        /// What it may do
        #[arg(long, value_enum, default_value_t, value_name = "ROLE")]
        role: UserRole,
    },
    /// Remove identities and their keys; they are refused once the servers have reloaded
    Remove {
        /// Name of the cell, auctioneer, manager, bridge, facade or user
        #[arg(required = true)]
        name: Vec<String>,
    },
    /// Print the configuration that servers include
    Print {
        /// How to print it: for nats-server's configuration, or for an account of an operator
        #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
        format: PrintFormat,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum UserRole {
    /// Starts and stops work
    #[default]
    User,
    /// Also drains cells and sets their attributes
    Operator,
    /// Hears events and advertisements, and reads apps
    Observer,
    /// Reads counters
    Metrics,
    /// Records requests: `vendue sim record`
    Recorder,
}

impl From<UserRole> for Role {
    fn from(role: UserRole) -> Self {
        match role {
            UserRole::User => Self::User,
            UserRole::Operator => Self::Operator,
            UserRole::Observer => Self::Observer,
            UserRole::Metrics => Self::Metrics,
            UserRole::Recorder => Self::Recorder,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum PrintFormat {
    /// The file to include
    #[default]
    Conf,
    /// Scoped signing keys, as JSON
    Jwt,
}

impl AuthArgs {
    /// Runs the subcommand; none of them needs a cluster.
    pub(crate) fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        match &self.command {
            AuthCommand::Init => self.init(global),
            AuthCommand::AddCell { name } => self.add(global, Role::Cell, name),
            AuthCommand::AddAuctioneer { name } => self.add(global, Role::Auctioneer, name),
            AuthCommand::AddManager { name } => self.add(global, Role::Manager, name),
            AuthCommand::AddBridge { name, slots } => {
                self.add_for(global, Role::Bridge, name, Some(*slots as usize), &[])
            }
            AuthCommand::AddFacade { name, cells } => {
                for cell in cells {
                    placement::check_name("--cells", cell).map_err(Usage::invalid)?;
                }
                self.add_for(global, Role::Facade, name, None, cells)
            }
            AuthCommand::AddUser { name, role } => self.add(global, (*role).into(), name),
            AuthCommand::Remove { name } => self.remove(global, name),
            AuthCommand::Print { format } => self.print(global, *format),
        }
    }

    fn init(&self, global: &Global) -> anyhow::Result<Exit> {
        Subjects::new(global.prefix.as_str()).map_err(Usage::invalid)?;
        let url = global.nats.as_deref().unwrap_or("nats://127.0.0.1:4222");
        if url.contains('@') {
            return Err(Usage::because(
                "--nats: the address holds a user or a token; expected one without, as keys replace them",
            ));
        }
        let mut roster = Roster::new(&global.prefix, url);
        // contexts are used in other directories
        let ca = global.tls_ca.as_ref().map(std::path::absolute);
        roster.ca = ca.transpose().context("--tls-ca")?;
        roster.tls_first = global.tls_first;
        let directory = Directory::create(&self.dir, roster)?;
        let config = directory.server_config();
        if global.output == Format::Json {
            output::document(
                &json!({"dir": self.dir, "config": config, "prefix": global.prefix, "url": url}),
            )?;
            return Ok(Exit::Ok);
        }
        say(format_args!(
            "{}: include it in the configuration of every server",
            config.display()
        ))?;
        note("next: `vendue auth add-auctioneer`, `add-cell`, `add-manager` and `add-user`");
        Ok(Exit::Ok)
    }

    fn add(&self, global: &Global, role: Role, names: &[String]) -> anyhow::Result<Exit> {
        self.add_for(global, role, names, None, &[])
    }

    fn add_for(
        &self,
        global: &Global,
        role: Role,
        names: &[String],
        slots: Option<usize>,
        cells: &[String],
    ) -> anyhow::Result<Exit> {
        let mut directory = Directory::open(&self.dir)?;
        let added = directory.add_for(role, names, slots, cells)?;
        if global.output == Format::Json {
            output::document(
                &json!({"dir": self.dir, "config": directory.server_config(), "added": added}),
            )?;
            return Ok(Exit::Ok);
        }
        for Entry {
            name,
            role,
            key,
            context,
            ..
        } in added
        {
            say(format_args!(
                "{role} {name}: {} {}",
                key.display(),
                context.display()
            ))?;
        }
        reload(&directory);
        Ok(Exit::Ok)
    }

    fn remove(&self, global: &Global, names: &[String]) -> anyhow::Result<Exit> {
        let mut directory = Directory::open(&self.dir)?;
        directory.remove(names)?;
        if global.output == Format::Json {
            output::document(
                &json!({"dir": self.dir, "config": directory.server_config(), "removed": names}),
            )?;
            return Ok(Exit::Ok);
        }
        say(format_args!("removed {}", names.join(", ")))?;
        reload(&directory);
        Ok(Exit::Ok)
    }

    fn print(&self, global: &Global, format: PrintFormat) -> anyhow::Result<Exit> {
        let directory = Directory::open(&self.dir)?;
        let roster = directory.roster();
        match (format, global.output) {
            (PrintFormat::Conf, Format::Table) => say(server_config(roster)?.trim_end())?,
            (PrintFormat::Conf, Format::Json) => {
                output::document(&json!({"config": server_config(roster)?}))?;
            }
            (PrintFormat::Jwt, Format::Table) => output::json(&signing_keys(&roster.subjects()?))?,
            (PrintFormat::Jwt, Format::Json) => {
                output::document(&json!({"signing_keys": signing_keys(&roster.subjects()?)}))?;
            }
        }
        Ok(Exit::Ok)
    }
}

fn reload(directory: &Directory) {
    note(format_args!(
        "{} has changed: reload the servers that include it (nats-server --signal reload)",
        directory.server_config().display()
    ));
}
