//! An auctioneer compares what all cells run, and ends instances that two of them have.

use shared::{
    AuctionId, InstanceId,
    wire::{InstanceState, Instances, InstancesAnswer, RunningIds},
};

use super::{
    claims::{first, kills, prefixes, questions, restarted, tell, with_claim},
    contested::runs,
    lookups::found,
    world::World,
};
use crate::{AuctioneerInput, AuctioneerOutput, LookupId};

/// Returns how often all cells have been asked what they run since the last call.
fn comparisons(world: &mut World) -> usize {
    let before = world.out.len();
    world.out.retain(|output| match output {
        AuctioneerOutput::AskInstances { lookup, body } if *lookup == LookupId::COMPARISON => {
            let asked: Instances = serde_json::from_slice(body).unwrap();
            assert!(asked.ids_only && asked.id_prefixes.is_empty() && asked.app.is_none());
            assert_eq!(asked.v, shared::VERSION);
            false
        }
        _ => true,
    });
    before - world.out.len()
}

/// Has the cell list these ids.
fn lists(world: &mut World, cell: &str, ids: &[InstanceId]) {
    let answer = InstancesAnswer {
        ids: ids.iter().collect(),
        ..found(cell, &[])
    };
    tell(world, LookupId::COMPARISON, answer);
}

/// Returns the cell's answer when it is asked for the instance.
fn copy(cell: &str, claim: u128) -> InstancesAnswer {
    let mut answer = with_claim(found(cell, &[first()]), claim);
    answer.instances[0].request = Some("r".parse().unwrap());
    answer
}

/// Creates an auctioneer that was restarted while the same instance ran on c1 and c2.
fn with_two_copies() -> World {
    let mut world = restarted(&["c1", "c2"]);
    runs(&mut world, "c1", "web");
    runs(&mut world, "c2", "web");
    world.input(AuctioneerInput::Missed);
    assert_eq!(comparisons(&mut world), 1);
    lists(&mut world, "c1", &[first()]);
    assert!(questions(&mut world).is_empty(), "one cell has it");
    lists(&mut world, "c2", &[first()]);
    world
}

#[test]
fn of_what_two_cells_list_the_copy_with_the_lowest_claim_stays() {
    let mut world = with_two_copies();
    let asked = questions(&mut world);
    let [(lookup, question)] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(question.id_prefixes, prefixes(&[first()]));
    assert_eq!(question.app, None);
    tell(&mut world, *lookup, copy("c1", 2));
    tell(&mut world, *lookup, copy("c2", 1));
    let kills = kills(&mut world);
    let [(cell, stop)] = &kills[..] else {
        panic!("{kills:?}");
    };
    assert_eq!((cell.as_str(), &stop.instances[..]), ("c1", &[first()][..]));
    assert_eq!(stop.claim.map(AuctionId::as_u128), Some(2));
    let told = &world.events("asked")[0];
    assert_eq!(told.auction.map(AuctionId::as_u128), Some(1));
    assert_eq!(world.machine.counters().duplicates_ended, 1);
}

/// It was in both lists because it ended on one cell and was started on the other in the meantime, or because two ids
/// have the same prefix.
#[test]
fn what_runs_once_after_all_is_left_alone() {
    let like_it = InstanceId::from_u128(first().as_u128() ^ 1);
    assert_eq!(RunningIds::prefix(&like_it), RunningIds::prefix(&first()));
    let mut ended = copy("c1", 1);
    ended.instances[0].state = InstanceState::Exited;
    for other in [ended, found("c1", &[]), found("c1", &[like_it])] {
        let mut world = with_two_copies();
        let (lookup, _) = questions(&mut world).remove(0);
        tell(&mut world, lookup, other);
        tell(&mut world, lookup, copy("c2", 2));
        assert!(kills(&mut world).is_empty());
    }
}

