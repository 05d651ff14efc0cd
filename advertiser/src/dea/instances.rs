//! Messages about instances: `dea.stop`, `dea.update`, `dea.find.droplet`, `dea.heartbeat`, `droplet.exited`.

use std::fmt;

use placement::Invalid;
use serde::{Serialize, Serializer};

use super::{DeaBody, DeaFields, DeaNumber, Hidden};

/// The state of an instance of a DEA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeaInstanceState {
    /// Accepted.
    Born,
    /// Being started.
    Starting,
    /// Up.
    Running,
    /// Being ended.
    Stopping,
    /// Ended on request.
    Stopped,
    /// Failed.
    Crashed,
    /// Being recovered after a restart of the DEA.
    Resuming,
    /// Running on a DEA that is being emptied.
    Evacuating,
}

impl DeaInstanceState {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Born, "BORN"),
        (Self::Starting, "STARTING"),
        (Self::Running, "RUNNING"),
        (Self::Stopping, "STOPPING"),
        (Self::Stopped, "STOPPED"),
        (Self::Crashed, "CRASHED"),
        (Self::Resuming, "RESUMING"),
        (Self::Evacuating, "EVACUATING"),
    ];

    /// Returns its name in messages.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.into_iter().find(|(state, _)| *state == self);
        found.map_or("", |(_, name)| name)
    }

    /// Returns the state with this name, in any case.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|(_, known)| known.eq_ignore_ascii_case(name));
        found.map(|(state, _)| state)
    }

    fn from_field(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        let name = fields.text("state");
        Self::of_name(&name).ok_or_else(|| unknown_state("state"))
    }
}

impl fmt::Display for DeaInstanceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for DeaInstanceState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

fn unknown_state(field: &str) -> Invalid {
    let names: Vec<&str> = DeaInstanceState::ALL.map(|(_, name)| name).to_vec();
    let expected = format!("one of {}", names.join(", "));
    Invalid::new(field, "another text", expected)
}

/// A filter for instances, and the body of `dea.stop`. An empty list does not filter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaFilter {
    /// The app.
    pub droplet: String,
    /// Only instances of this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Only these instances; read from `instance_ids` as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<String>,
    /// Only instances with these indices.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub indices: Vec<u32>,
    /// Only instances in these states.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<DeaInstanceState>,
}

impl DeaFilter {
    /// Returns whether this instance matches.
    pub fn matches(&self, instance: &DeaInstance) -> bool {
        fn wanted<T: PartialEq>(list: &[T], item: &T) -> bool {
            list.is_empty() || list.contains(item)
        }
        self.droplet == instance.droplet
            && self.version.as_ref().is_none_or(|v| *v == instance.version)
            && wanted(&self.instances, &instance.instance)
            && wanted(&self.indices, &instance.index)
            && wanted(&self.states, &instance.state)
    }
}

impl DeaBody for DeaFilter {
    /// An unreadable filter makes the message unusable: without it, more instances would match.
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        let mut instances = fields.all("instances", |entry| Some(entry.as_str()?.to_owned()))?;
        instances.extend(fields.all("instance_ids", |entry| Some(entry.as_str()?.to_owned()))?);
        let index = |entry: &serde_json::Value| u32::try_from(entry.as_u64()?).ok();
        let state = |entry: &serde_json::Value| DeaInstanceState::of_name(entry.as_str()?);
        Ok(Self {
            droplet: fields.name("droplet")?,
            version: match fields.value("version") {
                None | Some(serde_json::Value::Null) => None,
                Some(_) => Some(fields.name("version")?),
            },
            instances,
            indices: fields.all("indices", index)?,
            states: fields.all("states", state)?,
        })
    }
}

/// `dea.update`: the routes and the version of an app.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaUpdate {
    /// The app.
    pub droplet: String,
    /// The host names that are routed to it.
    pub uris: Vec<String>,
    /// Its version; instances of another version get a new id.
    pub version: String,
}

impl DeaBody for DeaUpdate {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            droplet: fields.name("droplet")?,
            uris: fields.texts("uris"),
            version: fields.text("version"),
        })
    }
}

/// `dea.find.droplet`: every DEA answers once for each matching instance; DEAs without one do not answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaFind {
    /// Which instances.
    #[serde(flatten)]
    pub filter: DeaFilter,
    /// Whether the reply has [`DeaFound::stats`].
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub include_stats: bool,
    /// Requests [`DeaFound::file_uri_v2`], even when it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl DeaBody for DeaFind {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        let asks = fields.value("path").is_some();
        Ok(Self {
            filter: DeaFilter::from_fields(fields)?,
            include_stats: fields.flag("include_stats"),
            path: asks.then(|| fields.text("path")),
        })
    }
}

/// The reply to `dea.find.droplet`: one instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeaFound {
    /// The DEA.
    pub dea: String,
    /// The instance.
    #[serde(flatten)]
    pub instance: DeaInstance,
    /// The directory of its files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged: Option<String>,
    /// The address of its files; whoever has it may read them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_uri_v2: Option<Hidden<String>>,
    /// What it uses, if requested and running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<DeaStats>,
}

