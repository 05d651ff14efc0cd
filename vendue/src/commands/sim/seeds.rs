//! The figures of one scenario over several seeds.

use simulator::{
    outcome::{Balance, Seeds, SimOutcome},
    seeds::{ranges, show, shown},
};

use crate::{context::Format, output, table::Table};

/// Computes the figures over all seeds that were simulated to the end.
pub(super) fn over(outcomes: &[SimOutcome], command: &str) -> Seeds {
    let complete: Vec<SimOutcome> = outcomes
        .iter()
        .filter(|o| !o.interrupted)
        .cloned()
        .collect();
    Seeds::of(&complete, command)
}

/// Prints the main figures, and those that only this scenario has.
pub(super) fn write(format: Format, seeds: &Seeds) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::json(seeds);
    }
    let policies = seeds.runs.iter().map(|run| run.policy.as_str());
    let head: Vec<&str> = std::iter::once("FIGURE").chain(policies).collect();
    let mut table = Table::new(&head);
    for path in shown(seeds) {
        let values: Vec<Balance> = seeds
            .runs
            .iter()
            .map(|run| run.figures.get(path).copied().unwrap_or_default())
            .collect();
        if values.iter().all(|v| v.max == 0.0 && v.min == 0.0) {
            continue;
        }
        table.add_row(std::iter::once(path.to_owned()).chain(values.iter().map(show)));
    }
    output::say(format_args!(
        "{}: {} seeds ({}); mean ± standard deviation (minimum … maximum)",
        seeds.name,
        seeds.seeds.len(),
        ranges(&seeds.seeds)
    ))?;
    table.print()?;
    Ok(())
}
