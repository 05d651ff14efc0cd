//! One scenario under several seeds, to show how much the figures vary.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::outcome::{Balance, Seeds, SeedsRun, SimOutcome};

/// Figures that every scenario has.
const MAIN: [&str; 22] = [
    "placed",
    "unplaced",
    "waiting",
    "lost",
    "wait_ms.mean",
    "wait_ms.p99",
    "rounds.mean",
    "rounds.max",
    "traffic.sent",
    "traffic.delivered",
    "traffic.bytes",
    "distribution",
    "per_cell.max_over_mean",
    "per_cell.sd_over_mean",
    "per_zone.max_over_mean",
    "most_starting",
    "apps_sharing_cells",
    "apps_sharing_zones",
    "stranded_mb.mean",
    "largest_fit_mb.min",
    "empty_cells.mean",
    "spare_cells",
];

/// The same for what managers keep running.
const KEPT: [&str; 9] = [
    "kept.missing.mean",
    "kept.lost",
    "kept.unrecovered",
    "kept.recovery_ms.p50",
    "kept.recovery_ms.p99",
    "kept.recovery_ms.max",
    "kept.duplicates",
    "kept.duplicate_s",
    "kept.rollout_ms.max",
];

/// Returns the figures that are compared first, by path; those of managers are absent in runs without any.
pub fn main() -> impl Iterator<Item = &'static str> {
    MAIN.into_iter().chain(KEPT)
}

/// Prefixes of figures that only some scenarios have.
const OF_SCENARIO: [&str; 6] = [
    "extra.",
    "sd_of_share.",
    "packing.",
    "bounds.gap.",
    "most_even.gap",
    "saved",
];

/// Returns the figures shown for several seeds, by path: those of [`main`], and those that only this scenario has.
pub fn shown(seeds: &Seeds) -> Vec<&str> {
    let of_runs = seeds.runs.iter().flat_map(|run| run.figures.keys());
    let of_scenario = |path: &&String| OF_SCENARIO.iter().any(|start| path.starts_with(start));
    let of_scenario: BTreeSet<&str> = of_runs.filter(of_scenario).map(String::as_str).collect();
    // gives them the lifetime of the others
    let main = main().map(|path| -> &str { path });
    main.chain(of_scenario).collect()
}

/// Formats seeds as `1 to 20` or `1, 2, 5`.
pub fn ranges(seeds: &[u64]) -> String {
    match seeds {
        [first, .., last] if last - first + 1 == seeds.len() as u64 => format!("{first} to {last}"),
        _ => {
            let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
            seeds.join(", ")
        }
    }
}

/// Formats `3.00 ± 1.50 (0.00 … 6.00)`: mean, standard deviation, minimum and maximum; only the value if all are the
/// same.
pub fn show(balance: &Balance) -> String {
    let decimals = match balance.mean.abs() {
        mean if mean >= 1_000.0 => 0,
        mean if mean >= 10.0 => 1,
        mean if mean >= 1.0 => 2,
        _ => 4,
    };
    let number = |value: f64| format!("{value:.decimals$}");
    if balance.min.total_cmp(&balance.max).is_eq() {
        return number(balance.mean);
    }
    format!(
        "{} ± {} ({} … {})",
        number(balance.mean),
        number(balance.sd),
        number(balance.min),
        number(balance.max)
    )
}

impl Seeds {
    /// Computes the figures of outcomes of one scenario with different seeds.
    pub fn of(outcomes: &[SimOutcome], command: &str) -> Self {
        let first = outcomes.first();
        let policies = first.map_or(0, |o| o.runs.len());
        let run = |n: usize| {
            let runs = outcomes.iter().filter_map(|o| o.runs.get(n));
            let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
            let mut policy = String::new();
            for run in runs {
                policy.clone_from(&run.policy);
                let figures = serde_json::to_value(&run.figures).unwrap_or_default();
                flatten("", &figures, &mut values);
                for step in &run.demand_steps {
                    let figures = serde_json::to_value(step).unwrap_or_default();
                    flatten(&format!("demand_{:03}", step.demand), &figures, &mut values);
                }
            }
            let figures = values
                .into_iter()
                .map(|(path, values)| (path, Balance::of(&values)));
            SeedsRun {
                policy,
                figures: figures.collect(),
            }
        };
        Self {
            v: 1,
            name: first.map(|o| o.name.clone()).unwrap_or_default(),
            command: command.to_owned(),
            seeds: outcomes.iter().map(|o| o.seed).collect(),
            runs: (0..policies).map(run).collect(),
        }
    }
}

fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, Vec<f64>>) {
    match value {
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or_default();
            into.entry(path.to_owned()).or_default().push(number);
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(&format!("{path}{dot}{name}"), value, into);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Figures, Kept, SimRun};

    #[test]
    fn every_number_by_its_path() {
        let outcome = |seed, placed, mean| {
            let mut figures = Figures {
                placed,
                ..Figures::default()
            };
            figures.wait_ms.mean = mean;
            figures.kept = Some(Kept::default());
            figures.extra.insert("stopped".into(), 1.0);
            let run = SimRun {
                policy: "p".into(),
                figures,
                ..SimRun::default()
            };
            SimOutcome {
                seed,
                runs: vec![run],
                ..SimOutcome::default()
            }
        };
        let seeds = Seeds::of(&[outcome(1, 4, 1.0), outcome(2, 8, 3.0)], "c");
        assert_eq!(seeds.seeds, [1, 2]);
        let figures = &seeds.runs[0].figures;
        let placed = figures["placed"];
        assert_eq!(
            (placed.mean, placed.sd, placed.min, placed.max),
            (6.0, 2.0, 4.0, 8.0)
        );
        let close = |value: f64, expected: f64| (value - expected).abs() < 1e-9;
        assert!(close(figures["wait_ms.mean"].mean, 2.0));
        assert!(close(figures["extra.stopped"].sd, 0.0));
        for path in main() {
            assert!(figures.contains_key(path), "{path}");
        }
    }
}
