//! What a DEA says about itself: `dea.advertise`, `staging.advertise`, `dea.start`, `dea.shutdown`, `dea.status`,
//! `dea.discover`.

use std::collections::BTreeMap;

use placement::{Invalid, MAX_AMOUNT, Resources, check_name};
use serde::Serialize;
use serde_json::Value;

use super::{DeaBody, DeaFields, DeaLimits, DeaNumber};

/// The zone of a DEA that does not name one.
pub const DEFAULT_ZONE: &str = "default";
/// The most apps in an advertisement; further ones are odd.
const MAX_APPS: usize = 10_000;

/// `dea.advertise`: the resources that a DEA has left. Memory and disk are in MB of 2^20 bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeaAdvertisement {
    /// The DEA's id, new at each start.
    pub id: String,
    /// The names of its stacks.
    pub stacks: DeaStacks,
    /// Memory capacity less what is reserved; may be 0 or negative.
    pub available_memory: DeaNumber,
    /// The same for disk; none = unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_disk: Option<DeaNumber>,
    /// Its instances by app, whatever their state.
    pub app_id_to_count: BTreeMap<String, u32>,
    /// Its zone.
    pub placement_properties: DeaPlacementProperties,
    /// Its HTTPS endpoint (from March 2016).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// The stacks of a DEA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum DeaStacks {
    /// The list of names.
    List(Vec<String>),
    /// One text in place of a list.
    Text(String),
}

impl Default for DeaStacks {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl DeaStacks {
    /// Returns whether a Cloud Controller uses the DEA for this stack: exactly this name in a list, or any substring of
    /// a text that replaces the list.
    pub fn offers(&self, stack: &str) -> bool {
        match self {
            Self::List(names) => names.iter().any(|name| name == stack),
            Self::Text(text) => text.contains(stack),
        }
    }

    /// Returns their names.
    pub fn names(&self) -> &[String] {
        match self {
            Self::List(names) => names,
            Self::Text(text) => std::slice::from_ref(text),
        }
    }
}

/// The zone of a DEA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeaPlacementProperties {
    /// Its zone; none = null, which a Cloud Controller treats as a zone of its own.
    pub zone: Option<String>,
}

impl Default for DeaPlacementProperties {
    fn default() -> Self {
        Self {
            zone: Some(DEFAULT_ZONE.to_owned()),
        }
    }
}

impl DeaAdvertisement {
    /// Returns the zone, or `(null)` if it is null.
    pub fn zone(&self) -> &str {
        let zone = self.placement_properties.zone.as_deref();
        zone.unwrap_or("(null)")
    }

    /// Returns how many instances of this app it has.
    pub fn count_of(&self, app: &str) -> u32 {
        self.app_id_to_count.get(app).copied().unwrap_or(0)
    }

    /// Returns what it has left, in whole MB.
    pub fn available(&self) -> Resources {
        let whole = |mb: DeaNumber| mb.floor().clamp(-MAX_AMOUNT, MAX_AMOUNT);
        Resources {
            memory_mb: whole(self.available_memory),
            disk_mb: self.available_disk.map(whole),
            ..Resources::default()
        }
    }
}

impl DeaBody for DeaAdvertisement {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            id: fields.name("id")?,
            placement_properties: placement_properties(fields),
            available_memory: fields.expected_number("available_memory"),
            available_disk: fields.number("available_disk"),
            stacks: stacks(fields),
            url: fields.optional_text("url"),
            app_id_to_count: counts(fields),
        })
    }
}

/// Reads the zone. A missing object and an object without a zone stand for the default zone; null was sent for some
/// time.
fn placement_properties(fields: &mut DeaFields<'_>) -> DeaPlacementProperties {
    let key = "placement_properties";
    if fields.value(key).is_some_and(Value::is_null) {
        fields.note(key, "an object with a zone");
    }
    let mut properties = DeaPlacementProperties::default();
    if let Some(mut within) = fields.within(key)
        && within.value("zone").is_some()
    {
        if within.value("zone").is_some_and(Value::is_null) {
            within.note("zone", "the name of a zone");
        }
        properties.zone = within.optional_text("zone");
    }
    properties
}

fn stacks(fields: &mut DeaFields<'_>) -> DeaStacks {
    let key = "stacks";
    match fields.value(key) {
        Some(Value::String(text)) => {
            fields.note(key, "a list of texts");
            DeaStacks::Text(text.clone())
        }
        Some(Value::Array(_)) => DeaStacks::List(fields.texts(key)),
        _ => {
            fields.note(key, "a list of texts");
            DeaStacks::default()
        }
    }
}

