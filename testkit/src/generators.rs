//! Valid cells and requests for property tests. Names come from small sets, so that apps, zones and stacks coincide;
//! everything shrinks towards one plain, empty cell and one small request.

use std::collections::BTreeMap;

use placement::{Cell, DeviceNeed, DeviceSet, Kind, Request, Resources};
use proptest::{collection, option, prelude::*, sample};

const APPS: [&str; 6] = ["web", "worker", "cron", "db", "a", "b"];
const STACKS: [&str; 2] = ["lucid64", "cflinuxfs4"];
const TAGS: [&str; 3] = ["gpu", "isolated", "edge"];
const DRIVERS: [&str; 2] = ["nfs", "smb"];
const ZONES: [&str; 3] = ["z1", "z2", "z3"];

fn some_of(words: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> {
    sample::subsequence(words, 0..=words.len())
        .prop_map(|chosen| chosen.into_iter().map(String::from).collect())
}

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    sample::select(words).prop_map(String::from)
}

/// Generates realistic sizes: a fifth of the cells have no disk or container limit.
fn total() -> impl Strategy<Value = Resources> {
    let extra = option::weighted(0.2, 1..8_i64);
    let cards = option::weighted(0.2, 1..=3_u32);
    (
        1..=65_536_i64,
        option::weighted(0.8, 1..=65_536_i64),
        option::weighted(0.8, 1..=250_i64),
        prop_oneof![3 => Just(0_i64), 1 => 1..=64_000_i64],
        (extra, cards),
    )
        .prop_map(
            |(memory_mb, disk_mb, containers, cpu_millis, (gpu, cards))| Resources {
                memory_mb,
                disk_mb,
                containers,
                cpu_millis,
                extra: gpu.map(|n| ("gpu".to_owned(), n)).into_iter().collect(),
                devices: cards
                    .map(|n| ("card".to_owned(), DeviceSet::new(n, 1000)))
                    .into_iter()
                    .collect(),
            },
        )
}

/// Returns the set with this much free on its first device.
fn with_free(total: &DeviceSet, first: i64) -> DeviceSet {
    let mut set = total.clone();
    if first != total.each {
        set.free = vec![total.each; total.count as usize];
        set.free[0] = first;
    }
    set
}

/// Generates what is available of a total: any share of each, down to an overcommitment of 10 %.
fn available(total: &Resources) -> impl Strategy<Value = Resources> + use<> {
    let total = total.clone();
    collection::vec(-10..=100_i64, 6).prop_map(move |percent| {
        let share = |amount: i64, i: usize| amount * percent[i] / 100;
        Resources {
            memory_mb: share(total.memory_mb, 0),
            disk_mb: total.disk_mb.map(|all| share(all, 1)),
            containers: total.containers.map(|all| share(all, 2)),
            cpu_millis: share(total.cpu_millis, 3),
            extra: total
                .extra
                .iter()
                .map(|(k, all)| (k.clone(), share(*all, 4)))
                .collect(),
            devices: total
                .devices
                .iter()
                .map(|(k, all)| (k.clone(), with_free(all, share(all.each, 5))))
                .collect(),
        }
    })
}

/// Generates a valid cell with this name.
pub fn cell_named(name: impl Into<String>) -> impl Strategy<Value = Cell> {
    let name = name.into();
    let room = total().prop_flat_map(|total| {
        let left = available(&total);
        (Just(total), left)
    });
    let load = (
        0..20_u32,
        collection::btree_map(one_of(&APPS), 1..6_u32, 0..4),
        0..5_u32,
        prop::bool::weighted(0.1),
    );
    let labels = (
        one_of(&ZONES),
        some_of(&STACKS),
        some_of(&TAGS),
        some_of(&TAGS),
        some_of(&DRIVERS),
    );
    (room, load, labels).prop_map(move |((total, available), load, labels)| {
        let mut cell = Cell::new(name.clone(), total);
        cell.available = available;
        (
            cell.counts.starting,
            cell.counts.apps,
            cell.counts.tasks,
            cell.evacuating,
        ) = load;
        let attributes = cell.attributes_mut();
        (
            attributes.zone,
            attributes.stacks,
            attributes.placement_tags,
            attributes.optional_placement_tags,
            attributes.volume_drivers,
        ) = labels;
        cell
    })
}

/// Generates a valid cell named `cell-0`.
pub fn cell() -> impl Strategy<Value = Cell> {
    cell_named("cell-0")
}

/// Generates up to `most` valid cells, named `cell-0`, `cell-1` and so on.
pub fn cells(most: usize) -> impl Strategy<Value = Vec<Cell>> {
    collection::vec(cell(), 0..=most).prop_map(|mut cells| {
        for (i, cell) in cells.iter_mut().enumerate() {
            cell.cell = format!("cell-{i}");
        }
        cells
    })
}

/// Generates a valid request without an id and without a command.
pub fn request() -> impl Strategy<Value = Request> {
    let what = (
        one_of(&APPS),
        prop_oneof![4 => Just(Kind::Lrp), 1 => Just(Kind::Task)],
        1..=8_u32,
    );
    let size = (
        0..=8_192_i64,
        0..=8_192_i64,
        prop_oneof![3 => Just(0_i64), 1 => 1..=4_000_i64],
        option::weighted(0.1, 1..=2_i64),
        option::weighted(0.1, (1..=2_u32, option::of(1..=1000_i64))),
    );
    let needs = (
        option::weighted(0.3, one_of(&STACKS)),
        option::weighted(0.2, some_of(&TAGS)),
        option::weighted(0.1, some_of(&DRIVERS)),
    );
    let owner = option::weighted(0.2, one_of(&["alice", "bob"]));
    let label = option::weighted(0.2, one_of(&["red", "blue"]));
    let chosen = option::weighted(0.2, any::<sample::Index>());
    (what, size, needs, owner, label, chosen).prop_map(
        |(
            (app, kind, instances),
            (memory_mb, disk_mb, cpu_millis, gpu, cards),
            needs,
            owner,
            label,
            chosen,
        )| {
            let mut request = Request::new(app, memory_mb, disk_mb);
            (request.kind, request.instances, request.cpu_millis) = (kind, instances, cpu_millis);
            request.extra = gpu.map(|n| ("gpu".to_owned(), n)).into_iter().collect();
            request.devices = cards
                .map(|(count, amount)| ("card".to_owned(), DeviceNeed::new(count, amount)))
                .into_iter()
                .collect();
            let (stack, tags, drivers) = needs;
            request.stack = stack;
            request.placement_tags = tags.unwrap_or_default();
            request.volume_drivers = drivers.unwrap_or_default();
            request.owner = owner;
            request.tags = label
                .map(|l| ("colour".to_owned(), l))
                .into_iter()
                .collect::<BTreeMap<_, _>>();
            request.indices = chosen.map(|index| {
                let first = u32::try_from(index.index(instances as usize)).unwrap_or(0);
                (first..instances).collect()
            });
            request
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest! {
        #[test]
        fn every_cell_is_valid(cell in cell()) {
            prop_assert_eq!(cell.check(), Ok(()));
        }

        #[test]
        fn every_request_is_valid(request in request()) {
            prop_assert_eq!(request.check(), Ok(()));
        }

        #[test]
        fn names_differ(cells in cells(6)) {
            let names: std::collections::BTreeSet<_> = cells.iter().map(|c| &c.cell).collect();
            prop_assert_eq!(names.len(), cells.len());
        }
    }
}
