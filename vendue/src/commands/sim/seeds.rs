//! What many seeds of one scenario have in common.

use simulator::{
    outcome::{Balance, Outcome},
    seeds::{MAIN, Seeds},
};

use crate::output::{self, Format};

/// Prints the figures over all seeds that were played to the end.
pub(super) fn write(format: Format, outcomes: &[Outcome], command: &str) -> anyhow::Result<()> {
    let whole: Vec<Outcome> = outcomes
        .iter()
        .filter(|o| !o.interrupted)
        .cloned()
        .collect();
    let seeds = Seeds::of(&whole, command);
    if format == Format::Json {
        return output::json(&seeds);
    }
    let policies = seeds.runs.iter().map(|run| run.policy.as_str());
    let head: Vec<&str> = std::iter::once("FIGURE").chain(policies).collect();
    let mut table = output::table(&head);
    let first = seeds.runs.first().map(|run| &run.figures);
    let others = first.into_iter().flat_map(|figures| figures.keys());
    let others = others.filter(|path| path.starts_with("extra.") || *path == "saved");
    let paths = MAIN.into_iter().chain(others.map(String::as_str));
    for path in paths {
        let values: Vec<Balance> = seeds
            .runs
            .iter()
            .map(|run| run.figures.get(path).copied().unwrap_or_default())
            .collect();
        if values.iter().all(|v| v.max == 0.0 && v.min == 0.0) {
            continue;
        }
        let cells = values.iter().map(shown);
        table.add_row(std::iter::once(path.to_owned()).chain(cells));
    }
    output::say(format_args!(
        "{}: {} seeds from {}; mean ± standard deviation (least … most)",
        seeds.name,
        seeds.seeds.len(),
        seeds.seeds.first().copied().unwrap_or_default()
    ))?;
    output::print(table)?;
    Ok(())
}

fn shown(of: &Balance) -> String {
    let digits = match of.mean.abs() {
        mean if mean >= 1_000.0 => 0,
        mean if mean >= 10.0 => 1,
        mean if mean >= 1.0 => 2,
        _ => 4,
    };
    let number = |value: f64| format!("{value:.digits$}");
    if of.min.total_cmp(&of.max).is_eq() {
        return number(of.mean);
    }
    format!(
        "{} ± {} ({} … {})",
        number(of.mean),
        number(of.sd),
        number(of.min),
        number(of.max)
    )
}
