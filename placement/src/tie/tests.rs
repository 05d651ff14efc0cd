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
