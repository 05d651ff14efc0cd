//! What a placement changes in the columns.

use super::{Columns, Counts, NO_RACK};
use crate::{Job, Kind, Request, batch::Ask, fast::rows::UNLIMITED};

impl Columns<'_> {
    pub(in crate::fast) fn has_extras(&self, position: u32, request: &Request) -> bool {
        let available = &self.cell(position).available;
        request.extra.iter().all(|(name, amount)| {
            let taken = self
                .extras
                .get(&(position, name.clone()))
                .copied()
                .unwrap_or(0);
            available.extra(name) - taken >= *amount
        })
    }

    /// Which racks have a counted cell that holds any of the items.
    pub(in crate::fast) fn racks_of(&self, held: &[u32]) -> Vec<bool> {
        let mut racks = vec![false; self.rack_count];
        for (position, count) in held.iter().enumerate() {
            let rack = self.racks[position];
            if *count > 0 && self.counted[position] && rack != NO_RACK {
                racks[rack as usize] = true;
            }
        }
        racks
    }

    /// Takes the job's resources from the cell.
    pub(in crate::fast) fn debit(&mut self, position: u32, job: &Job, ask: Ask) {
        let at = position as usize;
        let request = &*job.request;
        let old = self.rows[at];
        self.rows[at] = old.debited(request);
        let row = self.rows[at];
        self.memory[at] = row.memory as f64;
        if row.disk != UNLIMITED {
            self.disk[at] = row.disk as f64;
        }
        move_in_order(
            self.by_memory.as_mut(),
            position,
            (old.memory, row.memory),
            |p| self.rows[p as usize].memory,
        );
        move_in_order(self.by_disk.as_mut(), position, (old.disk, row.disk), |p| {
            self.rows[p as usize].disk
        });
        self.instances[at] += 1;
        if request.cpu_millis > 0 {
            self.capped[at] += 1;
        } else {
            self.uncapped[at] += 1;
        }
        for (name, amount) in &request.extra {
            *self.extras.entry((position, name.clone())).or_insert(0) += amount;
        }
        if request.kind == Kind::Lrp {
            let (zone, counted) = (self.zones[at], self.counted[at]);
            let app = self.app_cells(ask.app, &request.app);
            add(&mut app.counts, position);
            app.zones[zone as usize] += u64::from(counted);
        }
        if let Some(owner) = &request.owner {
            add(self.owners.entry(owner.clone()).or_default(), position);
        }
        for (key, value) in &request.tags {
            add(
                self.tags.entry(format!("{key}={value}")).or_default(),
                position,
            );
        }
    }
}

/// One more at a position.
fn add(counts: &mut Counts, position: u32) {
    match counts.binary_search_by_key(&position, |(p, _)| *p) {
        Ok(found) => counts[found].1 += 1,
        Err(place) => counts.insert(place, (position, 1)),
    }
}

/// Moves one position down or up to where its new value belongs; `value` gives the new values.
fn move_in_order(
    order: Option<&mut Vec<u32>>,
    position: u32,
    (old, new): (i64, i64),
    value: impl Fn(u32) -> i64,
) {
    let Some(order) = order.filter(|_| old != new) else {
        return;
    };
    let was = |p: u32| if p == position { old } else { value(p) };
    let first = order.partition_point(|p| was(*p) < old);
    let Some(from) = order[first..]
        .iter()
        .position(|p| *p == position)
        .map(|i| first + i)
    else {
        return;
    };
    order.remove(from);
    let to = order.partition_point(|p| value(*p) < new);
    order.insert(to, position);
}
