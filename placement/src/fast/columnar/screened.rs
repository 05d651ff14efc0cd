//! Decisions where scores compare all cells: bounds first, then the few cells that may win.

use super::{
    Columnar, Form, View,
    form::Screen,
    is_dynamic,
    norms::Orders,
    pick::Found,
    screen::{BLOCK, Board, Candidate, RANKED, Scratch, Screens},
};
use crate::{
    batch::JobGroup,
    engine::Choice,
    policy::{Mode, Term},
    request::Job,
    stages::score,
    tie::{self, Point},
};

mod sum;

/// With fewer cells the stages decide: there is nothing to gain, and one or two cells are rated otherwise.
const FEW: usize = 8;

impl<'a> Columnar<'a> {
    /// The decision, if the ratings of such jobs can be bounded.
    pub(super) fn screen(&mut self, form: &Form<'a>, job: &Job, group: JobGroup) -> Option<Choice> {
        let screen = form.screen.as_ref()?;
        let request = &*job.request;
        if self.is_single || !(request.near.is_empty() && request.far.is_empty()) {
            return None;
        }
        if screen.ranks(&Term::Random).is_some() {
            let names = self.view.session.parts.names;
            self.view.columns.settle_by_name(names);
        }
        let mut screens = std::mem::take(&mut self.screens);
        let board = screens.take(group.shape, self.view.columns.len());
        let found = board.and_then(|mut board| {
            self.bring_up_to_date(form, screen, job, group, &mut screens, &mut board);
            let point = self.view.session.point(job, group);
            let found = decide(&self.view, screen, job, point, &mut screens, &mut board);
            screens.boards.insert(group.shape, board);
            found
        });
        self.screens = screens;
        let point = self.view.session.point(job, group);
        found.map(|found| self.draw(point, found))
    }

    /// Asks the filters about the cells that changed.
    fn bring_up_to_date(
        &mut self,
        form: &Form<'a>,
        screen: &Screen<'_>,
        job: &Job,
        group: JobGroup,
        screens: &mut Screens,
        board: &mut Board,
    ) {
        let mut news = Vec::new();
        if !board.is_new() {
            news.extend_from_slice(&screens.changes[board.seen..]);
            news.sort_unstable();
            news.dedup();
        }
        board.seen = screens.changes.len();
        if news.is_empty() && !board.is_new() {
            return;
        }
        let asked = (!board.is_new()).then_some(news.as_slice());
        self.start(self.shapes[group.shape as usize], form, asked);
        for filter in form.leading.iter().filter(|filter| is_dynamic(filter)) {
            self.filter(filter, &job.request);
        }
        let (view, alive) = (&self.view, &self.scratch.alive);
        if let Some(asked) = asked {
            board.update(view, screen, asked, alive);
        } else {
            let orders = &mut screens.orders;
            // one for LRPs and tasks
            let screens = self.forms.iter().filter_map(|form| form.screen.as_ref());
            let scores = screens.flat_map(|screen| screen.scores.iter().copied());
            let orders =
                orders.get_or_insert_with(|| Orders::of(view, &scores.collect::<Vec<_>>()));
            board.fill(view, screen, orders, alive);
        }
    }
}

