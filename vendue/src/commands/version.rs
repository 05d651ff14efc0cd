//! `version` and `completions`: what needs no cluster.

use serde_json::json;

use super::Done;
use crate::output::{self, Format};

/// The program's version.
pub(crate) fn version(format: Format) -> anyhow::Result<Done> {
    let version = env!("CARGO_PKG_VERSION");
    match format {
        Format::Json => output::json(&json!({"vendue": version, "wire": shared::VERSION}))?,
        Format::Table => output::say(format_args!("vendue {version}"))?,
    }
    Ok(Done::Well)
}

/// A shell's completions on standard output.
pub(crate) fn completions<C: clap::CommandFactory>(
    shell: clap_complete::Shell,
) -> anyhow::Result<Done> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut C::command(), "vendue", &mut text);
    output::say(String::from_utf8_lossy(&text).trim_end())?;
    Ok(Done::Well)
}
