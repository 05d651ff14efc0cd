//! Carries out the moves of a plan, a number of them at a time, until one fails.

use std::time::Duration;

use futures_util::future::join_all;
use placement::{Move, Rate};
use serde::Serialize;
use shared::wire::{AppMove, AppMoved, MoveState, to_bytes};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{
    cluster::{Cluster, Peer, TIMEOUT, short_name},
    context::{Failure, failure_code},
    output::{note, with_progress},
};

/// Pause between two questions about the state of a move.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// How long managers may fail to answer; another one takes over within this time.
const PATIENCE: Duration = Duration::from_secs(45);

/// The result of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Moved {
    app: String,
    index: u32,
    from: String,
    /// `moving`: no manager said how it ended.
    state: MoveState,
    /// Where it runs now, if it was moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    cell: Option<String>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Moved {
    pub(super) fn is_done(&self) -> bool {
        self.state == MoveState::Moved
    }
}

/// Carries out moves.
pub(super) struct Moves<'a> {
    cluster: &'a Cluster,
    rate: Rate,
    stop: &'a CancellationToken,
}

impl<'a> Moves<'a> {
    /// No move begins after `stop` is cancelled.
    pub(super) fn new(cluster: &'a Cluster, rate: Rate, stop: &'a CancellationToken) -> Self {
        Self {
            cluster,
            rate,
            stop,
        }
    }

    /// Returns the results of the moves that were begun; after a failed one, no further move is begun.
    pub(super) async fn carry_out(&self, moves: &[Move]) -> Vec<Moved> {
        let mut results: Vec<Moved> = Vec::new();
        let mut next = Instant::now();
        for some in moves.chunks(self.rate.count as usize) {
            let wait = self.stop.run_until_cancelled(sleep_until(next));
            with_progress("waiting for the time of the next move", wait).await;
            if self.stop.is_cancelled() {
                break;
            }
            next = Instant::now() + self.rate.per.0;
            let begun = results.len();
            let one = |(n, one): (usize, &Move)| {
                note(format_args!(
                    "{} of {}: moving {} {} from {}; {} is planned",
                    begun + n + 1,
                    moves.len(),
                    one.app,
                    one.index,
                    one.from,
                    one.to
                ));
                self.one(one.clone())
            };
            let ended = join_all(some.iter().enumerate().map(one));
            let ended = with_progress("waiting until the new instance is healthy", ended).await;
            let failed = ended.iter().any(|moved| !moved.is_done());
            ended.iter().for_each(tell);
            results.extend(ended);
            if failed {
                break;
            }
        }
        results
    }

    async fn one(&self, one: Move) -> Moved {
        let answer = self.until_ended(&one).await;
        let (state, cell, reason) = match answer {
            Ok(answer) => (answer.state, answer.cell, answer.reason),
            // the manager that acts next leaves one of the two instances
            Err(error) if is_silence(&error) => (MoveState::Moving, None, Some(error.to_string())),
            Err(error) => (MoveState::Failed, None, Some(error.to_string())),
        };
        Moved {
            app: one.app,
            index: one.index,
            from: one.from.to_string(),
            state,
            cell,
            reason,
        }
    }

    /// Asks for a move, and repeatedly for its state.
    async fn until_ended(&self, one: &Move) -> anyhow::Result<AppMoved> {
        let question = AppMove {
            v: shared::VERSION,
            id: short_name("move"),
            index: one.index,
            from: one.from.to_string(),
        };
        let body = to_bytes(&question);
        let mut silent_since = Instant::now();
        loop {
            let subject = self.cluster.subjects.app("move", &one.app);
            let asked = self
                .cluster
                .ask_quietly(Peer::Manager, subject, body.clone(), TIMEOUT);
            match asked.await {
                Ok(answer) => {
                    let answer: AppMoved = serde_json::from_slice(&answer)?;
                    if answer.state != MoveState::Moving {
                        return Ok(answer);
                    }
                    silent_since = Instant::now();
                }
                Err(error) if is_silence(&error) && silent_since.elapsed() < PATIENCE => {}
                Err(error) => return Err(error),
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

/// Returns whether no manager acts at the moment, or none is there.
fn is_silence(error: &anyhow::Error) -> bool {
    let codes = [
        failure_code::NO_ANSWER,
        failure_code::UNREACHABLE,
        shared::wire::code::INTERNAL,
    ];
    let failure = error.downcast_ref::<Failure>();
    failure.is_some_and(|failure| codes.contains(&failure.code.as_str()))
}

fn tell(moved: &Moved) {
    let Moved {
        app, index, from, ..
    } = moved;
    let reason = moved.reason.as_deref().unwrap_or("the move failed");
    match (&moved.cell, moved.state) {
        (Some(cell), _) => note(format_args!("{app} {index} runs on {cell}")),
        (None, MoveState::Moving) => note(format_args!(
            "{app} {index}: not known whether it was moved; the manager that acts next leaves one instance of it: {reason}"
        )),
        (None, _) => note(format_args!("{app} {index} stays on {from}: {reason}")),
    }
}
