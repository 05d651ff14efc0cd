use std::sync::Arc;

use placement::Explain as HowMuch;
use serde_json::Value;
use shared::wire::{AddCells, ExplainRequest};

use super::world::{World, request};
use crate::{AdmittedRequest, AuctioneerInput, DryRun, ReplyKey};

const KEY: ReplyKey = ReplyKey::new(1);

fn place(world: &mut World, memory_mb: i64, change: impl FnOnce(&mut DryRun)) -> Value {
    let mut place = DryRun {
        requests: vec![AdmittedRequest {
            id: "r".parse().unwrap(),
            given: true,
            request: Arc::new(request("r", "web", memory_mb, 2)),
            warnings: vec!["x: no such field; ignored".into()],
        }],
        without: Vec::new(),
        add_cells: Vec::new(),
        explain: HowMuch::Finalists,
    };
    change(&mut place);
    world.out.clear();
    world.input(AuctioneerInput::DryRun {
        dry_run: Box::new(place),
        reply: KEY,
    });
    world.reply(KEY).unwrap()
}

#[test]
fn a_dry_run_changes_nothing() {
    let mut world = World::with_cells("diego", &["c1", "c2"]);
    let answer = place(&mut world, 100, |_| {});
    let decisions = answer["decisions"].as_array().unwrap();
    assert_eq!(decisions.len(), 2);
    assert_eq!(decisions[0]["outcome"], "placed");
    assert_eq!(decisions[0]["finalists"].as_array().unwrap().len(), 2);
    assert!(decisions[0]["cost"].is_number());
    assert_eq!(answer["warnings"][0], "x: no such field; ignored");
    assert!(world.sent().is_empty() && world.asked_bids().is_none());
    assert_eq!((world.free("c1"), world.free("c2")), (1_000, 1_000));
    assert_eq!(world.machine.counters().auctions, 0);
}

#[test]
fn dry_runs_add_and_leave_out_cells() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    let without = place(&mut world, 600, |place| place.without = vec!["c1".into()]);
    assert_eq!(without["decisions"][0]["cell"], "c2");
    assert_eq!(without["decisions"][1]["outcome"], "unplaced");
    let add = |count, like: &str| AddCells {
        count,
        like: like.into(),
    };
    let answer = place(&mut world, 600, |place| {
        place.without = vec!["c1".into()];
        place.add_cells = vec![add(1, "c2")];
    });
    let cells: Vec<_> = answer["decisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| &d["cell"])
        .collect();
    assert!(cells.contains(&&Value::from("c2-new-1")), "{cells:?}");
    assert_eq!(world.machine.feed().pool().len(), 2);
    for bad in [add(1, "c9"), add(100_000, "c1")] {
        let answer = place(&mut world, 600, |place| place.add_cells = vec![bad]);
        assert_eq!(answer["error"]["code"], "invalid_request");
        assert!(
            answer["error"]["field"]
                .as_str()
                .unwrap()
                .starts_with("add_cells")
        );
    }
}

#[test]
fn a_cell_left_out_must_exist_and_is_fully_ignored() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    let answer = place(&mut world, 600, |place| place.without = vec!["TYPO".into()]);
    assert_eq!(answer["error"]["code"], "invalid_request");
    assert_eq!(answer["error"]["field"], "without");
    let says = answer["error"]["message"].as_str().unwrap();
    assert!(
        says.contains("\"TYPO\" is not allowed; expected cells"),
        "{says}"
    );
    let answer = place(&mut world, 600, |place| {
        place.without = vec!["c1".into()];
        place.explain = HowMuch::Cells;
    });
    assert_eq!(answer["cells"], 1);
    assert!(!answer.to_string().contains("absent"), "{answer}");
    assert_eq!(world.machine.feed().pool().len(), 2);
}

