//! What a facade says about itself and its instances.

use std::{
    collections::BTreeMap,
    time::{Duration, UNIX_EPOCH},
};

use super::{Facade, instance::FacadeInstance, mb};
use crate::dea::{
    DeaAdvertisement, DeaFound, DeaHeartbeat, DeaHello, DeaInstanceState, DeaNumber,
    DeaPlacementProperties, DeaShutdown, DeaStacks, DeaStagingAdvertisement, DeaStats, DeaStatus,
    DeaUsage,
};

/// The version that all DEAs report.
const VERSION: &str = "0.0.1";
/// The bytes in a MB.
const MIB: i64 = 1 << 20;

impl Facade {
    pub(super) fn hello(&self) -> DeaHello {
        DeaHello {
            id: self.options.id.clone(),
            ip: self.options.ip.clone(),
            version: VERSION.to_owned(),
            port: None,
        }
    }

    /// Returns its instances by app, whatever their state.
    fn counts(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for known in self.instances.values() {
            *counts.entry(known.shown.droplet.clone()).or_insert(0) += 1;
        }
        counts
    }

    pub(super) fn advertisement(&self) -> DeaAdvertisement {
        let (memory, disk) = self.available();
        DeaAdvertisement {
            id: self.options.id.clone(),
            stacks: DeaStacks::List(self.options.stacks.clone()),
            available_memory: mb(memory),
            available_disk: disk.map(mb),
            app_id_to_count: self.counts(),
            placement_properties: DeaPlacementProperties {
                zone: Some(self.options.zone.clone()),
            },
            url: None,
        }
    }

    pub(super) fn staging_advertisement(&self) -> DeaStagingAdvertisement {
        let (memory, disk) = self.available();
        DeaStagingAdvertisement {
            id: self.options.id.clone(),
            stacks: DeaStacks::List(self.options.stacks.clone()),
            available_memory: mb(memory),
            available_disk: disk.map(mb),
        }
    }

    pub(super) fn shutdown(&self) -> DeaShutdown {
        DeaShutdown {
            id: self.options.id.clone(),
            ip: self.options.ip.clone(),
            version: VERSION.to_owned(),
            app_id_to_count: self.counts(),
        }
    }

    pub(super) fn status(&self) -> DeaStatus {
        let (available, _) = self.available();
        let used: i64 = self
            .instances
            .values()
            .map(|known| known.used.mem.floor())
            .sum();
        DeaStatus {
            hello: self.hello(),
            max_memory: mb(self.room.memory),
            reserved_memory: mb(self.room.memory - available),
            used_memory: mb(used / MIB),
            num_clients: None,
        }
    }

    /// Returns what health managers are told.
    pub(super) fn heartbeat(&self) -> DeaHeartbeat {
        let told = |state: DeaInstanceState| {
            matches!(
                state,
                DeaInstanceState::Starting
                    | DeaInstanceState::Running
                    | DeaInstanceState::Crashed
                    | DeaInstanceState::Evacuating
            )
        };
        let instances = self.instances.values().map(|known| &known.shown);
        let instances = instances.filter(|shown| told(shown.state));
        DeaHeartbeat {
            droplets: instances.cloned().collect(),
            dea: self.options.id.clone(),
        }
    }

    pub(super) fn found(&self, known: &FacadeInstance, with_stats: bool, now_ms: u64) -> DeaFound {
        let mut instance = known.shown.clone();
        instance.cc_partition = None;
        let runs = known.shown.state == DeaInstanceState::Running;
        DeaFound {
            dea: self.options.id.clone(),
            staged: Some(format!("/{}", instance.instance)),
            instance,
            file_uri_v2: None,
            stats: (with_stats && runs).then(|| self.stats(known, now_ms)),
        }
    }

    fn stats(&self, known: &FacadeInstance, now_ms: u64) -> DeaStats {
        let limits = known.start.limits;
        let uptime = now_ms.saturating_sub(known.since_ms) / 1_000;
        DeaStats {
            name: known.start.name.clone(),
            uris: known.start.uris.clone(),
            host: self.options.ip.clone(),
            port: known.port.map(i64::from),
            uptime: mb(i64::try_from(uptime).unwrap_or(i64::MAX)),
            mem_quota: mb(limits.mem.saturating_mul(MIB)),
            disk_quota: mb(limits.disk.saturating_mul(MIB)),
            fds_quota: DeaNumber::Integer(limits.fds),
            usage: DeaUsage {
                time: date(now_ms),
                ..known.used.clone()
            },
        }
    }
}

/// Returns a time as DEAs write it, such as `2015-12-13 09:48:20 +0000`.
fn date(ms: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(ms);
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.replace('T', " ").replace('Z', " +0000")
}
