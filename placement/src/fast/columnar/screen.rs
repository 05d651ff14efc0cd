//! What is kept of the cells for jobs of one shape, where scores compare all cells that take part (`dapi`, `rfd24`).
//!
//! **Why.** There a debit, or an owner whose cells are avoided, changes the rating of every cell a little. But
//! the rating of one cell is soon worked out if places and extremes are kept, and most cells are so far behind
//! that a bound shows that they cannot win. With 5,000 cells this is 15 (`dapi`) to 35 times (`rfd24`) as
//! fast as the stages.
//!
//! **Invariant.** Within a plan cells only get less, so a cell that the filters drop does not come back. A
//! rating that decides is worked out by the formulas of [`crate::stages::score`], addition by addition; bounds
//! only say for which cells that is not needed, and where they leave a doubt the stages decide.

use super::{
    View,
    chance::Chance,
    form::Screen,
    norms::{Ends, Norms, Orders},
    spread::{Before, Spread},
};
use crate::{
    fast_map::{FastMap, FastSet},
    policy::{Combine, Mode, Score, Term},
    resources::{Amounts, Resource},
    stages::score,
};

/// The most values that are kept: boards times slots.
const MAX_VALUES: usize = 1 << 20;
/// Slots in a block.
pub(super) const BLOCK: usize = 64;
/// The resources that terms rank by.
pub(super) const RANKED: [(Term, Resource); 2] = [
    (Term::Memory, Resource::Memory),
    (Term::Disk, Resource::Disk),
];

/// All boards of a plan, and what is reused from job to job.
#[derive(Default)]
pub(super) struct Screens {
    /// By shape.
    pub(super) boards: FastMap<u32, Board>,
    asked_once: FastSet<u32>,
    /// The slots of the cells that were debited.
    pub(super) changes: Vec<u32>,
    pub(super) orders: Option<Orders>,
    pub(super) scratch: Scratch,
}

#[derive(Default)]
pub(super) struct Scratch {
    /// By slot: whether the cell misses only this job.
    pub(super) held: Vec<bool>,
    pub(super) held_slots: Vec<u32>,
    pub(super) before: [Before; 2],
    /// The cells that take part, and the most that their rating can be without chance.
    pub(super) ratings: Vec<(u32, f64)>,
    pub(super) candidates: Vec<Candidate>,
}

/// A cell that may have the best rating.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) slot: u32,
    /// The most that its rating can be.
    pub(super) high: f64,
    /// Its random term.
    pub(super) random: f64,
}

/// The cells for jobs of one shape.
#[derive(Default)]
pub(super) struct Board {
    /// How many changes it knows of.
    pub(super) seen: usize,
    /// By slot: whether the cell takes part.
    pub(super) takes_part: Vec<bool>,
    /// The same, where the policy ranks cells at random.
    pub(super) chance: Option<Chance>,
    /// How many the filters keep; of those, how many have a limit of disk, disk without limit, and no planned reboot.
    pub(super) left: usize,
    pub(super) limited: usize,
    pub(super) unlimited: usize,
    pub(super) nevers: usize,
    /// Of memory and disk, where the policy ranks by them.
    pub(super) spreads: [Option<Spread>; 2],
    pub(super) ends: [Ends; 2],
    /// Those for which the numbers below hold; none = they do not.
    norms: Option<Norms>,
    /// By slot: the terms of the cell and the norms together, without chance and ranks.
    pub(super) statics: Vec<f64>,
    /// By block of slots: the highest of them.
    pub(super) best: Vec<f64>,
    pub(super) hot: Hot,
}

/// The cells that came near the best when the list was made; all others had less than the threshold.
#[derive(Default)]
pub(super) struct Hot {
    /// The most that each could have without chance, the highest first.
    pub(super) cells: Vec<(u32, f64)>,
    /// Cells that changed since, and by slot whether it is one of them.
    pub(super) moved: Vec<u32>,
    pub(super) is_moved: Vec<bool>,
    pub(super) threshold: f64,
    pub(super) is_made: bool,
    /// How many cells there were, and how many changes since.
    pub(super) left: usize,
    pub(super) changes: usize,
}

