//! Many faults at once, on real processes. What happens is drawn from a seed; what runs is read from the process table
//! rather than from vendue's own reports. There are two scripts:
//!
//! - requests with ids of their own are sent repeatedly to whichever auctioneer gets them;
//! - apps are put, scaled, rolled out and deleted, tasks and durable requests are stored, cells are drained, and the
//!   bucket of the apps is lost and restored, with two managers on three servers.
//!
//! Programs are cut off by a proxy in front of each ([`testkit::Link`]): as in a network that drops everything, no byte
//! passes and nobody is told; unlike network namespaces, this needs no privileges on the machine.
//!
//! To promise something else, add it to [`watch::Watch`], and what may break it to [`script::Step`].

mod cluster;
mod desk;
mod hostile;
mod orders;
mod requests;
mod script;
mod stops;
mod stored;
mod table;
mod watch;

use std::{
    fmt::{Display, Write},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use cluster::{Cluster, lock};
use desk::{Desk, Tally};
use requests::{Answers, send, stop, stop_all};
use script::{Deed, Program, Script, Step};
use stored::Stored;
use testkit::eventually_within;
use watch::{Figures, WHILE};

/// How long the cluster may take to become consistent after the last fault.
const QUIET: Duration = Duration::from_secs(60);
/// How long a test waits for what must come; if that comes too late, it is reported then.
const PATIENCE: Duration = Duration::from_secs(180);
/// A state counts as reached once nothing has changed for this long.
const STEADY: Duration = Duration::from_secs(1);
/// Part of the message about something that was reached, but late.
const TOO_LATE: &str = "only after";

/// A few rounds of which only the end is judged, as the time to reach it depends on the machine.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_few_rounds_of_faults_everything_runs_once() {
    play_requests(1, 6).await.assert_but_for_times();
}

/// The same for apps that managers keep running. If the server is too old for managers, they must say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_few_rounds_of_faults_every_app_runs_as_it_should() {
    if is_old_server() {
        return managers_refuse().await;
    }
    play_orders(1, 5).await.assert_but_for_times();
}

/// `make chaos`; `SEED` and `ROUNDS` determine what is played.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; `make chaos` runs it"]
async fn for_many_rounds_of_faults_everything_runs_once() {
    let (seed, rounds) = of_environment();
    play_requests(seed, rounds).await.assert();
}

/// Part of `make chaos`, with the same seed and number of rounds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes long; `make chaos` runs it"]
async fn for_many_rounds_of_faults_every_app_runs_as_it_should() {
    let (seed, rounds) = of_environment();
    play_orders(seed, rounds).await.assert();
}

fn of_environment() -> (u64, usize) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (seed, rounds) = (number("SEED").unwrap_or(1), number("ROUNDS").unwrap_or(200));
    (seed, usize::try_from(rounds).unwrap())
}

fn is_old_server() -> bool {
    let mut version = std::process::Command::new(testkit::server_binary());
    let said = version.arg("--version").output().unwrap().stdout;
    String::from_utf8_lossy(&said).contains("v2.9.")
}

async fn managers_refuse() {
    let server = testkit::NatsServer::start().await;
    let mut manager = std::process::Command::new(env!("CARGO_BIN_EXE_vendue"));
    let said = manager.args(["manager", "--nats", &server.url()]).output();
    let said = String::from_utf8_lossy(&said.unwrap().stderr).into_owned();
    assert!(said.contains("2.11.15 or newer"), "{said}");
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
    // the ttl begins when the cell speaks again, and ends with the next advertisement after it: a second each
    assert!(
        believed < crate::parts::TTL + Duration::from_secs(2),
        "{believed:?}"
    );
}

/// The result of a script.
struct End {
    title: String,
    figures: Figures,
    /// Further counts.
    lines: Vec<(&'static str, String)>,
    violations: Vec<String>,
}

async fn play_requests(seed: u64, rounds: usize) -> End {
    let script = Script::of_requests(seed, rounds);
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
                cluster.check_lives();
                quiet(&cluster).await;
                agree(&cluster).await;
                progress(began, &script);
                late = began.elapsed().saturating_sub(*at);
            }
            step => cluster.carry_out(step).await,
        }
    }
    stop_all(&cluster, script.jobs.len()).await;
    cluster.end().await;
    let answers = lock(&answers).clone();
    let mut end = End::of(&cluster, began, (seed, rounds, script.faults));
    let outcomes = format!("{:?}, none {}", answers.outcomes, answers.unanswered);
    end.line("requests sent", answers.sent);
    end.line("answers", outcomes);
    end
}

async fn play_orders(seed: u64, rounds: usize) -> End {
    let script = Script::of_orders(seed, rounds);
    let mut cluster = Cluster::with_managers(seed).await;
    cluster.observe();
    let desk = Desk::open(&cluster.observer, &cluster.watch, &cluster.mark);
    let stored = Stored::open(&desk);
    quiet(&cluster).await;
    let began = Instant::now();
    let (mut late, mut last_fault) = (Duration::ZERO, began);
    let mut took = Vec::new();
    for (at, step) in &script.steps {
        // the script's own time, not a wait for something
        tokio::time::sleep_until((began + *at + late).into()).await;
        match *step {
            Step::Order(order) => desk.order(order),
            Step::Store(number) => stored.submit(number),
            Step::Do(Program::Rep(nth), deed @ (Deed::Drain | Deed::Uncordon)) => {
                desk.cell(cluster.cell(nth), deed);
            }
            Step::Quiet => {
                cluster.check_lives();
                took.push(settled(&cluster, &desk, last_fault).await);
                desk.hold();
                stored.over().await;
                agree(&cluster).await;
                progress(began, &script);
                late = began.elapsed().saturating_sub(*at);
            }
            _ => {
                cluster.carry_out(step).await;
                last_fault = Instant::now();
            }
        }
    }
    desk.delete_all();
    settled(&cluster, &desk, Instant::now()).await;
    cluster.end().await;
    let tally = lock(&desk.tally).clone();
    let mut end = End::of(&cluster, began, (seed, rounds, script.faults));
    end.orders(&tally, took);
    end.line("stored requests", format!("{:?}", lock(&stored.ended)));
    end
}

