//! The instance map: a row for each cell with a block for each instance, as wide as its memory.

use base64::Engine as _;
use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};

use super::pack::{self, Packed};
use super::{badge, safe};
use crate::outcome::{CellEnd, InstanceEnd, SimOutcome};
use crate::report::markup::{Esc, Len, w};
use crate::report::number::{Unit, clean, counted, percent};
use crate::report::palette::{Apps, NAMED, class};

/// Maximum number of blocks drawn as SVG, readable without a script; if there are more, the script draws them on
/// canvases.
const SVG_BLOCKS: usize = 4_000;
/// Maximum number of rows in one image, as browsers limit the size of a canvas.
const CHUNK: usize = 128;
/// Maximum size in a page, in bytes, of blocks, the names of their apps, and the cells.
const BUDGET: usize = 3_600_000;

/// How all maps of a report are drawn.
pub(super) struct Style {
    /// Whether the script draws them, on canvases.
    pub(super) canvas: bool,
    /// Distance from one row to the next, in pixels.
    pitch: usize,
    /// Memory that fills the whole width, in MiB.
    widest_mb: i64,
    /// Room for the names of cells and a share, in characters.
    label_chars: usize,
}

impl Style {
    /// Chooses a style by the number of blocks and cells.
    pub(super) fn new(outcome: &SimOutcome) -> Self {
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

    /// Returns the gap between two rows, in pixels.
    fn gap(&self) -> usize {
        if self.labelled() { 3 } else { 1 }
    }
}

/// Returns how many bytes of a page the blocks and the names of their apps may take besides the cells.
fn budget(outcome: &SimOutcome) -> usize {
    let cells = outcome.runs.iter().flat_map(|run| &run.cells);
    BUDGET.saturating_sub(cells.map(|cell| cell.cell.len() + 24).sum())
}

fn held_mb(cell: &CellEnd) -> i64 {
    cell.instances
        .iter()
        .fold(0, |sum, i| sum.saturating_add(i.memory_mb.max(0)))
}

/// Renders the section of the maps, and returns what the script needs to draw them.
pub(super) fn section(outcome: &SimOutcome, apps: &Apps<'_>, style: &Style) -> (Markup, Value) {
    if outcome.runs.is_empty() {
        return (html! {}, Value::Null);
    }
    let packed = style
        .canvas
        .then(|| pack::pack(outcome, apps, budget(outcome)));
    let limit = packed.as_ref().and_then(|packed| packed.limit);
    let markup = html! {
        section aria-labelledby="map" {
            h2 id="map" { "Instance map" }
            p.note {
                "The cells at the end: a row for each cell, a block for each instance, as wide as its \
                 memory. The rest of a row is free."
                @if let Some(limit) = limit {
                    " Of each cell the " (limit) " largest entries are shown by themselves, the rest as one \
                     block."
                }
                @if style.canvas {
                    noscript { " Without a script: how full each cell is." }
                }
            }
            (legend(outcome, apps))
            div.maps {
                @for (at, run) in outcome.runs.iter().enumerate() {
                    article.map {
                        h3 { (badge(at, &run.policy)) }
                        div.scroll.tall tabindex="0" role="region"
                            aria-label={ "Instance map of " (safe(&run.policy)) } {
                            (map(outcome, at, apps, style))
                        }
                    }
                }
            }
        }
    };
    let data = packed.map_or(Value::Null, |packed| data(outcome, &packed, apps, style));
    (markup, data)
}

/// Renders the map of one run.
fn map(outcome: &SimOutcome, run: usize, apps: &Apps<'_>, style: &Style) -> Markup {
    let cells = &outcome.runs[run].cells;
    // each zone, with the number of cells before it
    let zones = cells
        .chunk_by(|a, b| a.zone == b.zone)
        .scan(0, |before, zone| {
            let first = *before;
            *before += zone.len();
            Some((first, zone))
        });
    html! {
        @for (before, zone) in zones {
            (zone_head(zone))
            @for (at, chunk) in zone.chunks(CHUNK).enumerate() {
                @let first = before + at * CHUNK;
                @if style.labelled() {
                    div.rows.labelled style={ "--label:" (style.label_chars) "ch" } {
                        (labels(chunk))
                        (plot(chunk, (run, first), apps, style))
                    }
                } @else {
                    div.rows { (plot(chunk, (run, first), apps, style)) }
                }
            }
        }
        @if cells.is_empty() { p.none { "No cells." } }
    }
}

/// Renders the legend of the maps.
fn legend(outcome: &SimOutcome, apps: &Apps<'_>) -> Markup {
    let cells = || outcome.runs.iter().flat_map(|r| &r.cells);
    let instances = || cells().flat_map(|c| &c.instances);
    let others = (apps.names.len() - apps.named) as u64;
    let other = if apps.named > 0 { "other app" } else { "app" };
    html! {
        ul.legend {
            @for (rank, name) in apps.names.iter().enumerate().take(apps.named) {
                (entry(name, &html! {
                    rect class={ "a" (rank) } width="22" height="15" {}
                    text class={ "t" (rank) } x="11" y="11" { (apps.letter(rank).unwrap_or(' ')) }
                }))
            }
            @if others > 0 {
                (entry(&format!("{}, colours repeat", counted(others, other)), &html! {
                    rect.a12 width="8" height="15" {}
                    rect.a15 x="8" width="7" height="15" {}
                    rect.a18 x="15" width="7" height="15" {}
                }))
            }
            @if instances().any(|i| i.before) {
                (entry("ran before the first request", &html! {
                    rect.a12 y="3" width="22" height="9" {}
                    rect.hatch y="3" width="22" height="9" {}
                }))
            }
            @if instances().any(|i| i.task) {
                (entry("task", &html! { rect.a12 width="22" height="7" {} }))
            }
            (entry("free", &html! { rect.track width="22" height="15" {} }))
            @if cells().any(|c| c.gone) {
                (entry("down", &html! { rect.gone x=".5" y=".5" width="21" height="14" {} }))
            }
        }
    }
}

fn entry(text: &str, image: &Markup) -> Markup {
    html! {
        li { svg width="22" height="15" aria-hidden="true" { (image) } (safe(text)) }
    }
}

fn zone_head(zone: &[CellEnd]) -> Markup {
    let name = match zone.first().map_or("", |cell| cell.zone.as_str()) {
        "" => "No zone".to_owned(),
        name => format!("Zone {name}"),
    };
    let memory: i64 = zone.iter().map(|c| c.memory_mb.max(0)).sum();
    let used: i64 = zone.iter().map(|c| c.used_mb).sum();
    let instances = zone.iter().flat_map(|c| &c.instances);
    let instances: u64 = instances.map(|i| u64::from(i.count)).sum();
    html! {
        h4 {
            (safe(&name)) " "
            span {
                (counted(zone.len() as u64, "cell")) ", " (counted(instances, "instance")) ", "
                (percent(used, memory)) " used"
            }
        }
    }
}

fn labels(cells: &[CellEnd]) -> Markup {
    let right = |cell: &CellEnd| {
        if cell.gone {
            "down".to_owned()
        } else {
            percent(cell.used_mb, cell.memory_mb)
        }
    };
    html! {
        ol.cells {
            @for cell in cells { li { b { (safe(&cell.cell)) } i { (right(cell)) } } }
        }
    }
}

/// Renders tracks (the cells' memory) with blocks on them, or bars that the canvas will cover.
fn plot(cells: &[CellEnd], (run, first): (usize, usize), apps: &Apps<'_>, style: &Style) -> Markup {
    let height = cells.len() * style.pitch;
    let zone = cells.first().map_or("", |cell| cell.zone.as_str());
    let label = format!(
        "Instances on {} of zone {zone}",
        counted(cells.len() as u64, "cell")
    );
    let mut whole_cells = String::new();
    bars(&mut whole_cells, "track", cells, style, |c| {
        if c.gone { 0 } else { c.memory_mb }
    });
    bars(&mut whole_cells, "gone", cells, style, |c| {
        if c.gone { c.memory_mb } else { 0 }
    });
    if style.canvas {
        // for readers without a script, until the canvas covers it
        bars(&mut whole_cells, "used", cells, style, |c| c.used_mb);
    }
    let mut instances = String::new();
    if !style.canvas {
        for (row, cell) in cells.iter().enumerate() {
            blocks(&mut instances, cell, (run, row * style.pitch), apps, style);
        }
    }
    html! {
        div.plot style={ "height:" (height) "px" } data-run=(run) data-first=(first)
            data-rows=(cells.len()) {
            svg width="100%" height=(height) role="img" aria-label=(safe(&label)) {
                svg width="100%" height=(height) viewBox={ "0 0 1000 " (height) }
                    preserveAspectRatio="none" { (PreEscaped(whole_cells)) }
                (PreEscaped(instances))
            }
        }
    }
}

/// Renders a bar for each cell that has some of this memory, all of them as one shape.
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

/// Returns the tooltip: cell, app, index, memory.
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
        text.push_str(", ran before");
    }
    text
}

/// Returns what the script needs to draw the maps; `null` if they are SVG.
fn data(outcome: &SimOutcome, packed: &Packed<'_>, apps: &Apps<'_>, style: &Style) -> Value {
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
    // the class follows from the rank; it is only written out for the few with a class of their own
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
