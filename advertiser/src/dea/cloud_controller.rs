//! What a Cloud Controller would choose.
//!
//! The choice itself is that of the policy `dea`. Here is what stands around it in a Cloud Controller: which
//! advertisements count, how instances are accounted for until the next advertisement (memory and the count of the app,
//! never disk), and on which advertisements it fails instead of choosing.

use placement::{
    Cell, DecisionReport, Invalid, PlanContext, Policy, Pool, Report, Request, Resources,
};

use super::{Dea, DeaAdvertisement, Estate};

/// What one search of a Cloud Controller came to.
#[derive(Clone, Debug, PartialEq)]
pub struct DeaChoice {
    /// One decision for each instance.
    pub decisions: Vec<DecisionReport>,
    /// The DEAs whose advertisements were looked at.
    pub deas: usize,
    /// The DEAs on whose advertisement a Cloud Controller fails, and why: it then finds no DEA at all. The
    /// decisions are as if it did not.
    pub failing: Vec<(String, Invalid)>,
}

impl Estate {
    /// The DEAs that a Cloud Controller would choose for the request at this time, one instance after the
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

/// A Cloud Controller reserves no disk.
fn reserve(mut cell: Cell, request: &Request) -> Cell {
    cell.available.memory_mb -= request.memory_mb;
    *cell.counts.apps.entry(request.app.clone()).or_insert(0) += 1;
    cell
}

/// The DEA as a cell. No advertisement says how much there is in all, and the policy asks only whether that is 0.
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

/// The odd field on which a Cloud Controller fails while it looks for a DEA for the request. It reads zone and count
/// of every live advertisement, and memory and stacks only of those that passed what it looks at before.
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
