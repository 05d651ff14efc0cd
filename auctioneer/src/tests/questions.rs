use std::{sync::Arc, time::Duration};

use placement::{Explain as HowMuch, Span};
use serde_json::Value;
use shared::wire::{AddCells, ExplainRequest, Page, QueuedAnswer, QueuedRequest};

use super::world::{TestCell, World, request};
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

/// Of how many cells the capacity for 600 MiB is told, and how many instances fit.
fn capacity(world: &mut World) -> (u64, u64) {
    world.out.clear();
    let size = Box::new(AdmittedRequest {
        id: "r".parse().unwrap(),
        given: true,
        request: Arc::new(request("r", "web", 600, 1)),
        warnings: Vec::new(),
    });
    world.input(AuctioneerInput::Capacity { size, reply: KEY });
    let answer = world.reply(KEY).unwrap();
    let number = |field: &str| answer[field].as_u64().unwrap();
    (number("cells"), number("fits"))
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

fn explained(world: &mut World, app: &str) -> Vec<Value> {
    world.out.clear();
    let explain = ExplainRequest {
        v: shared::VERSION,
        app: app.into(),
        cells: false,
    };
    world.input(AuctioneerInput::Explain {
        explain,
        reply: KEY,
    });
    let answer = world.reply(KEY).unwrap();
    let auctions = answer["auctions"].as_array().unwrap();
    auctions.iter().map(|a| a["decisions"][0].clone()).collect()
}

#[test]
fn explain_has_the_cells_answers() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r", "web", 100, 1);
    // it has less room than advertised, and refuses
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

    // no answer in time, and then one
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
    let ask = |world: &mut World, app: &str| {
        world.out.clear();
        let explain = ExplainRequest {
            v: shared::VERSION,
            app: app.into(),
            cells: false,
        };
        world.input(AuctioneerInput::Explain {
            explain,
            reply: KEY,
        });
        world.reply(KEY).unwrap()
    };
    let answer = ask(&mut world, "web");
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
    assert!(
        ask(&mut world, "none")["auctions"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn judged_again_with_every_stage_and_every_cell_by_name() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    world.ask_one("r", "web", 600, 3);
    world.deliver_all();
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
    let answer = world.reply(KEY).unwrap();
    let now = answer["now"].as_array().unwrap();
    assert_eq!(now.len(), 3);
    // two run by now, and nowhere is room for more
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
fn the_pool_in_pages_that_fit() {
    let mut world = World::with("dea", 4_096);
    for n in 10..60 {
        let name = format!("c{n}");
        world
            .cells
            .insert(name.clone(), TestCell::new(&name, 1_000));
        world.advertise(&name);
    }
    world.ask_one("r", "web", 100, 1);
    let mut page = Page::default();
    let mut names = Vec::new();
    let mut debits = 0;
    loop {
        world.out.clear();
        world.input(AuctioneerInput::Pool {
            page: page.clone(),
            reply: KEY,
        });
        let answer = world.reply(KEY).unwrap();
        assert_eq!(answer["total"], 50);
        for cell in answer["cells"].as_array().unwrap() {
            names.push(cell["cell"]["cell"].as_str().unwrap().to_owned());
            debits += cell["debits"].as_u64().unwrap();
            assert_eq!(cell["left_ms"], 14_700);
        }
        match answer["next"].as_u64() {
            Some(next) => page.offset = usize::try_from(next).unwrap(),
            None => break,
        }
    }
    let mut sorted = names.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!((names.len(), sorted), (50, names));
    assert_eq!(debits, 1);
}

fn queued(world: &mut World, app: Option<&str>, limit: Option<usize>) -> QueuedAnswer {
    world.out.clear();
    world.input(AuctioneerInput::Queued {
        queued: QueuedRequest {
            v: shared::VERSION,
            app: app.map(str::to_owned),
            limit,
        },
        reply: KEY,
    });
    serde_json::from_value(world.reply(KEY).unwrap()).unwrap()
}

fn waiting(world: &mut World, id: &str, app: &str, instances: u32) {
    let mut request = request(id, app, 600, instances);
    request.queue_timeout = Some(Span(Duration::from_secs(60)));
    world.ask(vec![request]);
    world.deliver_all();
}

#[test]
fn queued_work_is_listed_with_reason_and_time() {
    let mut world = World::with_cells("dea", &["c1"]);
    assert_eq!(queued(&mut world, None, None).count, 0);
    waiting(&mut world, "r1", "web", 4);
    world.pass(2_000);
    let answer = queued(&mut world, Some("web"), None);
    assert_eq!(answer.auctioneer, "a1");
    assert_eq!((answer.count, answer.more), (3, false));
    let [group] = answer.queued.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!(group.request, "r1");
    assert_eq!((group.app.as_str(), group.indices.as_str()), ("web", "1-3"));
    assert_eq!(group.kind, placement::Kind::Lrp);
    assert_eq!(group.reason, "insufficient resources: memory");
    assert_eq!(group.tally[0].needs, Some(600.0));
    assert_eq!((group.waited_ms, group.left_ms), (2_000, 58_000));
    assert_eq!(queued(&mut world, Some("other"), None).count, 0);
    world.pass(60_000);
    assert_eq!(queued(&mut world, None, None).count, 0);
}

#[test]
fn work_that_waits_for_its_first_auction_is_listed() {
    let mut world = World::with_cells("diego", &["c1", "c2"]);
    world.ask(vec![request("r1", "web", 10, 2)]);
    let answer = queued(&mut world, None, None);
    assert_eq!(answer.queued[0].reason, "waits for the next auction");
    assert_eq!(answer.queued[0].left_ms, crate::DEFAULT_DEADLINE_MS);
}

#[test]
fn a_long_list_of_what_waits_is_cut() {
    let mut world = World::with_cells("dea", &["c1"]);
    for (n, app) in ["b", "a", "c"].into_iter().enumerate() {
        waiting(&mut world, &format!("r{n}"), app, 2);
    }
    let answer = queued(&mut world, None, Some(2));
    let apps: Vec<&str> = answer.queued.iter().map(|g| g.app.as_str()).collect();
    assert_eq!((apps, answer.more), (vec!["a", "b"], true));
    assert_eq!(answer.count, 5);
    let answer = queued(&mut world, None, Some(3));
    assert_eq!((answer.queued.len(), answer.more), (3, false));
    world.machine.set_max_payload(900);
    let answer = queued(&mut world, None, None);
    assert!(answer.more && answer.queued.len() < 3, "{answer:?}");
    assert_eq!(answer.count, 5);
    assert!(shared::wire::to_bytes(&answer).len() <= 900);
}

/// The pool from `offset` on, `limit` at a time: how many cells, and where the next page begins.
fn page(world: &mut World, offset: usize, limit: Option<usize>) -> (usize, Option<u64>) {
    world.out.clear();
    let page = Page {
        offset,
        limit,
        ..Page::default()
    };
    world.input(AuctioneerInput::Pool { page, reply: KEY });
    let answer = world.reply(KEY).unwrap();
    let cells = answer["cells"].as_array().unwrap().len();
    (cells, answer["next"].as_u64())
}

#[test]
fn a_page_of_the_pool_has_as_many_cells_as_were_asked_for_and_500_at_most() {
    let names: Vec<String> = (0..503).map(|n| format!("c{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::with_cells("dea", &names);
    for (offset, limit, cells, next) in [
        (0, None, 500, Some(500)),
        (500, None, 3, None),
        (3, None, 500, None),
        (0, Some(501), 500, Some(500)),
        (0, Some(2), 2, Some(2)),
        (501, Some(2), 2, None),
        (502, Some(2), 1, None),
        (503, Some(2), 0, None),
        (usize::MAX, None, 0, None),
        (0, Some(0), 1, Some(1)),
    ] {
        let found = page(&mut world, offset, limit);
        assert_eq!(found, (cells, next), "{offset} {limit:?}");
    }
    // a page is never empty: who asks for the next one would ask for ever
    world.machine.set_max_payload(100);
    assert_eq!(page(&mut world, 7, None), (1, Some(8)));
}

#[test]
fn a_cell_in_the_pool_says_how_old_its_word_is_and_how_long_it_counts() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.pass(2_000);
    world.input(AuctioneerInput::Pool {
        page: Page::default(),
        reply: KEY,
    });
    let cell = &world.reply(KEY).unwrap()["cells"][0];
    assert_eq!(
        (&cell["age_ms"], &cell["left_ms"]),
        (&2_000.into(), &12_700.into())
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
        // decided again, an instance may take a few bytes more or less
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
    // so many are decided, only their answer does not fit into a message
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
    // a reboot that is past does not count
    for (day, last_wins) in [(1, true), (40, false)] {
        let mut world = World::with_reboots(day);
        let answer = place(&mut world, 10, |_| {});
        let winner = &answer["decisions"][0]["cell"];
        assert_eq!(winner == "c9", last_wins, "on day {day}: {winner}");
    }
}

/// 512 bytes are left for what is beside the list; each of its items has a comma.
#[test]
fn a_page_of_the_pool_fills_the_message() {
    let mut world = World::with_cells("dea", &["c1", "c2", "c3"]);
    world.input(AuctioneerInput::Pool {
        page: Page::default(),
        reply: KEY,
    });
    let answer = world.reply(KEY).unwrap();
    let cells = answer["cells"].as_array().unwrap();
    let bytes: usize = cells.iter().map(|cell| cell.to_string().len() + 1).sum();
    for (max_bytes, cells, next) in [(512 + bytes, 3, None), (511 + bytes, 2, Some(2))] {
        world.machine.set_max_payload(max_bytes);
        assert_eq!(page(&mut world, 0, None), (cells, next));
    }
}

/// 512 bytes and the auctioneer's name are beside the list; each of its items has a comma.
#[test]
fn a_list_of_what_waits_fills_the_message() {
    let mut world = World::with_cells("dea", &["c1"]);
    for id in ["r1", "r2", "r3"] {
        waiting(&mut world, id, "web", 2);
    }
    let all = queued(&mut world, None, None).queued;
    assert_eq!(all.len(), 3);
    let groups = all
        .iter()
        .map(|group| shared::wire::to_bytes(group).len() + 1);
    let bytes = 512 + "a1".len() + groups.sum::<usize>();
    for (max_bytes, groups, more) in [
        (bytes + 1, 3, false),
        (bytes, 3, false),
        (bytes - 1, 2, true),
    ] {
        world.machine.set_max_payload(max_bytes);
        let answer = queued(&mut world, None, None);
        assert_eq!((answer.queued.len(), answer.more), (groups, more));
    }
}
