//! The contenders of a scenario: policies, and the auctions of 2014.

use std::collections::BTreeSet;

use placement::Policy;
use scenarios::ScenarioError;
use serde_json::Value;

use super::read;
use crate::auctions_2014::{Algorithm, Rules};

/// One contender.
#[derive(Clone, Debug, PartialEq)]
pub struct Contender {
    /// Its name in the report; unique in a scenario.
    pub label: String,
    /// How it decides.
    pub decider: Decider,
}

/// How a contender decides.
#[derive(Clone, Debug, PartialEq)]
pub enum Decider {
    /// vendue's auctioneers with this policy.
    Policy(Box<Policy>),
    /// An auction of 2014 for each instance.
    Auctions2014(Rules),
}

/// The names that select an auction of 2014.
pub const AUCTIONS_2014: [&str; 8] = [
    "diego-2014-random",
    "diego-2014-pick-best",
    "diego-2014-reserve-n-best",
    "diego-2014-all-rebid",
    "diego-2014-random-slow-starts",
    "diego-2014-pick-best-slow-starts",
    "diego-2014-reserve-n-best-slow-starts",
    "diego-2014-all-rebid-slow-starts",
];

impl Contender {
    /// Parses a preset, one of [`AUCTIONS_2014`], a table of parameters over a preset, or a table with the rules of an
    /// auction of 2014 under `auctions_2014`. Tables may have a `label`. `at` is the path in the file.
    pub fn read(value: &Value, at: &str) -> Result<Self, ScenarioError> {
        if let Some(named) = value.as_str().and_then(auction_by_name) {
            return Ok(named);
        }
        let mut value = value.clone();
        let label = match value
            .as_object_mut()
            .and_then(|fields| fields.remove("label"))
        {
            None => None,
            Some(Value::String(label)) if !label.is_empty() => Some(label),
            Some(other) => {
                let at = format!("{at}.label");
                return Err(read::wrong(&at, &other, "a non-empty string"));
            }
        };
        if let Some(rules) = value.get("auctions_2014") {
            return auction_of_table(&value, rules, label, at);
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

impl Contender {
    /// Returns its form in a scenario file: the name of a preset or an auction of 2014, else the whole policy.
    pub(super) fn to_toml(&self) -> toml::Value {
        let Decider::Policy(policy) = &self.decider else {
            return self.label.clone().into();
        };
        if Policy::preset(&self.label).is_ok_and(|preset| preset == **policy) {
            return self.label.clone().into();
        }
        // a policy's own output can be parsed
        let mut table: toml::Table = policy.to_toml().parse().unwrap_or_default();
        if self.label != policy.name() {
            table.insert("label".into(), self.label.clone().into());
        }
        table.into()
    }
}

fn auction_by_name(name: &str) -> Option<Contender> {
    let position = AUCTIONS_2014.iter().position(|known| *known == name)?;
    let algorithms = Algorithm::ALL;
    let algorithm = algorithms[position % algorithms.len()];
    let rules = if position < algorithms.len() {
        Rules::of(algorithm)
    } else {
        Rules::with_slow_starts(algorithm)
    };
    Some(Contender {
        label: name.to_owned(),
        decider: Decider::Auctions2014(rules),
    })
}

fn auction_of_table(
    table: &Value,
    rules: &Value,
    label: Option<String>,
    at: &str,
) -> Result<Contender, ScenarioError> {
    let others = table.as_object().into_iter().flat_map(|table| table.keys());
    if let Some(other) = others.into_iter().find(|key| *key != "auctions_2014") {
        let at = format!("{at}.{other}");
        let expected = "only \"label\" with \"auctions_2014\"";
        return Err(read::wrong(&at, &table[other], expected));
    }
    let rules: Rules = read::table(rules.clone(), &format!("{at}.auctions_2014"))?;
    let name = format!("diego-2014-{}", rules.algorithm.name().replace('_', "-"));
    Ok(Contender {
        label: label.unwrap_or(name),
        decider: Decider::Auctions2014(rules),
    })
}

pub(super) fn read_all(values: &[Value]) -> Result<Vec<Contender>, ScenarioError> {
    if values.is_empty() {
        let none = Value::Array(Vec::new());
        return Err(read::wrong("policies", &none, "at least one policy"));
    }
    let mut labels = BTreeSet::new();
    let mut contenders = Vec::with_capacity(values.len());
    for (i, value) in values.iter().enumerate() {
        let at = format!("policies[{i}]");
        let contender = Contender::read(value, &at)?;
        if !labels.insert(contender.label.clone()) {
            let label = contender.label.as_str().into();
            let expected = "each policy once, or tables with different labels";
            return Err(read::wrong(&at, &label, expected));
        }
        contenders.push(contender);
    }
    Ok(contenders)
}
