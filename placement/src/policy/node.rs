//! Values with their positions, and tables whose keys are taken one by one.

use std::time::Duration;

use toml::de::{DeTable, DeValue};

use crate::{objective::ObjectiveError, times::Span, words::nearest};

/// A value with its position, from TOML or JSON.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: usize,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Text(String),
    Number(f64),
    Flag(bool),
    List(Vec<Node>),
    Table(Vec<(String, usize, Node)>),
    Null,
}

impl Value {
    /// Describes its type, and the value if it is short.
    fn what(&self) -> String {
        match self {
            Self::Text(text) => {
                let start: String = text.chars().take(40).collect();
                format!("the string {start:?}")
            }
            Self::Number(number) => format!("the number {number}"),
            Self::Flag(flag) => flag.to_string(),
            Self::List(_) => "a list".into(),
            Self::Table(_) => "a table".into(),
            Self::Null => "nothing".into(),
        }
    }
}

/// An error before its byte offset is converted to line and column.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) message: String,
    pub(super) nearest: Option<String>,
    /// For an error inside a text: that text, and the error in it.
    pub(super) within: Option<Box<(String, ObjectiveError)>>,
}

impl Fault {
    pub(super) fn new(at: usize, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
            nearest: None,
            within: None,
        }
    }

    /// Creates the error for an error in an expression.
    pub(super) fn within(at: usize, text: String, error: ObjectiveError) -> Self {
        let message = format!("expression: {error}");
        Self {
            within: Some(Box::new((text, error))),
            ..Self::new(at, message)
        }
    }

    /// Creates the error for an invalid name.
    pub(super) fn unknown(at: usize, what: &str, name: &str, valid: &[&str]) -> Self {
        Self {
            at,
            message: format!(
                "unknown {what} {name:?}; expected one of {}",
                valid.join(", ")
            ),
            nearest: nearest(name, valid).map(str::to_owned),
            within: None,
        }
    }
}

pub(super) fn entries(table: &DeTable<'_>) -> Vec<(String, usize, Node)> {
    let entry = |(key, value): (&toml::Spanned<_>, &toml::Spanned<DeValue<'_>>)| {
        let key: &toml::Spanned<std::borrow::Cow<'_, str>> = key;
        let at = key.span().start;
        (key.get_ref().to_string(), at, from_toml(value))
    };
    table.iter().map(entry).collect()
}

fn from_toml(value: &toml::Spanned<DeValue<'_>>) -> Node {
    let inner = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix())
            .map_or(Value::Text(n.to_string()), |n| Value::Number(n as f64)),
        DeValue::Float(n) => n
            .as_str()
            .replace('_', "")
            .parse()
            .map_or(Value::Text(n.to_string()), Value::Number),
        DeValue::Boolean(flag) => Value::Flag(*flag),
        DeValue::Datetime(date) => Value::Text(date.to_string()),
        DeValue::Array(list) => Value::List(list.iter().map(from_toml).collect()),
        DeValue::Table(table) => Value::Table(entries(table)),
    };
    Node {
        at: value.span().start,
        value: inner,
    }
}

pub(super) fn from_json(json: &serde_json::Value) -> Node {
    let value = match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(flag) => Value::Flag(*flag),
        serde_json::Value::Number(n) => Value::Number(n.as_f64().unwrap_or(f64::NAN)),
        serde_json::Value::String(text) => Value::Text(text.clone()),
        serde_json::Value::Array(list) => Value::List(list.iter().map(from_json).collect()),
        serde_json::Value::Object(table) => Value::Table(
            table
                .iter()
                .map(|(key, value)| (key.clone(), 0, from_json(value)))
                .collect(),
        ),
    };
    Node { at: 0, value }
}

/// A table whose keys are taken one by one; those left over are unknown.
pub(super) struct Fields {
    pub(super) at: usize,
    what: &'static str,
    entries: Vec<(String, usize, Node)>,
    known: Vec<&'static str>,
}

impl Fields {
    pub(super) fn new(node: Node, what: &'static str) -> Result<Self, Fault> {
        match node.value {
            Value::Table(entries) => Ok(Self {
                at: node.at,
                what,
                entries,
                known: Vec::new(),
            }),
            other => Err(Fault::new(
                node.at,
                format!("{what} is {}; expected a table", other.what()),
            )),
        }
    }

    pub(super) fn take(&mut self, key: &'static str) -> Option<Node> {
        self.known.push(key);
        let found = self.entries.iter().position(|(name, ..)| name == key)?;
        let (_, at, mut node) = self.entries.remove(found);
        node.at = node.at.max(at);
        Some(node)
    }

