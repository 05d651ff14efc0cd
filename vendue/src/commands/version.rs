//! `version` and `completions`: what needs no cluster.

use serde_json::json;

use crate::{
    context::{Exit, Format},
    output,
};

/// The program's version.
pub(crate) fn version(format: Format) -> anyhow::Result<Exit> {
    let version = env!("CARGO_PKG_VERSION");
    match format {
        Format::Json => output::document(&json!({"vendue": version, "wire": shared::VERSION}))?,
        Format::Table => output::say(format_args!("vendue {version}"))?,
    }
    Ok(Exit::Ok)
}

/// A shell's completions on standard output.
pub(crate) fn completions<C: clap::CommandFactory>(
    shell: clap_complete::Shell,
) -> anyhow::Result<Exit> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut C::command(), "vendue", &mut text);
    output::say(String::from_utf8_lossy(&text).trim_end())?;
    Ok(Exit::Ok)
}
