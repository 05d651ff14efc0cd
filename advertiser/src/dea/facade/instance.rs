//! The instances of a facade.

use super::{Facade, FacadeEvent, FacadeOutput, publish};
use crate::dea::{
    DeaExited, DeaInstance, DeaInstanceState, DeaRoute, DeaStart, DeaUsage, subjects,
};

/// An instance that a Cloud Controller started.
#[derive(Debug)]
pub(super) struct FacadeInstance {
    /// As it is reported.
    pub(super) shown: DeaInstance,
    pub(super) start: DeaStart,
    /// Since when it has been in its state.
    pub(super) since_ms: u64,
    /// Whether it was sent to the cell and the cell has not accepted it yet.
    pub(super) is_sent: bool,
    pub(super) port: Option<u16>,
    pub(super) used: DeaUsage,
    private_id: String,
}

impl FacadeInstance {
    fn is_routed(&self) -> bool {
        matches!(
            self.shown.state,
            DeaInstanceState::Running | DeaInstanceState::Evacuating
        )
    }

    /// Returns its route, if it has host names and a port.
    pub(super) fn route(&self, dea: &str, ip: &str, uris: Vec<String>) -> Option<DeaRoute> {
        let port = self.port.filter(|_| self.is_routed() && !uris.is_empty())?;
        Some(DeaRoute {
            dea: Some(dea.to_owned()),
            app: Some(self.shown.droplet.clone()),
            uris,
            host: ip.to_owned(),
            port,
            tags: [("component".to_owned(), format!("dea-{dea}"))].into(),
            private_instance_id: Some(self.private_id.clone()),
        })
    }

    fn enter(&mut self, now_ms: u64, state: DeaInstanceState) {
        self.since_ms = now_ms;
        self.shown.state = state;
        self.shown.state_timestamp = now_ms as f64 / 1_000.0;
    }
}

impl Facade {
    /// Handles a start that was read. An instance that does not fit crashes at once, as on DEAs.
    pub(super) fn start(&mut self, now_ms: u64, start: DeaStart, out: &mut Vec<FacadeOutput>) {
        let short = self.short_of(start.limits.mem, start.limits.disk);
        self.start_unless(short, now_ms, start, out);
    }

    /// Like [`Facade::start`], when it is already known which resource falls short, if any.
    pub(super) fn start_unless(
        &mut self,
        short: Option<&str>,
        now_ms: u64,
        start: DeaStart,
        out: &mut Vec<FacadeOutput>,
    ) {
        let key = self.draw_id();
        let private_id = format!("{}{}", self.draw_id(), self.draw_id());
        let shown = DeaInstance {
            cc_partition: Some(start.cc_partition.clone()),
            droplet: start.droplet.clone(),
            version: start.version.clone(),
            instance: key.clone(),
            index: start.index,
            state: DeaInstanceState::Born,
            state_timestamp: 0.0,
        };
        let mut known = FacadeInstance {
            shown,
            start: start.clone(),
            since_ms: now_ms,
            is_sent: short.is_none(),
            port: None,
            used: DeaUsage::default(),
            private_id,
        };
        known.enter(now_ms, DeaInstanceState::Born);
        self.instances.insert(key.clone(), known);
        match short {
            None => out.push(FacadeOutput::Start {
                key,
                start: Box::new(start),
            }),
            Some(resource) => {
                let description = format!("Not enough {resource} resource available.");
                let exit_status = -1;
                let crashed = FacadeEvent::Crashed {
                    exit_status,
                    description,
                };
                self.happened(now_ms, &key, crashed, out);
            }
        }
    }

    /// Handles an event of the cell about an instance, which is ignored if the instance is unknown.
    pub(super) fn happened(
        &mut self,
        now_ms: u64,
        key: &str,
        event: FacadeEvent,
        out: &mut Vec<FacadeOutput>,
    ) {
        let Some(known) = self.instances.get_mut(key) else {
            return self.staging_happened(now_ms, key, event, out);
        };
        known.is_sent &= matches!(event, FacadeEvent::Used(_));
        let state = known.shown.state;
        match event {
            FacadeEvent::Accepted if state == DeaInstanceState::Born => {
                known.enter(now_ms, DeaInstanceState::Starting);
            }
            FacadeEvent::Accepted => {}
            FacadeEvent::Running(port) => {
                known.port = port;
                if !matches!(state, DeaInstanceState::Born | DeaInstanceState::Starting) {
                    return;
                }
                known.enter(now_ms, DeaInstanceState::Running);
                self.register(key, out);
                out.push(publish(subjects::HEARTBEAT, &self.heartbeat()));
            }
            FacadeEvent::Crashed {
                exit_status,
                description,
            } => {
                if state == DeaInstanceState::Stopping {
                    return self.forget(key, out);
                }
                self.unregister(key, out);
                self.crash(now_ms, key, exit_status, description, out);
            }
            FacadeEvent::Stopped => self.forget(key, out),
            FacadeEvent::Used(used) => known.used = used,
            FacadeEvent::Staged(_) => {}
        }
    }

