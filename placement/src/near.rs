//! The items of a request's `near` and `far`.

use crate::{invalid::Invalid, words::shorten};

/// One item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Item<'a> {
    App(&'a str),
    Tag(&'a str),
    Rack(&'a str),
    Instance(&'a str),
}

impl<'a> Item<'a> {
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let (form, name) = text.split_once(':')?;
        match form {
            _ if name.is_empty() => None,
            "app" => Some(Self::App(name)),
            "tag" if name.contains('=') => Some(Self::Tag(name)),
            "rack" => Some(Self::Rack(name)),
            "instance" => Some(Self::Instance(name)),
            _ => None,
        }
    }

    /// Rejects an item without a name.
    pub(crate) fn check(field: &str, text: &'a str) -> Result<(), Invalid> {
        if Self::parse(text).is_some() && text.len() <= 300 {
            return Ok(());
        }
        let expected = "app:NAME, tag:KEY=VALUE, rack:NAME or instance:UUID";
        Err(Invalid::new(field, shorten(text), expected))
    }
}
