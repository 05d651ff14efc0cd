//! `wait`: waits until all of an app runs, or its tasks have exited.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::StreamExt;
use placement::Kind;
use serde_json::json;
use shared::wire::{Event, InstanceState, format_indices, kind, parse_indices};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    app_status::AppStatus,
    instance_table,
    instances::{self, Answers, Located},
    last_start,
    reasons::why,
    status,
};
use crate::{
    cluster::Cluster,
    context::{Exit, Failure, Format, Global, Usage, failure_code},
    output::{self, counted, note},
    senders::Senders,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Waits for queued instances, too, and for cells if there are none yet. Exits with 0 when all instances run and all tasks have \
                  exited with 0; with 3 when the app's last start placed nothing, when queued instances were \
                  not placed, or are still queued when the time is up; with 1 when an instance failed or the time is up. Looks only at the instances \
                  that count now: what was replaced or stopped is listed as earlier."
)]
pub(crate) struct WaitArgs {
    /// The app
    app: String,
    /// How many instances must run, or tasks have exited [default: all, and at least one]
    #[arg(long, value_name = "N")]
    instances: Option<usize>,
    /// How long to wait at most
    #[arg(long, value_name = "TIME", default_value = "60s",
          value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// The progress of an app.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    /// Not there yet.
    Pending,
    /// All run, or its tasks have exited well.
    Ready,
    /// Something ended badly, for good.
    Failed,
}

/// An instance that leaves the queue must appear on a cell within this time.
const DISPATCH_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two questions about the last start.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The queued instances while we wait.
#[derive(Debug, Default)]
struct Queue {
    /// For each index that was queued and no longer is: since when.
    left: BTreeMap<u32, Instant>,
    /// The indices that were queued at the last look.
    queued: BTreeSet<u32>,
    /// For each index that an event reported as unplaced: why.
    unplaced: BTreeMap<u32, String>,
}

impl Queue {
    fn heard(&mut self, event: &Event) {
        if event.kind != kind::UNPLACED {
            return;
        }
        let indices = event.indices.as_deref().unwrap_or_default();
        let reason = why(event.reason.as_deref(), &event.tally);
        for index in parse_indices(indices, MAX_INDICES).unwrap_or_default() {
            self.unplaced.insert(index, reason.clone());
        }
    }

    /// Compares with what is queued and on cells now.
    fn look(&mut self, now: Instant, answers: &Answers) {
        let queued: BTreeSet<u32> = answers.queued.iter().flat_map(instances::indices).collect();
        let known: BTreeSet<u32> = answers.instances.iter().map(|l| l.instance.index).collect();
        for index in self.queued.difference(&queued) {
            self.left.entry(*index).or_insert(now);
        }
        self.left
            .retain(|index, _| !queued.contains(index) && !known.contains(index));
        self.queued = queued;
    }

    /// Returns whether an instance is on its way from the queue to a cell.
    fn is_moving(&self) -> bool {
        !self.left.is_empty()
    }

    /// Describes the instances that left the queue without reaching a cell.
    fn lost(&self, now: Instant, app: &str) -> Option<String> {
        let is_lost = |(index, since): &(&u32, &Instant)| {
            self.unplaced.contains_key(index) || now.duration_since(**since) >= DISPATCH_TIMEOUT
        };
        let lost: Vec<u32> = self
            .left
            .iter()
            .filter(is_lost)
            .map(|(index, _)| *index)
            .collect();
        let reason = self.unplaced.get(lost.first()?);
        let reason = reason.map_or(
            "its request was cancelled or no longer waits",
            String::as_str,
        );
        let indices = format_indices(lost.iter().copied());
        Some(format!("{app} {indices} unplaced: {reason}"))
    }
}

/// Maximum number of instances of one request.
const MAX_INDICES: usize = 100_000;

/// The result of the last look; an error if nobody answered, which says nothing about the app.
type Seen = anyhow::Result<Answers>;