fn progress(began: Instant, script: &Script) {
    let all = script.steps.last().map_or(Duration::ZERO, |(at, _)| *at);
    let seconds = began.elapsed().as_secs();
    eprintln!("chaos: {seconds} s of at least {} s", all.as_secs());
}

/// Waits until all programs answer and nothing runs twice.
async fn quiet(cluster: &Cluster) {
    eventually_within(PATIENCE, "the cluster to be quiet", async || {
        if cluster.is_quiet() {
            Ok(())
        } else {
            Err(cluster.described(&[]))
        }
    })
    .await;
}

/// Waits until the cells report what the process table shows.
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

/// How often it is told what is still missing.
const TELL: Duration = Duration::from_secs(20);

/// Waits until everything that was asked for is answered, and what is wanted runs once and nothing else does.
/// How long that took since the last fault and the last answer.
async fn settled(cluster: &Cluster, desk: &Desk, last_fault: Instant) -> Duration {
    eventually_within(PATIENCE, "managers to have answered", async || {
        desk.all_answered().is_some()
    })
    .await;
    desk.repeat().await;
    let (mut since, mut told): (Option<Instant>, _) = (None, Instant::now());
    let what = "every index that is wanted to run once";
    let reached = eventually_within(PATIENCE, what, async || {
        let differences = desk.differences();
        if !differences.is_empty() || !cluster.is_quiet() {
            since = None;
            if told.elapsed() >= TELL {
                told = Instant::now();
                let shown = desk.shown().await;
                lock(&cluster.watch).tell(&format!("waits: {differences:?}, {shown}"));
            }
            return Err(cluster.described(&differences));
        }
        let since = *since.get_or_insert_with(Instant::now);
        let steady = since.elapsed() >= STEADY;
        steady
            .then_some(since)
            .ok_or_else(|| "not yet steady".to_owned())
    })
    .await;
    let answered = desk.all_answered().unwrap_or(last_fault);
    let took = reached.saturating_duration_since(last_fault.max(answered));
    let mut watch = lock(&cluster.watch);
    watch.tell(&format!("everything is as it should be after {took:?}"));
    if took > QUIET {
        watch.violated(&format!("everything ran once {TOO_LATE} {took:?}"));
    }
    took
}

impl End {
    fn of(cluster: &Cluster, began: Instant, (seed, rounds, faults): (u64, usize, usize)) -> Self {
        let watch = lock(&cluster.watch);
        let seconds = began.elapsed().as_secs();
        Self {
            title: format!("seed {seed}, {rounds} rounds, {faults} faults, {seconds} s"),
            figures: watch.figures.clone(),
            lines: Vec::new(),
            violations: watch.violations.clone(),
        }
    }

    fn line(&mut self, what: &'static str, figure: impl Display) {
        self.lines.push((what, figure.to_string()));
    }

    fn orders(&mut self, tally: &Tally, mut took: Vec<Duration>) {
        took.sort();
        let seconds = |took: Option<&Duration>| took.map_or(0.0, Duration::as_secs_f64);
        let (median, longest) = (seconds(took.get(took.len() / 2)), seconds(took.last()));
        self.line(
            "orders, asked again",
            format!("{}, {}", tally.orders, tally.again),
        );
        self.line("drains", tally.drains);
        self.line("losses of the bucket", tally.losses);
        self.line("orders carried out late", tally.late);
        let count = took.len();
        let text = format!("{count} times, median {median:.1} s, longest {longest:.1} s");
        self.line("until everything ran once", text);
        self.line("stopped without being asked", self.figures.unasked_stops);
    }

    /// Asserts that nothing went wrong.
    fn assert(&self) {
        eprintln!("{}", self.report());
        assert_eq!(self.violations, [""; 0]);
    }

    /// Asserts the same, except that violations that only lasted too long are tolerated, as the machine may be slow.
    fn assert_but_for_times(&self) {
        eprintln!("{}", self.report());
        let says = |what: &str, late: &str| what.lines().take(1).any(|line| line.contains(late));
        let late = |what: &str| says(what, WHILE) || says(what, TOO_LATE);
        let wrong = self.violations.iter().filter(|what| !late(what));
        assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
    }

    fn report(&self) -> String {
        let figures = &self.figures;
        let mut text = format!("chaos: {}\n", self.title);
        let mut line = |what: &str, figure: &dyn Display| {
            // writing to a string cannot fail
            let _ = writeln!(text, "  {what:<32} {figure}");
        };
        for (what, figure) in &self.lines {
            line(what, figure);
        }
        let longest = format!("{} ms", figures.longest_double_run.as_millis());
        let most = format!("{} of {} MiB", figures.most_memory_mb, cluster::MEMORY_MB);
        line("looks at the process table", &figures.looks);
        line("processes of instances", &figures.processes.len());
        line("double runs", &figures.double_runs);
        line("longest, while messages flow", &longest);
        line("orphans", &figures.orphans);
        line("most memory of a cell", &most);
        line("over-commitments", &figures.over_commitments);
        line("violations", &self.violations.len());
        text
    }
}
