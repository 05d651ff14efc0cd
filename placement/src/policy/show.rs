//! Writes a policy in canonical form: the input of `hash`, and the text of a changed preset.

use std::fmt::Write;

use super::{Combine, Filter, Mode, Narrow, Order, Pick, Policy, Score, Step, Term};

impl Policy {
    /// Returns the policy as a file that parses to the same policy.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        // writing to a String cannot fail
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        let order = match self.order {
            Order::Asked => "asked",
            Order::Diego => "diego",
            Order::LargestFirst => "largest-first",
        };
        let combine = match self.combine {
            Combine::Sum => "sum",
            Combine::Product => "product",
        };
        writeln!(out, "name = {:?}", self.name)?;
        writeln!(out, "order = {order:?}")?;
        writeln!(out, "bids = {}", self.bids)?;
        writeln!(out, "max_in_flight = {}", self.max_in_flight)?;
        if self.max_starting_per_cell > 0 {
            let limit = self.max_starting_per_cell;
            writeln!(out, "max_starting_per_cell = {limit}")?;
            writeln!(out, "max_deferral = \"{}\"", self.max_deferral)?;
        }
        writeln!(out, "combine = {combine:?}")?;
        for stage in &self.stages {
            writeln!(out, "\n[[stage]]")?;
            match &stage.step {
                Step::Filter(filter) => write_filter(out, filter)?,
                Step::Narrow(narrow) => {
                    writeln!(out, "narrow = {:?}", narrow.name())?;
                    if let Narrow::Fewest(grouping) = narrow {
                        writeln!(out, "by = {}", quote(&grouping.name()))?;
                    }
                }
                Step::Score(score) => write_score(out, score)?,
            }
            if let Some(kind) = stage.kind {
                writeln!(out, "kind = \"{kind}\"")?;
            }
        }
        writeln!(out, "\n[[stage]]")?;
        match &self.pick {
            Pick::Lowest => writeln!(out, "pick = \"lowest\"")?,
            Pick::Highest => writeln!(out, "pick = \"highest\"")?,
            Pick::Sample => writeln!(out, "pick = \"sample\"")?,
            Pick::FirstOf { fraction, highest } => {
                let order = if *highest { "highest" } else { "lowest" };
                writeln!(
                    out,
                    "pick = \"first-of\"\nfraction = {fraction:?}\norder = {order:?}"
                )?;
            }
        }
        match &self.expected {
            Some(expected) => out.write_str(&expected.to_toml()),
            None => Ok(()),
        }
    }
}

fn write_filter(out: &mut String, filter: &Filter) -> std::fmt::Result {
    writeln!(out, "filter = {:?}", filter.name())?;
    match filter {
        Filter::ContainerCount { limit } => writeln!(out, "limit = {limit}"),
        Filter::RebootWithin { days, batch } => {
            if let Some(days) = days {
                writeln!(out, "days = {days:?}")?;
            }
            if let Some(batch) = batch {
                writeln!(out, "batch = {}", quote(batch))?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn write_score(out: &mut String, score: &Score) -> std::fmt::Result {
    writeln!(out, "score = {:?}", score.term.name())?;
    writeln!(out, "weight = {:?}", score.weight)?;
    if score.term.has_mode() {
        let mode = match score.mode {
            Mode::Rank => "rank",
            Mode::Ratio => "ratio",
            Mode::Raw => "raw",
        };
        writeln!(out, "mode = {mode:?}")?;
    }
    match &score.term {
        Term::Used { of, squared } => {
            let names: Vec<String> = of.iter().map(|name| quote(name.name())).collect();
            writeln!(out, "of = [{}]", names.join(", "))?;
            if *squared {
                writeln!(out, "squared = true")?;
            }
            Ok(())
        }
        Term::Fragmentation {
            fragments,
            steps,
            scarce_below,
        } => {
            writeln!(out, "of = {}\nsteps = {steps}", quote(fragments.of.name()))?;
            if fragments.packed {
                writeln!(out, "packed = true")?;
            }
            if let Some(resource) = fragments.fed_by {
                writeln!(out, "fed_by = {:?}", resource.name())?;
            }
            match scarce_below {
                Some(below) => writeln!(out, "scarce_below = {below:?}"),
                None => Ok(()),
            }
        }
        Term::GroupInstances(grouping) => writeln!(out, "by = {}", quote(&grouping.name())),
        Term::Index { raw } => {
            let mode = if *raw { "raw" } else { "rank" };
            writeln!(out, "index_mode = {mode:?}")
        }
        Term::Objective(objective) => {
            writeln!(out, "expression = {}", quote(objective.text()))?;
            if let Some(azs) = objective.constants().azs {
                writeln!(out, "azs = {azs:?}")?;
            }
            let constants: Vec<String> = objective
                .constants()
                .iter()
                .map(|(name, value)| format!("{name} = {value:?}"))
                .collect();
            writeln!(out, "constants = {{ {} }}", constants.join(", "))
        }
        _ => Ok(()),
    }
}

/// Quotes a TOML basic string.
fn quote(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
