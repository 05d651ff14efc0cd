//! What terms that compare cells take from all of them: the lowest and highest values, and the weeks of reboots.

use super::View;
use crate::{
    policy::{Mode, Score, Term},
    stages::score::{self, WEEK_MS},
};

/// What the cells that take part have in common.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Norms {
    /// The oldest and the newest platform.
    pub(super) stamps: Option<(f64, f64)>,
    /// The soonest and the latest planned reboot.
    pub(super) reboots: Option<(f64, f64)>,
    /// The latest reboot of each week, the last week first.
    heads: Vec<i64>,
    /// Whether a cell has none.
    never: bool,
}

/// The ends of an order, without cells that take no part any more.
#[derive(Clone, Copy, Default)]
pub(super) struct Ends {
    from: usize,
    to: usize,
}

impl Ends {
    pub(super) fn of(order: usize) -> Self {
        Self { from: 0, to: order }
    }

    /// The first and the last of the order that take part. `gone` says of which cells that no job will see them
    /// again.
    fn find(
        &mut self,
        order: &[u32],
        gone: impl Fn(u32) -> bool,
        is_in: impl Fn(&u32) -> bool,
    ) -> Option<(u32, u32)> {
        while self.from < self.to && gone(order[self.from]) {
            self.from += 1;
        }
        while self.from < self.to && gone(order[self.to - 1]) {
            self.to -= 1;
        }
        let order = &order[self.from..self.to];
        let first = order.iter().find(|slot| is_in(slot))?;
        let last = order.iter().rev().find(|slot| is_in(slot))?;
        Some((*first, *last))
    }
}

/// Slots by platform and by planned reboot, the lowest first; without cells that have none.
#[derive(Default)]
pub(super) struct Orders {
    pub(super) stamps: Vec<u32>,
    /// Those in the future.
    pub(super) reboots: Vec<u32>,
}

impl Orders {
    pub(super) fn of(view: &View<'_>, scores: &[&Score]) -> Self {
        let columns = &*view.columns;
        let has = |term: &Term| scores.iter().any(|score| score.term == *term);
        let slots = (0..).take(columns.len());
        let mut orders = Self::default();
        if has(&Term::Platform) {
            let stamp = |slot: &u32| columns.platforms[*slot as usize];
            let known = slots.clone().filter(|slot| !stamp(slot).is_nan());
            orders.stamps.extend(known);
            orders.stamps.sort_by(|a, b| stamp(a).total_cmp(&stamp(b)));
        }
        if has(&Term::Reboot) {
            orders
                .reboots
                .extend(slots.filter(|slot| view.reboot(*slot).is_some()));
            orders.reboots.sort_by_key(|slot| view.reboot(*slot));
        }
        orders
    }

    /// What the cells that take part have in common. `ends` are kept from job to job;
    /// `held` cells only miss this one. `never`: whether one of the cells has no planned reboot, where weeks count.
    pub(super) fn norms(
        &self,
        view: &View<'_>,
        ends: &mut [Ends; 2],
        takes_part: &[bool],
        held: &[bool],
        never: Option<bool>,
    ) -> Norms {
        let is_in = |slot: &u32| takes_part[*slot as usize];
        let gone = |slot: u32| !takes_part[slot as usize] && !held[slot as usize];
        let stamps = ends[0].find(&self.stamps, gone, is_in);
        let reboots = ends[1].find(&self.reboots, gone, is_in);
        let stamp = |slot: u32| view.columns.platforms[slot as usize];
        let date = |slot: u32| view.reboot(slot).unwrap_or(i64::MAX);
        let mut heads = Vec::new();
        if let Some((_, last)) = reboots.filter(|_| never.is_some()) {
            let mut head = date(last);
            loop {
                heads.push(head);
                let earlier = self
                    .reboots
                    .partition_point(|slot| date(*slot) <= head - WEEK_MS);
                let earlier = self.reboots[ends[1].from.min(earlier)..earlier].iter();
                let Some(next) = earlier.rev().find(|slot| is_in(slot)) else {
                    break;
                };
                head = date(*next);
            }
        }
        Norms {
            stamps: stamps.map(|(first, last)| (stamp(first), stamp(last))),
            reboots: reboots.map(|(first, last)| (date(first) as f64, date(last) as f64)),
            heads,
            never: never == Some(true),
        }
    }
}

impl Norms {
    /// The cell's term of its platform.
    pub(super) fn platform(&self, stamp: f64, weight: f64) -> f64 {
        match self.stamps {
            // all unreadable
            None => 1.0,
            Some(_) if stamp.is_nan() => 0.0,
            Some(range) => share(stamp, range, weight),
        }
    }

    /// The cell's term of its planned reboot.
    pub(super) fn reboot(&self, date: Option<i64>, score: &Score) -> f64 {
        if score.mode == Mode::Ratio {
            let Some((first, last)) = self.reboots else {
                return 1.0;
            };
            let date = date.map_or(last, |date| date as f64);
            return share(date, (first, last), score.weight);
        }
        let buckets = self.heads.len() + usize::from(self.never);
        let bucket = date.map_or(0, |date| {
            let week = self.heads.partition_point(|head| *head >= date);
            // a cell that takes no part may be later than all others
            (week + usize::from(self.never)).saturating_sub(1)
        });
        score::place_share(bucket, buckets.saturating_sub(1), score.weight < 0.0)
    }
}

/// As [`score::min_max`] for a value in the range.
fn share(value: f64, (min, max): (f64, f64), weight: f64) -> f64 {
    let (from, sign) = if weight < 0.0 {
        (max, -1.0)
    } else {
        (min, 1.0)
    };
    if min >= max {
        1.0
    } else {
        sign * (value - from) / (max - min)
    }
}
