//! What is given of each resource as the demand of a trace grows, and what is left that no work could use.

use std::collections::{BTreeMap, BTreeSet};

use placement::{ExpectedWork, Resource, ResourceName, Resources, Size};

use crate::{
    outcome::{DemandStep, Packing},
    scenario::Scenario,
    trace,
};

use super::World;

/// Demand between two steps, in per cent.
const STEP: u32 = 10;

/// The steps so far.
#[derive(Debug)]
pub(super) struct PackingSteps {
    of: ResourceName,
    /// Each resource of which the cells have a limited amount, with that amount.
    capacities: Vec<(ResourceName, i64)>,
    /// How much of each was requested.
    asked: Vec<i64>,
    work: ExpectedWork,
    steps: Vec<DemandStep>,
}

impl PackingSteps {
    /// Creates it; none if the scenario's work is not a trace that is drawn up to a demand.
    pub(super) fn of(scenario: &Scenario) -> Option<Self> {
        let resample = scenario.resample.as_ref()?;
        let cells = &scenario.base.cells;
        let names = resources(cells.iter().map(|cell| &cell.total)).into_iter();
        let capacities = names.filter_map(|of| {
            let capacity = trace::capacity(&of, cells)?;
            Some((of, capacity))
        });
        let capacities: Vec<_> = capacities.collect();
        Some(Self {
            of: resample.of.clone(),
            asked: vec![0; capacities.len()],
            capacities,
            work: ExpectedWork::of(scenario.pods().map(|pod| (Size::of(pod), 1.0))),
            steps: Vec::new(),
        })
    }

    /// Returns the name of the resource in which the demand is counted.
    pub(super) fn name(&self) -> String {
        self.of.name().to_owned()
    }

    /// Returns the demand at which the next step is recorded, in per cent.
    fn next_step(&self) -> u32 {
        (u32::try_from(self.steps.len()).unwrap_or(u32::MAX - 1) + 1).saturating_mul(STEP)
    }

    fn per_cent(&self, value: impl Fn(&ResourceName) -> f64) -> BTreeMap<String, f64> {
        let share = |(of, capacity): &(ResourceName, i64)| {
            let share = 100.0 * value(of) / *capacity as f64;
            (of.name().to_owned(), share)
        };
        self.capacities.iter().map(share).collect()
    }

    fn asked_of(&self, of: &ResourceName) -> f64 {
        let all = self.capacities.iter().zip(&self.asked);
        let mut asked = all.filter(|((known, _), _)| known == of);
        asked.next().map_or(0.0, |(_, asked)| *asked as f64)
    }
}

/// Returns the resources that cells have, without the number of instances, which nobody packs.
pub(super) fn resources<'c>(
    totals: impl Iterator<Item = &'c Resources> + Clone,
) -> BTreeSet<ResourceName> {
    let amounts = [Resource::Memory, Resource::Disk, Resource::Cpu];
    let extras = totals.clone().flat_map(|total| total.extra.keys());
    let devices = totals.flat_map(|total| total.devices.keys());
    let named = extras.chain(devices).cloned().map(ResourceName::Named);
    amounts
        .into_iter()
        .map(ResourceName::Amount)
        .chain(named)
        .collect()
}

impl World<'_> {
    /// Records the steps that were reached before the next demand is made.
    pub(super) fn note_demand(&mut self, position: usize) {
        let Some(mut packing) = self.packing.take() else {
            return;
        };
        let share = packing.per_cent(|of| packing.asked_of(of));
        let reached = share.get(packing.of.name()).copied().unwrap_or(0.0);
        while reached >= f64::from(packing.next_step()) {
            let demand = packing.next_step();
            let (given, fragments) = self.given_and_fragments(&packing);
            packing.steps.push(DemandStep {
                demand,
                unplaced: self.client.unplaced,
                given,
                fragments,
            });
        }
        if let Some(request) = self.demands[position].request() {
            for ((of, _), asked) in packing.capacities.iter().zip(&mut packing.asked) {
                *asked += i64::from(request.instances) * trace::wanted(of, request);
            }
        }
        self.packing = Some(packing);
    }

    fn given_and_fragments(
        &self,
        packing: &PackingSteps,
    ) -> (BTreeMap<String, f64>, BTreeMap<String, f64>) {
        let up = || {
            let up = self.cells.iter().filter(|cell| cell.down == 0);
            up.map(|node| node.ledger().cell())
        };
        let given = packing.per_cent(|of| {
            let given = up().map(|cell| of.total(&cell.total) - of.available(cell));
            given.sum::<i64>() as f64
        });
        let fragments = packing.per_cent(|of| {
            let fragments = up().map(|cell| of.fragment(cell, &packing.work));
            fragments.sum()
        });
        (given, fragments)
    }

    /// Returns the figures at the end, and the steps. A step that was nearly reached counts, as no pod is small enough
    /// to reach it exactly.
    pub(super) fn packing(&mut self) -> (Option<Packing>, Vec<DemandStep>) {
        let Some(mut packing) = self.packing.take() else {
            return (None, Vec::new());
        };
        let (given, fragments) = self.given_and_fragments(&packing);
        let asked = packing.per_cent(|of| packing.asked_of(of));
        let reached = asked.get(packing.of.name()).copied().unwrap_or(0.0);
        let demand = packing.next_step();
        if reached >= f64::from(demand) - 0.5 {
            packing.steps.push(DemandStep {
                demand,
                unplaced: self.client.unplaced,
                given: given.clone(),
                fragments: fragments.clone(),
            });
        }
        let figures = Packing {
            asked,
            given,
            fragments,
        };
        (Some(figures), packing.steps)
    }
}
