//! The page.

mod charts;
mod map;
mod pack;
mod svg;

use base64::Engine as _;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::markup::{Esc, Len, json_in_script, w};
use super::number::{Unit, clean, counted, significant, whole};
use super::palette::{Apps, NAMED, OTHERS, wants_black};
use super::table;
use crate::outcome::{Figures, Outcome};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Characters of the scenario's file that are shown; a recorded one may be far longer.
const SCENARIO_SHOWN: usize = 256 * 1024;

/// The whole page.
pub(super) fn page(outcome: &Outcome) -> String {
    let mut out = String::with_capacity(256 * 1024);
    let apps = Apps::new(outcome);
    let maps = map::Style::new(outcome);
    head(&mut out, outcome);
    title(&mut out, outcome);
    cards(&mut out, outcome);
    let map_data = instance_maps(&mut out, outcome, &apps, &maps);
    charts::over_time(&mut out, outcome);
    charts::histograms(&mut out, outcome);
    refusals(&mut out, outcome);
    figures(&mut out, outcome);
    source(&mut out, outcome);
    let data = json!({
        "palette": NAMED.iter().chain(&OTHERS).collect::<Vec<_>>(),
        "policies": outcome.runs.iter().map(|r| clean(&r.policy, false)).collect::<Vec<_>>(),
        "series": charts::series(outcome),
        "units": charts::units(),
        "maps": map_data,
    });
    w!(
        out,
        "</main><script type=\"application/json\" id=\"data\">{}</script><script>{SCRIPT}</script>\
         </body></html>\n",
        json_in_script(&data)
    );
    out
}

fn head(out: &mut String, outcome: &Outcome) {
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(SCRIPT));
    w!(
        out,
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{} – vendue simulation</title><style>{STYLE}",
        Esc(&outcome.name)
    );
    for (class, colour) in NAMED.iter().chain(&OTHERS).enumerate() {
        let text = if wants_black(colour) { "#000" } else { "#fff" };
        w!(out, ".a{class}{{fill:{colour}}}.t{class}{{fill:{text}}}");
    }
    out.push_str("</style></head><body>");
    // what blocks that were there before are drawn with
    out.push_str(
        "<svg width=\"0\" height=\"0\" class=\"defs\" aria-hidden=\"true\"><defs>\
         <pattern id=\"hatch\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\" \
         patternTransform=\"rotate(45)\"><rect width=\"1.6\" height=\"5\"/></pattern></defs></svg>",
    );
}

fn title(out: &mut String, outcome: &Outcome) {
    w!(
        out,
        "<main><header><p class=\"kind\">vendue simulation</p><h1>{}</h1>",
        Esc(if outcome.name.is_empty() {
            "Unnamed scenario"
        } else {
            &outcome.name
        })
    );
    for paragraph in outcome
        .description
        .split("\n\n")
        .filter(|p| !p.trim().is_empty())
    {
        w!(out, "<p class=\"lead\">{}</p>", Esc(paragraph));
    }
    if outcome.interrupted {
        out.push_str(
            "<p class=\"notice\" role=\"status\"><strong>Ended early.</strong> What follows is how \
             far it came.</p>",
        );
    }
    let fact = |out: &mut String, name: &str, value: &str| {
        w!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", Esc(value));
    };
    out.push_str("<dl class=\"facts\">");
    if let Some(first) = outcome.runs.first() {
        fact(out, "Cells", &whole(first.cells.len() as u64));
        let zones = first.cells.chunk_by(|a, b| a.zone == b.zone).count();
        fact(out, "Zones", &whole(zones as u64));
        let memory: i64 = first.cells.iter().map(|c| c.memory_mb.max(0)).sum();
        fact(out, "Memory", &Unit::Mebibytes.show(memory as f64));
        let times = outcome.runs.iter().map(|r| r.figures.virtual_ms);
        fact(
            out,
            if outcome.over == "nats" {
                "Time"
            } else {
                "Virtual time"
            },
            &Unit::Ms.show(times.max().unwrap_or(0) as f64),
        );
    }
    fact(out, "Seed", &outcome.seed.to_string());
    fact(out, "Over", &outcome.over);
    out.push_str("</dl>");
    w!(
        out,
        "<pre class=\"command\"><code>{}</code></pre>",
        Esc(&outcome.command)
    );
    if !outcome.runs.is_empty() {
        out.push_str("<nav aria-label=\"Contents\">");
        for (id, name) in [
            ("map", "Instance map"),
            ("time", "Over time"),
            ("spread", "How it was spread"),
            ("refusals", "Refusals"),
            ("figures", "All figures"),
            ("scenario", "Scenario"),
        ] {
            w!(out, "<a href=\"#{id}\">{name}</a> ");
        }
        out.push_str("</nav>");
    }
    out.push_str("</header>");
}

