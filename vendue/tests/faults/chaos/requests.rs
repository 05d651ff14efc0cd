//! Requests with ids of their own, sent repeatedly to whichever auctioneer gets them, and their answers.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::json;
use shared::wire::{Outcome, StartReply, to_bytes};
use testkit::eventually_within;

use super::{
    QUIET,
    cluster::{Cluster, lock},
    script::{ROUND, Step, Writer},
    table,
};
use crate::parts::Observer;

/// The age at which an app is stopped, so that there is room for others.
const OLD: Duration = Duration::from_secs(20);
/// How long to wait for an answer: longer than any fault lasts.
const ANSWER: Duration = Duration::from_secs(15);

/// A request for instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    instances: u64,
    memory_mb: u64,
    /// How long instances without a place may wait.
    queue_seconds: u64,
}

/// When each job was first sent; stopped jobs are removed.
#[derive(Debug, Default)]
pub(crate) struct Requests(Vec<(usize, Duration)>);

impl Requests {
    /// Writes a round of three seconds: new requests, and repeats.
    pub(crate) fn round(&mut self, writer: &mut Writer, begin: Duration) {
        for _ in 0..2 {
            let at = begin + writer.millis(0, 3_000);
            let job = job(writer);
            self.0.push((job, at));
            let copies = 1 + writer.below(2);
            writer.add(at, Step::Send { job, copies });
        }
        for _ in 0..3 {
            let nth = writer.below(self.0.len());
            let (job, first) = self.0[nth];
            let at = first.max(begin) + writer.millis(10, 3_000);
            let copies = 1 + writer.below(3);
            writer.add(at, Step::Send { job, copies });
        }
        let old = self.0.extract_if(.., |(_, at)| *at + OLD < begin);
        for (job, _) in old {
            // after the last repeat that an earlier round may have put into this one
            writer.add(begin + ROUND, Step::Stop(job));
        }
    }
}

fn job(writer: &mut Writer) -> usize {
    let job = Job {
        instances: 1 + writer.below(3) as u64,
        memory_mb: 16 * (1 + writer.below(4) as u64),
        queue_seconds: [0, 0, 5][writer.below(3)],
    };
    writer.script.jobs.push(job);
    writer.script.jobs.len() - 1
}

/// The answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) sent: usize,
    pub(crate) unanswered: usize,
    pub(crate) outcomes: BTreeMap<String, usize>,
}

fn id(job: usize) -> String {
    format!("chaos-{job}")
}

/// Sends a request and counts its answer, whenever that arrives.
pub(crate) fn send(cluster: &Cluster, number: usize, job: Job, answers: &Arc<Mutex<Answers>>) {
    let mut request = json!({"id": id(number), "app": id(number), "instances": job.instances,
        "memory_mb": job.memory_mb, "disk_mb": 1, "run": {"command": table::command(),
        "env": {table::MARK: cluster.mark, table::MEMORY: job.memory_mb.to_string()}}});
    if job.queue_seconds > 0 {
        request["queue_timeout"] = json!(format!("{}s", job.queue_seconds));
    }
    lock(&cluster.watch).tell(&format!("send {}", id(number)));
    lock(answers).sent += 1;
    let (observer, answers) = (cluster.observer.clone(), answers.clone());
    let watch = Arc::downgrade(&cluster.watch);
    tokio::spawn(async move {
        let outcome = outcome(&observer, &request).await;
        if let Some(watch) = watch.upgrade() {
            lock(&watch).tell(&format!("{} is answered: {outcome:?}", id(number)));
        }
        let mut answers = lock(&answers);
        match outcome {
            Some((outcome, _)) => *answers.outcomes.entry(outcome).or_default() += 1,
            None => answers.unanswered += 1,
        }
    });
}

/// Returns the outcome of a request, and the cells that it names.
async fn outcome(
    observer: &Observer,
    request: &serde_json::Value,
) -> Option<(String, Vec<String>)> {
    let subject = observer.subjects.start();
    let asked = async_nats::Request::new()
        .payload(to_bytes(request))
        .timeout(Some(ANSWER));
    let answer = observer.client.send_request(subject, asked).await.ok()?;
    let reply: StartReply = serde_json::from_slice(&answer.payload).ok()?;
    let cells = reply
        .instances
        .into_iter()
        .filter_map(|instance| instance.cell.map(|c| c.to_string()));
    let name = |outcome: Outcome| format!("{outcome:?}").to_lowercase();
    Some((name(reply.outcome), cells.collect()))
}

/// Stops an app; anything unreachable now is stopped at the end.
pub(crate) fn stop(cluster: &Cluster, number: usize) {
    lock(&cluster.watch).tell(&format!("stop {}", id(number)));
    let observer = cluster.observer.clone();
    tokio::spawn(async move {
        let stop = to_bytes(&json!({"app": id(number)}));
        let _ = observer
            .client
            .request(observer.subjects.stop(), stop)
            .await;
    });
}

/// Stops every app until nothing runs.
pub(crate) async fn stop_all(cluster: &Cluster, jobs: usize) {
    eventually_within(QUIET, "everything to be stopped", async || {
        for number in 0..jobs {
            let app = id(number);
            if table::look(&cluster.mark)
                .iter()
                .any(|process| process.app == app)
            {
                cluster.observer.stop(&app).await;
            }
        }
        let left = table::look(&cluster.mark);
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    })
    .await;
}
