//! Any interleaving: every request gets exactly one answer, nothing is ever on two cells, and no cell is promised more
//! than it has.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use shared::wire::{Acceptance, Outcome, StartReply, kind};
use uuid::Uuid;

use super::world::{Sent, World, request};
use crate::ReplyKey;
use crate::{AuctioneerInput, AuctioneerOutput, feed::ReportKind};
use shared::InstanceId;

/// What may happen next.
#[derive(Clone, Debug)]
enum Step {
    Ask {
        app: u8,
        instances: u32,
        memory_mb: i64,
        queue: bool,
    },
    Repeat(usize),
    Bid(usize),
    Deliver(usize),
    Answer(usize),
    Lose(usize),
    Nobody(usize),
    Advertise(usize),
    Restart(usize),
    Elsewhere {
        cell: usize,
        app: u8,
    },
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8, 1..4_u32, prop_oneof![Just(50_i64), Just(300), Just(2_000)], any::<bool>())
            .prop_map(|(app, instances, memory_mb, queue)| Step::Ask { app, instances, memory_mb, queue }),
        1 => (0..10_usize).prop_map(Step::Repeat),
        6 => (0..3_usize).prop_map(Step::Bid),
        6 => (0..4_usize).prop_map(Step::Deliver),
        6 => (0..4_usize).prop_map(Step::Answer),
        1 => (0..4_usize).prop_map(Step::Lose),
        1 => (0..4_usize).prop_map(Step::Nobody),
        2 => (0..3_usize).prop_map(Step::Advertise),
        1 => (0..3_usize).prop_map(Step::Restart),
        1 => (0..3_usize, 0..3_u8).prop_map(|(cell, app)| Step::Elsewhere { cell, app }),
        3 => prop_oneof![Just(1_u64), Just(50), Just(300), Just(1_100), Just(6_000)].prop_map(Step::Pass),
    ]
}

const CELLS: [&str; 3] = ["c1", "c2", "c3"];

/// The world, and what an all-knowing observer records.
struct Fleet {
    world: World,
    /// Starts that have not reached their cells.
    flying: Vec<Sent>,
    /// Answers that have not reached us.
    answers: Vec<(Sent, Acceptance)>,
    asked: Vec<(ReplyKey, placement::Request)>,
    /// Where each instance was last sent.
    at: HashMap<InstanceId, String>,
    /// Sent, and neither refused nor undelivered nor on a cell that was lost.
    out: HashMap<InstanceId, usize>,
}

impl Fleet {
    /// Takes note of what was sent and which cells were lost, in the order in which that happened.
    fn note(&mut self) {
        let mut kept = Vec::new();
        for output in std::mem::take(&mut self.world.out) {
            match output {
                AuctioneerOutput::Event(event) if event.kind == kind::CELL_LOST => {
                    self.note_lost(event.cell.as_deref());
                }
                AuctioneerOutput::Start { .. } => {
                    self.world.out = vec![output];
                    for sent in self.world.sent() {
                        self.note_sent(sent);
                    }
                }
                _ => kept.push(output),
            }
        }
        self.world.out = kept;
    }

    /// Treats what was sent to a lost cell as gone.
    fn note_lost(&mut self, lost: Option<&str>) {
        for (instance, cell) in &self.at {
            if lost == Some(cell.as_str()) {
                self.out.remove(instance);
            }
        }
    }

    fn note_sent(&mut self, sent: Sent) {
        for work in &sent.start.work {
            let open = self.out.entry(work.instance).or_default();
            assert_eq!(
                *open,
                0,
                "{} was sent to {:?} and may be there",
                work.instance,
                self.at.get(&work.instance)
            );
            *open += 1;
            self.at.insert(work.instance, sent.cell.clone());
        }
        self.flying.push(sent);
    }

    fn free_again(&mut self, ids: impl Iterator<Item = InstanceId>) {
        for id in ids {
            if let Some(open) = self.out.get_mut(&id) {
                *open = open.saturating_sub(1);
            }
        }
    }

    fn ask(&mut self, request: placement::Request) {
        let key = self.world.ask(vec![request.clone()]);
        self.asked.push((key, request));
    }

