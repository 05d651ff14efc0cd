//! The figures of the page: a card for each policy, the table of all figures, and the figures over
//! several seeds.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::{badge, safe};
use crate::outcome::{Balance, Figures, SimOutcome, SimRun};
use crate::report::demand;
use crate::report::markup::Len;
use crate::report::number::{Unit, counted, significant, whole};
use crate::report::table::{self, Group, Row};
use crate::seeds;

/// Renders the summary: a card for each policy.
pub(super) fn cards(outcome: &SimOutcome) -> Markup {
    if outcome.runs.is_empty() {
        return html! { p.none { "No policy was simulated." } };
    }
    html! {
        section aria-labelledby="summary" {
            h2 id="summary" { "Summary" }
            div.cards {
                @for (at, run) in outcome.runs.iter().enumerate() {
                    article.card {
                        h3 { (badge(at, &run.policy)) }
                        (outcome_bar(&run.figures))
                        dl {
                            @for (name, value) in highlights(run) {
                                div { dt { (name) } dd { (value) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders the outcomes of all instances: placed, waiting, unplaced.
fn outcome_bar(figures: &Figures) -> Markup {
    let outcomes = [
        ("placed", figures.placed),
        ("waits", figures.waiting),
        ("unplaced", figures.unplaced),
    ];
    let all = outcomes.iter().map(|(_, n)| n).sum::<u64>().max(1) as f64;
    let [placed, waiting, unplaced] = outcomes.map(|(_, count)| whole(count));
    let label = format!("{placed} placed, {waiting} without an outcome, {unplaced} unplaced");
    let width = |count: u64| count as f64 / all * 100.0;
    let bars = outcomes.iter().scan(0.0, |x, (class, count)| {
        let left = *x;
        *x += width(*count);
        Some((*class, *count, left))
    });
    html! {
        p.big { strong { (placed) } " of " (whole(figures.asked)) " placed" }
        svg.outcome width="100%" height="10" role="img" aria-label=(label) {
            @for (class, count, x) in bars {
                @let (left, wide) = (format!("{}%", Len(x)), format!("{}%", Len(width(count))));
                rect class=(class) x=(left) width=(wide) height="10" {}
                // not distinguished by colour alone
                @if class == "unplaced" && count > 0 {
                    rect.hatch x=(left) width=(wide) height="10" {}
                }
            }
        }
        p.rest { (rest(figures)) }
    }
}

fn rest(figures: &Figures) -> String {
    let counts = [
        (figures.unplaced, "unplaced"),
        (figures.waiting, "without an outcome"),
        (figures.lost, "lost"),
    ];
    let some: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{} {name}", whole(*count)))
        .collect();
    if some.is_empty() {
        "none unplaced or lost".to_owned()
    } else {
        some.join(", ")
    }
}

fn highlights(run: &SimRun) -> Vec<(&'static str, String)> {
    let figures = &run.figures;
    let per_placement = figures.traffic.delivered as f64 / figures.placed.max(1) as f64;
    let distribution = if run.has_equal_cells() {
        "Memory per cell, sd / mean"
    } else {
        "Memory share per cell, sd / mean"
    };
    let mut shown = vec![
        ("Wait, median", Unit::Ms.show(figures.wait_ms.p50)),
        ("Wait, 99th percentile", Unit::Ms.show(figures.wait_ms.p99)),
        ("Messages per placed instance", significant(per_placement)),
        (distribution, significant(figures.distribution)),
        (
            "Stranded memory, mean",
            Unit::Mebibytes.show(figures.stranded_mb.mean),
        ),
        ("Cells never needed", whole(figures.spare_cells)),
    ];
    if let Some(gap) = figures
        .bounds
        .as_ref()
        .and_then(|bounds| worst(&bounds.gap))
    {
        shown.push(("Less placed than possible at most", format!("{gap:.2} %")));
    }
    if let Some(most_even) = &figures.most_even {
        shown.push(("Least possible sd / mean", significant(most_even.bound)));
    }
    if let Some(kept) = &figures.kept {
        let recovery = kept.recovery_ms;
        shown.push(("Lost index runs again, median", Unit::Ms.show(recovery.p50)));
        shown.push((
            "Lost index runs again, at most",
            Unit::Ms.show(recovery.max),
        ));
    }
    if let Some(saved) = figures.saved {
        shown.push(("Price of these cells", Unit::Money.show(saved)));
    }
    shown
}

/// Returns the largest gap among resources, or that of instances if no resource is counted.
fn worst(gaps: &BTreeMap<String, f64>) -> Option<f64> {
    let resources = gaps.iter().filter(|(of, _)| *of != "instances");
    let worst = resources.map(|(_, gap)| *gap).max_by(f64::total_cmp);
    worst.or_else(|| gaps.values().copied().next())
}

/// Renders the figures over all seeds if several were simulated.
pub(super) fn over_seeds(outcome: &SimOutcome) -> Markup {
    let Some(seeds) = &outcome.seeds else {
        return html! {};
    };
    let value = |run: usize, path: &str| seeds.runs[run].figures.get(path).copied();
    let paths = seeds::shown(seeds).into_iter();
    let rows: Vec<(&str, Vec<Balance>)> = paths
        .map(|path| {
            let runs = 0..seeds.runs.len();
            let values = runs.map(|run| value(run, path).unwrap_or_default());
            (path, values.collect())
        })
        .filter(|(_, values): &(_, Vec<Balance>)| {
            values.iter().any(|v| v.min != 0.0 || v.max != 0.0)
        })
        .collect();
    html! {
        section aria-labelledby="seeds" {
            h2 id="seeds" { "Over all seeds" }
            p.note {
                (seeds.seeds.len()) " seeds (" (seeds::ranges(&seeds.seeds))
                "): mean ± standard deviation, and from minimum to maximum. Everything else on this page is \
                 of seed " (outcome.seed) "."
            }
            div.scroll tabindex="0" role="region" aria-labelledby="seeds" {
                table.figures.seeds {
                    thead {
                        tr {
                            th scope="col" { "Figure" }
                            @for (at, run) in seeds.runs.iter().enumerate() {
                                th scope="col" { (badge(at, &run.policy)) }
                            }
                        }
                    }
                    tbody {
                        @for (path, values) in &rows {
                            tr {
                                th scope="row" { (label(path)) }
                                @for value in values { td { (seeds::show(value)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders what was given of each resource as the demand of a trace grew; all but the first are folded.
pub(super) fn demand_steps(outcome: &SimOutcome) -> Markup {
    let tables = demand::tables(outcome);
    let Some((first, others)) = tables.split_first() else {
        return html! {};
    };
    html! {
        section aria-labelledby="demand" {
            h2 id="demand" { "As demand grew" }
            (demand_table(outcome, first))
            @for other in others {
                details.fold {
                    summary { (safe(&other.heading)) }
                    (demand_table(outcome, other))
                }
            }
        }
    }
}

fn demand_table(outcome: &SimOutcome, table: &demand::Table) -> Markup {
    html! {
        p.note { (safe(&table.heading)) }
        div.scroll tabindex="0" role="region" aria-label=(safe(&table.heading)) {
            table.figures {
                thead {
                    tr {
                        th scope="col" { "Demand" }
                        @for (at, run) in outcome.runs.iter().enumerate() {
                            th scope="col" { (badge(at, &run.policy)) }
                        }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            th scope="row" { (row.demand) }
                            @for cell in &row.cells { td { (cell) } }
                        }
                    }
                }
            }
        }
    }
}

fn label(path: &str) -> String {
    let (group, label) = table::name_of_path(path);
    let unit = match path {
        path if path.contains("_ms") => " (ms)",
        path if path.contains("_mb.") => " (MiB)",
        _ => "",
    };
    format!("{group}: {label}{unit}")
}

/// Renders all figures; those that are the same under all policies are folded.
pub(super) fn table(outcome: &SimOutcome) -> Markup {
    if outcome.runs.is_empty() {
        return html! {};
    }
    let groups = table::groups(outcome);
    let constant = groups.iter().flat_map(|g| &g.rows);
    let constant = constant.filter(|row| row.is_constant()).count();
    html! {
        section aria-labelledby="figures" {
            h2 id="figures" { "Figures" }
            p.note {
                @if outcome.runs.len() > 1 {
                    span.star { "★" }
                    " marks the best where less or more is better whatever a policy aims at, and where the \
                     runs can be compared. "
                }
                "Exact values are shown under the pointer."
            }
            (rows_table(outcome, &groups, |row| !row.is_constant()))
            @if constant > 0 {
                details.fold {
                    summary { "The same under all policies: " (counted(constant as u64, "figure")) }
                    (rows_table(outcome, &groups, Row::is_constant))
                }
            }
        }
    }
}

fn rows_table(outcome: &SimOutcome, groups: &[Group], is_shown: impl Fn(&Row) -> bool) -> Markup {
    let runs = outcome.runs.len();
    let width = Len(70.0 / runs as f64).to_string();
    html! {
        div.scroll tabindex="0" role="region" aria-labelledby="figures" {
            table.figures style={ "width:min(100%," (24 + 16 * runs) "rem)" } {
                colgroup {
                    col;
                    @for _ in &outcome.runs { col style={ "width:" (width) "%" }; }
                }
                thead {
                    tr {
                        th scope="col" { "Figure" }
                        @for (at, run) in outcome.runs.iter().enumerate() {
                            th scope="col" { (badge(at, &run.policy)) }
                        }
                    }
                }
                @for group in groups {
                    @if group.rows.iter().any(&is_shown) {
                        tbody {
                            tr.group {
                                th scope="rowgroup" colspan=(runs + 1) { span { (group.title) } }
                            }
                            @for row in group.rows.iter().filter(|row| is_shown(row)) {
                                (figure_row(row))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn figure_row(row: &Row) -> Markup {
    let pointer = safe(&row.pointer);
    html! {
        tr {
            th scope="row" { (safe(&row.label)) }
            @for (run, value) in row.values.iter().enumerate() {
                @match value {
                    None => {
                        td data-figure=(pointer) data-run=(run) title="does not occur" { "–" }
                    }
                    Some(value) => {
                        td.best[row.best[run]] data-figure=(pointer) data-run=(run)
                            data-value=(safe(&value.to_string())) title=(safe(&value.to_string())) {
                            @if row.best[run] {
                                span.star role="img" aria-label="best" { "★" } " "
                            }
                            (figure(row, value))
                        }
                    }
                }
            }
        }
    }
}

fn figure(row: &Row, value: &serde_json::Value) -> Markup {
    let Some(number) = value.as_f64() else {
        return html! { "–" };
    };
    html! {
        (row.scale.number(number))
        @if !row.scale.suffix.is_empty() { span.unit { "\u{a0}" (row.scale.suffix) } }
    }
}
