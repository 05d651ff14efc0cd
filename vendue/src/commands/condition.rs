//! `--where 'platform<20260301'`: selects cells by their own descriptions.

use std::{cmp::Ordering, fmt, str::FromStr};

use placement::{AttributeShape, Attributes, Cell, DeviceSet};
use serde_json::{Value, json};

/// A field of the cell, an operator, and what it is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Condition {
    field: String,
    operator: Operator,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Is,
    IsNot,
    Less,
    AtMost,
    More,
    AtLeast,
}

/// The kind of value that a field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Number,
    Flag,
    Date,
    List,
    Anything,
}

/// Longer operators first, as `<=` begins like `<`.
const OPERATORS: [(&str, Operator); 6] = [
    ("!=", Operator::IsNot),
    ("<=", Operator::AtMost),
    (">=", Operator::AtLeast),
    ("=", Operator::Is),
    ("<", Operator::Less),
    (">", Operator::More),
];

/// Returns every field, with its value for a cell that does not name it.
fn fields() -> Value {
    let counted = json!({
        "cell": "", "index": 0, "total": {}, "available": {}, "starting": 0, "apps": {}, "tasks": 0,
        "evacuating": false, "cordoned": false, "owners": {}, "tags": {}, "cpu_capped": 0, "cpu_uncapped": 0,
    });
    let attributes = serde_json::to_value(Attributes::default()).unwrap_or_default();
    let tables = [counted, attributes].into_iter();
    let fields = tables.filter_map(|table| table.as_object().cloned());
    Value::Object(fields.flatten().collect())
}

/// Returns the names of all fields.
pub(crate) fn field_names() -> Vec<String> {
    let known = fields();
    let names = known.as_object().into_iter().flatten();
    names.map(|(name, _)| name.clone()).collect()
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected FIELD, one of = != < <= > >=, and a value, such as 'rack=r1'";
        let at = text.find(['=', '!', '<', '>']).unwrap_or(0);
        let (field, rest) = text.split_at(at);
        let found = OPERATORS
            .iter()
            .find_map(|(sign, operator)| rest.strip_prefix(sign).map(|value| (*operator, value)));
        let (operator, value) = found
            .filter(|_| at > 0)
            .ok_or_else(|| format!("{text:?}: {expected}"))?;
        let field = field.trim();
        let condition = Self {
            field: field.to_owned(),
            operator,
            value: value.trim().to_owned(),
        };
        let known = fields();
        let name = field.split('.').next().unwrap_or_default();
        if known.get(name).is_none() {
            let names: Vec<&str> = known
                .as_object()
                .into_iter()
                .flatten()
                .map(|(n, _)| n.as_str())
                .collect();
            let hint = placement::nearest(name, &names)
                .map_or(String::new(), |n| format!("; did you mean {n:?}?"));
            return Err(format!(
                "no cell has a field {name:?}; expected one of {}{hint}",
                names.join(", ")
            ));
        }
        condition.check_part(&known[name])?;
        condition.check_value(&known[name])?;
        Ok(condition)
    }
}

/// The fields whose parts have names chosen by the operator, and how they appear in the list of parts.
const NAMED: [(&str, &str); 2] = [("extra.", "extra.NAME"), ("devices.", "devices.NAME")];

fn known_part(parts: &[&str], part: &str) -> bool {
    let named = NAMED.iter().any(|(prefix, generic)| {
        let name = part.strip_prefix(prefix);
        name.is_some_and(|name| !name.is_empty()) && parts.contains(generic)
    });
    parts.contains(&part) || named
}

/// Returns the parts of a field that has the same parts on every cell.
fn parts(name: &str) -> Option<&'static [&'static str]> {
    match name {
        "total" | "available" => Some(&[
            "memory_mb",
            "disk_mb",
            "containers",
            "cpu_millis",
            "extra.NAME",
            "devices.NAME",
        ]),
        "platform" => Some(&["version", "stamp"]),
        _ => None,
    }
}

