//! Messages that nobody should send: garbage on every subject, and forged messages in the name of others. No program
//! ends, everything that can be answered is, and after one ttl the auctioneers' knowledge is true again.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use placement::{Kind, random::SplitMix64};
use serde_json::{Value, json};
use shared::{
    InstanceId,
    wire::{Outcome, instance_id, to_bytes},
};
use testkit::{NatsServer, eventually_within};

use crate::parts::{Observer, Part};

const CELLS: [&str; 3] = ["z0-a", "z0-b", "z1-a"];
/// How long a made-up cell is believed at most, whatever ttl it claims. Longer than the cells' own ttl, as false claims
/// about a real cell must end sooner.
const MAX_TTL: &str = "10s";
/// The request for which an outcome is made up.
const FORGED: &str = "forged-3";
/// How long it may take until all fuzz messages are processed.
const PATIENCE: Duration = Duration::from_secs(60);

fn forged_instance() -> InstanceId {
    instance_id(FORGED, "web", Kind::Lrp, 0)
}

struct Hostile {
    server: NatsServer,
    observer: Observer,
    parts: Vec<Part>,
    random: SplitMix64,
}

/// A subject, with the body whose mutations are sent to it; a body that would be carried out is only sent broken.
struct Target {
    subject: String,
    body: String,
    acts: bool,
}

impl Hostile {
    async fn start(seed: u64) -> Self {
        let server = NatsServer::start().await;
        let observer = Observer::of(&server).await;
        let url = server.url();
        let mut parts: Vec<Part> = CELLS
            .iter()
            .map(|name| Part::rep(&url, name, &[]))
            .collect();
        for name in ["auctioneer-0", "auctioneer-1"] {
            let arguments = [
                "auctioneer",
                "--policy",
                "dea",
                "--name",
                name,
                "--max-ttl",
                MAX_TTL,
            ];
            parts.push(Part::start(&url, &arguments));
        }
        observer.cells(&CELLS).await;
        Self {
            server,
            observer,
            parts,
            random: SplitMix64::new(seed),
        }
    }

