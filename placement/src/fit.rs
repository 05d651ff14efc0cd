//! A request against the resources of a cell: whether it fits, and debits and credits.

use crate::{
    request::Request,
    resources::{Resource, Resources},
};

impl Resources {
    /// Subtracts one instance of `request`. Unlimited amounts stay so; the others may become
    /// negative.
    pub fn debit(&mut self, request: &Request) {
        self.apply(request, -1);
    }

    /// Adds one instance of `request`: the opposite of [`Resources::debit`].
    pub fn credit(&mut self, request: &Request) {
        self.apply(request, 1);
    }

    fn apply(&mut self, request: &Request, sign: i64) {
        let wanted = request.amounts();
        for resource in Resource::ALL {
            if let Some(amount) = self.get_mut(resource) {
                *amount += sign * wanted[resource];
            }
        }
        for (name, amount) in &request.extra {
            *self.extra.entry(name.clone()).or_insert(0) += sign * amount;
        }
    }

    /// The resources that are too small for `request`, each with what is needed and what is there,
    /// in alphabetical order (`containers`, `cpu`, `disk`, `memory`, then extras by name); empty =
    /// it fits.
    pub fn lacks(&self, request: &Request) -> Vec<(String, i64, i64)> {
        let (have, needs) = (self.amounts(), request.needs());
        let lacking = |resource: &Resource| have[*resource] < needs[*resource];
        let amounts = Resource::ALL.into_iter().filter(lacking);
        let amounts = amounts.map(|r| (r.name().to_owned(), needs[r], have[r]));
        let mut lacking: Vec<(String, i64, i64)> = amounts.collect();
        lacking.sort_unstable();
        let extras = request.extra.iter();
        let extras = extras.filter(|(name, needs)| self.extra(name) < **needs);
        lacking.extend(extras.map(|(name, needs)| (name.clone(), *needs, self.extra(name))));
        lacking
    }

    /// Whether one instance of `request` fits; exactly enough fits.
    pub fn fits(&self, request: &Request) -> bool {
        self.amounts().covers(&request.needs()) && self.has_extras(request)
    }

    /// Whether the extra resources suffice for one instance of `request`.
    pub(crate) fn has_extras(&self, request: &Request) -> bool {
        let mut wanted = request.extra.iter();
        wanted.all(|(name, amount)| self.extra(name) >= *amount)
    }
}