/// Runs `wait`.
pub(crate) async fn wait(global: &Global, args: &WaitArgs) -> anyhow::Result<Exit> {
    placement::check_name("APP", &args.app).map_err(Usage::invalid)?;
    let cluster = Cluster::connect(global).await?;
    let _told = cluster.tell_of_connection();
    let began = Instant::now();
    let until = began + args.timeout;
    let subject = cluster.subjects.event("*", &args.app, "*");
    let mut events = cluster.bus.client.subscribe(subject).await?;
    let (senders, mut waiting) = (Senders::default(), Waiting::default());
    // the first look is not cut short, so that even with a timeout of 0 it reports what there is
    let mut seen = first_look(&cluster, args).await?;
    let mut said = String::new();
    loop {
        let now = match &seen {
            Ok(answers) => {
                if let Some(exit) = waiting.ended(&cluster, args, answers).await? {
                    return Ok(exit);
                }
                AppStatus::new(&answers.instances, &answers.queued).in_words()
            }
            Err(e) => format!("{e:#}"),
        };
        // short waits say nothing; longer ones report changes. That no cell is there may be a wrong prefix
        let is_quiet = began.elapsed() < Duration::from_secs(2);
        if said != now && (!is_quiet || failed_with(&seen, failure_code::UNREACHABLE)) {
            note(format_args!("… {}: {now}", args.app));
            said = now;
        }
        if Instant::now() >= until {
            return too_late(&cluster, args, &seen).await;
        }
        // an event says when to look again; without one, look now and then
        let pause = until.min(Instant::now() + Duration::from_secs(1));
        let mut next = timeout_at(pause, events.next()).await;
        while let Ok(Some(message)) = next {
            if let Some(event) = senders.event(&cluster.subjects, &message) {
                waiting.queue.heard(&event);
            }
            next = timeout(Duration::from_millis(20), events.next()).await;
        }
        let looked = timeout_at(until, look(&cluster, args)).await;
        // if no answer arrived in time, the previous result stays
        seen = looked.unwrap_or(seen);
    }
}

async fn look(cluster: &Cluster, args: &WaitArgs) -> Seen {
    instances::held_and_queued(cluster, Some(&args.app)).await
}

/// Looks for the first time. That nobody answers yet is no reason to give up.
async fn first_look(cluster: &Cluster, args: &WaitArgs) -> anyhow::Result<Seen> {
    let seen = look(cluster, args).await;
    let may_pass = failed_with(&seen, failure_code::NO_ANSWER)
        || failed_with(&seen, failure_code::UNREACHABLE)
        || cluster.check_connected().is_err();
    if may_pass { Ok(seen) } else { seen.map(Ok) }
}

fn failed_with(seen: &Seen, code: &str) -> bool {
    let error = seen.as_ref().err();
    let failure = error.and_then(|error| error.downcast_ref::<Failure>());
    failure.is_some_and(|failure| failure.code == code)
}

/// The state kept between looks.
#[derive(Debug, Default)]
struct Waiting {
    queue: Queue,
    /// When an auctioneer was asked about the last start.
    asked: Option<Instant>,
}

impl Waiting {
    /// Reports how it ended, if it has.
    async fn ended(
        &mut self,
        cluster: &Cluster,
        args: &WaitArgs,
        answers: &Answers,
    ) -> anyhow::Result<Option<Exit>> {
        self.queue.look(Instant::now(), answers);
        let status = AppStatus::new(&answers.instances, &answers.queued);
        if let Some(lost) = self.queue.lost(Instant::now(), &args.app) {
            note(lost);
            return report(cluster, args, "unplaced", &status).map(Some);
        }
        match judge(&status, args.instances) {
            Progress::Ready if args.instances.is_none() && self.queue.is_moving() => {}
            Progress::Ready => return report(cluster, args, "ready", &status).map(Some),
            Progress::Failed => return report(cluster, args, "failed", &status).map(Some),
            Progress::Pending => {}
        }
        if status.listed() == 0 && self.asked.is_none_or(|at| at.elapsed() > LOOK_AGAIN) {
            self.asked = Some(Instant::now());
            let last = last_start::ask(cluster, &args.app).await.ok().flatten();
            if let Some(why) = last.and_then(|last| last.unplaced(&args.app)) {
                note(why);
                return report(cluster, args, "unplaced", &status).map(Some);
            }
        }
        Ok(None)
    }
}

