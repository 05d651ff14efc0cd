//! Charts as SVG. Horizontal positions are in per cent and text is not scaled, so the same image suits a phone, a wide
//! screen and paper. Lines are in a nested image that is stretched to the width.

use std::ops::Range;

use maud::{Markup, PreEscaped};

use crate::outcome::{Histogram, Sample, SimRun};
use crate::report::charted::{Kind, Quantity};
use crate::report::markup::{Esc, Len, w};
use crate::report::number::{Unit, counted, nice_step, nice_time_step, whole};

/// Height of the area in which lines and bars are drawn, in pixels.
const PLOT: f64 = 120.0;
/// Space above it, for the highest label.
const TOP: f64 = 16.0;
/// Space below it, for the labels of the horizontal axis.
const BOTTOM: f64 = 18.0;

/// A line of a chart over time.
pub(super) struct Line<'a> {
    /// Number of the policy, from 0, which determines its colour and dashes.
    pub(super) policy: usize,
    /// The samples of the line.
    pub(super) samples: &'a [Sample],
}

/// Number of policies with their own colour and dashes.
const POLICY_COLOURS: usize = 12;
/// Runs whose lengths differ by more than this factor have no common time axis.
const MAX_LENGTH_RATIO: u64 = 4;

/// Returns the classes of a policy: its own colour and dashes for the first twelve policies, then the same ones thicker
/// and paler.
pub(super) fn policy_class(policy: usize) -> String {
    let again = if (policy / POLICY_COLOURS) % 2 == 1 {
        " again"
    } else {
        ""
    };
    format!("p{}{again}", policy % POLICY_COLOURS)
}

/// The time axis of all charts.
#[derive(Clone, Copy)]
pub(super) struct TimeAxis {
    /// The end of the longest run, milliseconds; at least 1.
    until_ms: f64,
    /// Whether each run is drawn over its own length: next to a run of minutes, one of a second would be invisible.
    pub(super) relative: bool,
}

impl TimeAxis {
    pub(super) fn of(runs: &[SimRun]) -> Self {
        let ends = || runs.iter().filter_map(|run| Some(run.series.last()?.at_ms));
        let longest = ends().max().unwrap_or(1).max(1);
        let shortest = ends().min().unwrap_or(longest);
        Self {
            until_ms: longest as f64,
            relative: shortest.saturating_mul(MAX_LENGTH_RATIO) < longest,
        }
    }

    /// Returns the right end of the axis for a line of these samples, in milliseconds.
    fn end_of(&self, samples: &[Sample]) -> f64 {
        match samples.last() {
            Some(last) if self.relative => last.at_ms.max(1) as f64,
            _ => self.until_ms,
        }
    }
}

/// The axes that charts share.
#[derive(Clone, Copy)]
pub(super) struct Axes {
    /// The right end, in milliseconds; at least 1.
    pub(super) until_ms: f64,
    /// Upper end of the quantity; above 0.
    pub(super) top: f64,
}

impl Axes {
    fn x(&self, sample: &Sample) -> f64 {
        sample.at_ms as f64 / self.until_ms * 1000.0
    }

    fn y(&self, value: f64) -> f64 {
        let share = if value.is_finite() {
            value / self.top
        } else {
            0.0
        };
        PLOT * (1.0 - share.clamp(0.0, 1.0))
    }
}

