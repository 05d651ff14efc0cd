//! What an index must know about a policy, extracted once from its stages.

use crate::{
    policy::{Combine, Filter, Narrow, Pick, Policy, Step, Term},
    request::{Kind, Request},
    resources::Resource,
};

use super::{
    classes,
    rows::{Asked, Need},
};

/// A score term that depends on one cell and one job only.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Part {
    Resources,
    Starting,
    AppInstances,
    Tasks,
    Place,
}

/// Filters, then narrowings, then scores that depend on one cell each.
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) filters: Vec<Filter>,
    /// The narrowings, and the kind of jobs that each is for.
    pub(crate) narrows: Vec<(Narrow, Option<Kind>)>,
    /// The score terms with their weights, and the kind of jobs that each is for.
    pub(crate) terms: Vec<(Part, f64, Option<Kind>)>,
    /// Whether [`Part::Place`] is the cell's raw index instead of its rank.
    pub(crate) raw_index: bool,
    asked: Asked,
}

impl Recipe {
    /// Extracts the recipe; none if the policy has another form.
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
                    // filters are evaluated once per class and shape, so they must come first and not depend on the
                    // batch
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
                    recipe.narrows.push((narrow.clone(), stage.kind));
                }
                Step::Score(score) => {
                    let part = match score.term {
                        Term::Resources => Part::Resources,
                        Term::Starting => Part::Starting,
                        Term::AppInstances => Part::AppInstances,
                        Term::Tasks => Part::Tasks,
                        Term::Index { raw } => {
                            // with weight 0 the mode makes no difference
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

    /// Returns whether the lowest sum wins, in all zones or in those with the fewest instances.
    pub(crate) fn is_ordered(&self, policy: &Policy) -> bool {
        // a total of 0, which has no cost, must be filtered out before the costs
        let mut vital = Resource::ALL.into_iter().filter(|r| r.is_vital());
        vital.all(|resource| self.filters.contains(&Filter::Amount(resource)))
            && policy.pick == Pick::Lowest
            && policy.combine == Combine::Sum
            // its zones are tried in turn; another narrowing would look at cells
            && self.narrows.len() <= 1
            && self
                .narrows
                .iter()
                .all(|(narrow, _)| *narrow == Narrow::ZoneFewest)
    }

    /// Returns whether it is the DEA pool's chain or a part of it, with a draw at the end.
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

    pub(crate) fn has(&self, narrow: &Narrow, kind: Kind) -> bool {
        let mut narrows = self.narrows.iter();
        narrows.any(|(n, k)| n == narrow && k.is_none_or(|k| k == kind))
    }

    /// Returns what a request needs from a row.
    pub(crate) fn need(&self, request: &Request) -> Need {
        Need::under(self.asked, request)
    }
}
