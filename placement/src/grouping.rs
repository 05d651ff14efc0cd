//! Groups of cells: those with the same value of an attribute, such as the cells of a rack.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use crate::{cell::Cell, traits::Trait};

/// The attribute by which cells are grouped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Grouping {
    Zone,
    Host,
    Rack,
    RebootBatch,
    /// The version of the platform image.
    Platform,
    /// A trait, by its name.
    Trait(Arc<str>),
}

impl Grouping {
    /// What [`Grouping::parse`] reads, for errors.
    pub(crate) const EXPECTED: &'static str =
        "zone, host, rack, reboot_batch, platform or a trait such as traits.row";

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "zone" => Self::Zone,
            "host" => Self::Host,
            "rack" => Self::Rack,
            "reboot_batch" => Self::RebootBatch,
            "platform" => Self::Platform,
            _ => {
                let name = name.strip_prefix("traits.")?;
                let fine = (1..=128).contains(&name.len());
                fine.then(|| Self::Trait(name.into()))?
            }
        })
    }

    /// Returns the name that parses to it.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Zone => "zone",
            Self::Host => "host",
            Self::Rack => "rack",
            Self::RebootBatch => "reboot_batch",
            Self::Platform => "platform",
            Self::Trait(name) => return Cow::Owned(format!("traits.{name}")),
        })
    }

    /// Returns the group of the cell; none if it does not have the attribute.
    fn of<'c>(&self, cell: &'c Cell) -> Option<Cow<'c, str>> {
        let word = match self {
            Self::Zone => Some(&cell.zone),
            Self::Host => cell.host.as_ref(),
            Self::Rack => cell.rack.as_ref(),
            Self::RebootBatch => cell.reboot_batch.as_ref(),
            Self::Platform => cell.platform.as_ref().map(|platform| &platform.version),
            Self::Trait(name) => match cell.traits.get(&**name)? {
                Trait::Flag(flag) => return Some(if *flag { "true" } else { "false" }.into()),
                Trait::Word(word) => Some(word),
                Trait::Words(words) => return Some(words.join(",").into()),
            },
        };
        word.map(|word| Cow::Borrowed(word.as_str()))
    }
}

/// How many instances of an app each group has.
pub(crate) struct GroupCounts<'a> {
    grouping: &'a Grouping,
    counts: BTreeMap<Cow<'a, str>, u64>,
}

impl<'a> GroupCounts<'a> {
    /// Counts them: all cells that have instances of the app, with the number of these.
    pub(crate) fn new(
        grouping: &'a Grouping,
        holders: impl Iterator<Item = (&'a Cell, u32)>,
    ) -> Self {
        let mut counts = BTreeMap::new();
        for (cell, count) in holders {
            if let Some(group) = grouping.of(cell) {
                *counts.entry(group).or_insert(0) += u64::from(count);
            }
        }
        Self { grouping, counts }
    }

    /// Returns how many the cell's group has. A cell without the attribute, which has `own`, is a group of its own.
    pub(crate) fn of(&self, cell: &Cell, own: u32) -> u64 {
        match self.grouping.of(cell) {
            Some(group) => self.counts.get(&group).copied().unwrap_or(0),
            None => u64::from(own),
        }
    }
}
