//! Reads bodies written by others field by field, so that one odd field does not cost the whole message.

use placement::{Invalid, check_name};
use serde_json::{Map, Value};

use super::DeaNumber;

/// How many odd fields of one body are described; the others are only counted.
pub const MAX_ODD: usize = 32;

/// A body, and what was odd in it.
#[derive(Clone, Debug, PartialEq)]
pub struct DeaRead<T> {
    /// The body. Odd fields are included as far as they could be understood, and otherwise treated as absent.
    pub body: T,
    /// The odd fields.
    pub odd: DeaOddities,
}

/// Fields of other types than the originals write. Their values are never repeated: they may be secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeaOddities {
    /// The first [`MAX_ODD`] odd fields.
    pub first: Vec<Invalid>,
    /// How many there are.
    pub count: usize,
}

impl DeaOddities {
    fn note(&mut self, odd: Invalid) {
        self.count += 1;
        if self.first.len() < MAX_ODD {
            self.first.push(odd);
        }
    }
}

/// A message that cannot be used at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct DeaMalformed {
    /// The DEA that it names as its sender, if that can be read.
    pub sender: Option<String>,
    /// What is wrong with it.
    pub why: Invalid,
}

/// A body of the dialect that can be read.
pub trait DeaBody: Sized {
    /// Reads it from the fields of a JSON object; an error if a field is missing without which it is useless.
    fn from_fields(fields: &mut DeaFields<'_>) -> Result<Self, Invalid>;

    /// Reads it from a message. Unknown keys are ignored.
    fn read(message: &[u8]) -> Result<DeaRead<Self>, DeaMalformed> {
        let malformed = |sender, why| DeaMalformed { sender, why };
        let expected = "a JSON object";
        let value: Value = serde_json::from_slice(message)
            .map_err(|_| malformed(None, Invalid::new("body", "no JSON", expected)))?;
        let Value::Object(map) = value else {
            let why = Invalid::new("body", kind(Some(&value)), expected);
            return Err(malformed(None, why));
        };
        let mut odd = DeaOddities::default();
        let body = Self::from_fields(&mut DeaFields::new(&map, &mut odd));
        match body {
            Ok(body) => Ok(DeaRead { body, odd }),
            Err(why) => Err(malformed(sender(&map), why)),
        }
    }
}

/// Returns the sender, as DEAs name it.
fn sender(map: &Map<String, Value>) -> Option<String> {
    let named = ["id", "dea"].into_iter().find_map(|key| map.get(key));
    let name = named?.as_str()?;
    check_name("id", name).is_ok().then(|| name.to_owned())
}

/// The fields of an object of a body.
#[derive(Debug)]
pub struct DeaFields<'a> {
    map: &'a Map<String, Value>,
    path: String,
    odd: &'a mut DeaOddities,
}

impl<'a> DeaFields<'a> {
    fn new(map: &'a Map<String, Value>, odd: &'a mut DeaOddities) -> Self {
        Self {
            map,
            path: String::new(),
            odd,
        }
    }

