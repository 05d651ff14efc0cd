//! Staging: `staging.<id>.start` with its two replies, and `staging.stop`.

use std::fmt;

use placement::Invalid;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{DeaBody, DeaFields, DeaStart, Hidden};

/// `staging.<id>.start`: requests that an app is made into a droplet. After the second reply the same DEA starts index
/// 0 by itself.
#[derive(Clone, Default, PartialEq, Serialize)]
pub struct DeaStagingStart {
    /// The app.
    pub app_id: String,
    /// The stack.
    pub stack: String,
    /// The task.
    pub task_id: String,
    /// Services, resources, environment, buildpack.
    pub properties: Hidden<Map<String, Value>>,
    /// The address of the app's source.
    pub download_uri: Hidden<String>,
    /// The address for the droplet.
    pub upload_uri: Hidden<String>,
    /// The address of the buildpack's cache; null if there is none.
    pub buildpack_cache_download_uri: Hidden<Option<String>>,
    /// The address for the buildpack's new cache.
    pub buildpack_cache_upload_uri: Hidden<Option<String>>,
    /// The start of index 0, without a hash.
    pub start_message: DeaStart,
    /// The buildpacks, each with its address.
    pub admin_buildpacks: Hidden<Vec<Value>>,
    /// The addresses that it may connect to.
    pub egress_network_rules: Vec<Value>,
    /// Whether replies may come over HTTP (from March 2016).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepts_http: Option<bool>,
}

impl fmt::Debug for DeaStagingStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("DeaStagingStart");
        text.field("app_id", &self.app_id)
            .field("task_id", &self.task_id)
            .field("stack", &self.stack);
        text.finish_non_exhaustive()
    }
}

impl DeaBody for DeaStagingStart {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        let missing = Invalid::new("start_message", "nothing", "the start of index 0");
        let start = fields.within("start_message");
        let start_message = start
            .ok_or(missing)
            .and_then(|mut start| DeaStart::from_fields(&mut start))?;
        let properties = fields.object("properties").cloned();
        let has_http = fields.value("accepts_http").is_some();
        Ok(Self {
            app_id: fields.name("app_id")?,
            stack: fields.text("stack"),
            task_id: fields.name("task_id")?,
            properties: Hidden(properties.unwrap_or_default()),
            download_uri: Hidden(fields.text("download_uri")),
            upload_uri: Hidden(fields.text("upload_uri")),
            buildpack_cache_download_uri: Hidden(
                fields.optional_text("buildpack_cache_download_uri"),
            ),
            buildpack_cache_upload_uri: Hidden(fields.optional_text("buildpack_cache_upload_uri")),
            start_message,
            admin_buildpacks: Hidden(fields.list("admin_buildpacks").to_vec()),
            egress_network_rules: fields.list("egress_network_rules").to_vec(),
            accepts_http: has_http.then(|| fields.flag("accepts_http")),
        })
    }
}

/// The first reply: staging has begun, or cannot begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaStagingBegun {
    /// The task.
    pub task_id: String,
    /// The address of its output; whoever has it may read it.
    pub task_streaming_log_url: Hidden<Option<String>>,
    /// Why it failed; null if it did not.
    pub error: Option<String>,
}

impl DeaBody for DeaStagingBegun {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            task_id: fields.name("task_id")?,
            task_streaming_log_url: Hidden(fields.optional_text("task_streaming_log_url")),
            error: fields.optional_text("error"),
        })
    }
}

/// A reply in place of the others: there is no room for it, or it was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaStagingFailed {
    /// The task.
    pub task_id: String,
    /// Why.
    pub error: String,
}

impl DeaBody for DeaStagingFailed {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            task_id: fields.name("task_id")?,
            error: fields.text("error"),
        })
    }
}

/// The second reply: staging has ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeaStaged {
    /// The task.
    pub task_id: String,
    /// The buildpack that took the app.
    pub detected_buildpack: Option<String>,
    /// The buildpack's id.
    pub buildpack_key: Option<String>,
    /// The hash of the droplet.
    pub droplet_sha1: Option<String>,
    /// The command that starts it.
    pub detected_start_command: Hidden<Option<String>>,
    /// The processes of its Procfile.
    pub procfile: Hidden<Option<Value>>,
    /// The app (from 2016).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app_id: Option<String>,
    /// Its output (until 2013; later versions send it elsewhere).
    #[serde(skip_serializing_if = "is_nothing")]
    pub task_log: Hidden<Option<String>>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The error with a type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_info: Option<Map<String, Value>>,
}

fn is_nothing(text: &Hidden<Option<String>>) -> bool {
    text.0.is_none()
}

impl DeaBody for DeaStaged {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        let procfile = fields.value("procfile").filter(|value| !value.is_null());
        Ok(Self {
            task_id: fields.name("task_id")?,
            detected_buildpack: fields.optional_text("detected_buildpack"),
            buildpack_key: fields.optional_text("buildpack_key"),
            droplet_sha1: fields.optional_text("droplet_sha1"),
            detected_start_command: Hidden(fields.optional_text("detected_start_command")),
            procfile: Hidden(procfile.cloned()),
            app_id: fields.optional_text("app_id"),
            task_log: Hidden(fields.optional_text("task_log")),
            error: fields.optional_text("error"),
            error_info: fields.object("error_info").cloned(),
        })
    }
}

/// `staging.stop`: ends an app's staging.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaStagingStop {
    /// The app.
    pub app_id: String,
}

impl DeaBody for DeaStagingStop {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            app_id: fields.name("app_id")?,
        })
    }
}