/// Judges the progress: LRPs must run and tasks must have exited well; anything that has ended otherwise will not
/// recover.
fn judge(status: &AppStatus<'_>, wanted: Option<usize>) -> Progress {
    let (mut ready, mut pending) = (0, status.queued);
    for located in &status.now {
        match (located.instance.kind, located.instance.state) {
            (Kind::Task, InstanceState::Exited) | (Kind::Lrp, InstanceState::Running) => ready += 1,
            (_, InstanceState::Crashed) | (Kind::Lrp, InstanceState::Exited) => {}
            // on its way out, as somebody stopped it
            (_, InstanceState::Stopping) => {}
            _ => pending += 1,
        }
    }
    let failed = status.failed().next().is_some();
    match wanted {
        Some(wanted) if ready >= wanted => return Progress::Ready,
        None if ready > 0 && pending == 0 && !failed => return Progress::Ready,
        _ => {}
    }
    if failed && wanted.is_none_or(|wanted| ready + pending < wanted) {
        return Progress::Failed;
    }
    Progress::Pending
}

/// Prints how it ended, including failures.
fn report(
    cluster: &Cluster,
    args: &WaitArgs,
    outcome: &str,
    status: &AppStatus<'_>,
) -> anyhow::Result<Exit> {
    let app = &args.app;
    if outcome == "failed" {
        failures(app, status).into_iter().for_each(note);
    }
    match cluster.format {
        Format::Json => {
            let mut document = json!({"v": shared::VERSION, "outcome": outcome});
            for (field, value) in status::summary(app, status) {
                document[field] = value;
            }
            document["failures"] = status
                .failed()
                .map(Located::document)
                .take(LISTED)
                .collect();
            output::json(&document)?;
        }
        Format::Table => output::say(format_args!("{app}: {}", status.in_words()))?,
    }
    Ok(match outcome {
        "ready" => Exit::Ok,
        "unplaced" | "queued" => Exit::Unplaced,
        _ => Exit::Failed,
    })
}

/// Handles the end of the timeout.
async fn too_late(cluster: &Cluster, args: &WaitArgs, seen: &Seen) -> anyhow::Result<Exit> {
    let time = placement::Span(args.timeout);
    let app = &args.app;
    let unknown = |e: &anyhow::Error| {
        let code = e.downcast_ref::<Failure>();
        Failure::because(
            code.map_or(failure_code::FAILED, |failure| &failure.code),
            format_args!("whether {app} is ready is not known after {time}: {e:#}"),
        )
    };
    cluster.check_connected().map_err(|e| unknown(&e))?;
    let answers = seen.as_ref().map_err(unknown)?;
    let status = AppStatus::new(&answers.instances, &answers.queued);
    let now = status.in_words();
    let ready = |located: &&&Located| match located.instance.kind {
        Kind::Lrp => located.instance.state == InstanceState::Running,
        Kind::Task => located.instance.state == InstanceState::Exited,
    };
    let only_queued =
        status.queued > 0 && status.now.iter().filter(ready).count() == status.now.len();
    if status.listed() == 0 {
        let why = why_absent(cluster, app, answers).await;
        anyhow::bail!("{app} is not ready after {time}: {now}\n{why}");
    }
    if !only_queued {
        anyhow::bail!(
            "{app} is not ready after {time}: {now}\n\
             `vendue status {app}` and `vendue explain {app}` say more"
        );
    }
    note(format_args!(
        "{app} is still queued after {time}; `vendue explain {app}` says what it lacks"
    ));
    report(cluster, args, "queued", &status)
}

/// Explains why no instance is listed. It suggests starting the app only if all cells answered.
async fn why_absent(cluster: &Cluster, app: &str, answers: &Answers) -> String {
    if let Some(silent) = instance_table::silent_in_words(answers) {
        return format!("{silent}: it may run there");
    }
    match last_start::ask(cluster, app).await {
        Ok(last) => last.and_then(|last| last.gone(app)).unwrap_or_else(|| {
            format!("no start of it is known; start it with `vendue run {app} ...` or `vendue start FILE`")
        }),
        Err(e) => format!("whether it was started is not known: {e:#}"),
    }
}

/// Maximum number of failures that are named.
const LISTED: usize = 10;

fn failures(app: &str, status: &AppStatus<'_>) -> Vec<String> {
    let all: Vec<&Located> = status.failed().collect();
    let mut lines: Vec<String> = all.iter().take(LISTED).map(|l| failure(l)).collect();
    if all.len() > LISTED {
        lines.push(format!(
            "and {} more",
            counted(all.len() - LISTED, "failure")
        ));
    }
    lines.push(format!("`vendue logs {app}` shows what it printed"));
    lines
}

