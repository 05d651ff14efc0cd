use std::collections::BTreeMap;

use super::*;
use crate::{Cell, Request, Resources, policy::Order};

/// A failure of the first job, which an equal job shares.
struct Shared<'a> {
    failures: Failures,
    explainer: Explainer<'a>,
    job: &'a Job,
    group: JobGroup,
}

impl<'a> Shared<'a> {
    fn new(auction: Auction<'a>) -> Self {
        let mut shared = Self {
            failures: Failures::new(auction),
            explainer: Explainer::new(auction),
            job: &auction.jobs[0],
            group: auction.batch.group(0),
        };
        assert!(shared.again().is_none(), "it has not failed yet");
        let trace = shared.explainer.trace(shared.job, None);
        let emptied = trace.emptied_by.clone();
        let why = reasons::unplaced(shared.job, trace);
        shared
            .failures
            .learn(shared.group, &why, emptied.as_ref(), 0);
        shared
    }

    fn again(&mut self) -> Option<Unplaced> {
        self.failures
            .again(self.job, self.group, &mut self.explainer)
    }

    /// Returns how much the best cell has, according to the text that an equal job gets.
    fn best(&mut self) -> Option<f64> {
        self.again().and_then(|why| why.tally[0].best)
    }

    fn place_the_second_job(&mut self) {
        self.explainer.log.push((0, 1));
    }
}

/// Without a limit, a batch in which every second job fails would look at all cells for each.
#[test]
fn a_shared_failure_has_new_numbers_as_long_as_cells_may_be_looked_at() {
    let names: [Arc<str>; 2] = ["a".into(), "b".into()];
    let cells = [100, 10].map(|memory| Cell::new("", Resources::new(memory, 100, 10)));
    let by_name: BTreeMap<Arc<str>, u32> = names.iter().cloned().zip(0..).collect();
    let jobs: Vec<Job> = [Request::new("large", 200, 1), Request::new("small", 5, 1)]
        .into_iter()
        .flat_map(|request| Arc::new(request).jobs())
        .collect();
    let (policy, context) = (Policy::preset("diego").unwrap(), PlanContext::default());
    let batch = Batch::new(&jobs, Order::Asked, None);
    let expected = crate::ExpectedWork::default();
    let mut shared = Shared::new(Auction {
        pool: PoolCells {
            by_name: &by_name,
            names: &names,
            cells: &cells,
            expected: &expected,
        },
        jobs: &jobs,
        batch: &batch,
        policy: &policy,
        context: &context,
    });
    // nothing was placed since: the same text, and no cell visited
    assert_eq!(shared.best(), Some(100.0));
    assert_eq!(shared.failures.looks_left, MAX_LOOKS);
    shared.place_the_second_job();
    assert_eq!(shared.best(), Some(95.0));
    assert_eq!(shared.failures.looks_left, MAX_LOOKS - cells.len());
    shared.failures.looks_left = cells.len() - 1;
    shared.place_the_second_job();
    assert_eq!(shared.best(), Some(95.0), "there are too few looks left");
    shared.failures.looks_left = cells.len();
    assert_eq!(shared.best(), Some(90.0));
    assert_eq!(shared.failures.looks_left, 0);
}

fn cell(name: &str, zone: &str, memory: i64) -> Cell {
    let mut cell = Cell::new(name, Resources::new(memory, 1000, 10));
    cell.attributes_mut().zone = zone.into();
    cell
}

/// Returns where each job goes, in the order in which they are decided; `-` is nowhere.
fn decided(
    cells: impl IntoIterator<Item = Cell>,
    jobs: &[(u32, &Request)],
    policy: &Policy,
) -> String {
    let mut pool = crate::Pool::default();
    cells.into_iter().for_each(|cell| pool.put(cell));
    let job = |(index, request): &(u32, &Request)| Job {
        request: Arc::new((*request).clone()),
        index: *index,
    };
    let jobs: Vec<Job> = jobs.iter().map(job).collect();
    let context = PlanContext::default();
    let plain = pool.plan_plainly(&jobs, policy, &context);
    let plan = pool.plan(&jobs, policy, &context);
    assert_eq!(plan.decisions, plain.decisions);
    let place = |decision: &Decision| match &decision.verdict {
        Verdict::Placed { cell } => cell.to_string(),
        _ => "-".into(),
    };
    let places: Vec<String> = plan.decisions.iter().map(place).collect();
    places.join(" ")
}

/// One job's failure says nothing about an equal job if what was placed since may help it.
#[test]
fn a_failure_is_shared_only_where_it_must_befall_the_next_alike_too() {
    let preset = |name| Policy::preset(name).unwrap();
    let near = Request {
        near: vec!["app:db".into()],
        strict: true,
        ..Request::new("web", 10, 1)
    };
    let db = Request::new("db", 10, 1);
    let jobs = [(0, &near), (0, &db), (1, &near)];
    let places = decided([cell("a", "z", 100)], &jobs, &preset("dapi"));
    assert_eq!(places, "- a a");

    // the zone with the fewest has no room, until it is no longer the only one with the fewest
    let narrowed = Policy::parse(
        "name = \"t\"\n[[stage]]\nnarrow = \"zone-fewest\"\n[[stage]]\nfilter = \"memory\"\n\
         [[stage]]\npick = \"sample\"",
    );
    let mut fuller = cell("a", "z1", 100);
    fuller.counts.apps.insert("web".into(), 1);
    let cells = [fuller, cell("b", "z2", 10)];
    let (small, large) = (Request::new("web", 10, 1), Request::new("web", 20, 1));
    let jobs = [(0, &large), (1, &small), (2, &large)];
    let places = decided(cells, &jobs, &narrowed.unwrap());
    assert_eq!(places, "- b a");

    // an objective that accepts no cell belongs to that request alone
    let never = Request {
        objective: Some("1 / 0".into()),
        ..Request::new("x", 10, 1)
    };
    let jobs = [(0, &never), (0, &Request::new("y", 10, 1))];
    let places = decided([cell("a", "z", 100)], &jobs, &preset("objective"));
    assert_eq!(places, "- a");
}

#[test]
fn whoever_asks_for_the_stages_gets_those_of_every_job() {
    let mut pool = crate::Pool::default();
    pool.put(cell("a", "z", 25));
    let request = Request {
        instances: 4,
        ..Request::new("web", 10, 1)
    };
    let context = PlanContext {
        explain: Explain::Stages,
        ..PlanContext::default()
    };
    let jobs = Arc::new(request).jobs();
    let plan = pool.plan(&jobs, &Policy::preset("diego").unwrap(), &context);
    let kept = |decision: &Decision| {
        let stages = &decision.explanation.as_ref()?.stages;
        stages
            .last()
            .map(|stage| (stage.stage.clone(), stage.survivors))
    };
    let last: Vec<_> = plan.decisions.iter().map(kept).collect();
    let (kept, dropped) = (("zone-fewest".to_owned(), 1), ("memory".to_owned(), 0));
    let expected = [&kept, &kept, &dropped, &dropped].map(|last| Some(last.clone()));
    assert_eq!(last, expected);
}
