//! Messages that routers and health managers exchange with DEAs and Cloud Controllers.

use std::collections::BTreeMap;

use placement::Invalid;
use serde::Serialize;

use super::{DeaBody, DeaFields};

/// `router.register` and `router.unregister`: the destination of requests for some host names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaRoute {
    /// The DEA; none for its directory server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dea: Option<String>,
    /// The app; none for the directory server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// The host names.
    pub uris: Vec<String>,
    /// The address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Labels.
    pub tags: BTreeMap<String, String>,
    /// The id with which the router identifies the instance to returning clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private_instance_id: Option<String>,
}

impl DeaBody for DeaRoute {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        let port = fields.index("port")?;
        let expected = "a port from 0 to 65535";
        Ok(Self {
            dea: fields.optional_text("dea"),
            app: fields.optional_text("app"),
            uris: fields.texts("uris"),
            host: fields.text("host"),
            port: u16::try_from(port).map_err(|_| Invalid::new("port", port, expected))?,
            tags: tags(fields),
            private_instance_id: fields.optional_text("private_instance_id"),
        })
    }
}

fn tags(fields: &mut DeaFields<'_>) -> BTreeMap<String, String> {
    let Some(mut tags) = fields.within("tags") else {
        return BTreeMap::new();
    };
    let keys: Vec<&String> = tags.keys().collect();
    let read = keys.into_iter();
    read.filter_map(|key| Some((key.clone(), tags.optional_text(key)?)))
        .collect()
}

/// `hm9000.start`: a health manager misses an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaMissing {
    /// The id of the message.
    pub message_id: String,
    /// The app.
    pub droplet: String,
    /// The app's version.
    pub version: String,
    /// The index that is missing.
    pub instance_index: u32,
}

impl DeaBody for DeaMissing {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            message_id: fields.text("message_id"),
            droplet: fields.name("droplet")?,
            version: fields.name("version")?,
            instance_index: fields.index("instance_index")?,
        })
    }
}

/// `hm9000.stop`: a health manager found a surplus instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeaSurplus {
    /// The id of the message.
    pub message_id: String,
    /// The app.
    pub droplet: String,
    /// The app's version.
    pub version: String,
    /// The instance.
    pub instance_guid: String,
    /// Its index.
    pub instance_index: u32,
    /// Whether another instance has the same index.
    pub is_duplicate: bool,
}

impl DeaBody for DeaSurplus {
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid> {
        Ok(Self {
            message_id: fields.text("message_id"),
            droplet: fields.name("droplet")?,
            version: fields.name("version")?,
            instance_guid: fields.name("instance_guid")?,
            instance_index: fields.index("instance_index")?,
            is_duplicate: fields.flag("is_duplicate"),
        })
    }
}
