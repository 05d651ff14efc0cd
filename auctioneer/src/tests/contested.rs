//! Requests that several auctioneers have begun, and what is uncertain about them.

use std::time::Duration;

use bytes::Bytes;
use placement::Span;
use shared::wire::Outcome;

use super::{
    claims::{first, kills, outcome, questions, restarted, tell, with_claim},
    lookups::{announced, found},
    world::{World, request},
};
use crate::{AuctioneerInput, REMEMBER_MS};

/// Makes the cell advertise one instance of the app.
pub(super) fn runs(world: &mut World, cell: &str, app: &str) {
    let cell_there = world.cell(cell);
    cell_there.cell.counts.apps.insert(app.to_owned(), 1);
    cell_there.seq += 1;
    world.advertise(cell);
}

/// What was begun before this auctioneer started, and has since been forgotten by all, is known only to the cells.
#[test]
fn an_unknown_id_is_looked_for_where_its_app_runs_however_long_we_have_listened() {
    let mut world = restarted(&["c1", "c2"]);
    world.pass(REMEMBER_MS);
    runs(&mut world, "c1", "web");
    world.advertise("c2");
    questions(&mut world);
    let key = world.ask_one("r", "web", 100, 1);
    assert!(world.sent().is_empty());
    let asked = questions(&mut world);
    let [(lookup, _)] = &asked[..] else {
        panic!("{asked:?}");
    };
    tell(&mut world, *lookup, found("c1", &[first()]));
    tell(&mut world, *lookup, found("c2", &[]));
    let reply = world.start_reply(key);
    assert_eq!(reply.instances[0].cell.as_deref(), Some("c1"));
    // this app is not found anywhere
    world.ask_one("s", "db", 100, 1);
    assert!(questions(&mut world).is_empty());
    assert_eq!(world.sent().len(), 1);
}

/// The other auctioneer's copy ended with its cell before we looked and started ours.
#[test]
fn of_two_copies_the_one_that_is_found_is_the_answer_even_if_the_others_claim_is_lower() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    let key = world.ask_one("r", "web", 100, 1);
    let sent = world.sent();
    outcome(&mut world, "c9", 0);
    world.deliver(&sent[0]);
    assert_eq!(world.reply(key), None, "the cells are asked first");
    world.silence(500);
    let lookup = questions(&mut world).last().unwrap().0;
    for cell in ["c1", "c2"] {
        let held: &[_] = if cell == sent[0].cell {
            &[first()]
        } else {
            &[]
        };
        tell(&mut world, lookup, with_claim(found(cell, held), 7));
    }
    assert!(kills(&mut world).is_empty());
    let reply = world.start_reply(key);
    assert_eq!(reply.instances[0].cell.as_deref(), Some(&*sent[0].cell));
}

/// Neither copy exists any more: the answer of the lower claim stands.
#[test]
fn of_two_copies_that_are_gone_the_answer_of_the_lower_claim_stands() {
    let mut world = World::with_cells("dea", &["c1"]);
    let key = world.ask_one("r", "web", 100, 1);
    let sent = world.sent();
    outcome(&mut world, "c9", 0);
    world.deliver(&sent[0]);
    world.silence(500);
    let lookup = questions(&mut world).last().unwrap().0;
    tell(&mut world, lookup, found("c1", &[]));
    let reply = world.start_reply(key);
    assert_eq!(reply.instances[0].cell.as_deref(), Some("c9"));
    assert!(world.machine.is_idle());
}

/// The copy that we sent keeps running while no cell can be heard: the answer says that it may run.
#[test]
fn a_request_that_gave_way_ends_with_its_deadline() {
    let mut world = World::with_cells("dea", &["c1"]);
    let key = world.ask_one("r", "web", 100, 1);
    let sent = world.sent();
    world.input(announced(0, &["r"]));
    world.deliver(&sent[0]);
    for _ in 0..10 {
        world.pass(500);
    }
    assert_eq!(world.start_reply(key).outcome, Outcome::Unknown);
    assert!(world.machine.is_idle());
}

