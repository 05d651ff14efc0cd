//! How much of the work fits at most: a linear relaxation, for which a solver only supplies the weights of its rows.
//!
//! From whatever weights it returns, [`weighed`] computes a valid bound (weak duality), so nothing depends on the
//! solver's accuracy.

use microlp::{ComparisonOp, OptimizationDirection, Problem};

/// A group of identical cells.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// Number of cells.
    pub(super) cells: f64,
    /// By class of work: whether such a cell can take it.
    pub(super) takes: Vec<bool>,
    /// Each row has one share per class; the shares of everything that one cell holds add up to at most 1.
    pub(super) rows: Vec<Vec<f64>>,
}

/// A problem with more coefficients than this is not solved: the bound is then what was requested.
const MOST_COEFFICIENTS: usize = 400_000;

/// Returns the most that can be placed if an instance of class k is worth `values[k]` (0 or more) and `counts[k]` of
/// them were requested.
pub(super) fn at_most(groups: &[Group], counts: &[f64], values: &[f64]) -> f64 {
    let free: Vec<Vec<f64>> = groups.iter().map(|g| vec![0.0; g.rows.len()]).collect();
    let asked = weighed(groups, counts, values, &free);
    if all_fit_evenly(groups, counts, values) {
        return asked;
    }
    let solved = weights(groups, counts, values);
    solved.map_or(asked, |weights| {
        asked.min(weighed(groups, counts, values, &weights))
    })
}

/// Returns whether every cell can hold its even share of all work: then no relaxation is below what was requested.
fn all_fit_evenly(groups: &[Group], counts: &[f64], values: &[f64]) -> bool {
    let cells: f64 = groups.iter().map(|group| group.cells).sum();
    let even = |row: &Vec<f64>| {
        let shares = row.iter().zip(counts);
        shares
            .map(|(share, count)| share * count / cells)
            .sum::<f64>()
            <= 1.0
    };
    let wanted = |k: &usize| counts[*k] > 0.0 && values[*k] > 0.0;
    groups.iter().all(|group| {
        let mut classes = (0..counts.len()).filter(wanted);
        classes.all(|k| group.takes[k]) && group.rows.iter().all(even)
    })
}

/// Returns the bound for these weights, one per row of each group: the worth of all rows, plus, for each requested
/// instance, its worth beyond the rows that it uses, in the group where that is largest.
///
/// For weights of 0 or more it is never too low: an instance placed in a group is worth its share of that group's rows
/// plus at most the rest.
fn weighed(groups: &[Group], counts: &[f64], values: &[f64], weights: &[Vec<f64>]) -> f64 {
    let rows = groups.iter().zip(weights);
    let rows: f64 = rows
        .map(|(group, weights)| group.cells * weights.iter().sum::<f64>())
        .sum();
    let rest = |k: usize| {
        let of_group = groups
            .iter()
            .zip(weights)
            .filter(|(group, _)| group.takes[k]);
        let rest = of_group.map(|(group, weights)| {
            let used = group.rows.iter().zip(weights);
            values[k] - used.map(|(row, weight)| row[k] * weight).sum::<f64>()
        });
        rest.fold(0.0, f64::max)
    };
    let instances: f64 = (0..counts.len()).map(|k| counts[k] * rest(k)).sum();
    rows + instances
}

/// Returns the weights that make the bound low: the dual of the relaxation. None if the problem is too large or the
/// solver fails.
fn weights(groups: &[Group], counts: &[f64], values: &[f64]) -> Option<Vec<Vec<f64>>> {
    let size = groups.iter().map(|group| group.rows.len() * counts.len());
    if size.sum::<usize>() > MOST_COEFFICIENTS {
        return None;
    }
    let largest = values.iter().copied().fold(0.0, f64::max);
    if largest <= 0.0 {
        return None;
    }
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let any = (0.0, f64::INFINITY);
    let mut row_variables = Vec::new();
    for group in groups {
        let rows = group.rows.iter();
        let variables: Vec<_> = rows.map(|_| problem.add_var(group.cells, any)).collect();
        row_variables.push(variables);
    }
    let rests: Vec<_> = counts.iter().map(|n| problem.add_var(*n, any)).collect();
    for (group, variables) in groups.iter().zip(&row_variables) {
        for (k, rest) in rests.iter().enumerate() {
            if !group.takes[k] || counts[k] <= 0.0 || values[k] <= 0.0 {
                continue;
            }
            let used = group.rows.iter().zip(variables);
            let used = used.filter(|(row, _)| row[k] > 1e-6);
            let mut terms: Vec<_> = used.map(|(row, v)| (*v, row[k])).collect();
            terms.push((*rest, 1.0));
            problem.add_constraint(&terms[..], ComparisonOp::Ge, values[k] / largest);
        }
    }
    let solution = problem.solve().ok()?.into_solution().ok()?;
    let weight = |variable: &microlp::Variable| {
        let weight = solution.var_value(*variable) * largest;
        if weight.is_finite() {
            weight.max(0.0)
        } else {
            0.0
        }
    };
    let of_group = |variables: &Vec<microlp::Variable>| variables.iter().map(weight).collect();
    Some(row_variables.iter().map(of_group).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(cells: f64, rows: &[&[f64]]) -> Group {
        Group {
            cells,
            takes: vec![true; rows[0].len()],
            rows: rows.iter().map(|row| row.to_vec()).collect(),
        }
    }

    #[test]
    fn the_scarcest_resource_bounds() {
        // two cells; the first class takes half a cell of one resource, the second a quarter of the other
        let groups = [group(2.0, &[&[0.5, 0.0], &[0.0, 0.25]])];
        let bound = at_most(&groups, &[10.0, 3.0], &[1.0, 1.0]);
        assert!((bound - 7.0).abs() < 1e-6, "{bound}");
        let bound = at_most(&groups, &[3.0, 3.0], &[1.0, 1.0]);
        assert!((bound - 6.0).abs() < 1e-6, "{bound}");
    }

    #[test]
    fn what_no_cell_takes_is_not_counted() {
        let mut groups = [group(2.0, &[&[0.5, 0.5]])];
        groups[0].takes[1] = false;
        let bound = at_most(&groups, &[1.0, 5.0], &[1.0, 1.0]);
        assert!((bound - 1.0).abs() < 1e-9, "{bound}");
    }

    #[test]
    fn any_weights_bound() {
        let groups = [group(1.0, &[&[0.6, 0.3]])];
        // one of the first and one of the second fit
        for weight in [0.0, 0.5, 1.0, 3.0, 10.0] {
            let bound = weighed(&groups, &[2.0, 1.0], &[2.0, 1.0], &[vec![weight]]);
            assert!(bound >= 3.0, "{weight}: {bound}");
        }
    }
}
