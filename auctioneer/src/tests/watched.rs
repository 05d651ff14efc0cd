//! For how long, how often, and in which combinations the cells are asked again.

use placement::Kind;
use shared::{
    InstanceId,
    wire::{InstanceState, Outcome},
};

use super::{
    claims::{first, kills, outcome, prefixes, questions, restarted, tell, with_claim},
    lookups::{announced, found},
    world::{TestCell, World, request},
};
use crate::{AuctioneerInput, LookupId};

/// A start of `r` on c1, while another auctioneer has begun the same request with a higher claim.
fn contested() -> World {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    world.ask_one("r", "web", 100, 1);
    world.input(announced(u128::MAX, &["r"]));
    world
}

/// Lets half a second pass, in which the cells advertise. Returns the questions.
fn half_a_second(world: &mut World) -> Vec<LookupId> {
    world.pass(500);
    world.advertise("c1");
    world.advertise("c2");
    let asked = questions(world);
    asked.into_iter().map(|(lookup, _)| lookup).collect()
}

#[test]
fn what_two_have_begun_is_looked_for_twice_a_second_for_eight_seconds() {
    let mut world = contested();
    let asked: Vec<LookupId> = questions(&mut world).into_iter().map(|q| q.0).collect();
    let mut asked = asked;
    let mut count = 0;
    for _ in 0..30 {
        count += asked.len();
        for lookup in asked {
            tell(&mut world, lookup, found("c1", &[]));
            tell(&mut world, lookup, found("c2", &[]));
        }
        asked = half_a_second(&mut world);
    }
    // at 0 s, 0.5 s, and so on until 7.5 s
    assert_eq!(count, 16);
}

#[test]
fn the_machine_asks_to_be_run_when_what_two_have_begun_is_to_be_looked_for() {
    let mut world = contested();
    world.deliver_all();
    for (lookup, _) in questions(&mut world) {
        tell(&mut world, lookup, found("c1", &[]));
        tell(&mut world, lookup, found("c2", &[]));
    }
    assert_eq!(world.machine.next_work_ms(), world.now_ms + 500);
}

#[test]
fn a_cell_that_does_not_answer_is_asked_until_it_does() {
    let mut world = contested();
    for _ in 0..20 {
        for (lookup, _) in questions(&mut world) {
            tell(&mut world, lookup, found("c1", &[]));
        }
        let asked = half_a_second(&mut world);
        assert_eq!(asked.len(), 1, "at {}", world.now_ms);
        tell(&mut world, asked[0], found("c1", &[]));
    }
    let mut count = 0;
    for _ in 0..20 {
        for lookup in half_a_second(&mut world) {
            count += 1;
            tell(&mut world, lookup, found("c1", &[]));
            tell(&mut world, lookup, found("c2", &[]));
        }
    }
    assert!((1..=3).contains(&count), "then it soon ends: {count}");
}

#[test]
fn who_gave_way_asks_until_the_others_instance_is_found() {
    let mut world = World::with_cells("diego", &["c1"]);
    let key = world.ask_one("r", "web", 100, 1);
    world.input(announced(0, &["r"]));
    assert_eq!(world.machine.counters().gave_way, 1);
    // requests that end in the meantime do not stop the search
    world.ask_one("s", "db", 5_000, 1);
    world.bid_all();
    let answer = |world: &mut World, ids: &[InstanceId]| {
        for (lookup, _) in questions(world) {
            tell(world, lookup, found("c1", ids));
        }
        world.reply(key).is_some()
    };
    assert!(!answer(&mut world, &[first()]), "it is too soon");
    world.pass(500);
    assert!(!answer(&mut world, &[]), "the other one may still start it");
    assert!(questions(&mut world).is_empty(), "it is not asked at once");
    world.pass(500);
    assert!(answer(&mut world, &[first()]));
    let reply = world.start_reply(key);
    assert_eq!(reply.instances[0].cell.as_deref(), Some("c1"));
}