impl Condition {
    /// Rejects a part that no cell has: it would silently match none.
    fn check_part(&self, default: &Value) -> Result<(), String> {
        let (name, part) = match self.field.split_once('.') {
            None => (self.field.as_str(), None),
            Some((name, part)) => (name, Some(part)),
        };
        let expected = match (parts(name), part) {
            // a platform is compared by its stamp
            (_, None) if !default.is_object() => return Ok(()),
            (None, Some(part)) if default.is_object() && !part.is_empty() => return Ok(()),
            (Some(parts), Some(part)) if known_part(parts, part) => return Ok(()),
            (Some(parts), _) => parts,
            (None, None) => &["NAME"],
            (None, Some(_)) => {
                return Err(format!("{:?}: the field {name} has no parts", self.field));
            }
        };
        let expected: Vec<String> = expected.iter().map(|p| format!("{name}.{p}")).collect();
        let names: Vec<&str> = expected.iter().map(String::as_str).collect();
        let hint = placement::nearest(&self.field, &names)
            .map_or(String::new(), |n| format!("; did you mean {n:?}?"));
        Err(format!(
            "no cell has a field {:?}; expected one of {}{hint}",
            self.field,
            names.join(", ")
        ))
    }

    /// Rejects a value that a field of its kind can never have: it would silently match no cell.
    fn check_value(&self, default: &Value) -> Result<(), String> {
        let (field, value) = (&self.field, &self.value);
        let holds = self.holds(default);
        let wrong = match holds {
            Holds::Number => value.parse::<f64>().is_err(),
            Holds::Flag => !matches!(value.as_str(), "true" | "false"),
            Holds::Date => !is_date(value),
            Holds::List => !matches!(self.operator, Operator::Is | Operator::IsNot),
            Holds::Anything => false,
        };
        if !wrong {
            return Ok(());
        }
        Err(match holds {
            Holds::Number if field.ends_with("_mb") => {
                format!(
                    "{field} is a number of MiB, and {value:?} is not one; expected {field}>=512"
                )
            }
            Holds::Number => format!(
                "{field} is a number, and {value:?} is not one; expected one such as {field}>=2"
            ),
            Holds::Flag => format!(
                "{field} is true or false, and {value:?} is neither; expected {field}=true or \
                 {field}=false"
            ),
            Holds::Date => format!(
                "{field} is a date, and {value:?} is not one; expected one such as 2026-12-01 or \
                 2026-12-01T04:00:00Z"
            ),
            _ => format!(
                "{field} is a list; expected {field}={value} (it is in the list) or {field}!={value}"
            ),
        })
    }

    /// Returns what the field holds on every cell.
    fn holds(&self, default: &Value) -> Holds {
        let (name, part) = match self.field.split_once('.') {
            None => (self.field.as_str(), None),
            Some((name, part)) => (name, Some(part)),
        };
        let of_shape = |shape| match shape {
            AttributeShape::Date => Holds::Date,
            AttributeShape::Boolean => Holds::Flag,
            AttributeShape::Integer | AttributeShape::Ratios => Holds::Number,
            AttributeShape::Strings => Holds::List,
            _ => Holds::Anything,
        };
        if let Some(field) = Attributes::FIELDS.iter().find(|field| field.name == name) {
            return of_shape(field.shape);
        }
        // cells count these, in total or by name
        match default {
            Value::Number(_) => Holds::Number,
            Value::Bool(_) => Holds::Flag,
            Value::Object(_) if part.is_some() => Holds::Number,
            _ => Holds::Anything,
        }
    }

    /// Returns whether the cell satisfies the condition.
    pub(crate) fn accepts(&self, cell: &Cell) -> bool {
        let said = self.said(cell);
        match &said {
            Value::Array(list) => {
                let has = list
                    .iter()
                    .any(|word| word.as_str() == Some(self.value.as_str()));
                match self.operator {
                    Operator::Is => has,
                    Operator::IsNot => !has,
                    _ => false,
                }
            }
            // an absent value differs from everything, and is neither less nor more
            Value::Null | Value::Object(_) => self.operator == Operator::IsNot,
            said => self
                .compare(said)
                .is_some_and(|order| self.operator.accepts(order)),
        }
    }

