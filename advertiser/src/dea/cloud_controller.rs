//! What a Cloud Controller would choose.
//!
//! The choice itself is that of the policy `dea`. This module adds what surrounds it in a Cloud Controller: which
//! advertisements count, how instances are accounted for until the next advertisement (memory and the count of the app,
//! never disk), and which advertisements make it fail instead of choose.

use placement::{
    Cell, DecisionReport, Invalid, PlanContext, Policy, Pool, Report, Request, Resources,
};

use super::{Dea, DeaAdvertisement, Estate};

/// The result of one search of a Cloud Controller.
#[derive(Clone, Debug, PartialEq)]
pub struct DeaChoice {
    /// One decision for each instance.
    pub decisions: Vec<DecisionReport>,
    /// The number of DEAs whose advertisements were considered.
    pub deas: usize,
    /// The DEAs whose advertisement makes a Cloud Controller fail, and why: it then finds no DEA at all. The decisions
    /// are made as if it did not fail.
    pub failing: Vec<(String, Invalid)>,
}

impl Estate {
    /// Returns the DEAs that a Cloud Controller would choose for the request at this time, one instance after the
    /// other. `policy` is the preset `dea`.
    pub fn choose(
        &self,
        now_ms: u64,
        request: &Request,
        policy: &Policy,
        context: &PlanContext,
    ) -> DeaChoice {
        let mut pool = Pool::default();
        let mut failing = Vec::new();
        for (advertisement, dea) in self.live(now_ms) {
            if let Some(why) = fails_on(advertisement, dea, request) {
                failing.push((advertisement.id.clone(), why.clone()));
            }
            pool.put(cell(advertisement, dea, request));
        }
        let deas = pool.len();
        let mut decisions = Vec::new();
        for job in std::sync::Arc::new(request.clone()).jobs() {
            let jobs = [job];
            let plan = pool.plan_plainly(&jobs, policy, context);
            let report = Report::new(&jobs, plan);
            for decision in report.decisions {
                if let Some(cell) = decision.cell.as_deref().and_then(|cell| pool.get(cell)) {
                    let reserved = reserve(cell.clone(), request);
                    pool.put(reserved);
                }
                decisions.push(decision);
            }
        }
        DeaChoice {
            decisions,
            deas,
            failing,
        }
    }
}

/// Reserves resources in the way of a Cloud Controller, which reserves no disk.
fn reserve(mut cell: Cell, request: &Request) -> Cell {
    cell.available.memory_mb -= request.memory_mb;
    *cell.counts.apps.entry(request.app.clone()).or_insert(0) += 1;
    cell
}

/// Returns the DEA as a cell. No advertisement contains the total, but the policy only checks whether that is 0.
fn cell(advertisement: &DeaAdvertisement, dea: &Dea, request: &Request) -> Cell {
    let available = advertisement.available();
    let total = Resources {
        memory_mb: dea.most_memory_mb.max(1),
        disk_mb: available.disk_mb.map(|disk| disk.max(1)),
        ..Resources::default()
    };
    let mut cell = Cell::new(advertisement.id.as_str(), total);
    cell.available = available;
    let count = advertisement.count_of(&request.app);
    if count > 0 {
        cell.counts.apps.insert(request.app.clone(), count);
    }
    let wanted = request.stack.as_ref();
    let offered = wanted.filter(|stack| advertisement.stacks.offers(stack));
    let attributes = cell.attributes_mut();
    advertisement.zone().clone_into(&mut attributes.zone);
    attributes.stacks = offered.cloned().into_iter().collect();
    cell
}

/// Returns the odd field that makes a Cloud Controller fail when it looks for a DEA for the request. It reads zone,
/// counts and disk of every live advertisement, but memory and stacks only if the earlier checks have passed.
fn fails_on<'a>(
    advertisement: &DeaAdvertisement,
    dea: &'a Dea,
    request: &Request,
) -> Option<&'a Invalid> {
    let available = advertisement.available();
    let has_disk = available.disk_mb.is_none_or(|disk| disk >= request.disk_mb);
    let has_memory = available.memory_mb >= request.memory_mb;
    let fails = |odd: &&Invalid| match odd.field.as_str() {
        "placement_properties" | "app_id_to_count" | "available_disk" => true,
        "available_memory" => has_disk,
        "stacks" => has_disk && has_memory && !matches!(odd.value.as_str(), "a text" | "a list"),
        field => {
            let app = field.strip_prefix("app_id_to_count.");
            app == Some(&request.app) && odd.value != "a number"
        }
    };
    dea.odd.first.iter().find(fails)
}
