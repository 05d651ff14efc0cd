//! `near` and `far`: which of their items a cell has.

use crate::context::Now;
use crate::{cell::Cell, near::Item, request::Request};

/// Returns whether the cell has the item.
fn holds_item(item: Item<'_>, cell: &Cell, now: Now<'_>) -> bool {
    match item {
        Item::App(app) => cell.count_of(app) > 0,
        Item::Tag(tag) => cell.counts.tags.get(tag).is_some_and(|n| *n > 0),
        Item::Rack(rack) => cell.rack.as_deref() == Some(rack),
        Item::Instance(id) => now.instances.get(id).is_some_and(|at| **at == *cell.cell),
    }
}

/// Returns whether the cell has the item, given as a text.
pub(crate) fn holds(cell: &Cell, item: &str, now: Now<'_>) -> bool {
    Item::parse(item).is_some_and(|item| holds_item(item, cell, now))
}

/// Returns whether the cell has any of the items.
pub(crate) fn holds_any(cell: &Cell, items: &[String], now: Now<'_>) -> bool {
    items.iter().any(|item| holds(cell, item, now))
}

/// Returns why a strict request cannot go there: an item of `far` is there, or one of `near` is not.
pub(crate) fn strict_why(cell: &Cell, request: &Request, now: Now<'_>) -> Option<String> {
    if let Some(item) = request.far.iter().find(|item| holds(cell, item, now)) {
        return Some(format!("violates far: has {item}"));
    }
    let missing = request.near.iter().find(|item| !holds(cell, item, now))?;
    Some(format!("violates near: lacks {missing}"))
}