/// An auctioneer with the lower claim says so, because its announcement may have been long ago.
#[test]
fn a_later_claim_is_answered_with_ours_when_that_is_lower() {
    for replied in [false, true] {
        let mut world = World::with_cells("dea", &["c1"]);
        let mut waits = request("r", "web", 5_000, 1);
        waits.queue_timeout = Some(Span(Duration::from_secs(60)));
        world.ask(vec![waits]);
        let claim = world.events("asked")[0].auction;
        if replied {
            world.pass(5_000);
            world.advertise("c1");
        }
        let before = (world.events("asked").len(), world.outcomes("r").len());
        world.input(announced(u128::MAX, &["r"]));
        let asked = world.events("asked");
        let outcomes = world.outcomes("r");
        if replied {
            assert_eq!((asked.len(), outcomes.len()), (before.0, before.1 + 1));
            assert_eq!(outcomes[before.1]["outcome"], "queued");
        } else {
            assert_eq!((asked.len(), outcomes.len()), (before.0 + 1, before.1));
            assert_eq!(asked[before.0].auction, claim);
            assert_eq!(asked[before.0].request, Some("r".parse().unwrap()));
        }
        assert_eq!(world.machine.counters().gave_way, 0);
    }
}

/// Work that was queued when the other auctioneer answered may run by now.
#[test]
fn what_another_auctioneer_has_queued_is_looked_for() {
    let mut world = World::with_cells("dea", &["c1"]);
    let body = r#"{"v":1,"id":"r","app":"web","outcome":"queued","instances":[{"index":0,"outcome":"queued"}]}"#;
    world.input(AuctioneerInput::Outcome {
        id: "r".parse().unwrap(),
        body: Bytes::from(body),
    });
    let key = world.ask_one("r", "web", 100, 1);
    let asked = questions(&mut world);
    tell(&mut world, asked[0].0, found("c1", &[first()]));
    assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
}

/// Another auctioneer begins a request whose outcome is known here: what runs may differ from that outcome.
#[test]
fn the_outcome_of_a_request_that_is_begun_again_is_not_certain() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.input(announced(5, &["r"]));
    outcome(&mut world, "c1", 5);
    world.ask_one("r", "web", 100, 1);
    assert!(questions(&mut world).is_empty(), "it is known");
    world.input(announced(5, &["r"]));
    world.ask_one("r", "web", 100, 1);
    assert!(
        questions(&mut world).is_empty(),
        "only its announcement is late"
    );
    world.input(announced(6, &["r"]));
    world.ask_one("r", "web", 100, 1);
    assert_eq!(questions(&mut world).len(), 1);
}

/// The instance that it shares was queued after a cell had refused it.
#[test]
fn what_shares_a_queued_instance_is_answered_as_queued() {
    let mut world = World::with_cells("dea", &["c1"]);
    let requests = ["r", "s"].map(|id| {
        let mut waits = request(id, "web", 100, 1);
        waits.queue_timeout = Some(Span(Duration::from_secs(60)));
        waits
    });
    let key = world.ask(requests.into());
    let sent = world.sent();
    let cell = world.cell("c1");
    cell.cell.available.memory_mb = 50;
    cell.seq += 1;
    world.deliver(&sent[0]);
    for _ in 0..10 {
        world.advertise("c1");
        world.pass(500);
    }
    let reply = world.reply(key).unwrap();
    for of in 0..2 {
        assert_eq!(reply["requests"][of]["outcome"], "queued", "{reply}");
    }
}

/// An instance that two requests have in common is started once, and both are told where it is.
#[test]
fn what_shares_an_instance_of_another_auctioneers_request_is_told_of_it() {
    let mut world = World::with_cells("diego", &["c1"]);
    let key = world.ask(vec![
        request("r", "web", 100, 1),
        request("s", "web", 100, 1),
    ]);
    world.bid_all();
    // r is sent, and s shares its instance
    let sent = world.sent();
    assert_eq!(sent.iter().map(|s| s.start.work.len()).sum::<usize>(), 1);
    outcome(&mut world, "c9", 0);
    world.silence(1_000);
    let lookup = questions(&mut world).last().unwrap().0;
    tell(&mut world, lookup, found("c1", &[]));
    let reply = world.reply(key).unwrap();
    let shared = &reply["requests"][1]["instances"][0];
    assert_eq!(
        (&shared["outcome"], &shared["cell"]),
        (&"placed".into(), &"c9".into())
    );
    assert_eq!(shared["duplicate_of"], "r");
}
