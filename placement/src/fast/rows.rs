//! A cell's amounts in compact form, and who holds which app.

use std::{cmp::Ordering, collections::BTreeMap};

use crate::{
    cell::Cell,
    fast_map::FastMap,
    policy::Filter,
    request::{Kind, Request},
    resources::{Amounts, Resource},
};

/// What debits change in a cell, except counts by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) free: Amounts,
    pub(crate) starting: u32,
    pub(crate) tasks: u32,
}

impl Row {
    pub(crate) fn of(cell: &Cell) -> Self {
        Self {
            free: cell.available.amounts(),
            starting: cell.counts.starting,
            tasks: cell.counts.tasks,
        }
    }

    /// Returns the row with one more instance of the request.
    pub(crate) fn debited(mut self, request: &Request) -> Self {
        self.free.debit(&request.amounts());
        self.starting += 1;
        self.tasks += u32::from(request.kind == Kind::Task);
        self
    }
}

/// What a job needs under one policy: what no filter asks for is not needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) amounts: Amounts,
    /// Whether it also needs named resources or devices.
    pub(crate) extra: bool,
}

impl Need {
    /// Returns what the request needs, as far as one of the filters asks for it.
    pub(crate) fn under(asked: Asked, request: &Request) -> Self {
        let needs = request.needs();
        let least = |resource: Resource| {
            let is_asked = asked.amounts[resource as usize];
            if is_asked {
                needs[resource]
            } else {
                // below any free amount, so that the comparison needs no special case
                Amounts::NO_NEED
            }
        };
        Self {
            amounts: Amounts::from_fn(least),
            extra: asked.extra && !(request.extra.is_empty() && request.devices.is_empty()),
        }
    }

    #[inline]
    pub(crate) fn fits(&self, row: &Row) -> bool {
        row.free.covers(&self.amounts)
    }
}

/// The resources that a policy's filters ask for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Asked {
    amounts: [bool; Resource::ALL.len()],
    extra: bool,
}

impl Asked {
    pub(crate) fn by<'f>(filters: impl IntoIterator<Item = &'f Filter>) -> Self {
        let mut asked = Self::default();
        for filter in filters {
            match filter {
                Filter::Amount(resource) => asked.amounts[*resource as usize] = true,
                Filter::Extra => asked.extra = true,
                _ => {}
            }
        }
        asked
    }
}

/// Which cells hold each app (or owner, tag, blob), and how many of it, in order of slots.
#[derive(Clone, Debug, Default)]
pub(crate) struct Holders {
    by_name: FastMap<Box<str>, Vec<(u32, u32)>>,
}

impl Holders {
    pub(crate) fn of(&self, name: &str) -> &[(u32, u32)] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// Sets how many the cell has.
    pub(crate) fn set(&mut self, name: &str, slot: u32, count: u32) {
        if count == 0 {
            if let Some(list) = self.by_name.get_mut(name) {
                if let Ok(at) = list.binary_search_by_key(&slot, |(s, _)| *s) {
                    list.remove(at);
                }
                if list.is_empty() {
                    self.by_name.remove(name);
                }
            }
            return;
        }
        let list = match self.by_name.get_mut(name) {
            Some(list) => list,
            None => self.by_name.entry(name.into()).or_default(),
        };
        match list.binary_search_by_key(&slot, |(s, _)| *s) {
            Ok(at) => list[at].1 = count,
            Err(at) => list.insert(at, (slot, count)),
        }
    }

    /// Updates what the cell holds from `old` to `new`; both may be absent.
    pub(crate) fn change(
        &mut self,
        slot: u32,
        old: Option<&BTreeMap<String, u32>>,
        new: Option<&BTreeMap<String, u32>>,
    ) {
        let mut old = old.into_iter().flatten();
        let mut new = new.into_iter().flatten();
        let (mut gone, mut come) = (old.next(), new.next());
        // both are sorted by name: a merge finds the differences
        loop {
            let order = match (gone, come) {
                (None, None) => return,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            // most advertisements repeat what is known: nothing is written
            if let Some((name, count)) = come.filter(|_| order.is_ge())
                && (order.is_gt() || gone.is_some_and(|(_, before)| before != count))
            {
                self.set(name, slot, *count);
            }
            if let Some((name, _)) = gone.filter(|_| order.is_lt()) {
                self.set(name, slot, 0);
            }
            if order.is_le() {
                gone = old.next();
            }
            if order.is_ge() {
                come = new.next();
            }
        }
    }

    /// Updates what the cell holds to `new`, sorted by name without repetition; `known` becomes the same.
    pub(crate) fn update(
        &mut self,
        slot: u32,
        known: &mut BTreeMap<String, u32>,
        new: &[(&str, u32)],
    ) {
        let mut changed: Vec<(&str, u32)> = Vec::new();
        let mut gone: Vec<String> = Vec::new();
        let mut old = known.iter().peekable();
        for (name, count) in new {
            while let Some((before, _)) = old.next_if(|(before, _)| before.as_str() < *name) {
                gone.push(before.clone());
            }
            let same = old.next_if(|(before, _)| before.as_str() == *name);
            if same.is_none_or(|(_, before)| before != count) {
                changed.push((name, *count));
            }
        }
        gone.extend(old.map(|(before, _)| before.clone()));
        for name in gone {
            self.set(&name, slot, 0);
            known.remove(&name);
        }
        for (name, count) in changed {
            self.set(name, slot, count);
            known.insert(name.to_owned(), count);
        }
    }

    /// Adds one instance.
    pub(crate) fn add(&mut self, name: &str, slot: u32) {
        let list = self.of(name);
        let found = list.binary_search_by_key(&slot, |(s, _)| *s);
        let count = found.map_or(0, |at| list[at].1);
        self.set(name, slot, count + 1);
    }
}
