//! Breaks rules of the protocol on purpose, one at a time: messages of one kind are lost or say less. Each time, a
//! broken promise must be detected, or the check would prove nothing.

use bytes::Bytes;
use serde_json::Value;

use super::{fails, script};
use crate::check::{
    CheckReport, Violation,
    bus::Message,
    invariants,
    script::{Fault, Script, What},
    world::{Meddle, World},
};

fn play(script: &Script, meddle: Option<Meddle>) -> Option<Violation> {
    let mut world = World::begun(script, false);
    if let Some(meddle) = meddle {
        world.meddle(meddle);
    }
    invariants::play_world(world, &mut CheckReport::default()).0
}

pub(super) fn is(message: &Message, pattern: &str) -> bool {
    crate::check::bus::Subscription::to(pattern).matches(&message.subject)
}

/// Changes the bodies of messages on a subject.
pub(super) fn rewrite(message: &mut Message, pattern: &str, change: fn(&mut Value)) -> bool {
    if is(message, pattern)
        && let Ok(mut body) = serde_json::from_slice::<Value>(&message.body)
    {
        change(&mut body);
        message.body = Bytes::from(body.to_string());
    }
    true
}

/// A rule, how it is broken, in which runs that is detected, and as what.
struct Case {
    rule: &'static str,
    broken: Meddle,
    runs: fn(u64) -> Script,
    promise: &'static str,
}

/// Number of runs in which it must be detected at least once. Each is also played without the break.
const RUNS: u64 = 40;

const CASES: [Case; 15] = [
    Case {
        rule: "auctioneers announce what they begin, and publish outcomes",
        broken: |_, m| !is(m, "asked") && !is(m, "outcome.*"),
        runs: burst,
        promise: "double run",
    },
    Case {
        rule: "what runs twice is killed",
        broken: |_, m| !is(m, "cell.*.stop"),
        runs: burst,
        promise: "double run",
    },
    Case {
        rule: "cells say for which claim an instance runs",
        broken: |_, m| {
            rewrite(m, "inbox.*.found.*", |body| {
                for instance in body["instances"].as_array_mut().into_iter().flatten() {
                    instance["claim"] = Value::Null;
                }
            })
        },
        runs: burst,
        promise: "double run",
    },
    Case {
        rule: "cells say what runs when they are asked",
        broken: |_, m| !is(m, "inbox.*.found.*"),
        runs: burst,
        promise: "answered",
    },
    Case {
        rule: "auctioneers answer by the deadline",
        broken: |_, m| !is(m, "inbox.client.*"),
        runs: burst,
        promise: "answered in time",
    },
    Case {
        rule: "cells answer starts",
        broken: |_, m| !is(m, "inbox.*.start.*"),
        runs: Script::draw,
        promise: "answered",
    },
    Case {
        rule: "when a cell joins, what was started meanwhile is looked for",
        broken: |now_ms, m| now_ms < RETURNS_MS || !is(m, "instances"),
        runs: returns,
        promise: "double run",
    },
    Case {
        rule: "an auctioneer that starts compares what the cells run",
        broken: |_, m| !compares(m),
        runs: |seed| returns_to(seed, RETURNS_MS - 2_000),
        promise: "double run",
    },
    Case {
        rule: "when a cell joins, an auctioneer that was restarted compares what the cells run",
        broken: |now_ms, m| now_ms < RETURNS_MS || !compares(m),
        runs: |seed| returns_to(seed, RETURNS_MS - 8_000),
        promise: "double run",
    },
    Case {
        rule: "after a loss an auctioneer compares what the cells run",
        broken: |now_ms, m| now_ms < RETURNS_MS || !compares(m),
        runs: returns_unheard,
        promise: "double run",
    },
    Case {
        rule: "cells advertise",
        broken: |now_ms, m| now_ms < 1_000 || !is(m, "cell.*.advert"),
        runs: burst,
        promise: "believed is true",
    },
    Case {
        rule: "the version in an advertisement increases",
        broken: |_, m| rewrite(m, "cell.*.advert", |body| body["seq"] = 1.into()),
        runs: burst,
        promise: "believed is true",
    },
    Case {
        rule: "a rep hears the advertisements under its name",
        broken: |_, m| rewrite(m, "cell.*.advert", |body| body["ttl"] = "0s".into()),
        runs: replaced_rep,
        promise: "one of a name",
    },
    Case {
        rule: "a rep that may have to leave asks for the other one",
        broken: |_, m| !is(m, "cell.*.state"),
        runs: replaced_rep,
        promise: "one of a name",
    },
    Case {
        rule: "auctioneers echo to their name",
        broken: |_, m| !is(m, "echo.*"),
        runs: replaced_auctioneer,
        promise: "one of a name",
    },
];

