//! The best sum of terms that rank cells.

use super::{Board, Candidate, Found, Mode, Point, RANKED, Scratch, Screen, View, score, tie};
use crate::{
    fast::columnar::spread::Before,
    policy::{Score, Term},
};

/// After so many changes a list is made anew: each changed cell is looked at for every job.
const MAX_MOVED: usize = 160;

/// One job's look at a board.
struct Look<'l, 'a> {
    view: &'l View<'a>,
    screen: &'l Screen<'l>,
    point: Point,
    /// One less than the cells that take part.
    last: f64,
    /// The scores that rank by memory and disk.
    ranks: [Option<&'l Score>; 2],
    /// What one place of these is worth.
    steps: [f64; 2],
    /// The most that chance can add.
    chance: f64,
    /// More than what rounding can change.
    slack: f64,
}

/// The finalists; none if the stages must decide.
pub(super) fn decide(
    view: &View<'_>,
    screen: &Screen<'_>,
    point: Point,
    scratch: &mut Scratch,
    board: &mut Board,
) -> Option<Vec<(u32, f64)>> {
    let taking_part = board.left - scratch.held_slots.len();
    let last = number(taking_part) - 1.0;
    let ranks = RANKED.map(|(term, _)| screen.ranks(&term));
    let look = Look {
        view,
        screen,
        point,
        last,
        ranks,
        steps: steps(ranks, last),
        chance: screen.random.map_or(0.0, score::factor),
        slack: 1e-8 * screen.reach,
    };
    if let Some(chance) = &mut board.chance {
        chance.draw(point);
    }
    for (spread, before) in board.spreads.iter().zip(&mut scratch.before) {
        if let Some(spread) = spread {
            spread.count(&scratch.held_slots, before);
        }
    }
    if board.hot.moved.len() > MAX_MOVED {
        board.hot.is_made = false;
    }
    let mut from = f64::INFINITY;
    // the margin doubles until the list is good enough, at last with all cells
    let mut margin = 0.05 * screen.reach;
    for _ in 0..64 {
        if !board.hot.is_made {
            look.make_hot(scratch, board, taking_part, from - margin);
        }
        let rise = look.rise(board, taking_part);
        let (best, found) = look.best(scratch, board, rise);
        if best - look.slack > board.hot.threshold + rise + look.chance {
            return Some(found);
        }
        // as it was made for other jobs, or too short
        from = from.min(best);
        margin *= 2.0;
        board.hot.is_made = false;
    }
    None
}

/// There are fewer than 2^32 cells.
#[allow(clippy::cast_possible_truncation)] // a conversion of 32 bits is one instruction
fn number(n: usize) -> f64 {
    f64::from(n as u32)
}

/// What one place is worth, where there are so many more.
fn steps(ranks: [Option<&Score>; 2], last: f64) -> [f64; 2] {
    ranks.map(|score| score.map_or(0.0, |score| score::factor(score) / last))
}

fn ascends(score: &Score) -> bool {
    score::lowest_is_best(&score.term) == (score.weight >= 0.0)
}

impl Look<'_, '_> {
    /// Lists the cells that could have this rating or more, as if all took part; at most the best that there is.
    fn make_hot(&self, scratch: &mut Scratch, board: &mut Board, taking_part: usize, from: f64) {
        let mut before: [Before; 2] = Default::default();
        for (spread, before) in board.spreads.iter().zip(&mut before) {
            if let Some(spread) = spread {
                spread.count(&[], before);
            }
        }
        let steps = steps(self.ranks, number(board.left) - 1.0);
        let mut ratings = std::mem::take(&mut scratch.ratings);
        ratings.clear();
        let mut best = f64::NEG_INFINITY;
        for ((slot, takes_part), held) in (0..).zip(&board.takes_part).zip(&scratch.held) {
            if *takes_part || *held {
                let high = self.high(board, &before, steps, slot);
                ratings.push((slot, high));
                // that of cells which miss the job is not the best there is
                best = if *takes_part { best.max(high) } else { best };
            }
        }
        let hot = &mut board.hot;
        (hot.left, hot.changes, hot.is_made) = (board.left, 0, true);
        hot.moved.clear();
        hot.is_moved.fill(false);
        let rise = self.rise(board, taking_part);
        let hot = &mut board.hot;
        let from = from.min(best - 0.05 * self.screen.reach);
        hot.threshold = from - self.chance - rise;
        hot.cells.clear();
        let near = ratings.iter().filter(|(_, high)| *high > hot.threshold);
        hot.cells.extend(near.copied());
        hot.cells.sort_unstable_by(|a, b| b.1.total_cmp(&a.1));
        if hot.cells.len() == ratings.len() {
            hot.threshold = f64::NEG_INFINITY;
        }
        scratch.ratings = ratings;
    }

    /// How much more than when the list was made a cell can have that did not change. Of cells that have left
    /// since, or miss this job, each moves a cell by one place at most; where more is better, so does each that
    /// changed.
    fn rise(&self, board: &Board, taking_part: usize) -> f64 {
        let hot = &board.hot;
        let rise = |score: &&Score| {
            let moved = if ascends(score) { 0 } else { hot.changes };
            score::factor(score) * number(hot.left - taking_part + moved) / self.last
        };
        self.ranks.iter().flatten().map(rise).sum()
    }

