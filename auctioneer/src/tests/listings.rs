//! Lists of cells and of waiting work, in answers that fit into a message.

use std::time::Duration;

use placement::Span;
use shared::wire::{Page, QueuedAnswer, QueuedRequest};

use super::world::{TestCell, World, request};
use crate::{AuctioneerInput, ReplyKey};

const KEY: ReplyKey = ReplyKey::new(1);

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

/// Returns how many cells the page has that starts at `offset` with this limit, and where the next page begins.
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
    // a page is never empty, or a client that asks for the next one would never finish
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

/// 512 bytes are reserved for what is not part of the list; each item has a comma.
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

/// 512 bytes and the auctioneer's name are reserved besides the list; each item has a comma.
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
