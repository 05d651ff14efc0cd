//! A template of generated apps: a request whose name and sizes may differ from app to app.

use std::collections::BTreeMap;

use placement::{Invalid, MAX_AMOUNT, Request, fields, in_json_terms};
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::{Map, Value};

use super::{Amount, Apps};
use crate::random::Random;

/// A request with drawn amounts. In a file, it has `name` instead of `app`, amounts in the form of [`Amount`], and any
/// other field of a request except `id` and `indices`.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    /// The app's name; `{n}` stands for the app's number in its table, from 0.
    pub name: String,
    /// Instances; default 1.
    pub instances: Amount,
    /// MiB per instance.
    pub memory_mb: Amount,
    /// MiB per instance.
    pub disk_mb: Amount,
    /// Thousandths of a core; default 0.
    pub cpu_millis: Amount,
    /// Named resources; default none.
    pub extra: BTreeMap<String, Amount>,
    /// All other fields; its name and amounts are ignored.
    pub request: Request,
}

impl Template {
    /// Draws the request of app number `n`.
    pub(crate) fn draw(&self, n: u32, random: &mut Random) -> Request {
        let instances = self.instances.sample(random);
        let extra = |(name, amount): (&String, &Amount)| (name.clone(), amount.sample(random));
        Request {
            extra: self.extra.iter().map(extra).collect(),
            app: self.name.replace("{n}", &n.to_string()),
            instances: u32::try_from(instances).unwrap_or(0),
            memory_mb: self.memory_mb.sample(random),
            disk_mb: self.disk_mb.sample(random),
            cpu_millis: self.cpu_millis.sample(random),
            ..self.request.clone()
        }
    }

    /// Rejects amounts out of bounds and, if there is more than one app, a fixed name.
    pub(crate) fn check(&self, at: &str, many: bool) -> Result<(), Invalid> {
        if many && !self.name.contains("{n}") {
            let expected = "a name with {n}, the number of the app";
            return Err(Invalid::new(
                format!("{at}.name"),
                format!("{:?}", self.name),
                expected,
            ));
        }
        let most = i64::from(placement::MAX_INSTANCES);
        check_range(at, "instances", &self.instances, 1, most)?;
        check_range(at, "memory_mb", &self.memory_mb, 0, MAX_AMOUNT)?;
        check_range(at, "disk_mb", &self.disk_mb, 0, MAX_AMOUNT)?;
        check_range(at, "cpu_millis", &self.cpu_millis, 0, MAX_AMOUNT)?;
        for (name, amount) in &self.extra {
            check_range(at, &format!("extra.{name}"), amount, 0, MAX_AMOUNT)?;
        }
        Ok(())
    }

    fn read(mut fields: Map<String, Value>) -> Result<Self, String> {
        for field in ["app", "id", "indices"] {
            if fields.contains_key(field) {
                let expected = "`name`, amounts and the other fields of a request";
                return Err(format!("unknown field `{field}`, expected {expected}"));
            }
        }
        let name: String = take(&mut fields, "name")?.ok_or("missing field `name`")?;
        let missing = |field: &str| format!("missing field `{field}`, expected an amount");
        let instances = take(&mut fields, "instances")?;
        let memory_mb = take(&mut fields, "memory_mb")?.ok_or_else(|| missing("memory_mb"))?;
        let disk_mb = take(&mut fields, "disk_mb")?.ok_or_else(|| missing("disk_mb"))?;
        let cpu_millis = take(&mut fields, "cpu_millis")?;
        let extra: Option<BTreeMap<String, Amount>> = take(&mut fields, "extra")?;
        fields.insert("app".into(), "app".into());
        fields.insert("memory_mb".into(), 0.into());
        fields.insert("disk_mb".into(), 0.into());
        Ok(Self {
            name,
            instances: instances.unwrap_or(Amount::Fixed(1)),
            memory_mb,
            disk_mb,
            cpu_millis: cpu_millis.unwrap_or(Amount::Fixed(0)),
            extra: extra.unwrap_or_default(),
            request: read_strict(Value::Object(fields))?,
        })
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(Map::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Maximum number of apps that arrive at the same time.
const MAX_COUNT: u32 = 1_000_000;

impl<'de> Deserialize<'de> for Apps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        let count = fields.remove("count").unwrap_or(Value::Null);
        let number = count.as_u64().and_then(|n| u32::try_from(n).ok());
        let Some(number) = number.filter(|n| (1..=MAX_COUNT).contains(n)) else {
            let expected = format!("a number from 1 to {MAX_COUNT}");
            return Err(D::Error::custom(format!(
                "count: {count} is not allowed; expected {expected}"
            )));
        };
        let template = Template::read(fields).map_err(D::Error::custom)?;
        Ok(Self {
            count: number,
            template,
        })
    }
}

fn check_range(at: &str, field: &str, amount: &Amount, low: i64, high: i64) -> Result<(), Invalid> {
    let field = format!("{at}.{field}");
    let out = [amount.low(), amount.high()]
        .into_iter()
        .find(|n| !(low..=high).contains(n));
    out.map_or(Ok(()), |n| {
        Err(Invalid::new(
            field,
            n,
            format!("a number from {low} to {high}"),
        ))
    })
}

/// Removes a field and reads it; errors name the field.
fn take<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
) -> Result<Option<T>, String> {
    let value = fields.remove(name);
    let read = value.map(serde_path_to_error::deserialize).transpose();
    read.map_err(|e| {
        let fault = plain(e.inner());
        match e.path().to_string().as_str() {
            "." => format!("{name}: {fault}"),
            path => format!("{name}.{path}: {fault}"),
        }
    })
}

/// Returns what is wrong with a value, in the terms of the file's format where the parser uses Rust's.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    in_json_terms(&text, false).unwrap_or(text)
}

/// Reads a request of a file; unknown fields are rejected.
pub(super) fn strict<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Request>, D::Error> {
    let value = Option::<Value>::deserialize(deserializer)?;
    value.map(read_strict).transpose().map_err(D::Error::custom)
}

fn read_strict(value: Value) -> Result<Request, String> {
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(value, &mut track);
    let read = serde_ignored::deserialize(tracked, |path| unknown.push(path.to_string()));
    let request: Request = read.map_err(|e| match track.path().to_string().as_str() {
        "." => plain(&e),
        path => format!("{path}: {}", plain(&e)),
    })?;
    match unknown.first() {
        Some(path) => {
            let name = path.rsplit('.').next().unwrap_or(path);
            let hint = fields::hint(name, fields::names::<Request>());
            Err(format!(
                "unknown field `{path}`, expected the fields of a request{hint}"
            ))
        }
        None => Ok(request),
    }
}