    fn targets(&self) -> Vec<Target> {
        let subjects = &self.observer.subjects;
        let target = |subject: String, body: &str, acts| Target {
            subject,
            body: body.to_owned(),
            acts,
        };
        let request = r#"{"v":1,"id":"f","app":"fuzz","memory_mb":16,"disk_mb":1,"run":{"command":["sleep","1"]}}"#;
        let advert = r#"{"v":1,"incarnation":"018f0000-0000-4000-8000-000000000001","seq":42,"clock_ms":1,"ttl":"15s","cell":"z0-a","total":{"memory_mb":1},"available":{"memory_mb":1}}"#;
        let id = r#"{"v":1,"ids":["018f0000-0000-4000-8000-000000000001"],"app":"fuzz"}"#;
        let mut targets = vec![
            target(subjects.start(), request, true),
            target(subjects.place(), request, false),
            target(subjects.capacity(), r#"{"v":1,"memory_mb":16}"#, false),
            target(subjects.explain(), r#"{"v":1,"app":"fuzz"}"#, false),
            target(
                subjects.stop(),
                r#"{"v":1,"app":"web","indices":[0]}"#,
                true,
            ),
            target(subjects.pool(), r#"{"v":1,"from":"a"}"#, false),
            target(subjects.queued(), r#"{"v":1,"app":"fuzz"}"#, false),
            target(subjects.discover(), "{}", false),
            target(
                subjects.bid(),
                r#"{"v":1,"auction":"0190b2c3-0000-7000-8000-000000000001"}"#,
                false,
            ),
            target(subjects.instances(), id, false),
            target(subjects.cells_stop(), r#"{"v":1,"app":"web"}"#, true),
            target(
                subjects.outcome("f"),
                r#"{"v":1,"id":"g","app":"fuzz","outcome":"placed","instances":[]}"#,
                false,
            ),
            target(
                subjects.event("asked", "fuzz", "nobody"),
                r#"{"v":1,"kind":"asked","by":"other"}"#,
                false,
            ),
            target(
                subjects.log("fuzz", "0", "z0-a"),
                r#"{"v":1,"line":"x"}"#,
                false,
            ),
            target(subjects.echo("auctioneer-0"), "{}", false),
        ];
        for (what, body, acts) in [
            ("advert", advert, false),
            (
                "heartbeat",
                r#"{"v":1,"cell":"z0-a","instances":[]}"#,
                false,
            ),
            ("start", r#"{"v":1,"work":[]}"#, true),
            ("stop", r#"{"v":1,"app":"web"}"#, true),
            ("drain", r#"{"v":1,"deadline":"1h"}"#, true),
            ("set", r#"{"v":1,"unhealthy":true}"#, true),
            ("state", "{}", false),
            ("logs", id, false),
            ("answer.auctioneer-0.1", advert, false),
        ] {
            targets.push(target(subjects.cell("z0-a", what), body, acts));
        }
        targets
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.draw() % bound as u64).unwrap()
    }

    /// Returns a changed body; if the target `acts`, one that cannot be carried out.
    fn mutation(&mut self, target: &Target) -> Vec<u8> {
        let mut body = target.body.clone().into_bytes();
        match self.below(8) {
            0 => body.truncate(self.below(body.len())),
            1 => {
                let bytes = (0..self.below(300)).map(|_| self.random.draw().to_le_bytes()[0] | 128);
                body = bytes.collect();
            }
            2 => body = vec![b'['; 1 + self.below(100_000)],
            3 => {
                let key = "x".repeat(self.below(200_000));
                body = format!(r#"{{"v":1,"unknown_{key}":1}}"#).into();
            }
            4 => body = format!(r#"{{"v":{}}}"#, u128::MAX - self.below(9) as u128).into(),
            5 => {
                let nth = self.below(body.len());
                body[nth] = 0;
            }
            6 => {
                let text = target.body.replace('1', "-1e400");
                body = text.replace('a', "\u{202e}").into_bytes();
            }
            _ => body.clear(),
        }
        // an empty object may be a complete message, and so may an unchanged body
        if target.acts && (body == target.body.as_bytes() || body.first() == Some(&b'{')) {
            body.push(b'!');
        }
        body
    }

    /// Sends this many messages to each subject, half of them with a reply subject.
    async fn fuzz(&mut self, count: usize) {
        let client = self.observer.client.clone();
        let inbox = client.new_inbox();
        for target in self.targets() {
            for nth in 0..count {
                let (subject, body) = (target.subject.clone(), self.mutation(&target).into());
                let sent = if nth % 2 == 0 {
                    client
                        .publish_with_reply(subject, inbox.clone(), body)
                        .await
                } else {
                    client.publish(subject, body).await
                };
                sent.expect("publish");
            }
            client.flush().await.expect("flush");
        }
    }

    /// Sends false claims in the name of others.
    async fn forge(&mut self) {
        let subjects = &self.observer.subjects;
        let state = self
            .observer
            .client
            .request(subjects.cell("z0-a", "state"), "".into())
            .await;
        let truth: Value = serde_json::from_slice(&state.expect("a state").payload).unwrap();
        let mut newer = truth.clone();
        (newer["seq"], newer["ttl"]) = (json!(u64::MAX), json!("1h"));
        newer["available"] = json!({"memory_mb": 0, "disk_mb": 0, "containers": 0});
        let mut reborn = newer.clone();
        reborn["incarnation"] = json!("018f0000-0000-4000-8000-00000000000f");
        let mut leaves = truth.clone();
        leaves["ttl"] = json!("0s");
        let mut made_up = reborn.clone();
        (made_up["cell"], made_up["available"]) = (json!("z9-fake"), truth["total"].clone());
        // another cell, with everything that everybody hears of this one
        let mut thief = truth.clone();
        thief["cell"] = json!("z9-thief");
        let mut thief_leaves = thief.clone();
        thief_leaves["ttl"] = json!("0s");
        let claim = "00000000-0000-0000-0000-000000000001";
        let asked = json!({"v": 1, "kind": "asked", "by": "auctioneer-9", "auction": claim,
            "app": "web", "requests": ["forged-1"]});
        // complete in form, but for something that nobody has announced
        let placed =
            json!({"index": 0, "instance": forged_instance(), "outcome": "placed", "cell": "z0-b"});
        let outcome = json!({"v": 1, "id": FORGED, "app": "web", "outcome": "placed", "auction": claim,
            "claim": claim, "instances": [placed]});
        for (subject, body) in [
            (subjects.cell("z0-a", "advert"), &newer),
            (subjects.cell("z0-b", "advert"), &newer),
            (subjects.cell("z0-a", "advert"), &reborn),
            (subjects.cell("z0-a", "advert"), &leaves),
            (subjects.cell("z9-fake", "advert"), &made_up),
            (subjects.cell("z9-thief", "advert"), &thief),
            (subjects.cell("z9-thief", "advert"), &thief_leaves),
            (subjects.event("asked", "web", "auctioneer-9"), &asked),
            (
                subjects.outcome("forged-2"),
                &json!({"id": "forged-2", "outcome": "placed"}),
            ),
            (subjects.outcome(FORGED), &outcome),
        ] {
            let sent = self.observer.client.publish(subject, to_bytes(body)).await;
            sent.expect("publish");
        }
        self.observer.client.flush().await.expect("flush");
    }

    /// Returns what each cell has and what is free there, according to itself.
    async fn truth(&self) -> Result<BTreeMap<String, [Value; 2]>, String> {
        let mut truth = BTreeMap::new();
        for cell in CELLS {
            let subject = self.observer.subjects.cell(cell, "state");
            let state = self.observer.client.request(subject, "".into()).await;
            let state = state.map_err(|e| e.to_string())?;
            let state: Value = serde_json::from_slice(&state.payload).map_err(|e| e.to_string())?;
            truth.insert(
                cell.to_owned(),
                ["total", "available"].map(|f| state[f].clone()),
            );
        }
        Ok(truth)
    }

    /// Returns the same according to an auctioneer, for all cells that it knows.
    async fn known(&self) -> Result<BTreeMap<String, [Value; 2]>, String> {
        let (client, subject) = (&self.observer.client, self.observer.subjects.pool());
        let pool = client.request(subject, "".into()).await;
        let pool = pool.map_err(|e| e.to_string())?;
        let pool: Value = serde_json::from_slice(&pool.payload).map_err(|e| e.to_string())?;
        let cells = pool["cells"].as_array().ok_or_else(|| pool.to_string())?;
        let of = |known: &Value| {
            let name = known["cell"]["cell"].as_str().unwrap_or_default();
            let has = ["total", "available"].map(|field| known["cell"][field].clone());
            (name.to_owned(), has)
        };
        Ok(cells.iter().map(of).collect())
    }

    /// Waits until the auctioneers know what the cells have, then until they know no other cell and place work on them.
    /// Returns how long the first of that took.
    async fn recovers(&self, round: usize) -> Duration {
        let since = Instant::now();
        eventually_within(PATIENCE, "what is true of the cells", async || {
            let truth = self.truth().await?;
            for _ in 0..8 {
                let mut known = self.known().await?;
                known.retain(|name, _| CELLS.contains(&name.as_str()));
                if known != truth {
                    return Err(format!("{known:?}, not {truth:?}"));
                }
            }
            Ok(())
        })
        .await;
        let believed = since.elapsed();
        eventually_within(PATIENCE, "true cells only", async || {
            // two auctioneers answer at random
            for _ in 0..8 {
                let pool = self.observer.pool().await?;
                if !pool.keys().map(String::as_str).eq(CELLS) {
                    return Err(format!("{pool:?}"));
                }
            }
            Ok(())
        })
        .await;
        let id = format!("after-{round}");
        let reply = self.observer.placed(&id, &id, 3).await;
        assert_eq!(reply.outcome, Outcome::Placed);
        believed
    }

    /// Checks that every program still runs.
    fn all_live(&mut self) {
        for part in &mut self.parts {
            assert!(part.lives(), "a program has ended:\n{}", self.server.log());
        }
    }
}

/// Fuzzes and forges; returns how long forged messages were believed at most.
pub(crate) async fn play(seed: u64, messages: usize) -> Duration {
    let mut hostile = Hostile::start(seed).await;
    hostile.recovers(0).await;
    hostile.fuzz(messages).await;
    hostile.all_live();
    hostile.recovers(1).await;
    let mut longest = Duration::ZERO;
    for round in 2..5 {
        hostile.forge().await;
        longest = longest.max(hostile.recovers(round).await);
    }
    for id in ["forged-1", "forged-2", FORGED] {
        let reply = hostile
            .observer
            .start(id, "web", 1)
            .await
            .expect("an answer");
        assert_eq!(reply.outcome, Outcome::Placed, "{reply:?}");
    }
    let runs = hostile.observer.instances(CELLS.len()).await;
    assert!(
        runs.contains_key(&forged_instance()),
        "it was only said to be placed: {runs:?}"
    );
    hostile.all_live();
    longest
}
