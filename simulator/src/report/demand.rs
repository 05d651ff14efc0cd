//! What was given as the demand of a trace grew: a row for each step, of the resource of which the demand is counted.

use crate::outcome::{DemandStep, SimOutcome};

/// A step under every policy.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    /// The demand.
    pub(super) demand: String,
    /// For each run: what was given, what was left and of no use, and the instances that fitted nowhere.
    pub(super) cells: Vec<String>,
}

/// The heading of the rows; none if the work of no run was drawn up to a demand.
pub(super) fn heading(outcome: &SimOutcome) -> Option<String> {
    let of = outcome.runs.iter().map(|run| &run.demand_of);
    let of = of.into_iter().find(|of| !of.is_empty())?;
    Some(format!(
        "{of} given as demand grew, % (left and of no use to the expected work, %; instances unplaced)"
    ))
}

/// The steps that some run has reached.
pub(super) fn rows(outcome: &SimOutcome) -> Vec<Row> {
    let most = outcome.runs.iter().map(|run| run.demand_steps.len());
    let row = |step: usize| {
        let steps = outcome.runs.iter().map(|run| run.demand_steps.get(step));
        let cells = outcome.runs.iter().zip(steps.clone());
        let cells =
            cells.map(|(run, step)| step.map_or("–".into(), |step| shown(step, &run.demand_of)));
        let demand = steps.flatten().next().map_or(0, |step| step.demand);
        Row {
            demand: format!("{demand} %"),
            cells: cells.collect(),
        }
    };
    (0..most.max().unwrap_or(0)).map(row).collect()
}

fn shown(step: &DemandStep, of: &str) -> String {
    let value = |map: &std::collections::BTreeMap<String, f64>| map.get(of).copied().unwrap_or(0.0);
    format!(
        "{:.2} ({:.2}; {})",
        value(&step.given),
        value(&step.fragments),
        step.unplaced
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::SimRun;

    fn run(steps: &[(u32, f64, f64, u64)]) -> SimRun {
        let map = |value| [("gpu".to_owned(), value)].into();
        let step = |(demand, given, fragments, unplaced): &(u32, f64, f64, u64)| DemandStep {
            demand: *demand,
            unplaced: *unplaced,
            given: map(*given),
            fragments: map(*fragments),
        };
        SimRun {
            demand_of: "gpu".into(),
            demand_steps: steps.iter().map(step).collect(),
            ..SimRun::default()
        }
    }

    #[test]
    fn a_row_for_each_step() {
        let mut outcome = SimOutcome::default();
        assert_eq!(heading(&outcome), None);
        assert_eq!(rows(&outcome), []);
        let long = run(&[(10, 10.0, 0.125, 0), (20, 19.5, 3.0, 7)]);
        outcome.runs = vec![run(&[(10, 9.0, 1.0, 2)]), long];
        assert!(heading(&outcome).is_some_and(|heading| heading.starts_with("gpu given")));
        let rows = rows(&outcome);
        assert_eq!(rows[0].cells, ["9.00 (1.00; 2)", "10.00 (0.12; 0)"]);
        assert_eq!(
            (rows[1].demand.as_str(), rows[1].cells[0].as_str()),
            ("20 %", "–")
        );
    }
}
