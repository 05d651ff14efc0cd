//! Faults on real processes, many of them at once, while requests with ids of their own are sent again and
//! again to whichever auctioneer gets them. What happens is drawn from a seed; what runs is read from the
//! process table, not from what vendue says of itself.
//!
//! To promise something else, add it to [`watch::Watch`], and what may break it to [`script::Step`].

mod cluster;
mod hostile;
mod script;
mod table;
mod watch;

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cluster::{Cluster, lock};
use script::{Job, Script, Step};
use serde_json::json;
use shared::wire::{Outcome, StartReply, to_bytes};
use testkit::eventually_within;
use watch::Figures;

use crate::parts::Observer;

/// How long the cluster may take to agree with itself after the last fault.
const QUIET: Duration = Duration::from_secs(60);
/// How long an answer is waited for: longer than any fault lasts.
const ANSWER: Duration = Duration::from_secs(15);

/// A few rounds, of which only the end is judged: how fast it is reached depends on the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_few_rounds_of_faults_everything_runs_once() {
    let end = play(1, 6).await;
    println!("{}", end.report());
    // a double run that lasts may be a slow machine's; one that does not end, `quiet` would have found
    let wrong = end
        .violations
        .iter()
        .filter(|what| !what.contains("while messages flow"));
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
}

/// `make chaos`: `SEED` and `ROUNDS` say what is played.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; `make chaos` runs it"]
async fn for_many_rounds_of_faults_everything_runs_once() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (seed, rounds) = (number("SEED").unwrap_or(1), number("ROUNDS").unwrap_or(200));
    let end = play(seed, usize::try_from(rounds).unwrap()).await;
    println!("{}", end.report());
    assert_eq!(end.violations, [""; 0]);
}

#[tokio::test]
async fn garbage_and_forged_words_are_over_after_a_ttl() {
    hostile::play(1, 30).await;
}

/// Part of `make chaos`.
#[tokio::test]
#[ignore = "takes long; `make chaos` runs it"]
async fn much_garbage_and_forged_words_are_over_after_a_ttl() {
    let believed = hostile::play(1, 1_000).await;
    println!(
        "chaos: forged words were believed for {} ms at most",
        believed.as_millis()
    );
    // time is checked, and passes, in steps of a tenth of a second
    assert!(
        believed < crate::parts::TTL + Duration::from_secs(1),
        "{believed:?}"
    );
}

/// What became of a script.
struct End {
    title: String,
    figures: Figures,
    answers: Answers,
    violations: Vec<String>,
}

/// What was answered.
#[derive(Clone, Debug, Default)]
struct Answers {
    sent: usize,
    unanswered: usize,
    outcomes: BTreeMap<String, usize>,
}

async fn play(seed: u64, rounds: usize) -> End {
    let script = Script::of(seed, rounds);
    let mut cluster = Cluster::start(seed).await;
    cluster.observe();
    let answers = Arc::new(Mutex::new(Answers::default()));
    quiet(&cluster).await;
    let began = Instant::now();
    let mut late = Duration::ZERO;
    for (at, step) in &script.steps {
        // the script's own time, not a wait for something
        tokio::time::sleep_until((began + *at + late).into()).await;
        match step {
            Step::Send { job, copies } => {
                for _ in 0..*copies {
                    send(&cluster, *job, script.jobs[*job], &answers);
                }
            }
            Step::Stop(job) => stop(&cluster, *job),
            Step::Quiet => {
                quiet(&cluster).await;
                agree(&cluster).await;
                let seconds = began.elapsed().as_secs();
                eprintln!("chaos: {seconds} s of about {} s", rounds * 4);
                late = began.elapsed().saturating_sub(*at);
            }
            step => cluster.carry_out(step).await,
        }
    }
    stop_all(&cluster, script.jobs.len()).await;
    cluster.end().await;
    let watch = lock(&cluster.watch);
    let answers = lock(&answers).clone();
    End {
        title: format!(
            "seed {seed}, {rounds} rounds, {} faults, {} s",
            script.faults,
            began.elapsed().as_secs()
        ),
        figures: watch.figures.clone(),
        answers,
        violations: watch.violations.clone(),
    }
}

fn id(job: usize) -> String {
    format!("chaos-{job}")
}

/// Sends a request and counts its answer, whenever it comes.
fn send(cluster: &Cluster, number: usize, job: Job, answers: &Arc<Mutex<Answers>>) {
    let mut request = json!({"id": id(number), "app": id(number), "instances": job.instances,
        "memory_mb": job.memory_mb, "disk_mb": 1, "run": {"command": ["sleep", "10000"],
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

/// The outcome of a request, and the cells that it names.
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

/// Stops an app; what cannot be reached now is stopped at the end.
fn stop(cluster: &Cluster, number: usize) {
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

/// Waits until all programs answer and nothing runs twice.
async fn quiet(cluster: &Cluster) {
    eventually_within(QUIET, "the cluster to be quiet", async || {
        cluster.is_quiet()
    })
    .await;
}

/// Waits until the cells say what the process table says.
async fn agree(cluster: &Cluster) {
    eventually_within(QUIET, "the cells to say what runs", async || {
        let (said, runs) = cluster.said_and_true().await;
        if said == runs {
            Ok(())
        } else {
            Err(format!("said: {said:?}; runs: {runs:?}"))
        }
    })
    .await;
}

/// Stops every app until nothing runs.
async fn stop_all(cluster: &Cluster, jobs: usize) {
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

impl End {
    fn report(&self) -> String {
        let Figures {
            looks,
            processes,
            double_runs,
            longest_double_run,
            ..
        } = &self.figures;
        let mut text = format!("chaos: {}\n", self.title);
        let mut line = |what: &str, figure: String| {
            let _ = writeln!(text, "  {what:<32} {figure}");
        };
        line("requests sent", self.answers.sent.to_string());
        line(
            "answers",
            format!(
                "{:?}, none {}",
                self.answers.outcomes, self.answers.unanswered
            ),
        );
        line("looks at the process table", looks.to_string());
        line("processes of instances", processes.len().to_string());
        line("double runs", double_runs.to_string());
        line(
            "longest, while messages flow",
            format!("{} ms", longest_double_run.as_millis()),
        );
        line("orphans", self.figures.orphans.to_string());
        line(
            "most memory of a cell",
            format!(
                "{} of {} MiB",
                self.figures.most_memory_mb,
                cluster::MEMORY_MB
            ),
        );
        line(
            "over-commitments",
            self.figures.over_commitments.to_string(),
        );
        line("violations", self.violations.len().to_string());
        text
    }
}
