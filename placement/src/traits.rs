//! Traits: named properties that operators give to cells and requests demand (Triton).

use serde::{Deserialize, Serialize};

/// A trait's value, on a cell or demanded by a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Trait {
    /// True or false.
    Flag(bool),
    /// One word.
    Word(String),
    /// Any of these.
    Words(Vec<String>),
}

impl Trait {
    /// Returns whether a cell that has this value meets the wanted one: of lists, one word in common is enough.
    pub(crate) fn matches(&self, wanted: &Self) -> bool {
        match (wanted, self) {
            (Self::Flag(a), Self::Flag(b)) => a == b,
            (Self::Word(a), Self::Word(b)) => a == b,
            (Self::Word(word), Self::Words(words)) | (Self::Words(words), Self::Word(word)) => {
                words.contains(word)
            }
            (Self::Words(a), Self::Words(b)) => a.iter().any(|word| b.contains(word)),
            _ => false,
        }
    }
}

impl<'de> Deserialize<'de> for Trait {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyTrait)
    }
}

/// Parses a trait; written by hand, so that the error says what was expected.
struct AnyTrait;

impl<'de> serde::de::Visitor<'de> for AnyTrait {
    type Value = Trait;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("true, false, a string or a list of strings")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Trait, E> {
        Ok(Trait::Flag(flag))
    }

    fn visit_str<E>(self, word: &str) -> Result<Trait, E> {
        Ok(Trait::Word(word.to_owned()))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Trait, A::Error> {
        let mut words = Vec::new();
        while let Some(word) = items.next_element()? {
            words.push(word);
        }
        Ok(Trait::Words(words))
    }
}