/// The finalists; none if the stages must decide.
fn decide(
    view: &View<'_>,
    screen: &Screen<'_>,
    job: &Job,
    point: Point,
    screens: &mut Screens,
    board: &mut Board,
) -> Option<Vec<(u32, f64)>> {
    let Screens {
        orders, scratch, ..
    } = screens;
    let has = |term: Term| screen.scores.iter().any(|score| score.term == term);
    let some = |count: usize| count > 0 && count < board.left;
    // some cells with and some without a limit are rare, and each mode treats them in its own way
    if board.left < FEW || has(Term::Disk) && (some(board.limited) || some(board.unlimited)) {
        return None;
    }
    // without limits all have the same: the term is 1
    if board.unlimited == board.left && board.spreads[1].take().is_some() {
        board.hot.is_made = false;
    }
    hold(view, screen, job, scratch, board);
    let found = (board.left >= FEW + scratch.held_slots.len()).then(|| {
        let orders = orders.as_ref()?;
        let held_nevers = scratch
            .held_slots
            .iter()
            .filter(|slot| view.reboot(**slot).is_none());
        let never = board.nevers > held_nevers.count();
        let weeks = screen.ranks(&Term::Reboot).is_some();
        let mut ends = board.ends;
        let (takes_part, held) = (&board.takes_part, &scratch.held);
        let norms = orders.norms(view, &mut ends, takes_part, held, weeks.then_some(never));
        board.ends = ends;
        board.settle(view, screen, norms, &scratch.held);
        if screen.is_product {
            product(view, screen, point, board)
        } else {
            sum::decide(view, screen, point, scratch, board)
        }
    });
    for slot in scratch.held_slots.drain(..) {
        board.set_part(view, slot, true);
        scratch.held[slot as usize] = false;
    }
    found.flatten()
}

/// Has the cells with other work of the owner miss the job, unless none is left then.
fn hold(view: &View<'_>, screen: &Screen<'_>, job: &Job, scratch: &mut Scratch, board: &mut Board) {
    scratch.held.resize(board.takes_part.len(), false);
    let owner = job.request.owner.as_deref().filter(|_| screen.avoids_owner);
    let holders = owner.map_or(&[][..], |owner| view.owner(owner));
    let there = holders.iter().map(|(slot, _)| *slot);
    scratch
        .held_slots
        .extend(there.filter(|slot| board.takes_part[*slot as usize]));
    if scratch.held_slots.len() == board.left {
        scratch.held_slots.clear();
    }
    for slot in &scratch.held_slots {
        board.set_part(view, *slot, false);
        scratch.held[*slot as usize] = true;
    }
}

/// The best product. It is scaled to 1 at the end, so its bits only matter where two are nearly equal: then the
/// stages decide.
fn product(
    view: &View<'_>,
    screen: &Screen<'_>,
    point: Point,
    board: &Board,
) -> Option<Vec<(u32, f64)>> {
    /// By more than this share products differ whatever the rounding.
    const NEAR: f64 = 1.0 - 1e-9;
    /// Below, the steps in between might be rounded to 0.
    const TINY: f64 = 1e-150;
    let power = score::factor(screen.random?);
    let lots = &view.columns.lots;
    let (mut best, mut second, mut winner) = (0.0, 0.0, None);
    let mut any = false;
    let mut visit = |block: usize| {
        if board.best[block] < best * NEAR || board.best[block] <= 0.0 {
            return;
        }
        let end = board.takes_part.len().min((block + 1) * BLOCK);
        let here = lots.iter().enumerate().take(end).skip(block * BLOCK);
        for (at, lot) in here {
            let known = board.statics[at];
            if !board.takes_part[at] || known <= 0.0 || known < best * NEAR {
                continue;
            }
            any = true;
            let mut chance = [tie::noise(*lot, point) as f64 / u64::MAX as f64];
            score::raise(&mut chance, power);
            let rating = known * chance[0];
            if rating > best {
                (second, best, winner) = (best, rating, Some(at));
            } else if rating > second {
                second = rating;
            }
        }
    };
    // the block with the highest bound first: after it few others need a look
    let first = (0..board.best.len()).max_by(|a, b| board.best[*a].total_cmp(&board.best[*b]))?;
    visit(first);
    (0..board.best.len())
        .filter(|block| *block != first)
        .for_each(visit);
    let mut found = Found::new(view, point);
    if !any {
        for (slot, takes_part) in (0..).zip(&board.takes_part) {
            if *takes_part {
                found.add(slot, 0.0);
            }
        }
        return Some(found.cells);
    }
    let is_clear = best > TINY && second < best * NEAR;
    let winner = u32::try_from(winner?).ok()?;
    is_clear.then(|| vec![(winner, 1.0)])
}
