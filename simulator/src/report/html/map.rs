//! The instance map: a row for each cell, a block for each instance, as wide as its memory.

use base64::Engine as _;
use serde_json::{Value, json};

use super::pack::Packed;
use crate::outcome::{CellEnd, InstanceEnd, Outcome};
use crate::report::markup::{Esc, Len, w};
use crate::report::number::{Unit, clean, counted, percent};
use crate::report::palette::{Apps, NAMED, class};

/// Blocks drawn as SVG, readable without a script; more are drawn by the script on canvases.
const SVG_BLOCKS: usize = 4_000;
/// Rows in one image: browsers limit the size of a canvas.
const CHUNK: usize = 128;
/// Bytes of a page that blocks, the names of their apps, and the cells may take.
const BUDGET: usize = 3_600_000;

/// How all maps of a report are drawn.
pub(super) struct Style {
    /// By the script, on canvases.
    pub(super) canvas: bool,
    /// From one row to the next, pixels.
    pitch: usize,
    /// Memory that fills the whole width, MiB.
    widest_mb: i64,
    /// Room for the names of cells and a share, characters.
    label_chars: usize,
}

impl Style {
    /// Chosen by the number of blocks and cells.
    pub(super) fn new(outcome: &Outcome) -> Self {
        let cells = || outcome.runs.iter().flat_map(|run| &run.cells);
        let blocks: usize = cells().map(|cell| cell.instances.len()).sum();
        let rows = outcome
            .runs
            .iter()
            .map(|run| run.cells.len())
            .max()
            .unwrap_or(0);
        Style {
            canvas: blocks > SVG_BLOCKS,
            pitch: match rows {
                0..=120 => 18,
                121..=400 => 8,
                _ => 4,
            },
            widest_mb: cells()
                .map(|c| c.memory_mb.max(held_mb(c)))
                .max()
                .unwrap_or(1)
                .max(1),
            label_chars: cells()
                .map(|c| c.cell.chars().count())
                .max()
                .unwrap_or(0)
                .min(16)
                + 7,
        }
    }

    fn percent(&self, memory_mb: i64) -> f64 {
        memory_mb as f64 / self.widest_mb as f64 * 100.0
    }

    fn labelled(&self) -> bool {
        self.pitch >= 14
    }

    /// Between two rows, pixels.
    fn gap(&self) -> usize {
        if self.labelled() { 3 } else { 1 }
    }
}

/// Bytes of a page that blocks and the names of their apps may take, once the cells are there.
pub(super) fn budget(outcome: &Outcome) -> usize {
    let cells = outcome.runs.iter().flat_map(|run| &run.cells);
    BUDGET.saturating_sub(cells.map(|cell| cell.cell.len() + 24).sum())
}

fn held_mb(cell: &CellEnd) -> i64 {
    cell.instances
        .iter()
        .fold(0, |sum, i| sum.saturating_add(i.memory_mb.max(0)))
}

/// The map of one run.
pub(super) fn map(out: &mut String, outcome: &Outcome, run: usize, apps: &Apps<'_>, style: &Style) {
    let cells = &outcome.runs[run].cells;
    let mut first = 0;
    for zone in cells.chunk_by(|a, b| a.zone == b.zone) {
        zone_head(out, zone);
        for (at, chunk) in zone.chunks(CHUNK).enumerate() {
            let first = first + at * CHUNK;
            if style.labelled() {
                let chars = style.label_chars;
                w!(
                    out,
                    "<div class=\"rows labelled\" style=\"--label:{chars}ch\">"
                );
                labels(out, chunk);
            } else {
                out.push_str("<div class=\"rows\">");
            }
            plot(out, chunk, (run, first), apps, style);
            out.push_str("</div>");
        }
        first += zone.len();
    }
    if cells.is_empty() {
        out.push_str("<p class=\"none\">No cells.</p>");
    }
}

fn zone_head(out: &mut String, zone: &[CellEnd]) {
    let name = zone.first().map_or("", |cell| cell.zone.as_str());
    let memory: i64 = zone.iter().map(|c| c.memory_mb.max(0)).sum();
    let used: i64 = zone.iter().map(|c| c.used_mb).sum();
    let instances: u64 = zone
        .iter()
        .flat_map(|c| &c.instances)
        .map(|i| u64::from(i.count))
        .sum();
    w!(
        out,
        "<h4>{} <span>{}, {}, {} used</span></h4>",
        if name.is_empty() {
            "No zone".to_owned()
        } else {
            format!("Zone {}", Esc(name))
        },
        counted(zone.len() as u64, "cell"),
        counted(instances, "instance"),
        percent(used, memory),
    );
}

fn labels(out: &mut String, cells: &[CellEnd]) {
    out.push_str("<ol class=\"cells\">");
    for cell in cells {
        let right = if cell.gone {
            "gone".to_owned()
        } else {
            percent(cell.used_mb, cell.memory_mb)
        };
        w!(out, "<li><b>{}</b><i>{right}</i></li>", Esc(&cell.cell));
    }
    out.push_str("</ol>");
}

