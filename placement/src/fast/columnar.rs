//! The columnar engine: serves every policy that the two others do not.
//!
//! **Why.** A policy that ranks cells against each other (Triton's), or computes an expression for each
//! (`objective`), must look at all of them. Over columns a cell costs about 25 ns with the dearest
//! presets; the plain engine takes some 0.2 µs for one and more with each stage. With 5,000 cells this
//! engine is 25 (`objective`) to 50 (`dapi`) times as fast as that.
//!
//! **Invariant.** It goes through the stages as the plain engine does and every term has the same bits,
//! but filters that debits cannot change are judged once for each class of cells, places by memory
//! and disk are kept in order, and the objective runs over blocks of cells.

use super::{
    classes::is_dynamic,
    columns::Columns,
    index::Index,
    known::{Known, known_or_new},
    rows::{Asked, Need, Row},
    session::Session,
    terms,
    vector::Blocks,
    view::View,
};
use crate::{
    batch::{Batch, JobGroup, same_demands},
    cell::Cell,
    devices::DeviceShares,
    engine::{Choice, Engine},
    objective::Objective,
    policy::{Combine, Filter, Mode, Policy, Stage, Step},
    request::{Job, Request},
    stages::{filter, score},
};

mod narrow;
mod pick;

/// One plan over columns.
pub(crate) struct Columnar<'a> {
    view: View<'a>,
    policy: &'a Policy,
    judged: Vec<Judged<'a>>,
    shapes: Vec<&'a Request>,
    scratch: Scratch,
}

/// What the leading static filters say of requests like this one, by class of cells.
struct Judged<'a> {
    request: &'a Request,
    keeps: Vec<bool>,
}

/// Reused from job to job.
#[derive(Default)]
struct Scratch {
    /// The survivors' slots, ascending.
    alive: Vec<u32>,
    /// Beside `alive`, once a score was given.
    totals: Vec<f64>,
    term: Vec<f64>,
    blocks: Blocks,
    terms: terms::Scratch,
}

/// At most so many different kinds of request are remembered.
const MAX_JUDGED: usize = 256;

impl<'a> Columnar<'a> {
    pub(crate) fn new(
        columns: &'a mut Columns,
        session: Session<'a>,
        policy: &'a Policy,
        batch: &Batch<'a>,
    ) -> Self {
        Self {
            view: View::new(columns, session, policy, batch),
            policy,
            judged: Vec::new(),
            shapes: batch.shapes.clone(),
            scratch: Scratch::default(),
        }
    }

    /// Fills `alive` with the cells that pass the leading filters on amounts, and the static ones.
    fn start(&mut self, request: &'a Request, leading: &[&Filter]) {
        let known = self
            .judged
            .iter()
            // a walk, as a batch has few kinds of request; each judgement is a pass over all classes
            .position(|judged| same_demands(judged.request, request));
        let at = known.unwrap_or_else(|| {
            // all of them: which are asked for again is not known, and a batch rarely has so many
            if self.judged.len() >= MAX_JUDGED {
                self.judged.clear();
            }
            let keeps = self.view.columns.judge(leading, request, self.view.now());
            self.judged.push(Judged { request, keeps });
            self.judged.len() - 1
        });
        let need = Need::under(Asked::by(leading.iter().copied()), request);
        let (view, alive) = (&mut self.view, &mut self.scratch.alive);
        alive.clear();
        alive.resize(view.columns.len(), 0);
        let kept = fitting(
            alive,
            &self.judged[at].keeps,
            &view.columns.class_slots,
            view.session.parts.rows,
            &need,
        );
        alive.truncate(kept);
        self.scratch.terms.forget_seats();
        if need.extra {
            keep_with_extras(view, alive, request);
        }
    }

