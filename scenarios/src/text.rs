//! A decided scenario as text.

use std::fmt::Write;

use placement::{DecisionReport, Report, Tally, joined};

/// A report for people: one line per decision, with its explanation indented below.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let width = |name: fn(&DecisionReport) -> usize| {
        report.decisions.iter().map(name).max().unwrap_or(0).min(40)
    };
    let wide = width(|d| d.app.chars().count() + d.index.to_string().len() + 1);
    for decision in &report.decisions {
        // writing to a String cannot fail
        let _ = render_decision(decision, &mut out, wide);
    }
    let unplaced = report.decisions.len() - report.placed();
    let _ = writeln!(out, "{} placed, {unplaced} unplaced", report.placed());
    out
}

fn render_decision(decision: &DecisionReport, out: &mut String, wide: usize) -> std::fmt::Result {
    let name = format!("{}.{}", decision.app, decision.index);
    write!(out, "{:4}  {name:wide$}  ", decision.kind.to_string())?;
    match &decision.cell {
        Some(cell) => write!(out, "{cell}")?,
        None => write!(
            out,
            "unplaced: {}",
            decision.reason.as_deref().unwrap_or_default()
        )?,
    }
    if let Some(cost) = decision.cost {
        write!(out, "  cost {cost:.4}")?;
    }
    if let Some(score) = decision.score {
        write!(out, "  score {score:.4}")?;
    }
    if decision.finalists.len() > 1 {
        write!(out, "  drawn from {}", decision.finalists.len())?;
    }
    writeln!(out)?;
    // the stages have the rest
    let listed = |row: &Tally| !decision.stages.is_empty() && row.cells > 0;
    for stage in &decision.stages {
        writeln!(out, "      {}: {} left", stage.stage, stage.survivors)?;
        for tally in &stage.rejected {
            writeln!(out, "        {}", tally.in_words())?;
        }
    }
    for tally in decision.tally.iter().filter(|row| !listed(row)) {
        writeln!(out, "      {}", tally.in_words())?;
    }
    for score in &decision.scores {
        let terms: Vec<String> = score
            .terms
            .iter()
            .map(|(name, value)| format!("{name} {value:.4}"))
            .collect();
        let (cell, value) = (&score.cell, score.value);
        let terms = joined(&terms, decision.product);
        writeln!(out, "      {cell} {value:.4} = {terms}")?;
    }
    for note in &decision.notes {
        writeln!(out, "      note: {note}")?;
    }
    Ok(())
}