/// Returns the answer about the capacity for 600 MiB.
fn capacity_answer(world: &mut World) -> Value {
    world.out.clear();
    let size = Box::new(AdmittedRequest {
        id: "r".parse().unwrap(),
        given: true,
        request: Arc::new(request("r", "web", 600, 1)),
        warnings: Vec::new(),
    });
    world.input(AuctioneerInput::Capacity { size, reply: KEY });
    world.reply(KEY).unwrap()
}

/// Returns how many cells the answer about the capacity for 600 MiB covers, and how many instances fit.
fn capacity(world: &mut World) -> (u64, u64) {
    let answer = capacity_answer(world);
    let number = |field: &str| answer[field].as_u64().unwrap();
    (number("cells"), number("fits"))
}

#[test]
fn the_expected_work_is_learnt_from_requests_and_shown() {
    let mut world = World::new(
        r#"
        name = "learns"
        bids = false
        [[stage]]
        filter = "memory"
        [[stage]]
        score = "fragmentation"
        of = "memory"
        [[stage]]
        pick = "highest"
        "#,
    );
    world.add("c1");
    let expected = |world: &mut World| capacity_answer(world)["expected"].clone();
    assert_eq!(expected(&mut world)["requests"], 0);
    world.ask_one("r", "a", 10, 3);
    world.now_ms += 1_000;
    world.ask_one("s", "b", 20, 1);
    // repeated with the same id: not a new request
    world.ask_one("s", "b", 20, 1);
    place(&mut world, 30, |_| {});
    let learnt = expected(&mut world);
    assert_eq!(learnt["requests"], 2, "{learnt}");
    let size = |at: usize| {
        (
            &learnt["sizes"][at]["share"],
            &learnt["sizes"][at]["memory_mb"],
        )
    };
    assert_eq!(size(0), (&0.75.into(), &10.into()));
    assert_eq!(size(1), (&0.25.into(), &20.into()));
    let mut other = World::with_cells("diego", &["c1"]);
    other.ask_one("r", "a", 10, 1);
    assert!(expected(&mut other).is_null());
}

#[test]
fn cells_known_to_be_silent_are_not_counted() {
    let mut world = World::with_cells("diego", &["c1", "c2"]);
    assert_eq!(capacity(&mut world), (2, 2));
    world.ask_one("r", "tiny", 1, 1);
    let auction = world.asked_bids().unwrap();
    let bid = world.cells["c1"].unchanged(auction);
    world.receive(crate::feed::ReportKind::Bid, None, bid);
    world.silence(crate::BID_WAIT_MS);
    assert_eq!(capacity(&mut world), (1, 1));
    let answer = place(&mut world, 600, |_| {});
    assert_eq!(answer["decisions"][0]["cell"], "c1");
    assert_eq!(answer["decisions"][1]["outcome"], "unplaced");
    world.advertise("c2");
    assert_eq!(capacity(&mut world), (2, 2), "it is there again");
    world.ask_one("s", "tiny2", 1, 1);
    world.silence(crate::BID_WAIT_MS);
    assert_eq!(capacity(&mut world), (2, 2), "all are silent: it may be us");
}

#[test]
fn each_dry_run_draws_by_itself() {
    let mut world = World::with_cells("dea", &["c1", "c2", "c3", "c4", "c5", "c6"]);
    let winners: std::collections::BTreeSet<String> = (0..20)
        .map(|_| place(&mut world, 100, |_| {})["decisions"][0]["cell"].to_string())
        .collect();
    assert!(winners.len() > 1, "{winners:?}");
}

/// Returns the answer to the question why an app's instances are where they are.
fn explain(world: &mut World, app: &str, cells: bool) -> Value {
    world.out.clear();
    let explain = ExplainRequest {
        v: shared::VERSION,
        app: app.into(),
        cells,
    };
    world.input(AuctioneerInput::Explain {
        explain,
        reply: KEY,
    });
    world.reply(KEY).unwrap()
}

