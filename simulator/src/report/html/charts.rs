//! The charts of the page, and the numbers that its script shows under the pointer.

use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::badge;
use super::svg::{self, Line, TimeAxis};
use crate::outcome::{Sample, SimOutcome, SimRun};
use crate::report::charted::{KINDS, Kind, Quantity, USED, quantities};
use crate::report::markup::w;
use crate::report::number::Unit;

/// Renders every quantity over time, and the load per cell of each policy.
pub(super) fn over_time(outcome: &SimOutcome) -> Markup {
    let runs = &outcome.runs;
    let (constant, changing): (Vec<&Quantity>, Vec<&Quantity>) =
        quantities(runs).partition(|what| what.is_constant(runs));
    html! {
        section aria-labelledby="time" {
            h2 id="time" { "Over time" }
            @if runs.iter().all(|r| r.series.len() < 2) {
                p.none { "Too short for a line: fewer than two samples." }
            } @else {
                @if TimeAxis::of(runs).relative {
                    p.note {
                        "The runs differ so much in length that each is drawn over its own length."
                    }
                }
                ul.legend {
                    @for (at, run) in runs.iter().enumerate() { li { (badge(at, &run.policy)) } }
                }
                div.charts { @for what in changing { (chart(what, outcome)) } }
                @if !constant.is_empty() {
                    details.fold {
                        summary { "Never changes: " (titles(constant.iter().map(|what| what.title))) }
                        div.charts { @for what in constant { (chart(what, outcome)) } }
                    }
                }
                (load_bands(outcome))
            }
        }
    }
}

fn titles<'a>(titles: impl Iterator<Item = &'a str>) -> String {
    titles.collect::<Vec<_>>().join(", ")
}

fn chart(what: &Quantity, outcome: &SimOutcome) -> Markup {
    let runs = outcome.runs.iter().map(|run| run.series.as_slice());
    let lines: Vec<Line<'_>> = runs
        .enumerate()
        .map(|(policy, samples)| Line { policy, samples })
        .collect();
    let axis = TimeAxis::of(&outcome.runs);
    html! {
        figure {
            figcaption { h3 { (what.title) } p { (what.note) } }
            (svg::lines(what, &lines, axis, &lines_label(what, outcome)))
        }
    }
}

fn load_bands(outcome: &SimOutcome) -> Markup {
    let axis = TimeAxis::of(&outcome.runs);
    html! {
        h3.sub { "Load per cell" }
        p.note {
            "Share of memory used: the line is all cells together, the dark band one standard deviation on \
             both sides, the pale band reaches from the emptiest to the fullest cell."
        }
        div.charts {
            @for (at, run) in outcome.runs.iter().enumerate() {
                figure {
                    figcaption { h4 { (badge(at, &run.policy)) } }
                    @let label = band_label(&run.policy, &run.series);
                    (svg::load_band(at, &run.series, axis, &label))
                }
            }
        }
    }
}

/// Describes the chart for a screen reader.
fn lines_label(what: &Quantity, outcome: &SimOutcome) -> String {
    let mut label = format!("{} over time.", what.title);
    for run in &outcome.runs {
        let values = || run.series.iter().map(what.of);
        let most = values().fold(f64::NEG_INFINITY, f64::max);
        let last = values().next_back().unwrap_or(f64::NAN);
        w!(
            label,
            " {}: at most {}, at the end {}.",
            run.policy,
            what.unit.show(most),
            what.unit.show(last)
        );
    }
    label
}

fn band_label(policy: &str, series: &[Sample]) -> String {
    let last = series.last().cloned().unwrap_or_default();
    let [used, least, most] =
        [last.used, last.used_min, last.used_max].map(|share| Unit::Share.show(share));
    format!("Load per cell under {policy}; at the end {used} in all, from {least} to {most}.")
}

/// Renders waits, rounds and loads of every policy; histograms with all counts in one class are folded.
pub(super) fn histograms(outcome: &SimOutcome) -> Markup {
    if outcome.runs.is_empty() {
        return html! {};
    }
    let (constant, other): (Vec<&Kind>, Vec<&Kind>) = KINDS
        .iter()
        .partition(|kind| outcome.runs.len() > 1 && kind.is_constant(&outcome.runs));
    html! {
        section aria-labelledby="spread" {
            h2 id="spread" { "Distributions" }
            @for kind in other { (kind_of_runs(kind, outcome)) }
            @if !constant.is_empty() {
                details.fold {
                    summary { "All in one class: " (titles(constant.iter().map(|kind| kind.title))) }
                    @for kind in constant { (kind_of_runs(kind, outcome)) }
                }
            }
        }
    }
}

fn kind_of_runs(kind: &Kind, outcome: &SimOutcome) -> Markup {
    let histograms = kind.of_runs(&outcome.runs);
    let counts = histograms.iter().flat_map(|(h, _)| &h.counts);
    let top = counts.copied().max().unwrap_or(0);
    html! {
        h3.sub { (kind.title) }
        p.note { (kind.note) }
        div.charts {
            @for (at, (run, (histogram, shown))) in outcome.runs.iter().zip(histograms).enumerate() {
                figure {
                    figcaption { h4 { (badge(at, &run.policy)) } }
                    @if histogram.counts.iter().all(|count| *count == 0) {
                        p.none { "No values." }
                    } @else {
                        @let label =
                            format!("{} under {}: {}s by class", kind.title, run.policy, kind.thing);
                        (svg::histogram(kind, at, (histogram, shown), (top, &label)))
                    }
                }
            }
        }
    }
}

/// Returns the samples of every run as columns, rounded to what a screen can show.
pub(super) fn series(outcome: &SimOutcome) -> Value {
    outcome
        .runs
        .iter()
        .map(|run| columns(&outcome.runs, &run.series))
        .collect()
}

fn columns(runs: &[SimRun], samples: &[Sample]) -> Value {
    let column = |of: fn(&Sample) -> f64, digits: f64| -> Value {
        samples
            .iter()
            .map(|s| json!((of(s) * digits).round() / digits))
            .collect()
    };
    let mut columns = Map::new();
    columns.insert("at_ms".to_owned(), column(|s| s.at_ms as f64, 1.0));
    columns.insert("used".to_owned(), column(USED.of, 1e4));
    columns.insert("used_min".to_owned(), column(|s| s.used_min, 1e4));
    columns.insert("used_max".to_owned(), column(|s| s.used_max, 1e4));
    columns.insert("used_sd".to_owned(), column(|s| s.used_sd, 1e4));
    for what in quantities(runs) {
        columns.insert(what.field.to_owned(), column(what.of, 1.0));
    }
    Value::Object(columns)
}

/// Returns the unit in which the script shows each field.
pub(super) fn units(runs: &[SimRun]) -> Value {
    let name = |unit| match unit {
        Unit::Mebibytes => "mib",
        Unit::Share => "share",
        _ => "count",
    };
    let quantities = quantities(runs).chain([&USED]);
    Value::Object(
        quantities
            .map(|what| (what.field.to_owned(), json!(name(what.unit))))
            .collect(),
    )
}
