//! Prints decisions for people: of a scenario file, of a dry run, and of a decision made again.

use comfy_table::Cell;
use placement::{DecisionReport, Rating, Tally, joined};

use super::{devices, reasons::why};
use crate::{
    output::{self, number},
    table::Table,
};

/// Prints a table of decisions, followed by the explanations of each.
pub(crate) fn print(decisions: &[DecisionReport]) -> anyhow::Result<()> {
    let rated = if decisions.iter().any(|d| d.score.is_some()) {
        "SCORE"
    } else {
        "COST"
    };
    let mut header = vec!["APP", "INDEX", "KIND", "OUTCOME", "CELL", rated, "WHY"];
    let shows_devices = decisions.iter().any(|d| d.devices.is_some());
    if shows_devices {
        header.insert(5, "DEVICES");
    }
    let mut table = Table::new(&header).optional(&["KIND"]).text("WHY");
    for decision in decisions {
        let rating = decision.cost.or(decision.score);
        let mut row = vec![
            Cell::new(&decision.app),
            Cell::new(decision.index),
            Cell::new(decision.kind),
            Cell::new(decision.outcome),
            Cell::new(decision.cell.as_deref().unwrap_or("-")),
            Cell::new(rating.map_or("-".into(), number)),
            Cell::new(reason(decision)),
        ];
        if shows_devices {
            let given = decision.devices.as_deref();
            row.insert(5, Cell::new(given.map_or("-".into(), devices::given)));
        }
        table.add_row(row);
    }
    table.print()?;
    decisions.iter().try_for_each(explain)
}

/// Formats `5 placed, 1 unplaced`.
pub(crate) fn counts(decisions: &[DecisionReport]) -> String {
    let placed = decisions.iter().filter(|d| d.cell.is_some()).count();
    format!("{placed} placed, {} unplaced", decisions.len() - placed)
}

/// Explains why it is unplaced, or from how many equally good cells it was drawn.
fn reason(decision: &DecisionReport) -> String {
    let is_rated = decision.cost.or(decision.score).is_some();
    match (&decision.cell, decision.finalists.len()) {
        (None, _) if decision.stages.is_empty() => why(decision.reason.as_deref(), &decision.tally),
        // the stages give the numbers
        (None, _) => decision.reason.clone().unwrap_or_default(),
        // if an answer would be too large, the others are left out
        (Some(_), 0) if is_rated => "among the best".to_owned(),
        (Some(_), 0) => "passed every stage".to_owned(),
        (Some(_), 1) if is_rated => "the best".to_owned(),
        (Some(_), 1) => "the only cell that passed every stage".to_owned(),
        (Some(_), n) => format!("drawn from {n} finalists"),
    }
}

fn explain(decision: &DecisionReport) -> anyhow::Result<()> {
    let name = format!("{} {}", decision.app, decision.index);
    for text in &decision.notes {
        output::say_wrapped(&format!("{name}: {text}"))?;
    }
    if decision.stages.is_empty() && decision.ratings.is_empty() {
        return Ok(());
    }
    output::say(format_args!("{name}:"))?;
    for stage in &decision.stages {
        output::say(format_args!("  {}: {} left", stage.stage, stage.survivors))?;
        for tally in &stage.rejected {
            output::say_wrapped(&format!("    {}", dropped(tally, &stage.stage)))?;
        }
    }
    for rated in &decision.ratings {
        let terms = rated.terms.iter();
        let terms: Vec<String> = terms.map(|(n, v)| format!("{n} {}", number(*v))).collect();
        let (cell, rating) = (&rated.cell, words(rated.rating));
        let terms = joined(&terms, decision.product);
        output::say_wrapped(&format!("  {cell}: {rating} = {terms}"))?;
    }
    if let Some(line) = runner_up(decision) {
        output::say_wrapped(&format!("  {line}"))?;
    }
    Ok(())
}

/// Formats `cost 0.5` or `score 0.5`.
fn words(rating: Rating) -> String {
    match rating {
        Rating::Cost(cost) => format!("cost {}", number(cost)),
        Rating::Score(score) => format!("score {}", number(score)),
    }
}

/// Describes what a stage dropped, without repeating the stage's name.
fn dropped(tally: &Tally, stage: &str) -> String {
    let words = tally.in_words();
    let rest = words.strip_prefix(&format!("{stage}: "));
    rest.map_or(words.clone(), str::to_owned)
}

/// Returns the best of the cells that were rated but did not win.
fn runner_up(decision: &DecisionReport) -> Option<String> {
    let winner = decision.cell.as_deref()?;
    let others = decision.ratings.iter().filter(|s| *s.cell != *winner);
    let best = others.min_by(|a, b| a.rating.best_first(&b.rating))?;
    let rated = output::counted(decision.ratings.len(), "cell");
    let (cell, rating) = (&best.cell, words(best.rating));
    Some(format!(
        "{rated} rated; the best of the others is {cell}, {rating}"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decision(rating: &str) -> DecisionReport {
        let rated = |cell: &str, number: f64| json!({"cell": cell, rating: number, "terms": []});
        serde_json::from_value(json!({
            "app": "a", "index": 0, "kind": "lrp", "outcome": "placed", "cell": "c1", rating: 2.0,
            "ratings": [rated("c1", 2.0), rated("c2", 1.0), rated("c3", 3.0)],
        }))
        .unwrap()
    }

    #[test]
    fn the_runner_up_is_the_next_by_the_way_of_the_pick() {
        let next = |rating: &str| runner_up(&decision(rating)).unwrap();
        assert_eq!(
            next("score"),
            "3 cells rated; the best of the others is c3, score 3"
        );
        assert_eq!(
            next("cost"),
            "3 cells rated; the best of the others is c2, cost 1"
        );
        let mut alone = decision("cost");
        alone.ratings.truncate(1);
        assert_eq!(runner_up(&alone), None);
    }

    #[test]
    fn what_is_placed_says_why() {
        let mut decision = decision("cost");
        for (finalists, said) in [
            (&[][..], "among the best"),
            (&["c1"], "the best"),
            (&["c1", "c2"], "drawn from 2 finalists"),
        ] {
            decision.finalists = finalists.iter().map(|name| (*name).into()).collect();
            assert_eq!(reason(&decision), said);
        }
    }

    #[test]
    fn a_stage_is_named_once() {
        let tally: Tally = serde_json::from_value(json!({
            "stage": "placement-tags", "cells": 2,
            "reason": "placement tags are required, and none were asked for",
        }))
        .unwrap();
        assert_eq!(
            dropped(&tally, "placement-tags"),
            "2 cells dropped, placement tags are required, and none were asked for"
        );
    }
}