    /// The most that the cell can have without chance.
    fn high(&self, board: &Board, before: &[Before; 2], steps: [f64; 2], slot: u32) -> f64 {
        self.bounds(board, before, steps, slot).1
    }

    /// The least and the most that the cell can have without chance.
    #[inline]
    fn bounds(
        &self,
        board: &Board,
        before: &[Before; 2],
        steps: [f64; 2],
        slot: u32,
    ) -> (f64, f64) {
        let known = board.statics[slot as usize];
        let (mut low, mut high) = (known, known);
        for i in 0..RANKED.len() {
            let Some(score) = self.ranks[i] else {
                continue;
            };
            let factor = score::factor(score);
            let Some(spread) = &board.spreads[i] else {
                (low, high) = (low + factor, high + factor);
                continue;
            };
            let (first, last) = spread.places(slot, &before[i]);
            if ascends(score) {
                low += factor - steps[i] * last;
                high += factor - steps[i] * first;
            } else {
                low += steps[i] * first;
                high += steps[i] * last;
            }
        }
        (low, high)
    }

    /// The best rating and who has it, among the cells of the list; -∞ if none takes part.
    fn best(&self, scratch: &mut Scratch, board: &Board, rise: f64) -> (f64, Vec<(u32, f64)>) {
        let mut candidates = std::mem::take(&mut scratch.candidates);
        let mut best = self.candidates(scratch, board, rise, &mut candidates) - self.slack;
        let mut found = Found::new(self.view, self.point);
        for candidate in &candidates {
            if candidate.high < best - self.slack {
                continue;
            }
            let ranks = self.rank_terms(&scratch.before, board, candidate.slot);
            let total = self.total(board, candidate.slot, ranks, candidate.random);
            if total > best {
                best = total;
                found.clear();
            }
            if score::ties(total, best) {
                found.add(candidate.slot, total);
            }
        }
        scratch.candidates = candidates;
        (best, found.cells)
    }

    /// Finds the cells of the list that can be the best, and a rating that the best has at least; -∞ if none
    /// takes part.
    fn candidates(
        &self,
        scratch: &Scratch,
        board: &Board,
        rise: f64,
        candidates: &mut Vec<Candidate>,
    ) -> f64 {
        candidates.clear();
        let mut least = f64::NEG_INFINITY;
        let mut visit = |slot: u32, random: f64| {
            let (low, high) = self.bounds(board, &scratch.before, self.steps, slot);
            let (low, high) = (low + self.chance * random, high + self.chance * random);
            if high >= least - self.slack {
                candidates.push(Candidate { slot, high, random });
                least = least.max(low);
            }
            least - self.slack
        };
        let takes_part = |slot: u32| board.takes_part[slot as usize];
        let mut so_far = f64::NEG_INFINITY;
        for slot in &board.hot.moved {
            if takes_part(*slot) {
                so_far = visit(*slot, self.random(board, *slot));
            }
        }
        for (slot, high) in &board.hot.cells {
            let high = high + rise;
            if high + self.chance < so_far {
                break;
            }
            if !takes_part(*slot) || board.hot.is_moved[*slot as usize] {
                continue;
            }
            let random = self.random(board, *slot);
            if high + self.chance * random >= so_far {
                so_far = visit(*slot, random);
            }
        }
        least
    }

    /// The random term of a cell that takes part.
    fn random(&self, board: &Board, slot: u32) -> f64 {
        match (self.screen.random, &board.chance) {
            (None, _) => 0.0,
            (_, Some(chance)) => chance.share(self.view.columns.by_name.places[slot as usize]),
            (Some(_), None) => {
                let lot = self.view.columns.lots[slot as usize];
                tie::noise(lot, self.point) as f64 / u64::MAX as f64
            }
        }
    }

    /// The terms that rank by memory and disk.
    fn rank_terms(&self, before: &[Before; 2], board: &Board, slot: u32) -> [f64; 2] {
        let mut terms = [1.0; 2];
        for (i, (_, resource)) in RANKED.into_iter().enumerate() {
            let (Some(score), Some(spread)) = (self.ranks[i], &board.spreads[i]) else {
                continue;
            };
            let amount = |slot: u32| {
                let takes_part = board.takes_part[slot as usize];
                takes_part.then(|| self.view.session.row(slot).free[resource])
            };
            let (less, equal) = spread.place(slot, &before[i], amount);
            let mean = (f64::from(less) + f64::from(less + equal) - 1.0) / 2.0;
            let from_best = if ascends(score) {
                mean
            } else {
                self.last - mean
            };
            terms[i] = (self.last - from_best) / self.last;
        }
        terms
    }

    /// The terms added up in the order of the stages.
    fn total(&self, board: &Board, slot: u32, ranks: [f64; 2], random: f64) -> f64 {
        let Some(norms) = board.norms() else {
            return f64::NAN;
        };
        let mut total = 0.0;
        for score in &self.screen.scores {
            let term = match (&score.term, score.mode) {
                (Term::Random, _) => random,
                (Term::Memory, Mode::Rank) => ranks[0],
                (Term::Disk, Mode::Rank) => ranks[1],
                _ => board.static_term(self.view, norms, score, slot),
            };
            total += term * score::factor(score);
        }
        total
    }
}
