//! `run.droplet`: what a request says about a droplet, and the corresponding starts of DEAs.

use std::{collections::BTreeMap, fmt};

use placement::{Droplet, Invalid};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{DeaBody, DeaFields, DeaLimits, DeaStart, Hidden};

/// The limit of open files if a droplet has none.
const DEFAULT_FILES: i64 = 16_384;
/// The partition of nearly all deployed Cloud Controllers.
const DEFAULT_PARTITION: &str = "default";

/// A droplet, without what is specific to each instance.
#[derive(Clone, Default, PartialEq, Serialize)]
pub struct DropletRun {
    /// The address that it is fetched from; may contain a user and a password.
    pub uri: Hidden<String>,
    /// Its SHA-1; if none, it is not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha1: Option<String>,
    /// The app's name; if none, the app's id is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The stack; if none, the DEA's first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// The app's version, as in `VCAP_APPLICATION`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The host names that are routed to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub uris: Vec<String>,
    /// The services bound to it, with their credentials.
    pub services: Hidden<Vec<Value>>,
    /// Variables as `NAME=value`.
    pub environment: Hidden<Vec<String>>,
    /// The command to run instead of the droplet's own.
    pub start_command: Hidden<Option<String>>,
    /// Seconds until it must be healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check_timeout: Option<i64>,
    /// The limit of open files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fds: Option<i64>,
    /// The Cloud Controllers' partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cc_partition: Option<String>,
    /// `VCAP_APPLICATION`; if none, it is built from the other fields.
    pub vcap_application: Hidden<Option<Map<String, Value>>>,
    /// The addresses that it may connect to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub egress_network_rules: Vec<Value>,
    /// Whether it is for production.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub prod: bool,
    /// Whether it gets a console.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub console: bool,
    /// Its debug mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debug: Option<String>,
}

impl fmt::Debug for DropletRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("DropletRun");
        text.field("stack", &self.stack)
            .field("version", &self.version);
        text.finish_non_exhaustive()
    }
}

/// What is specific to one instance of a droplet.
#[derive(Clone, Copy, Debug)]
pub struct DropletInstance<'a> {
    /// The app.
    pub app: &'a str,
    /// The index.
    pub index: u32,
    /// MB.
    pub memory_mb: i64,
    /// MB.
    pub disk_mb: i64,
}

impl DropletRun {
    /// Reads the `run.droplet` of a request. Odd fields are rejected, because nobody else checks them.
    pub fn of(droplet: &Droplet) -> Result<Self, Invalid> {
        let within = |mut invalid: Invalid| {
            invalid.field = format!("run.droplet.{}", invalid.field);
            invalid
        };
        let body = serde_json::to_vec(&droplet.0).unwrap_or_default();
        let read = Self::read(&body).map_err(|malformed| within(malformed.why))?;
        match read.odd.first.first() {
            Some(odd) => Err(within(odd.clone())),
            None => Ok(read.body),
        }
    }

    /// Returns the droplet of a start, as a request carries it.
    pub fn of_start(start: &DeaStart) -> Self {
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Self {
            uri: start.executable_uri.clone(),
            sha1: start.sha1.clone(),
            name: text(&start.name),
            stack: text(&start.stack),
            version: text(&start.version),
            uris: start.uris.clone(),
            services: start.services.clone(),
            environment: start.env.clone(),
            start_command: start.start_command.clone(),
            health_check_timeout: start.health_check_timeout,
            fds: Some(start.limits.fds),
            cc_partition: text(&start.cc_partition),
            vcap_application: Hidden(Some(start.vcap_application.0.clone())),
            egress_network_rules: start.egress_network_rules.clone(),
            prod: start.prod,
            console: start.console,
            debug: start.debug.clone(),
        }
    }

