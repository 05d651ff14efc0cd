//! The cell never promises more than it has, whatever happens in whatever order.

use placement::{DeviceSet, DeviceShare, DeviceShares};
use proptest::prelude::*;

use super::*;

/// What can happen to a ledger; there are few ids, so that events affect each other.
#[derive(Clone, Debug)]
enum Happens {
    Start(Vec<(u128, u32)>, u64),
    Stop(u32, Vec<u128>),
    Runs(u128, u32),
    Ends(u128, u32, i32),
    Drain(u64),
    Time(u64),
}

fn happens() -> impl Strategy<Value = Happens> {
    let id = || 0..24_u128;
    prop_oneof![
        6 => (prop::collection::vec((id(), 0..4_u32), 1..6), 0..8_000_u64)
            .prop_map(|(work, left)| Happens::Start(work, left)),
        2 => (0..3_u32, prop::collection::vec(id(), 0..3)).prop_map(|(a, ids)| Happens::Stop(a, ids)),
        4 => (id(), 0..3_u32).prop_map(|(id, attempt)| Happens::Runs(id, attempt)),
        4 => (id(), 0..5_u32, 0..2).prop_map(|(id, attempt, code)| Happens::Ends(id, attempt, code)),
        1 => (0..3_000_u64).prop_map(Happens::Drain),
        3 => (0..3_000_u64).prop_map(Happens::Time),
    ]
}

/// Returns the devices of an id: some get a share of one card, some all of two.
fn devices_of(id: u128) -> DeviceShares {
    let (amount, numbers) = match id % 6 {
        0 | 3 => (40, vec![0]),
        1 => (100, vec![0, 1]),
        4 => (30, vec![1]),
        _ => return DeviceShares::new(),
    };
    [("card".to_owned(), DeviceShare { amount, numbers })].into()
}

/// Returns the work of an id, which is always the same; apps, sizes and kinds differ between ids.
fn work_of(id: u128, believed: u32) -> Work {
    let app = ["a", "b", "c"][usize::try_from(id % 3).unwrap()];
    Work {
        kind: if id.is_multiple_of(4) {
            Kind::Task
        } else {
            Kind::Lrp
        },
        memory_mb: 50 * i64::try_from(id % 7).unwrap(),
        cpu_millis: i64::try_from(id % 2).unwrap(),
        devices: devices_of(id),
        owner: id.is_multiple_of(5).then(|| "anna".into()),
        request: None,
        version: None,
        traceparent: None,
        tags: [("role".to_owned(), app.to_owned())].into(),
        believed: (believed < 3).then_some(believed),
        ..work(id, app)
    }
}

/// Returns the cell as it must be, recounted from what is reserved.
fn recount(ledger: &Ledger) -> Cell {
    let mut cell = Cell::new("a", ledger.cell.total.clone());
    for entry in ledger.instances.values() {
        cell.debit(&request_of(&entry.work), Some(&entry.work.devices));
    }
    let starting = |entry: &&Entry| entry.state == InstanceState::Starting;
    cell.counts.starting =
        u32::try_from(ledger.instances.values().filter(starting).count()).unwrap();
    cell.evacuating = ledger.cell.evacuating;
    cell
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// In any order of events, the cell never promises more than there is, its counts match what is reserved, seq grows
    /// with every change, no id runs twice, and repeats change nothing.
    #[test]
    fn holds_under_any_interleaving(all in prop::collection::vec(happens(), 1..120)) {
        let total = Resources { cpu_millis: 3, ..Resources::new(600, 200, 8) };
        let devices = [("card".to_owned(), DeviceSet::new(2, 100))].into();
        let total = Resources { devices, ..total };
        let mut ledger = Ledger::new(Cell::new("a", total), LIVES, "");
        let mut now_ms = 0;
        let mut running: BTreeMap<InstanceId, u32> = BTreeMap::new();
        for event in all {
            let (seq, cell) = (ledger.seq(), ledger.cell().clone());
            match event {
                Happens::Start(some, left_ms) => {
                    let expires_ms = CellTime::from_ms((now_ms + left_ms).saturating_sub(1_000));
                    let work = some.iter().map(|(id, b)| work_of(*id, *b)).collect();
                    let start = CellStart { expires_ms, ..start(work) };
                    let first = ledger.start(now_ms, &start);
                    prop_assert_eq!(first.seq, ledger.seq());
                    let between = ledger.cell().clone();
                    let again = ledger.start(now_ms, &start);
                    for id in &first.accepted {
                        prop_assert!(again.accepted.contains(id), "accepted, then not");
                    }
                    // what was refused may be accepted now (its `believed` count may have become true), but repeats of
                    // accepted work reserve nothing more
                    if first.refused.is_empty() {
                        prop_assert_eq!(ledger.cell(), &between);
                    }
                }
                Happens::Stop(app, ids) => {
                    let app = ["a", "b", "c"][app as usize];
                    ledger.stop(now_ms, &stop(app, &ids));
                }
                Happens::Runs(id, attempt) => ledger.report(now_ms, runs(id, attempt)),
                Happens::Ends(id, attempt, code) => {
                    let id_of = InstanceId::from_u128(id);
                    if running.get(&id_of) == Some(&attempt) {
                        running.remove(&id_of);
                    }
                    ledger.report(now_ms, ends(id, attempt, code));
                }
                Happens::Drain(after_ms) if now_ms > 20_000 => {
                    ledger.drain(now_ms, after_ms, false);
                }
                Happens::Drain(_) => {}
                Happens::Time(ms) => {
                    now_ms += ms;
                    ledger.tick(now_ms);
                }
            }
            for action in ledger.take_actions() {
                if let Action::Execute(ExecutorOrder::Launch { work, attempt }) = action {
                    let before = running.insert(work.instance, attempt);
                    prop_assert_eq!(before, None, "started while it runs");
                }
            }
            let now = ledger.cell();
            prop_assert!(now.available.memory_mb >= 0 && now.available.cpu_millis >= 0);
            prop_assert!(now.available.disk_mb >= Some(0) && now.available.containers >= Some(0));
            let cards = &now.available.devices["card"];
            prop_assert!(cards.free.iter().all(|free| *free >= 0), "a device is overcommitted");
            prop_assert_eq!(now, &recount(&ledger));
            prop_assert!(ledger.seq() >= seq);
            if *now != cell {
                prop_assert!(ledger.seq() > seq, "changed without saying so");
            }
            prop_assert!(ledger.recent(now_ms).len() <= RECENT);
        }
    }
}
