//! Messages to DEAs.

use super::{Facade, FacadeOutput, MAX_FACADE_INSTANCES, publish};
use crate::dea::{
    DeaBody, DeaFilter, DeaFind, DeaInstanceState, DeaStagingStart, DeaStagingStop, DeaStart,
    DeaUpdate, subjects,
};

impl Facade {
    pub(super) fn heard(
        &mut self,
        now_ms: u64,
        (subject, reply): (&str, Option<&str>),
        body: &[u8],
        out: &mut Vec<FacadeOutput>,
    ) {
        match subject {
            subjects::STOP => self.stop_matching(now_ms, body, out),
            subjects::UPDATE => self.update(body, out),
            subjects::FIND => self.find(now_ms, reply, body, out),
            subjects::LOCATE if !self.evacuating => {
                out.push(publish(subjects::ADVERTISE, &self.advertisement()));
            }
            subjects::STAGING_LOCATE if !self.evacuating => self.advertise_staging(out),
            subjects::STAGING_STOP => {
                if let Some(stop) = self.read::<DeaStagingStop>(body) {
                    self.stop_staging(Some(&stop.app_id), out);
                }
            }
            subjects::STATUS => {
                out.extend(reply.map(|reply| publish(reply, &self.status())));
            }
            subjects::HEALTH_MANAGER_START => {
                out.push(publish(subjects::HEARTBEAT, &self.heartbeat()));
            }
            subjects::ROUTER_START => self.register_all(out),
            _ if subject == subjects::start(&self.options.id) => {
                self.asked_to_start(now_ms, body, out);
            }
            _ if self.stages && subject == subjects::staging_start(&self.options.id) => {
                if let Some(start) = self.read::<DeaStagingStart>(body) {
                    self.stage(now_ms, start, reply, out);
                }
            }
            _ => {}
        }
    }

    fn read<T: DeaBody>(&mut self, body: &[u8]) -> Option<T> {
        let read = T::read(body);
        self.malformed += u64::from(read.is_err());
        read.ok().map(|read| read.body)
    }

    fn asked_to_start(&mut self, now_ms: u64, body: &[u8], out: &mut Vec<FacadeOutput>) {
        let Some(start) = self.read::<DeaStart>(body) else {
            return;
        };
        let limits = start.limits;
        if limits.mem < 0 || limits.disk < 0 {
            self.malformed += 1; // it would make room
            return;
        }
        if self.evacuating {
            return;
        }
        if self.instances.len() >= MAX_FACADE_INSTANCES {
            self.dropped += 1;
            return;
        }
        self.start(now_ms, start, out);
    }

    /// Returns the instances that a filter means.
    fn matching(&self, filter: &DeaFilter) -> Vec<String> {
        let all = self.instances.iter();
        let matching = all.filter(|(_, known)| filter.matches(&known.shown));
        matching.map(|(key, _)| key.clone()).collect()
    }

    fn stop_matching(&mut self, now_ms: u64, body: &[u8], out: &mut Vec<FacadeOutput>) {
        let Some(filter) = self.read::<DeaFilter>(body) else {
            return;
        };
        // a whole app, including its staging (from February 2016)
        let of_app = DeaFilter {
            droplet: filter.droplet.clone(),
            ..DeaFilter::default()
        };
        if filter == of_app {
            self.stop_staging(Some(&filter.droplet), out);
        }
        for key in self.matching(&filter) {
            let state = self.instances[&key].shown.state;
            let is_over = matches!(
                state,
                DeaInstanceState::Stopped | DeaInstanceState::Crashed | DeaInstanceState::Resuming
            );
            if !is_over {
                self.begin_stop(now_ms, &key, out);
            }
        }
    }

    fn find(&mut self, now_ms: u64, reply: Option<&str>, body: &[u8], out: &mut Vec<FacadeOutput>) {
        let Some(find) = self.read::<DeaFind>(body) else {
            return;
        };
        let Some(reply) = reply else {
            return;
        };
        for key in self.matching(&find.filter) {
            let found = self.found(&self.instances[&key], find.include_stats, now_ms);
            out.push(publish(reply, &found));
        }
    }

    /// Updates an app: its host names change its routes, and instances of another version get the new version and a new
    /// id.
    fn update(&mut self, body: &[u8], out: &mut Vec<FacadeOutput>) {
        let Some(update) = self.read::<DeaUpdate>(body) else {
            return;
        };
        let filter = DeaFilter {
            droplet: update.droplet.clone(),
            states: vec![DeaInstanceState::Running, DeaInstanceState::Evacuating],
            ..DeaFilter::default()
        };
        let mut all_changed = true;
        let keys = self.matching(&filter);
        for key in &keys {
            all_changed &= self.update_one(key, &update, out);
        }
        if all_changed && !keys.is_empty() {
            out.push(publish(subjects::HEARTBEAT, &self.heartbeat()));
        }
    }

    /// Updates one instance. Returns whether its version has changed.
    fn update_one(&mut self, key: &str, update: &DeaUpdate, out: &mut Vec<FacadeOutput>) -> bool {
        let id = self.draw_id();
        let (dea, ip) = (self.options.id.clone(), self.options.ip.clone());
        let Some(known) = self.instances.get_mut(key) else {
            return false;
        };
        let without = |list: &[String], other: &[String]| -> Vec<String> {
            let kept = list.iter().filter(|uri| !other.contains(uri));
            kept.cloned().collect()
        };
        let gone = without(&known.start.uris, &update.uris);
        let new = without(&update.uris, &known.start.uris);
        let gone = known.route(&dea, &ip, gone);
        out.extend(gone.map(|route| publish(subjects::UNREGISTER, &route)));
        let new = known.route(&dea, &ip, new);
        out.extend(new.map(|route| publish(subjects::REGISTER, &route)));
        known.start.uris.clone_from(&update.uris);
        let changed = !update.version.is_empty() && known.shown.version != update.version;
        if changed {
            known.shown.version.clone_from(&update.version);
            known.start.version.clone_from(&update.version);
            known.shown.instance = id;
        }
        changed
    }
}
