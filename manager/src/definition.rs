//! What a user writes: an app is a start request plus rules for crashes and updates.

use std::sync::Arc;

use placement::{HealthCheck, Invalid, Kind, MAX_INSTANCES, Request, Span};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shared::wire::{WireError, check_version, code, parse, unknown_fields};

use crate::rules::{CrashPolicy, UpdateRules, check_rules};

/// The largest definition, in bytes. A stored value holds two of its templates and must stay below a NATS server's
/// usual `max_payload` of 1 MiB.
pub const MAX_DEFINITION: usize = 400 * 1024;

/// Fields of a definition that a start request does not have.
const OWN_FIELDS: [&str; 3] = ["v", "crash", "update"];

/// The desired state of an app: what is to run, and how many instances of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppDefinition {
    /// The number of instances; their indices begin at 0.
    pub instances: u32,
    /// What every start request for it contains, except for its id, `instances` and `indices`.
    pub template: Arc<Request>,
    /// When crashed instances are restarted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub crash: CrashPolicy,
    /// How a new version replaces the old one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub update: UpdateRules,
}

fn is_missing(error: &WireError) -> bool {
    error.message.contains("missing field")
}

fn is_own(field: &str) -> bool {
    OWN_FIELDS.contains(&field)
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

#[derive(Deserialize)]
struct OwnFields {
    #[serde(default, deserialize_with = "placement::object::one")]
    crash: CrashPolicy,
    #[serde(default, deserialize_with = "placement::object::one")]
    update: UpdateRules,
}

impl AppDefinition {
    /// Reads a definition: a start request that may also have `crash` and `update`. Unknown fields are errors, as in
    /// any configuration, and so are fields that only make sense in a single start.
    pub fn read(body: &[u8]) -> Result<Self, WireError> {
        if body.len() > MAX_DEFINITION {
            let message = format!(
                "a definition of {} bytes; expected at most {MAX_DEFINITION}",
                body.len()
            );
            return Err(WireError::new(code::INVALID_REQUEST, message));
        }
        check_version(body)?;
        let mut unknown = Vec::new();
        let parsed = parse(body, &mut unknown);
        let missing = parsed.as_ref().err().filter(|error| is_missing(error));
        if missing.is_some() {
            // a misspelt field may be why another one seems to be missing
            unknown = unknown_fields::<Request>(body);
        }
        let own = |field: &str| is_own(field.split('.').next().unwrap_or_default());
        if let Some(field) = unknown.iter().find(|field| !own(field)) {
            let also = missing.map_or(String::new(), |error| format!("; also: {}", error.message));
            let known = match field.as_str() {
                "run.(hidden)" => "command, env, port, secrets, source, droplet or staging",
                _ => "a field of a start request, crash or update",
            };
            let expected = format!("{known}{also}");
            return Err(Invalid::new(field.as_str(), "the field", expected).into());
        }
        let mut template: Request = parsed?;
        let OwnFields { crash, update } = shared::wire::read(body)?;
        let instances = template.instances;
        check_template(&template)?;
        template.instances = 1;
        check_rules(&crash, &update)?;
        Ok(Self {
            instances,
            template: Arc::new(template),
            crash,
            update,
        })
    }

    /// Returns the app's name.
    pub fn app(&self) -> &str {
        &self.template.app
    }

    /// Returns the definition as its user writes it, in the form that [`AppDefinition::read`] reads.
    pub fn written(&self) -> Map<String, Value> {
        let mut map = match serde_json::to_value(&*self.template) {
            Ok(Value::Object(map)) => map,
            _ => Map::new(),
        };
        map.insert("instances".into(), self.instances.into());
        if let Ok(Value::Object(own)) = serde_json::to_value(self) {
            let rules = own.into_iter().filter(|(field, _)| is_own(field));
            map.extend(rules);
        }
        map
    }

    /// Returns the same, but only the names of environment variables, and the address of a source without credentials.
    pub fn shown(&self) -> Map<String, Value> {
        let mut map = self.written();
        let run = self.template.run.as_ref();
        if let Some(source) = run.and_then(|run| run.source.as_ref())
            && let Some(url) = map
                .get_mut("run")
                .and_then(|run| run.pointer_mut("/source/url"))
        {
            *url = source.shown_url().into();
        }
        for form in ["droplet", "staging"] {
            let secret = map.get_mut("run").and_then(|run| run.get_mut(form));
            if let Some(secret) = secret {
                *secret = "(hidden)".into();
            }
        }
        let env = map.get_mut("run").and_then(|run| run.get_mut("env"));
        if let Some(env) = env
            && let Value::Object(variables) = env
        {
            *env = variables
                .keys()
                .map(|name| Value::from(name.as_str()))
                .collect();
        }
        map
    }

    /// Returns whether instances of the other definition are as good as those of this one: they run the same with the
    /// same health check.
    pub(crate) fn runs_as(&self, other: &Self) -> bool {
        self.template == other.template
    }

    /// Returns how long a start may take until the instance is healthy.
    pub(crate) fn start_timeout(&self) -> Span {
        let health = self.template.health.as_deref();
        health.map_or_else(|| HealthCheck::default().start_timeout, |h| h.start_timeout)
    }
}

fn check_template(template: &Request) -> Result<(), Invalid> {
    template.check()?;
    if template.kind == Kind::Task {
        let expected = "\"lrp\"; a task runs once and is started by a start request";
        return Err(Invalid::new("kind", "\"task\"", expected));
    }
    let single = "no such field in an app: its manager sets it for each start";
    for (field, there) in [
        ("id", !template.id.is_empty()),
        ("indices", template.indices.is_some()),
        ("queue_timeout", template.queue_timeout.is_some()),
        ("traceparent", template.traceparent.is_some()),
        ("exclude_cells", !template.exclude_cells.is_empty()),
    ] {
        if there {
            return Err(Invalid::new(field, "a value", single));
        }
    }
    if template.run.is_none() {
        let expected = r#"what to execute, such as {"command":["sleep","60"]}"#;
        return Err(Invalid::new("run", "nothing", expected));
    }
    Ok(())
}

/// Checks a number of instances.
pub(crate) fn check_instances(instances: u32) -> Result<(), Invalid> {
    if (1..=MAX_INSTANCES).contains(&instances) {
        return Ok(());
    }
    let expected = format!("a number from 1 to {MAX_INSTANCES}; stop the app for none");
    Err(Invalid::new("instances", instances, expected))
}
