//! One auction as a state machine: given the answers, it returns what to ask next. It knows no
//! time, no messages and no cells.

use super::{Algorithm, Rules};
use crate::random::Random;

/// A request to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QuestionKind {
    /// Bid.
    Bid,
    /// Bid, then reserve.
    Reserve,
    /// Release the reservation.
    Release,
    /// Run the instance for which the cell has a reservation.
    Run,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// Ask these cells, and continue with their answers.
    Ask(QuestionKind, Vec<u32>),
    /// The maximum of rounds is reached.
    GiveUp,
}

/// A cell's answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Answer {
    pub(super) cell: u32,
    /// Its bid; none if it lacks resources. Meaningless after a release or a run.
    pub(super) bid: Option<f64>,
}

/// Which request the next answers belong to.
#[derive(Clone, Debug, PartialEq)]
enum Phase {
    Bids,
    Reserve { runners_up: Vec<u32> },
    Rebids { winner: Answer },
    ReleaseThenRun { winner: u32 },
    ReleaseThenNextRound,
    Run,
}

/// An auction in progress.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Auction {
    /// Rounds begun.
    pub(super) rounds: u32,
    phase: Phase,
}

impl Auction {
    pub(super) fn new() -> Self {
        Self {
            rounds: 0,
            phase: Phase::Bids,
        }
    }

    /// Begins a round over these cells, whose order does not matter and changes.
    pub(super) fn next_round(
        &mut self,
        rules: &Rules,
        cells: &mut [u32],
        random: &mut Random,
    ) -> Step {
        if self.rounds >= rules.max_rounds {
            return Step::GiveUp;
        }
        self.rounds += 1;
        if rules.algorithm == Algorithm::Random {
            let drawn = random.sample(cells, 1).to_vec();
            return self.reserve(drawn, Vec::new());
        }
        self.phase = Phase::Bids;
        let pool = rules.pool(cells.len());
        Step::Ask(QuestionKind::Bid, random.sample(cells, pool).to_vec())
    }

    /// Returns the next step after these answers; `None` if the auction is over because the winner runs.
    pub(super) fn answered(
        &mut self,
        rules: &Rules,
        answers: &[Answer],
        cells: &mut [u32],
        random: &mut Random,
    ) -> Option<Step> {
        let phase = std::mem::replace(&mut self.phase, Phase::Bids);
        let mut sorted = sort(answers, random);
        Some(match phase {
            Phase::Bids if sorted.is_empty() => self.next_round(rules, cells, random),
            Phase::Bids => match rules.algorithm {
                Algorithm::Random | Algorithm::PickBest => {
                    self.reserve(vec![sorted[0].0], Vec::new())
                }
                Algorithm::ReserveNBest => {
                    sorted.truncate(rules.n_best as usize);
                    self.reserve(cells_of(&sorted), Vec::new())
                }
                Algorithm::AllRebid => {
                    let runners_up = cells_of(&sorted[1..]);
                    self.reserve(vec![sorted[0].0], runners_up)
                }
            },
            Phase::Reserve { .. } if sorted.is_empty() => self.next_round(rules, cells, random),
            Phase::Reserve { runners_up } => self.reserved(&sorted, runners_up),
            Phase::Rebids { winner } => self.rebid(rules, winner, &sorted),
            Phase::ReleaseThenRun { winner } => self.run(winner),
            Phase::ReleaseThenNextRound => self.next_round(rules, cells, random),
            Phase::Run => return None,
        })
    }

    fn reserved(&mut self, sorted: &[(u32, f64)], runners_up: Vec<u32>) -> Step {
        let (winner, bid) = sorted[0];
        if !runners_up.is_empty() {
            let bid = Some(bid);
            self.phase = Phase::Rebids {
                winner: Answer { cell: winner, bid },
            };
            return Step::Ask(QuestionKind::Bid, runners_up);
        }
        let others = cells_of(&sorted[1..]);
        if others.is_empty() {
            return self.run(winner);
        }
        self.phase = Phase::ReleaseThenRun { winner };
        Step::Ask(QuestionKind::Release, others)
    }

