//! `wait`: until all of an app runs, or its task has ended.

use std::{collections::BTreeMap, time::Duration};

use anyhow::anyhow;
use futures_util::StreamExt;
use placement::Kind;
use serde_json::json;
use shared::wire::InstanceState;
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    instances::{self, Located},
    ps::{counts, question},
};
use crate::{
    cluster::Cluster,
    context::{Exit, Format, Global, Usage},
    output::{self, note},
};

#[derive(Debug, clap::Args)]
pub(crate) struct WaitArgs {
    /// The app
    app: String,
    /// How many instances must run [default: all that there are, at least one]
    #[arg(long, value_name = "N")]
    instances: Option<usize>,
    /// How long to wait at most
    #[arg(long, value_name = "TIME", default_value = "60s",
          value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// How an app stands.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// Not there yet.
    Pending,
    /// All run, or its tasks have ended well.
    Ready,
    /// Something ended badly, for good.
    Failed(String),
}

/// Waits.
pub(crate) async fn wait(global: &Global, args: &WaitArgs) -> anyhow::Result<Exit> {
    placement::check_name("APP", &args.app).map_err(Usage::because)?;
    let cluster = Cluster::connect(global).await?;
    let until = Instant::now() + args.timeout;
    let subject = cluster.subjects.event("*", &args.app);
    let mut events = cluster.bus.client.subscribe(subject).await?;
    let began = Instant::now();
    let (mut said, mut now) = (String::new(), String::new());
    let question = question(Some(&args.app));
    loop {
        let answers = timeout_at(until, instances::all(&cluster, &question));
        let answers = answers.await.map_err(|_| too_late(args, &now))??;
        let found = judge(&answers.instances, args.instances);
        match found {
            Standing::Pending => {}
            Standing::Ready => return report(&cluster, args, "ready", &answers.instances),
            Standing::Failed(why) => {
                note(why);
                return report(&cluster, args, "failed", &answers.instances);
            }
        }
        now = summary(&answers.instances);
        // quick waits say nothing; long ones say what changes
        if said != now && began.elapsed() > Duration::from_secs(2) {
            note(format_args!("… {}: {now}", args.app));
            said.clone_from(&now);
        }
        if Instant::now() >= until {
            return Err(too_late(args, &now));
        }
        // an event says when to look again; without one, look now and then
        let pause = until.min(Instant::now() + Duration::from_secs(1));
        let _ = timeout_at(pause, events.next()).await;
        while let Ok(Some(_)) = timeout(Duration::from_millis(20), events.next()).await {}
    }
}

fn report(
    cluster: &Cluster,
    args: &WaitArgs,
    outcome: &str,
    instances: &[Located],
) -> anyhow::Result<Exit> {
    let app = &args.app;
    match cluster.format {
        Format::Json => {
            let states = counts(instances);
            output::json(&json!({"app": app, "outcome": outcome, "states": states}))?;
        }
        Format::Table => output::say(format_args!("{app}: {}", summary(instances)))?,
    }
    Ok(if outcome == "ready" {
        Exit::Ok
    } else {
        Exit::Failed
    })
}

fn too_late(args: &WaitArgs, now: &str) -> anyhow::Error {
    let time = humantime::format_duration(args.timeout);
    let app = &args.app;
    anyhow!(
        "{app} is not ready after {time}: {now}\n\
         `vendue status {app}` and `vendue explain {app}` say more"
    )
}

fn summary(instances: &[Located]) -> String {
    let counts = counts(instances);
    if counts.is_empty() {
        return "no instance".into();
    }
    let counts: Vec<String> = counts.iter().map(|(s, n)| format!("{n} {s}")).collect();
    counts.join(", ")
}

