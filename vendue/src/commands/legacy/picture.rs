//! The view of an estate: by DEA, by zone and by app, and the senders of unreadable messages.

use std::collections::{BTreeMap, BTreeSet};

use advertiser::dea::{Dea, DeaAdvertisement, DeaNumber, DeaState, Estate};
use serde::Serialize;

/// Everything known about an estate.
#[derive(Debug, Serialize)]
pub(super) struct Picture {
    /// By id.
    pub(super) deas: Vec<DeaRow>,
    /// Of live DEAs, by name.
    pub(super) zones: BTreeMap<String, ZoneRow>,
    /// Of live DEAs, by id.
    pub(super) apps: BTreeMap<String, AppRow>,
    /// Senders of malformed and odd messages, by name.
    pub(super) senders: Vec<SenderRow>,
    /// Number of malformed and odd messages of further senders.
    pub(super) of_others: u64,
    /// Number of messages that were understood.
    pub(super) heard: u64,
    /// Number of messages of DEAs beyond the limit.
    pub(super) dropped: u64,
}

/// One DEA.
#[derive(Debug, Serialize)]
pub(super) struct DeaRow {
    pub(super) dea: String,
    pub(super) state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory_mb: Option<DeaNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disk_mb: Option<DeaNumber>,
    pub(super) stacks: Vec<String>,
    /// Number of apps of which it has instances.
    pub(super) apps: usize,
    /// As it advertises them, regardless of their state.
    pub(super) instances: u64,
    /// By state, according to its last heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) states: Option<BTreeMap<&'static str, usize>>,
    /// Memory left for staging.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) staging_memory_mb: Option<DeaNumber>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ip: Option<String>,
    /// Time since anything was heard of it.
    pub(super) age_ms: u64,
    /// Time until its advertisement no longer counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires_ms: Option<u64>,
    /// What was odd in its last advertisement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) odd: Vec<String>,
}

/// The live DEAs of one zone.
#[derive(Debug, Default, Serialize)]
pub(super) struct ZoneRow {
    pub(super) deas: usize,
    /// Left on all of them, in whole MB.
    pub(super) memory_mb: i64,
    /// The most that is left on one, in whole MB.
    pub(super) most_memory_mb: i64,
    pub(super) instances: u64,
}

/// One app.
#[derive(Debug, Default, Serialize)]
pub(super) struct AppRow {
    pub(super) instances: u64,
    /// Number of DEAs that have an instance of it.
    pub(super) deas: usize,
    pub(super) zones: BTreeSet<String>,
}

/// One sender.
#[derive(Debug, Serialize)]
pub(super) struct SenderRow {
    /// Absent if the messages name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sender: Option<String>,
    pub(super) malformed: u64,
    pub(super) odd: u64,
    pub(super) subject: &'static str,
    pub(super) why: String,
}

impl Picture {
    /// Returns the view of the estate at this time.
    pub(super) fn of(estate: &Estate, now_ms: u64) -> Self {
        let mut zones: BTreeMap<String, ZoneRow> = BTreeMap::new();
        let mut apps: BTreeMap<String, AppRow> = BTreeMap::new();
        for (advertisement, _) in estate.live(now_ms) {
            let zone = advertisement.zone().to_owned();
            for (app, count) in &advertisement.app_id_to_count {
                let row = apps.entry(app.clone()).or_default();
                row.instances += u64::from(*count);
                row.deas += 1;
                row.zones.insert(zone.clone());
            }
            add(zones.entry(zone).or_default(), advertisement);
        }
        let senders = estate.senders.iter().map(|(name, sender)| SenderRow {
            sender: name.map(str::to_owned),
            malformed: sender.malformed,
            odd: sender.odd,
            subject: sender.subject,
            why: sender.why.to_string(),
        });
        Self {
            deas: estate
                .deas()
                .map(|(id, dea)| row(id, dea, now_ms))
                .collect(),
            zones,
            apps,
            senders: senders.collect(),
            of_others: estate.senders.of_others,
            heard: estate.heard,
            dropped: estate.dropped,
        }
    }

    /// Returns the number of DEAs in this state.
    pub(super) fn count(&self, state: DeaState) -> usize {
        let rows = self.deas.iter();
        rows.filter(|row| row.state == state.name()).count()
    }
}

fn add(zone: &mut ZoneRow, advertisement: &DeaAdvertisement) {
    let memory_mb = advertisement.available().memory_mb;
    zone.most_memory_mb = match zone.deas {
        0 => memory_mb,
        _ => zone.most_memory_mb.max(memory_mb),
    };
    zone.deas += 1;
    zone.memory_mb += memory_mb;
    zone.instances += instances(advertisement);
}

fn instances(advertisement: &DeaAdvertisement) -> u64 {
    let counts = advertisement.app_id_to_count.values();
    counts.map(|count| u64::from(*count)).sum()
}

fn row(id: &str, dea: &Dea, now_ms: u64) -> DeaRow {
    let advertisement = dea.advertisement.as_ref();
    let states = dea.instances.as_ref().map(|counts| {
        let counts = counts.iter();
        counts.map(|(state, n)| (state.name(), *n)).collect()
    });
    DeaRow {
        dea: id.to_owned(),
        state: dea.state.name(),
        zone: advertisement.map(|ad| ad.zone().to_owned()),
        memory_mb: advertisement.map(|ad| ad.available_memory),
        disk_mb: advertisement.and_then(|ad| ad.available_disk),
        stacks: advertisement.map_or(Vec::new(), |ad| ad.stacks.names().to_vec()),
        apps: advertisement.map_or(0, |ad| ad.app_id_to_count.len()),
        instances: advertisement.map_or(0, instances),
        states,
        staging_memory_mb: dea.staging.as_ref().map(|staging| staging.available_memory),
        ip: (!dea.ip.is_empty()).then(|| dea.ip.clone()),
        age_ms: now_ms.saturating_sub(dea.heard_ms),
        expires_ms: dea.is_live(now_ms).then(|| dea.expires_in_ms(now_ms)),
        odd: dea.odd.first.iter().map(ToString::to_string).collect(),
    }
}