    fn crash(
        &mut self,
        now_ms: u64,
        key: &str,
        exit_status: i64,
        description: String,
        out: &mut Vec<FacadeOutput>,
    ) {
        let Some(known) = self.instances.get_mut(key) else {
            return;
        };
        known.enter(now_ms, DeaInstanceState::Crashed);
        let ended = DeaExited {
            exit_status,
            exit_description: description,
            crash_timestamp: i64::try_from(now_ms / 1_000).ok(),
            ..exited(&known.shown, "CRASHED")
        };
        out.push(publish(subjects::EXITED, &ended));
    }

    /// Removes an instance that has ended as intended.
    fn forget(&mut self, key: &str, out: &mut Vec<FacadeOutput>) {
        self.unregister(key, out);
        self.instances.remove(key);
    }

    /// Registers the instance with routers, if it can be reached.
    pub(super) fn register(&self, key: &str, out: &mut Vec<FacadeOutput>) {
        self.routed(subjects::REGISTER, key, out);
    }

    /// Tells routers that the instance can no longer be reached.
    pub(super) fn unregister(&self, key: &str, out: &mut Vec<FacadeOutput>) {
        self.routed(subjects::UNREGISTER, key, out);
    }

    fn routed(&self, subject: &str, key: &str, out: &mut Vec<FacadeOutput>) {
        let known = self.instances.get(key);
        let (dea, ip) = (&self.options.id, &self.options.ip);
        let route = known.and_then(|known| known.route(dea, ip, known.start.uris.clone()));
        out.extend(route.map(|route| publish(subject, &route)));
    }

    /// Registers every reachable instance with routers.
    pub(super) fn register_all(&self, out: &mut Vec<FacadeOutput>) {
        for key in self.instances.keys() {
            self.register(key, out);
        }
    }

    /// Takes no more work. What runs continues until it is stopped, and is reported as evacuating.
    pub(super) fn evacuate(&mut self, now_ms: u64, out: &mut Vec<FacadeOutput>) {
        if self.evacuating {
            return;
        }
        self.evacuating = true;
        out.push(publish(subjects::SHUTDOWN, &self.shutdown()));
        for known in self.instances.values_mut() {
            let leaves = matches!(
                known.shown.state,
                DeaInstanceState::Born | DeaInstanceState::Starting | DeaInstanceState::Running
            );
            if leaves {
                known.enter(now_ms, DeaInstanceState::Evacuating);
                let ended = exited(&known.shown, "DEA_EVACUATION");
                out.push(publish(subjects::EXITED, &ended));
            }
        }
        out.push(publish(subjects::HEARTBEAT, &self.heartbeat()));
    }

    /// Ends a DEA that is shut down.
    pub(super) fn end(&mut self, now_ms: u64, out: &mut Vec<FacadeOutput>) {
        if !std::mem::replace(&mut self.evacuating, true) {
            out.push(publish(subjects::SHUTDOWN, &self.shutdown()));
        }
        let ended = |state| matches!(state, DeaInstanceState::Crashed | DeaInstanceState::Stopped);
        let running = self.instances.iter();
        let running = running.filter(|(_, known)| !ended(known.shown.state));
        let running: Vec<String> = running.map(|(key, _)| key.clone()).collect();
        for key in running {
            self.begin_stop(now_ms, &key, out);
        }
        self.stop_staging(None, out);
    }

    /// Starts stopping an instance.
    pub(super) fn begin_stop(&mut self, now_ms: u64, key: &str, out: &mut Vec<FacadeOutput>) {
        self.unregister(key, out);
        if let Some(known) = self.instances.get_mut(key) {
            known.enter(now_ms, DeaInstanceState::Stopping);
            out.push(FacadeOutput::Stop {
                key: key.to_owned(),
            });
        }
    }
}

/// Returns the message that an instance has ended, for a reason that needs no details.
fn exited(instance: &DeaInstance, reason: &str) -> DeaExited {
    DeaExited {
        cc_partition: instance.cc_partition.clone().unwrap_or_default(),
        droplet: instance.droplet.clone(),
        version: instance.version.clone(),
        instance: instance.instance.clone(),
        index: instance.index,
        reason: reason.to_owned(),
        exit_status: -1,
        exit_description: String::new(),
        crash_timestamp: None,
    }
}
