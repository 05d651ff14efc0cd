//! The input and results common to all commands: the global options, the output format, the exit codes and the error
//! for bad usage. Imports nothing of this crate.

use std::{path::PathBuf, process::ExitCode};

use shared::nats::{PermissionViolations, TlsOptions};

/// What every command takes.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Address of the NATS server, with its token: nats://TOKEN@HOST:PORT [env: NATS_URL] [default:
    /// that of the context, else nats://127.0.0.1:4222]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// Subject prefix; clusters with different prefixes are separate
    #[arg(long, global = true, env = "VENDUE_PREFIX", default_value = "vendue")]
    pub(crate) prefix: String,
    /// A NATS credentials file [env: NATS_CREDS]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) creds: Option<PathBuf>,
    /// A file with the seed of an nkey [env: NATS_NKEY]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) nkey: Option<PathBuf>,
    /// File with the certificate authorities to trust, as PEM [env: NATS_CA] [default: the system's]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// File with our TLS certificate, as PEM [env: NATS_CERT]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// File with the key of our TLS certificate, as PEM [env: NATS_KEY]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_key: Option<PathBuf>,
    /// TLS handshake first, for servers with `handshake_first` [env: NATS_TLS_FIRST]
    #[arg(long, global = true)]
    pub(crate) tls_first: bool,
    /// Prefix of the subjects on which answers arrive [env: NATS_INBOX_PREFIX] [default: _INBOX.IDENTITY]
    #[arg(long, global = true, value_name = "SUBJECT")]
    pub(crate) inbox_prefix: Option<String>,
    /// Context of the nats tool: its name, or its file (NAME.json) [env: NATS_CONTEXT] [default: the
    /// selected one]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Our name in the server's permissions [default: the credentials' name]
    #[arg(long, global = true, env = "VENDUE_IDENTITY", value_name = "NAME")]
    pub(crate) identity: Option<String>,
    /// How to print the result: for people, or for programs
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t,
        value_name = "FORMAT"
    )]
    pub(crate) output: Format,
    /// Show every column of a table, however narrow the terminal, and the ids of instances
    #[arg(long, global = true)]
    pub(crate) wide: bool,
    /// What to log on standard error, such as info or rep=debug [default: warn; roles: info]
    #[arg(long, global = true, env = "VENDUE_LOG", value_name = "FILTER", value_parser = filter)]
    pub(crate) log: Option<String>,
    /// What the server's permissions refused to this command.
    #[arg(skip)]
    pub(crate) violations: PermissionViolations,
}

fn filter(text: &str) -> Result<String, String> {
    shared::telemetry::check(text).map(|()| text.to_owned())
}

impl Global {
    /// Returns the server's address: the flag's, else the environment's, unless a flag names a context, which brings
    /// its own.
    pub(crate) fn url(&self) -> Option<String> {
        self.nats
            .clone()
            .or_else(|| self.environment_variable("NATS_URL"))
    }

    /// Returns the credentials file, in the same way.
    pub(crate) fn creds(&self) -> Option<PathBuf> {
        self.file(self.creds.as_ref(), "NATS_CREDS")
    }

    /// Returns the file of an nkey, in the same way.
    pub(crate) fn nkey(&self) -> Option<PathBuf> {
        self.file(self.nkey.as_ref(), "NATS_NKEY")
    }

    /// Returns the TLS files, in the same way.
    pub(crate) fn tls(&self) -> TlsOptions {
        let first = self.environment_variable("NATS_TLS_FIRST");
        TlsOptions {
            ca: self.file(self.tls_ca.as_ref(), "NATS_CA"),
            cert: self.file(self.tls_cert.as_ref(), "NATS_CERT"),
            key: self.file(self.tls_key.as_ref(), "NATS_KEY"),
            first: self.tls_first
                || first.is_some_and(|first| !["0", "false", "no"].contains(&first.as_str())),
        }
    }

    /// Returns the prefix of inboxes, in the same way.
    pub(crate) fn inbox_prefix(&self) -> Option<String> {
        let given = self.inbox_prefix.clone();
        given.or_else(|| self.environment_variable("NATS_INBOX_PREFIX"))
    }

    fn file(&self, flag: Option<&PathBuf>, variable: &str) -> Option<PathBuf> {
        let environment_variable = || self.environment_variable(variable).map(PathBuf::from);
        flag.cloned().or_else(environment_variable)
    }

    /// Returns the context: the flag's or, unless the server's address is given, the environment's or the selected one.
    /// This way, credentials never go to a server that they are not for.
    pub(crate) fn context(&self) -> Option<String> {
        if self.context.is_some() || self.url().is_some() {
            return self.context.clone();
        }
        let named = self.environment_variable("NATS_CONTEXT");
        named.or_else(shared::nats::selected_context)
    }

    /// Returns an environment variable, unless a flag names a context, which takes precedence.
    fn environment_variable(&self, variable: &str) -> Option<String> {
        let value = std::env::var(variable).ok();
        value.filter(|value| self.context.is_none() && !value.is_empty())
    }
}

/// How a command prints its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    // no doc comments: each would be printed in the help of every command, on its own line
    #[default]
    Table,
    Json,
}

/// How a command ended that could be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success.
    Ok,
    /// Failure; what went wrong has been reported.
    Failed,
    /// The user's input cannot be used; what is wrong with it has been reported.
    BadUsage,
    /// Not everything found a place, which has been reported.
    Unplaced,
    /// Ended by Ctrl-C.
    Interrupted,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::BadUsage => 2,
            Exit::Unplaced => 3,
            Exit::Interrupted => 130, // the convention of shells: 128 + SIGINT
        })
    }
}

/// The user's input cannot be used: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Usage {
    /// The field or option at fault, if known.
    pub(crate) field: Option<String>,
    message: String,
}

impl Usage {
    /// Creates an error to return.
    pub(crate) fn because(why: impl std::fmt::Display) -> anyhow::Error {
        Self {
            field: None,
            message: why.to_string(),
        }
        .into()
    }

    /// Creates an error to return for a named field.
    pub(crate) fn of_field(field: Option<String>, message: String) -> anyhow::Error {
        Self { field, message }.into()
    }

    /// Creates an error for an invalid value, with its field.
    pub(crate) fn invalid(invalid: placement::Invalid) -> anyhow::Error {
        let message = invalid.to_string();
        Self::of_field(Some(invalid.field), message)
    }
}

/// Why a command failed, with a code that programs can distinguish: exit code 1.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    /// One of [`failure_code`], or a code from the cluster's answer.
    pub(crate) code: String,
    message: String,
}

/// The codes of failures that do not come from the cluster's answers; those are in `shared::wire::code`.
pub(crate) mod failure_code {
    /// No connection to NATS.
    pub(crate) const UNREACHABLE: &str = "unreachable";
    /// There was no answer in time: the request may have been carried out.
    pub(crate) const NO_ANSWER: &str = "no_answer";
    /// The server's permissions do not allow it.
    pub(crate) const NOT_PERMITTED: &str = "not_permitted";
    /// Anything else.
    pub(crate) const FAILED: &str = "failed";
}

impl Failure {
    /// Creates an error to return.
    pub(crate) fn because(code: &str, why: impl std::fmt::Display) -> anyhow::Error {
        Self {
            code: code.to_owned(),
            message: why.to_string(),
        }
        .into()
    }
}
