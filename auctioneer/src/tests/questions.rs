use std::sync::Arc;

use placement::Explain as HowMuch;
use serde_json::Value;
use shared::wire::{AddCells, Explain, Page};

use super::world::{TestCell, World, request};
use crate::{AskedRequest, Input, Place};

fn place(world: &mut World, memory_mb: i64, change: impl FnOnce(&mut Place)) -> Value {
    let mut place = Place {
        requests: vec![AskedRequest {
            request: Arc::new(request("r", "web", memory_mb, 2)),
            warnings: vec!["x: no such field; ignored".into()],
        }],
        without: Vec::new(),
        add_cells: Vec::new(),
        explain: HowMuch::Finalists,
    };
    change(&mut place);
    world.out.clear();
    world.input(Input::Place {
        place: Box::new(place),
        reply: 1,
    });
    world.reply(1).unwrap()
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
fn what_if_there_were_fewer_or_more_cells() {
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
fn the_last_decisions_for_an_app() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r", "web", 600, 2);
    world.deliver_all();
    let ask = |world: &mut World, app: &str| {
        world.out.clear();
        let explain = Explain {
            v: 1,
            app: app.into(),
            cells: false,
        };
        world.input(Input::Explain { explain, reply: 1 });
        world.reply(1).unwrap()
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
    let explain = Explain {
        v: 1,
        app: "web".into(),
        cells: true,
    };
    world.input(Input::Explain { explain, reply: 1 });
    let answer = world.reply(1).unwrap();
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
        world.input(Input::Pool {
            page: page.clone(),
            reply: 1,
        });
        let answer = world.reply(1).unwrap();
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
