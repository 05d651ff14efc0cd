//! The expected work of a policy's file: `[[expected]]` tables.

use std::fmt::Write;

use serde_json::{Map, Number};

use super::node::{Fault, Fields, Node, Value, wrong};
use crate::{
    expected::{ExpectedSize, ExpectedWork, MAX_EXPECTED_SIZES, Size},
    fields,
    request::Request,
};

/// Reads the expected work, if the file gives it.
pub(super) fn read(policy: &mut Fields) -> Result<Option<ExpectedWork>, Fault> {
    let Some(node) = policy.take("expected") else {
        return Ok(None);
    };
    let at = node.at;
    let Value::List(nodes) = node.value else {
        return Err(wrong("expected", &node, "a list of tables, [[expected]]"));
    };
    if nodes.is_empty() || nodes.len() > MAX_EXPECTED_SIZES {
        let message = format!(
            "{} tables [[expected]]; expected 1 to {MAX_EXPECTED_SIZES}",
            nodes.len()
        );
        return Err(Fault::new(at, message));
    }
    let sizes = nodes.into_iter().map(read_size);
    let sizes = sizes.collect::<Result<Vec<_>, _>>()?;
    Ok(Some(ExpectedWork::exactly(sizes)))
}

fn read_size(node: Node) -> Result<ExpectedSize, Fault> {
    let at = node.at;
    let Value::Table(mut entries) = node.value else {
        return Err(wrong("expected", &node, "a table"));
    };
    let share = entries.iter().position(|(name, ..)| name == "share");
    let share = share.map(|position| entries.remove(position).2);
    let share = match share {
        Some(Node {
            value: Value::Number(share),
            ..
        }) if share > 0.0 && share <= 1e9 => share,
        Some(node) => return Err(wrong("share", &node, "a number above 0, at most 1e9")),
        None => {
            return Err(Fault::new(
                at,
                "share is missing; expected a number above 0",
            ));
        }
    };
    for (name, at, _) in &entries {
        let known = fields::names::<Size>();
        if !known.contains(&name.as_str()) {
            let what = "key in [[expected]]";
            return Err(Fault::unknown(*at, what, name, known));
        }
    }
    let json = json(Value::Table(entries));
    let size: Size =
        serde_json::from_value(json).map_err(|e| Fault::new(at, format!("expected: {e}")))?;
    check(&size).map_err(|e| Fault::new(at, format!("expected: {e}")))?;
    Ok(ExpectedSize { share, size })
}

/// Checks a size against the bounds of requests.
fn check(size: &Size) -> Result<(), crate::Invalid> {
    let mut request = Request::new("expected", size.memory_mb, size.disk_mb);
    request.cpu_millis = size.cpu_millis;
    request.extra = size.extra.clone();
    request.devices = size.devices.clone();
    request.check()
}

#[allow(clippy::cast_possible_truncation)] // whole numbers below 2^53
fn json(value: Value) -> serde_json::Value {
    match value {
        Value::Text(text) => text.into(),
        Value::Number(n) if n.fract() == 0.0 && n.abs() < 9e15 => (n as i64).into(),
        Value::Number(n) => Number::from_f64(n).map_or(serde_json::Value::Null, Into::into),
        Value::Flag(flag) => flag.into(),
        Value::List(nodes) => nodes.into_iter().map(|node| json(node.value)).collect(),
        Value::Table(entries) => {
            let entry = |(name, _, node): (String, usize, Node)| (name, json(node.value));
            serde_json::Value::Object(entries.into_iter().map(entry).collect::<Map<_, _>>())
        }
        Value::Null => serde_json::Value::Null,
    }
}

impl ExpectedWork {
    /// Returns the `[[expected]]` tables of a policy's file.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        for expected in self.sizes() {
            // writing to a String cannot fail, and a size is a table of plain values
            let _ = writeln!(out, "\n[[expected]]\nshare = {:?}", expected.share);
            for (name, value) in toml::Table::try_from(&expected.size).unwrap_or_default() {
                if value != toml::Value::Integer(0) {
                    let _ = writeln!(out, "{name} = {value}");
                }
            }
        }
        out
    }
}
