//! The report as text.

use std::path::PathBuf;

use simulator::outcome::SimOutcome;
use simulator::report;
use unicode_width::UnicodeWidthStr;

use crate::sample;

fn all_outcomes() -> Vec<SimOutcome> {
    let mut outcomes = vec![
        sample::two_days(),
        sample::hostile(),
        sample::hostile_canvas(),
        sample::large(2, 200, 1000),
    ];
    outcomes.extend(sample::empty());
    outcomes
}

/// Returns what a terminal shows, without colours.
fn plain(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |all, part| {
        let (code, rest) = part.split_once('m').unwrap();
        assert!(
            code.bytes().all(|b| b.is_ascii_digit() || b == b';'),
            "{code:?}"
        );
        all + rest
    })
}

#[test]
fn text_keeps_to_its_width() {
    for outcome in all_outcomes() {
        for width in [0, 40, 60, 80, 120, 200] {
            let text = report::text(&outcome, width, false);
            for line in text.lines() {
                assert!(
                    line.width() <= width.max(40),
                    "{} > {width}: {line:?}",
                    line.width()
                );
                assert_eq!(line.trim_end(), line);
            }
            assert!(
                !text.contains(['\u{1b}', '\u{202e}']),
                "only colours steer the terminal"
            );
            let coloured = report::text(&outcome, width, true);
            assert_eq!(plain(&coloured), text, "colours change nothing else");
        }
    }
}

#[test]
fn text_shows_the_same() {
    let outcome = sample::two_days();
    let text = report::text(&outcome, 120, false);
    if let Some(dir) = std::env::var_os("VENDUE_TEST_REPORT_DIR") {
        for (name, outcome) in [
            ("two-days", &outcome),
            ("large", &sample::large(2, 1250, 62_500)),
        ] {
            for (width, colour) in [(120, true), (60, false)] {
                let file = PathBuf::from(&dir).join(format!("{name}-{width}.txt"));
                std::fs::write(file, report::text(outcome, width, colour)).unwrap();
            }
        }
    }
    let line = |start: &str| {
        let found = text
            .lines()
            .find(|line| line.trim_start().starts_with(start));
        found
            .unwrap_or_else(|| panic!("no line {start:?} in\n{text}"))
            .to_owned()
    };
    let placed: Vec<String> = line("placed")
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    assert_eq!(placed[1..], ["*221", "205", "204"]);
    assert!(line("z2-cell-8").contains("59.4"));
    assert_eq!(
        text.matches("gone").count(),
        1,
        "the lost cell of one policy"
    );
    // each cell once under each policy
    assert_eq!(text.matches("z1-cell-").count(), 30);
    assert!(line("33").contains("insufficient resources: memory"));
    assert!(text.contains(&outcome.command));

    let large = report::text(&sample::large(2, 200, 1000), 120, false);
    assert!(
        !large.contains("z1-cell-"),
        "many cells are summed up by zone"
    );
    assert_eq!(
        large.matches("67\u{a0}cells").count(),
        4,
        "two zones of both policies:\n{large}"
    );
}
