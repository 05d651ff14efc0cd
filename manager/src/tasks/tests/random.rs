//! Random faults: nothing runs twice, and every accepted request has an outcome.

use placement::random::SplitMix64;

use super::world::World;
use crate::TaskCommand;

/// Runs one history. Managers, messages and writes fail in both kinds; cells die in one, auctioneers in the other, as
/// nobody would know anything if all three were lost at once.
fn life(seed: u64, cells_die: bool) {
    let mut random = SplitMix64::new(seed);
    let mut world = World::new(3, 3);
    let mut accepted = Vec::new();
    for n in 0..40 {
        let id = format!("t{n}");
        if random.draw().is_multiple_of(2) {
            world.replies.clear();
            world.submit(&id, "");
            world.pass(1_000);
            if world.replies.iter().any(Result::is_ok) {
                accepted.push(id.clone());
            }
        }
        if random.draw().is_multiple_of(8) {
            world.command(&id, TaskCommand::Cancel);
        }
        world.fault(&mut random, cells_die);
        if random.draw().is_multiple_of(3) {
            world.end_all(i32::from(random.draw().is_multiple_of(4)));
        }
        world.pass(random.draw() % 4_000);
    }
    (world.acts, world.deaf) = (true, false);
    (world.fates, world.failing) = Default::default();
    world.tasks.gained(world.now);
    for _ in 0..60 {
        world.pass(5_000);
        world.lists(None);
        world.end_all(0);
    }
    for id in &accepted {
        let state = world.state(id);
        assert!(
            state.is_over(),
            "seed {seed}: {id} is {state}: {:?}",
            world.status(id)
        );
    }
    for (id, runs) in &world.runs {
        assert_eq!(*runs, 1, "seed {seed}: {id} ran {runs} times");
    }
}

#[test]
fn nothing_runs_twice_and_everything_has_an_outcome() {
    for seed in 0..300 {
        life(seed, seed % 2 == 0);
    }
}
