//! What the original systems decided, case by case.
#![allow(clippy::unwrap_used)] // a test may panic

use placement::{DecisionReport, Explain};
use scenarios::OfflineAuction;
use serde_json::Value;

fn check(file: &str, text: &str) {
    let cases: Value = serde_json::from_str(text).unwrap();
    let cases = cases["cases"].as_array().unwrap();
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| differs(case).err())
        .collect();
    assert!(
        wrong.is_empty(),
        "{file}: {} of {} cases differ\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

fn differs(case: &Value) -> Result<(), String> {
    let name = case["name"].as_str().unwrap_or_default();
    let scenario = OfflineAuction::from_json(&case["scenario"].to_string())
        .map_err(|e| format!("{name}: {e}"))?;
    let report = scenario.run(Explain::Finalists);
    let expected = case["expect"].as_array().unwrap();
    if report.decisions.len() != expected.len() {
        return Err(format!(
            "{name}: {} decisions, not {}",
            report.decisions.len(),
            expected.len()
        ));
    }
    for (decision, expected) in report.decisions.iter().zip(expected) {
        compare(decision, expected).map_err(|e| {
            format!(
                "{name}: {} {}.{}: {e}",
                decision.kind, decision.app, decision.index
            )
        })?;
    }
    Ok(())
}

fn compare(decision: &DecisionReport, expected: &Value) -> Result<(), String> {
    let same = |what: &str, ours: Value| match expected.get(what) {
        Some(theirs) if *theirs != ours => Err(format!("{what} is {ours}, not {theirs}")),
        _ => Ok(()),
    };
    same("kind", decision.kind.to_string().into())?;
    same("app", decision.app.clone().into())?;
    same("index", decision.index.into())?;
    same("outcome", decision.outcome.to_string().into())?;
    same("cell", decision.cell.as_deref().into())?;
    same("reason", decision.reason.clone().into())?;
    let finalists: Vec<Value> = decision
        .finalists
        .iter()
        .map(|name| (**name).into())
        .collect();
    if let Some(cell) = decision.cell.as_deref()
        && !finalists.contains(&cell.into())
    {
        return Err(format!("{cell} won and is no finalist"));
    }
    same("finalists", finalists.into())?;
    for (what, ours) in [("cost", decision.cost), ("score", decision.score)] {
        let Some(theirs) = expected.get(what).and_then(Value::as_f64) else {
            continue;
        };
        if ours.is_none_or(|ours| (ours - theirs).abs() > 1e-9) {
            return Err(format!("{what} is {ours:?}, not {theirs}"));
        }
    }
    Ok(())
}

#[test]
fn the_dea_pool() {
    check("dea.json", include_str!("vectors/dea.json"));
}

#[test]
fn diego() {
    check("diego.json", include_str!("vectors/diego.json"));
}

#[test]
fn triton() {
    check("dapi.json", include_str!("vectors/dapi.json"));
}
