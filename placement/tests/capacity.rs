//! How many instances fit, and how many would fit with more cells.
#![allow(clippy::unwrap_used)] // a test may panic

use std::sync::Arc;

use placement::{Cell, PlanContext, Policy, Pool, Request, Resources, Verdict};

fn cell(name: &str, zone: &str, memory: i64, available: i64) -> Cell {
    let mut cell = Cell::new(name, Resources::new(memory, 100_000, 250));
    cell.attributes_mut().zone = zone.into();
    cell.available.memory_mb = available;
    cell
}

fn pool(cells: impl IntoIterator<Item = Cell>) -> Pool {
    let mut pool = Pool::default();
    for cell in cells {
        pool.put(cell);
    }
    pool
}

#[test]
fn capacity_by_zone() {
    let mut full = cell("c", "z2", 1000, 100);
    full.available.containers = Some(0);
    let pool = pool([
        cell("a", "z1", 1000, 1000),
        cell("b", "z1", 1000, 399),
        full,
    ]);
    for policy in Policy::PRESETS {
        let policy = Policy::preset(policy).unwrap();
        let request = Request::new("app", 100, 10);
        let capacity = pool.capacity(&request, &policy, &PlanContext::default());
        assert_eq!(capacity.fits, 10 + 3, "{}", policy.name());
        assert_eq!(capacity.zones["z1"].most_on_a_cell, 10);
        assert_eq!(capacity.zones["z2"].fits, 0);
        let excluding = Request {
            exclude_cells: vec!["a".into()],
            ..request
        };
        let rest = pool.capacity(&excluding, &policy, &PlanContext::default());
        assert_eq!(rest.fits, 3, "{}", policy.name());
        let large = pool.capacity(
            &Request::new("app", 5000, 10),
            &policy,
            &PlanContext::default(),
        );
        assert_eq!(
            large.reason.as_deref(),
            Some("insufficient resources: memory"),
            "{}",
            policy.name()
        );
    }
}

/// Exactly as many as the capacity can be placed.
#[test]
fn the_capacity_can_be_placed() {
    for name in Policy::PRESETS {
        // all at once: how many may start at a time does not change what fits
        let text = Policy::preset_text(name).unwrap();
        let text = text.replace("max_starting_per_cell = 10", "max_starting_per_cell = 0");
        let policy = Policy::parse(&text).unwrap();
        let mut pool = pool([cell("a", "z1", 1000, 730), cell("b", "z2", 1000, 155)]);
        pool.add_like("b", 1).unwrap();
        let request = Request::new("app", 50, 10);
        let fits = pool
            .capacity(&request, &policy, &PlanContext::default())
            .fits;
        let request = Arc::new(Request {
            instances: 60,
            ..request
        });
        let plan = pool.plan(&request.jobs(), &policy, &PlanContext::default());
        let placed = plan
            .decisions
            .iter()
            .filter(|d| matches!(d.verdict, Verdict::Placed { .. }));
        assert_eq!(placed.count() as u64, fits, "{name}");
        assert_eq!(fits, 14 + 3 + 20, "{name}");
    }
}

#[test]
fn what_if_there_were_more_cells() {
    let mut pool = pool([cell("a", "z1", 1000, 10)]);
    assert_eq!(pool.add_like("a", 2).unwrap(), ["a-new-1", "a-new-2"]);
    assert_eq!(pool.get("a-new-2").unwrap().available.memory_mb, 1000);
    assert_eq!(pool.add_like("a", 1).unwrap(), ["a-new-3"]);
    let error = pool.add_like("nobody", 1).unwrap_err();
    assert_eq!(
        error.to_string(),
        "like: \"nobody\" is not allowed; expected the name of a known cell"
    );
}