    /// Drops what a filter that debits can change would drop.
    fn filter(&mut self, filter: &Filter, request: &Request) {
        self.scratch.terms.forget_seats();
        let (view, alive) = (&self.view, &mut self.scratch.alive);
        let columns = &*view.columns;
        let row = |slot: &u32| view.session.row(*slot);
        match filter {
            Filter::Amount(resource) => {
                let needs = request.needs()[*resource];
                let is_there = |p: &u32| {
                    let total = view.cell(*p).total.get(*resource);
                    !resource.is_vital() || total.is_none_or(|total| total > 0)
                };
                alive.retain(|p| row(p).free[*resource] >= needs && is_there(p));
            }
            Filter::Extra if request.extra.is_empty() && request.devices.is_empty() => {}
            Filter::Extra => keep_with_extras(&mut self.view, alive, request),
            Filter::ContainerCount { limit } => {
                alive.retain(|p| columns.instances[*p as usize] < u64::from(*limit));
            }
            Filter::Capness => {
                let capped = request.cpu_millis > 0;
                let other = if capped {
                    &columns.uncapped
                } else {
                    &columns.capped
                };
                alive.retain(|p| other[*p as usize] == 0);
            }
            // needs counts of the whole batch, so it is answered over columns and not from the cell as it was
            Filter::Locality => self.strict_locality(request),
            _ => {
                let now = view.now();
                alive.retain(|p| filter::keeps(filter, view.cell(*p), request, now));
            }
        }
    }

    /// A filter after a score: the totals follow the cells.
    fn filter_scored(&mut self, filter: &Filter, request: &Request) {
        // rare: no preset filters after a score
        let before = self.scratch.alive.clone();
        self.filter(filter, request);
        let after = std::mem::take(&mut self.scratch.alive);
        let totals = std::mem::take(&mut self.scratch.totals);
        let mut left = after.iter().copied().peekable();
        for (slot, total) in before.iter().zip(totals) {
            // both are in the order of slots
            if left.peek() == Some(slot) {
                left.next();
                self.scratch.totals.push(total);
            }
        }
        self.scratch.alive = after;
    }

    fn score(
        &mut self,
        step: &crate::policy::Score,
        objective: Option<&Objective>,
        job: &Job,
        group: JobGroup,
    ) {
        let combine = self.policy.combine;
        let scratch = &mut self.scratch;
        if scratch.totals.is_empty() {
            let start = match combine {
                Combine::Sum => 0.0,
                Combine::Product => 1.0,
            };
            scratch.totals.resize(scratch.alive.len(), start);
        }
        let is_share = step.mode != Mode::Raw;
        if combine == Combine::Sum && step.weight == 0.0 && is_share {
            // a share times 0 changes nothing
            return;
        }
        let mut term = std::mem::take(&mut scratch.term);
        term.clear();
        if step.weight == 0.0 && is_share {
            // whatever is raised to the power of 0
            term.resize(scratch.alive.len(), 0.0);
        } else {
            terms::term(
                &mut terms::Around {
                    view: &mut self.view,
                    alive: &scratch.alive,
                    blocks: &mut scratch.blocks,
                    scratch: &mut scratch.terms,
                    job,
                    group,
                },
                step,
                objective,
                &mut term,
            );
        }
        score::combine(step, combine, &mut term, &mut scratch.totals);
        scratch.term = term;
    }
}

/// Writes the slots of the cells that have what is needed, and whose class is kept, to the start of
/// `alive`, and returns how many. One pass over two columns; the filters themselves were asked once for
/// each class.
// a function of its own: among the caller's variables the loop has no registers left, and takes three
// times as many instructions
#[inline(never)]
fn fitting(
    alive: &mut [u32],
    keeps: &[bool],
    class_slots: &[u32],
    rows: &[Row],
    need: &Need,
) -> usize {
    // without a branch that the processor could guess wrong
    let mut kept = 0;
    for ((slot, class_slot), row) in (0..).zip(class_slots).zip(rows) {
        alive[kept] = slot;
        kept += usize::from(keeps[*class_slot as usize] & need.fits(row));
    }
    kept
}

/// Keeps the cells that have the named resources and the devices.
fn keep_with_extras(view: &mut View<'_>, alive: &mut Vec<u32>, request: &Request) {
    let View {
        columns, session, ..
    } = view;
    let slots = columns.len();
    let column = columns.known.column(Known::Extras, Some(request), 0, slots);
    alive.retain(|slot| {
        let known = &mut column[*slot as usize];
        let has = || f64::from(u8::from(session.has_extras(*slot, request)));
        known_or_new(known, has) > 0.0
    });
}

