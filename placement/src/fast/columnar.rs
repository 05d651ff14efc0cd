//! The columnar engine: serves every policy that the other two cannot.
//!
//! **Why.** A policy that ranks cells against each other (Triton's), or evaluates an expression for each (`objective`),
//! must look at all of them. Over columns, a cell costs about 25 ns with the most expensive presets; the plain engine
//! takes some 0.2 µs for one stage, and more with each further one. Within a batch most of that is avoided: [`serve`]
//! keeps the ratings of jobs of one shape, [`screened`] bounds them, which is 5 to 20 times as fast again.
//!
//! **Invariant.** It goes through the stages as the plain engine does, and every term has the same bits. But filters
//! that debits cannot change are evaluated once per class of cells, places by memory and disk are kept in order, and
//! the objective runs over blocks of cells.

use std::rc::Rc;

use super::{
    classes::is_dynamic,
    columns::Columns,
    index::Index,
    known::{Known, known_or_new},
    rows::{Need, Row},
    session::Session,
    terms::{self, Apps},
    vector::Blocks,
    view::View,
};
use form::Form;
use kept::Kept;
use screen::Screens;

use crate::{
    batch::{Batch, JobGroup, same_demands},
    cell::Cell,
    devices::DeviceShares,
    engine::{Choice, Engine},
    objective::Objective,
    policy::{Combine, Filter, Mode, Policy, Step},
    request::{Job, Kind, Request},
    stages::{filter, score},
};

mod chance;
mod form;
mod kept;
mod key;
mod narrow;
mod norms;
mod pick;
mod screen;
mod screened;
mod serve;
mod spread;

/// One plan over columns.
pub(crate) struct Columnar<'a> {
    view: View<'a>,
    policy: &'a Policy,
    /// The stages for LRPs, and those for tasks.
    forms: [Rc<Form<'a>>; 2],
    judged: Vec<Judged<'a>>,
    shapes: Vec<&'a Request>,
    kept: Kept,
    screens: Screens,
    is_single: bool,
    scratch: Scratch,
}

/// The verdicts of the leading static filters on requests like this one, by class of cells.
struct Judged<'a> {
    request: &'a Request,
    keeps: Vec<bool>,
}

/// Buffers reused from job to job.
#[derive(Default)]
struct Scratch {
    /// The survivors' slots, ascending.
    alive: Vec<u32>,
    /// Parallel to `alive`, once a score was given.
    totals: Vec<f64>,
    term: Vec<f64>,
    blocks: Blocks,
    terms: terms::Scratch,
}

