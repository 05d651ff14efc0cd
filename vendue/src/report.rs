//! Reports the failure of a command: as text on standard error or, with `--output json`, as one line of JSON on
//! standard output, `{"v":1,"error":{"code":…,"message":…,"field":…}}`.

use std::{ffi::OsString, io, process::ExitCode};

use shared::wire::{WireError, code};

use crate::{
    context::{Exit, Failure, Format, Usage, failure_code},
    output::{json_line, note},
    usage,
};

/// Reports why a command failed, and returns the exit code.
pub(crate) fn report(error: &anyhow::Error, format: Format) -> ExitCode {
    let closed_pipe = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    if error.downcast_ref::<io::Error>().is_some_and(closed_pipe) {
        return ExitCode::SUCCESS; // the reader has what it wanted
    }
    let usage = error.downcast_ref::<Usage>();
    let failure = error.downcast_ref::<Failure>();
    let code = match (usage, failure) {
        (Some(_), _) => code::INVALID_REQUEST,
        (None, Some(failure)) => failure.code.as_str(),
        (None, None) => failure_code::FAILED,
    };
    let message = chain(error);
    match format {
        Format::Table => note(format_args!("error: {message}")),
        Format::Json => print(&WireError {
            code: code.to_owned(),
            field: usage.and_then(|usage| usage.field.clone()),
            message,
        }),
    }
    match usage {
        Some(_) => Exit::BadUsage.into(),
        None => Exit::Failed.into(),
    }
}

/// Reports what is wrong with a command line, or prints the requested help.
pub(crate) fn report_usage(error: &clap::Error, args: impl Iterator<Item = OsString>) -> ExitCode {
    let bad_value = usage::bad_value(error);
    if error.use_stderr() && asks_for_json(args) {
        let message = bad_value.unwrap_or_else(|| without_usage(&error.render().to_string()));
        print(&WireError {
            code: code::INVALID_REQUEST.to_owned(),
            field: usage::argument(error).map(|(flag, _)| flag),
            message,
        });
    } else if let Some(message) = bad_value {
        note(format_args!("error: {message}"));
    } else if let Err(closed) = error.print() {
        tracing::debug!(%closed, "nobody reads it");
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

fn print(error: &WireError) {
    if let Err(closed) = json_line(&error.body()) {
        tracing::debug!(%closed, "nobody reads it");
    }
}

/// Joins an error and its sources, each once, as libraries often print their source themselves.
fn chain(error: &anyhow::Error) -> String {
    let mut whole = String::new();
    for link in error.chain().map(ToString::to_string) {
        if whole.is_empty() {
            whole = link;
        } else if !whole.contains(&link) {
            whole = format!("{whole}: {link}");
        }
    }
    whole
}

/// Keeps what is wrong, and the tip, but not the general usage of the command.
fn without_usage(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let text = text.split("\nUsage:").next().unwrap_or(text);
    let text = text.split("\nFor more information").next().unwrap_or(text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns whether the command line, which cannot be parsed as a whole, asks for JSON.
fn asks_for_json(args: impl Iterator<Item = OsString>) -> bool {
    let args: Vec<OsString> = args.take_while(|arg| arg != "--").collect();
    let apart = args
        .windows(2)
        .any(|two| two[0] == "--output" && two[1] == "json");
    apart || args.iter().any(|arg| arg == "--output=json")
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn an_error_source_is_printed_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot connect: {0}")]
        struct Outer(#[source] io::Error);
        let inner = || io::Error::other("refused");
        let error = anyhow::Error::from(Outer(inner())).context("starting");
        assert_eq!(chain(&error), "starting: cannot connect: refused");
        let error = Err::<(), _>(inner()).context("reading").unwrap_err();
        assert_eq!(chain(&error), "reading: refused");
    }

    #[test]
    fn json_is_asked_for_before_the_command_of_an_instance() {
        for (line, expected) in [
            ("ps --output json", true),
            ("ps --output=json", true),
            ("ps --output table", false),
            ("run a -- x --output json", false),
        ] {
            let args = line.split(' ').map(OsString::from);
            assert_eq!(asks_for_json(args), expected, "{line}");
        }
    }
}
