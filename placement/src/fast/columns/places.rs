//! Slots in the order of a number that each has.

/// The number of a slot that is not in the order.
const NOWHERE: i64 = i64::MIN;
/// Up to this many slots are moved one by one; more are sorted and merged in.
const FEW: usize = 4;

/// Slots ordered by a number, lowest first, equal ones by slot. A slot whose number has changed is only marked; it is
/// moved when the order is next needed. Until the order is first needed, there is none.
#[derive(Clone, Debug, Default)]
pub(in crate::fast) struct Places {
    order: Vec<(i64, u32)>,
    /// By slot: the number by which it is in the order, or [`NOWHERE`].
    seated: Vec<i64>,
    dirty: Vec<u32>,
    is_dirty: Vec<bool>,
    is_asked_for: bool,
}

impl Places {
    /// Marks a slot whose number may have changed.
    pub(super) fn touch(&mut self, slot: u32) {
        let at = slot as usize;
        if !self.is_asked_for {
            return;
        }
        if self.is_dirty.len() <= at {
            self.is_dirty.resize(at + 1, false);
            self.seated.resize(at + 1, NOWHERE);
        }
        if !std::mem::replace(&mut self.is_dirty[at], true) {
            self.dirty.push(slot);
        }
    }

    /// Moves every marked slot; `number` returns the number of a slot, none if it has none.
    pub(super) fn settle(&mut self, slots: usize, number: impl Fn(u32) -> Option<i64>) {
        if !self.is_asked_for {
            self.is_asked_for = true;
            (0..).take(slots).for_each(|slot| self.touch(slot));
        }
        // each move shifts everything between the old and the new place; for more than a few, one pass over all is
        // cheaper
        if self.dirty.len() > FEW {
            self.settle_many(number);
            return;
        }
        for slot in std::mem::take(&mut self.dirty) {
            self.is_dirty[slot as usize] = false;
            let new = number(slot).unwrap_or(NOWHERE);
            let old = std::mem::replace(&mut self.seated[slot as usize], new);
            self.move_one(slot, old, new);
        }
    }

    fn move_one(&mut self, slot: u32, old: i64, new: i64) {
        let order = &mut self.order;
        let from = order.partition_point(|entry| *entry < (old, slot));
        let to = order.partition_point(|entry| *entry < (new, slot));
        match (old == NOWHERE, new == NOWHERE) {
            (true, true) => {}
            (true, false) => order.insert(to, (new, slot)),
            (false, true) => drop(order.remove(from)),
            (false, false) => {
                order[from] = (new, slot);
                // the search still counted its old place
                if to > from {
                    order[from..to].rotate_left(1);
                } else {
                    order[to..=from].rotate_right(1);
                }
            }
        }
    }

    fn settle_many(&mut self, number: impl Fn(u32) -> Option<i64>) {
        let Self {
            order,
            seated,
            dirty,
            is_dirty,
            ..
        } = self;
        // all dirty ones leave and then come back, so no entry is searched by a number that it no longer has
        order.retain(|(_, slot)| !is_dirty[*slot as usize]);
        let mut come = Vec::with_capacity(dirty.len());
        for slot in dirty.drain(..) {
            let new = number(slot).unwrap_or(NOWHERE);
            is_dirty[slot as usize] = false;
            seated[slot as usize] = new;
            if new != NOWHERE {
                come.push((new, slot));
            }
        }
        come.sort_unstable();
        // merged from the back, so that no entry is moved twice
        let mut left = order.len();
        order.resize(left + come.len(), (0, 0));
        for end in (0..order.len()).rev() {
            let Some(last) = come.last().copied() else {
                break;
            };
            if left > 0 && order[left - 1] > last {
                left -= 1;
                order[end] = order[left];
            } else {
                order[end] = last;
                come.pop();
            }
        }
    }

    /// Returns numbers and slots, the lowest number first, as of the last [`Places::settle`].
    pub(in crate::fast) fn order(&self) -> &[(i64, u32)] {
        &self.order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever changes between two reads, few or many, the order is that of a fresh sort.
    #[test]
    fn an_order_kept_is_an_order_made_anew() {
        let mut numbers: Vec<Option<i64>> =
            (0..40).map(|i| (i % 7 != 0).then_some(i % 5)).collect();
        let mut places = Places::default();
        let mut dice = 1_u64;
        let mut below = |n: u64| {
            dice = crate::random::mix(dice);
            dice % n
        };
        for round in 0..200_usize {
            places.settle(numbers.len(), |slot| numbers[slot as usize]);
            let mut fresh: Vec<(i64, u32)> = (0..)
                .zip(&numbers)
                .filter_map(|(slot, number)| number.map(|number| (number, slot)))
                .collect();
            fresh.sort_unstable();
            assert_eq!(places.order(), fresh, "round {round}");
            for _ in 0..round % 12 {
                if below(11) == 0 {
                    numbers.push(None);
                }
                let slot = u32::try_from(below(numbers.len() as u64)).unwrap_or(0);
                let number = i64::try_from(below(9)).ok().map(|number| number - 4);
                numbers[slot as usize] = number.filter(|_| below(4) > 0);
                places.touch(slot);
            }
        }
    }
}
