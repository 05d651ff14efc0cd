//! The same scenario under many seeds: how far a figure of one run can be trusted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::outcome::{Balance, Outcome};

/// What the runs of one scenario under many seeds have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seeds {
    /// The version of this format: 1.
    pub v: u32,
    /// The scenario's name.
    pub name: String,
    /// The command that made this.
    pub command: String,
    /// The seeds that were played to the end.
    pub seeds: Vec<u64>,
    /// One for each policy, in the order asked.
    pub runs: Vec<SeedsRun>,
}

/// One policy under all seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeedsRun {
    /// The policy's label.
    pub policy: String,
    /// Every number of [`crate::outcome::Figures`], by its path (`wait_ms.mean`).
    pub figures: BTreeMap<String, Balance>,
}

/// The figures that people compare first, by path.
pub const MAIN: [&str; 19] = [
    "placed",
    "refused",
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
    "per_zone.max_over_mean",
    "apps_sharing_cells",
    "stranded_mb.mean",
    "largest_fit_mb.min",
    "empty_cells.mean",
    "spare_cells",
];

impl Seeds {
    /// Sums up outcomes of one scenario, each of another seed.
    pub fn of(outcomes: &[Outcome], command: &str) -> Self {
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
    use crate::outcome::{Figures, Run};

    #[test]
    fn every_number_by_its_path() {
        let outcome = |seed, placed, mean| {
            let mut figures = Figures {
                placed,
                ..Figures::default()
            };
            figures.wait_ms.mean = mean;
            figures.extra.insert("stopped".into(), 1.0);
            let run = Run {
                policy: "p".into(),
                figures,
                ..Run::default()
            };
            Outcome {
                seed,
                runs: vec![run],
                ..Outcome::default()
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
        for path in MAIN {
            assert!(figures.contains_key(path), "{path}");
        }
    }
}
