//! What cells report about the instances that were started through facades.

use std::collections::BTreeSet;

use placement::Usage;
use shared::wire::{Event, Instance, InstanceState, InstancesAnswer, kind};

use super::cells::{OutCells, OutOutput, REQUEST_PREFIX, key_of, stop_of};
use crate::dea::{DeaInstanceState, DeaNumber, DeaUsage, FacadeEvent, FacadeInput};

/// How long after its acceptance an instance must be in its cell's lists.
const ON_ITS_WAY_MS: u64 = 5_000;

impl OutCells {
    /// Handles a cell's event about instances.
    pub(crate) fn event(&mut self, now_ms: u64, name: &str, event: &Event) -> Vec<OutOutput> {
        let mut out = Vec::new();
        for about in &event.instances {
            let Some(key) = about.instance.map(key_of) else {
                continue;
            };
            match event.kind.as_str() {
                kind::RUNNING => self.runs(now_ms, name, &key, about.port, &mut out),
                kind::STOPPED => self.ended(now_ms, name, &key, FacadeEvent::Stopped, &mut out),
                kind::CRASHED | kind::EXITED if about.is_final => {
                    let crashed = FacadeEvent::Crashed {
                        exit_status: exit_status(about.ended.as_deref()),
                        description: about.ended.clone().unwrap_or_default(),
                    };
                    self.ended(now_ms, name, &key, crashed, &mut out);
                }
                _ => {}
            }
        }
        out
    }

    /// Handles that an instance runs. This waits until the cell's address is known, because routers are told it.
    fn runs(
        &mut self,
        now_ms: u64,
        name: &str,
        key: &str,
        port: Option<u16>,
        out: &mut Vec<OutOutput>,
    ) {
        let Some(cell) = self.cells.get_mut(name) else {
            return;
        };
        if !cell.accepted.contains_key(key) && !cell.sent.contains_key(key) {
            return;
        }
        if cell.address.is_empty() && port.is_some() {
            cell.waits_for_address.insert(key.to_owned(), port);
            return;
        }
        self.accepted(now_ms, name, key, out);
        self.happened(now_ms, name, key, FacadeEvent::Running(port), out);
    }

    fn ended(
        &mut self,
        now_ms: u64,
        name: &str,
        key: &str,
        event: FacadeEvent,
        out: &mut Vec<OutOutput>,
    ) {
        // an instance that has ended was accepted, even if that was not heard
        self.accepted(now_ms, name, key, out);
        if let Some(cell) = self.cells.get_mut(name) {
            cell.accepted.remove(key);
            cell.sent.remove(key);
            cell.waits_for_address.remove(key);
        }
        self.happened(now_ms, name, key, event, out);
    }

    /// Handles one message of a cell's heartbeat, which lists what it runs.
    pub(crate) fn listed(&mut self, now_ms: u64, list: &InstancesAnswer) -> Vec<OutOutput> {
        let mut out = Vec::new();
        let name = list.cell.as_str();
        let Some(cell) = self.cells.get_mut(name) else {
            return out;
        };
        if cell.incarnation != list.incarnation {
            return out;
        }
        let address = list.instances.iter().find_map(|i| i.address.clone());
        if let Some(address) = address.filter(|address| *address != cell.address) {
            cell.address.clone_from(&address);
            let waiting = std::mem::take(&mut cell.waits_for_address);
            self.tell(now_ms, name, FacadeInput::Address(&address), &mut out);
            for (key, port) in waiting {
                self.runs(now_ms, name, &key, port, &mut out);
            }
        }
        for instance in &list.instances {
            self.one_listed(now_ms, name, instance, &mut out);
        }
        if list.parts == 1 {
            self.unlisted(now_ms, list, &mut out);
        }
        out
    }

    fn one_listed(
        &mut self,
        now_ms: u64,
        name: &str,
        instance: &Instance,
        out: &mut Vec<OutOutput>,
    ) {
        let key = key_of(instance.instance);
        let own = format!("{REQUEST_PREFIX}{}-", self.config.name);
        let request = instance.request.as_ref();
        if !request.is_some_and(|request| request.as_str().starts_with(&own)) {
            return;
        }
        let cell = self.cells.get(name);
        let facade = cell.and_then(|cell| cell.facade.as_ref());
        let known = facade.and_then(|facade| facade.state_of(&key));
        let goes_on = instance.state != InstanceState::Stopping;
        if known.is_none() {
            // of an earlier run, or of a DEA that no longer exists: nobody in the estate knows of it
            if goes_on {
                self.counters.left_over += 1;
                out.push(stop_of(name, &instance.app, instance.instance));
            }
        } else if known == Some(DeaInstanceState::Stopping) {
            // the cell did not hear the stop
            out.extend(goes_on.then(|| stop_of(name, &instance.app, instance.instance)));
        } else if instance.state == InstanceState::Running {
            self.runs(now_ms, name, &key, instance.port, out);
            if let Some(usage) = instance.usage {
                let used = FacadeEvent::Used(used(usage));
                self.happened(now_ms, name, &key, used, out);
            }
        }
    }

    /// Ends instances that were accepted a while ago and are missing in a complete list: they have ended, and their
    /// event was missed.
    fn unlisted(&mut self, now_ms: u64, list: &InstancesAnswer, out: &mut Vec<OutOutput>) {
        let Some(cell) = self.cells.get(&list.cell) else {
            return;
        };
        let listed: BTreeSet<String> = list.instances.iter().map(|i| key_of(i.instance)).collect();
        let old = |at_ms: u64| at_ms + ON_ITS_WAY_MS < now_ms;
        let gone = cell.accepted.iter();
        let gone = gone.filter(|(key, at_ms)| old(**at_ms) && !listed.contains(*key));
        let gone: Vec<String> = gone.map(|(key, _)| key.clone()).collect();
        for key in gone {
            let lost = FacadeEvent::Crashed {
                exit_status: -1,
                description: "the cell no longer has it".to_owned(),
            };
            self.ended(now_ms, &list.cell, &key, lost, out);
        }
    }
}

/// Returns what an instance uses as DEAs say it. Cells do not measure what it has on disk.
fn used(usage: Usage) -> DeaUsage {
    DeaUsage {
        cpu: DeaNumber::Float(usage.cpu_millis as f64 / 1_000.0),
        mem: DeaNumber::Integer(usage.memory_mb.saturating_mul(1 << 20)),
        ..DeaUsage::default()
    }
}

/// Returns the exit code from a cell's text about the end of an instance, such as `exit 1`.
fn exit_status(ended: Option<&str>) -> i64 {
    let code = ended.and_then(|text| text.strip_prefix("exit "));
    code.and_then(|code| code.parse().ok()).unwrap_or(-1)
}