/// LRPs must run, tasks must have ended well; what has ended otherwise will not mend itself.
fn judge(instances: &[Located], wanted: Option<usize>) -> Standing {
    let (mut ready, mut pending, mut bad) = (0, 0, None);
    for located in current(instances) {
        match (located.instance.kind, located.instance.state) {
            (Kind::Task, InstanceState::Exited) | (Kind::Lrp, InstanceState::Running) => ready += 1,
            (_, InstanceState::Crashed) | (Kind::Lrp, InstanceState::Exited) => bad = Some(located),
            // on its way out: somebody stopped it
            (_, InstanceState::Stopping) => {}
            _ => pending += 1,
        }
    }
    let all_there = pending == 0 && bad.is_none();
    match wanted {
        Some(wanted) if ready >= wanted => return Standing::Ready,
        None if ready > 0 && all_there => return Standing::Ready,
        _ => {}
    }
    match bad {
        Some(bad) if wanted.is_none_or(|wanted| ready + pending < wanted) => {
            Standing::Failed(failure_message(bad))
        }
        _ => Standing::Pending,
    }
}

/// Of each index the instance that counts: one that lives, else the one that ended last (cells
/// remember earlier ones for a while).
fn current(instances: &[Located]) -> impl Iterator<Item = &Located> {
    let mut current: BTreeMap<u32, &Located> = BTreeMap::new();
    let rank = |located: &Located| (!located.lives(), located.instance.age_ms);
    for located in instances {
        let best = current.entry(located.instance.index).or_insert(located);
        if rank(located) < rank(best) {
            *best = located;
        }
    }
    current.into_values()
}

fn failure_message(bad: &Located) -> String {
    let (app, index, cell) = (&bad.instance.app, bad.instance.index, &bad.cell);
    let state = match bad.instance.state {
        InstanceState::Crashed => "crashed",
        _ => "has ended",
    };
    let why = bad.instance.ended.as_deref().unwrap_or("no reason given");
    format!("{app} {index} {state} on {cell}: {why}\n`vendue logs {app}` shows what it printed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::wire::Instance;

    fn located(text: &str) -> Located {
        let words: Vec<&str> = text.split(' ').collect();
        let [kind, index, state, age_ms] = words[..] else {
            panic!("{text}")
        };
        let instance: Instance = serde_json::from_value(json!({
            "instance": uuid::Uuid::nil(), "app": "a", "memory_mb": 1, "disk_mb": 1, "kind": kind,
            "state": state, "index": index.parse::<u32>().unwrap(),
            "age_ms": age_ms.parse::<u64>().unwrap(),
        }))
        .unwrap();
        Located {
            zone: "z1".into(),
            cell: "c1".into(),
            instance,
        }
    }

    #[test]
    fn what_is_ready_what_is_awaited_and_what_has_failed() {
        let cases: &[(&[&str], Option<usize>, &str)] = &[
            (&[], None, "pending"),
            (&["lrp 0 running 1"], None, "ready"),
            (&["lrp 0 running 1", "lrp 1 starting 1"], None, "pending"),
            (&["lrp 0 running 1", "lrp 1 restarting 1"], None, "pending"),
            (&["lrp 0 running 1", "lrp 1 crashed 1"], None, "failed"),
            (&["lrp 0 running 1", "lrp 1 stopping 1"], None, "ready"),
            (&["lrp 0 exited 1"], None, "failed"),
            (&["task 0 exited 1"], None, "ready"),
            (&["task 0 running 1"], None, "pending"),
            (&["task 0 crashed 1"], None, "failed"),
            // an earlier life of the same index does not count
            (&["lrp 0 crashed 9", "lrp 0 running 1"], None, "ready"),
            (&["lrp 0 running 1", "lrp 0 crashed 0"], None, "ready"),
            (&["task 0 crashed 9", "task 0 exited 1"], None, "ready"),
            (&["task 0 exited 9", "task 0 crashed 1"], None, "failed"),
            // so many must run
            (&["lrp 0 running 1"], Some(2), "pending"),
            (&["lrp 0 running 1", "lrp 1 crashed 1"], Some(1), "ready"),
            (&["lrp 0 running 1", "lrp 1 crashed 1"], Some(2), "failed"),
            (&["lrp 0 starting 1", "lrp 1 crashed 1"], Some(1), "pending"),
        ];
        for (texts, wanted, expected) in cases {
            let instances: Vec<Located> = texts.iter().map(|t| located(t)).collect();
            let standing = match judge(&instances, *wanted) {
                Standing::Ready => "ready",
                Standing::Pending => "pending",
                Standing::Failed(_) => "failed",
            };
            assert_eq!(standing, *expected, "{texts:?}, wanted {wanted:?}");
        }
    }
}
