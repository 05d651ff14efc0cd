//! The weights of a policy: read from its file, drawn anew, written back.

use placement::Policy;

use crate::random::Random;

/// The weight of one score stage.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Weight {
    /// The score, with what distinguishes it from others: `fragmentation of gpu`.
    pub score: String,
    /// The weight.
    pub weight: f64,
}

/// Why a policy cannot be tuned.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// It has no scores.
    #[error(
        "{0}: has no score with a weight other than 0; expected a policy whose scores can be weighed"
    )]
    NoWeights(String),
    /// Its own output is not a policy; this should not happen.
    #[error("{0}: {1}")]
    Unreadable(String, String),
}

/// A policy's file with its weights.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    file: toml::Table,
    /// The positions of the score stages with a weight other than 0.
    stages: Vec<usize>,
    /// Their original weights.
    pub(super) own: Vec<f64>,
}

impl Weights {
    pub(super) fn of(policy: &Policy) -> Result<Self, WeightsError> {
        let unreadable = |why: &dyn std::fmt::Display| {
            WeightsError::Unreadable(policy.name().into(), why.to_string())
        };
        let file: toml::Table = policy.to_toml().parse().map_err(|e| unreadable(&e))?;
        let stages = file.get("stage").and_then(toml::Value::as_array);
        let weights = stages.into_iter().flatten().enumerate();
        let weights = weights.filter_map(|(n, stage)| {
            stage.get("score")?;
            let weight = stage.get("weight").map_or(Some(1.0), number)?;
            (weight != 0.0).then_some((n, weight))
        });
        let (stages, own): (Vec<_>, Vec<_>) = weights.unzip();
        if stages.is_empty() {
            return Err(WeightsError::NoWeights(policy.name().into()));
        }
        Ok(Self { file, stages, own })
    }

    /// Returns the weights with the names of their scores.
    pub(super) fn named(&self, weights: &[f64]) -> Vec<Weight> {
        let named = self.stages.iter().zip(weights);
        let named = named.map(|(stage, weight)| Weight {
            score: self.score(*stage),
            weight: *weight,
        });
        named.collect()
    }

    fn score(&self, stage: usize) -> String {
        let field = |name: &str| self.file.get("stage")?.as_array()?.get(stage)?.get(name);
        let text = |value: &toml::Value| match value {
            toml::Value::Array(names) => {
                let names: Vec<&str> = names.iter().filter_map(toml::Value::as_str).collect();
                names.join(", ")
            }
            value => value.as_str().unwrap_or_default().to_owned(),
        };
        let score = field("score").map(text).unwrap_or_default();
        let packed = field("packed").is_some().then(|| "packed".to_owned());
        match (field("of").map(text), field("kind").map(text).or(packed)) {
            (Some(of), Some(kind)) => format!("{score} of {of} ({kind})"),
            (Some(of), None) => format!("{score} of {of}"),
            (None, Some(kind)) => format!("{score} ({kind})"),
            (None, None) => score,
        }
    }

    /// Returns the policy with these weights, under this name.
    pub(super) fn policy(&self, weights: &[f64], name: &str) -> Result<Policy, WeightsError> {
        let mut file = self.file.clone();
        file.insert("name".into(), name.into());
        let mut stages = file.get_mut("stage").and_then(toml::Value::as_array_mut);
        for (stage, weight) in self.stages.iter().zip(weights) {
            let table = stages.as_mut().and_then(|stages| stages.get_mut(*stage));
            if let Some(table) = table.and_then(toml::Value::as_table_mut) {
                table.insert("weight".into(), (*weight).into());
            }
        }
        let text = toml::to_string(&file).unwrap_or_default();
        Policy::parse(&text).map_err(|e| WeightsError::Unreadable(name.into(), e.to_string()))
    }

    /// Multiplies each weight by a factor of its own, from 1/30 to 30.
    pub(super) fn draw_all(&self, random: &mut Random) -> Vec<f64> {
        let drawn = self
            .own
            .iter()
            .map(|own| rounded(own * factor(random, 30.0)));
        drawn.collect()
    }
}

/// Multiplies one or two of these weights by a factor from 1/4 to 4.
pub(super) fn changed(weights: &[f64], random: &mut Random) -> Vec<f64> {
    let mut weights = weights.to_vec();
    for _ in 0..=random.below(2) {
        let n = random.place(weights.len());
        weights[n] = rounded(weights[n] * factor(random, 4.0));
    }
    weights
}

fn number(value: &toml::Value) -> Option<f64> {
    #[allow(clippy::cast_precision_loss)] // weights are small
    let whole = value.as_integer().map(|n| n as f64);
    value.as_float().or(whole)
}

/// Draws a factor from 1/`most` to `most`, with each order of magnitude equally likely.
fn factor(random: &mut Random, most: f64) -> f64 {
    ((2.0 * random.unit() - 1.0) * most.ln()).exp()
}

/// Rounds to three digits: more would be meaningless, and people read the file.
fn rounded(weight: f64) -> f64 {
    format!("{weight:.2e}").parse().unwrap_or(weight)
}