impl Screens {
    pub(super) fn changed(&mut self, slot: u32) {
        if !self.boards.is_empty() {
            self.changes.push(slot);
        }
    }

    /// Takes the board out, which may still have to be made; none for a shape that is asked for the first time.
    pub(super) fn take(&mut self, shape: u32, slots: usize) -> Option<Board> {
        if let Some(board) = self.boards.remove(&shape) {
            return Some(board);
        }
        if self.asked_once.insert(shape) {
            return None;
        }
        if (self.boards.len() + 1) * slots > MAX_VALUES {
            self.boards.clear();
        }
        if self.boards.is_empty() {
            self.changes.clear();
        }
        Some(Board::default())
    }
}

impl Board {
    pub(super) fn is_new(&self) -> bool {
        self.takes_part.is_empty()
    }

    /// Makes the board: `alive` are the cells that the filters keep.
    pub(super) fn fill(
        &mut self,
        view: &View<'_>,
        screen: &Screen<'_>,
        orders: &Orders,
        alive: &[u32],
    ) {
        let slots = view.columns.len();
        self.takes_part = vec![false; slots];
        self.chance = screen.ranks(&Term::Random).map(|_| Chance::new(slots));
        self.statics = vec![0.0; slots];
        self.best = vec![0.0; slots.div_ceil(BLOCK)];
        self.hot.is_moved = vec![false; slots];
        self.ends = [
            Ends::of(orders.stamps.len()),
            Ends::of(orders.reboots.len()),
        ];
        self.spreads = RANKED.map(|(term, resource)| {
            let amount = |slot: &u32| view.session.row(*slot).free[resource];
            screen.ranks(&term)?;
            Some(Spread::new(slots, alive.iter().map(amount)))
        });
        for slot in alive {
            self.enter(view, *slot, true);
        }
    }

    /// The cell is kept by the filters, or no longer.
    fn enter(&mut self, view: &View<'_>, slot: u32, enters: bool) {
        let at = slot as usize;
        let row = view.session.row(slot);
        let count = |n: &mut usize, counts: bool| match (counts, enters) {
            (true, true) => *n += 1,
            (true, false) => *n -= 1,
            (false, _) => {}
        };
        count(&mut self.left, true);
        count(&mut self.limited, view.columns.disk_is_limited[at]);
        count(
            &mut self.unlimited,
            row.free[Resource::Disk] == Amounts::UNLIMITED,
        );
        count(&mut self.nevers, view.reboot(slot).is_none());
        self.set_part(view, slot, enters);
        for (spread, (_, resource)) in self.spreads.iter_mut().zip(RANKED) {
            if let Some(spread) = spread {
                spread.set(slot, enters.then(|| row.free[resource]));
            }
        }
    }

    /// The cell takes part, or does not.
    pub(super) fn set_part(&mut self, view: &View<'_>, slot: u32, takes_part: bool) {
        self.takes_part[slot as usize] = takes_part;
        if let Some(chance) = &mut self.chance {
            chance.set(view.columns.by_name.places[slot as usize], takes_part);
        }
    }

    /// Takes in what the filters say of the cells `asked` that changed: they keep those `alive`. Both ascend.
    pub(super) fn update(
        &mut self,
        view: &View<'_>,
        screen: &Screen<'_>,
        asked: &[u32],
        alive: &[u32],
    ) {
        let mut alive = alive.iter().peekable();
        for slot in asked {
            let at = *slot as usize;
            let stays = alive.next_if(|alive| *alive == slot).is_some();
            if !self.takes_part[at] {
                // gone before: what a job takes is not given back
                continue;
            }
            self.enter(view, *slot, false);
            if stays {
                self.enter(view, *slot, true);
            }
            self.hot.changes += 1;
            if stays && self.hot.is_made && !std::mem::replace(&mut self.hot.is_moved[at], true) {
                self.hot.moved.push(*slot);
            }
            if let Some(norms) = self.norms.take() {
                self.statics[at] = if stays {
                    self.static_rating(view, screen, &norms, *slot)
                } else {
                    0.0
                };
                self.norms = Some(norms);
                if screen.is_product {
                    self.find_best(at / BLOCK);
                }
            }
        }
    }