    /// Returns the cell's value for the field; for a platform, its stamp.
    fn said(&self, cell: &Cell) -> Value {
        let cell = serde_json::to_value(cell).unwrap_or_default();
        let field = if self.field == "platform" {
            "platform.stamp"
        } else {
            &self.field
        };
        let (name, part) = match field.split_once('.') {
            None => (field, None),
            Some((name, part)) => (name, Some(part)),
        };
        let whole = cell
            .get(name)
            .cloned()
            .unwrap_or_else(|| fields()[name].take());
        let Some(part) = part else {
            return whole;
        };
        if let Some(name) = part.strip_prefix("devices.") {
            let set = whole["devices"].get(name).cloned();
            let set = set.and_then(|set| serde_json::from_value::<DeviceSet>(set).ok());
            return set.map_or(0, |set| set.sum_free()).into();
        }
        let extra = part.strip_prefix("extra.");
        let found = match extra {
            Some(extra) => whole["extra"].get(extra),
            None => whole.get(part),
        };
        // something counted that is absent is 0
        let counted =
            matches!(name, "apps" | "owners" | "tags") || extra.is_some() || part == "cpu_millis";
        found
            .cloned()
            .unwrap_or(if counted { 0.into() } else { Value::Null })
    }

    fn is_date(&self) -> bool {
        matches!(self.field.as_str(), "next_reboot" | "last_boot")
    }

    /// Compares the cell's value with the given one. Dates and stamps are compared to the given precision:
    /// `platform=20260301` matches every image of that day.
    fn compare(&self, said: &Value) -> Option<Ordering> {
        let given = self.value.as_str();
        if let Some(said) = said.as_f64() {
            return said.partial_cmp(&given.parse().ok()?);
        }
        let Some(said) = said.as_str() else {
            return Some(said.to_string().as_str().cmp(given));
        };
        if self.is_date() || self.field.starts_with("platform") {
            let (said, given) = (full(said), full(given));
            let head: String = said.chars().take(self.value.len().max(1)).collect();
            let given: String = given.chars().take(self.value.len().max(1)).collect();
            return Some(head.cmp(&given));
        }
        Some(said.cmp(given))
    }
}

/// Completes a date with its time; anything else stays as it is.
fn full(date: &str) -> String {
    if date.len() == 10 && is_date(date) {
        return format!("{date}T00:00:00Z");
    }
    date.replace(' ', "T")
}

fn is_date(text: &str) -> bool {
    let full = if text.len() == 10 {
        format!("{text}T00:00:00Z")
    } else {
        text.to_owned()
    };
    humantime::parse_rfc3339_weak(&full).is_ok()
}

