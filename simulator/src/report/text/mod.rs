//! The report as text for a terminal.

mod map;

use std::ops::Range;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::charted::{KINDS, Kind, USED, quantities};
use super::demand;
use super::markup::w;
use super::number::{Unit, clean, counted, whole};
use super::palette::{Apps, TERMINAL};
use super::table;
use crate::outcome::{Histogram, SimOutcome};

/// Bars of eight heights, preceded by an empty one.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The narrowest text that is written.
const NARROWEST: usize = 40;

/// Collects lines, none of which is wider than `width`.
struct Paper {
    text: String,
    /// Columns.
    width: usize,
    colour: bool,
}

impl Paper {
    /// Writes a line of plain text, cut off at the width.
    fn line(&mut self, text: &str) {
        self.text.push_str(fit(text, self.width).trim_end());
        self.text.push('\n');
    }

    /// Writes a line in bold.
    fn heading(&mut self, text: &str) {
        let text = fit(text, self.width);
        let styled = self.styled("1", text.trim_end());
        w!(self.text, "\n{styled}\n");
    }

    /// Writes a paragraph, broken at spaces.
    fn paragraph(&mut self, text: &str, indent: &str) {
        for line in text.lines() {
            let mut row = String::new();
            for word in line.split_whitespace() {
                let fits = indent.len() + row.width() + 1 + word.width() <= self.width;
                if !row.is_empty() && !fits {
                    self.line(&format!("{indent}{row}"));
                    row.clear();
                }
                if !row.is_empty() {
                    row.push(' ');
                }
                row.push_str(word);
            }
            if !row.is_empty() {
                self.line(&format!("{indent}{row}"));
            }
        }
    }