    fn find_best(&mut self, block: usize) {
        let end = self.statics.len().min((block + 1) * BLOCK);
        let values = self.statics[block * BLOCK..end].iter();
        self.best[block] =
            values.fold(0.0, |best, value| if *value > best { *value } else { best });
    }

    /// Brings the numbers that depend on them up to date with the norms.
    pub(super) fn settle(
        &mut self,
        view: &View<'_>,
        screen: &Screen<'_>,
        norms: Norms,
        held: &[bool],
    ) {
        if self.norms.as_ref() == Some(&norms) {
            return;
        }
        for (at, held) in held.iter().enumerate() {
            if self.takes_part[at] || *held {
                let slot = u32::try_from(at).unwrap_or(u32::MAX);
                self.statics[at] = self.static_rating(view, screen, &norms, slot);
            }
        }
        if screen.is_product {
            (0..self.best.len()).for_each(|block| self.find_best(block));
        }
        self.norms = Some(norms);
        self.hot.is_made = false;
    }

    pub(super) fn norms(&self) -> Option<&Norms> {
        self.norms.as_ref()
    }

    /// The terms that need nothing but the cell and the norms, together.
    fn static_rating(&self, view: &View<'_>, screen: &Screen<'_>, norms: &Norms, slot: u32) -> f64 {
        let combine = if screen.is_product {
            Combine::Product
        } else {
            Combine::Sum
        };
        let terms = screen.scores.iter().filter(|score| !is_of_job(score));
        let term = |score: &&&Score| {
            (
                self.static_term(view, norms, score, slot),
                score::factor(score),
            )
        };
        match combine {
            Combine::Sum => terms
                .map(|score| term(&score))
                .map(|(term, factor)| term * factor)
                .sum(),
            Combine::Product => {
                let mut product = 1.0;
                for score in terms {
                    let (term, factor) = term(&score);
                    let mut raised = [term];
                    score::raise(&mut raised, factor);
                    if term <= 0.0 {
                        return 0.0;
                    }
                    product *= raised[0];
                }
                // only a term of 0 makes 0
                product.max(f64::MIN_POSITIVE)
            }
        }
    }

    /// One of those terms, by the plain formula.
    pub(super) fn static_term(
        &self,
        view: &View<'_>,
        norms: &Norms,
        score: &Score,
        slot: u32,
    ) -> f64 {
        let (columns, at) = (&*view.columns, slot as usize);
        let used = |free: f64, total: f64| {
            let share = (1.0 - free / total.max(1.0)).clamp(0.0, 1.0);
            if score.weight < 0.0 {
                1.0 - share
            } else {
                share
            }
        };
        match score.term {
            Term::Memory => used(columns.memory[at], columns.total_memory[at]),
            Term::Disk if self.limited == 0 => 1.0,
            Term::Disk => used(columns.disk[at], columns.total_disk[at]),
            Term::Platform => norms.platform(columns.platforms[at], score.weight),
            Term::Reboot => norms.reboot(view.reboot(slot), score),
            _ => 0.0,
        }
    }
}

/// Whether the term depends on the job, or on the place among all cells that take part.
pub(super) fn is_of_job(score: &Score) -> bool {
    match score.term {
        Term::Memory | Term::Disk => score.mode == Mode::Rank,
        Term::Random => true,
        _ => false,
    }
}