/// Lets half a second pass; both cells list the instance, and those given report their copy. Returns the cells that
/// must end it.
fn asked_again(world: &mut World, answering: &[(&str, u128)]) -> Vec<String> {
    world.pass(500);
    for cell in ["c1", "c2"] {
        world.advertise(cell);
    }
    if comparisons(world) > 0 {
        lists(world, "c1", &[first()]);
        lists(world, "c2", &[first()]);
    }
    for (lookup, _) in questions(world) {
        for (cell, claim) in answering {
            tell(world, lookup, copy(cell, *claim));
        }
    }
    kills(world).into_iter().map(|(cell, _)| cell).collect()
}

#[test]
fn while_two_cells_list_an_instance_it_is_asked_for() {
    let mut world = with_two_copies();
    // c2 does not report its claim, not even after the eight seconds
    for _ in 0..20 {
        assert_eq!(asked_again(&mut world, &[("c1", 2)]), [""; 0]);
    }
    let both = [("c1", 2), ("c2", 1)];
    // the pauses double
    let killed: Vec<String> = (0..60)
        .flat_map(|_| asked_again(&mut world, &both))
        .collect();
    assert!(killed.len() > 1, "the first stop can be lost");
    assert!(killed.iter().all(|cell| cell == "c1"), "{killed:?}");
}

#[test]
fn a_cell_that_runs_something_is_compared_when_it_joins_and_an_empty_one_is_not() {
    let mut world = restarted(&["c1"]);
    assert_eq!(comparisons(&mut world), 0);
    runs(&mut world, "c1", "web");
    assert_eq!(comparisons(&mut world), 0, "it has not joined now");
    let mut cell = super::world::TestCell::new("c2", 1_000);
    cell.cell.counts.apps.insert("web".to_owned(), 1);
    world.cells.insert("c2".to_owned(), cell);
    world.advertise("c2");
    assert_eq!(comparisons(&mut world), 1);
    // for tasks, too
    let mut world = restarted(&[]);
    let mut cell = super::world::TestCell::new("c2", 1_000);
    cell.cell.counts.tasks = 1;
    world.cells.insert("c2".to_owned(), cell);
    world.advertise("c2");
    assert_eq!(comparisons(&mut world), 1);
}

/// Another auctioneer's start may be on its way to the cell.
#[test]
fn an_empty_cell_that_joins_soon_after_something_was_looked_for_and_started_is_compared() {
    for (after_ms, compared) in [(7_500, true), (8_500, false)] {
        let mut world = restarted(&["c1"]);
        world.ask_one("r", "web", 100, 1);
        let lookup = questions(&mut world)[0].0;
        tell(&mut world, lookup, found("c1", &[]));
        world.deliver_all();
        world.pass(after_ms);
        assert_eq!(comparisons(&mut world), 0);
        world.add("c2");
        assert_eq!(comparisons(&mut world) > 0, compared, "{after_ms}");
    }
}

/// Lets half a second pass; the cells advertise, and those given answer their questions.
fn half_a_second(world: &mut World, answering: &[&str]) -> usize {
    world.pass(500);
    for cell in ["c1", "c2"] {
        world.advertise(cell);
    }
    let asked = comparisons(world);
    for cell in answering {
        if asked > 0 {
            lists(world, cell, &[]);
        }
    }
    asked
}

#[test]
fn cells_are_compared_for_eight_seconds_and_then_until_all_have_answered() {
    let mut world = restarted(&["c1", "c2"]);
    world.input(AuctioneerInput::Missed);
    let mut count = comparisons(&mut world);
    lists(&mut world, "c1", &[]);
    lists(&mut world, "c2", &[]);
    for _ in 0..30 {
        count += half_a_second(&mut world, &["c1", "c2"]);
    }
    assert_eq!(count, 8, "at 0 s, 1 s, and so on until 7 s");
    assert_eq!(world.machine.counters().comparisons, 8);
    world.input(AuctioneerInput::Missed);
    let asked = |world: &mut World, halves| -> Vec<usize> {
        let each = (0..halves).map(|n| (n, half_a_second(world, &["c1"])));
        each.filter(|(_, asked)| *asked > 0)
            .map(|(n, _)| n)
            .collect()
    };
    assert_eq!(comparisons(&mut world), 1);
    asked(&mut world, 16);
    // pauses of 2 s, 4 s, 8 s and so on
    assert_eq!(asked(&mut world, 60), [3, 11, 27, 59]);
    lists(&mut world, "c2", &[]);
    lists(&mut world, "c1", &[]);
    assert_eq!(asked(&mut world, 400), [0; 0]);
    lists(&mut world, "c2", &[]);
    assert_eq!(world.machine.counters().stray_answers, 1);
    let count: usize = (0..400)
        .map(|_| half_a_second(&mut world, &["c1", "c2"]))
        .sum();
    assert_eq!(count, 1, "every five minutes");
}

