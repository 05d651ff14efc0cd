//! The instance map as text: a line for each cell, or for each zone if there are many cells.

use unicode_width::UnicodeWidthStr;

use super::{Paper, bars, column, fit};
use crate::outcome::{CellEnd, InstanceEnd, SimOutcome};
use crate::report::markup::w;
use crate::report::number::{Unit, clean, counted, percent, significant};
use crate::report::palette::{Apps, class};

/// Maximum number of cells of one run that have their own line.
const LINES: usize = 60;

/// Writes the maps of all runs.
pub(super) fn maps(paper: &mut Paper, outcome: &SimOutcome, apps: &Apps<'_>) {
    if outcome.runs.iter().all(|r| r.cells.is_empty()) {
        return;
    }
    let many = outcome.runs.iter().any(|r| r.cells.len() > LINES);
    let widest = outcome
        .runs
        .iter()
        .flat_map(|r| &r.cells)
        .map(|c| c.memory_mb.max(c.used_mb));
    let widest = widest.max().unwrap_or(1).max(1);
    for (run, of) in outcome.runs.iter().enumerate() {
        paper.heading(&format!("Cells at the end, {}", of.policy));
        for zone in of.cells.chunk_by(|a, b| a.zone == b.zone) {
            if many {
                zone_line(paper, zone);
                continue;
            }
            let name = if zone[0].zone.is_empty() {
                "no zone"
            } else {
                &zone[0].zone
            };
            paper.line(&format!("{name}, {}", counted(zone.len() as u64, "cell")));
            for cell in zone {
                cell_line(paper, cell, run, apps, widest);
            }
        }
    }
    if !many {
        legend(paper, outcome, apps);
    }
}

/// Writes `z1  0 ▕   ▂▇█▃   ▏ 100 %  mean 61.2 % (58.1 to 70 %), 417 cells` and how many are empty or down.
fn zone_line(paper: &mut Paper, zone: &[CellEnd]) {
    let up = || zone.iter().filter(|c| !c.gone && c.memory_mb > 0);
    let loads: Vec<f64> = up()
        .map(|c| c.used_mb as f64 / c.memory_mb as f64)
        .collect();
    let mut counts = [0.0; 10];
    for load in &loads {
        let class = (1..10_u8)
            .take_while(|tenth| *load >= f64::from(*tenth) / 10.0)
            .count();
        counts[class] += 1.0;
    }
    let top = counts.iter().copied().fold(0.0, f64::max);
    let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
    let most = loads.iter().copied().fold(0.0, f64::max);
    let mean = loads.iter().sum::<f64>() / loads.len().max(1) as f64;
    let empty = up().filter(|c| c.instances.is_empty()).count();
    let gone = zone.iter().filter(|c| c.gone).count();
    let name = if zone[0].zone.is_empty() {
        "no zone"
    } else {
        &zone[0].zone
    };
    let mut line = format!(
        "{}  0 ▕{}▏ 100 %  mean {} ({} to {}), {}",
        column(name, 12.min(clean(name, false).width()), false),
        bars(&counts, top),
        Unit::Share.show(mean),
        if loads.is_empty() {
            "–".to_owned()
        } else {
            significant(least * 100.0)
        },
        Unit::Share.show(most),
        counted(zone.len() as u64, "cell"),
    );
    for (count, what) in [(empty, "empty"), (gone, "gone")] {
        if count > 0 {
            w!(line, ", {count} {what}");
        }
    }
    paper.line(&line);
}

fn cell_line(paper: &mut Paper, cell: &CellEnd, run: usize, apps: &Apps<'_>, widest: i64) {
    let name = (paper.width / 4).min(20);
    let wide = paper.width - name - 2 - 9;
    let at = |memory: i64| (memory.max(0) as f64 / widest as f64 * wide as f64).round();
    let whole = steps(at(cell.memory_mb), wide);
    let share = if cell.gone {
        "gone".to_owned()
    } else {
        percent(cell.used_mb, cell.memory_mb)
    };
    let mut line = column(&cell.cell, name, false);
    line += "  ";
    let mut filled = 0;
    let mut memory = 0;
    for (rank, instance) in apps.drawn(run, cell) {
        memory += instance.memory_mb.max(0);
        let until = steps(at(memory), wide);
        if until > filled {
            // the sign marks where a block begins, so that blocks of one app stay distinguishable
            let (sign, rest) = signs(rank, instance, apps);
            let block = format!("{sign}{}", rest.repeat(until - filled - 1));
            line += &paper.in_class(class(rank, apps.named), &block);
            filled = until;
        }
    }
    let free = if cell.gone { "x" } else { "·" };
    line += &paper.styled("2", &free.repeat(whole.saturating_sub(filled)));
    line += &" ".repeat(wide.saturating_sub(filled.max(whole)));
    line += &column(&share, 9, true);
    paper.ready(&line);
}

/// Returns a whole number of columns, at most `most`.
fn steps(columns: f64, most: usize) -> usize {
    (0..most).take_while(|at| (*at as f64) < columns).count()
}

/// Returns the app's letter, in lower case if the instance ran before the first request (`+` and `~` for apps without
/// one), and what fills the rest of the block.
fn signs(rank: usize, instance: &InstanceEnd, apps: &Apps<'_>) -> (char, &'static str) {
    match (apps.letter(rank), instance.before) {
        (Some(letter), false) => (letter, "="),
        (Some(letter), true) => (letter.to_ascii_lowercase(), "-"),
        (None, false) => ('+', "="),
        (None, true) => ('~', "-"),
    }
}

fn legend(paper: &mut Paper, outcome: &SimOutcome, apps: &Apps<'_>) {
    let mut entries: Vec<(usize, String, String)> = Vec::new();
    for (rank, name) in apps.names.iter().enumerate().take(apps.named) {
        let letter = apps.letter(rank).unwrap_or('?').to_string();
        entries.push((rank, letter, clean(name, false).into_owned()));
    }
    let others = (apps.names.len() - apps.named) as u64;
    if others > 0 {
        let what = if apps.named > 0 { "other app" } else { "app" };
        entries.push((usize::MAX, "+==".to_owned(), counted(others, what)));
    }
    let instances = || {
        outcome
            .runs
            .iter()
            .flat_map(|r| &r.cells)
            .flat_map(|c| &c.instances)
    };
    if instances().any(|i| i.before) {
        entries.push((usize::MAX, "a-- ~--".to_owned(), "ran before".to_owned()));
    }
    entries.push((usize::MAX, "·".to_owned(), "free".to_owned()));
    let mut line = String::new();
    let mut used = 0;
    for (class, sign, name) in entries {
        let name = fit(&name, paper.width - 6);
        let wide = sign.width() + 1 + name.width();
        if used > 0 && used + 2 + wide > paper.width {
            paper.ready(&line);
            line.clear();
            used = 0;
        }
        if used > 0 {
            line += "  ";
            used += 2;
        }
        w!(line, "{} {name}", paper.in_class(class, &sign));
        used += wide;
    }
    paper.ready(&line);
}