    /// Writes a line that is known to fit and may contain colours.
    fn ready(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// Returns text in a style of the terminal, if colours are wanted.
    fn styled(&self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Returns text in the colour of a class of apps; classes without a colour stay as they are.
    fn in_class(&self, class: usize, text: &str) -> String {
        match TERMINAL.get(class) {
            Some(colour) => self.styled(&format!("38;5;{colour}"), text),
            None => text.to_owned(),
        }
    }
}

/// Returns at most `width` columns of a text, the last one `…` if something was cut off.
fn fit(text: &str, width: usize) -> String {
    let text = clean(text, false);
    if text.width() <= width {
        return text.into_owned();
    }
    let mut shown = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > width {
            break;
        }
        used += wide;
        shown.push(c);
    }
    shown.push('…');
    shown
}

/// Returns exactly `width` columns, filled with spaces.
fn column(text: &str, width: usize, right: bool) -> String {
    let text = fit(text, width);
    let fill = " ".repeat(width.saturating_sub(text.width()));
    if right { fill + &text } else { text + &fill }
}

/// Renders the whole text.
pub(super) fn page(outcome: &SimOutcome, width: usize, colour: bool) -> String {
    let mut paper = Paper {
        text: String::new(),
        width: width.max(NARROWEST),
        colour,
    };
    let apps = Apps::new(outcome);
    title(&mut paper, outcome);
    if !outcome.runs.is_empty() {
        figures(&mut paper, outcome);
        demand_steps(&mut paper, outcome);
        histograms(&mut paper, outcome);
        over_time(&mut paper, outcome);
        map::maps(&mut paper, outcome, &apps);
        reasons(&mut paper, outcome);
    }
    paper.text
}

fn title(paper: &mut Paper, outcome: &SimOutcome) {
    let name = if outcome.name.is_empty() {
        "Unnamed scenario"
    } else {
        &outcome.name
    };
    let name = fit(name, paper.width);
    let styled = paper.styled("1", &name);
    paper.ready(&styled);
    paper.paragraph(&outcome.description, "");
    let mut facts = Vec::new();
    if let Some(first) = outcome.runs.first() {
        let zones = first.cells.chunk_by(|a, b| a.zone == b.zone).count();
        let memory: i64 = first.cells.iter().map(|c| c.memory_mb.max(0)).sum();
        facts.push(format!(
            "{} in {}",
            counted(first.cells.len() as u64, "cell"),
            counted(zones as u64, "zone")
        ));
        facts.push(Unit::Mebibytes.short(memory as f64));
        let time = outcome
            .runs
            .iter()
            .map(|r| r.figures.virtual_ms)
            .max()
            .unwrap_or(0);
        let kind = if outcome.over == "nats" {
            ""
        } else {
            " of virtual time"
        };
        facts.push(format!("{}{kind}", Unit::Ms.short(time as f64)));
    }
    facts.push(format!("seed {}", outcome.seed));
    facts.push(outcome.over.clone());
    paper.paragraph(&facts.join(", "), "");
    paper.paragraph(&format!("$ {}", outcome.command), "");
    if outcome.interrupted {
        paper.line("Interrupted: these are the figures of the time until then.");
    }
    for warning in &outcome.warnings {
        paper.paragraph(&format!("Warning: {warning}"), "");
    }
    for run in &outcome.runs {
        for note in &run.notes {
            paper.paragraph(&format!("{}: {note}", run.policy), "");
        }
    }
    if outcome.runs.is_empty() {
        paper.line("No policy was simulated.");
    }
}

/// Separates the columns of the table.
const GAP: &str = "  ";

/// Writes the figures with policies as columns: as many side by side as fit, the rest below.
fn figures(paper: &mut Paper, outcome: &SimOutcome) {
    let groups = table::groups(outcome);
    let rows = || {
        groups
            .iter()
            .flat_map(|g| &g.rows)
            .filter(|r| !r.is_empty())
    };
    let label = rows()
        .map(|r| clean(&r.label, false).width() + 2)
        .max()
        .unwrap_or(10);
    let label = label.clamp(10, (paper.width / 2).min(34));
    let width = |run: usize| {
        let values = rows().map(|row| shown(row, run).width()).max().unwrap_or(0);
        let name = clean(&outcome.runs[run].policy, false).width().min(18);
        values.max(name).min(paper.width - label - GAP.len())
    };
    let mut columns: Vec<(usize, usize)> = (0..outcome.runs.len()).map(|r| (r, width(r))).collect();
    while !columns.is_empty() {
        let mut used = label;
        let fit = columns.iter().take_while(|(_, width)| {
            used += GAP.len() + width;
            used <= paper.width
        });
        let rest = columns.split_off(fit.count().max(1));
        let mut head = column("Figures", label, false);
        for (run, width) in &columns {
            head += GAP;
            head += &column(&outcome.runs[*run].policy, *width, true);
        }
        paper.heading(&head);
        for group in &groups {
            figure_group(paper, group, label, &columns);
        }
        columns = rest;
    }
    let note = fit(
        "* best; figures that are 0 under all policies are left out",
        paper.width,
    );
    let note = paper.styled("2", &note);
    paper.ready(&note);
}

/// Writes what was given of each resource as demand grew; a policy that does not fit beside the others is left out.
fn demand_steps(paper: &mut Paper, outcome: &SimOutcome) {
    for table in demand::tables(outcome) {
        paper.heading(&table.heading);
        let cells = table.rows.iter().flat_map(|row| &row.cells);
        let policies = || outcome.runs.iter().map(|run| run.policy.as_str());
        let names = policies().map(|name| clean(name, false).width().min(18));
        let width = cells.map(|cell| cell.width()).chain(names);
        let width = width.max().unwrap_or(0);
        let line = |first: &str, cells: &mut dyn Iterator<Item = &str>| {
            let mut line = column(first, 8, false);
            for cell in cells {
                line += GAP;
                line += &column(cell, width, true);
            }
            line
        };
        paper.line(&line("demand", &mut policies()));
        for row in &table.rows {
            let mut cells = row.cells.iter().map(String::as_str);
            paper.line(&line(&row.demand, &mut cells));
        }
    }
}

/// Writes the rows of a group, for these columns (run, width).
fn figure_group(paper: &mut Paper, group: &table::Group, label: usize, columns: &[(usize, usize)]) {
    if group.rows.iter().all(table::Row::is_empty) {
        return;
    }
    paper.line(group.title);
    for row in group.rows.iter().filter(|row| !row.is_empty()) {
        let mut line = column(&format!("  {}", row.label), label, false);
        for (run, width) in columns {
            line += GAP;
            let value = column(&shown(row, *run), *width, true);
            line += &if row.best[*run] {
                paper.styled("1", &value)
            } else {
                value
            };
        }
        paper.ready(&line);
    }
}

fn shown(row: &table::Row, run: usize) -> String {
    let number = row.values[run].as_ref().and_then(serde_json::Value::as_f64);
    let value = number.map_or("–".to_owned(), |n| row.scale.name(&row.scale.number(n)));
    if row.best[run] {
        format!("*{value}")
    } else {
        value
    }
}

/// Returns the width for the names of policies in front of lines: that of the longest, at most a quarter of the width.
fn policy_width(paper: &Paper, outcome: &SimOutcome) -> usize {
    let longest = outcome
        .runs
        .iter()
        .map(|r| clean(&r.policy, false).width())
        .max()
        .unwrap_or(0);
    longest.min(paper.width / 4)
}

fn histograms(paper: &mut Paper, outcome: &SimOutcome) {
    let name = policy_width(paper, outcome);
    for kind in &KINDS {
        let all = kind.of_runs(&outcome.runs);
        if all.iter().all(|(h, _)| h.counts.iter().all(|c| *c == 0)) {
            continue;
        }
        paper.heading(kind.title);
        for (run, (histogram, classes)) in outcome.runs.iter().zip(all) {
            let line = histogram_line(kind, histogram, classes);
            paper.line(&format!("{}  {line}", column(&run.policy, name, false)));
        }
    }
}

/// Formats `▁▃█▂  mostly 2 to 5 ms (45 %); classes: 0.5 to 1 ms … 50 ms and more`.
fn histogram_line(kind: &Kind, histogram: &Histogram, classes: Range<usize>) -> String {
    let all: u64 = histogram.counts.iter().sum();
    if all == 0 || classes.is_empty() {
        return "no values".to_owned();
    }
    let count = |class: usize| histogram.counts.get(class).copied().unwrap_or(0);
    let counts: Vec<f64> = classes.clone().map(|class| count(class) as f64).collect();
    let top = counts.iter().copied().fold(0.0, f64::max);
    let most = classes
        .clone()
        .rev()
        .max_by_key(|class| count(*class))
        .unwrap_or(0);
    let class_name = |class: usize| kind.class_name(&histogram.bounds, class);
    let range = match (classes.start, classes.end - 1) {
        (first, last) if first == last => String::new(),
        (first, last) => format!("; classes: {} … {}", class_name(first), class_name(last)),
    };
    let share = Unit::Share.show(count(most) as f64 / all as f64);
    format!(
        "{}  mostly {} ({share}){range}",
        bars(&counts, top),
        class_name(most)
    )
}

/// Returns one block character per value; values above 0 are never invisible.
fn bars(values: &[f64], top: f64) -> String {
    let bar = |value: &f64| {
        if !(value.is_finite() && *value > 0.0 && top > 0.0) {
            return BARS[0];
        }
        let eighths = (value / top * 8.0).round().clamp(1.0, 8.0);
        (1..=8_u8)
            .find(|at| f64::from(*at) >= eighths)
            .map_or('█', |at| BARS[usize::from(at)])
    };
    values.iter().map(bar).collect()
}

fn over_time(paper: &mut Paper, outcome: &SimOutcome) {
    if outcome.runs.iter().all(|r| r.series.len() < 2) {
        return;
    }
    let name = policy_width(paper, outcome);
    let wide = paper.width.saturating_sub(name + 2 + 26).clamp(8, 100);
    for what in [&USED].into_iter().chain(quantities(&outcome.runs)) {
        let values = outcome.runs.iter().flat_map(|r| &r.series).map(what.of);
        let top = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
        if top <= 0.0 || what.is_constant(&outcome.runs) {
            continue;
        }
        paper.heading(&format!("{} over time", what.title));
        for run in &outcome.runs {
            let values: Vec<f64> = run.series.iter().map(what.of).collect();
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let line = bars(&resample(&values, wide), top);
            paper.line(&format!(
                "{}  {}  {} to {}",
                column(&run.policy, name, false),
                column(&line, wide, false),
                what.unit.show(least),
                what.unit.show(most)
            ));
        }
    }
}

/// Returns the means of equally long pieces; the values themselves if there are no more than wanted.
fn resample(values: &[f64], wanted: usize) -> Vec<f64> {
    if values.len() <= wanted {
        return values.to_vec();
    }
    let piece = |at: usize| {
        let from = at * values.len() / wanted;
        let to = ((at + 1) * values.len() / wanted).max(from + 1);
        values[from..to].iter().sum::<f64>() / (to - from) as f64
    };
    (0..wanted).map(piece).collect()
}

fn reasons(paper: &mut Paper, outcome: &SimOutcome) {
    if outcome.runs.iter().all(|r| r.refusals.is_empty()) {
        return;
    }
    paper.heading("Unplaced instances, by reason");
    for run in outcome.runs.iter().filter(|r| !r.refusals.is_empty()) {
        paper.line(&run.policy);
        for (reason, count) in &run.refusals {
            paper.line(&format!("{:>9}  {reason}", whole(*count)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_by_columns() {
        assert_eq!(fit("abc", 3), "abc");
        assert_eq!(fit("abcd", 3), "ab…");
        assert_eq!(fit("東京都", 4), "東…");
        assert_eq!(column("東", 4, true), "  東");
        assert_eq!(fit("a\u{1b}[2Jb", 9), "a\u{fffd}[2Jb");
    }

    #[test]
    fn every_value_above_zero_has_a_visible_bar() {
        assert_eq!(bars(&[0.0, 0.001, 4.0, 8.0, f64::NAN], 8.0), " ▁▄█ ");
        assert_eq!(bars(&[0.0], 0.0), " ");
    }

    #[test]
    fn resampling_keeps_the_mean() {
        assert_eq!(resample(&[1.0, 3.0, 5.0, 7.0], 2), [2.0, 6.0]);
        assert_eq!(resample(&[1.0, 3.0], 5), [1.0, 3.0]);
    }

    #[test]
    fn a_histogram_is_one_line() {
        let histogram = Histogram {
            bounds: vec![1.0, 2.0, 3.0],
            counts: vec![0, 8, 4, 0],
        };
        let line = histogram_line(&KINDS[1], &histogram, 1..3);
        assert_eq!(line, "█▄  mostly 1 (66.7\u{a0}%); classes: 1 … 2");
    }
}
