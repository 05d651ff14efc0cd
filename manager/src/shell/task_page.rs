//! Pages of stored requests. The task that owns the machine and renews the lease builds them, so the work for one
//! question is bounded.

use crate::manager::Manager;
use shared::{
    VERSION,
    wire::{TaskList, TaskListed, to_bytes},
};

/// Maximum number of apps or stored requests on a page.
pub(super) const MAX_PAGE: usize = 500;
/// Size of a page without its entries, in bytes.
pub(super) const ENVELOPE: usize = 1_024;

/// Maximum number of stored requests that are looked at for a page: those of one app may be few among many.
const MAX_LOOKED_AT: usize = 5_000;

/// Builds a page of the stored requests that fits into one message. It may be empty without being the last one.
pub(super) fn task_page(
    name: &str,
    machine: &Manager,
    list: &TaskList,
    max_payload: usize,
) -> TaskListed {
    let limit = list.limit.unwrap_or(MAX_PAGE).min(MAX_PAGE);
    let mut room = max_payload.saturating_sub(ENVELOPE);
    let [total, ..] = machine.task_counts();
    let mut page = TaskListed {
        v: VERSION,
        manager: name.to_owned(),
        acting: machine.is_acting(),
        total,
        tasks: Vec::new(),
        next: None,
    };
    let after = list.after.as_deref().unwrap_or_default();
    let mut named: Vec<&str> = list.ids.iter().map(String::as_str).collect();
    named.retain(|id| *id > after);
    named.sort_unstable();
    let found: Box<dyn Iterator<Item = (&str, Option<&str>)> + '_> = if list.ids.is_empty() {
        let all = machine.tasks_after(after);
        Box::new(all.map(|(id, app)| (id, Some(app))))
    } else {
        Box::new(named.into_iter().map(|id| (id, None)))
    };
    let wanted = |app: &str| list.app.as_deref().is_none_or(|wanted| wanted == app);
    let mut last: Option<&str> = None;
    for (looked_at, (id, app)) in found.enumerate() {
        let mut is_full = looked_at >= MAX_LOOKED_AT || page.tasks.len() >= limit;
        let status = match app {
            _ if is_full => None,
            Some(app) if !wanted(app) => None,
            _ => machine.task(id).filter(|status| wanted(&status.app)),
        };
        let bytes = status
            .as_ref()
            .map_or(0, |status| to_bytes(status).len() + 1);
        is_full |= bytes > room && !page.tasks.is_empty();
        if is_full {
            page.next = last.map(str::to_owned);
            break;
        }
        room = room.saturating_sub(bytes);
        page.tasks.extend(status);
        last = Some(id);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        io::{ManagerInput, TaskInput},
        parts::ManagerSettings,
    };

    /// Creates a manager that was shown `count` waiting tasks, every thousandth of the app `rare`.
    fn machine(count: usize) -> Manager {
        let mut machine = Manager::new(ManagerSettings {
            holder: "m".into(),
            seed: 1,
        });
        for n in 0..count {
            let id = format!("t-{n:05}");
            let app = if n % 1_000 == 999 { "rare" } else { "often" };
            let record = serde_json::json!({ "format": crate::FORMAT, "submitted_ms": 0, "waiting_ms": 0,
                "phase": "waiting", "left": [0], "request": { "id": id, "app": app, "kind": "task",
                "memory_mb": 1, "disk_mb": 1, "run": { "command": ["true"] } } });
            let shown = TaskInput::Shown {
                id,
                revision: crate::ids::Revision(n as u64 + 1),
                value: Some(to_bytes(&record)),
            };
            machine.take(0, ManagerInput::Task(shown));
        }
        machine
    }

    /// Returns the ids of all pages, and how many pages there were.
    fn pages(machine: &Manager, mut list: TaskList, max_payload: usize) -> (Vec<String>, usize) {
        let (mut ids, mut pages) = (Vec::new(), 0);
        loop {
            let page = task_page("m", machine, &list, max_payload);
            ids.extend(page.tasks.into_iter().map(|task| task.id));
            pages += 1;
            list.after = page.next;
            if list.after.is_none() {
                return (ids, pages);
            }
        }
    }

    #[test]
    fn the_tasks_of_an_app_are_found_among_many_with_bounded_looks() {
        let machine = machine(12_000);
        let of = |app: &str| TaskList {
            app: Some(app.into()),
            ..TaskList::default()
        };
        let (rare, count) = pages(&machine, of("rare"), 1 << 20);
        assert_eq!((rare.len(), count), (12, 3));
        assert_eq!(
            (rare[0].as_str(), rare[11].as_str()),
            ("t-00999", "t-11999")
        );
        assert_eq!(pages(&machine, of("none"), 1 << 20), (vec![], 3));
        let first = task_page("m", &machine, &of("rare"), 1 << 20);
        assert_eq!(first.next.as_deref(), Some("t-04999"));
    }

    #[test]
    fn each_task_is_on_one_page_and_ids_may_be_named() {
        let machine = machine(1_200);
        let (all, count) = pages(&machine, TaskList::default(), 1 << 20);
        assert_eq!((all.len(), count), (1_200, 3));
        assert!(all.is_sorted());
        let (small, count) = pages(&machine, TaskList::default(), 10_000);
        assert_eq!(small, all);
        assert!(count > 10, "{count}");
        let named = TaskList {
            ids: ["t-00999", "no", "t-00003"].map(String::from).into(),
            limit: Some(1),
            ..TaskList::default()
        };
        let (found, _) = pages(&machine, named, 1 << 20);
        assert_eq!(found, ["t-00003", "t-00999"]);
    }
}
