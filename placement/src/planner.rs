//! The batch auction around an engine: order, duplicates, the in-flight limit, reasons.

use std::{collections::HashMap, sync::Arc};

use crate::{
    Decision, Draw, Explain, Explanation, Job, Plan, Policy, ScoreReport, StageReport, Tally,
    Unplaced, Verdict,
    batch::{Ask, Batch},
    fast::Engine,
    objective::Objective,
    plain::{self, Choice, Emptied, Trace},
    policy::{Combine, Step},
    reasons,
    scene::{Scene, Stage},
};

/// Runs the auction, with a fast engine where there is one, else with the plain one.
pub(crate) fn plan(
    stage: Stage<'_>,
    mut fast: Option<&mut dyn Engine>,
    jobs: &[Job],
    batch: &Batch<'_>,
    policy: &Policy,
    draw: &Draw,
) -> Plan {
    let mut witness = Witness::new(stage, jobs, policy, draw);
    let mut limit = InFlight::new(policy, &mut witness);
    let mut failures = Failures::new(policy, batch, draw);
    let mut objectives = Objectives::default();
    let mut decisions = Vec::with_capacity(jobs.len());
    for position in &batch.order {
        let job = &jobs[*position as usize];
        let ask = batch.ask(*position);
        if limit.reached() {
            decisions.push(limit.refuse(*position));
            continue;
        }
        if failures.knows(ask) {
            decisions.push(failures.again(ask, *position, &mut witness));
            continue;
        }
        let objective = match objectives.of(job, policy) {
            Ok(objective) => objective,
            Err(refused) => {
                decisions.push(unplaced(*position, refused));
                continue;
            }
        };
        let choice = match &mut fast {
            Some(engine) => engine.choose(job, ask, objective),
            None => plain::choose(witness.scene(), policy, objective, job, draw.first, None),
        };
        let Some(winner) = choice.winner else {
            let (decision, emptied) = witness.failed(*position, objective);
            failures.learn(ask, &decision, emptied.as_ref(), witness.log.len());
            decisions.push(decision);
            continue;
        };
        decisions.push(witness.placed(*position, &choice, objective));
        witness.debit(winner, *position);
        if let Some(engine) = &mut fast {
            engine.debit(winner, job, ask);
        }
        limit.placed();
    }
    witness.name_cells(&mut decisions);
    decisions.extend(
        batch
            .duplicates
            .iter()
            .map(|(job, of)| duplicate(*job, *of)),
    );
    Plan { decisions }
}

/// The plain view of the auction, brought up to date only when somebody looks: for the plain
/// engine at every job, for a fast one when a job fails.
struct Witness<'a> {
    stage: Stage<'a>,
    scene: Option<Scene<'a>>,
    jobs: &'a [Job],
    policy: &'a Policy,
    draw: &'a Draw,
    /// Placements so far: slot and job; the scene has seen the first `seen` of them.
    log: Vec<(u32, u32)>,
    seen: usize,
    /// Stands in a decision until [`Witness::name_cells`].
    nobody: Arc<str>,
}

impl<'a> Witness<'a> {
    fn new(stage: Stage<'a>, jobs: &'a [Job], policy: &'a Policy, draw: &'a Draw) -> Self {
        Self {
            stage,
            scene: None,
            jobs,
            policy,
            draw,
            log: Vec::new(),
            seen: 0,
            nobody: "".into(),
        }
    }

