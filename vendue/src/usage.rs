//! Describes an invalid value on the command line in the form of all our errors: the flag, the value, what was expected
//! and an example; likewise for missing arguments. The library reports the rest.

use std::error::Error;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Returns the argument at fault, such as `--memory`, and the name of its value.
pub(crate) fn argument(error: &clap::Error) -> Option<(String, Option<String>)> {
    let named = match error.get(ContextKind::InvalidArg)? {
        ContextValue::String(name) => name.as_str(),
        ContextValue::Strings(names) => names.first()?,
        _ => return None,
    };
    let inside = named.split_once('<').or_else(|| named.split_once('['));
    let value = inside.and_then(|(_, rest)| Some(rest.rsplit_once(['>', ']'])?.0.to_owned()));
    let flag = named.split([' ', '=', '<', '[']).next().unwrap_or(named);
    let flag = if flag.is_empty() {
        value.clone().unwrap_or_else(|| named.to_owned())
    } else {
        flag.to_owned()
    };
    Some((flag, value))
}

/// Returns one line about an invalid value; none if the library's message stays.
pub(crate) fn bad_value(error: &clap::Error) -> Option<String> {
    if error.kind() == ErrorKind::MissingRequiredArgument {
        return missing(error);
    }
    if !matches!(
        error.kind(),
        ErrorKind::InvalidValue | ErrorKind::ValueValidation
    ) {
        return None;
    }
    let (flag, name) = argument(error)?;
    let value = match error.get(ContextKind::InvalidValue) {
        Some(ContextValue::String(value)) => value.as_str(),
        _ => "",
    };
    let expected = match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(valid)) if !valid.is_empty() => one_of(value, valid),
        _ => {
            let form = name.as_deref().and_then(expected);
            let own = error.source().map(ToString::to_string);
            in_own_words(value, own.as_deref(), form)
        }
    };
    Some(match value {
        "" => format!("{flag}: a value is missing; {expected}"),
        value => format!("{flag} {value:?}: {expected}"),
    })
}

/// Returns one line about missing arguments, with the usage of the command.
fn missing(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::Strings(names)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let names = names.join(", ").replace(['<', '>'], "");
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    let usage = usage.as_deref().and_then(|text| text.split_once("Usage: "));
    Some(match usage.and_then(|(_, rest)| rest.lines().next()) {
        Some(usage) => format!("{names}: missing; expected {}", usage.trim()),
        None => format!("{names}: missing"),
    })
}

fn one_of(value: &str, valid: &[String]) -> String {
    let names: Vec<&str> = valid.iter().map(String::as_str).collect();
    let near = placement::nearest(value, &names);
    let hint = near.map_or(String::new(), |name| format!("; did you mean {name}?"));
    format!("expected one of {}{hint}", valid.join(", "))
}

/// Returns what is expected of a value with this name, if its parser does not say it well.
fn expected(name: &str) -> Option<&'static str> {
    Some(match name {
        "TIME" => "a time with its unit, such as 500ms, 30s, 5m or 1h30m",
        "UUID" => "the id of an instance, as `vendue ps --wide` shows them",
        "MILLIS" => "a whole number of thousandths of a core, such as 500",
        "NAME=VALUE" => "NAME=VALUE, such as LANG=C",
        "KEY=VALUE" => "KEY=VALUE, such as tier=front",
        "NAME=N" => "NAME=N, such as gpu=1",
        "N" => "a whole number, such as 3",
        _ => return None,
    })
}

