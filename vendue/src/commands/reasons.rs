//! Explains in one line why an instance found no place.

use placement::Tally;

use crate::output::counted;

/// Formats the reason with its numbers: `insufficient resources: memory (needs 900 MiB, the best of 4 cells has 100
/// MiB)`. What the reason does not name follows after a semicolon.
pub(crate) fn why(reason: Option<&str>, tally: &[Tally]) -> String {
    const LACKING: &str = "insufficient resources: ";
    let reason = reason.unwrap_or_default();
    let mut rest: Vec<&Tally> = tally.iter().collect();
    let mut parts = Vec::new();
    if let Some(names) = reason.strip_prefix(LACKING) {
        let with_numbers = |name: &str| {
            let at = rest.iter().position(|row| resource(row) == name);
            let numbers = at.and_then(|at| numbers(rest.remove(at)));
            numbers.map_or(name.to_owned(), |numbers| format!("{name} ({numbers})"))
        };
        let names: Vec<String> = names.split(", ").map(with_numbers).collect();
        parts.push(format!("{LACKING}{}", names.join(", ")));
    } else if !reason.is_empty() {
        parts.push(reason.to_owned());
        // a refusal such as `z1-cell-0 refused: draining` is complete
        rest.retain(|row| {
            let said = row.reason.as_deref();
            row.cells != 1 || row.needs.is_some() || !said.is_some_and(|r| reason.ends_with(r))
        });
        // one stage dropped all cells, and the reason is about it: only the count is missing
        if let [row] = rest[..]
            && row.cells > 0
            && row.reason.is_none()
            && row.needs.is_none()
            && row.names.is_empty()
        {
            return format!("{reason} ({} dropped)", counted(row.cells, "cell"));
        }
    }
    parts.extend(rest.into_iter().map(|row| dropped(row, !reason.is_empty())));
    parts.join("; ")
}

/// Formats a row without what the preceding reason has said, namely its stage if the row has a reason of its own.
fn dropped(row: &Tally, after_reason: bool) -> String {
    let words = row.in_words();
    let stage = format!("{}: ", row.stage);
    match words.strip_prefix(&stage) {
        Some(rest) if after_reason && row.cells > 0 && row.reason.is_some() => {
            rest.replacen(" dropped, ", " dropped: ", 1)
        }
        _ => words,
    }
}

/// Returns the resource that a row is about, as a reason names it.
fn resource(row: &Tally) -> &str {
    match (row.stage.as_str(), &row.reason) {
        ("extra", Some(name)) => name,
        (stage, _) => stage,
    }
}

fn numbers(row: &Tally) -> Option<String> {
    let unit = match row.stage.as_str() {
        "memory" | "disk" => " MiB",
        "cpu" => " millis",
        _ => "",
    };
    let (needs, best) = (row.needs?, row.best?);
    if let Some(devices) = &row.devices {
        let amount = devices.amount;
        if devices.devices > 0 && devices.most >= amount {
            return Some(format!(
                "needs {needs} devices with {amount} free, the best cell has {best}"
            ));
        }
        let count = (needs > 1.0).then(|| format!("needs {needs}; "));
        return Some(format!("{}{devices}", count.unwrap_or_default()));
    }
    let of = match row.cells {
        0 => String::new(), // other rows have counted these cells
        1 => " of 1 cell".to_owned(),
        n => format!(" of {n} cells"),
    };
    let names = match row.names.as_slice() {
        [] => String::new(),
        names => format!(": {}", names.join(", ")),
    };
    Some(format!(
        "needs {needs}{unit}, the best{of} has {best}{unit}{names}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(stage: &str, cells: usize, numbers: Option<(f64, f64)>, reason: Option<&str>) -> Tally {
        Tally {
            stage: stage.into(),
            cells,
            needs: numbers.map(|(needs, _)| needs),
            best: numbers.map(|(_, best)| best),
            reason: reason.map(Into::into),
            devices: None,
            names: Vec::new(),
        }
    }

    #[test]
    fn reasons_have_no_repetition_and_numbers_have_units() {
        let memory = || row("memory", 4, Some((900.0, 100.0)), None);
        let disk = row("disk", 0, Some((50.0, 7.0)), None);
        let gpu = row("extra", 1, Some((1.0, 0.0)), Some("gpu"));
        let stack = row("stack", 2, None, None);
        let lacking = Some("insufficient resources: memory");
        assert_eq!(
            why(lacking, &[memory()]),
            "insufficient resources: memory (needs 900 MiB, the best of 4 cells has 100 MiB)"
        );
        assert_eq!(
            why(
                Some("insufficient resources: memory, disk"),
                &[memory(), disk]
            ),
            "insufficient resources: memory (needs 900 MiB, the best of 4 cells has 100 MiB), \
             disk (needs 50 MiB, the best has 7 MiB)"
        );
        assert_eq!(
            why(Some("insufficient resources: gpu"), &[gpu]),
            "insufficient resources: gpu (needs 1, the best of 1 cell has 0)"
        );
        let cards = |needs, most| Tally {
            devices: Some(placement::FreeDevices {
                amount: 300,
                most,
                devices: 3,
            }),
            ..row("extra", 12, Some((needs, needs - 1.0)), Some("gpu"))
        };
        let lacking_gpu = Some("insufficient resources: gpu");
        assert_eq!(
            why(lacking_gpu, &[cards(1.0, 200)]),
            "insufficient resources: gpu (3 devices have 200 free, none has 300)"
        );
        assert_eq!(
            why(lacking_gpu, &[cards(4.0, 300)]),
            "insufficient resources: gpu (needs 4 devices with 300 free, the best cell has 3)"
        );
        assert_eq!(
            why(lacking, &[memory(), stack.clone()]),
            "insufficient resources: memory (needs 900 MiB, the best of 4 cells has 100 MiB); \
             stack: 2 cells dropped"
        );
        assert_eq!(
            why(Some("no stack"), &[stack]),
            "no stack (2 cells dropped)"
        );
        let refusal = "z1-cell-0 refused: draining";
        let draining = |cells| row("cell", cells, None, Some("draining"));
        assert_eq!(why(Some(refusal), &[draining(1)]), refusal);
        assert_eq!(
            why(Some(refusal), &[draining(2)]),
            "z1-cell-0 refused: draining; 2 cells dropped: draining"
        );
        let tags = "placement tags are required, and none were asked for";
        assert_eq!(
            why(
                Some("found no compatible cell with no placement tags"),
                &[row("placement-tags", 4, None, Some(tags))]
            ),
            format!("found no compatible cell with no placement tags; 4 cells dropped: {tags}")
        );
        assert_eq!(why(lacking, &[]), "insufficient resources: memory");
        assert_eq!(why(None, &[]), "");
    }
}