fn counts(fields: &mut DeaFields<'_>) -> BTreeMap<String, u32> {
    let key = "app_id_to_count";
    let mut counts = BTreeMap::new();
    if fields.value(key).is_none_or(Value::is_null) {
        fields.note(key, "an object with a count for each app");
    }
    let Some(mut within) = fields.within(key) else {
        return counts;
    };
    for app in within.keys() {
        let count = within.integer(app);
        match count.and_then(|count| u32::try_from(count).ok()) {
            Some(count) if check_name(key, app).is_ok() && counts.len() < MAX_APPS => {
                counts.insert(app.clone(), count);
            }
            _ => within.note(
                app,
                "the name of an app and its count, for at most 10000 apps",
            ),
        }
    }
    counts
}

/// `staging.advertise`: what a DEA has left for staging.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeaStagingAdvertisement {
    /// The DEA.
    pub id: String,
    /// The names of its stacks.
    pub stacks: DeaStacks,
    /// MB.
    pub available_memory: DeaNumber,
    /// MB; none = unlimited (until April 2014).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_disk: Option<DeaNumber>,
}

impl DeaBody for DeaStagingAdvertisement {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            id: fields.name("id")?,
            stacks: stacks(fields),
            available_memory: fields.expected_number("available_memory"),
            available_disk: fields.number("available_disk"),
        })
    }
}

/// `dea.start`, and the reply to `dea.discover`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaHello {
    /// The DEA.
    pub id: String,
    /// Its address.
    pub ip: String,
    /// The version of the DEA program, which is always `0.0.1`.
    pub version: String,
    /// The port of its file viewer (until December 2013).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i64>,
}

impl DeaBody for DeaHello {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            id: fields.name("id")?,
            ip: fields.text("ip"),
            version: fields.text("version"),
            port: fields.integer("port"),
        })
    }
}

/// `dea.shutdown`: the DEA takes no more work. What it runs may continue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaShutdown {
    /// The DEA.
    pub id: String,
    /// Its address.
    pub ip: String,
    /// The version of the DEA program.
    pub version: String,
    /// Its instances by app.
    pub app_id_to_count: BTreeMap<String, u32>,
}

impl DeaBody for DeaShutdown {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            id: fields.name("id")?,
            ip: fields.text("ip"),
            version: fields.text("version"),
            app_id_to_count: counts(fields),
        })
    }
}

/// The reply to `dea.status`. Memory is in MB.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeaStatus {
    /// Its id, address and version.
    #[serde(flatten)]
    pub hello: DeaHello,
    /// Capacity.
    pub max_memory: DeaNumber,
    /// Reserved by instances and staging.
    pub reserved_memory: DeaNumber,
    /// Used.
    pub used_memory: DeaNumber,
    /// Always null.
    pub num_clients: Option<i64>,
}

impl DeaBody for DeaStatus {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            hello: DeaHello::from_fields(fields)?,
            max_memory: fields.expected_number("max_memory"),
            reserved_memory: fields.expected_number("reserved_memory"),
            used_memory: fields.expected_number("used_memory"),
            num_clients: fields.integer("num_clients"),
        })
    }
}

/// `dea.discover`: asks who has room for an app; sent by Cloud Controllers of the first generation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaDiscover {
    /// The app.
    pub droplet: String,
    /// What an instance needs.
    pub limits: DeaLimits,
    /// Its name.
    pub name: String,
    /// What it runs on.
    pub runtime: String,
    /// Whether it is for production.
    pub prod: bool,
    /// The hash of the droplet.
    pub sha: String,
}

impl DeaBody for DeaDiscover {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            droplet: fields.name("droplet")?,
            limits: DeaLimits::of(fields),
            name: fields.text("name"),
            runtime: fields.text("runtime"),
            prod: fields.flag("prod"),
            sha: fields.text("sha"),
        })
    }
}

impl DeaDiscover {
    /// Returns how long a DEA waits before it answers, in ms: the emptiest one answers first. `instances` counts its
    /// instances of the app; memory is in any unit.
    pub fn delay_ms(instances: u32, reserved_memory: u64, memory: u64) -> u64 {
        let used = reserved_memory.saturating_mul(100) / memory.max(1);
        used.saturating_add(10 * u64::from(instances)).min(250)
    }
}
