//! What people see of an outcome.

use crate::outcome::Outcome;

/// One self-contained HTML file.
pub fn html(outcome: &Outcome) -> String {
    format!("<!doctype html><title>{}</title>", outcome.name)
}

/// The same for a terminal of this width.
pub fn text(outcome: &Outcome, _width: usize, _colour: bool) -> String {
    let mut lines = vec![format!("{} (seed {})", outcome.name, outcome.seed)];
    for run in &outcome.runs {
        let f = &run.figures;
        lines.push(format!(
            "{}: {} of {} placed, {} refused, {} waiting; {} messages, {} bytes",
            run.policy, f.placed, f.asked, f.refused, f.waiting, f.traffic.sent, f.traffic.bytes
        ));
    }
    lines.join("\n")
}
