//! Near and far: what an item names, and the rules around it.

use super::filter::Now;
use crate::{Cell, Invalid, Request};

/// What `near` or `far` may name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Item<'a> {
    App(&'a str),
    Tag(&'a str),
    Rack(&'a str),
    Instance(&'a str),
}

impl<'a> Item<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (form, name) = text.split_once(':')?;
        match form {
            _ if name.is_empty() => None,
            "app" => Some(Self::App(name)),
            "tag" if name.contains('=') => Some(Self::Tag(name)),
            "rack" => Some(Self::Rack(name)),
            "instance" => Some(Self::Instance(name)),
            _ => None,
        }
    }

    /// Refuses an item that names nothing.
    pub(crate) fn check(field: &str, text: &'a str) -> Result<(), Invalid> {
        if Self::parse(text).is_some() && text.len() <= 300 {
            return Ok(());
        }
        let expected = "app:NAME, tag:KEY=VALUE, rack:NAME or instance:UUID";
        Err(Invalid::new(field, crate::request::shorten(text), expected))
    }

    fn held_by(self, cell: &Cell, now: Now<'_>) -> bool {
        match self {
            Self::App(app) => cell.count_of(app) > 0,
            Self::Tag(tag) => cell.tags.get(tag).is_some_and(|n| *n > 0),
            Self::Rack(rack) => cell.rack.as_deref() == Some(rack),
            Self::Instance(id) => now.instances.get(id).is_some_and(|at| **at == *cell.cell),
        }
    }
}

/// Whether the cell holds the item.
pub(crate) fn holds(cell: &Cell, item: &str, now: Now<'_>) -> bool {
    Item::parse(item).is_some_and(|item| item.held_by(cell, now))
}

/// Whether the cell holds any of them.
pub(crate) fn holds_any(cell: &Cell, items: &[String], now: Now<'_>) -> bool {
    items.iter().any(|item| holds(cell, item, now))
}

/// Why a strict request cannot go there: something far is on it, or something near is not.
pub(crate) fn strict_why(cell: &Cell, request: &Request, now: Now<'_>) -> Option<String> {
    if let Some(item) = request.far.iter().find(|item| holds(cell, item, now)) {
        return Some(format!("holds {item}, to be far from"));
    }
    let missing = request.near.iter().find(|item| !holds(cell, item, now))?;
    Some(format!("does not hold {missing}, to be near to"))
}
