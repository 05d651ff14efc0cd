use super::*;
use crate::{Kind, Request};

fn cell() -> Cell {
    Cell::new("a", Resources::new(100, 100, 10))
}

#[test]
fn a_credit_undoes_a_debit() {
    let mut lrp = Request::new("web", 10, 10);
    lrp.owner = Some("o".into());
    lrp.tags.insert("k".into(), "v".into());
    let mut task = Request::new("job", 10, 10);
    task.kind = Kind::Task;
    task.cpu_millis = 5;
    let mut held = cell();
    held.debit(&lrp, None);
    held.debit(&lrp, None);
    held.debit(&task, None);
    assert_eq!(
        (
            held.counts.starting,
            held.counts.tasks,
            held.count_of("web")
        ),
        (3, 1, 2)
    );
    assert_eq!((held.counts.cpu_capped, held.counts.cpu_uncapped), (1, 2));
    assert_eq!((held.counts.owners["o"], held.counts.tags["k=v"]), (2, 2));
    held.credit(&lrp, None);
    assert_eq!((held.counts.starting, held.count_of("web")), (2, 1));
    assert_eq!((held.counts.owners["o"], held.counts.tags["k=v"]), (1, 1));
    held.credit(&task, None);
    assert_eq!(
        (
            held.counts.cpu_capped,
            held.counts.cpu_uncapped,
            held.counts.tasks
        ),
        (0, 1, 0)
    );
    held.credit(&lrp, None);
    assert_eq!(held, cell());
}

#[test]
fn a_credit_without_a_debit_leaves_no_count_below_nothing() {
    let mut held = cell();
    let mut task = Request::new("job", 1, 1);
    task.kind = Kind::Task;
    for request in [Request::new("web", 1, 1), task] {
        held.credit(&request, None);
    }
    assert_eq!(
        (
            held.counts.starting,
            held.counts.tasks,
            held.counts.cpu_uncapped
        ),
        (0, 0, 0)
    );
    assert!(held.counts.apps.is_empty());
}

fn refused(change: impl FnOnce(&mut Cell)) -> Option<String> {
    let mut cell = cell();
    change(&mut cell);
    cell.check().err().map(|e| e.field)
}

#[test]
fn the_bounds_of_a_cells_fields() {
    let texts = |n: usize| vec![String::new(); n];
    let start = RecentStart {
        age: Span::default(),
        failed: false,
    };
    assert_eq!(refused(|_| ()), None);
    assert_eq!(refused(|c| c.available.memory_mb = -MAX_AMOUNT), None);
    assert_eq!(refused(|c| c.total.memory_mb = MAX_AMOUNT), None);
    assert_eq!(refused(|c| c.attributes_mut().stacks = texts(10_000)), None);
    assert_eq!(
        refused(|c| c.recent_starts = vec![start.clone(); 1_000]),
        None
    );
    let refused_as = |field: &str, change: &dyn Fn(&mut Cell)| {
        assert_eq!(refused(change).as_deref(), Some(field));
    };
    refused_as("cell", &|c| c.cell = "a b".into());
    refused_as("zone", &|c| c.attributes_mut().zone = "a.b".into());
    refused_as("apps", &|c| {
        c.counts.apps.insert("a b".into(), 1);
    });
    refused_as("total.memory_mb", &|c| c.total.memory_mb = MAX_AMOUNT + 1);
    refused_as("total.cpu_millis", &|c| c.total.cpu_millis = -1);
    refused_as("total.gpu", &|c| {
        c.total.extra.insert("gpu".into(), -1);
    });
    refused_as("available.disk_mb", &|c| {
        c.available.disk_mb = Some(-MAX_AMOUNT - 1);
    });
    refused_as("available.containers", &|c| {
        c.available.containers = Some(11);
    });
    refused_as("available.gpu", &|c| {
        c.available.extra.insert("gpu".into(), 1);
    });
    refused_as("stacks", &|c| c.attributes_mut().stacks = texts(10_001));
    refused_as("volumes", &|c| c.attributes_mut().volumes = texts(10_001));
    refused_as("cached_blobs", &|c| {
        c.attributes_mut().cached_blobs = texts(10_001);
    });
    refused_as("recent_starts", &|c| {
        c.recent_starts = vec![start.clone(); 1_001];
    });
}

#[test]
fn a_reboot_is_planned_unless_it_is_past() {
    let planned = |next: &str, boot: Option<&str>, now_ms| {
        let mut cell = cell();
        cell.attributes_mut().next_reboot = next.parse().ok();
        cell.attributes_mut().last_boot = boot.and_then(|boot| boot.parse().ok());
        cell.planned_reboot_ms(now_ms)
    };
    let day = 86_400_000;
    assert_eq!(planned("1970-01-02", None, day), Some(day));
    assert_eq!(planned("1970-01-02", None, day + 1), None);
    assert_eq!(planned("1970-01-02", Some("1970-01-02"), 0), Some(day));
    assert_eq!(planned("1970-01-02", Some("1970-01-03"), 0), None);
    assert_eq!(cell().planned_reboot_ms(0), None);
}

#[test]
fn a_change_of_shared_attributes_is_the_cells_own() {
    let one = cell();
    let mut other = one.clone();
    other.attributes_mut().rack = Some("r1".into());
    assert_eq!(one.rack, None);
}