/// Keeps what is wanted, of the totals too.
fn keep(scratch: &mut Scratch, wanted: impl Fn(&u32) -> bool) {
    scratch.terms.forget_seats();
    if scratch.totals.is_empty() {
        scratch.alive.retain(|p| wanted(p));
        return;
    }
    let mut kept = 0;
    for i in 0..scratch.alive.len() {
        if wanted(&scratch.alive[i]) {
            scratch.alive[kept] = scratch.alive[i];
            scratch.totals[kept] = scratch.totals[i];
            kept += 1;
        }
    }
    scratch.alive.truncate(kept);
    scratch.totals.truncate(kept);
}

/// Keeps what is wanted, unless that is nothing; says whether there was any.
fn keep_if_any(scratch: &mut Scratch, wanted: impl Fn(&u32) -> bool) -> bool {
    let any = scratch.alive.iter().any(&wanted);
    if any {
        keep(scratch, wanted);
    }
    any
}

impl Engine for Columnar<'_> {
    fn choose(&mut self, job: &Job, group: JobGroup, objective: Option<&Objective>) -> Choice {
        let request = &*job.request;
        let policy = self.policy;
        let stages: Vec<&Stage> = policy.stages_for(request.kind).collect();
        let leading: Vec<&Filter> = stages
            .iter()
            .map_while(|stage| match &stage.step {
                Step::Filter(filter) => Some(filter),
                _ => None,
            })
            .collect();
        self.view.meet(group, job);
        self.start(self.shapes[group.shape as usize], &leading);
        // empty totals stand for "not scored yet" below
        self.scratch.totals.clear();
        let mut scored = false;
        for (at, stage) in stages.iter().enumerate() {
            if self.scratch.alive.is_empty() {
                return Choice::default();
            }
            match &stage.step {
                // done by the start
                Step::Filter(filter) if at < leading.len() && !is_dynamic(filter) => {}
                Step::Filter(filter) if scored => self.filter_scored(filter, request),
                Step::Filter(filter) => self.filter(filter, request),
                Step::Narrow(narrow) => self.narrow(*narrow, job, group),
                Step::Score(step) => {
                    scored = true;
                    self.score(step, objective, job, group);
                }
            }
        }
        if self.scratch.alive.is_empty() {
            return Choice::default();
        }
        self.pick(job, group)
    }

    fn debit(&mut self, slot: u32, job: &Job, group: JobGroup) -> Option<Box<DeviceShares>> {
        self.view.debit(slot, job, group)
    }

    fn starting(&self, slot: u32) -> u32 {
        self.view.session.row(slot).starting
    }

    /// Places by memory and disk are found again when somebody asks for them.
    fn finish(self: Box<Self>) {
        self.view.finish();
    }
}

impl Index for Columns {
    fn policy(&self) -> &Policy {
        self.policy()
    }

    fn put(&mut self, slot: u32, cell: &Cell, row: Row, _: u64) {
        self.insert(slot, cell, row);
    }

    fn take(&mut self, slot: u32, cell: &Cell, _: Row) {
        self.remove(slot, cell);
    }

    fn change(&mut self, slot: u32, old: (&Cell, Row), new: (&Cell, Row)) {
        self.update(slot, old.0, new.0, new.1);
    }

    fn replace(&mut self, slot: u32, old: (&Cell, Row), new: (&Cell, Row), _: u64) {
        self.update_class(slot, old.0, new.0, new.1);
    }

    fn debit(&mut self, slot: u32, _: Row, new: (&Cell, Row), request: &Request) {
        self.count_debit(slot, new.0, new.1, request);
    }

    fn numbered(&self) -> usize {
        self.symbols()
    }

    fn begin<'a>(&'a mut self, session: Session<'a>, batch: &'a Batch<'a>) -> Box<dyn Engine + 'a> {
        let policy = session.policy;
        Box::new(Columnar::new(self, session, policy, batch))
    }

    fn boxed_clone(&self) -> Box<dyn Index> {
        Box::new(self.clone())
    }
}