    #[allow(clippy::too_many_lines)] // one arm for each thing that may happen
    fn step(&mut self, step: &Step) {
        match step {
            Step::Ask {
                app,
                instances,
                memory_mb,
                queue,
            } => {
                let id = format!("r{}", self.asked.len());
                let mut request = request(&id, &format!("app{app}"), *memory_mb, *instances);
                if *queue {
                    request.queue_timeout =
                        Some(placement::Span(std::time::Duration::from_secs(7)));
                }
                self.ask(request);
            }
            Step::Repeat(n) => {
                if let Some((_, request)) = self.asked.get(*n).cloned() {
                    self.ask(request);
                }
            }
            Step::Bid(n) => {
                if let Some(auction) = self.world.asked_bids() {
                    let bid = self.world.cells[CELLS[*n]].report(Some(auction));
                    self.world.receive(ReportKind::Bid, None, bid);
                }
            }
            Step::Deliver(n) if *n < self.flying.len() => {
                let sent = self.flying.remove(*n);
                let answer = self.world.cell(&sent.cell).answer(&sent.start);
                self.answers.push((sent, answer));
            }
            Step::Answer(n) if *n < self.answers.len() => {
                let (sent, answer) = self.answers.remove(*n);
                self.free_again(answer.refused.iter().map(|r| r.instance));
                self.world.answered(&sent, answer);
            }
            Step::Lose(n) if *n < self.answers.len() => {
                self.answers.remove(*n);
            }
            Step::Nobody(n) if *n < self.flying.len() => {
                let sent = self.flying.remove(*n);
                self.free_again(sent.start.work.iter().map(|w| w.instance));
                self.world.input(AuctioneerInput::NoResponders {
                    dispatch: sent.dispatch,
                });
            }
            Step::Advertise(n) => self.world.advertise(CELLS[*n]),
            Step::Restart(n) => {
                let cell = self.world.cell(CELLS[*n]);
                let (high, low) = cell.incarnation.uuid().as_u64_pair();
                cell.incarnation = Uuid::from_u64_pair(high + 1, low).into();
                cell.cell = placement::Cell::new(CELLS[*n], cell.cell.total.clone());
                (cell.seq, cell.recent) = (1, BTreeSet::new());
            }
            Step::Elsewhere { cell, app } => {
                let work = request("x", &format!("app{app}"), 100, 1);
                let cell = self.world.cell(CELLS[*cell]);
                if cell.cell.available.fits(&work) {
                    cell.cell.debit(&work, None);
                    cell.seq += 1;
                }
            }
            Step::Pass(ms) => self.world.pass(*ms),
            _ => {}
        }
        self.note();
        for cell in self.world.cells.values() {
            assert!(
                cell.cell.available.memory_mb >= 0,
                "{} promised too much",
                cell.cell.cell
            );
        }
    }
}

fn run(policy: &str, steps: &[Step]) {
    let mut fleet = Fleet {
        world: World::with_cells(policy, &CELLS),
        flying: Vec::new(),
        answers: Vec::new(),
        asked: Vec::new(),
        at: HashMap::new(),
        out: HashMap::new(),
    };
    for step in steps {
        fleet.step(step);
    }
    // finally everything gets enough time to finish
    for _ in 0..20 {
        for name in CELLS {
            fleet.step(&Step::Advertise(
                CELLS.iter().position(|c| *c == name).unwrap(),
            ));
        }
        fleet.step(&Step::Pass(1_000));
    }
    let mut outcomes: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
    for output in &fleet.world.out {
        if let AuctioneerOutput::Outcome { id, body } = output {
            let reply: StartReply = serde_json::from_slice(body).unwrap();
            outcomes.entry(id.as_str()).or_default().push(reply.outcome);
        }
    }
    for (key, request) in &fleet.asked {
        // the helper asserts that there is only one
        let reply = fleet.world.start_reply(*key);
        let count: usize = reply
            .instances
            .iter()
            .map(|i| {
                i.indices.as_ref().map_or(1, |text| {
                    shared::wire::parse_indices(text, 1_000).unwrap().len()
                })
            })
            .sum();
        assert_eq!(count, request.instances as usize, "{reply:?}");
        let worst = reply.instances.iter().map(|i| i.outcome).max();
        assert_eq!(Some(reply.outcome), worst);
        let silent =
            |i: &&shared::wire::InstanceOutcome| i.outcome != Outcome::Placed && i.reason.is_none();
        assert_eq!(
            reply.instances.iter().find(silent),
            None,
            "every no has a name"
        );
        let told = &outcomes[request.id.as_str()];
        // work that waited for room may be sent later, and then be unknown
        let open = told.iter().enumerate().take_while(|(n, outcome)| {
            **outcome == Outcome::Unknown || (*n == 0 && **outcome == Outcome::Queued)
        });
        assert!(
            open.count() >= told.len() - 1,
            "told once, unless it was unknown: {told:?}"
        );
    }
    assert!(fleet.world.machine.is_idle());
    assert_eq!(fleet.world.machine.waiting(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn dea_in_any_order(steps in proptest::collection::vec(step(), 0..80)) {
        run("dea", &steps);
    }

    #[test]
    fn diego_in_any_order(steps in proptest::collection::vec(step(), 0..80)) {
        run("diego", &steps);
    }
}