    pub(super) fn text(&mut self, key: &'static str) -> Result<Option<(String, usize)>, Fault> {
        match self.take(key) {
            None => Ok(None),
            Some(Node {
                at,
                value: Value::Text(text),
            }) => Ok(Some((text, at))),
            Some(node) => Err(wrong(key, &node, "a string")),
        }
    }

    pub(super) fn number(&mut self, key: &'static str) -> Result<Option<(f64, usize)>, Fault> {
        match self.take(key) {
            None => Ok(None),
            Some(Node {
                at,
                value: Value::Number(n),
            }) if n.is_finite() => Ok(Some((n, at))),
            Some(node) => Err(wrong(key, &node, "a finite number")),
        }
    }

    pub(super) fn flag(&mut self, key: &'static str) -> Result<Option<bool>, Fault> {
        match self.take(key) {
            None => Ok(None),
            Some(Node {
                value: Value::Flag(flag),
                ..
            }) => Ok(Some(flag)),
            Some(node) => Err(wrong(key, &node, "true or false")),
        }
    }

    /// Takes a non-negative number of days, or a string.
    #[allow(clippy::type_complexity)] // one caller, which takes it apart at once
    pub(super) fn either(
        &mut self,
        key: &'static str,
    ) -> Result<Option<(Option<f64>, Option<String>)>, Fault> {
        match self.take(key) {
            None => Ok(None),
            Some(Node {
                value: Value::Number(n),
                ..
            }) if n >= 0.0 => Ok(Some((Some(n), None))),
            Some(Node {
                value: Value::Text(text),
                ..
            }) => Ok(Some((None, Some(text)))),
            Some(node) => Err(wrong(key, &node, "a number of days from 0, or a string")),
        }
    }

    /// Takes a non-negative integer.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // checked here
    pub(super) fn count(&mut self, key: &'static str) -> Result<Option<u32>, Fault> {
        let Some((n, at)) = self.number(key)? else {
            return Ok(None);
        };
        if n < 0.0 || n > f64::from(u32::MAX) || n.fract() != 0.0 {
            let message = format!("{key} is {n}; expected an integer from 0 to {}", u32::MAX);
            return Err(Fault::new(at, message));
        }
        Ok(Some(n as u32))
    }

    /// Takes a duration of at most an hour, such as "10m".
    pub(super) fn span(&mut self, key: &'static str) -> Result<Option<Span>, Fault> {
        let expected = "a duration of at most \"1h\", such as \"10m\"";
        let Some(node) = self.take(key) else {
            return Ok(None);
        };
        let time = match &node.value {
            Value::Text(text) => humantime::parse_duration(text).ok(),
            _ => None,
        };
        match time {
            Some(time) if time <= Duration::from_secs(3_600) => Ok(Some(Span(time))),
            _ => Err(wrong(key, &node, expected)),
        }
    }

    /// Takes one of several words.
    pub(super) fn word<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&'static str, T)],
    ) -> Result<Option<T>, Fault> {
        let Some((text, at)) = self.text(key)? else {
            return Ok(None);
        };
        let names: Vec<_> = words.iter().map(|(name, _)| *name).collect();
        words
            .iter()
            .find(|(name, _)| *name == text)
            .map(|(_, word)| Some(*word))
            .ok_or_else(|| Fault::unknown(at, key, &text, &names))
    }

    /// Returns the error for a table that has none of the keys of which it needs one: the key most similar to one of
    /// them is misspelt, or else the first one.
    pub(super) fn none_of(&self, keys: &[&str]) -> Option<Fault> {
        let fault = |(key, at, _): &(String, usize, Node)| {
            let what = format!("key in {}", self.what);
            Fault::unknown(*at, &what, key, keys)
        };
        let mut faults: Vec<Fault> = self.entries.iter().map(fault).collect();
        let meant = faults.iter().position(|fault| fault.nearest.is_some());
        (!faults.is_empty()).then(|| faults.swap_remove(meant.unwrap_or(0)))
    }

    pub(super) fn finish(self) -> Result<(), Fault> {
        match self.entries.first() {
            None => Ok(()),
            Some((key, at, _)) => {
                let what = format!("key in {}", self.what);
                Err(Fault::unknown(*at, &what, key, &self.known))
            }
        }
    }
}

pub(super) fn wrong(key: &str, node: &Node, expected: &str) -> Fault {
    Fault::new(
        node.at,
        format!("{key} is {}; expected {expected}", node.value.what()),
    )
}
