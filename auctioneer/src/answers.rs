//! What cells say to a start: taken, refused, nothing, or too late.

use std::sync::Arc;

use placement::{Tally, Unplaced};
use shared::wire::{Acceptance, Outcome, Refusal, kind, reason};

use crate::{
    HashMap, HashSet,
    auction::{Auctioneer, Dispatch, MAX_AUCTIONS, MAX_UNSETTLED, START_WAIT_MS, Unsettled},
    io::AuctioneerOutput,
    report::{Line, Lines},
    ticket::{Done, Slot, State, because},
};
use shared::InstanceId;

impl Auctioneer {
    pub(crate) fn answered(&mut self, now_ms: u64, dispatch: u64, answer: &Acceptance) {
        self.feed.answered(answer);
        let ours = self.dispatches.get(&dispatch);
        if ours.is_none_or(|d| d.cell.as_ref() != answer.cell) {
            return self.late(now_ms, answer);
        }
        let Some(dispatch) = self.dispatches.remove(&dispatch) else {
            return;
        };
        let accepted: HashSet<&InstanceId> = answer.accepted.iter().collect();
        let refused: HashMap<InstanceId, &Refusal> =
            answer.refused.iter().map(|r| (r.instance, r)).collect();
        let mut outdated = false;
        for &(slot, instance) in &dispatch.jobs {
            if accepted.contains(&instance) {
                self.counters.accepted += 1;
                self.report(&dispatch, slot, kind::PLACED, None);
                self.finish(now_ms, slot, Done::placed(Arc::clone(&dispatch.cell)));
            } else if let Some(refusal) = refused.get(&instance) {
                outdated |= [reason::RESTARTED, reason::STALE, reason::DRAINING]
                    .contains(&refusal.reason.as_str());
                self.refused(now_ms, &dispatch, slot, refusal);
            } else {
                self.unknown(
                    now_ms,
                    &dispatch,
                    slot,
                    instance,
                    "the cell's answer left it out",
                );
            }
        }
        if outdated {
            // what we know of it is of no use; its state tells more
            self.feed.absent(&dispatch.cell, now_ms);
            self.out.push(AuctioneerOutput::AskState {
                cell: Arc::clone(&dispatch.cell),
            });
        }
    }

    /// Tells what became of an instance that was sent.
    fn report(
        &mut self,
        dispatch: &Dispatch,
        slot: Slot,
        kind: &'static str,
        why: Option<Arc<Unplaced>>,
    ) {
        let (Some(app), Some(mut line)) = (self.app_of(slot), self.line(slot)) else {
            return;
        };
        if let Some(why) = &why {
            let unknown = kind == kind::UNKNOWN;
            let outcome = if unknown {
                Outcome::Unknown
            } else {
                Outcome::Unplaced
            };
            let told = (outcome, Arc::clone(why));
            self.ring.told(dispatch.auction, line.instance, told);
        }
        line.cell = Some(Arc::clone(&dispatch.cell));
        line.why = why;
        for event in self.reports.heard(dispatch.auction, &app, kind, line) {
            self.event(event);
        }
    }

    fn refused(&mut self, now_ms: u64, dispatch: &Dispatch, slot: Slot, refusal: &Refusal) {
        self.counters.refused += 1;
        let number = |n: Option<i64>| n.map(|n| n as f64);
        let why = Arc::new(Unplaced {
            reason: format!("{} refused: {}", dispatch.cell, refusal.reason),
            tally: vec![Tally {
                stage: "cell".into(),
                cells: 1,
                needs: number(refusal.needs),
                best: number(refusal.has),
                reason: Some(refusal.reason.clone()),
                names: vec![dispatch.cell.as_ref().to_owned()],
            }],
        });
        self.report(dispatch, slot, kind::REFUSED, Some(Arc::clone(&why)));
        if let Some(ticket) = self.tickets.get_mut(&slot.ticket) {
            let changed = refusal.reason == reason::CHANGED;
            ticket.instances[slot.position].changed += u8::from(changed);
        }
        if refusal.reason == reason::STOPPED {
            return self.give_up(now_ms, slot, why);
        }
        self.again(now_ms, slot, why);
    }

