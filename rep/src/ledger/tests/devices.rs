//! Which devices a cell provides, and when it refuses them.

use placement::{DeviceSet, DeviceShare};

use super::*;

fn with_gpus() -> Ledger {
    let mut total = Resources::new(1_000, 1_000, 10);
    total.devices.insert("gpu".into(), DeviceSet::new(2, 1000));
    Ledger::new(Cell::new("a", total), LIVES, "127.0.0.1")
}

fn on(id: u128, amount: i64, numbers: &[u32]) -> Work {
    let share = DeviceShare {
        amount,
        numbers: numbers.to_vec(),
    };
    Work {
        devices: [("gpu".to_owned(), share)].into(),
        ..work(id, "a")
    }
}

#[test]
fn a_device_is_given_until_it_is_full_and_is_free_again_when_its_instance_ends() {
    let mut ledger = with_gpus();
    let refused = "insufficient resources: gpu";
    let works = vec![
        on(1, 600, &[0]),
        on(2, 500, &[0]),
        on(3, 400, &[0, 1]),
        on(4, 1, &[0]),
        on(5, 600, &[1]),
        on(6, 1, &[2]),
        on(7, 1, &[]),
    ];
    let expected = ["+", refused, "+", refused, "+", refused, refused];
    assert_eq!(answers(&mut ledger, 0, &start(works)), expected);
    let free = |ledger: &Ledger| ledger.cell().available.devices["gpu"].free.clone();
    assert_eq!(free(&ledger), [0, 0]);
    let shown = ledger.find_instances(0, &Instances::default());
    assert_eq!(shown[1].devices["gpu"].numbers, [0, 1]);
    // a repeat keeps the devices that it has, whichever it names now
    let repeat = start(vec![on(1, 600, &[1])]);
    assert_eq!(answers(&mut ledger, 0, &repeat), ["+"]);
    assert_eq!(free(&ledger), [0, 0]);
    for (id, left) in [(1, vec![600, 0]), (3, vec![1000, 400])] {
        ledger.report(0, runs(id, 0));
        ledger.stop(0, &stop("a", &[id]));
        ledger.report(0, ends(id, 0, 0));
        assert_eq!(free(&ledger), left, "{id}");
    }
    ledger.report(0, runs(5, 0));
    ledger.stop(0, &stop("a", &[5]));
    ledger.report(0, ends(5, 0, 0));
    let cell = ledger.cell();
    assert_eq!(cell.available, cell.total);
}

#[test]
fn a_refusal_says_what_was_needed_of_a_device_and_what_it_had() {
    let mut ledger = with_gpus();
    ledger.start(0, &start(vec![on(1, 700, &[0])]));
    let answer = ledger.start(0, &start(vec![on(2, 400, &[0, 1])]));
    let refusal = &answer.refused[0];
    assert_eq!((refusal.needs, refusal.has), (Some(400), Some(300)));
}
