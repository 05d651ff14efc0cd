use super::*;

/// The first numbers of splitmix64 from the seeds 0 and 1234567, and FNV-1a's own examples.
#[test]
fn the_published_values_of_both_functions() {
    assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    let next = 1_234_567_u64.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let first = [mix(1_234_567), mix(next)];
    assert_eq!(
        first,
        [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
    );
    for (text, hash) in [
        ("", 0xcbf2_9ce4_8422_2325),
        ("a", 0xaf63_dc4c_8601_ec8c),
        ("foobar", 0x8594_4171_f739_67e8),
    ] {
        assert_eq!(hash_text(text), hash, "{text:?}");
    }
}

/// A placement is replayed from its seed, by another version as well. Worked out apart from this code.
#[test]
fn the_same_seed_draws_the_same_lots_for_ever() {
    let lots = Lots::new(7, (2 << 64) | 3);
    let lot = lots.of_cell(hash_text("cell-1"));
    let point = lots.of_job(hash_text("web"), 5);
    assert_eq!(lot, 0xaf15_07cf_fdb3_9d2a);
    assert_eq!(point, 0x4526_c7e3_0000_0000);
    assert_eq!(noise(lot, point), 0x2627_fef7_6d18_1343);
    assert_eq!([1, 3, 1000].map(|n| draw(point, n)), [0, 0, 342]);
    assert_eq!(draw(point, 0), 0);
    assert_eq!((distance(5, 3), distance(3, 5)), (2, u64::MAX - 1));
}