fn explained(world: &mut World, app: &str) -> Vec<Value> {
    let answer = explain(world, app, false);
    let auctions = answer["auctions"].as_array().unwrap();
    auctions.iter().map(|a| a["decisions"][0].clone()).collect()
}

#[test]
fn explain_has_the_cells_answers() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r", "web", 100, 1);
    // it has less room than it advertised, and refuses
    world.cell("c1").cell.available.memory_mb = 50;
    world.deliver_all();
    let refused = explained(&mut world, "web");
    assert_eq!(refused.len(), 2, "the next auction finds no room");
    for decision in &refused {
        assert_eq!(decision["outcome"], "unplaced", "{decision}");
    }
    assert_eq!(refused[1]["cell"], "c1");
    let says = "c1 refused: insufficient resources: memory";
    assert_eq!(refused[1]["reason"], says);
    assert_eq!(refused[1]["tally"][0]["stage"], "cell");

    // no answer in time, but a late one
    world.ask_one("s", "db", 10, 1);
    let sent = world.sent();
    world.silence(crate::START_WAIT_MS);
    let unknown = explained(&mut world, "db");
    assert_eq!(unknown[0]["outcome"], "unknown");
    assert!(unknown[0]["reason"].as_str().unwrap().contains("no answer"));
    world.deliver(&sent[0]);
    let settled = explained(&mut world, "db");
    assert_eq!(settled[0]["outcome"], "placed");
    assert!(settled[0].get("reason").is_none());
}

#[test]
fn the_last_decisions_for_an_app() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r", "web", 600, 2);
    world.deliver_all();
    let answer = explain(&mut world, "web", false);
    let auction = &answer["auctions"][0];
    assert_eq!(
        (&auction["cells"], &auction["policy"]),
        (&1.into(), &"dea".into())
    );
    assert!(auction["seed"].is_u64());
    assert_eq!(auction["decisions"][0]["cell"], "c1");
    let failed = &auction["decisions"][1];
    assert_eq!(failed["outcome"], "unplaced");
    assert_eq!(failed["tally"][0]["needs"], 600.0);
    assert!(answer.get("now").is_none(), "only when asked for");
    assert!(explained(&mut world, "none").is_empty());
}

#[test]
fn decided_again_with_every_stage_and_every_cell_by_name() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    world.ask_one("r", "web", 600, 3);
    world.deliver_all();
    let answer = explain(&mut world, "web", true);
    let now = answer["now"].as_array().unwrap();
    assert_eq!(now.len(), 3);
    // two are running by now, and there is no room for more
    for decision in now {
        assert_eq!(decision["outcome"], "unplaced", "{decision}");
        let stages = decision["stages"].as_array().unwrap();
        let memory = stages.iter().find(|s| s["stage"] == "memory").unwrap();
        assert_eq!(
            memory["rejected"][0]["names"],
            serde_json::json!(["c1", "c2"])
        );
    }
    assert_eq!(
        world.machine.counters().auctions,
        1,
        "nothing was auctioned"
    );
}

#[test]
fn an_explanation_that_does_not_fit_tells_of_the_latest() {
    let mut world = World::with_cells("dea", &["c1"]);
    for (id, instances) in [("r1", 2), ("r2", 3), ("r3", 12)] {
        world.ask_one(id, "web", 10, instances);
        world.deliver_all();
    }
    let explain = |world: &mut World, max_bytes: usize| {
        world.machine.set_max_payload(max_bytes);
        world.out.clear();
        let explain = ExplainRequest {
            v: shared::VERSION,
            app: "web".into(),
            cells: true,
        };
        world.input(AuctioneerInput::Explain {
            explain,
            reply: KEY,
        });
        let answer: shared::wire::ExplainAnswer =
            serde_json::from_value(world.reply(KEY).unwrap()).unwrap();
        let decisions = answer.auctions.first().map_or(0, |a| a.decisions.len());
        let told = (answer.now.len(), answer.auctions.len(), decisions);
        (told, shared::wire::to_bytes(&answer).len())
    };
    let mut max_bytes = 1 << 20;
    for expected in [
        (10, 3, 12),
        (1, 3, 12),
        (0, 3, 12),
        (0, 2, 12),
        (0, 1, 12),
        (0, 1, 6),
        (0, 1, 3),
        (0, 1, 1),
        (0, 0, 0),
    ] {
        let (told, bytes) = explain(&mut world, max_bytes);
        assert_eq!(told, expected, "in {max_bytes} bytes");
        assert!(bytes <= max_bytes);
        // when decided again, an instance may take a few bytes more or less
        max_bytes = if told.0 > 1 { bytes - 200 } else { bytes - 1 };
    }
}

