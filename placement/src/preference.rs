//! What a request would rather have, and does without where it must.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
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
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        check_count("prefer.placement_tags", self.placement_tags.len(), 64)?;
        check_count("prefer.traits", self.traits.len(), 64)
    }
}