    /// Returns the value of a key as it is.
    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    /// Returns all keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a String> + use<'a> {
        self.map.keys()
    }

    /// Returns the value, unless it is absent or null.
    fn given(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    fn wrong(&self, key: &str, expected: &str) -> Invalid {
        // a key may be anything, and is shown on terminals
        let key_shown = key.replace(char::is_control, " ");
        let field = format!("{}{key_shown}", self.path);
        Invalid::new(field, kind(self.map.get(key)), expected)
    }

    /// Records that a field is odd.
    pub(super) fn note(&mut self, key: &str, expected: &str) {
        let odd = self.wrong(key, expected);
        self.odd.note(odd);
    }

    /// Reads a required name: 1 to 128 of `A-Za-z0-9_-`, or an integer, as early ids were.
    pub(super) fn name(&self, key: &str) -> Result<String, Invalid> {
        let expected = "1 to 128 of A-Z a-z 0-9 _ -";
        let name = match self.map.get(key) {
            Some(Value::String(name)) => name.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => return Err(self.wrong(key, expected)),
        };
        if check_name(key, &name).is_err() {
            let field = format!("{}{key}", self.path);
            return Err(Invalid::new(field, "a text that is no name", expected));
        }
        Ok(name)
    }

    /// Reads a text; empty if absent, null or odd.
    pub(super) fn text(&mut self, key: &str) -> String {
        self.optional_text(key).unwrap_or_default()
    }

    /// Reads a text or an integer; none if absent or null, which is not odd.
    pub(super) fn optional_text(&mut self, key: &str) -> Option<String> {
        match self.given(key)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => {
                self.note(key, "a text");
                None
            }
        }
    }

    /// Reads a number; none if absent or null, which is not odd. A number written as a text is odd.
    pub(super) fn number(&mut self, key: &str) -> Option<DeaNumber> {
        let value = self.given(key)?;
        if value.is_number() {
            return DeaNumber::of(value);
        }
        self.note(key, "a number");
        let number = serde_json::from_str(value.as_str()?).ok()?;
        DeaNumber::of(&number)
    }

    /// Reads a number that should be there; otherwise it is odd, and 0.
    pub(super) fn expected_number(&mut self, key: &str) -> DeaNumber {
        if self.given(key).is_none() {
            self.note(key, "a number");
        }
        self.number(key).unwrap_or_default()
    }

    /// Reads an integer, dropping a fraction; none if absent, null or odd.
    pub(super) fn integer(&mut self, key: &str) -> Option<i64> {
        self.number(key).map(DeaNumber::floor)
    }

    /// Reads a required integer strictly, as in schemas: no fraction, no text.
    pub(super) fn whole(&self, key: &str) -> Result<i64, Invalid> {
        let integer = self.map.get(key).and_then(Value::as_i64);
        integer.ok_or_else(|| self.wrong(key, "an integer"))
    }

    /// Reads a list of which every entry must be understood; empty if absent or null.
    pub(super) fn all<T>(
        &self,
        key: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, Invalid> {
        let list = match self.given(key) {
            None => return Ok(Vec::new()),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(self.wrong(key, "a list")),
        };
        let all: Option<Vec<T>> = list.iter().map(read).collect();
        let field = || format!("{}{key}", self.path);
        all.ok_or_else(|| Invalid::new(field(), "an entry of another kind", "a list of one kind"))
    }

    /// Reads a required integer of at least 0.
    pub(super) fn index(&mut self, key: &str) -> Result<u32, Invalid> {
        let index = self
            .integer(key)
            .and_then(|index| u32::try_from(index).ok());
        index.ok_or_else(|| self.wrong(key, "an index of 0 or more"))
    }

    /// Reads a flag; false if absent or null. Any other value is odd and counts as true, as for DEAs.
    pub(super) fn flag(&mut self, key: &str) -> bool {
        match self.given(key) {
            None => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => {
                self.note(key, "true or false");
                true
            }
        }
    }

    /// Reads a list of texts; empty if absent or null. Entries that are not texts are odd, and skipped.
    pub(super) fn texts(&mut self, key: &str) -> Vec<String> {
        let list = self.list(key);
        let texts: Vec<String> = list
            .iter()
            .filter_map(|entry| entry.as_str().map(str::to_owned))
            .collect();
        if texts.len() < list.len() {
            self.note(key, "a list of texts");
        }
        texts
    }

    /// Returns a list, unread; empty if absent or null.
    pub(super) fn list(&mut self, key: &str) -> &'a [Value] {
        match self.given(key) {
            None => &[],
            Some(Value::Array(list)) => list,
            Some(_) => {
                self.note(key, "a list");
                &[]
            }
        }
    }

    /// Returns an object, unread; none if absent or null.
    pub(super) fn object(&mut self, key: &str) -> Option<&'a Map<String, Value>> {
        let object = self.given(key)?.as_object();
        if object.is_none() {
            self.note(key, "an object");
        }
        object
    }

    /// Returns the fields of an object; none if it is absent or odd.
    pub(super) fn within(&mut self, key: &str) -> Option<DeaFields<'_>> {
        let map = self.object(key)?;
        Some(DeaFields {
            map,
            path: format!("{}{key}.", self.path),
            odd: self.odd,
        })
    }

    /// Reads a list of objects. Entries that cannot be used are odd, and skipped.
    pub(super) fn bodies<T: DeaBody>(&mut self, key: &str) -> Vec<T> {
        let list = self.list(key);
        let mut bodies = Vec::with_capacity(list.len());
        for (n, entry) in list.iter().enumerate() {
            let path = format!("{}{key}[{n}]", self.path);
            let Value::Object(map) = entry else {
                self.odd
                    .note(Invalid::new(path, kind(Some(entry)), "an object"));
                continue;
            };
            let mut fields = DeaFields {
                map,
                path: format!("{path}."),
                odd: self.odd,
            };
            match T::from_fields(&mut fields) {
                Ok(body) => bodies.push(body),
                Err(why) => self.odd.note(why),
            }
        }
        bodies
    }
}

/// Returns what kind of value it is. Never the value itself, which may contain anything.
fn kind(value: Option<&Value>) -> &'static str {
    match value {
        None => "nothing",
        Some(Value::Null) => "null",
        Some(Value::Bool(_)) => "true or false",
        Some(Value::Number(_)) => "a number",
        Some(Value::String(_)) => "a text",
        Some(Value::Array(_)) => "a list",
        Some(Value::Object(_)) => "an object",
    }
}
