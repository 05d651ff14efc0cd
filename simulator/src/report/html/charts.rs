//! The charts of the page, and the numbers that its script shows under the pointer.

use serde_json::{Map, Value, json};

use super::badge;
use super::svg::{self, Line};
use crate::outcome::{Outcome, Sample};
use crate::report::charted::{KINDS, Kind, QUANTITIES, Quantity, USED};
use crate::report::markup::w;
use crate::report::number::Unit;

/// Every quantity over time, and the load per cell of each policy.
pub(super) fn over_time(out: &mut String, outcome: &Outcome) {
    let runs = &outcome.runs;
    let until = svg::until_ms(runs.iter().map(|r| r.series.as_slice()));
    out.push_str("<section aria-labelledby=\"time\"><h2 id=\"time\">Over time</h2>");
    if runs.iter().all(|r| r.series.len() < 2) {
        out.push_str(
            "<p class=\"none\">Too short for a line: fewer than two samples.</p></section>",
        );
        return;
    }
    out.push_str("<ul class=\"legend\">");
    for (at, run) in runs.iter().enumerate() {
        w!(out, "<li>{}</li>", badge(at, &run.policy));
    }
    out.push_str("</ul><div class=\"charts\">");
    for what in QUANTITIES.iter().filter(|what| what.is_worth_a_chart(runs)) {
        let line = |(policy, samples)| Line { policy, samples };
        let lines: Vec<Line<'_>> = runs
            .iter()
            .map(|r| r.series.as_slice())
            .enumerate()
            .map(line)
            .collect();
        let (title, note) = (what.title, what.note);
        w!(
            out,
            "<figure><figcaption><h3>{title}</h3><p>{note}</p></figcaption>"
        );
        svg::lines(out, what, &lines, until, &lines_label(what, outcome));
        out.push_str("</figure>");
    }
    out.push_str(
        "</div><h3 class=\"sub\">Load per cell</h3><p class=\"note\">Share of memory used: the line is \
         all cells together, the dark band one standard deviation to both sides, the pale band reaches \
         from the emptiest to the fullest cell.</p><div class=\"charts\">",
    );
    for (at, run) in runs.iter().enumerate() {
        w!(
            out,
            "<figure><figcaption><h4>{}</h4></figcaption>",
            badge(at, &run.policy)
        );
        svg::load_band(
            out,
            at,
            &run.series,
            until,
            &band_label(&run.policy, &run.series),
        );
        out.push_str("</figure>");
    }
    out.push_str("</div></section>");
}

/// What those hear who do not see the chart.
fn lines_label(what: &Quantity, outcome: &Outcome) -> String {
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
    format!("Load per cell under {policy}; at the end {used} on the whole, {least} to {most}.")
}

/// Waits, rounds and loads of every policy.
pub(super) fn histograms(out: &mut String, outcome: &Outcome) {
    if outcome.runs.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"spread\"><h2 id=\"spread\">How it was spread</h2>");
    for kind in &KINDS {
        let (title, note) = (kind.title, kind.note);
        w!(
            out,
            "<h3 class=\"sub\">{title}</h3><p class=\"note\">{note}</p><div class=\"charts\">"
        );
        kind_of_runs(out, kind, outcome);
        out.push_str("</div>");
    }
    out.push_str("</section>");
}

fn kind_of_runs(out: &mut String, kind: &Kind, outcome: &Outcome) {
    let all = kind.of_runs(&outcome.runs);
    let top = all
        .iter()
        .flat_map(|(h, _)| &h.counts)
        .copied()
        .max()
        .unwrap_or(0);
    for (at, (run, (histogram, shown))) in outcome.runs.iter().zip(all).enumerate() {
        w!(
            out,
            "<figure><figcaption><h4>{}</h4></figcaption>",
            badge(at, &run.policy)
        );
        if histogram.counts.iter().all(|count| *count == 0) {
            out.push_str("<p class=\"none\">Nothing was counted.</p>");
        } else {
            let label = format!(
                "{} under {}: {}s by class",
                kind.title, run.policy, kind.thing
            );
            svg::histogram(out, kind, at, (histogram, shown), (top, &label));
        }
        out.push_str("</figure>");
    }
}

/// The samples of every run as columns, rounded to what a screen can tell apart.
pub(super) fn series(outcome: &Outcome) -> Value {
    outcome
        .runs
        .iter()
        .map(|run| columns(&run.series))
        .collect()
}

fn columns(samples: &[Sample]) -> Value {
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
    for what in &QUANTITIES {
        columns.insert(what.field.to_owned(), column(what.of, 1.0));
    }
    Value::Object(columns)
}

/// In which unit the script shows which field.
pub(super) fn units() -> Value {
    let name = |unit| match unit {
        Unit::Mebibytes => "mib",
        Unit::Share => "share",
        _ => "count",
    };
    let all = QUANTITIES.iter().chain([&USED]);
    Value::Object(
        all.map(|what| (what.field.to_owned(), json!(name(what.unit))))
            .collect(),
    )
}