    fn scene(&mut self) -> &Scene<'a> {
        let (stage, policy, draw) = (self.stage, self.policy, self.draw);
        let scene = self
            .scene
            .get_or_insert_with(|| Scene::new(stage, policy, draw));
        for (slot, position) in &self.log[self.seen..] {
            scene.debit(*slot, &self.jobs[*position as usize]);
        }
        self.seen = self.log.len();
        scene
    }

    fn debit(&mut self, slot: u32, position: u32) {
        self.log.push((slot, position));
    }

    fn trace(&self) -> Trace {
        Trace {
            with_names: self.draw.explain >= Explain::Cells,
            ..Trace::default()
        }
    }

    /// Runs the job once more, taking notes.
    fn watch(&mut self, position: u32, objective: Option<&Objective>) -> Trace {
        let mut trace = self.trace();
        let (policy, draw) = (self.policy, self.draw);
        let job = &self.jobs[position as usize];
        plain::choose(
            self.scene(),
            policy,
            objective,
            job,
            draw.first,
            Some(&mut trace),
        );
        trace
    }

    fn placed(
        &mut self,
        position: u32,
        choice: &Choice,
        objective: Option<&Objective>,
    ) -> Decision {
        let (explain, policy) = (self.draw.explain, self.policy);
        let explanation = (explain >= Explain::Stages).then(|| {
            let trace = self.watch(position, objective);
            Box::new(explanation(self.scene(), policy, &trace))
        });
        let name = |slot: &u32| Arc::clone(&self.stage.names[*slot as usize]);
        Decision {
            job: position as usize,
            verdict: Verdict::Placed {
                cell: Arc::clone(&self.nobody),
            },
            finalists: match explain {
                Explain::Winner => Vec::new(),
                _ => choice.finalists.iter().map(name).collect(),
            },
            value: choice.value,
            explanation,
        }
    }

    /// Says where each job was placed. Names are far away in memory: in a loop of their own the
    /// processor fetches many at a time.
    fn name_cells(&self, decisions: &mut [Decision]) {
        let placed = decisions.iter_mut().filter_map(|d| match &mut d.verdict {
            Verdict::Placed { cell } => Some(cell),
            _ => None,
        });
        for (cell, (slot, _)) in placed.zip(&self.log) {
            *cell = Arc::clone(&self.stage.names[*slot as usize]);
        }
    }

    fn failed(
        &mut self,
        position: u32,
        objective: Option<&Objective>,
    ) -> (Decision, Option<Emptied>) {
        let policy = self.policy;
        let trace = self.watch(position, objective);
        let explain = self.draw.explain >= Explain::Stages;
        let explanation = explain.then(|| Box::new(explanation(self.scene(), policy, &trace)));
        let emptied = trace.emptied_by.clone();
        let why = reasons::unplaced(&self.jobs[position as usize], trace);
        let decision = Decision {
            explanation,
            ..unplaced(position, why)
        };
        (decision, emptied)
    }
}

/// Failures that later jobs of the same shape share. Debits only take away, so what fits nowhere
/// fits nowhere for the rest of the batch, unless a filter looks at what other jobs bring. What was
/// the matter may change, though: the text and the numbers are those of each job's own moment.
struct Failures {
    shareable: bool,
    /// The last text of each shape, and how many jobs had been placed by then.
    by_shape: HashMap<u32, (Unplaced, usize)>,
    /// By shape: whether `near` makes it depend on what is placed meanwhile.
    near: Vec<bool>,
    /// How many cells may still be looked at to renew a text.
    looks_left: usize,
}

/// The most cells that one plan looks at to renew the texts of failures; past it a job gets the text
/// of the job of the same shape that failed before it. A look takes some 0.2 µs, so this is 0.1 s.
const MAX_LOOKS: usize = 500_000;

impl Failures {
    fn new(policy: &Policy, batch: &Batch<'_>, draw: &Draw) -> Self {
        let is_filter = |step: &Step| matches!(step, Step::Filter(_));
        let mut steps = policy.stages.iter().map(|stage| &stage.step);
        let filters_first = steps
            .by_ref()
            .skip_while(|step| is_filter(step))
            .all(|s| !is_filter(s));
        Self {
            shareable: filters_first && draw.explain < Explain::Stages,
            by_shape: HashMap::new(),
            looks_left: MAX_LOOKS,
            near: batch
                .shapes
                .iter()
                .map(|request| !request.near.is_empty())
                .collect(),
        }
    }

    fn knows(&self, ask: Ask) -> bool {
        self.by_shape.contains_key(&ask.shape)
    }

    /// The failure of one more job of a known shape.
    fn again(&mut self, ask: Ask, position: u32, witness: &mut Witness<'_>) -> Decision {
        let now = witness.log.len();
        if let Some((known, then)) = self.by_shape.get(&ask.shape) {
            let looks = witness.stage.by_name.len();
            if *then == now || looks > self.looks_left {
                return unplaced(position, known.clone());
            }
            self.looks_left -= looks;
        }
        // it fails in a filter before any score, so an objective has no say
        let (decision, emptied) = witness.failed(position, None);
        self.learn(ask, &decision, emptied.as_ref(), now);
        decision
    }