    /// Decides under `all_rebid`: the winner stays unless a runner-up now has a lower bid; in the last round it always
    /// stays.
    fn rebid(&mut self, rules: &Rules, winner: Answer, sorted: &[(u32, f64)]) -> Step {
        let rival = sorted.get(percentile_position(sorted.len(), rules.percentile));
        let better = rival.is_some_and(|(_, bid)| Some(*bid) < winner.bid);
        if !better || self.rounds >= rules.max_rounds {
            return self.run(winner.cell);
        }
        self.phase = Phase::ReleaseThenNextRound;
        Step::Ask(QuestionKind::Release, vec![winner.cell])
    }

    fn reserve(&mut self, cells: Vec<u32>, runners_up: Vec<u32>) -> Step {
        self.phase = Phase::Reserve { runners_up };
        Step::Ask(QuestionKind::Reserve, cells)
    }

    fn run(&mut self, winner: u32) -> Step {
        self.phase = Phase::Run;
        Step::Ask(QuestionKind::Run, vec![winner])
    }
}

/// Returns the bids, lowest first, with equal ones in random order.
fn sort(answers: &[Answer], random: &mut Random) -> Vec<(u32, f64)> {
    let bids = answers
        .iter()
        .filter_map(|a| a.bid.map(|bid| (a.cell, bid)));
    let mut bids: Vec<_> = bids.collect();
    random.shuffle(&mut bids);
    bids.sort_by(|a, b| a.1.total_cmp(&b.1));
    bids
}

fn cells_of(bids: &[(u32, f64)]) -> Vec<u32> {
    bids.iter().map(|(cell, _)| *cell).collect()
}

