use super::*;
use crate::Resources;

fn cells(names: &[(&str, &str)]) -> Pool {
    let mut pool = Pool::default();
    for (name, zone) in names {
        let mut cell = Cell::new(*name, Resources::new(1_000, 100_000, 1_000));
        cell.attributes_mut().zone = (*zone).into();
        pool.put(cell);
    }
    pool
}

/// Starts this many instances of an app on each cell, with the next indices each time.
fn run(pool: &mut Pool, movable: &mut Vec<Movable>, app: &str, memory_mb: i64, on: &[(&str, u32)]) {
    let request = Arc::new(Request::new(app, memory_mb, 1));
    let mut index = 0;
    for (name, count) in on {
        for _ in 0..*count {
            let mut cell = pool.get(name).unwrap().clone();
            cell.debit(&request, None);
            cell.counts.starting = 0;
            pool.put(cell);
            movable.push(Movable {
                request: Arc::clone(&request),
                index,
                cell: (*name).into(),
                usage: None,
            });
            index += 1;
        }
    }
}

fn plan(pool: &Pool, movable: &[Movable], most: usize) -> Rebalance {
    let policy = Policy::preset("diego").unwrap();
    let context = PlanContext::default();
    pool.rebalance(
        movable.to_vec(),
        LoadBy::Reserved,
        (&policy, &context),
        most,
    )
}

const FOUR: [(&str, &str); 4] = [("a1", "z1"), ("a2", "z1"), ("b1", "z2"), ("b2", "z2")];

#[test]
fn what_is_even_is_left_alone() {
    let (mut pool, mut movable) = (cells(&FOUR), Vec::new());
    run(
        &mut pool,
        &mut movable,
        "web",
        100,
        &[("a1", 1), ("b1", 1), ("b2", 1)],
    );
    let planned = plan(&pool, &movable, 100);
    assert_eq!(planned.moves, []);
    assert_eq!(planned.before, planned.after);
    assert_eq!(planned.before.uneven, 0);
}

#[test]
fn when_a_zone_is_back_half_of_each_app_returns_and_no_more() {
    let (mut pool, mut movable) = (cells(&FOUR), Vec::new());
    run(&mut pool, &mut movable, "web", 50, &[("a1", 3), ("a2", 3)]);
    run(&mut pool, &mut movable, "db", 50, &[("a1", 1), ("a2", 1)]);
    let planned = plan(&pool, &movable, 100);
    assert_eq!((planned.before.uneven, planned.after.uneven), (4, 0));
    assert_eq!(planned.moves.len(), 4, "{:?}", planned.moves);
    let apps: Vec<&str> = planned.moves.iter().map(|m| m.app.as_str()).collect();
    assert_eq!(&apps[..2], ["web", "web"], "the most uneven first");
    for one in &planned.moves {
        assert!(
            one.from.starts_with('a') && one.to.starts_with('b'),
            "{one:?}"
        );
        assert_eq!(one.why, MoveReason::Zone);
    }
    let moved: BTreeSet<_> = planned.moves.iter().map(|m| (&m.app, m.index)).collect();
    assert_eq!(moved.len(), 4, "none twice");
}

#[test]
fn the_first_moves_are_the_same_however_many_are_allowed() {
    let (mut pool, mut movable) = (cells(&FOUR), Vec::new());
    run(&mut pool, &mut movable, "web", 50, &[("a1", 5), ("a2", 3)]);
    let all = plan(&pool, &movable, 100).moves;
    assert!(all.len() > 2);
    for most in 0..=all.len() {
        assert_eq!(plan(&pool, &movable, most).moves, all[..most]);
    }
}

#[test]
fn a_full_cell_is_relieved_within_its_zone() {
    let (mut pool, mut movable) = (cells(&FOUR), Vec::new());
    run(
        &mut pool,
        &mut movable,
        "web",
        200,
        &[("a1", 4), ("b1", 2), ("b2", 2)],
    );
    let planned = plan(&pool, &movable, 100);
    assert_eq!(planned.before.uneven, 0);
    assert_eq!(planned.moves.len(), 2, "{:?}", planned.moves);
    for one in &planned.moves {
        assert_eq!(
            (&*one.from, &*one.to, one.why),
            ("a1", "a2", MoveReason::Load)
        );
    }
    assert!(planned.before.fullest > 79.0 && planned.after.fullest < 41.0);
}

#[test]
fn without_room_nothing_is_moved() {
    let (mut pool, mut movable) = (cells(&FOUR), Vec::new());
    run(&mut pool, &mut movable, "web", 300, &[("a1", 3), ("a2", 3)]);
    let other = &mut Vec::new();
    run(&mut pool, other, "other", 800, &[("b1", 1), ("b2", 1)]);
    let planned = plan(&pool, &movable, 100);
    assert_eq!(planned.moves, []);
    assert_eq!((planned.before.uneven, planned.after.uneven), (3, 3));
    // 100 on each cell of zone 1, 200 on each of zone 2
    assert_eq!(planned.before.stranded_mb, 600);
}

#[test]
fn a_zone_that_takes_no_work_is_no_zone() {
    let (mut pool, mut movable) = (cells(&FOUR), Vec::new());
    run(&mut pool, &mut movable, "web", 100, &[("a1", 2), ("a2", 2)]);
    for name in ["b1", "b2"] {
        let mut cell = pool.get(name).unwrap().clone();
        cell.evacuating = true;
        pool.put(cell);
    }
    let planned = plan(&pool, &movable, 100);
    assert_eq!(planned.moves, []);
    assert_eq!(planned.before.uneven, 0);
}

#[test]
fn a_second_plan_after_the_first_has_nothing_to_do() {
    let zones = [("a1", "z1"), ("b1", "z2"), ("c1", "z3"), ("c2", "z3")];
    let (mut pool, mut movable) = (cells(&zones), Vec::new());
    run(&mut pool, &mut movable, "web", 40, &[("a1", 9), ("b1", 2)]);
    run(&mut pool, &mut movable, "db", 30, &[("c1", 7), ("a1", 1)]);
    let first = plan(&pool, &movable, 100);
    assert!(!first.moves.is_empty() && first.after.uneven == 0);
    for one in &first.moves {
        let moved = movable
            .iter_mut()
            .find(|m| m.request.app == one.app && m.index == one.index)
            .unwrap();
        moved.cell = Arc::clone(&one.to);
        let request = Arc::clone(&moved.request);
        let mut from = pool.get(&one.from).unwrap().clone();
        from.credit(&request, None);
        pool.put(from);
        let mut to = pool.get(&one.to).unwrap().clone();
        to.debit(&request, None);
        to.counts.starting = 0;
        pool.put(to);
    }
    assert_eq!(plan(&pool, &movable, 100).moves, []);
}

/// The policy packs: it would start every instance on the fullest cell, which is its own.
#[test]
fn a_policy_that_prefers_the_own_cell_does_not_hold_an_instance_there() {
    let (mut pool, mut movable) = (cells(&[("a1", "z1"), ("b1", "z2")]), Vec::new());
    run(&mut pool, &mut movable, "web", 50, &[("a1", 4)]);
    let policy = Policy::parse(
        "name = \"packs\"\n[[stage]]\nfilter = \"memory\"\n[[stage]]\nscore = \"memory\"\nmode = \"raw\"\n[[stage]]\npick = \"lowest\"",
    )
    .unwrap();
    let context = PlanContext::default();
    let planned = pool.rebalance(movable, LoadBy::Reserved, (&policy, &context), 100);
    assert_eq!(planned.moves.len(), 2, "{planned:?}");
    assert_eq!(planned.after.uneven, 0);
}
