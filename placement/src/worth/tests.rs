use super::*;

/// Returns the worth of devices of 1,000 for work that asks for one device each: shares and amounts.
fn worth(work: &[(f64, i64)]) -> Arc<Worth> {
    let need = |(share, amount): &(f64, i64)| (*share, DeviceNeed::new(1, Some(*amount)));
    let needs: Vec<_> = work.iter().map(need).collect();
    of("gpu", 1_000, &needs, &Worths::default())
}

fn of(name: &str, each: i64, needs: &[(f64, DeviceNeed)], worths: &Worths) -> Arc<Worth> {
    worths.of(name, each, needs.iter().map(|(share, need)| (*share, need)))
}

#[track_caller]
fn assert_worth(worth: &Worth, expected: &[(i64, f64)]) {
    for (free, expected) in expected {
        let worth = worth.of_free(*free);
        assert!((worth - expected).abs() < 1e-6, "{free}: {worth}");
    }
}

#[test]
fn instances_of_which_several_fill_a_device_share_its_worth() {
    let thirds = worth(&[(1.0, 330)]);
    let third = 1_000.0 / 3.0;
    let expected = [(0, 0.0), (329, 0.0), (330, third), (659, third)];
    assert_worth(&thirds, &expected);
    assert_worth(&thirds, &[(660, 2.0 * third), (1_000, 1_000.0)]);
}

/// Two of 470 fit a device, and 320 fits beside one; but then it is better to pair 320 with 650, so it costs only
/// what this leaves.
#[test]
fn what_is_needed_for_a_better_pair_is_worth_more() {
    let worth = worth(&[(3.0, 470), (2.0, 650), (1.0, 320)]);
    // more 650 than 320: those cost a whole device, and 320 beside them nothing
    assert_worth(&worth, &[(650, 1_000.0), (350, 0.0), (530, 500.0)]);
    let other = self::worth(&[(3.0, 470), (1.0, 650), (2.0, 320)]);
    // fewer: three of 320 fill a device, so that one costs a third, and 650 the rest
    let third = 1_000.0 / 3.0;
    assert_worth(&other, &[(350, third), (530, 500.0), (650, 2.0 * third)]);
    assert_worth(&other, &[(1_000, 1_000.0)]);
}

#[test]
fn what_no_size_fits_is_worth_nothing_and_without_sizes_everything_is() {
    let whole = [
        (1.0, DeviceNeed::new(8, None)),
        (1.0, DeviceNeed::new(1, Some(2_000))),
    ];
    let whole = of("gpu", 1_000, &whole, &Worths::default());
    assert_worth(&whole, &[(999, 0.0), (1_000, 1_000.0)]);
    assert_worth(&worth(&[]), &[(1_000, 0.0)]);
}

/// However the work is mixed, also if the steps do not suffice: no way to fill a device is worth more than the device,
/// and what is together is worth no less than its parts.
#[test]
fn no_device_is_worth_more_than_itself() {
    let mut random = 7_u64;
    let mut next = |below: u32| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        u32::try_from(random >> 33).unwrap_or(0) % below
    };
    for _ in 0..20 {
        let amounts: BTreeMap<i64, f64> = (0..=next(100))
            .map(|_| (i64::from(1 + next(1_000)), f64::from(1 + next(50))))
            .collect();
        let work: Vec<(f64, i64)> = amounts
            .iter()
            .map(|(amount, share)| (*share, *amount))
            .collect();
        let worth = worth(&work);
        let mut last = 0.0;
        for free in 0..=1_000 {
            let now = worth.of_free(free);
            assert!(now >= last && now <= 1_000.0 + 1e-6, "{free}: {now}");
            last = now;
            for beside in 0..=1_000 - free {
                let together = worth.of_free(free + beside);
                assert!(together + 1e-6 >= now + worth.of_free(beside));
            }
        }
        assert!((last - 1_000.0).abs() < 1e-6);
    }
}

#[test]
fn the_worth_is_kept_by_name_and_by_what_a_device_has() {
    let worths = Worths::default();
    let needs = [(1.0, DeviceNeed::new(1, Some(500)))];
    let first = of("gpu", 1_000, &needs, &worths);
    let copy = of("gpu", 1_000, &needs, &worths.clone());
    assert!(Arc::ptr_eq(&first, &copy));
    let half = of("gpu", 500, &needs, &worths);
    assert_worth(&half, &[(250, 0.0), (500, 500.0)]);
    let other = of("card", 1_000, &[], &worths);
    assert_worth(&other, &[(1_000, 0.0)]);
    for each in (0..).take(2 * MAX_KINDS) {
        of("gpu", each, &needs, &worths);
    }
    assert!(worths.0.lock().unwrap().len() <= MAX_KINDS);
}