/// Returns the position floor((n - 1) * percentile) of n sorted bids, as the auctions of 2014 computed it.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to n - 1
fn percentile_position(n: usize, percentile: f64) -> usize {
    (n.saturating_sub(1) as f64 * percentile).floor() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(bids: &[(u32, Option<f64>)]) -> Vec<Answer> {
        let answer = |(cell, bid): &(u32, Option<f64>)| Answer {
            cell: *cell,
            bid: *bid,
        };
        bids.iter().map(answer).collect()
    }

    /// Plays answers into one auction over 20 cells and returns every step.
    fn play(rules: &Rules, script: &[&[(u32, Option<f64>)]]) -> Vec<Option<Step>> {
        let mut random = Random::new(1);
        let mut cells: Vec<u32> = (0..20).collect();
        let mut auction = Auction::new();
        let mut steps = vec![Some(auction.next_round(rules, &mut cells, &mut random))];
        for bids in script {
            let bids = answers(bids);
            steps.push(auction.answered(rules, &bids, &mut cells, &mut random));
        }
        steps
    }

    #[allow(clippy::unnecessary_wraps)] // compared with what may be none
    fn ask(kind: QuestionKind, cells: &[u32]) -> Option<Step> {
        Some(Step::Ask(kind, cells.to_vec()))
    }

    fn is_pool(step: Option<&Step>, kind: QuestionKind, n: usize) {
        match step {
            Some(Step::Ask(asked, cells)) if *asked == kind => {
                let distinct: std::collections::BTreeSet<_> = cells.iter().collect();
                assert_eq!((cells.len(), distinct.len()), (n, n));
            }
            other => panic!("{other:?} is not a pool of {n} for {kind:?}"),
        }
    }

    #[test]
    fn random_asks_one_cell_until_one_has_room() {
        let rules = Rules {
            max_rounds: 2,
            ..Rules::of(Algorithm::Random)
        };
        let steps = play(&rules, &[&[(3, None)], &[(4, Some(0.5))], &[(4, None)]]);
        is_pool(steps[0].as_ref(), QuestionKind::Reserve, 1);
        is_pool(steps[1].as_ref(), QuestionKind::Reserve, 1);
        assert_eq!(steps[2..], [ask(QuestionKind::Run, &[4]), None]);
        let steps = play(&rules, &[&[(3, None)], &[]]);
        assert_eq!(steps[2], Some(Step::GiveUp));
    }

    #[test]
    fn pick_best_reserves_the_lowest_and_bids_again_after_a_refusal() {
        let rules = Rules::of(Algorithm::PickBest);
        let bids: &[_] = &[(1, Some(0.3)), (2, Some(0.1)), (3, None), (4, Some(0.2))];
        let steps = play(&rules, &[bids, &[(2, None)], bids, &[(2, Some(0.1))], &[]]);
        is_pool(steps[0].as_ref(), QuestionKind::Bid, 10);
        assert_eq!(steps[1], ask(QuestionKind::Reserve, &[2]));
        is_pool(steps[2].as_ref(), QuestionKind::Bid, 10);
        assert_eq!(
            steps[3..],
            [
                ask(QuestionKind::Reserve, &[2]),
                ask(QuestionKind::Run, &[2]),
                None
            ]
        );
    }

    #[test]
    fn reserve_n_best_takes_the_lowest_second_bid_and_releases_the_others() {
        let rules = Rules {
            n_best: 3,
            ..Rules::of(Algorithm::ReserveNBest)
        };
        let bids: &[_] = &[
            (1, Some(0.3)),
            (2, Some(0.1)),
            (3, Some(0.9)),
            (4, Some(0.2)),
        ];
        let reserved: &[_] = &[(2, Some(0.5)), (4, Some(0.4)), (1, None)];
        let steps = play(&rules, &[bids, reserved, &[], &[]]);
        assert_eq!(steps[1], ask(QuestionKind::Reserve, &[2, 4, 1]));
        assert_eq!(
            steps[2..],
            [
                ask(QuestionKind::Release, &[2]),
                ask(QuestionKind::Run, &[4]),
                None
            ]
        );
        let steps = play(&rules, &[bids, &[(2, None), (4, None)]]);
        is_pool(steps[2].as_ref(), QuestionKind::Bid, 10);
    }

    #[test]
    fn all_rebid_releases_the_winner_when_another_is_lower_by_now() {
        let rules = Rules {
            max_rounds: 2,
            percentile: 0.0,
            ..Rules::of(Algorithm::AllRebid)
        };
        let bids: &[_] = &[(1, Some(0.3)), (2, Some(0.1)), (3, Some(0.2)), (4, None)];
        let reserved: &[_] = &[(2, Some(0.4))];
        let lower: &[_] = &[(1, Some(0.45)), (3, Some(0.35))];
        let script: &[_] = &[bids, reserved, lower, &[], bids, reserved, lower, &[]];
        let steps = play(&rules, script);
        assert_eq!(
            steps[1..4],
            [
                ask(QuestionKind::Reserve, &[2]),
                ask(QuestionKind::Bid, &[3, 1]),
                ask(QuestionKind::Release, &[2]),
            ]
        );
        is_pool(steps[4].as_ref(), QuestionKind::Bid, 10);
        // the last round keeps its winner
        assert_eq!(steps[7..], [ask(QuestionKind::Run, &[2]), None]);
        // a rival with an equal bid is not lower
        let steps = play(&rules, &[bids, reserved, &[(3, Some(0.4))]]);
        assert_eq!(steps[3], ask(QuestionKind::Run, &[2]));
        // nor is a lower bid that is not at the compared position
        let high = Rules {
            percentile: 1.0,
            ..rules
        };
        let steps = play(&high, &[bids, reserved, lower]);
        assert_eq!(steps[3], ask(QuestionKind::Run, &[2]));
    }

    #[test]
    fn the_percentile_selects_a_position_of_the_second_bids() {
        for (n, percentile, expected) in [
            (0, 0.2, 0),
            (1, 0.2, 0),
            (5, 0.2, 0),
            (6, 0.2, 1),
            (19, 0.2, 3),
            (5, 1.0, 4),
        ] {
            assert_eq!(
                percentile_position(n, percentile),
                expected,
                "{n} {percentile}"
            );
        }
    }
}