    /// Into the next auction, unless it was in enough of them or nobody waits for it any more.
    fn again(&mut self, now_ms: u64, slot: Slot, why: Arc<Unplaced>) {
        let Some(ticket) = self.tickets.get_mut(&slot.ticket) else {
            return;
        };
        let instance = &mut ticket.instances[slot.position];
        instance.failures += 1;
        let too_late = ticket.replied && ticket.queue_end_ms <= now_ms;
        if instance.failures >= MAX_AUCTIONS || too_late {
            return self.give_up(now_ms, slot, why);
        }
        self.set_state(slot, State::Waiting);
        self.waiting.push_front(slot);
    }

    /// Delivered to nobody: the next auction does without that cell.
    pub(crate) fn nobody_listens(&mut self, now_ms: u64, dispatch: u64) {
        let Some(dispatch) = self.dispatches.remove(&dispatch) else {
            self.counters.stray_answers += 1;
            return;
        };
        self.counters.no_responders += 1;
        let instances: Vec<InstanceId> = dispatch.jobs.iter().map(|(_, id)| *id).collect();
        self.feed.undebit(&dispatch.cell, &instances);
        self.feed.absent(&dispatch.cell, now_ms);
        let why = because(format!("nobody listens at {}", dispatch.cell));
        for &(slot, _) in &dispatch.jobs {
            self.report(&dispatch, slot, kind::REFUSED, Some(Arc::clone(&why)));
            self.again(now_ms, slot, Arc::clone(&why));
        }
    }

    /// Starts without an answer in time: they may be running.
    pub(crate) fn unanswered(&mut self, now_ms: u64) {
        while let Some((_, key)) = self
            .dispatch_ends
            .front()
            .copied()
            .filter(|(t, _)| *t <= now_ms)
        {
            self.dispatch_ends.pop_front();
            if let Some(dispatch) = self.dispatches.remove(&key) {
                self.counters.unanswered += 1;
                let why = format!(
                    "no answer within {} s; not started elsewhere",
                    START_WAIT_MS / 1_000
                );
                for &(slot, instance) in &dispatch.jobs {
                    self.unknown(now_ms, &dispatch, slot, instance, &why);
                }
            }
        }
    }

    fn unknown(
        &mut self,
        now_ms: u64,
        dispatch: &Dispatch,
        slot: Slot,
        instance: InstanceId,
        why: &str,
    ) {
        if let (Some(app), Some(line)) = (self.app_of(slot), self.line(slot)) {
            let unsettled = Unsettled {
                request: line.request,
                app,
                index: line.index,
                cell: Arc::clone(&dispatch.cell),
                auction: dispatch.auction,
            };
            self.unsettled.insert(instance, unsettled);
            self.unsettled_order.push_back(instance);
            if self.unsettled_order.len() > MAX_UNSETTLED
                && let Some(oldest) = self.unsettled_order.pop_front()
            {
                self.unsettled.remove(&oldest);
            }
        }
        self.report(dispatch, slot, kind::UNKNOWN, Some(because(why)));
        self.finish(
            now_ms,
            slot,
            Done::unknown(Some(Arc::clone(&dispatch.cell)), why),
        );
    }

    /// An answer that came after its time settles what was unknown, by event.
    fn late(&mut self, now_ms: u64, answer: &Acceptance) {
        let mut any = false;
        for instance in &answer.accepted {
            any |= self.settle_late(now_ms, *instance, None);
        }
        for refusal in &answer.refused {
            let why = because(format!("{} refused late: {}", answer.cell, refusal.reason));
            any |= self.settle_late(now_ms, refusal.instance, Some(why));
        }
        self.counters.stray_answers += u64::from(!any);
    }

    /// An unknown instance is known to run, or, with a reason, not to.
    pub(crate) fn settle_late(
        &mut self,
        _now_ms: u64,
        instance: InstanceId,
        why: Option<Arc<Unplaced>>,
    ) -> bool {
        let Some(unsettled) = self.unsettled.remove(&instance) else {
            return false;
        };
        self.counters.settled_late += 1;
        match &why {
            None => self.ring.placed_late(unsettled.auction, instance),
            Some(why) => {
                let told = (Outcome::Unplaced, Arc::clone(why));
                self.ring.told(unsettled.auction, instance, told);
            }
        }
        let kind = if why.is_none() {
            kind::PLACED
        } else {
            kind::UNPLACED
        };
        let mut lines = Lines::default();
        lines.add(Line {
            request: unsettled.request,
            index: unsettled.index,
            instance,
            cell: Some(unsettled.cell),
            why,
        });
        self.event(lines.event(kind, &unsettled.app, Some(unsettled.auction)));
        true
    }
}
