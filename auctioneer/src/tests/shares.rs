//! How much of the queue one app, owner or request may take.

use std::time::Duration;

use placement::{Request, Span};

use super::world::{World, request};
use crate::MAX_WAITING;

/// An owner's request that waits for room.
fn waits(id: &str, app: &str, owner: Option<&str>, instances: u32) -> Request {
    let mut request = request(id, app, 100, instances);
    request.owner = owner.map(str::to_owned);
    request.queue_timeout = Some(Span(Duration::from_secs(60)));
    request
}

#[test]
fn no_app_and_no_owner_fills_the_waiting_room_for_all() {
    let mut world = World::new("dea");
    let half = u32::try_from(MAX_WAITING / 2).unwrap();
    let ask = |world: &mut World, request| {
        let key = world.ask(vec![request]);
        let reply = world.reply(key);
        reply.and_then(|reply| reply["error"]["message"].as_str().map(str::to_owned))
    };
    assert_eq!(
        ask(&mut world, waits("r1", "web", Some("acme"), half)),
        None
    );
    let app = "the app web has 100000 instances in open requests; 1 more would exceed its share of 100000";
    assert_eq!(
        ask(&mut world, waits("r2", "web", None, 1)).as_deref(),
        Some(app)
    );
    assert_eq!(
        ask(&mut world, waits("r3", "api", Some("acme"), half / 2)),
        None
    );
    let owner = "the owner acme has 150000 instances in open requests; 1 more would exceed its share of 150000";
    assert_eq!(
        ask(&mut world, waits("r4", "db", Some("acme"), 1)).as_deref(),
        Some(owner)
    );
    // there is room for others
    assert_eq!(ask(&mut world, waits("r5", "db", Some("other"), 1)), None);
    assert_eq!(ask(&mut world, waits("r6", "db", None, 1)), None);
    assert_eq!(world.machine.counters().overloaded, 2);
    // requests that have ended no longer count
    world.pass(61_000);
    assert_eq!(world.machine.waiting(), 0);
    assert_eq!(
        ask(&mut world, waits("r7", "web", Some("acme"), half)),
        None
    );
}

#[test]
fn nothing_waits_longer_than_the_operator_allows() {
    let mut world = World::with_cells("dea", &["c1"]);
    let mut ask = |id: &str, seconds| {
        let mut request = waits(id, "web", None, 1);
        request.queue_timeout = Some(Span(Duration::from_secs(seconds)));
        let key = world.ask(vec![request]);
        world.deliver_all();
        world.reply(key).unwrap()
    };
    assert_eq!(ask("r1", 3_600)["outcome"], "placed");
    let refused = ask("r2", 3_601);
    assert_eq!(refused["error"]["field"], "queue_timeout");
    let expected = "queue_timeout: 1h 1s is not allowed; expected at most 1h, which --max-queue-timeout of the auctioneer sets";
    assert_eq!(refused["error"]["message"], expected);
}