/// Otherwise all cells would be asked again for each of them.
#[test]
fn cells_that_join_soon_after_one_another_are_compared_together() {
    let mut world = restarted(&[]);
    for n in 0..50 {
        let name = format!("c{n}");
        let mut cell = super::world::TestCell::new(&name, 1_000);
        cell.cell.counts.tasks = 1;
        world.cells.insert(name.clone(), cell);
        world.now_ms += 10;
        world.advertise(&name);
    }
    let count = comparisons(&mut world);
    assert!((5..=6).contains(&count), "{count}");
}

#[test]
fn where_ids_are_trusted_nothing_is_compared() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.input(AuctioneerInput::Missed);
    world.pass(1_000);
    assert_eq!(comparisons(&mut world), 0);
}

/// The cell was asked before it was first heard, and answers while it advertises.
#[test]
fn a_copy_on_a_cell_that_has_not_joined_yet_is_found() {
    let mut world = restarted(&["c1"]);
    world.input(AuctioneerInput::Missed);
    lists(&mut world, "c9", &[first()]);
    lists(&mut world, "c1", &[first()]);
    assert_eq!(questions(&mut world).len(), 1);
}

#[test]
fn a_cell_that_answers_twice_is_not_two_cells() {
    let mut world = restarted(&["c1"]);
    world.input(AuctioneerInput::Missed);
    lists(&mut world, "c1", &[first()]);
    lists(&mut world, "c1", &[first()]);
    assert!(questions(&mut world).is_empty());
}

#[test]
fn the_machine_asks_to_be_run_when_the_next_comparison_is_due() {
    let mut world = restarted(&["c1"]);
    world.input(AuctioneerInput::Missed);
    assert_eq!(world.machine.next_work_ms(), world.now_ms + 1_000);
}

/// A question was sent less than 100 ms ago, so that what is found next waits for its turn.
#[test]
fn the_machine_asks_to_be_run_when_it_may_ask_for_what_two_cells_list() {
    let mut world = with_two_copies();
    let asked_ms = world.now_ms;
    assert_eq!(questions(&mut world).len(), 1);
    let other = InstanceId::from_u128(0xabcd << 100);
    world.now_ms += 10;
    lists(&mut world, "c1", &[other]);
    lists(&mut world, "c2", &[other]);
    assert!(questions(&mut world).is_empty());
    assert_eq!(world.machine.next_work_ms(), asked_ms + 100);
    world.silence(90);
    assert_eq!(questions(&mut world)[0].1.id_prefixes, prefixes(&[other]));
}

#[test]
fn a_cell_that_is_lost_before_it_has_answered_is_not_waited_for() {
    for lost in [true, false] {
        let mut world = restarted(&["c1", "c2"]);
        world.input(AuctioneerInput::Missed);
        comparisons(&mut world);
        for _ in 0..15 {
            half_a_second(&mut world, &["c1"]);
        }
        if lost {
            world.cell("c2").ttl_ms = 0;
            world.advertise("c2");
            world.cells.remove("c2");
        }
        world.pass(500);
        assert_eq!(comparisons(&mut world), usize::from(!lost), "lost: {lost}");
    }
}

/// Each of them answers each time.
#[test]
fn many_cells_are_compared_less_often() {
    let mut world = restarted(&[]);
    for n in 0..6_000 {
        world.add(&format!("c{n}"));
    }
    world.input(AuctioneerInput::Missed);
    assert_eq!(comparisons(&mut world), 1);
    world.silence(1_199);
    assert_eq!(comparisons(&mut world), 0);
    world.silence(1);
    assert_eq!(comparisons(&mut world), 1);
}
