//! What an objective reads of a job, as far as it makes a difference: jobs of the same shape and key have the
//! same value on every cell.

use super::{Form, View};
use crate::{
    fast_map::FastMap,
    objective::{Id, JobFacts, List, Objective, OfCell, Op, apply},
    policy::Term,
    request::{Job, Request},
};

/// So many zones are looked at one by one; of more the zone is one of the values that differ from cell to cell.
const MAX_ZONES: usize = 16;

/// Names as numbers.
pub(super) type Names = FastMap<String, u64>;

/// Adds the key of the job's objectives; nothing if the policy has none.
pub(super) fn objective(
    form: &Form<'_>,
    view: &mut View<'_>,
    names: &mut Names,
    job: &Job,
    objective: Option<&Objective>,
    key: &mut Vec<u64>,
) {
    for score in form.scores() {
        if let Term::Objective(own) = &score.term {
            add(objective.unwrap_or(own), view, names, job, key);
        }
    }
}

/// For each zone, works out what is the same for all of its cells, and adds each such number that meets one
/// which is not.
fn add(
    objective: &Objective,
    view: &mut View<'_>,
    names: &mut Names,
    job: &Job,
    key: &mut Vec<u64>,
) {
    // objectives live as long as the plan, so none can take the place of another
    key.push(std::ptr::from_ref(objective).addr() as u64);
    let facts = JobFacts::new(job, objective.azs(view.zones_counted));
    view.find_zone_values();
    let zones: Vec<Option<f64>> = if view.zone_values.len() > MAX_ZONES {
        vec![None]
    } else {
        view.zone_values.iter().copied().map(Some).collect()
    };
    let mut stack: Vec<Option<f64>> = Vec::new();
    for zone in zones {
        stack.clear();
        for (at, op) in (0_u64..).zip(objective.program().ops()) {
            let mut meets = |value: Option<f64>| {
                if let Some(value) = value {
                    key.extend([at, value.to_bits()]);
                }
            };
            let value = match *op {
                Op::Number(value) => Some(value),
                Op::Azs => Some(facts.azs),
                Op::Job(attribute) => Some(facts.number(attribute)),
                Op::Cell(OfCell::Zone) => zone,
                // the stack is of the shape, and so are the amounts that are asked for
                Op::Cell(_) | Op::Amount(..) => None,
                Op::Count(_, List::Apps) => Some(0.0),
                Op::Count(id, List::Blobs) => match listed(id, &job.request) {
                    Some(name) if !view.columns.blobs.of(name).is_empty() => {
                        let next = names.len() as u64;
                        let number = *names.entry(name.clone()).or_insert(next);
                        key.extend([at, number]);
                        None
                    }
                    _ => Some(0.0),
                },
                Op::Negate => stack.pop().flatten().map(|value| -value),
                Op::Binary(op) => {
                    let (b, a) = (stack.pop().flatten(), stack.pop().flatten());
                    if let (Some(a), Some(b)) = (a, b) {
                        Some(apply(op, a, b))
                    } else {
                        meets(a);
                        meets(b);
                        None
                    }
                }
            };
            stack.push(value);
        }
        key.extend(stack.pop().flatten().map(f64::to_bits));
        // a mark between two zones, and at the end
        key.push(u64::MAX);
    }
}

fn listed(id: Id, request: &Request) -> Option<&String> {
    match id {
        Id::App => Some(&request.app),
        Id::Blob => request.blob(),
        Id::Stack => request.stack.as_ref(),
    }
}
