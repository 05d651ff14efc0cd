//! The page: its head, its title and its sections.

mod charts;
mod figures;
mod map;
mod pack;
mod svg;

use base64::Engine as _;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::markup::{Len, json_in_script, w};
use super::number::{Unit, clean, whole};
use super::palette::{Apps, NAMED, OTHERS, wants_black};
use crate::outcome::{SimOutcome, SimRun};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Maximum number of characters of the scenario's file that are shown; a recorded one may be far longer.
const SCENARIO_SHOWN: usize = 256 * 1024;

/// Removes control characters from text of a scenario; maud escapes it.
pub(super) fn safe(text: &str) -> String {
    clean(text, true).into_owned()
}

/// Renders the whole page.
pub(super) fn page(outcome: &SimOutcome) -> String {
    let apps = Apps::new(outcome);
    let style = map::Style::new(outcome);
    let (maps, map_data) = map::section(outcome, &apps, &style);
    let data = json!({
        "palette": NAMED.iter().chain(&OTHERS).collect::<Vec<_>>(),
        "policies": outcome.runs.iter().map(|r| clean(&r.policy, false)).collect::<Vec<_>>(),
        "series": charts::series(outcome),
        "relative": svg::TimeAxis::of(&outcome.runs).relative,
        "units": charts::units(&outcome.runs),
        "maps": map_data,
    });
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(outcome))
            body {
                (hatch_pattern())
                main {
                    (title(outcome))
                    (figures::cards(outcome))
                    (figures::over_seeds(outcome))
                    (figures::demand_steps(outcome))
                    (maps)
                    (charts::over_time(outcome))
                    (charts::histograms(outcome))
                    (unplaced(outcome))
                    (figures::table(outcome))
                    (source(outcome))
                }
                script type="application/json" id="data" { (PreEscaped(json_in_script(&data))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string() + "\n"
}

fn head(outcome: &SimOutcome) -> Markup {
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(SCRIPT));
    let policy = format!(
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; \
         form-action 'none'"
    );
    let mut style = STYLE.to_owned();
    for (class, colour) in NAMED.iter().chain(&OTHERS).enumerate() {
        let text = if wants_black(colour) { "#000" } else { "#fff" };
        w!(style, ".a{class}{{fill:{colour}}}.t{class}{{fill:{text}}}");
    }
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(policy);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (safe(&outcome.name)) " – vendue simulation" }
            style { (PreEscaped(style)) }
        }
    }
}

/// Defines the hatching of instances that ran before the first request.
fn hatch_pattern() -> Markup {
    html! {
        svg width="0" height="0" class="defs" aria-hidden="true" {
            defs {
                pattern id="hatch" width="5" height="5" patternUnits="userSpaceOnUse"
                    patternTransform="rotate(45)" { rect width="1.6" height="5" {} }
            }
        }
    }
}

fn title(outcome: &SimOutcome) -> Markup {
    let name = match outcome.name.as_str() {
        "" => "Unnamed scenario",
        name => name,
    };
    let paragraphs = outcome.description.split("\n\n");
    html! {
        header {
            p.kind { "vendue simulation" }
            h1 { (safe(name)) }
            @for paragraph in paragraphs.filter(|p| !p.trim().is_empty()) {
                p.lead { (safe(paragraph)) }
            }
            (notices(outcome))
            dl.facts {
                @for (name, value) in facts(outcome) {
                    div { dt { (name) } dd { (safe(&value)) } }
                }
            }
            pre.command { code { (safe(&outcome.command)) } }
            @if !outcome.runs.is_empty() { (contents(outcome)) }
        }
    }
}

fn notices(outcome: &SimOutcome) -> Markup {
    html! {
        @if outcome.interrupted {
            p.notice role="status" {
                strong { "Interrupted." } " These are the figures of the time until then."
            }
        }
        @for warning in &outcome.warnings {
            p.notice { strong { "Warning." } " " (safe(warning)) }
        }
        @for run in &outcome.runs {
            @for note in &run.notes {
                p.notice role="status" { strong { (safe(&run.policy)) "." } " " (safe(note)) }
            }
        }
    }
}