/// Tracks (the cells' memory), and on them blocks, or bars that the canvas will cover.
fn plot(
    out: &mut String,
    cells: &[CellEnd],
    (run, first): (usize, usize),
    apps: &Apps<'_>,
    style: &Style,
) {
    let height = cells.len() * style.pitch;
    let zone = cells.first().map_or("", |cell| cell.zone.as_str());
    w!(
        out,
        "<div class=\"plot\" style=\"height:{height}px\" data-run=\"{run}\" data-first=\"{first}\" \
         data-rows=\"{}\"><svg width=\"100%\" height=\"{height}\" role=\"img\" \
         aria-label=\"What {} in zone {} hold\">",
        cells.len(),
        Esc(&counted(cells.len() as u64, "cell")),
        Esc(zone),
    );
    let view = format!("viewBox=\"0 0 1000 {height}\" preserveAspectRatio=\"none\"");
    w!(out, "<svg width=\"100%\" height=\"{height}\" {view}>");
    bars(out, "track", cells, style, |c| {
        if c.gone { 0 } else { c.memory_mb }
    });
    bars(out, "gone", cells, style, |c| {
        if c.gone { c.memory_mb } else { 0 }
    });
    if style.canvas {
        // for readers without a script, until the canvas covers it
        bars(out, "used", cells, style, |c| c.used_mb);
    }
    out.push_str("</svg>");
    if !style.canvas {
        for (row, cell) in cells.iter().enumerate() {
            blocks(out, cell, (run, row * style.pitch), apps, style);
        }
    }
    out.push_str("</svg></div>");
}

/// A bar for each cell that has some of this memory, all of them as one shape.
fn bars(
    out: &mut String,
    class: &str,
    cells: &[CellEnd],
    style: &Style,
    memory_mb: fn(&CellEnd) -> i64,
) {
    if cells.iter().all(|cell| memory_mb(cell) <= 0) {
        return;
    }
    let thick = style.pitch - style.gap();
    w!(out, "<path class=\"{class}\" d=\"");
    for (row, cell) in cells
        .iter()
        .enumerate()
        .filter(|(_, cell)| memory_mb(cell) > 0)
    {
        let y = row * style.pitch;
        let width = (style.percent(memory_mb(cell)) * 10.0).round().max(2.0);
        w!(out, "M0 {y}h{width}v{thick}h-{width}z");
    }
    out.push_str("\"/>");
}

fn blocks(
    out: &mut String,
    cell: &CellEnd,
    (run, y): (usize, usize),
    apps: &Apps<'_>,
    style: &Style,
) {
    let thick = style.pitch - style.gap();
    let mut x = 0.0;
    for (rank, instance) in apps.drawn(run, cell) {
        let width = style.percent(instance.memory_mb.max(0));
        let inset = if instance.before { thick / 5 } else { 0 };
        let height = if instance.task { thick / 2 } else { thick };
        w!(
            out,
            "<g><title>{}</title><rect class=\"a{}\" x=\"{x}%\" y=\"{y}\" width=\"{w}%\" \
             height=\"{h}\"/>",
            Esc(&describe(cell, instance, apps.names.get(rank).copied())),
            class(rank, apps.named),
            x = Len(x),
            y = y + inset,
            w = Len(width.max(0.15)),
            h = height - inset.min(height / 2) * 2,
        );
        if instance.before {
            w!(
                out,
                "<rect class=\"hatch\" x=\"{x}%\" y=\"{y}\" width=\"{w}%\" height=\"{h}\"/>",
                x = Len(x),
                y = y + inset,
                w = Len(width.max(0.15)),
                h = height - inset.min(height / 2) * 2,
            );
        }
        let letter = apps
            .letter(rank)
            .filter(|_| width >= 4.0 && thick >= 14 && !instance.task);
        if let Some(letter) = letter {
            w!(
                out,
                "<text class=\"t{}\" x=\"{}%\" y=\"{}\">{letter}</text>",
                class(rank, apps.named),
                Len(x + width / 2.0),
                y + 11
            );
        }
        out.push_str("</g>");
        x += width;
    }
}

/// What the pointer shows: cell, app, index, memory.
fn describe(cell: &CellEnd, instance: &InstanceEnd, app: Option<&str>) -> String {
    let mut text = format!("{}: {}", cell.cell, app.unwrap_or("unknown app"));
    if instance.count == 1 {
        w!(text, " #{}", instance.index);
    } else {
        w!(text, ", {}", counted(u64::from(instance.count), "instance"));
    }
    w!(
        text,
        ", {}",
        Unit::Mebibytes.show(instance.memory_mb as f64)
    );
    if instance.task {
        text.push_str(", task");
    }
    if instance.before {
        text.push_str(", there before");
    }
    text
}

/// What the script needs to draw the maps; `null` where they are SVG.
pub(super) fn data(
    outcome: &Outcome,
    packed: &Packed<'_>,
    apps: &Apps<'_>,
    style: &Style,
) -> Value {
    let cells = |run: usize| -> Vec<Value> {
        outcome.runs[run]
            .cells
            .iter()
            .map(|c| {
                json!([
                    clean(&c.cell, false),
                    c.memory_mb,
                    c.used_mb,
                    u8::from(c.gone)
                ])
            })
            .collect()
    };
    let runs: Vec<Value> = packed
        .runs
        .iter()
        .enumerate()
        .map(|(run, bytes)| {
            let blocks = base64::engine::general_purpose::STANDARD.encode(bytes);
            json!({"cells": cells(run), "blocks": blocks})
        })
        .collect();
    let shapes: Vec<Value> = packed
        .shapes
        .iter()
        .map(|s| {
            let flags = u8::from(s.before) + 2 * u8::from(s.task) + 4 * u8::from(s.rest);
            json!([s.count, s.memory_mb, flags])
        })
        .collect();
    let names: Vec<_> = packed.names.iter().map(|name| clean(name, false)).collect();
    let classes: Vec<usize> = packed
        .ranks
        .iter()
        .map(|rank| class(*rank, apps.named))
        .collect();
    // the class follows from the rank; written out only for the few that have one of their own
    let named = classes
        .iter()
        .take_while(|class| **class < NAMED.len())
        .count();
    json!({
        "apps": names,
        "named": classes[..named],
        "shapes": shapes,
        "runs": runs,
        "widest": style.widest_mb,
        "pitch": style.pitch,
        "gap": style.gap(),
    })
}