/// Renders one chart with a line for each policy.
pub(super) fn lines(what: &Quantity, lines: &[Line<'_>], axis: TimeAxis, label: &str) -> Markup {
    let mut image = String::new();
    let out = &mut image;
    let values = || {
        lines
            .iter()
            .flat_map(|l| l.samples)
            .map(what.of)
            .filter(|v| v.is_finite())
    };
    let largest = values().fold(0.0_f64, f64::max);
    let step = vertical_step(what.unit, largest);
    let axes = Axes {
        until_ms: axis.until_ms,
        top: (largest / step).ceil().max(1.0) * step,
    };
    open(out, what.field, None, label);
    grid(out, step, axes);
    stretch_open(out);
    for line in lines {
        w!(
            out,
            "<path class=\"line {}\" d=\"",
            policy_class(line.policy)
        );
        let own = Axes {
            until_ms: axis.end_of(line.samples),
            ..axes
        };
        polyline(out, line.samples, |s| (own.x(s), own.y((what.of)(s))));
        out.push_str("\"/>");
    }
    out.push_str("</svg>");
    grid_labels(out, what.unit, step, axes);
    if axis.relative {
        share_axis(out);
    } else {
        time_axis(out, axis.until_ms);
    }
    out.push_str("</svg>");
    PreEscaped(image)
}

/// Renders the load per cell of one policy: emptiest to fullest, one standard deviation around the mean, and the mean.
pub(super) fn load_band(policy: usize, samples: &[Sample], axis: TimeAxis, label: &str) -> Markup {
    let mut image = String::new();
    let out = &mut image;
    let until = axis.end_of(samples);
    let axes = Axes {
        until_ms: until,
        top: 1.0,
    };
    open(out, "used", Some(policy), label);
    grid(out, 0.25, axes);
    stretch_open(out);
    let band =
        |out: &mut String, class: &str, low: fn(&Sample) -> f64, high: fn(&Sample) -> f64| {
            w!(out, "<path class=\"{class} {}\" d=\"", policy_class(policy));
            polyline(out, samples, |s| (axes.x(s), axes.y(high(s))));
            let back: Vec<&Sample> = samples.iter().rev().collect();
            for sample in back {
                w!(out, "L{} {}", Len(axes.x(sample)), Len(axes.y(low(sample))));
            }
            out.push_str("z\"/>");
        };
    band(out, "range", |s| s.used_min, |s| s.used_max);
    band(
        out,
        "within",
        |s| (s.used - s.used_sd).max(s.used_min),
        |s| (s.used + s.used_sd).min(s.used_max),
    );
    w!(out, "<path class=\"line {}\" d=\"", policy_class(policy));
    polyline(out, samples, |s| (axes.x(s), axes.y(s.used)));
    out.push_str("\"/></svg>");
    grid_labels(out, Unit::Share, 0.25, axes);
    time_axis(out, until);
    out.push_str("</svg>");
    PreEscaped(image)
}

fn open(out: &mut String, field: &str, policy: Option<usize>, label: &str) {
    w!(
        out,
        "<svg class=\"chart\" role=\"img\" width=\"100%\" height=\"{}\" data-field=\"{field}\"",
        TOP + PLOT + BOTTOM
    );
    if let Some(policy) = policy {
        w!(out, " data-run=\"{policy}\"");
    }
    w!(
        out,
        " aria-label=\"{}\"><title>{}</title>",
        Esc(label),
        Esc(label)
    );
}

fn stretch_open(out: &mut String) {
    w!(
        out,
        "<svg y=\"{TOP}\" width=\"100%\" height=\"{PLOT}\" viewBox=\"0 0 1000 {PLOT}\" \
         preserveAspectRatio=\"none\">"
    );
}

fn polyline(out: &mut String, samples: &[Sample], point: impl Fn(&Sample) -> (f64, f64)) {
    for (at, sample) in samples.iter().enumerate() {
        let (x, y) = point(sample);
        w!(
            out,
            "{}{} {}",
            if at == 0 { 'M' } else { 'L' },
            Len(x),
            Len(y)
        );
    }
}

/// Returns the values of an axis that have a line: from 0, in equal steps, at most 12.
fn ticks(step: f64, axes: Axes) -> impl Iterator<Item = f64> {
    let count = (axes.top / step).round().clamp(1.0, 12.0);
    (0..=12_u32)
        .map(f64::from)
        .take_while(move |at| *at <= count)
        .map(move |at| at * step)
}

fn grid(out: &mut String, step: f64, axes: Axes) {
    for value in ticks(step, axes) {
        let y = TOP + axes.y(value);
        let class = if value == 0.0 { "base" } else { "rule" };
        w!(
            out,
            "<line class=\"{class}\" x2=\"100%\" y1=\"{0}\" y2=\"{0}\"/>",
            Len(y)
        );
    }
}

/// Renders the value of each grid line, above it. This comes after the lines of the chart, so that they do not hide it.
fn grid_labels(out: &mut String, unit: Unit, step: f64, axes: Axes) {
    let scale = unit.scale(axes.top);
    for value in ticks(step, axes).skip(1) {
        let y = Len(TOP + axes.y(value) - 4.0);
        w!(
            out,
            "<text y=\"{y}\">{}</text>",
            Esc(&scale.name(&scale.short(value)))
        );
    }
}

fn vertical_step(unit: Unit, largest: f64) -> f64 {
    match unit {
        // ticks that are round in the unit shown
        Unit::Mebibytes if largest >= 1024.0 => nice_step(largest / 1024.0, 3) * 1024.0,
        Unit::Count => nice_step(largest, 3).max(1.0).ceil(),
        _ => nice_step(largest, 3),
    }
}

/// Renders the axis of runs that are each drawn over their own length.
fn share_axis(out: &mut String) {
    for (percent, anchor) in [(0, "start"), (50, "middle"), (100, "end")] {
        let text = match percent {
            0 => "begin".to_owned(),
            100 => "end of each run".to_owned(),
            half => format!("{half}\u{a0}%"),
        };
        below(out, f64::from(percent), anchor, &text);
    }
}

fn time_axis(out: &mut String, until: f64) {
    let step = nice_time_step(until, 4);
    let scale = Unit::Ms.scale(step.max(until / 4.0));
    let y = TOP + PLOT + 13.0;
    let mut at = 0.0;
    while at <= until * 1.000_001 {
        let share = at / until * 100.0;
        let anchor = if at == 0.0 {
            "start"
        } else if share > 92.0 {
            "end"
        } else {
            "middle"
        };
        w!(
            out,
            "<text class=\"x\" x=\"{}%\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
            Len(share),
            Esc(&if at == 0.0 {
                "0".to_owned()
            } else {
                scale.name(&scale.short(at))
            })
        );
        if at > 0.0 && share < 99.0 {
            let base = TOP + PLOT;
            w!(
                out,
                "<line class=\"base\" x1=\"{0}%\" x2=\"{0}%\" y1=\"{base}\" y2=\"{1}\"/>",
                Len(share),
                base + 4.0
            );
        }
        at += step;
    }
}

/// Renders one histogram: classes of equal width, each bar with its number; `top` is the highest count of all runs.
pub(super) fn histogram(
    kind: &Kind,
    policy: usize,
    (histogram, shown): (&Histogram, Range<usize>),
    (top, label): (u64, &str),
) -> Markup {
    let mut image = String::new();
    let out = &mut image;
    let height = TOP + PLOT + BOTTOM;
    w!(
        out,
        "<svg class=\"histogram\" role=\"img\" width=\"100%\" height=\"{height}\" \
         aria-label=\"{}\">",
        Esc(label)
    );
    let most = histogram.counts.iter().copied().max().unwrap_or(0);
    let width = slot(&shown);
    for (place, class) in shown.clone().enumerate() {
        let count = histogram.counts.get(class).copied().unwrap_or(0);
        let share = count as f64 / top.max(1) as f64 * PLOT;
        let bar = Bar {
            x: place as f64 * width,
            width,
            // no count is invisible
            height: if count == 0 { 0.0 } else { share.max(1.0) },
        };
        draw_bar(out, &bar, policy, &bar_title(kind, histogram, class));
        // there is no axis: the number on the highest bar gives the scale
        if count > 0 && count == most {
            bar_value(out, &bar, count);
        }
    }
    let base = TOP + PLOT;
    w!(
        out,
        "<line class=\"base\" x2=\"100%\" y1=\"{base}\" y2=\"{base}\"/>"
    );
    if kind.unit == Unit::Count {
        class_axis(out, kind, &histogram.bounds, shown);
    } else {
        bounds_axis(out, kind, &histogram.bounds, shown);
    }
    out.push_str("</svg>");
    PreEscaped(image)
}

/// Returns the width of a class, in per cent; a few classes do not fill the width.
fn slot(shown: &Range<usize>) -> f64 {
    100.0 / shown.len().max(4) as f64
}

/// A bar: per cent of the width, and pixels.
struct Bar {
    x: f64,
    width: f64,
    height: f64,
}

fn bar_title(kind: &Kind, histogram: &Histogram, class: usize) -> String {
    let count = histogram.counts.get(class).copied().unwrap_or(0);
    let all: u64 = histogram.counts.iter().sum();
    let share = count as f64 / all.max(1) as f64;
    let name = kind.class_name(&histogram.bounds, class);
    format!(
        "{name}: {} ({})",
        counted(count, kind.thing),
        Unit::Share.show(share)
    )
}

fn draw_bar(out: &mut String, bar: &Bar, policy: usize, title: &str) {
    let base = TOP + PLOT;
    w!(
        out,
        "<g class=\"bar {}\"><title>{}</title>\
         <rect class=\"reach\" x=\"{}%\" width=\"{}%\" height=\"{base}\"/>\
         <rect x=\"{}%\" y=\"{}\" width=\"{}%\" height=\"{}\"/></g>",
        policy_class(policy),
        Esc(title),
        Len(bar.x),
        Len(bar.width),
        Len(bar.x + bar.width * 0.06),
        Len(base - bar.height),
        Len(bar.width * 0.88),
        Len(bar.height),
    );
}

fn bar_value(out: &mut String, bar: &Bar, count: u64) {
    let (anchor, x) = match bar.x + bar.width / 2.0 {
        middle if middle < 18.0 => ("start", bar.x),
        middle if middle > 82.0 => ("end", bar.x + bar.width),
        middle => ("middle", middle),
    };
    let y = Len(TOP + PLOT - bar.height - 4.0);
    w!(
        out,
        "<text x=\"{}%\" y=\"{y}\" text-anchor=\"{anchor}\">{}</text>",
        Len(x),
        Esc(&whole(count))
    );
}

fn below(out: &mut String, x: f64, anchor: &str, text: &str) {
    w!(
        out,
        "<text class=\"x\" x=\"{}%\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
        Len(x),
        TOP + PLOT + 13.0,
        Esc(text)
    );
}

/// Renders classes of whole numbers: at most five names, each in the middle of its class.
fn class_axis(out: &mut String, kind: &Kind, bounds: &[f64], shown: Range<usize>) {
    let (width, every) = (slot(&shown), shown.len().div_ceil(5).max(1));
    for (place, class) in shown.enumerate().step_by(every) {
        let x = (place as f64 + 0.5) * width;
        below(
            out,
            x,
            "middle",
            &kind.class_name(bounds, class).replace(" and more", "+"),
        );
    }
}

/// Renders at most five bounds, each on the left of its class.
fn bounds_axis(out: &mut String, kind: &Kind, bounds: &[f64], shown: Range<usize>) {
    let (width, every) = (slot(&shown), shown.len().div_ceil(5).max(1));
    if shown.len() == 1 {
        below(out, 0.0, "start", &kind.class_name(bounds, shown.start));
        return;
    }
    for (place, class) in shown.enumerate().step_by(every) {
        let x = place as f64 * width;
        let anchor = if place == 0 { "start" } else { "middle" };
        match class.checked_sub(1).map(|left| bounds.get(left)) {
            None => below(out, x, anchor, "0"),
            Some(Some(bound)) => below(out, x, anchor, &kind.unit.short(*bound)),
            Some(None) => {}
        }
    }
}