/// It was begun before: a start of it may still be on its way to a cell that has already answered.
#[test]
fn what_somebody_had_begun_is_looked_for_after_its_start_too() {
    for (begun, all_answer, watched) in [
        (true, true, true),
        (false, false, true),
        (false, true, false),
    ] {
        let mut world = restarted(&["c1", "c2"]);
        if begun {
            world.input(announced(9, &["r"]));
        }
        world.ask_one("r", "web", 100, 1);
        let (lookup, _) = questions(&mut world).remove(0);
        tell(&mut world, lookup, found("c1", &[]));
        if all_answer {
            tell(&mut world, lookup, found("c2", &[]));
        } else {
            world.silence(500);
        }
        assert_eq!(world.deliver_all(), 1, "no cell has it");
        assert_eq!(questions(&mut world).len(), 0, "it was looked for just now");
        let again = half_a_second(&mut world).len();
        assert_eq!(again > 0, watched, "{begun} {all_answer}");
    }
}

#[test]
fn a_question_is_for_some_thousand_instances_and_the_next_one_for_the_others() {
    for (second, expected) in [(96, [4_096, 0]), (97, [4_000, 97])] {
        let mut world = restarted(&["c1"]);
        world.ask(vec![
            request("r1", "web", 0, 4_000),
            request("r2", "db", 0, second),
        ]);
        for ids in expected {
            let asked = questions(&mut world);
            // two ids may have the same prefix
            let all = asked.iter().map(|(_, asked)| asked.id_prefixes.len());
            let all: usize = all.sum();
            assert!(ids - all <= 3, "{ids}: {all}");
            for (lookup, _) in &asked {
                tell(&mut world, *lookup, found("c1", &[]));
            }
        }
        assert!(!world.sent().is_empty());
        assert_eq!(world.machine.counters().stray_answers, 0);
    }
}

#[test]
fn after_a_loss_who_waits_for_answers_asks_again() {
    let mut world = restarted(&["c1"]);
    world.ask_one("r", "web", 100, 1);
    let (lost, _) = questions(&mut world).remove(0);
    world.input(AuctioneerInput::Missed);
    let (lookup, _) = questions(&mut world).remove(0);
    tell(&mut world, lost, found("c1", &[]));
    assert_eq!(world.machine.counters().stray_answers, 1);
    assert!(world.sent().is_empty());
    tell(&mut world, lookup, found("c1", &[]));
    assert_eq!(world.sent().len(), 1);
}

/// The location of an instance that a request names can only be missing, not wrong.
#[test]
fn after_a_loss_the_answers_to_other_questions_count() {
    let mut world = World::with_cells("dapi", &["c1"]);
    let there = InstanceId::from_u128(0xabcd);
    let mut wants = request("r", "web", 100, 1);
    wants.near = vec![format!("instance:{there}")];
    world.ask(vec![wants]);
    let (lookup, _) = questions(&mut world).remove(0);
    world.input(AuctioneerInput::Missed);
    tell(&mut world, lookup, found("c1", &[there]));
    assert_eq!(world.machine.counters().stray_answers, 0);
}

#[test]
fn what_ends_meanwhile_takes_no_question_of_others_with_it() {
    let mut world = restarted(&["c1"]);
    world.ask_one("s", "db", 100, 1);
    let (lookup, _) = questions(&mut world).remove(0);
    tell(&mut world, lookup, found("c1", &[]));
    let sent = world.sent().remove(0);
    // both in one turn: r is to be looked up when s ends
    let now_ms = world.now_ms;
    let start = super::world::asked(vec![request("r", "web", 100, 1)], None);
    world.machine.take(now_ms, start);
    let answer = world.cell("c1").answer(&sent.start);
    world.answered(&sent, answer);
    let (lookup, _) = questions(&mut world).remove(0);
    // and t ends while r is being looked up
    world.input(AuctioneerInput::Outcome {
        id: "t".parse().unwrap(),
        body: "{}".into(),
    });
    let mut ended = request("u", "tiny", 1, 1);
    ended.deadline = Some(placement::Span(std::time::Duration::from_millis(1)));
    world.ask(vec![ended]);
    world.silence(1);
    tell(&mut world, lookup, found("c1", &[]));
    assert_eq!(world.machine.counters().stray_answers, 0);
    let sent = world.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].start.work[0].app, "web");
}

