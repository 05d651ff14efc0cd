//! Attributes that operators change while a cell runs: which values are valid, and how they
//! override the configured ones. Pure: [`crate::operators`] keeps them in a file.

use std::collections::BTreeMap;

use placement::{AttributeShape as Shape, Attributes, Cell, Invalid, nearest};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::config::RepConfig;

/// The most changed attributes; each entry of a table counts as one.
pub const MAX_CHANGED: usize = 256;
/// The longest value, in bytes; for a list or table, the length of its JSON.
const MAX_TEXT: usize = 4_096;

/// New values of attributes by name (`rack`, `traits.ssd`); null stands for the configured value.
pub type Changes = BTreeMap<String, Value>;

/// Not one of [`Attributes`], but changed in the same way.
const INDEX: &str = "index";

/// Returns everything that can be changed, with its name.
fn settable() -> impl Iterator<Item = (&'static str, Shape)> {
    let attributes = Attributes::FIELDS.iter();
    let index = (INDEX, Shape::Integer);
    attributes
        .map(|field| (field.name, field.shape))
        .chain([index])
}

/// Returns the name of the attribute, the entry of its table if `key` names one, and the shape.
fn find(key: &str) -> Result<(&str, Option<&str>, Shape), Invalid> {
    let (name, part) = match key.split_once('.') {
        None => (key, None),
        Some((name, part)) => (name, Some(part)),
    };
    let Some((_, shape)) = settable().find(|(known, _)| *known == name) else {
        let names: Vec<&str> = settable().map(|(name, _)| name).collect();
        let hint =
            nearest(name, &names).map_or(String::new(), |n| format!("; did you mean {n:?}?"));
        let expected = format!("one of {}{hint}", names.join(", "));
        return Err(Invalid::new("attribute", shortened(&key.into()), expected));
    };
    match part {
        Some(part) if !shape.has_parts() || part.is_empty() || part.len() > 128 => {
            Err(Invalid::new(
                "attribute",
                shortened(&key.into()),
                format!("{name:?}, {}", shape.expected(false)),
            ))
        }
        part => Ok((name, part, shape)),
    }
}

/// Parses a value as typed on the command line: `true`, `3`, `a,b`, `2026-12-01`, or JSON for whole tables; `null`
/// stands for the configured value.
pub fn attribute_value(key: &str, text: &str) -> Result<Value, Invalid> {
    let (_, part, shape) = find(key)?;
    let wrong = || Invalid::new(key, shortened(&text.into()), shape.expected(part.is_some()));
    let words = || words(text).ok_or_else(|| Invalid::new(key, shortened(&text.into()), LIST));
    Ok(match (shape, part) {
        _ if text == "null" => Value::Null,
        (Shape::String | Shape::Date | Shape::Networks | Shape::Platform, Some(_))
        | (Shape::String | Shape::Date, None) => text.into(),
        (Shape::Strings, _) => words()?,
        (Shape::Traits, Some(_)) => match text {
            "true" | "false" => (text == "true").into(),
            list if list.contains([',', '[', '"']) => words()?,
            word => word.into(),
        },
        _ => serde_json::from_str(text).map_err(|_| wrong())?,
    })
}

/// How a list is written.
const LIST: &str = "a list such as a,b or [\"a\",\"b\"]";

/// Parses a list written as `a,b` or in JSON. Brackets and quotes belong to JSON, and never to a name.
fn words(text: &str) -> Option<Value> {
    if text.trim_start().starts_with('[') {
        let list: Vec<String> = serde_json::from_str(text).ok()?;
        return Some(list.into());
    }
    let is_plain = !text.contains(['[', ']', '"']);
    is_plain.then(|| text.split(',').filter(|word| !word.is_empty()).collect())
}

/// Merges `set` into the earlier changes; null removes a change.
pub(crate) fn merge(mut changed: Changes, set: Changes) -> Result<Changes, Invalid> {
    for (key, value) in set {
        let (name, part, _) = find(&key)?;
        if part.is_none() {
            let parts = format!("{name}.");
            changed.retain(|known, _| !known.starts_with(&parts));
        }
        if value.is_null() {
            changed.remove(&key);
            continue;
        }
        if value.to_string().len() > MAX_TEXT {
            let expected = format!("at most {MAX_TEXT} bytes");
            return Err(Invalid::new(key, shortened(&value), expected));
        }
        changed.insert(key, value);
    }
    if changed.len() > MAX_CHANGED {
        let expected = format!("at most {MAX_CHANGED} changed attributes");
        return Err(Invalid::new("set", changed.len(), expected));
    }
    Ok(changed)
}

/// Returns the configured cell with these changes; an error if the result is not a valid cell.
pub(crate) fn changed_cell(config: &RepConfig, changed: &Changes) -> Result<Cell, Invalid> {
    let configured = serde_json::to_value(config.configured()).unwrap_or_default();
    let mut whole = match configured {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    let mut index = config.index;
    // in order of names: a whole table comes before its entries
    for (key, value) in changed {
        let (name, part, shape) = find(key)?;
        let wrong = || Invalid::new(key, shortened(value), shape.expected(part.is_some()));
        match (name, part) {
            (INDEX, _) => index = u32::deserialize(value).map_err(|_| wrong())?,
            (_, None) => {
                check(name, value, wrong)?;
                whole.insert(name.to_owned(), value.clone());
            }
            (_, Some(part)) => {
                let entry = whole.entry(name).or_insert(Value::Null);
                if entry.is_null() {
                    *entry = Value::Object(Map::new());
                }
                let table = entry.as_object_mut().ok_or_else(wrong)?;
                table.insert(part.to_owned(), value.clone());
                if shape != Shape::Platform {
                    check(name, &Value::Object(table.clone()), wrong)?;
                }
            }
        }
    }
    let attributes = Attributes::deserialize(Value::Object(whole.clone())).map_err(|_| {
        // each attribute is valid by itself, so only a platform can be incomplete
        let platform = whole.get("platform").unwrap_or(&Value::Null);
        Invalid::new(
            "platform",
            shortened(platform),
            Shape::Platform.expected(false),
        )
    })?;
    config.check_staging("staging", &attributes)?;
    let cell = config.described(index, attributes);
    check_cell(&cell)?;
    Ok(cell)
}

/// Checks one attribute by itself.
fn check(name: &str, value: &Value, wrong: impl Fn() -> Invalid) -> Result<(), Invalid> {
    let alone = Map::from_iter([(name.to_owned(), value.clone())]);
    let read = Attributes::deserialize(Value::Object(alone)).map_err(|_| wrong())?;
    let ratio = |ratio: &f64| ratio.is_finite() && *ratio > 0.0;
    if !value.is_null() && read.overcommit.values().all(ratio) {
        return Ok(());
    }
    Err(wrong())
}

fn check_cell(cell: &Cell) -> Result<(), Invalid> {
    cell.check()?;
    match &cell.platform {
        Some(platform) if platform.stamp.ms().is_none() => {
            let value = shortened(&platform.stamp.as_str().into());
            let expected = "a stamp such as \"20260301T000000Z\"";
            Err(Invalid::new("platform.stamp", value, expected))
        }
        _ => Ok(()),
    }
}

/// Returns a value, shortened for messages.
fn shortened(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        None => text,
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

#[cfg(test)]
mod tests;