impl Operator {
    fn accepts(self, order: Ordering) -> bool {
        match self {
            Self::Is => order.is_eq(),
            Self::IsNot => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::AtMost => order.is_le(),
            Self::More => order.is_gt(),
            Self::AtLeast => order.is_ge(),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = OPERATORS
            .iter()
            .find(|(_, operator)| *operator == self.operator);
        write!(
            f,
            "{}{}{}",
            self.field,
            sign.map_or("", |(sign, _)| sign),
            self.value
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell() -> Cell {
        let text = json!({
            "cell": "c1", "zone": "z1", "rack": "r1", "stacks": ["a", "b"], "reserved": true, "index": 10,
            "total": {"memory_mb": 1024}, "available": {"memory_mb": 512, "extra": {"gpu": 1},
                "devices": {"card": {"count": 2, "each": 100, "free": [30, 100]}}},
            "platform": {"version": "7.0", "stamp": "20260228T120000Z"}, "apps": {"web": 2},
            "traits": {"ssd": true}, "next_reboot": "2026-12-01T04:00:00Z", "last_boot": "2026-01-01",
            "networks": {"external": "up"}, "overcommit": {"memory": 1.5},
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn each_operator_on_each_kind_of_field() {
        for (text, expected) in [
            ("rack=r1", true),
            ("rack!=r1", false),
            ("rack!=r2", true),
            ("rack>r0", true),
            ("zone=z1", true),
            ("cell=c2", false),
            ("status=running", true),
            ("platform<20260301", true),
            ("platform<20260228", false),
            ("platform<=20260228", true),
            ("platform=20260228", true),
            ("platform>=20260228T120000Z", true),
            ("platform.version=7.0", true),
            ("next_reboot<2026-12-02", true),
            ("next_reboot=2026-12-01", true),
            ("next_reboot<2026-12-01T04:00:00Z", false),
            ("next_reboot>2026-12-01T03:00:00Z", true),
            ("last_boot=2026-01-01T00:00:00Z", true),
            ("last_boot<2025-12-31", false),
            ("available.memory_mb>=512", true),
            ("available.memory_mb>512", false),
            ("available.memory_mb<1000", true),
            ("index>9", true),
            ("available.extra.gpu=1", true),
            ("available.extra.fpga=0", true),
            ("available.devices.card=130", true),
            ("available.devices.card>=131", false),
            ("available.devices.none=0", true),
            ("available.cpu_millis=0", true),
            ("apps.web=2", true),
            ("apps.other=0", true),
            ("traits.ssd=true", true),
            ("traits.nvme!=true", true),
            ("traits.nvme=true", false),
            ("networks.external=up", true),
            ("reserved=true", true),
            ("control_plane=false", true),
            ("evacuating!=false", false),
            ("stacks=a", true),
            ("stacks=c", false),
            ("stacks!=c", true),
            ("overcommit.memory>1", true),
            ("reboot_batch=x", false),
            ("reboot_batch!=x", true),
            ("zone_number<5", false),
        ] {
            let condition: Condition = text.parse().unwrap();
            assert_eq!(condition.accepts(&cell()), expected, "{text}");
            assert_eq!(condition.to_string(), text);
        }
    }

    #[test]
    fn an_invalid_condition_names_what_is_expected() {
        for (text, said) in [
            ("rack", "expected FIELD"),
            ("=r1", "expected FIELD"),
            ("", "expected FIELD"),
            ("rack!r1", "expected FIELD"),
            ("rak=r1", "did you mean \"rack\"?"),
            (
                "available.memory>=512",
                "did you mean \"available.memory_mb\"?",
            ),
            ("total.memory_gb>=1", "total.memory_mb"),
            ("total=3", "total.memory_mb"),
            ("traits=x", "traits.NAME"),
            ("zone.name=z1", "has no parts"),
            ("available.extra.=1", "available.extra.NAME"),
            ("next_reboot<soon", "2026-12-01"),
            (
                "available.memory_mb>=512M",
                "available.memory_mb is a number of MiB",
            ),
            (
                "available.memory_mb>=512M",
                "expected available.memory_mb>=512",
            ),
            ("index=first", "index is a number"),
            ("apps.web>many", "apps.web is a number"),
            ("hardware_priority>high", "hardware_priority is a number"),
            ("overcommit.memory>x", "overcommit.memory is a number"),
            ("available.extra.gpu=a", "such as available.extra.gpu>=2"),
            ("reserved=yes", "expected reserved=true or reserved=false"),
            ("evacuating=1", "evacuating is true or false"),
            ("stacks<c", "expected stacks=c"),
        ] {
            let error = text.parse::<Condition>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn every_field_of_a_cell_is_known() {
        let cell = serde_json::to_value(cell()).unwrap();
        let known = fields();
        for name in cell.as_object().unwrap().keys() {
            assert!(known.get(name).is_some(), "{name}");
        }
    }
}
