//! The objective language: arithmetic over a request (`ai`) and a bid (`r`), deliberately small.
//!
//! ```text
//! expr   = term { ("+" | "-") term }
//! term   = factor { ("*" | "/") factor | "mod" constant }
//! factor = "-" factor | number | constant | ai.NAME | r.NAME | amount | count(id, list) | "(" expr ")"
//! amount = ("ai.Required." | "r.Available." | "r.Total.") RESOURCE
//! ```
//! Every value is a 64-bit float; `mod` is the floor modulus. There are no calls, loops or texts.

mod eval;
mod parse;
mod program;

pub(crate) use eval::{Facts, JobFacts, amount};
pub use parse::ObjectiveError;
pub(crate) use parse::{AmountOf, Binary, Id, List, OfCell};
pub(crate) use program::{Op, Program, apply};

use parse::Node;

/// A parsed and checked objective with its constants.
#[derive(Clone, Debug, PartialEq)]
pub struct Objective {
    text: String,
    constants: Constants,
    tree: Node,
    program: Program,
}

/// The named numbers that an objective may use.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constants {
    named: Vec<(String, f64)>,
    /// The number of zones that `AZs` stands for; if none, the actual number.
    pub azs: Option<f64>,
}

impl Constants {
    /// Sets a constant; returns false if the name is invalid or reserved by the language.
    pub fn set(&mut self, name: &str, value: f64) -> bool {
        let mut letters = name.chars();
        let first = letters.next().is_some_and(|c| c.is_ascii_alphabetic());
        let rest = letters.all(|c| c.is_ascii_alphanumeric() || c == '_');
        let taken = ["mod", "count", "ai", "r", "AZs"].contains(&name);
        if !first || !rest || taken || !value.is_finite() || self.named.len() >= 64 {
            return false;
        }
        match self.named.iter_mut().find(|(known, _)| known == name) {
            Some(entry) => entry.1 = value,
            None => self.named.push((name.to_owned(), value)),
        }
        true
    }

    /// Returns a constant's value.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.named.iter().find(|(n, _)| n == name).map(|(_, v)| *v)
    }

    /// Returns all constants, in the order in which they were set.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.named
            .iter()
            .map(|(name, value)| (name.as_str(), *value))
    }
}

impl Objective {
    /// The expression of the preset `objective`.
    pub const DEFAULT: &'static str = "(ai.InstanceNumber + ai.AppID + r.AvailZoneNumber) mod AZs + 1 \
         + alpha*count(ai.AppSourceBlobID, r.CachedBlobIDs) \
         + beta*(r.AvailableMemoryMB / r.TotalMemoryMB) \
         + gamma*(r.AvailableDiskMB / r.TotalDiskMB) \
         + delta*(1 - count(ai.AppID, r.RunningAppIDs) / ai.TotalInstances)";

    /// Parses and checks an expression.
    pub fn parse(text: &str, constants: &Constants) -> Result<Self, ObjectiveError> {
        let tree = parse::parse(text, constants)?;
        let default = text.split_whitespace().eq(Self::DEFAULT.split_whitespace());
        if default {
            check_weights(text, constants)?;
        }
        Ok(Self {
            text: text.to_owned(),
            constants: constants.clone(),
            program: Program::compile(&tree),
            tree,
        })
    }

    /// Returns the expression as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the constants that it was parsed with.
    pub fn constants(&self) -> &Constants {
        &self.constants
    }

    /// Returns the parsed tree, one node per line, with children indented.
    pub fn tree(&self) -> String {
        let mut out = String::new();
        self.tree.show(0, &mut out);
        out
    }

    /// Returns whether it uses the cells' cached blobs.
    pub(crate) fn counts_blobs(&self) -> bool {
        self.counts().any(|(_, list)| list == List::Blobs)
    }

    /// Returns whether it uses the cells' instances.
    pub(crate) fn counts_apps(&self) -> bool {
        self.counts().any(|(_, list)| list == List::Apps)
    }

    /// Returns the names whose instances it counts.
    pub(crate) fn counted_apps<'a>(
        &'a self,
        request: &'a crate::request::Request,
    ) -> impl Iterator<Item = &'a str> {
        let of_apps = self.counts().filter(|(_, list)| *list == List::Apps);
        of_apps.filter_map(|(id, _)| match id {
            Id::App => Some(request.app.as_str()),
            Id::Blob => request.blob().map(String::as_str),
            Id::Stack => request.stack.as_deref(),
        })
    }

    fn counts(&self) -> impl Iterator<Item = (Id, List)> {
        self.program.ops().iter().filter_map(|op| match op {
            Op::Count(id, list) => Some((*id, *list)),
            _ => None,
        })
    }

    pub(crate) fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the value for one cell; none if it is not finite.
    pub(crate) fn value(&self, facts: &Facts<'_>) -> Option<f64> {
        let value = self.program.run(facts);
        value.is_finite().then_some(value)
    }

    /// Returns the value of `AZs` with this many zones.
    pub(crate) fn azs(&self, zones: usize) -> f64 {
        self.constants.azs.unwrap_or(zones.max(1) as f64)
    }
}

fn check_weights(text: &str, constants: &Constants) -> Result<(), ObjectiveError> {
    let weights =
        ["alpha", "beta", "gamma", "delta"].map(|name| constants.get(name).unwrap_or(0.0));
    let sum: f64 = weights.iter().sum();
    if weights.iter().any(|w| *w < 0.0) || (sum - 1.0).abs() > 1e-9 {
        let message = format!(
            "alpha, beta, gamma and delta are {weights:?}; expected weights >= 0 that sum to 1"
        );
        return Err(ObjectiveError::new(text, 0, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
