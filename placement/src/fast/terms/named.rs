//! Terms of resources by name, cell by cell, because columns contain neither devices nor named resources.

use std::sync::Arc;

use super::{
    super::known::{Known, known_or_new},
    Around, View,
};
use crate::{
    fragmentation::{self, Fragments},
    objective::{self, AmountOf},
    resource_name::{ResourceName, mean_used},
};

/// Computes the gradient of each survivor.
pub(super) fn gradients(around: &mut Around<'_, '_>, fragments: &Fragments, out: &mut Vec<f64>) {
    let View {
        columns, session, ..
    } = &mut *around.view;
    let (request, slots) = (&*around.job.request, columns.len());
    let (work, version) = session.parts.expected;
    let gradient = Known::Gradient(fragments.clone());
    let known = &mut columns.known;
    let column = known.column(gradient.clone(), Some(request), version, slots);
    out.extend(around.alive.iter().map(|slot| column[*slot as usize]));
    if out.iter().any(|gradient| gradient.is_nan()) {
        let before = Known::Fragment(fragments.clone());
        let before = known.column(before, None, version, slots);
        let unknown = around.alive.iter().zip(&mut *out);
        for (slot, gradient) in unknown.filter(|(_, gradient)| gradient.is_nan()) {
            let free = session.free(*slot);
            let before = known_or_new(&mut before[*slot as usize], || fragments.on(&free, work));
            *gradient = fragmentation::gradient(fragments, before, &free, request, work);
        }
        let column = known.column(gradient, Some(request), version, slots);
        for (slot, gradient) in around.alive.iter().zip(&*out) {
            column[*slot as usize] = *gradient;
        }
    }
}

/// Returns what the score of gradients is multiplied by.
pub(super) fn scarcity(around: &Around<'_, '_>, of: &ResourceName, below: Option<f64>) -> f64 {
    let Some(below) = below else { return 1.0 };
    let work = around.view.session.parts.expected.0;
    let mean = around.view.mean_free.iter().find(|(name, _)| *name == of);
    mean.map_or(1.0, |(_, mean)| mean.scarcity(of, work, below))
}

/// Computes the used shares of each survivor.
pub(super) fn used(
    around: &mut Around<'_, '_>,
    of: &Arc<[ResourceName]>,
    squared: bool,
    out: &mut Vec<f64>,
) {
    let View {
        columns, session, ..
    } = &mut *around.view;
    let (request, slots) = (&*around.job.request, columns.len());
    let known = Known::Used(Arc::clone(of), squared);
    let column = columns.known.column(known, Some(request), 0, slots);
    out.extend(around.alive.iter().map(|slot| {
        known_or_new(&mut column[*slot as usize], || {
            let total = &session.parts.cells[*slot as usize].total;
            mean_used(of, squared, &session.free(*slot), request, total)
        })
    }));
}

/// Returns a column, by slot, of each amount of a resource that the program reads; none if it reads no such amount.
/// They are made for each job, because debits change them: a policy that names no resource pays nothing for this.
pub(super) fn amount_columns(
    around: &Around<'_, '_>,
    program: &objective::Program,
) -> Vec<(AmountOf, usize, Vec<f64>)> {
    let mut columns: Vec<(AmountOf, usize, Vec<f64>)> = Vec::new();
    for op in program.ops() {
        let objective::Op::Amount(of, resource) = *op else {
            continue;
        };
        if columns
            .iter()
            .any(|(known, at, _)| (*known, *at) == (of, resource))
        {
            continue;
        }
        let mut column = vec![0.0; around.view.columns.len()];
        for slot in around.alive {
            let (free, total) = (
                around.view.session.free(*slot),
                &around.view.cell(*slot).total,
            );
            let (name, request) = (&program.resources()[resource], &around.job.request);
            column[*slot as usize] = objective::amount(of, name, &free, request, total);
        }
        columns.push((of, resource, column));
    }
    columns
}
