use super::*;
use crate::random::hash_text;

/// Placements are replayed from their seed, also by other versions. Calculated independently of this code.
#[test]
fn the_same_seed_draws_the_same_lots_for_ever() {
    let lots = Lots::new(7, (2 << 64) | 3);
    let lot = lots.of_cell(hash_text("cell-1"));
    let point = lots.of_job(hash_text("web"), 5);
    assert_eq!(lot, Lot(0xaf15_07cf_fdb3_9d2a));
    assert_eq!(point, Point(0x4526_c7e3_0000_0000));
    assert_eq!(noise(lot, point), 0x2627_fef7_6d18_1343);
    assert_eq!([1, 3, 1000].map(|n| draw(point, n)), [0, 0, 342]);
    assert_eq!(draw(point, 0), 0);
    let distance = |lot, point| distance(Lot(lot), Point(point));
    assert_eq!((distance(5, 3), distance(3, 5)), (2, u64::MAX - 1));
}

fn shuffled(point: u64, n: usize) -> Vec<u32> {
    let shuffle = Shuffle::new(Point(point), n);
    (0..).take(n).map(|of| shuffle.place(of)).collect()
}

#[test]
fn a_shuffle_gives_each_place_once() {
    for n in [
        1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 100, 255, 256, 257, 1_000, 5_000,
    ] {
        for point in 0..20 {
            let mut places = shuffled(mix(point), n);
            places.sort_unstable();
            assert!((0..).take(n).eq(places), "{n} at {point}");
        }
    }
}

#[test]
fn the_ranks_of_a_shuffle_go_from_one_to_zero() {
    assert!((Shuffle::new(Point(1), 1).share(0) - 1.0).abs() < 1e-12);
    let shuffle = Shuffle::new(Point(1), 5);
    let mut ranks: Vec<f64> = (0..5).map(|of| shuffle.share(of)).collect();
    ranks.sort_by(f64::total_cmp);
    assert_eq!(ranks, [0.0, 0.25, 0.5, 0.75, 1.0]);
}

/// Random ranks are replayed from their seed too. Calculated independently of this code.
#[test]
fn the_same_point_shuffles_alike_for_ever() {
    let point = 0x4526_c7e3_0000_0000;
    assert_eq!(shuffled(point, 2), [1, 0]);
    assert_eq!(shuffled(point, 5), [3, 0, 1, 4, 2]);
    assert_eq!(shuffled(point, 1_000)[..5], [352, 290, 316, 928, 170]);
    assert_eq!(
        shuffled(point, 70_000)[..5],
        [57544, 20596, 40357, 7096, 30117]
    );
}

/// Each thing is as often in each place, and each pair as often in one order as in the other: within five standard
/// deviations of the mean.
#[test]
fn shuffles_prefer_nobody() {
    const DRAWS: u32 = 20_000;
    for n in [2, 3, 5, 8, 16, 17, 40] {
        let mut there = vec![vec![0_u32; n]; n];
        let mut before = vec![vec![0_u32; n]; n];
        for point in 0..DRAWS {
            let places = shuffled(mix(u64::from(point)), n);
            for (a, place) in places.iter().enumerate() {
                there[a][*place as usize] += 1;
                for (b, other) in places.iter().enumerate() {
                    before[a][b] += u32::from(place < other);
                }
            }
        }
        let draws = f64::from(DRAWS);
        let is_near = |count: u32, p: f64| {
            (f64::from(count) - draws * p).abs() <= 5.0 * (draws * p * (1.0 - p)).sqrt()
        };
        for a in 0..n {
            for b in 0..n {
                let count = there[a][b];
                assert!(
                    is_near(count, 1.0 / n as f64),
                    "{a} of {n} was {count} times in place {b}"
                );
                let count = before[a][b];
                assert!(
                    a == b || is_near(count, 0.5),
                    "{a} of {n} was {count} times before {b}"
                );
            }
        }
    }
}