impl DeaBody for DeaFound {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        let stats = fields.within("stats");
        Ok(Self {
            stats: stats.map(|mut stats| DeaStats::of(&mut stats)),
            dea: fields.name("dea")?,
            instance: DeaInstance::from_fields(fields)?,
            staged: fields.optional_text("staged"),
            file_uri_v2: fields.optional_text("file_uri_v2").map(Hidden),
        })
    }
}

/// An instance, in replies and heartbeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeaInstance {
    /// `default`; only in heartbeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cc_partition: Option<String>,
    /// The app.
    pub droplet: String,
    /// The app's version.
    pub version: String,
    /// Its id, given by the DEA.
    pub instance: String,
    /// Its index.
    pub index: u32,
    /// Its state.
    pub state: DeaInstanceState,
    /// Since when it has been in its state, in seconds since the Unix epoch by the DEA's clock.
    pub state_timestamp: f64,
}

impl DeaBody for DeaInstance {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            cc_partition: fields.optional_text("cc_partition"),
            droplet: fields.name("droplet")?,
            version: fields.text("version"),
            instance: fields.text("instance"),
            index: fields.index("index")?,
            state: DeaInstanceState::from_field(fields)?,
            state_timestamp: fields.expected_number("state_timestamp").as_f64(),
        })
    }
}

/// What a running instance uses. Memory and disk are in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeaStats {
    /// The app's name.
    pub name: String,
    /// The host names that are routed to it.
    pub uris: Vec<String>,
    /// The DEA's address.
    pub host: String,
    /// Its port.
    pub port: Option<i64>,
    /// Seconds.
    pub uptime: DeaNumber,
    /// Its memory limit.
    pub mem_quota: DeaNumber,
    /// Its disk limit.
    pub disk_quota: DeaNumber,
    /// Its limit of open files.
    pub fds_quota: DeaNumber,
    /// What it uses.
    pub usage: DeaUsage,
}

impl DeaStats {
    fn of(fields: &mut DeaFields<'_>) -> Self {
        let usage = fields.within("usage");
        Self {
            usage: usage
                .map(|mut usage| DeaUsage::of(&mut usage))
                .unwrap_or_default(),
            name: fields.text("name"),
            uris: fields.texts("uris"),
            host: fields.text("host"),
            port: fields.integer("port"),
            uptime: fields.number("uptime").unwrap_or_default(),
            mem_quota: fields.number("mem_quota").unwrap_or_default(),
            disk_quota: fields.number("disk_quota").unwrap_or_default(),
            fds_quota: fields.number("fds_quota").unwrap_or_default(),
        }
    }
}

/// What an instance used when it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeaUsage {
    /// When it was measured, as `2015-12-13 09:48:20 +0000`.
    pub time: String,
    /// Cores.
    pub cpu: DeaNumber,
    /// Bytes (KiB until December 2013).
    pub mem: DeaNumber,
    /// Bytes.
    pub disk: DeaNumber,
}

impl DeaUsage {
    fn of(fields: &mut DeaFields<'_>) -> Self {
        Self {
            time: fields.text("time"),
            cpu: fields.number("cpu").unwrap_or_default(),
            mem: fields.number("mem").unwrap_or_default(),
            disk: fields.number("disk").unwrap_or_default(),
        }
    }
}

/// `dea.heartbeat`: every instance that is starting, running, crashed or evacuating.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeaHeartbeat {
    /// The instances.
    pub droplets: Vec<DeaInstance>,
    /// The DEA.
    pub dea: String,
}

impl DeaBody for DeaHeartbeat {
    /// Instances that cannot be read are odd, and skipped.
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            dea: fields.name("dea")?,
            droplets: fields.bodies("droplets"),
        })
    }
}

/// `droplet.exited`: an instance has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaExited {
    /// `default`.
    pub cc_partition: String,
    /// The app.
    pub droplet: String,
    /// The app's version.
    pub version: String,
    /// The instance.
    pub instance: String,
    /// Its index.
    pub index: u32,
    /// `CRASHED`, `DEA_EVACUATION`, `STOPPED` or `DEA_SHUTDOWN`.
    pub reason: String,
    /// The exit code; -1 if there is none.
    pub exit_status: i64,
    /// Why, in words.
    pub exit_description: String,
    /// When it crashed, in seconds since the Unix epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crash_timestamp: Option<i64>,
}

impl DeaExited {
    /// Returns whether it crashed, by the rule of Cloud Controllers.
    pub fn is_crash(&self) -> bool {
        self.reason.eq_ignore_ascii_case("crashed")
    }

    /// Returns whether the DEA refused it for lack of room: it never ran.
    pub fn is_refusal(&self) -> bool {
        let description = self.exit_description.to_ascii_lowercase();
        let lacks = |what: &str| description.starts_with(&format!("not enough {what} resource"));
        self.is_crash() && self.exit_status == -1 && (lacks("memory") || lacks("disk"))
    }
}

impl DeaBody for DeaExited {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            cc_partition: fields.text("cc_partition"),
            droplet: fields.name("droplet")?,
            version: fields.text("version"),
            instance: fields.text("instance"),
            index: fields.index("index")?,
            reason: fields.text("reason"),
            exit_status: fields.integer("exit_status").unwrap_or(-1),
            exit_description: fields.text("exit_description"),
            crash_timestamp: fields.integer("crash_timestamp"),
        })
    }
}
