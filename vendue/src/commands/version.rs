//! `version` and `completions`, which need no cluster.

use serde_json::json;

use crate::{
    complete,
    context::{Exit, Format},
    output,
};

/// Prints the program's version.
pub(crate) fn version(format: Format) -> anyhow::Result<Exit> {
    let version = env!("CARGO_PKG_VERSION");
    match format {
        Format::Json => output::document(&json!({"vendue": version, "wire": shared::VERSION}))?,
        Format::Table => output::say(format_args!("vendue {version}"))?,
    }
    Ok(Exit::Ok)
}

/// Prints what a shell reads to complete our command lines.
pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<Exit> {
    let text = complete::registration(&shell.to_string())?;
    output::say(String::from_utf8_lossy(&text).trim_end())?;
    Ok(Exit::Ok)
}