/// Formats `web 3 crashed on z1-cell-0: exit 1`.
fn failure(located: &Located) -> String {
    let (app, index, cell) = (&located.instance.app, located.instance.index, &located.cell);
    let (state, ended) = (located.state(), located.instance.ended.as_deref());
    let ended = ended.unwrap_or("no reason given");
    format!("{app} {index} {state} on {cell}: {ended}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::app_status::tests::{group, located};

    #[test]
    fn what_is_ready_what_is_awaited_and_what_has_failed() {
        use Progress::{Failed, Pending, Ready};
        let cases = [
            ("", "", None, Pending),
            ("lrp 0 running 1", "", None, Ready),
            ("lrp 0 running 1, lrp 1 starting 1", "", None, Pending),
            ("lrp 0 running 1, lrp 1 restarting 1", "", None, Pending),
            ("lrp 0 running 1, lrp 1 crashed 1", "", None, Failed),
            ("lrp 0 running 1, lrp 1 stopping 1", "", None, Ready),
            ("lrp 0 exited 1", "", None, Failed),
            ("task 0 exited 1", "", None, Ready),
            ("task 0 running 1", "", None, Pending),
            ("task 0 crashed 1", "", None, Failed),
            // a queued instance is waited for
            ("lrp 0 running 1", "1-2", None, Pending),
            ("task 0 exited 1", "1", None, Pending),
            ("", "0", None, Pending),
            ("lrp 0 running 1", "1", Some(1), Ready),
            ("lrp 0 crashed 1", "1", Some(1), Pending),
            // an earlier instance of the same index does not count
            ("lrp 0 crashed 9, lrp 0 running 1", "", None, Ready),
            ("lrp 0 running 1, lrp 0 crashed 0", "", None, Ready),
            ("task 0 crashed 9, task 0 exited 1", "", None, Ready),
            ("task 0 exited 9, task 0 crashed 1", "", None, Failed),
            // this many must run
            ("lrp 0 running 1", "", Some(2), Pending),
            ("lrp 0 running 1, lrp 1 crashed 1", "", Some(1), Ready),
            ("lrp 0 running 1, lrp 1 crashed 1", "", Some(2), Failed),
            ("lrp 0 starting 1, lrp 1 crashed 1", "", Some(1), Pending),
        ];
        for (texts, queued, wanted, expected) in cases {
            let instances = texts.split(", ").filter(|text| !text.is_empty());
            let instances: Vec<Located> = instances.map(located).collect();
            let queued = (!queued.is_empty()).then(|| group(queued));
            let progress = judge(&AppStatus::new(&instances, &queued), wanted);
            assert_eq!(progress, expected, "{texts:?}, wanted {wanted:?}");
        }
    }

    #[test]
    fn failures_are_named_up_to_a_bound() {
        let texts: Vec<String> = (0..13)
            .map(|index| format!("task {index} crashed 1"))
            .collect();
        let instances: Vec<Located> = texts.iter().map(|text| located(text)).collect();
        let lines = failures("a", &AppStatus::new(&instances, []));
        assert_eq!(lines[0], "a 0 crashed on c1: exit 3");
        assert_eq!(
            lines[LISTED..],
            [
                "and 3 failures more",
                "`vendue logs a` shows what it printed"
            ]
        );
    }

    #[test]
    fn what_leaves_the_queue_must_appear_on_a_cell() {
        let now = Instant::now();
        let look = |queued: &[&str], texts: &[&str]| Answers {
            instances: texts.iter().map(|text| located(text)).collect(),
            queued: queued.iter().map(|text| group(text)).collect(),
            ..Answers::default()
        };
        let mut queue = Queue::default();
        queue.look(now, &look(&["1-2"], &["lrp 0 running 1"]));
        assert!(!queue.is_moving());
        queue.look(now, &look(&["2"], &["lrp 0 running 1"]));
        assert!(queue.is_moving(), "1 is on its way");
        assert_eq!(queue.lost(now, "a"), None);
        let late = queue.lost(now + DISPATCH_TIMEOUT, "a").unwrap();
        assert!(late.starts_with("a 1 unplaced"), "{late}");
        queue.look(now, &look(&[], &["lrp 0 running 1", "lrp 1 starting 1"]));
        assert!(queue.is_moving(), "now 2 is");
        let mut event = Event::app(kind::UNPLACED, "a");
        event.indices = Some("2-3".into());
        event.reason = Some("insufficient resources: memory".into());
        queue.heard(&event);
        let lost = queue.lost(now, "a").unwrap();
        assert_eq!(lost, "a 2 unplaced: insufficient resources: memory");
    }
}