    fn learn(&mut self, ask: Ask, decision: &Decision, emptied: Option<&Emptied>, placed: usize) {
        let by_filter = matches!(emptied, Some(Emptied::Filter(_) | Emptied::NoCells));
        if let Verdict::Unplaced(why) = &decision.verdict
            && self.shareable
            && by_filter
            && !self.near[ask.shape as usize]
        {
            let learnt = ((**why).clone(), placed);
            self.by_shape.insert(ask.shape, learnt);
        }
    }
}

fn unplaced(job: u32, unplaced: Unplaced) -> Decision {
    Decision {
        job: job as usize,
        verdict: Verdict::Unplaced(Box::new(unplaced)),
        finalists: Vec::new(),
        value: None,
        explanation: None,
    }
}

fn duplicate(job: u32, of: u32) -> Decision {
    Decision {
        job: job as usize,
        verdict: Verdict::Duplicate { of: of as usize },
        finalists: Vec::new(),
        value: None,
        explanation: None,
    }
}

fn explanation(scene: &Scene<'_>, policy: &Policy, trace: &Trace) -> Explanation {
    let stage = |stage: &plain::TracedStage| StageReport {
        stage: stage.name.to_owned(),
        survivors: stage.survivors,
        rejected: stage.rejected.clone(),
    };
    let score = |score: &plain::FinalistScore| ScoreReport {
        cell: Arc::clone(scene.name(score.slot)),
        value: score.value,
        terms: score.terms.clone(),
    };
    Explanation {
        stages: trace.stages.iter().map(stage).collect(),
        scores: trace.terms.iter().map(score).collect(),
        product: !trace.terms.is_empty() && policy.combine == Combine::Product,
        notes: trace.notes.clone(),
    }
}

/// Starts in flight against the policy's limit.
struct InFlight {
    /// 0 = none.
    limit: u64,
    now: u64,
    cells: usize,
}

impl InFlight {
    fn new(policy: &Policy, witness: &mut Witness<'_>) -> Self {
        let mut in_flight = Self {
            limit: u64::from(policy.max_in_flight),
            now: 0,
            cells: 0,
        };
        if in_flight.limit > 0 {
            let scene = witness.scene();
            let starting = |slot: &u32| u64::from(scene.cell(*slot).starting);
            in_flight.now = scene.counted().iter().map(starting).sum();
            in_flight.cells = scene.counted().len();
        }
        in_flight
    }

    fn reached(&self) -> bool {
        self.limit > 0 && self.now >= self.limit
    }

    fn placed(&mut self) {
        self.now += 1;
    }

    fn refuse(&self, job: u32) -> Decision {
        let tally = Tally {
            stage: "in-flight".into(),
            cells: self.cells,
            needs: None,
            best: None,
            reason: Some(format!(
                "{} of {} starts are in flight",
                self.now, self.limit
            )),
            names: Vec::new(),
        };
        unplaced(
            job,
            Unplaced {
                reason: reasons::IN_FLIGHT.into(),
                tally: vec![tally],
            },
        )
    }
}

/// The requests' own objectives, each distinct text compiled once.
#[derive(Default)]
struct Objectives {
    compiled: HashMap<String, Result<Arc<Objective>, Unplaced>>,
}

impl Objectives {
    /// The job's own objective, where the policy has one to replace. An unsound one is refused at
    /// the door already; what comes here all the same is not placed.
    fn of(&mut self, job: &Job, policy: &Policy) -> Result<Option<&Objective>, Unplaced> {
        // mostly there is none to replace, and the request is far away in memory
        let Some(base) = policy.objective() else {
            return Ok(None);
        };
        let Some(text) = job.request.objective.as_deref() else {
            return Ok(None);
        };
        if !self.compiled.contains_key(text) {
            let parsed = Objective::parse(text, base.constants());
            let compiled = parsed.map(Arc::new).map_err(|e| Unplaced {
                reason: format!("objective: {e}"),
                tally: Vec::new(),
            });
            self.compiled.insert(text.to_owned(), compiled);
        }
        match self.compiled.get(text) {
            Some(Ok(objective)) => Ok(Some(objective)),
            Some(Err(refused)) => Err(refused.clone()),
            None => Ok(None),
        }
    }
}
