//! What a request would rather have, and does without where it must.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    cell::Cell,
    invalid::{Invalid, check_count},
    traits::Trait,
};

/// Tags and traits that the cells of a request should have, if there is room on such cells. The score `preferred` counts
/// them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename = "Prefer")]
pub struct Preferences {
    /// Placement tags that the cell should have, as required or optional ones; at most 64.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement_tags: Vec<String>,
    /// Traits that the cell should have, with these values; at most 64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub traits: BTreeMap<String, Trait>,
}

impl Preferences {
    /// Returns the share of the preferences that the cell meets, in 0..1; 0 if there are none.
    #[allow(clippy::cast_possible_truncation)] // at most 128 of them
    pub(crate) fn met_by(&self, cell: &Cell) -> f64 {
        let asked = self.placement_tags.len() + self.traits.len();
        if asked == 0 {
            return 0.0;
        }
        let has_tag = |tag: &&String| {
            cell.placement_tags.contains(tag) || cell.optional_placement_tags.contains(tag)
        };
        let has_trait = |(name, wanted): &(&String, &Trait)| {
            let has = cell.traits.get(*name);
            has.is_some_and(|has| has.matches(wanted))
        };
        let tags = self.placement_tags.iter().filter(has_tag).count();
        let traits = self.traits.iter().filter(has_trait).count();
        (tags + traits) as f64 / asked as f64
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        check_count("prefer.placement_tags", self.placement_tags.len(), 64)?;
        check_count("prefer.traits", self.traits.len(), 64)
    }
}
