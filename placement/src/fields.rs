//! The names of a table's fields, and suggestions for misspelt ones.

use serde::{
    Deserialize, Deserializer, de,
    de::{Visitor, value::Error},
    forward_to_deserialize_any,
};

use crate::words::nearest;

/// Returns the names of the fields that `T` reads from a file; none if `T` is not a plain struct.
pub fn names<T: for<'de> Deserialize<'de>>() -> &'static [&'static str] {
    let mut names: &'static [&'static str] = &[];
    // fails as soon as the struct has named its fields
    let _ = T::deserialize(Names(&mut names));
    names
}

struct Names<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("not a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        *self.0 = fields;
        Err(de::Error::custom("its fields are known now"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option
        unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// Returns `; did you mean "duration"?` if one of the valid names is similar, else nothing.
pub fn hint(name: &str, valid: &[&str]) -> String {
    match nearest(name, valid) {
        Some(nearest) => format!("; did you mean {nearest:?}?"),
        None => String::new(),
    }
}

/// Returns the hint for an error of serde such as "unknown field `los`, expected `latency` or `loss`", which lists the
/// valid names itself.
pub fn hint_of(message: &str) -> String {
    let mut quoted = message.split('`').skip(1).step_by(2);
    match quoted.next() {
        Some(name) if message.starts_with("unknown ") => hint(name, &quoted.collect::<Vec<_>>()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only the names of the fields are read")]
    struct Table {
        #[serde(rename = "for")]
        lasts: u32,
        latency: String,
    }

    #[test]
    fn the_fields_of_a_struct_have_the_names_of_the_file() {
        assert_eq!(names::<Table>(), ["for", "latency"]);
        assert!(names::<u32>().is_empty());
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest() {
        assert_eq!(
            hint("duratoin", &["duration", "description"]),
            "; did you mean \"duration\"?"
        );
        assert_eq!(hint("x", &["duration"]), "");
        assert_eq!(
            hint_of("unknown field `los`, expected `latency` or `loss`"),
            "; did you mean \"loss\"?"
        );
        assert_eq!(hint_of("missing field `at`"), "");
    }
}