/// Returns the parser's message if it is ours; the libraries' messages about numbers and times do not help.
fn in_own_words(value: &str, said: Option<&str>, form: Option<&str>) -> String {
    let said = said.unwrap_or_default();
    let said = said.strip_prefix(&format!("{value:?}: ")).unwrap_or(said);
    let said = said.strip_prefix(&format!("{value} ")).unwrap_or(said);
    match (form, said) {
        // the library writes a range like Rust: `is not in 1..=200`
        (Some(form), said) if said.starts_with("is not in ") => {
            let range = said.trim_start_matches("is not in ").split_once("..=");
            range.map_or_else(
                || format!("expected {form}"),
                |(low, high)| format!("expected a number from {low} to {high}"),
            )
        }
        (Some(form), _) => format!("expected {form}"),
        (None, "") => "expected a value".to_owned(),
        (None, said) if said.contains("invalid digit") => "expected a whole number".to_owned(),
        (None, said) => said.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn what_is_missing_is_said_with_how_the_command_is_used() {
        for (line, said) in [
            ("stop", "APP: missing; expected vendue stop <APP>"),
            (
                "run a -- x",
                "--memory SIZE, --disk SIZE: missing; expected vendue run APP --memory SIZE",
            ),
        ] {
            let args = std::iter::once("vendue").chain(line.split(' '));
            let error = Cli::try_parse_from(args).unwrap_err();
            let message = bad_value(&error).unwrap_or_else(|| panic!("{line}: {error}"));
            assert!(message.starts_with(said), "{line}: {message}");
            assert_eq!(message.lines().count(), 1, "{line}: {message}");
        }
    }

    #[test]
    fn a_bad_value_is_said_with_its_flag_what_was_expected_and_an_example() {
        for (line, said) in [
            (
                "events --for xyz",
                "--for \"xyz\": expected a time with its unit, such as 500ms, 30s, 5m or 1h30m",
            ),
            ("drain c1 --deadline 5", "--deadline \"5\": expected a time"),
            (
                "stop web --instance foo",
                "--instance \"foo\": expected the id of an instance, as `vendue ps --wide` shows them",
            ),
            (
                "up --cells 0",
                "--cells \"0\": expected a number from 1 to 200",
            ),
            (
                "up --cells x",
                "--cells \"x\": expected a whole number, such as 3",
            ),
            (
                "up --cell-memory 64X",
                "--cell-memory \"64X\": unknown unit \"X\"; expected K, M, G or T",
            ),
            (
                "run a --memory 1 --disk 1 --env A -- x",
                "--env \"A\": expected NAME=VALUE, such as LANG=C",
            ),
            (
                "run a --memory 1 --disk 1 --tag A -- x",
                "--tag \"A\": expected KEY=VALUE, such as tier=front",
            ),
            (
                "capacity --memory 1 --disk 1 --extra gpu",
                "--extra \"gpu\": expected NAME=N, such as gpu=1",
            ),
            (
                "capacity --memory lots --disk 1",
                "--memory \"lots\": expected a size: a number of MiB",
            ),
            (
                "cells --where rack",
                "--where \"rack\": expected FIELD, one of = !=",
            ),
            ("cells set c1 rack", "ATTRIBUTE=VALUE \"rack\": "),
            (
                "ps --output jsn",
                "--output \"jsn\": expected one of table, json; did you mean json?",
            ),
            ("completions csh", "SHELL \"csh\": expected one of bash, "),
            ("events --kind plced", "did you mean placed?"),
            ("ps --log !!", "--log \"!!\": "),
            ("events --for", "--for: a value is missing; expected a time"),
        ] {
            let args = std::iter::once("vendue").chain(line.split(' '));
            let error = Cli::try_parse_from(args).unwrap_err();
            let message = bad_value(&error).unwrap_or_else(|| panic!("{line}: {error}"));
            assert!(
                message.starts_with(said) || message.ends_with(said),
                "{line}: {message}"
            );
            assert_eq!(message.lines().count(), 1, "{line}: {message}");
        }
        let error = Cli::try_parse_from(["vendue", "ps", "--nosuch"]).unwrap_err();
        assert_eq!(bad_value(&error), None);
        assert_eq!(
            argument(&error).map(|(flag, _)| flag).as_deref(),
            Some("--nosuch")
        );
    }

    #[test]
    fn a_negative_number_is_a_bad_value_and_no_unknown_option() {
        for (line, said) in [
            (
                "run a --memory -5 --disk 1 -- x",
                "--memory \"-5\": expected a size: a number of MiB such as 512, or one with a unit such as 64M \
                 or 1.5G",
            ),
            (
                "capacity --memory 5 --disk -5M",
                "--disk \"-5M\": expected a size: ",
            ),
            (
                "up --cells -1",
                "--cells \"-1\": expected a number from 1 to 200",
            ),
            (
                "app scale web -1",
                "N \"-1\": expected a number from 1 to 100000",
            ),
        ] {
            let args = std::iter::once("vendue").chain(line.split(' '));
            let error = Cli::try_parse_from(args).unwrap_err();
            let message = bad_value(&error).unwrap_or_else(|| panic!("{line}: {error}"));
            assert!(message.starts_with(said), "{line}: {message}");
        }
    }

    #[test]
    fn every_time_and_every_id_has_words_of_ours() {
        fn without(command: &clap::Command, found: &mut Vec<String>) {
            for arg in command.get_arguments() {
                let parser = format!("{:?}", arg.get_value_parser());
                let by_library = ["Duration", "Span", "Uuid", "Uid", "Id>"];
                let names = arg.get_value_names().unwrap_or_default();
                let known = names.first().is_some_and(|name| expected(name).is_some());
                if !known && by_library.iter().any(|kind| parser.contains(kind)) {
                    found.push(format!("{} {arg}: {parser}", command.get_name()));
                }
            }
            for command in command.get_subcommands() {
                without(command, found);
            }
        }
        let mut command = <Cli as clap::CommandFactory>::command();
        command.build();
        let mut found = Vec::new();
        without(&command, &mut found);
        assert_eq!(found, [""; 0]);
    }
}
