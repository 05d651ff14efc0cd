//! An operator who rebalances: helpful moves are planned from what the cells run, a number of them is requested at a
//! time, and once they have ended the next ones are planned.

use std::{
    collections::{BTreeMap, btree_map},
    sync::Arc,
};

use manager::{
    AppRecord, CommandKey, ManagerInput, MoveAnswer, MoveOrder, RolloutPhase, RolloutRecord,
    UpdateOrder, read_stored,
};
use placement::{LoadBy, Movable, PlanContext, Pool, Request};
use shared::{
    AppUid, WaveId,
    clock::millis,
    wire::{InstanceState, MoveState, WireError, code},
};

use super::{Event, World, messages::ToManager, traffic::Kind};

/// Interval between two questions about the state of the moves.
const LOOK_AGAIN_US: u64 = 1_000_000;
/// Approximate size of a question, in bytes.
const QUESTION: u64 = 60;

/// The operator.
#[derive(Debug, Default)]
pub(super) struct Operator {
    keys: u64,
    /// The moves that have not ended: the app and the order.
    on_way: BTreeMap<CommandKey, (String, MoveOrder)>,
    /// When the next moves may begin.
    next_us: u64,
    pub(super) moved: u64,
    pub(super) failed: u64,
}

/// What is wanted of an app: its uid, and what each instance needs.
struct Wanted {
    uid: AppUid,
    request: Arc<Request>,
}

impl World<'_> {
    /// Checks the moves in progress, or plans new ones.
    pub(super) fn rebalance(&mut self) {
        let Some(rate) = self.scenario.rebalance else {
            return;
        };
        if self.operator.on_way.is_empty() && self.now_us >= self.operator.next_us {
            self.plan_moves(rate.count as usize);
            let pause_us = millis(rate.per.0).saturating_mul(1_000);
            self.operator.next_us = self.now_us + pause_us;
        }
        let next_us = if self.operator.on_way.is_empty() {
            self.operator.next_us
        } else {
            self.now_us + LOOK_AGAIN_US
        };
        self.ask_for_moves();
        self.at(next_us.max(self.now_us + 1), Event::Rebalance);
    }

    /// Sends the moves to every manager; the one that acts answers.
    fn ask_for_moves(&mut self) {
        let on_way: Vec<_> = self.operator.on_way.clone().into_iter().collect();
        for (to, (app, order)) in on_way {
            self.counts.sent(Kind::Command, 1);
            if self.away > 0 {
                continue;
            }
            for m in 0..self.managers.len() {
                let Some(at_us) = self.travel() else {
                    continue;
                };
                let input = ManagerInput::Move {
                    to,
                    app: app.clone(),
                    order: order.clone(),
                };
                let what = ToManager::Input(Box::new(input));
                self.fly_to_manager(at_us, m, Kind::Command, QUESTION, what);
            }
        }
    }

    /// Handles a manager's answer.
    pub(super) fn move_answered(&mut self, to: CommandKey, answer: &Result<MoveAnswer, WireError>) {
        self.counts.sent(Kind::CommandReply, 1);
        let btree_map::Entry::Occupied(on_way) = self.operator.on_way.entry(to) else {
            return;
        };
        match answer {
            Ok(answer) if answer.state == MoveState::Moving => {}
            Ok(answer) if answer.state == MoveState::Moved => {
                on_way.remove();
                self.operator.moved += 1;
            }
            // either it does not act, or too many moves are in progress
            Err(error) if [code::INTERNAL, code::OVERLOADED].contains(&error.code.as_str()) => {}
            Ok(_) | Err(_) => {
                on_way.remove();
                self.operator.failed += 1;
            }
        }
    }

    fn plan_moves(&mut self, most: usize) {
        let now_ms = self.now_ms();
        let wanted = self.wanted();
        let mut pool = Pool::default();
        let mut movable = Vec::new();
        for cell in self.cells.iter().filter(|cell| cell.is_there()) {
            pool.put(cell.ledger().cell().clone());
            if cell.ledger().cell().evacuating {
                continue;
            }
            let instances = cell.machine().current_instances(now_ms);
            movable.extend(instances.into_iter().filter_map(|instance| {
                let wave = WaveId::parse(instance.request.as_ref()?.as_ref())?;
                let wanted = wanted.get(&instance.app)?;
                let is_wanted = wave.uid == wanted.uid && instance.index < wanted.request.instances;
                let runs = instance.state == InstanceState::Running;
                (runs && is_wanted).then(|| Movable {
                    request: Arc::clone(&wanted.request),
                    index: instance.index,
                    cell: Arc::clone(&cell.name),
                    usage: None,
                })
            }));
        }
        let by = (self.policy, &PlanContext::default());
        let planned = pool.rebalance(movable, LoadBy::Reserved, by, most);
        for one in planned.moves {
            self.operator.keys += 1;
            let key = self.operator.keys;
            let order = MoveOrder {
                id: format!("move-{key}"),
                index: one.index,
                from: one.from.to_string(),
            };
            let moves = &mut self.operator.on_way;
            moves.insert(CommandKey(key), (one.app, order));
        }
    }

    /// Returns the apps whose instances may be moved, as stored.
    fn wanted(&self) -> BTreeMap<String, Wanted> {
        let values = self.bucket.values();
        let stored = |prefix: &'static str| {
            let of_kind = values
                .iter()
                .filter(move |(key, ..)| key.starts_with(prefix));
            of_kind.filter_map(|(_, _, value)| value.as_ref())
        };
        let done: BTreeMap<String, u32> = values
            .iter()
            .filter_map(|(key, _, value)| {
                let uid = key.strip_prefix("rollout.")?;
                let rollout: RolloutRecord = read_stored(value.as_ref()?).ok()?;
                let is_done = rollout.phase == RolloutPhase::Done;
                is_done.then(|| (uid.to_owned(), rollout.version))
            })
            .collect();
        let records = stored("app.").filter_map(|value| read_stored::<AppRecord>(value).ok());
        let movable = records.filter(|record| {
            let rolled_out = done.get(&record.uid.to_string()) == Some(&record.version);
            let start_first = record.definition.update.order == UpdateOrder::StartFirst;
            rolled_out && start_first && !record.stopped && !record.deleted
        });
        let wanted = movable.map(|record| {
            let mut request = Request::clone(&record.definition.template);
            request.instances = record.definition.instances;
            let app = request.app.clone();
            let request = Arc::new(request);
            let uid = record.uid;
            (app, Wanted { uid, request })
        });
        wanted.collect()
    }
}
