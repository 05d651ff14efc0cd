use placement::Resources;
use shared::{AuctionId, clock::CellTime, wire::kind};

use super::{lifecycle::MAX_ENDED_CHARS, *};

mod attributes;
mod checks;
mod claims;
mod devices;
mod drains;
mod lists;
mod lives;
mod promises;
mod starts;

const LIVES: Incarnation = Incarnation::from_u128(1);

fn ledger() -> Ledger {
    let total = Resources::new(1_000, 1_000, 10);
    Ledger::new(Cell::new("a", total), LIVES, "127.0.0.1")
}

fn work(id: u128, app: &str) -> Work {
    Work {
        index: u32::try_from(id % 1_000).unwrap(),
        ..Work::new(InstanceId::from_u128(id), app, 100, 10)
    }
}

fn task(id: u128) -> Work {
    Work {
        kind: Kind::Task,
        ..work(id, "job")
    }
}

fn believing(believed: u32, work: Work) -> Work {
    Work {
        believed: Some(believed),
        ..work
    }
}

/// Returns a start that is valid until 5,000.
fn start(work: Vec<Work>) -> CellStart {
    CellStart {
        v: shared::VERSION,
        auction: AuctionId::nil(),
        incarnation: LIVES,
        expires_ms: CellTime::from_ms(5_000),
        work,
    }
}

fn stop(app: &str, ids: &[u128]) -> Stop {
    Stop {
        v: shared::VERSION,
        app: app.into(),
        indices: Vec::new(),
        instances: ids.iter().copied().map(InstanceId::from_u128).collect(),
        claim: None,
    }
}

fn report(id: u128, attempt: u32, change: InstanceChange) -> ExecutorReport {
    ExecutorReport {
        instance: InstanceId::from_u128(id),
        attempt,
        change,
    }
}

fn runs(id: u128, attempt: u32) -> ExecutorReport {
    let (pid, port) = (Some(7), None);
    report(id, attempt, InstanceChange::Running { pid, port })
}

fn ends(id: u128, attempt: u32, code: i32) -> ExecutorReport {
    report(id, attempt, InstanceChange::Ended(EndReason::Exit(code)))
}

/// Returns the decision on each instance: `+` for accepted, else the reason.
fn answers(ledger: &mut Ledger, now_ms: u64, start: &CellStart) -> Vec<String> {
    let answer = ledger.start(now_ms, start);
    start
        .work
        .iter()
        .map(|work| {
            let refused = answer.refused.iter().find(|r| r.instance == work.instance);
            let taken = || {
                assert!(answer.accepted.contains(&work.instance));
                "+".into()
            };
            refused.map_or_else(taken, |refusal| refusal.reason.clone())
        })
        .collect()
}

fn state_of(ledger: &Ledger, now_ms: u64, id: u128) -> InstanceState {
    let all = ledger.find_instances(now_ms, &Instances::default());
    let id = InstanceId::from_u128(id);
    all.iter().rfind(|i| i.instance == id).unwrap().state
}

/// Returns the kinds of events, and the launches and ends.
fn summary(ledger: &mut Ledger) -> Vec<String> {
    let summary = |action: &Action| match action {
        Action::Execute(ExecutorOrder::Launch { attempt, .. }) => format!("launch {attempt}"),
        Action::Execute(ExecutorOrder::End { attempt, .. }) => format!("end {attempt}"),
        Action::Execute(ExecutorOrder::Check { of, port, .. }) => {
            format!("check {of:?} {}", port.unwrap_or_default())
        }
        Action::Event { kind, reason, .. } => match reason {
            Some(reason) => format!("{kind}: {reason}"),
            None => (*kind).to_owned(),
        },
        Action::Result(result) => format!("result: {}", result.ended),
    };
    ledger.take_actions().iter().map(summary).collect()
}