#[test]
fn a_dry_run_that_does_not_fit_explains_less() {
    let mut world = World::with_cells("dea", &["c1", "c2", "c3"]);
    let mut told = |max_bytes: usize| {
        world.machine.set_max_payload(max_bytes);
        let answer = place(&mut world, 100, |place| place.explain = HowMuch::Cells);
        let bytes = answer.to_string().len();
        if answer["error"]["code"] == "overloaded" {
            let says = answer["error"]["message"].as_str().unwrap();
            assert!(says.ends_with("bytes; ask for less at a time"), "{says}");
            return ("error", bytes);
        }
        assert!(bytes <= max_bytes, "{bytes} of {max_bytes}");
        let decision = &answer["decisions"][0];
        let has = |field: &str| decision.get(field).is_some_and(|v| v.as_array().is_some());
        let level = match (
            answer.to_string().contains("\"names\""),
            has("stages"),
            has("finalists"),
        ) {
            (true, _, _) => "cells",
            (false, true, _) => "stages",
            (false, false, true) => "finalists",
            _ => "winner",
        };
        (level, bytes)
    };
    let mut max_bytes = 1 << 20;
    let mut levels = Vec::new();
    while levels.last() != Some(&"error") {
        let (level, bytes) = told(max_bytes);
        levels.push(level);
        max_bytes = bytes - 1;
    }
    assert_eq!(levels, ["cells", "stages", "finalists", "winner", "error"]);
}

#[test]
fn a_dry_run_is_bounded() {
    let mut world = World::with_cells("dea", &["c1"]);
    let like = "c1".to_owned();
    for (counts, taken) in [
        (vec![10_000], true),
        (vec![10_001], false),
        (vec![4_000, 6_001], false),
        (vec![usize::MAX, usize::MAX], false),
    ] {
        let answer = place(&mut world, 10, |place| {
            let add = |count: &usize| AddCells {
                count: *count,
                like: like.clone(),
            };
            place.add_cells = counts.iter().map(add).collect();
            place.explain = HowMuch::Winner;
        });
        assert_eq!(answer.get("error").is_none(), taken, "{counts:?}: {answer}");
    }
    let mut of_instances = |instances: u32| {
        place(&mut world, 10, |place| {
            place.explain = HowMuch::Winner;
            Arc::make_mut(&mut place.requests[0].request).instances = instances;
        })
    };
    // this many are decided; only their answer does not fit into a message
    assert_eq!(of_instances(10_000)["error"]["code"], "overloaded");
    let answer = of_instances(10_001);
    let error = &answer["error"];
    assert_eq!(error["field"], "instances");
    assert_eq!(
        error["message"],
        "10001 instances; a dry run accepts at most 10000"
    );
}

#[test]
fn a_dry_run_compares_planned_reboots_with_the_present_time() {
    // a reboot in the past does not count
    for (day, last_wins) in [(1, true), (40, false)] {
        let mut world = World::with_reboots(day);
        let answer = place(&mut world, 10, |_| {});
        let winner = &answer["decisions"][0]["cell"];
        assert_eq!(winner == "c9", last_wins, "on day {day}: {winner}");
    }
}
