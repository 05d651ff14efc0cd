//! Decisions as people read them: of a scenario file, of a dry run, and judged again.

use comfy_table::Cell;
use placement::{DecisionReport, joined};

use super::reasons::why;
use crate::{
    output::{self, number},
    table::Table,
};

/// A table of decisions, then what is explained of each.
pub(crate) fn print(decisions: &[DecisionReport]) -> anyhow::Result<()> {
    let rated = if decisions.iter().any(|d| d.score.is_some()) {
        "SCORE"
    } else {
        "COST"
    };
    let mut table = Table::new(&["APP", "INDEX", "KIND", "OUTCOME", "CELL", rated, "WHY"])
        .optional(&["KIND"])
        .text("WHY");
    for decision in decisions {
        let rating = decision.cost.or(decision.score);
        table.add_row(vec![
            Cell::new(&decision.app),
            Cell::new(decision.index),
            Cell::new(decision.kind),
            Cell::new(decision.outcome),
            Cell::new(decision.cell.as_deref().unwrap_or("-")),
            Cell::new(rating.map_or("-".into(), number)),
            Cell::new(reason(decision)),
        ]);
    }
    table.print()?;
    decisions.iter().try_for_each(explain)
}

/// `5 placed, 1 unplaced`.
pub(crate) fn counts(decisions: &[DecisionReport]) -> String {
    let placed = decisions.iter().filter(|d| d.cell.is_some()).count();
    format!("{placed} placed, {} unplaced", decisions.len() - placed)
}

/// Why it is unplaced, or from how many equally good cells it was drawn.
fn reason(decision: &DecisionReport) -> String {
    match (&decision.cell, decision.finalists.len()) {
        (None, _) if decision.stages.is_empty() => why(decision.reason.as_deref(), &decision.tally),
        // the stages tell the numbers
        (None, _) => decision.reason.clone().unwrap_or_default(),
        (Some(_), 0 | 1) => String::new(),
        (Some(_), n) => format!("drawn from {n} finalists"),
    }
}

fn explain(decision: &DecisionReport) -> anyhow::Result<()> {
    let name = format!("{} {}", decision.app, decision.index);
    for text in &decision.notes {
        output::say(format_args!("{name}: {text}"))?;
    }
    if decision.stages.is_empty() && decision.scores.is_empty() {
        return Ok(());
    }
    output::say(format_args!("{name}:"))?;
    for stage in &decision.stages {
        output::say(format_args!("  {}: {} left", stage.stage, stage.survivors))?;
        for tally in &stage.rejected {
            output::say(format_args!("    {}", tally.in_words()))?;
        }
    }
    for score in &decision.scores {
        let terms = score.terms.iter();
        let terms: Vec<String> = terms.map(|(n, v)| format!("{n} {}", number(*v))).collect();
        let (cell, value) = (&score.cell, number(score.value));
        let terms = joined(&terms, decision.product);
        output::say(format_args!("  {cell}: {value} = {terms}"))?;
    }
    Ok(())
}