/// A policy's name with its colour and its dashes.
fn badge(run: usize, policy: &str) -> String {
    format!(
        "<svg class=\"key\" width=\"24\" height=\"10\" aria-hidden=\"true\"><line class=\"line {}\" \
         x1=\"1\" x2=\"23\" y1=\"5\" y2=\"5\"/></svg>{}",
        svg::policy_class(run),
        Esc(policy)
    )
}

fn cards(out: &mut String, outcome: &Outcome) {
    if outcome.runs.is_empty() {
        out.push_str("<p class=\"none\">No policy was run.</p>");
        return;
    }
    out.push_str("<section aria-labelledby=\"summary\"><h2 id=\"summary\">In short</h2><div class=\"cards\">");
    for (at, run) in outcome.runs.iter().enumerate() {
        w!(
            out,
            "<article class=\"card\"><h3>{}</h3>",
            badge(at, &run.policy)
        );
        outcome_bar(out, &run.figures);
        out.push_str("<dl>");
        for (name, value) in highlights(&run.figures) {
            w!(out, "<div><dt>{name}</dt><dd>{}</dd></div>", Esc(&value));
        }
        out.push_str("</dl></article>");
    }
    out.push_str("</div></section>");
}

/// What was asked for: placed, waiting, refused.
fn outcome_bar(out: &mut String, figures: &Figures) {
    let all = (figures.placed + figures.refused + figures.waiting).max(1) as f64;
    w!(
        out,
        "<p class=\"big\"><strong>{}</strong> of {} placed</p>\
         <svg class=\"outcome\" width=\"100%\" height=\"10\" role=\"img\" \
         aria-label=\"{} placed, {} waiting, {} refused\">",
        whole(figures.placed),
        whole(figures.asked),
        whole(figures.placed),
        whole(figures.waiting),
        whole(figures.refused),
    );
    let mut x = 0.0;
    for (class, count) in [
        ("placed", figures.placed),
        ("waits", figures.waiting),
        ("refused", figures.refused),
    ] {
        let width = count as f64 / all * 100.0;
        w!(
            out,
            "<rect class=\"{class}\" x=\"{}%\" width=\"{}%\" height=\"10\"/>",
            Len(x),
            Len(width)
        );
        if class == "refused" && count > 0 {
            // not by colour alone
            w!(
                out,
                "<rect class=\"hatch\" x=\"{}%\" width=\"{}%\" height=\"10\"/>",
                Len(x),
                Len(width)
            );
        }
        x += width;
    }
    out.push_str("</svg>");
    let mut rest = Vec::new();
    for (count, what) in [
        (figures.refused, "refused"),
        (figures.waiting, "waiting"),
        (figures.lost, "lost"),
    ] {
        if count > 0 {
            rest.push(format!("{} {what}", whole(count)));
        }
    }
    let rest = if rest.is_empty() {
        "nothing refused, waiting or lost".to_owned()
    } else {
        rest.join(", ")
    };
    w!(out, "<p class=\"rest\">{rest}</p>");
}

fn highlights(figures: &Figures) -> Vec<(&'static str, String)> {
    let per_placement = figures.traffic.delivered as f64 / figures.placed.max(1) as f64;
    let mut shown = vec![
        ("Wait, median", Unit::Ms.show(figures.wait_ms.p50)),
        ("Wait, 99th percentile", Unit::Ms.show(figures.wait_ms.p99)),
        ("Messages for each placed", significant(per_placement)),
        (
            "Memory per cell, sd / mean",
            significant(figures.distribution),
        ),
        (
            "Stranded memory, mean",
            Unit::Mebibytes.show(figures.stranded_mb.mean),
        ),
        ("Cells to give back", whole(figures.spare_cells)),
    ];
    if let Some(saved) = figures.saved {
        shown.push(("Saved", Unit::Money.show(saved)));
    }
    shown
}