fn facts(outcome: &SimOutcome) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(first) = outcome.runs.first() {
        facts.push(("Cells", whole(first.cells.len() as u64)));
        let zones = first.cells.chunk_by(|a, b| a.zone == b.zone).count();
        facts.push(("Zones", whole(zones as u64)));
        let memory: i64 = first.cells.iter().map(|c| c.memory_mb.max(0)).sum();
        facts.push(("Memory", Unit::Mebibytes.show(memory as f64)));
        let longest = outcome.runs.iter().map(|r| r.figures.virtual_ms).max();
        let name = match outcome.over.as_str() {
            "nats" => "Time",
            _ => "Virtual time",
        };
        facts.push((name, Unit::Ms.show(longest.unwrap_or(0) as f64)));
    }
    facts.push((
        "Seed",
        match &outcome.seeds {
            None => outcome.seed.to_string(),
            Some(seeds) => format!(
                "{}; pictures and figures: {}",
                crate::seeds::ranges(&seeds.seeds),
                outcome.seed
            ),
        },
    ));
    facts.push(("Over", outcome.over.clone()));
    facts
}

fn contents(outcome: &SimOutcome) -> Markup {
    let seeds = outcome.seeds.as_ref().map(|_| ("seeds", "Over all seeds"));
    let sections = [
        ("map", "Instance map"),
        ("time", "Over time"),
        ("spread", "Distributions"),
        ("unplaced", "Unplaced"),
        ("figures", "All figures"),
        ("scenario", "Scenario"),
    ];
    html! {
        nav aria-label="Contents" {
            @for (id, name) in seeds.into_iter().chain(sections) {
                a href={ "#" (id) } { (name) } " "
            }
        }
    }
}

/// Renders a policy's name with its colour and dashes.
fn badge(run: usize, policy: &str) -> Markup {
    html! {
        svg.key width="24" height="10" aria-hidden="true" {
            line class={ "line " (svg::policy_class(run)) } x1="1" x2="23" y1="5" y2="5" {}
        }
        (safe(policy))
    }
}

/// Renders why instances are unplaced, by policy.
fn unplaced(outcome: &SimOutcome) -> Markup {
    let none = outcome.runs.iter().all(|r| r.refusals.is_empty());
    html! {
        section aria-labelledby="unplaced" {
            h2 id="unplaced" { "Unplaced instances" }
            @if none {
                p.none { "No instance is unplaced." }
            } @else {
                div.charts {
                    @for (at, run) in outcome.runs.iter().enumerate() {
                        div { h3 { (badge(at, &run.policy)) } (reasons(run)) }
                    }
                }
            }
        }
    }
}

fn reasons(run: &SimRun) -> Markup {
    let counts = run.refusals.iter().map(|(_, count)| *count);
    let most = counts.max().unwrap_or(1).max(1) as f64;
    html! {
        @if run.refusals.is_empty() {
            p.none { "No instance is unplaced." }
        } @else {
            table.refusals {
                thead { tr { th scope="col" { "Reason" } th scope="col" { "Instances" } } }
                tbody {
                    @for (reason, count) in &run.refusals {
                        @let width = Len(*count as f64 / most * 100.0).to_string();
                        tr {
                            th scope="row" {
                                (safe(reason))
                                svg width="100%" height="4" aria-hidden="true" {
                                    rect width={ (width) "%" } height="4" {}
                                }
                            }
                            td data-value=(count) { (whole(*count)) }
                        }
                    }
                }
            }
        }
    }
}

fn source(outcome: &SimOutcome) -> Markup {
    let end = outcome
        .scenario
        .char_indices()
        .nth(SCENARIO_SHOWN)
        .map_or(outcome.scenario.len(), |c| c.0);
    let shown = &outcome.scenario[..end];
    let rest = outcome.scenario.len() - shown.len();
    html! {
        section aria-labelledby="scenario" {
            h2 id="scenario" { "Scenario" }
            pre.file tabindex="0" { code { (safe(shown)) } }
            @if rest > 0 {
                p.note { "Shortened: the file has " (whole(rest as u64)) " more bytes." }
            }
        }
    }
}
