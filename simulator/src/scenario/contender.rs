//! Under what a scenario is played: policies, and the auctions of the NATS era.

use std::collections::BTreeSet;

use placement::{Policy, ScenarioError};
use serde_json::Value;

use super::read;
use crate::era::{Algorithm, Rules};

/// One of those that are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Its name in the report; unique among a scenario's.
    pub label: String,
    /// How it decides.
    pub decider: Decider,
}

/// How a contender decides.
#[derive(Clone, Debug, PartialEq)]
pub enum Decider {
    /// vendue's auctioneers with this policy.
    Policy(Box<Policy>),
    /// An auction of 2014, one for each instance.
    Era(Rules),
}

/// The auctions of the NATS era, by the names that select them.
pub const ERA: [&str; 4] = [
    "era-random",
    "era-pick-best",
    "era-reserve-n-best",
    "era-all-rebid",
];

impl Contender {
    /// A preset, one of [`ERA`], a table of parameters laid over a preset, or a table with the
    /// rules of an auction of 2014 under `era`; tables with a `label` or without. `at`: where it stands in the file.
    pub fn read(value: &Value, at: &str) -> Result<Self, ScenarioError> {
        let named = ERA.iter().zip(Algorithm::ALL);
        if let Some((name, algorithm)) = named.into_iter().find(|(name, _)| value == **name) {
            return Ok(Self {
                label: (*name).to_owned(),
                decider: Decider::Era(Rules::of(algorithm)),
            });
        }
        let mut value = value.clone();
        let label = match value
            .as_object_mut()
            .and_then(|fields| fields.remove("label"))
        {
            None => None,
            Some(Value::String(label)) if !label.is_empty() => Some(label),
            Some(other) => {
                return Err(read::wrong(
                    &format!("{at}.label"),
                    &other,
                    "a name for the report",
                ));
            }
        };
        if let Some(rules) = value.get("era") {
            let rules: Rules = read::table(rules.clone(), &format!("{at}.era"))?;
            let name = format!("era-{}", rules.algorithm.name().replace('_', "-"));
            return Ok(Self {
                label: label.unwrap_or(name),
                decider: Decider::Era(rules),
            });
        }
        let policy = Policy::from_json(&value).map_err(|e| ScenarioError::Field {
            at: at.into(),
            message: e.to_string(),
        })?;
        Ok(Self {
            label: label.unwrap_or_else(|| policy.name().to_owned()),
            decider: Decider::Policy(Box::new(policy)),
        })
    }
}

pub(super) fn read_all(values: &[Value]) -> Result<Vec<Contender>, ScenarioError> {
    let mut labels = BTreeSet::new();
    let mut all = Vec::with_capacity(values.len());
    for (i, value) in values.iter().enumerate() {
        let at = format!("policies[{i}]");
        let contender = Contender::read(value, &at)?;
        if !labels.insert(contender.label.clone()) {
            let label = contender.label.as_str().into();
            return Err(read::wrong(
                &at,
                &label,
                "each policy once, or labels that tell them apart",
            ));
        }
        all.push(contender);
    }
    Ok(all)
}