fn figures(out: &mut String, outcome: &Outcome) {
    if outcome.runs.is_empty() {
        return;
    }
    out.push_str(
        "<section aria-labelledby=\"figures\"><h2 id=\"figures\">Figures</h2><p class=\"note\">",
    );
    if outcome.runs.len() > 1 {
        out.push_str(
            "<span class=\"star\">★</span> marks the best where less or more is better whatever a \
             policy aims at. ",
        );
    }
    let runs = outcome.runs.len();
    w!(
        out,
        "Exact values are shown under the pointer.</p><div class=\"scroll\" tabindex=\"0\" \
         role=\"region\" aria-labelledby=\"figures\"><table class=\"figures\" \
         style=\"width:min(100%,{}rem)\"><colgroup><col>",
        24 + 16 * runs
    );
    let width = 70.0 / runs as f64;
    for _ in &outcome.runs {
        w!(out, "<col style=\"width:{}%\">", Len(width));
    }
    out.push_str("</colgroup><thead><tr><th scope=\"col\">Figure</th>");
    for (at, run) in outcome.runs.iter().enumerate() {
        w!(out, "<th scope=\"col\">{}</th>", badge(at, &run.policy));
    }
    out.push_str("</tr></thead>");
    let columns = runs + 1;
    for group in table::groups(outcome) {
        w!(
            out,
            "<tbody><tr class=\"group\"><th scope=\"rowgroup\" colspan=\"{columns}\"><span>{}</span></th></tr>",
            group.title
        );
        for row in &group.rows {
            figure_row(out, row);
        }
        out.push_str("</tbody>");
    }
    out.push_str("</table></div></section>");
}

fn figure_row(out: &mut String, row: &table::Row) {
    w!(out, "<tr><th scope=\"row\">{}</th>", Esc(&row.label));
    for (run, value) in row.values.iter().enumerate() {
        let best = row.best[run];
        let class = if best { " class=\"best\"" } else { "" };
        w!(
            out,
            "<td{class} data-figure=\"{}\" data-run=\"{run}\"",
            Esc(&row.pointer)
        );
        let Some(value) = value else {
            out.push_str(" title=\"does not occur\">–</td>");
            continue;
        };
        let exact = value.to_string();
        w!(
            out,
            " data-value=\"{}\" title=\"{}\">",
            Esc(&exact),
            Esc(&exact)
        );
        if best {
            out.push_str("<span class=\"star\" role=\"img\" aria-label=\"best\">★</span> ");
        }
        match value.as_f64() {
            Some(number) => {
                w!(out, "{}", Esc(&row.scale.number(number)));
                if !row.scale.suffix.is_empty() {
                    w!(
                        out,
                        "<span class=\"unit\">\u{a0}{}</span>",
                        row.scale.suffix
                    );
                }
            }
            None => out.push('–'),
        }
        out.push_str("</td>");
    }
    out.push_str("</tr>");
}

fn instance_maps(
    out: &mut String,
    outcome: &Outcome,
    apps: &Apps<'_>,
    style: &map::Style,
) -> Value {
    if outcome.runs.is_empty() {
        return Value::Null;
    }
    out.push_str(
        "<section aria-labelledby=\"map\"><h2 id=\"map\">Instance map</h2><p class=\"note\">What each \
         cell holds at the end: a row for each cell, a block for each instance, as wide as its memory. \
         What is left of a row is free.",
    );
    let packed = style
        .canvas
        .then(|| pack::pack(outcome, apps, map::budget(outcome)));
    if let Some(limit) = packed.as_ref().and_then(|packed| packed.limit) {
        w!(
            out,
            " Of each cell the {limit} largest entries are shown by themselves, the rest as one block."
        );
    }
    if style.canvas {
        out.push_str("<noscript> Without a script: how full each cell is.</noscript>");
    }
    out.push_str("</p>");
    legend(out, outcome, apps);
    out.push_str("<div class=\"maps\">");
    for (at, run) in outcome.runs.iter().enumerate() {
        w!(
            out,
            "<article class=\"map\"><h3>{}</h3><div class=\"scroll tall\" tabindex=\"0\" role=\"region\" \
             aria-label=\"Instance map of {}\">",
            badge(at, &run.policy),
            Esc(&run.policy)
        );
        map::map(out, outcome, at, apps, style);
        out.push_str("</div></article>");
    }
    out.push_str("</div></section>");
    packed.map_or(Value::Null, |packed| {
        map::data(outcome, &packed, apps, style)
    })
}

