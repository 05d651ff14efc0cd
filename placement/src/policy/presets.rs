//! The presets and their parameters.

use std::sync::Arc;

use super::{
    Combine, Filter, Mode, Pick, Policy, Score, Stage, Step, Term, expression,
    node::{Fault, Fields},
};
use crate::invalid::Invalid;

const TEXTS: &[(&str, &str)] = &[
    ("dea", include_str!("../../policies/dea.toml")),
    ("diego", include_str!("../../policies/diego.toml")),
    (
        "diego-bin-pack",
        include_str!("../../policies/diego-bin-pack.toml"),
    ),
    ("objective", include_str!("../../policies/objective.toml")),
    ("dapi", include_str!("../../policies/dapi.toml")),
    ("rfd24", include_str!("../../policies/rfd24.toml")),
    ("dapi-2015", include_str!("../../policies/dapi-2015.toml")),
    ("random", include_str!("../../policies/random.toml")),
    ("vendue", include_str!("../../policies/vendue.toml")),
];

impl Policy {
    /// The names of the presets.
    pub const PRESETS: &'static [&'static str] = &[
        "dea",
        "diego",
        "diego-bin-pack",
        "objective",
        "dapi",
        "rfd24",
        "dapi-2015",
        "random",
        "vendue",
    ];

    /// Returns a preset by its name.
    pub fn preset(name: &str) -> Result<Self, Invalid> {
        find(name).ok_or_else(|| {
            let expected = format!("one of {}", Self::PRESETS.join(", "));
            Invalid::new("policy", format!("{name:?}"), expected)
        })
    }

    /// Returns a preset's policy file, with its comments.
    pub fn preset_text(name: &str) -> Option<&'static str> {
        TEXTS
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, text)| *text)
    }
}

pub(super) fn find(name: &str) -> Option<Policy> {
    // a preset that does not parse would fail every test; here it is simply not found
    Policy::preset_text(name).and_then(|text| Policy::parse(text).ok())
}

/// Applies a scenario's flat parameters to a preset. Only parameters for which the preset has a stage are known; the
/// others stay in `fields` and are rejected there.
pub(super) fn parameters(policy: &mut Policy, fields: &mut Fields) -> Result<(), Fault> {
    if policy.name.starts_with("diego")
        && let Some(limit) = fields.count("max_in_flight")?
    {
        policy.max_in_flight = limit;
    }
    let ranked = matches!(policy.name.as_str(), "dapi" | "rfd24");
    if ranked {
        let modes = [("rank", Mode::Rank), ("ratio", Mode::Ratio)];
        if let Some(mode) = fields.word("mode", &modes)? {
            for score in scores(policy).filter(|score| score.term.has_mode()) {
                score.mode = mode;
            }
        }
        let combines = [("sum", Combine::Sum), ("product", Combine::Product)];
        if let Some(combine) = fields.word("combine", &combines)? {
            policy.combine = combine;
        }
        reboot_within(policy, fields)?;
    }
    for score in scores(policy) {
        weight(score, fields)?;
    }
    for stage in &mut policy.stages {
        if let Step::Filter(Filter::ContainerCount { limit }) = &mut stage.step
            && let Some(given) = fields.count("max_containers")?
        {
            *limit = given;
        }
    }
    if policy.name == "dapi-2015" {
        sort(policy, fields)?;
    }
    Ok(())
}

fn scores(policy: &mut Policy) -> impl Iterator<Item = &mut Score> {
    policy
        .stages
        .iter_mut()
        .filter_map(|stage| match &mut stage.step {
            Step::Score(score) => Some(score),
            _ => None,
        })
}

fn weight(score: &mut Score, fields: &mut Fields) -> Result<(), Fault> {
    let key = match &mut score.term {
        Term::Starting => "starting_weight",
        Term::Index { raw } => {
            let modes = [("rank", false), ("raw", true)];
            *raw = fields.word("index_mode", &modes)?.unwrap_or(*raw);
            "index_weight"
        }
        Term::Memory => "memory_weight",
        Term::Disk => "disk_weight",
        Term::Platform => "platform_weight",
        Term::Reboot => "reboot_weight",
        Term::Owner => "owner_weight",
        Term::Random => "random_weight",
        Term::Hardware => "hardware_weight",
        Term::Objective(objective) => {
            *objective = Arc::new(expression::objective(fields, Some(objective))?);
            return Ok(());
        }
        Term::Resources
        | Term::Used { .. }
        | Term::Fragmentation { .. }
        | Term::AppInstances
        | Term::GroupInstances(_)
        | Term::Preferred
        | Term::Tasks => return Ok(()),
    };
    if let Some((weight, _)) = fields.number(key)? {
        score.weight = weight;
    }
    Ok(())
}

fn reboot_within(policy: &mut Policy, fields: &mut Fields) -> Result<(), Fault> {
    let days_or_batch = fields.either("reboot_within")?;
    let Some((days, batch)) = days_or_batch else {
        return Ok(());
    };
    let filter = Step::Filter(Filter::RebootWithin { days, batch });
    let stage = Stage {
        step: filter,
        kind: None,
    };
    policy.stages.insert(1, stage);
    Ok(())
}

fn sort(policy: &mut Policy, fields: &mut Fields) -> Result<(), Fault> {
    let sorts = [
        ("sort-min-ram", (0, false)),
        ("sort-max-ram", (0, true)),
        ("sort-min-owner", (1, false)),
        ("sort-random", (2, false)),
    ];
    let Some((term, descending)) = fields.word("sort", &sorts)? else {
        return Ok(());
    };
    if let Pick::FirstOf { highest, .. } = &mut policy.pick {
        *highest = descending;
    }
    for score in scores(policy) {
        (score.term, score.mode) = match term {
            0 => (Term::Memory, Mode::Raw),
            1 => (Term::Owner, Mode::Raw),
            _ => (Term::Random, Mode::Ratio),
        };
    }
    Ok(())
}
