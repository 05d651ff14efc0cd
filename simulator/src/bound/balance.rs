//! How evenly the instances that run at the end could have been spread over the same cells.

use crate::{
    measure::memory_distribution,
    outcome::{CellEnd, InstanceEnd},
};

/// A cell to be filled, in MiB.
#[derive(Clone, Copy, Debug)]
struct Level {
    used: i64,
    /// Number of units for which it has room.
    units: i64,
}

/// Returns the least standard deviation / mean of the memory used per cell over all ways to spread the instances that
/// began in the run over the cells that are up at its end. Instances that ran before stay where they are.
///
/// None if cells differ in memory, as then the mean of their shares depends on how the work is spread, and none if
/// nothing is used.
///
/// A lower bound: instances are treated as units of the greatest common divisor of their sizes. Filling the emptiest
/// cell unit by unit gives the least sum of squares of all ways to spread these units, and every way to spread the
/// instances is one of them.
pub(crate) fn most_even(cells: &[CellEnd]) -> Option<f64> {
    let equal = cells
        .windows(2)
        .all(|pair| pair[0].memory_mb == pair[1].memory_mb);
    if !equal {
        return None;
    }
    let up = || cells.iter().filter(|cell| !cell.gone);
    let began = || up().flat_map(|cell| cell.instances.iter().filter(|i| !i.before));
    let unit = began().map(unit_of).fold(0, greatest_common_divisor).max(1);
    let sum: i64 = began().map(|instance| instance.memory_mb).sum();
    let level = |cell: &CellEnd| {
        let began = cell.instances.iter().filter(|i| !i.before);
        let used = cell.used_mb - began.map(|i| i.memory_mb).sum::<i64>();
        let units = ((cell.memory_mb - used) / unit).max(0);
        Level { used, units }
    };
    let levels: Vec<Level> = up().map(level).collect();
    let filled = fill(&levels, unit, sum / unit);
    let used: Vec<(i64, i64)> = up()
        .zip(filled)
        .map(|(c, used)| (used, c.memory_mb))
        .collect();
    let nothing = used.iter().all(|(used, _)| *used == 0);
    (!nothing).then(|| memory_distribution(&used))
}

/// Returns a divisor of the size of each instance of an entry. If the entry stands for several, only their sum is
/// known.
fn unit_of(entry: &InstanceEnd) -> i64 {
    if entry.count == 1 { entry.memory_mb } else { 1 }
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 {
        a.abs()
    } else {
        greatest_common_divisor(b, a % b)
    }
}

/// Returns what each cell uses after `units` units went to the emptiest cell, one by one. Units that find no room are
/// left out.
fn fill(levels: &[Level], unit: i64, units: i64) -> Vec<i64> {
    let below = |level: &Level, line: i64| {
        let units = (line - level.used + unit - 1).div_euclid(unit);
        units.clamp(0, level.units)
    };
    let needed = |line: i64| levels.iter().map(|level| below(level, line)).sum::<i64>();
    // the highest line to which all cells can be filled
    let mut line = levels.iter().map(|level| level.used).min().unwrap_or(0);
    let mut above = levels
        .iter()
        .map(|level| level.used + level.units * unit)
        .max()
        .unwrap_or(0)
        + 1;
    while above - line > 1 {
        let middle = line + (above - line) / 2;
        if needed(middle) <= units {
            line = middle;
        } else {
            above = middle;
        }
    }
    let mut left = units - needed(line);
    let fill_one = |level: &Level| {
        let filled = below(level, line);
        // cells exactly at the line take one more each, as long as units are left
        let more = left > 0 && filled < level.units && level.used + filled * unit == line;
        left -= i64::from(more);
        level.used + (filled + i64::from(more)) * unit
    };
    levels.iter().map(fill_one).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cell(memory_mb: i64, before_mb: i64, sizes: &[i64]) -> CellEnd {
        let instance = |memory_mb, before| InstanceEnd {
            app: 0,
            index: 0,
            count: 1,
            memory_mb,
            before,
            task: false,
        };
        let mut instances = vec![instance(before_mb, true)];
        instances.extend(sizes.iter().map(|size| instance(*size, false)));
        CellEnd {
            cell: "c".into(),
            zone: "z".into(),
            memory_mb,
            used_mb: before_mb + sizes.iter().sum::<i64>(),
            gone: false,
            instances,
        }
    }

    /// Returns the least score over all assignments.
    fn best(cells: &[CellEnd], sizes: &[i64]) -> f64 {
        let mut best = f64::INFINITY;
        let n = cells.len();
        for code in 0..n.pow(u32::try_from(sizes.len()).unwrap()) {
            let mut used: Vec<(i64, i64)> = cells
                .iter()
                .map(|c| (c.instances[0].memory_mb, c.memory_mb))
                .collect();
            let mut code = code;
            for size in sizes {
                used[code % n].0 += size;
                code /= n;
            }
            if used.iter().all(|(used, total)| used <= total) {
                best = best.min(memory_distribution(&used));
            }
        }
        best
    }

    #[test]
    fn what_ran_before_stays() {
        let cells = [
            cell(100, 50, &[]),
            cell(100, 0, &[10, 10]),
            cell(100, 0, &[20]),
        ];
        let bound = most_even(&cells).unwrap();
        let expected = memory_distribution(&[(50, 100), (20, 100), (20, 100)]);
        assert!((bound - expected).abs() < 1e-12, "{bound} {expected}");
        assert_eq!(most_even(&[cell(100, 0, &[])]), None);
        assert_eq!(most_even(&[cell(100, 0, &[1]), cell(50, 0, &[])]), None);
    }

    #[test]
    fn a_full_cell_takes_no_more() {
        // three of 40 on three cells of 50, one of which has 45 used
        let cells = [cell(50, 45, &[]), cell(50, 0, &[40]), cell(50, 0, &[40])];
        let bound = most_even(&cells).unwrap();
        let expected = memory_distribution(&[(45, 50), (40, 50), (40, 50)]);
        assert!((bound - expected).abs() < 1e-12, "{bound} {expected}");
    }

    proptest! {
        #[test]
        fn no_assignment_is_more_even(
            before in prop::collection::vec(0_i64..30, 1..4),
            sizes in prop::collection::vec(1_i64..8, 0..6),
            factor in 1_i64..4,
        ) {
            let sizes: Vec<i64> = sizes.iter().map(|size| size * factor).collect();
            let mut cells: Vec<CellEnd> = before.iter().map(|used| cell(200, *used, &[])).collect();
            cells[0] = cell(200, before[0], &sizes);
            let best = best(&cells, &sizes);
            let used = before.iter().sum::<i64>() + sizes.iter().sum::<i64>();
            match most_even(&cells) {
                None => prop_assert_eq!(used, 0),
                Some(bound) => prop_assert!(bound <= best + 1e-12, "{} {}", bound, best),
            }
        }

        #[test]
        fn with_one_size_the_bound_is_reached(
            before in prop::collection::vec(0_i64..30, 1..4),
            count in 0_usize..6,
            size in 1_i64..20,
        ) {
            let sizes = vec![size; count];
            let mut cells: Vec<CellEnd> = before.iter().map(|used| cell(150, *used, &[])).collect();
            cells[0] = cell(150, before[0], &sizes);
            let Some(bound) = most_even(&cells) else { return Ok(()) };
            prop_assert!((bound - best(&cells, &sizes)).abs() < 1e-9);
        }
    }
}
