//! Writes to standard output and standard error. Nothing here panics when they are closed.

use std::{
    fmt::Display,
    future::Future,
    io::{self, IsTerminal, Write},
    time::{Duration, SystemTime},
};

use comfy_table::{Cell, Color};
use serde::Serialize;

/// The pause between two looks of `--watch`.
pub(crate) const WATCH_PAUSE: Duration = Duration::from_secs(2);

/// Begins a look of `--watch`, on a cleared screen if there is one.
pub(crate) fn begin_look() -> io::Result<()> {
    if io::stdout().is_terminal() {
        // from the upper left corner
        say("\x1b[2J\x1b[H")?;
    }
    let time = humantime::format_rfc3339_seconds(SystemTime::now());
    let pause = placement::Span(WATCH_PAUSE);
    say(format_args!("{time}, every {pause}; Ctrl-C ends"))
}

/// Prints one line on standard output.
pub(crate) fn say(line: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Prints a line on standard output, wrapped between words to the width of a terminal; continuation lines are indented
/// by four more columns than the line.
pub(crate) fn say_wrapped(line: &str) -> io::Result<()> {
    say(wrapped(line, crate::terminal::width()))
}

fn wrapped(line: &str, width: Option<usize>) -> String {
    let indent = line.len() - line.trim_start().len();
    let Some(width) = width.filter(|width| *width > indent + MIN_WRAPPED) else {
        return line.to_owned();
    };
    let mut lines = vec![line[..indent].to_owned()];
    for word in line.split_whitespace() {
        let last = lines.len() - 1;
        let begun = !lines[last].trim_start().is_empty();
        let needed = lines[last].chars().count() + usize::from(begun) + word.chars().count();
        if begun && needed > width {
            lines.push(format!("{:indent$}    {word}", ""));
            continue;
        }
        if begun {
            lines[last].push(' ');
        }
        lines[last].push_str(word);
    }
    lines.join("\n")
}

/// Below this width, nothing is wrapped.
const MIN_WRAPPED: usize = 24;

/// Prints a value as indented JSON on standard output.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(say(serde_json::to_string_pretty(value)?)?)
}

/// Prints a document without a version of its own as JSON on standard output.
pub(crate) fn document(body: &impl Serialize) -> anyhow::Result<()> {
    json(&Versioned {
        v: shared::VERSION,
        body,
    })
}

/// A document with the version that every document has.
#[derive(Serialize)]
struct Versioned<'a, T> {
    v: shared::Version,
    #[serde(flatten)]
    body: &'a T,
}

/// Prints a value as one line of JSON on standard output, for streams.
pub(crate) fn json_line(value: &impl Serialize) -> anyhow::Result<()> {
    Ok(say(serde_json::to_string(value)?)?)
}

/// Prints a line on standard error: progress, warnings, advice.
pub(crate) fn note(line: impl Display) {
    // if nobody can read it, nobody needs it
    let _ = writeln!(io::stderr(), "{line}");
}

/// Prints a line on standard error, wrapped like [`say_wrapped`].
pub(crate) fn note_wrapped(line: &str) {
    note(wrapped(line, crate::terminal::width()));
}

/// Returns a state's word in its colour (on a terminal only).
pub(crate) fn state_cell(state: &str) -> Cell {
    let color = match state {
        "running" => Color::Green,
        "starting" | "restarting" | "stopping" | "queued" => Color::Yellow,
        "crashed" => Color::Red,
        _ => Color::Reset,
    };
    Cell::new(state).fg(color)
}

/// Formats a count with its noun: `1 cell`, `3 cells`. The plural is formed with an s.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// Formats a duration in one unit: `850ms`, `12s`, `3m`, `5h`, `2d`.
pub(crate) fn age(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}ms"),
        1_000..120_000 => format!("{}s", ms / 1_000),
        120_000..7_200_000 => format!("{}m", ms / 60_000),
        7_200_000..172_800_000 => format!("{}h", ms / 3_600_000),
        _ => format!("{}d", ms / 86_400_000),
    }
}

/// Formats a number without unnecessary decimals.
pub(crate) fn number(n: f64) -> String {
    let text = format!("{n:.4}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_owned()
}

/// Makes a line written by somebody else safe for the reader's terminal: control characters are shown as `�` (colours
/// and tabs pass).
pub(crate) fn printable(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = rest.strip_prefix("\x1b[").and_then(|after| {
            let end = after.find(|c: char| !c.is_ascii_digit() && c != ';')?;
            after[end..].starts_with('m').then_some(end + 3)
        });
        let take = colour.unwrap_or(c.len_utf8());
        if colour.is_none() && c.is_control() && c != '\t' {
            clean.push('\u{fffd}');
        } else {
            clean.push_str(&rest[..take]);
        }
        rest = &rest[take..];
    }
    clean
}

/// Waits, and reports on standard error what for: after two seconds, then every ten.
pub(crate) async fn with_progress<T>(what: &str, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let mut pause = Duration::from_secs(2);
    loop {
        match tokio::time::timeout(pause, work.as_mut()).await {
            Ok(done) => return done,
            Err(_) => note(format_args!("… {what}")),
        }
        pause = Duration::from_secs(10);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_between_words_on_a_narrow_terminal() {
        let line = "    memory: 3 cells dropped, needs 900, the best has 100 (a, b, c)";
        assert_eq!(wrapped(line, None), line);
        assert_eq!(wrapped(line, Some(80)), line);
        assert_eq!(
            wrapped(line, Some(40)),
            "    memory: 3 cells dropped, needs 900,\n        the best has 100 (a, b, c)"
        );
        let long = format!("  {}", "x".repeat(60));
        assert_eq!(wrapped(&long, Some(40)), long, "a word is never cut");
        assert_eq!(wrapped("", Some(40)), "");
    }

    #[test]
    fn one_is_not_counted_in_the_plural() {
        let counted = [0_usize, 1, 2].map(|n| counted(n, "cell"));
        assert_eq!(counted, ["0 cells", "1 cell", "2 cells"]);
    }

    #[test]
    fn ages_and_numbers() {
        let ages = [0, 999, 1_000, 119_999, 120_000, 7_200_000, 172_800_000].map(age);
        assert_eq!(ages, ["0ms", "999ms", "1s", "119s", "2m", "2h", "2d"]);
        let numbers = [0.0, 1.5, 4096.0, 0.713_33].map(number);
        assert_eq!(numbers, ["0", "1.5", "4096", "0.7133"]);
    }

    #[test]
    fn output_keeps_colours_and_loses_commands_to_the_terminal() {
        let cases = [
            ("plain é\t1", "plain é\t1"),
            ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
            ("\x1b]0;title\x07", "\u{fffd}]0;title\u{fffd}"),
            ("\x1b[2Jcleared", "\u{fffd}[2Jcleared"),
            ("cut \x1b[3", "cut \u{fffd}[3"),
        ];
        for (text, expected) in cases {
            assert_eq!(printable(text), expected, "{text:?}");
        }
    }
}
