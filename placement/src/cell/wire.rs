//! A cell as it is written: all fields side by side.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Attributes, Cell, Platform, RecentStart, Trait, default_status, default_zone};
use crate::{Resources, times::Timestamp};

/// The fields of [`Cell`] and of [`Attributes`], where they are documented.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Cell")]
pub(super) struct Flat {
    cell: String,
    #[serde(default = "default_zone", skip_serializing_if = "is_default_zone")]
    zone: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone_number: Option<u32>,
    #[serde(default, skip_serializing_if = "is_zero")]
    index: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    stacks: Vec<String>,
    total: Resources,
    available: Resources,
    #[serde(default, skip_serializing_if = "is_zero")]
    starting: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    apps: BTreeMap<String, u32>,
    #[serde(default, skip_serializing_if = "is_zero")]
    tasks: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    placement_tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    optional_placement_tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    volume_drivers: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    volumes: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    cached_blobs: Vec<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    evacuating: bool,
    #[serde(default = "default_status", skip_serializing_if = "is_running")]
    status: String,
    #[serde(default, skip_serializing_if = "is_false")]
    reserved: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    control_plane: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    networks: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    traits: BTreeMap<String, Trait>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    platform: Option<Platform>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_reboot: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_boot: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rack: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero_i")]
    hardware_priority: i64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    owners: BTreeMap<String, u32>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    tags: BTreeMap<String, u32>,
    #[serde(default, skip_serializing_if = "is_zero")]
    cpu_capped: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    cpu_uncapped: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reboot_batch: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    overcommit: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    recent_starts: Vec<RecentStart>,
}

impl From<Flat> for Cell {
    fn from(flat: Flat) -> Self {
        Self {
            cell: flat.cell,
            zone_number: flat.zone_number,
            index: flat.index,
            total: flat.total,
            available: flat.available,
            starting: flat.starting,
            apps: flat.apps,
            tasks: flat.tasks,
            volumes: flat.volumes,
            cached_blobs: flat.cached_blobs,
            evacuating: flat.evacuating,
            next_reboot: flat.next_reboot,
            last_boot: flat.last_boot,
            owners: flat.owners,
            tags: flat.tags,
            cpu_capped: flat.cpu_capped,
            cpu_uncapped: flat.cpu_uncapped,
            recent_starts: flat.recent_starts,
            attributes: Arc::new(Attributes {
                zone: flat.zone,
                stacks: flat.stacks,
                placement_tags: flat.placement_tags,
                optional_placement_tags: flat.optional_placement_tags,
                volume_drivers: flat.volume_drivers,
                status: flat.status,
                reserved: flat.reserved,
                control_plane: flat.control_plane,
                networks: flat.networks,
                traits: flat.traits,
                platform: flat.platform,
                rack: flat.rack,
                hardware_priority: flat.hardware_priority,
                reboot_batch: flat.reboot_batch,
                overcommit: flat.overcommit,
            }),
        }
    }
}

impl From<Cell> for Flat {
    fn from(cell: Cell) -> Self {
        let attributes = Arc::unwrap_or_clone(cell.attributes);
        Self {
            cell: cell.cell,
            zone: attributes.zone,
            zone_number: cell.zone_number,
            index: cell.index,
            stacks: attributes.stacks,
            total: cell.total,
            available: cell.available,
            starting: cell.starting,
            apps: cell.apps,
            tasks: cell.tasks,
            placement_tags: attributes.placement_tags,
            optional_placement_tags: attributes.optional_placement_tags,
            volume_drivers: attributes.volume_drivers,
            volumes: cell.volumes,
            cached_blobs: cell.cached_blobs,
            evacuating: cell.evacuating,
            status: attributes.status,
            reserved: attributes.reserved,
            control_plane: attributes.control_plane,
            networks: attributes.networks,
            traits: attributes.traits,
            platform: attributes.platform,
            next_reboot: cell.next_reboot,
            last_boot: cell.last_boot,
            rack: attributes.rack,
            hardware_priority: attributes.hardware_priority,
            owners: cell.owners,
            tags: cell.tags,
            cpu_capped: cell.cpu_capped,
            cpu_uncapped: cell.cpu_uncapped,
            reboot_batch: attributes.reboot_batch,
            overcommit: attributes.overcommit,
            recent_starts: cell.recent_starts,
        }
    }
}

fn is_default_zone(zone: &str) -> bool {
    zone == "default"
}
fn is_running(status: &str) -> bool {
    status == "running"
}
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &u32) -> bool {
    *n == 0
}
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero_i(n: &i64) -> bool {
    *n == 0
}
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_false(b: &bool) -> bool {
    !*b
}
