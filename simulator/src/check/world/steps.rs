//! The steps of the script.

use manager::MoveOrder;

use super::{Happening, World, faults};
use crate::check::{
    CheckReport,
    cell::{CARD, CellNode},
    client::Client,
    manager::ManagerNode,
    script::What,
};

impl World<'_> {
    pub(super) fn step(&mut self, n: usize, begins: bool, report: &mut CheckReport) {
        let script = self.script;
        match &script.steps[n].what {
            What::Ask(request) => {
                report.asked += 1;
                self.ask(*request);
            }
            What::Namesake(_) => self.namesake(n, report),
            What::Command { app, text } => {
                report.commands += 1;
                self.say(&format!("app.{app}"), text);
            }
            What::Move { app, index, node } => self.move_instance(n, (app, *index, *node), report),
            What::Submit(task) => {
                report.tasks += 1;
                self.submit(*task);
            }
            What::Cancel(task) => {
                report.commands += 1;
                let id = &script.tasks[*task].id;
                self.say(&format!("task.{id}"), "");
            }
            What::Drain { node, deadline_ms } => {
                *report.faults.entry("drain").or_default() += 1;
                let cell = self.places[*node].node.label().to_owned();
                let body = format!(r#"{{"deadline":"{deadline_ms}ms"}}"#);
                self.say(&format!("cell.{cell}.drain"), &body);
            }
            What::Crash { node, nth, times } => {
                *report.faults.entry("crash").or_default() += 1;
                let place = &self.places[*node];
                if place.alive && place.frozen == 0 {
                    self.act(*node, |node, now_ms, out| {
                        if let Some(cell) = node.as_any_mut().downcast_mut::<CellNode>() {
                            cell.crash(now_ms, *nth, *times, out);
                        }
                    });
                }
            }
            What::Fail {
                node,
                fault,
                for_ms,
            } => {
                let name = self.places[*node].node.label().to_owned();
                self.tell_fault(&name, begins, || faults::text(*fault));
                if begins {
                    self.begin_fault(n, fault.name(), *for_ms, report);
                    self.places[*node].failing += 1;
                    self.fail(*node, *fault);
                } else {
                    self.mend(*node, *fault);
                    // messages flow once those that were held up have arrived
                    let last_us = self.places[*node].last_arrival_us();
                    let at_us = last_us.max(self.now_us);
                    self.queue.add(at_us, Happening::CaughtUp(Some(*node)));
                }
            }
            What::Bucket { fault, for_ms } => {
                self.tell_fault("bucket", begins, || fault.name().to_owned());
                if begins {
                    self.begin_fault(n, fault.name(), *for_ms, report);
                    self.bucket_fails(*fault);
                } else {
                    self.bucket_mended(*fault);
                    self.queue.add(self.now_us, Happening::CaughtUp(None));
                }
            }
        }
    }

    /// Sends the move order of a step to every manager that can hear it.
    fn move_instance(
        &mut self,
        n: usize,
        (app, index, cell): (&str, u32, usize),
        report: &mut CheckReport,
    ) {
        *report.faults.entry("move").or_default() += 1;
        let order = MoveOrder {
            id: format!("move-{n}"),
            index,
            from: self.places[cell].node.label().to_owned(),
        };
        let first = self.script.auctioneers + self.script.cells.len();
        for manager in first..first + self.script.managers {
            let place = &self.places[manager];
            if !place.alive || place.frozen > 0 {
                continue;
            }
            self.act(manager, |node, now_ms, out| {
                if let Some(manager) = node.as_any_mut().downcast_mut::<ManagerNode>() {
                    manager.move_instance(now_ms, app, order.clone(), out);
                }
            });
        }
    }

    fn namesake(&mut self, n: usize, report: &mut CheckReport) {
        let steps = &self.script.steps[..n];
        let before = steps.iter().filter(|s| matches!(s.what, What::Namesake(_)));
        let node = self.script.machines() + 1 + before.count();
        let name = self.places[node].node.label().to_owned();
        let what = || "starts: a second program of the name".to_owned();
        self.timeline.add(self.now_us, &name, what);
        *report.faults.entry("namesake").or_default() += 1;
        self.revive(node);
    }

    /// Begins the fault of a step.
    fn begin_fault(&mut self, n: usize, name: &'static str, for_ms: u64, report: &mut CheckReport) {
        *report.faults.entry(name).or_default() += 1;
        self.faults += 1;
        let end_us = self.now_us + for_ms * 1_000;
        self.queue.add(end_us, Happening::Step(n, false));
    }

    fn tell_fault(&mut self, who: &str, begins: bool, text: impl Fn() -> String) {
        let which = if begins { "begins" } else { "ends" };
        let what = || format!("{which}: {}", text());
        self.timeline.add(self.now_us, who, what);
    }

    /// Has a client send a request of the script.
    pub(super) fn ask(&mut self, request: usize) -> u64 {
        let asked = &self.script.requests[request];
        let mut body = serde_json::json!({
            "id": asked.id, "app": asked.app, "instances": asked.instances,
            "memory_mb": asked.memory_mb, "disk_mb": 1, "run": { "command": ["sleep"] },
        });
        // one request of each size asks for devices, two of which fit on one
        if asked.memory_mb == 100 {
            body["devices"] = serde_json::json!({ "card": { "count": 1, "amount": CARD / 2 } });
        }
        if asked.queue_timeout_ms > 0 {
            body["queue_timeout"] = format!("{}ms", asked.queue_timeout_ms).into();
        }
        self.say("start", &body.to_string())
    }

    /// Has a client submit a stored request of the script; returns the number of its message.
    pub(super) fn submit(&mut self, task: usize) -> u64 {
        let stored = &self.script.tasks[task];
        let number = self.say(&format!("task.{}", stored.id), &stored.body());
        self.submitted.push((number, task));
        number
    }

    /// Has a client send a request; returns its number.
    pub(super) fn say(&mut self, subject: &str, body: &str) -> u64 {
        let client = self.script.machines();
        let mut number = 0;
        self.act(client, |node, _, out| {
            if let Some(client) = node.as_any_mut().downcast_mut::<Client>() {
                number = client.ask(subject, body, out);
                out.note(|| format!("asks #{number} {subject}: {body}"));
            }
        });
        number
    }
}
