//! `run.staging`: what a request says about the staging of an app, and the corresponding messages to DEAs.

use std::fmt;

use placement::{Invalid, Staging};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{DeaBody, DeaFields, DeaStagingStart, Hidden};

/// The staging of an app, as passed to the script that does it. What a Cloud Controller did not send is null or empty.
#[derive(Clone, Default, PartialEq, Serialize)]
pub struct StagingRun {
    /// The app.
    pub app_id: String,
    /// The task.
    pub task_id: String,
    /// The stack.
    pub stack: String,
    /// The address of the app's source; like the other addresses, it may contain a user and a password.
    pub download_uri: Hidden<String>,
    /// The address for the droplet.
    pub upload_uri: Hidden<String>,
    /// The address of the buildpack's cache; none if there is none.
    pub buildpack_cache_download_uri: Hidden<Option<String>>,
    /// The address for the buildpack's new cache.
    pub buildpack_cache_upload_uri: Hidden<Option<String>>,
    /// Services, resources, environment, buildpack.
    pub properties: Hidden<Map<String, Value>>,
    /// The buildpacks, each with its address.
    pub admin_buildpacks: Hidden<Vec<Value>>,
    /// The addresses that it may connect to.
    pub egress_network_rules: Vec<Value>,
    /// `VCAP_APPLICATION` of the app.
    pub vcap_application: Hidden<Map<String, Value>>,
}

impl fmt::Debug for StagingRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("StagingRun");
        text.field("app_id", &self.app_id)
            .field("task_id", &self.task_id)
            .field("stack", &self.stack);
        text.finish_non_exhaustive()
    }
}

impl StagingRun {
    /// Reads the `run.staging` of a request. Odd fields are rejected, because nobody else checks them.
    pub fn of(staging: &Staging) -> Result<Self, Invalid> {
        let within = |mut invalid: Invalid| {
            invalid.field = format!("run.staging.{}", invalid.field);
            invalid
        };
        let body = serde_json::to_vec(&staging.0).unwrap_or_default();
        let read = Self::read(&body).map_err(|malformed| within(malformed.why))?;
        match read.odd.first.first() {
            Some(odd) => Err(within(odd.clone())),
            None => Ok(read.body),
        }
    }

    /// Returns what a Cloud Controller wants staged.
    pub fn of_start(start: &DeaStagingStart) -> Self {
        Self {
            app_id: start.app_id.clone(),
            task_id: start.task_id.clone(),
            stack: start.stack.clone(),
            download_uri: start.download_uri.clone(),
            upload_uri: start.upload_uri.clone(),
            buildpack_cache_download_uri: start.buildpack_cache_download_uri.clone(),
            buildpack_cache_upload_uri: start.buildpack_cache_upload_uri.clone(),
            properties: start.properties.clone(),
            admin_buildpacks: start.admin_buildpacks.clone(),
            egress_network_rules: start.egress_network_rules.clone(),
            vcap_application: start.start_message.vcap_application.clone(),
        }
    }

    /// Returns the staging as a request carries it.
    pub fn to_staging(&self) -> Staging {
        match serde_json::to_value(self) {
            Ok(Value::Object(map)) => Staging(map),
            _ => Staging::default(),
        }
    }
}

impl DeaBody for StagingRun {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        let mut address = |key: &str| {
            let text = fields.text(key);
            let missing = Invalid::new(key, "nothing", "an address");
            (!text.is_empty()).then_some(Hidden(text)).ok_or(missing)
        };
        let (download_uri, upload_uri) = (address("download_uri")?, address("upload_uri")?);
        let object = |map: Option<&Map<String, Value>>| Hidden(map.cloned().unwrap_or_default());
        Ok(Self {
            app_id: fields.text("app_id"),
            task_id: fields.text("task_id"),
            stack: fields.text("stack"),
            download_uri,
            upload_uri,
            buildpack_cache_download_uri: Hidden(
                fields.optional_text("buildpack_cache_download_uri"),
            ),
            buildpack_cache_upload_uri: Hidden(fields.optional_text("buildpack_cache_upload_uri")),
            properties: object(fields.object("properties")),
            admin_buildpacks: Hidden(fields.list("admin_buildpacks").to_vec()),
            egress_network_rules: fields.list("egress_network_rules").to_vec(),
            vcap_application: object(fields.object("vcap_application")),
        })
    }
}
