//! What an index must know of a policy, read once from its stages.

use crate::{
    policy::{Combine, Filter, Narrow, Pick, Policy, Step, Term},
    request::{Kind, Request},
    resources::Resource,
};

use super::{
    classes,
    rows::{Asked, Need},
};

/// A score term that looks at one cell and one job only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    Resources,
    Starting,
    AppInstances,
    Tasks,
    Place,
}

/// Filters, then narrowings, then scores that look at one cell each.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) filters: Vec<Filter>,
    /// The narrowings, and which kind of job they are for.
    pub(crate) narrows: Vec<(Narrow, Option<Kind>)>,
    /// The score terms with their weights, and which kind of job they are for.
    pub(crate) terms: Vec<(Part, f64, Option<Kind>)>,
    /// Whether [`Part::Place`] is the cell's raw index, not its rank.
    pub(crate) raw_index: bool,
    asked: Asked,
}

impl Recipe {
    /// None when the policy is of another form.
    pub(crate) fn of(policy: &Policy) -> Option<Self> {
        let mut recipe = Self {
            filters: Vec::new(),
            narrows: Vec::new(),
            terms: Vec::new(),
            raw_index: false,
            asked: Asked::default(),
        };
        let mut index_modes = Vec::new();
        for stage in policy.all_stages() {
            match &stage.step {
                Step::Filter(filter) => {
                    let late = !recipe.narrows.is_empty() || !recipe.terms.is_empty();
                    // filters are judged once for a class and a shape: first of all, and whatever the batch has taken
                    if late || stage.kind.is_some() || classes::is_dynamic(filter) {
                        return None;
                    }
                    recipe.filters.push(filter.clone());
                }
                Step::Narrow(narrow) => {
                    // a narrowing after a score would need every cell's total, which no index keeps
                    if !recipe.terms.is_empty() {
                        return None;
                    }
                    recipe.narrows.push((*narrow, stage.kind));
                }
                Step::Score(score) => {
                    let part = match score.term {
                        Term::Resources => Part::Resources,
                        Term::Starting => Part::Starting,
                        Term::AppInstances => Part::AppInstances,
                        Term::Tasks => Part::Tasks,
                        Term::Index { raw } => {
                            // at weight 0 the mode makes no difference
                            if score.weight != 0.0 {
                                index_modes.push(raw);
                            }
                            Part::Place
                        }
                        _ => return None,
                    };
                    recipe.terms.push((part, score.weight, stage.kind));
                }
            }
        }
        index_modes.dedup();
        // a key has room for one place
        if index_modes.len() > 1 {
            return None;
        }
        recipe.raw_index = index_modes == [true];
        recipe.asked = Asked::by(&recipe.filters);
        Some(recipe)
    }

    /// Whether the lowest sum wins, in the zones with the fewest instances or in all.
    pub(crate) fn is_ordered(&self, policy: &Policy) -> bool {
        // a total of 0, which has no cost, must not get as far as the costs
        let mut vital = Resource::ALL.into_iter().filter(|r| r.is_vital());
        vital.all(|resource| self.filters.contains(&Filter::Amount(resource)))
            && policy.pick == Pick::Lowest
            && policy.combine == Combine::Sum
            // its zones are tried in turn; a further narrowing would look at cells
            && self.narrows.len() <= 1
            && self
                .narrows
                .iter()
                .all(|(narrow, _)| *narrow == Narrow::ZoneFewest)
    }

    /// Whether it is the DEA pool's chain, or a part of it, with a draw at its end.
    pub(crate) fn is_halves(&self, policy: &Policy) -> bool {
        let chain = [
            Narrow::ZoneFewest,
            Narrow::AppFewest,
            Narrow::UpperHalfMemory,
        ];
        let mut rest = chain.iter();
        policy.pick == Pick::Sample
            && self
                .narrows
                .iter()
                .all(|(narrow, kind)| kind.is_none() && rest.any(|link| link == narrow))
    }

    pub(crate) fn has(&self, narrow: Narrow, kind: Kind) -> bool {
        let mut narrows = self.narrows.iter();
        narrows.any(|(n, k)| *n == narrow && k.is_none_or(|k| k == kind))
    }

    /// What a request needs of a row.
    pub(crate) fn need(&self, request: &Request) -> Need {
        Need::under(self.asked, request)
    }
}
