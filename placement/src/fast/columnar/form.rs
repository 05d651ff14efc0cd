//! What the columnar engine knows of a policy's stages before the first job.

use crate::{
    fast::rows::Asked,
    policy::{Combine, Filter, Mode, Narrow, Pick, Policy, Score, Stage, Step, Term},
    request::Kind,
    stages::score,
};

/// The stages for one kind of job.
pub(super) struct Form<'a> {
    pub(super) stages: Vec<&'a Stage>,
    /// The filters before any other stage.
    pub(super) leading: Vec<&'a Filter>,
    /// The resources that those ask for.
    pub(super) asked: Asked,
    /// Whether the ratings can be kept from job to job.
    pub(super) keeps: bool,
    /// How ratings are bounded where they depend on all cells that take part.
    pub(super) screen: Option<Screen<'a>>,
    /// Whether only the zones with the fewest instances of the app take part.
    pub(super) by_zone: bool,
}

impl<'a> Form<'a> {
    pub(super) fn of(policy: &'a Policy, kind: Kind) -> Self {
        let stages: Vec<&Stage> = policy.stages_for(kind).collect();
        let filters = stages.iter().map_while(|stage| match &stage.step {
            Step::Filter(filter) => Some(filter),
            _ => None,
        });
        let leading: Vec<&Filter> = filters.collect();
        let rest = &stages[leading.len()..];
        let fewest = Step::Narrow(Narrow::ZoneFewest);
        let by_zone = rest.first().is_some_and(|stage| stage.step == fewest);
        let scores = &rest[usize::from(by_zone)..];
        Self {
            asked: Asked::by(leading.iter().copied()),
            keeps: matches!(policy.pick, Pick::Lowest | Pick::Highest)
                && policy.combine == Combine::Sum
                && scores.iter().all(|stage| rates_alone(&stage.step)),
            screen: Screen::of(policy, rest),
            by_zone,
            leading,
            stages,
        }
    }

    /// The stages after the leading filters that score.
    pub(super) fn scores(&self) -> impl Iterator<Item = &'a Score> {
        self.stages.iter().filter_map(|stage| match &stage.step {
            Step::Score(score) => Some(score),
            _ => None,
        })
    }
}

/// Scores that compare cells by memory, disk, platform, reboot and chance, of which the highest wins.
pub(super) struct Screen<'a> {
    /// Those that make a difference.
    pub(super) scores: Vec<&'a Score>,
    pub(super) random: Option<&'a Score>,
    pub(super) is_product: bool,
    /// Whether cells with other work of the owner are avoided.
    pub(super) avoids_owner: bool,
    /// The most that all terms together can give.
    pub(super) reach: f64,
}

impl<'a> Screen<'a> {
    fn of(policy: &'a Policy, rest: &[&'a Stage]) -> Option<Self> {
        let away = Step::Narrow(Narrow::Locality);
        let avoids_owner = rest.first().is_some_and(|stage| stage.step == away);
        let is_product = policy.combine == Combine::Product;
        let mut scores = Vec::new();
        for stage in &rest[usize::from(avoids_owner)..] {
            let Step::Score(score) = &stage.step else {
                return None;
            };
            match (&score.term, score.mode) {
                (_, Mode::Rank | Mode::Ratio) if score.weight == 0.0 => continue,
                // a negative zero would be one of the finalists
                _ if is_product && score.weight < 0.0 => return None,
                (Term::Memory | Term::Disk | Term::Random, Mode::Rank) if is_product => {
                    return None;
                }
                (
                    Term::Memory | Term::Disk | Term::Platform | Term::Reboot | Term::Random,
                    Mode::Rank | Mode::Ratio,
                ) => {}
                _ => return None,
            }
            scores.push(score);
        }
        let mut chances = scores.iter().filter(|score| score.term == Term::Random);
        let (random, other) = (chances.next().copied(), chances.next());
        let reach = scores.iter().map(|score| score::factor(score)).sum();
        // without chance many cells have nearly the same product, and which of them is the best only its bits say
        let serves = policy.pick == Pick::Highest
            && other.is_none()
            && !scores.is_empty()
            && (!is_product || random.is_some_and(|score| score.weight >= 0.01));
        serves.then_some(Self {
            scores,
            random,
            is_product,
            avoids_owner,
            reach,
        })
    }

    /// The score that ranks cells by a term.
    pub(super) fn ranks(&self, term: &Term) -> Option<&'a Score> {
        let mut scores = self.scores.iter().copied();
        scores.find(|score| score.term == *term && score.mode == Mode::Rank)
    }
}

/// Whether it is a score that looks at one cell and the job, not at the other cells.
fn rates_alone(step: &Step) -> bool {
    let Step::Score(score) = step else {
        return false;
    };
    match (&score.term, score.mode) {
        (_, Mode::Rank | Mode::Ratio) if score.weight == 0.0 => true,
        (
            Term::Resources
            | Term::Used { .. }
            | Term::Fragmentation { .. }
            | Term::Starting
            | Term::AppInstances
            | Term::Tasks
            | Term::Preferred
            | Term::Index { .. }
            | Term::Objective(_),
            _,
        )
        | (Term::Memory, Mode::Ratio)
        | (Term::Memory | Term::Disk | Term::Hardware, Mode::Raw) => true,
        // of the owner's instances each job sees others; a disk's ratio depends on whether any cell has a limit
        _ => false,
    }
}