fn legend(out: &mut String, outcome: &Outcome, apps: &Apps<'_>) {
    let any = |found: fn(&crate::outcome::InstanceEnd) -> bool| {
        outcome
            .runs
            .iter()
            .flat_map(|r| &r.cells)
            .flat_map(|c| &c.instances)
            .any(found)
    };
    let gone = outcome.runs.iter().flat_map(|r| &r.cells).any(|c| c.gone);
    out.push_str("<ul class=\"legend\">");
    let entry = |out: &mut String, image: &str, text: &str| {
        w!(
            out,
            "<li><svg width=\"22\" height=\"15\" aria-hidden=\"true\">{image}</svg>{}</li>",
            Esc(text)
        );
    };
    for (rank, name) in apps.names.iter().enumerate().take(apps.named) {
        let letter = apps.letter(rank).unwrap_or(' ');
        let image = format!(
            "<rect class=\"a{rank}\" width=\"22\" height=\"15\"/>\
             <text class=\"t{rank}\" x=\"11\" y=\"11\">{letter}</text>"
        );
        entry(out, &image, name);
    }
    let others = apps.names.len() - apps.named;
    if others > 0 {
        let image = "<rect class=\"a12\" width=\"8\" height=\"15\"/><rect class=\"a15\" x=\"8\" \
                     width=\"7\" height=\"15\"/><rect class=\"a18\" x=\"15\" width=\"7\" height=\"15\"/>";
        let other = if apps.named > 0 { "other app" } else { "app" };
        entry(
            out,
            image,
            &format!("{}, colours repeat", counted(others as u64, other)),
        );
    }
    if any(|i| i.before) {
        let image = "<rect class=\"a12\" y=\"3\" width=\"22\" height=\"9\"/>\
                     <rect class=\"hatch\" y=\"3\" width=\"22\" height=\"9\"/>";
        entry(out, image, "there before");
    }
    if any(|i| i.task) {
        entry(
            out,
            "<rect class=\"a12\" width=\"22\" height=\"7\"/>",
            "task",
        );
    }
    entry(
        out,
        "<rect class=\"track\" width=\"22\" height=\"15\"/>",
        "free",
    );
    if gone {
        entry(
            out,
            "<rect class=\"gone\" x=\".5\" y=\".5\" width=\"21\" height=\"14\"/>",
            "gone",
        );
    }
    out.push_str("</ul>");
}

fn refusals(out: &mut String, outcome: &Outcome) {
    out.push_str("<section aria-labelledby=\"refusals\"><h2 id=\"refusals\">Refusals</h2>");
    if outcome.runs.iter().all(|r| r.refusals.is_empty()) {
        out.push_str("<p class=\"none\">Nothing was refused.</p></section>");
        return;
    }
    out.push_str("<div class=\"charts\">");
    for (at, run) in outcome.runs.iter().enumerate() {
        w!(out, "<div><h3>{}</h3>", badge(at, &run.policy));
        if run.refusals.is_empty() {
            out.push_str("<p class=\"none\">Nothing was refused.</p></div>");
            continue;
        }
        out.push_str(
            "<table class=\"refusals\"><thead><tr><th scope=\"col\">Reason</th>\
             <th scope=\"col\">Instances</th></tr></thead><tbody>",
        );
        let most = run
            .refusals
            .iter()
            .map(|(_, count)| *count)
            .max()
            .unwrap_or(1)
            .max(1) as f64;
        for (reason, count) in &run.refusals {
            w!(
                out,
                "<tr><th scope=\"row\">{}<svg width=\"100%\" height=\"4\" aria-hidden=\"true\">\
                 <rect width=\"{}%\" height=\"4\"/></svg></th><td data-value=\"{count}\">{}</td></tr>",
                Esc(reason),
                Len(*count as f64 / most * 100.0),
                whole(*count)
            );
        }
        out.push_str("</tbody></table></div>");
    }
    out.push_str("</div></section>");
}

fn source(out: &mut String, outcome: &Outcome) {
    let end = outcome
        .scenario
        .char_indices()
        .nth(SCENARIO_SHOWN)
        .map_or(outcome.scenario.len(), |c| c.0);
    let shown = &outcome.scenario[..end];
    w!(
        out,
        "<section aria-labelledby=\"scenario\"><h2 id=\"scenario\">Scenario</h2>\
         <pre class=\"file\" tabindex=\"0\"><code>{}</code></pre>",
        Esc(shown)
    );
    if shown.len() < outcome.scenario.len() {
        w!(
            out,
            "<p class=\"note\">Only its beginning: {} more bytes follow in the file.</p>",
            whole((outcome.scenario.len() - shown.len()) as u64)
        );
    }
    out.push_str("</section>");
}