/// Returns a script with six copies of a request at the same moment, so that both auctioneers get some.
fn burst(seed: u64) -> Script {
    let asks: Vec<(u64, What)> = (0..6).map(|_| (3_000, What::Ask(0))).collect();
    let script = script(&asks);
    Script { seed, ..script }
}

/// When a lost cell returns.
const RETURNS_MS: u64 = 35_000;

/// Returns a script in which a cell is lost. Later the auctioneers miss something and are asked again, so that its
/// instances are started elsewhere. Then the cell returns.
fn returns(seed: u64) -> Script {
    let missed = |node| (21_000, fails(node, Fault::Freeze, 2_000));
    let script = script(&[
        (3_000, What::Ask(0)),
        (5_000, fails(2, Fault::Freeze, RETURNS_MS - 5_000)),
        missed(0),
        missed(1),
        (25_000, What::Ask(0)),
    ]);
    Script { seed, ..script }
}

/// Like [`returns`], but both auctioneers are killed in between, and restarted 5 s after this time.
fn returns_to(seed: u64, killed_ms: u64) -> Script {
    let mut script = returns(seed);
    let killed = |node| super::Step {
        at_ms: killed_ms,
        what: fails(node, Fault::Restart, 5_000),
    };
    script.steps.extend([killed(0), killed(1)]);
    script
}

/// Returns whether it asks the cells for the ids of all that they run.
fn compares(message: &Message) -> bool {
    let text = std::str::from_utf8(&message.body);
    is(message, "instances") && text.is_ok_and(|text| text.contains("ids_only"))
}

/// Like [`returns`], while the auctioneers lose messages.
fn returns_unheard(seed: u64) -> Script {
    let mut script = returns(seed);
    let loses = |node| super::Step {
        at_ms: RETURNS_MS - 500,
        what: fails(node, Fault::Drop, 1_000),
    };
    script.steps.extend([loses(0), loses(1)]);
    script
}

/// Returns a script in which a rep is suspended while another one is started in its place.
fn replaced_rep(seed: u64) -> Script {
    let script = script(&[
        (5_000, fails(2, Fault::Freeze, 30_000)),
        (6_000, What::Namesake(2)),
    ]);
    Script { seed, ..script }
}

/// Returns a script in which an auctioneer is suspended while another one is started in its place.
fn replaced_auctioneer(seed: u64) -> Script {
    let script = script(&[
        (5_000, fails(0, Fault::Freeze, 5_000)),
        (6_000, What::Namesake(0)),
    ]);
    Script { seed, ..script }
}

#[test]
fn every_break_is_seen() {
    for case in &CASES {
        let seen = (0..RUNS).find_map(|seed| {
            let script = (case.runs)(seed);
            let unbroken = play(&script, None);
            assert_eq!(unbroken, None, "{}: seed {seed}", case.rule);
            Some((seed, play(&script, Some(case.broken))?))
        });
        let Some((seed, violation)) = seen else {
            panic!("not seen: {}", case.rule);
        };
        assert_eq!(
            violation.invariant, case.promise,
            "{}: seed {seed}",
            case.rule
        );
    }
}