/// The most kinds of requests whose verdicts are remembered.
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
            forms: [Kind::Lrp, Kind::Task].map(|kind| Rc::new(Form::of(policy, kind))),
            judged: Vec::new(),
            shapes: batch.shapes.clone(),
            kept: Kept::default(),
            screens: Screens::default(),
            is_single: batch.order.len() < 2,
            scratch: Scratch::default(),
        }
    }

    /// Fills `alive` with the cells that pass the leading filters, both on amounts and static ones: all such cells, or
    /// those among `asked`.
    fn start(&mut self, request: &'a Request, form: &Form<'a>, asked: Option<&[u32]>) {
        let at = self.judge(request, &form.leading);
        let need = Need::under(form.asked, request);
        let (view, alive) = (&mut self.view, &mut self.scratch.alive);
        let (keeps, rows) = (&self.judged[at].keeps, &*view.session.parts.rows);
        let class_slots = &view.columns.class_slots;
        alive.clear();
        if let Some(asked) = asked {
            let fits = |slot: &u32| {
                let at = *slot as usize;
                keeps[class_slots[at] as usize] && need.fits(&rows[at])
            };
            alive.extend(asked.iter().copied().filter(fits));
        } else {
            alive.resize(view.columns.len(), 0);
            let kept = fitting(alive, keeps, class_slots, rows, &need);
            alive.truncate(kept);
        }
        self.scratch.terms.forget_seats();
        if need.extra {
            keep_with_extras(view, alive, request);
        }
    }

    /// The position of what the leading filters say of such requests.
    fn judge(&mut self, request: &'a Request, leading: &[&Filter]) -> usize {
        let known = self
            .judged
            .iter()
            // a linear search, as a batch has few kinds of requests; each new one costs a pass over all classes
            .position(|judged| same_demands(judged.request, request));
        known.unwrap_or_else(|| {
            // clears all: which will be needed again is unknown, and a batch rarely has this many
            if self.judged.len() >= MAX_JUDGED {
                self.judged.clear();
            }
            let keeps = self.view.columns.judge(leading, request, self.view.now());
            self.judged.push(Judged { request, keeps });
            self.judged.len() - 1
        })
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
            // needs counts that include the batch, so it is answered from columns and not from the original cell
            Filter::Locality => self.strict_locality(request),
            _ => {
                let now = view.now();
                alive.retain(|p| filter::keeps(filter, view.cell(*p), request, now));
            }
        }
    }

    /// Applies a filter after a score, and keeps the totals in step with the cells.
    fn filter_scored(&mut self, filter: &Filter, request: &Request) {
        // rare: no preset filters after a score
        let before = self.scratch.alive.clone();
        self.filter(filter, request);
        let after = std::mem::take(&mut self.scratch.alive);
        let totals = std::mem::take(&mut self.scratch.totals);
        let mut left = after.iter().copied().peekable();
        for (slot, total) in before.iter().zip(totals) {
            // both are in order of slots
            if left.peek() == Some(slot) {
                left.next();
                self.scratch.totals.push(total);
            }
        }
        self.scratch.alive = after;
    }

    /// Takes the cells that passed the start through the stages; says whether any is left.
    fn go_through(
        &mut self,
        form: &Form<'_>,
        job: &Job,
        group: JobGroup,
        objective: Option<&Objective>,
    ) -> bool {
        // empty totals stand for "not scored yet" below
        self.scratch.totals.clear();
        let request = &*job.request;
        let mut scored = false;
        for (at, stage) in form.stages.iter().enumerate() {
            if self.scratch.alive.is_empty() {
                return false;
            }
            match &stage.step {
                // already done by `start`
                Step::Filter(filter) if at < form.leading.len() && !is_dynamic(filter) => {}
                Step::Filter(filter) if scored => self.filter_scored(filter, request),
                Step::Filter(filter) => self.filter(filter, request),
                Step::Narrow(narrow) => self.narrow(narrow, job, group),
                Step::Score(step) => {
                    scored = true;
                    self.score(step, objective, job, group, Apps::Counted);
                }
            }
        }
        !self.scratch.alive.is_empty()
    }

    fn score(
        &mut self,
        step: &crate::policy::Score,
        objective: Option<&Objective>,
        job: &Job,
        group: JobGroup,
        apps: Apps,
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
            // any value to the power of 0
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
                    apps,
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

/// Writes the slots of cells that have what is needed and whose class is kept to the start of `alive`, and returns how
/// many. A single pass over two columns; the filters themselves were evaluated once per class.
// a separate function: inlined into its caller, the loop runs out of registers and takes three times as many
// instructions
#[inline(never)]
fn fitting(
    alive: &mut [u32],
    keeps: &[bool],
    class_slots: &[u32],
    rows: &[Row],
    need: &Need,
) -> usize {
    // without a branch that the processor could mispredict
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

/// Keeps what is wanted, also in the totals.
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

/// Keeps what is wanted, unless that is nothing. Returns whether there was any.
fn keep_if_any(scratch: &mut Scratch, wanted: impl Fn(&u32) -> bool) -> bool {
    let any = scratch.alive.iter().any(&wanted);
    if any {
        keep(scratch, wanted);
    }
    any
}

impl Engine for Columnar<'_> {
    fn choose(&mut self, job: &Job, group: JobGroup, objective: Option<&Objective>) -> Choice {
        self.view.meet(group, job);
        let form = Rc::clone(&self.forms[usize::from(job.request.kind == Kind::Task)]);
        if let Some(choice) = self.serve(&form, job, group, objective) {
            return choice;
        }
        if let Some(choice) = self.screen(&form, job, group) {
            return choice;
        }
        self.start(self.shapes[group.shape as usize], &form, None);
        if !self.go_through(&form, job, group, objective) {
            return Choice::default();
        }
        self.pick(job, group)
    }

    fn debit(&mut self, slot: u32, job: &Job, group: JobGroup) -> Option<Box<DeviceShares>> {
        self.kept.changed(slot);
        self.screens.changed(slot);
        self.view.debit(slot, job, group)
    }

    fn starting(&self, slot: u32) -> u32 {
        self.view.session.row(slot).starting
    }

    /// Reverts the batch's debits. Places by memory and disk are found again when they are next needed.
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