    /// Returns the droplet as a request carries it.
    pub fn to_droplet(&self) -> Droplet {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => Droplet(map),
            _ => Droplet::default(),
        }
    }

    /// Returns the message with which a DEA starts one instance. `stack` is for droplets that name none.
    pub fn start(&self, instance: DropletInstance<'_>, stack: &str) -> DeaStart {
        let limits = DeaLimits {
            mem: instance.memory_mb,
            disk: instance.disk_mb,
            fds: self.fds.unwrap_or(DEFAULT_FILES),
        };
        let partition = self.cc_partition.as_deref().unwrap_or(DEFAULT_PARTITION);
        DeaStart {
            droplet: instance.app.to_owned(),
            name: self.name.as_deref().unwrap_or(instance.app).to_owned(),
            stack: self.stack.as_deref().unwrap_or(stack).to_owned(),
            uris: self.uris.clone(),
            prod: self.prod,
            sha1: self.sha1.clone(),
            executable_file: "deprecated".to_owned(),
            executable_uri: self.uri.clone(),
            version: self.version.clone().unwrap_or_default(),
            services: self.services.clone(),
            limits,
            env: self.environment.clone(),
            cc_partition: partition.to_owned(),
            console: self.console,
            debug: self.debug.clone(),
            start_command: self.start_command.clone(),
            health_check_timeout: self.health_check_timeout,
            vcap_application: Hidden(self.vcap_application(instance)),
            index: instance.index,
            egress_network_rules: self.egress_network_rules.clone(),
        }
    }

    /// Returns `VCAP_APPLICATION` as Cloud Controllers write it.
    fn vcap_application(&self, instance: DropletInstance<'_>) -> Map<String, Value> {
        if let Some(given) = &self.vcap_application.0 {
            return given.clone();
        }
        let name = self.name.as_deref().unwrap_or(instance.app);
        let fds = self.fds.unwrap_or(DEFAULT_FILES);
        let made = json!({
            "limits": {"mem": instance.memory_mb, "disk": instance.disk_mb, "fds": fds},
            "application_id": instance.app, "application_version": self.version,
            "application_name": name, "application_uris": self.uris,
            "version": self.version, "name": name, "uris": self.uris, "users": null,
        });
        made.as_object().cloned().unwrap_or_default()
    }

    /// Returns the variables that a DEA sets for an instance that can be reached at `port`; later ones replace earlier
    /// ones.
    pub fn variables(
        &self,
        instance: DropletInstance<'_>,
        id: &str,
        port: u16,
    ) -> Vec<(String, String)> {
        let mut application = self.vcap_application(instance);
        let own = json!({
            "instance_id": id, "instance_index": instance.index, "host": "0.0.0.0", "port": port,
        });
        application.extend(own.as_object().cloned().unwrap_or_default());
        let mut variables: Vec<(String, String)> = [
            ("VCAP_APPLICATION", Value::Object(application).to_string()),
            ("VCAP_SERVICES", self.vcap_services()),
            ("VCAP_APP_PORT", port.to_string()),
            ("VCAP_APP_HOST", "0.0.0.0".to_owned()),
            ("MEMORY_LIMIT", format!("{}m", instance.memory_mb)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        let given = self.environment.0.iter();
        let given = given.filter_map(|text| text.split_once('='));
        variables.extend(given.map(|(name, value)| (name.to_owned(), value.to_owned())));
        variables
    }

    /// Returns `VCAP_SERVICES`: the services by label.
    fn vcap_services(&self) -> String {
        let mut by_label: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
        for service in &self.services.0 {
            let label = service.get("label").and_then(Value::as_str);
            by_label
                .entry(label.unwrap_or_default())
                .or_default()
                .push(service);
        }
        json!(by_label).to_string()
    }
}

impl DeaBody for DropletRun {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        let uri = fields.text("uri");
        if uri.is_empty() {
            return Err(Invalid::new("uri", "nothing", "the address of the droplet"));
        }
        Ok(Self {
            uri: Hidden(uri),
            sha1: fields.optional_text("sha1"),
            name: fields.optional_text("name"),
            stack: fields.optional_text("stack"),
            version: fields.optional_text("version"),
            uris: fields.texts("uris"),
            services: Hidden(fields.list("services").to_vec()),
            environment: Hidden(environment(fields)?),
            start_command: Hidden(fields.optional_text("start_command")),
            health_check_timeout: fields.integer("health_check_timeout"),
            fds: fields.integer("fds"),
            cc_partition: fields.optional_text("cc_partition"),
            vcap_application: Hidden(fields.object("vcap_application").cloned()),
            egress_network_rules: fields.list("egress_network_rules").to_vec(),
            prod: fields.flag("prod"),
            console: fields.flag("console"),
            debug: fields.optional_text("debug"),
        })
    }
}

/// Reads a list of `NAME=value`, or an object of texts. The error does not quote values.
fn environment(fields: &mut DeaFields<'_>) -> Result<Vec<String>, Invalid> {
    let key = "environment";
    let fine = |text: &str| {
        let name = text.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| !name.is_empty()) && !text.contains('\0')
    };
    let list = match fields.value(key) {
        Some(Value::Object(map)) => map
            .iter()
            .map(|(name, value)| {
                let value = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                format!("{name}={value}")
            })
            .collect(),
        _ => fields.texts(key),
    };
    if list.iter().all(|text| fine(text)) {
        return Ok(list);
    }
    let expected = "NAME=value each, without NUL";
    Err(Invalid::new(key, "an entry without a name", expected))
}
