//! What was given as the demand of a trace grew: a table for each resource, with a row for each step.

use std::collections::BTreeSet;

use crate::outcome::{DemandStep, SimOutcome};

/// One resource.
#[derive(Debug, PartialEq)]
pub(super) struct Table {
    /// What it shows.
    pub(super) heading: String,
    /// The steps that at least one run has reached.
    pub(super) rows: Vec<Row>,
}

/// A step, under every policy.
#[derive(Debug, PartialEq)]
pub(super) struct Row {
    /// The demand.
    pub(super) demand: String,
    /// For each run: what was given, and what was left and of no use; for the resource in which demand is counted, also
    /// the number of instances that fitted nowhere.
    pub(super) cells: Vec<String>,
}

/// Returns a table for each resource, beginning with the one in which demand is counted; none if the work of no run was
/// drawn up to a demand.
pub(super) fn tables(outcome: &SimOutcome) -> Vec<Table> {
    let mut counted = outcome.runs.iter().map(|run| &run.demand_of);
    let Some(counted) = counted.find(|of| !of.is_empty()) else {
        return Vec::new();
    };
    let steps = outcome.runs.iter().flat_map(|run| &run.demand_steps);
    let others: BTreeSet<&String> = steps.flat_map(|step| step.given.keys()).collect();
    let others = others.into_iter().filter(|of| *of != counted);
    let table = |of: &String| {
        let unplaced = if of == counted {
            "; instances unplaced"
        } else {
            ""
        };
        Table {
            heading: format!(
                "{of} given as demand for {counted} grew, % (left and of no use to the expected work, %{unplaced})"
            ),
            rows: rows(outcome, of, of == counted),
        }
    };
    [counted].into_iter().chain(others).map(table).collect()
}

fn rows(outcome: &SimOutcome, of: &str, unplaced: bool) -> Vec<Row> {
    let most = outcome.runs.iter().map(|run| run.demand_steps.len());
    let row = |at: usize| {
        let steps = outcome.runs.iter().map(|run| run.demand_steps.get(at));
        let cells = steps.clone();
        let cells = cells.map(|step| step.map_or("–".into(), |step| shown(step, of, unplaced)));
        let demand = steps.flatten().next().map_or(0, |step| step.demand);
        Row {
            demand: format!("{demand} %"),
            cells: cells.collect(),
        }
    };
    (0..most.max().unwrap_or(0)).map(row).collect()
}

fn shown(step: &DemandStep, of: &str, unplaced: bool) -> String {
    let value = |map: &std::collections::BTreeMap<String, f64>| map.get(of).copied().unwrap_or(0.0);
    let (given, fragments) = (value(&step.given), value(&step.fragments));
    if unplaced {
        format!("{given:.2} ({fragments:.2}; {})", step.unplaced)
    } else {
        format!("{given:.2} ({fragments:.2})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::SimRun;

    fn run(steps: &[(u32, f64, f64, u64)]) -> SimRun {
        let map = |value| [("gpu".to_owned(), value), ("cpu".to_owned(), value / 2.0)].into();
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
        assert_eq!(tables(&outcome), []);
        let long = run(&[(10, 10.0, 0.125, 0), (20, 19.5, 3.0, 7)]);
        outcome.runs = vec![run(&[(10, 9.0, 1.0, 2)]), long];
        let [gpu, cpu] = &tables(&outcome)[..] else {
            panic!("two resources")
        };
        assert!(gpu.heading.starts_with("gpu given as demand for gpu grew"));
        assert_eq!(gpu.rows[0].cells, ["9.00 (1.00; 2)", "10.00 (0.12; 0)"]);
        assert_eq!(
            (gpu.rows[1].demand.as_str(), gpu.rows[1].cells[0].as_str()),
            ("20 %", "–")
        );
        assert!(cpu.heading.starts_with("cpu given as demand for gpu grew"));
        assert_eq!(cpu.rows[1].cells, ["–", "9.75 (1.50)"]);
    }
}
