//! The expression and constants of an `objective` stage, from a policy's file or its parameters.

use super::node::{Fault, Fields, Value, wrong};
use crate::objective::{Constants, Objective};

/// The weights of the preset's expression.
const WEIGHTS: [&str; 4] = ["alpha", "beta", "gamma", "delta"];

/// Reads the objective's text and constants; `base` has those of a preset.
pub(super) fn objective(fields: &mut Fields, base: Option<&Objective>) -> Result<Objective, Fault> {
    let at = fields.at;
    let given = fields.text("expression")?;
    let mut weights_at = None;
    let mut constants = base.map_or_else(Constants::default, |o| o.constants().clone());
    for key in WEIGHTS {
        if let Some((value, at)) = fields.number(key)? {
            constants.set(key, value);
            weights_at = weights_at.or(Some(at));
        }
    }
    if let Some(table) = fields.take("constants") {
        weights_at = weights_at.or(Some(table.at));
        let Value::Table(entries) = table.value else {
            return Err(wrong("constants", &table, "a table of numbers"));
        };
        for (name, at, node) in entries {
            let Value::Number(value) = node.value else {
                return Err(wrong(&name, &node, "a number"));
            };
            if !constants.set(&name, value) {
                return Err(Fault::new(
                    at,
                    format!(
                        "{name:?} cannot name a constant; expected a name of letters, digits and _ that is not mod, count, ai, r or AZs"
                    ),
                ));
            }
        }
    }
    if let Some((azs, azs_at)) = fields.number("azs")? {
        if azs < 1.0 || azs.fract() != 0.0 {
            return Err(Fault::new(
                azs_at,
                format!("azs is {azs}; expected an integer from 1"),
            ));
        }
        constants.azs = Some(azs);
    }
    let Some((text, text_at)) = given else {
        if base.is_none() && weights_at.is_none() {
            let message = "score objective has nothing to compute; expected expression = \"…\", or alpha, \
                beta, gamma and delta (weights >= 0 that sum to 1) for the preset's expression";
            return Err(Fault::new(at, message));
        }
        let text = base.map_or(Objective::DEFAULT, |o| o.text());
        for key in WEIGHTS {
            if constants.get(key).is_none() {
                // the preset's expression uses all four
                constants.set(key, 0.0);
            }
        }
        // the expression is the preset's, so a parameter is wrong
        let place = weights_at.unwrap_or(at);
        return Objective::parse(text, &constants)
            .map_err(|e| Fault::new(place, format!("expression: {e}")));
    };
    Objective::parse(&text, &constants).map_err(|e| Fault::within(text_at, text, e))
}
