//! `dea.<id>.start`: what a DEA is to run. It is full of credentials: only names and sizes are ever shown.

use std::fmt;

use placement::Invalid;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{DeaBody, DeaFields, Hidden};

/// The limits of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaLimits {
    /// MB.
    pub mem: i64,
    /// MB.
    pub disk: i64,
    /// Open files.
    pub fds: i64,
}

impl DeaLimits {
    /// Reads the `limits` of a body; absent ones are 0.
    pub(super) fn of(fields: &mut DeaFields<'_>) -> Self {
        let Some(mut limits) = fields.within("limits") else {
            return Self::default();
        };
        let mut limit = |key: &str| limits.integer(key).unwrap_or(0);
        Self {
            mem: limit("mem"),
            disk: limit("disk"),
            fds: limit("fds"),
        }
    }

    /// Reads the limits of a body that a DEA drops unless all three are present and are integers.
    fn required(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        let missing = Invalid::new("limits", "nothing", "an object with mem, disk and fds");
        let limits = fields.within("limits").ok_or(missing)?;
        Ok(Self {
            mem: limits.whole("mem")?,
            disk: limits.whole("disk")?,
            fds: limits.whole("fds")?,
        })
    }
}

/// A start of one instance.
#[derive(Clone, Default, PartialEq, Serialize)]
pub struct DeaStart {
    /// The app.
    pub droplet: String,
    /// Its name.
    pub name: String,
    /// The stack; on a DEA without it the instance crashes.
    pub stack: String,
    /// The host names that are routed to it.
    pub uris: Vec<String>,
    /// Whether it is for production; no longer used.
    pub prod: bool,
    /// The hash of the droplet; null inside a staging request.
    pub sha1: Option<String>,
    /// `deprecated`.
    #[serde(rename = "executableFile")]
    pub executable_file: String,
    /// The address of the droplet, with a user and a password.
    #[serde(rename = "executableUri")]
    pub executable_uri: Hidden<String>,
    /// The app's version.
    pub version: String,
    /// The services bound to it, with their credentials.
    pub services: Hidden<Vec<Value>>,
    /// Its limits.
    pub limits: DeaLimits,
    /// Variables as `NAME=value`.
    pub env: Hidden<Vec<String>>,
    /// `default`; a DEA drops a start without it.
    pub cc_partition: String,
    /// Whether it gets a console.
    pub console: bool,
    /// Its debug mode, such as `run`.
    pub debug: Option<String>,
    /// The command to run instead of the droplet's own.
    pub start_command: Hidden<Option<String>>,
    /// Seconds until it must be healthy; null = the DEA's default, 60.
    pub health_check_timeout: Option<i64>,
    /// `VCAP_APPLICATION` of the instance.
    pub vcap_application: Hidden<Map<String, Value>>,
    /// The index of the instance.
    pub index: u32,
    /// The addresses that it may connect to.
    pub egress_network_rules: Vec<Value>,
}

impl fmt::Debug for DeaStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("DeaStart");
        text.field("droplet", &self.droplet)
            .field("version", &self.version)
            .field("index", &self.index)
            .field("stack", &self.stack)
            .field("limits", &self.limits);
        text.finish_non_exhaustive()
    }
}

impl DeaBody for DeaStart {
    /// Rejects what a DEA drops.
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            droplet: fields.name("droplet")?,
            name: fields.text("name"),
            stack: fields.text("stack"),
            uris: fields.texts("uris"),
            prod: fields.flag("prod"),
            sha1: fields.optional_text("sha1"),
            executable_file: fields.text("executableFile"),
            executable_uri: Hidden(fields.text("executableUri")),
            version: fields.name("version")?,
            services: Hidden(fields.list("services").to_vec()),
            limits: DeaLimits::required(fields)?,
            env: Hidden(fields.texts("env")),
            cc_partition: fields.name("cc_partition")?,
            console: fields.flag("console"),
            debug: fields.optional_text("debug"),
            start_command: Hidden(fields.optional_text("start_command")),
            health_check_timeout: fields.integer("health_check_timeout"),
            vcap_application: Hidden(
                fields
                    .object("vcap_application")
                    .cloned()
                    .unwrap_or_default(),
            ),
            index: fields.index("index")?,
            egress_network_rules: fields.list("egress_network_rules").to_vec(),
        })
    }
}