#[test]
fn a_copy_that_has_ended_is_not_the_one_that_stays() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    world.ask_one("r", "web", 100, 1);
    let sent = world.sent().remove(0);
    world.deliver(&sent);
    questions(&mut world);
    outcome(&mut world, "c2", 1);
    world.silence(1);
    let (lookup, _) = questions(&mut world).remove(0);
    let mut ended = with_claim(found("c1", &[first()]), 1);
    ended.instances[0].state = InstanceState::Crashed;
    tell(&mut world, lookup, ended);
    tell(&mut world, lookup, with_claim(found("c2", &[first()]), 7));
    assert!(kills(&mut world).is_empty(), "one copy runs");
}

#[test]
fn a_silent_cell_with_tasks_may_run_a_task_and_one_without_does_not() {
    for (tasks, outcome) in [(1, Outcome::Unknown), (0, Outcome::Placed)] {
        let mut world = restarted(&["c1"]);
        let mut silent = TestCell::new("c2", 1_000);
        silent.cell.counts.tasks = tasks;
        world.cells.insert("c2".to_owned(), silent);
        world.advertise("c2");
        let mut task = request("r", "job", 100, 1);
        task.kind = Kind::Task;
        let key = world.ask(vec![task]);
        let (lookup, _) = questions(&mut world).remove(0);
        tell(&mut world, lookup, found("c1", &[]));
        world.silence(500);
        world.deliver_all();
        world.pass(2_000);
        assert_eq!(world.start_reply(key).outcome, outcome, "{tasks} tasks");
    }
}

#[test]
fn an_answer_names_three_silent_cells_and_counts_the_others() {
    for (cells, names) in [
        (vec!["c1", "c2", "c3"], "c1, c2, c3 did not"),
        (
            vec!["c1", "c2", "c3", "c4"],
            "c1, c2, c3 and 1 others did not",
        ),
    ] {
        let mut world = World::with_cells("dea", &cells);
        world.input(announced(9, &["r"]));
        let key = world.ask_one("r", "web", 100, 1);
        world.pass(2_500);
        let reply = world.start_reply(key);
        let reason = reply.instances[0].reason.as_deref().unwrap();
        assert!(reason.starts_with(names), "{reason}");
    }
}

/// Only what was sent can be running, and only an id chosen by its sender can be known elsewhere.
#[test]
fn what_was_never_sent_is_not_looked_for_after_its_end() {
    for (memory_mb, looked_for) in [(100, true), (5_000, false)] {
        let mut world = World::with_cells("dea", &["c1"]);
        world.ask_one("r", "web", memory_mb, 1);
        world.deliver_all();
        world.input(announced(5, &["r"]));
        world.silence(1);
        let asked = questions(&mut world);
        assert_eq!(!asked.is_empty(), looked_for, "{memory_mb} MiB");
        if let [(_, asked)] = &asked[..] {
            assert_eq!(asked.id_prefixes, prefixes(&[first()]));
        }
    }
}

/// Each question may end with announcements, which its sender hears as well.
#[test]
fn what_is_watched_is_not_asked_for_sooner_because_it_is_announced_again() {
    let mut world = contested();
    assert_eq!(questions(&mut world).len(), 1);
    for claim in [u128::MAX, u128::MAX - 1] {
        world.input(announced(claim, &["r"]));
        assert_eq!(questions(&mut world).len(), 0);
    }
    assert_eq!(half_a_second(&mut world).len(), 1);
}
