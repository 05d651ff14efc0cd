//! Logging to standard error: text at a terminal, JSON in containers.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text when standard error is a terminal, else JSON.
    #[default]
    Auto,
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Starts logging; `filter` is a tracing directive such as `"info"` or `"rep=debug"`. The NATS
/// client's own lines are left out unless the filter names `async_nats`: our own errors and log
/// lines report the state of the connection. Later calls have no effect.
pub fn init(filter: &str, format: LogFormat) {
    let filter = if filter.contains("async_nats") {
        filter.to_owned()
    } else {
        format!("{filter},async_nats=off")
    };
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(terminal);
    let json = format == LogFormat::Json || (format == LogFormat::Auto && !terminal);
    let _ = if json {
        builder.json().try_init()
    } else {
        builder.try_init()
    };
}
