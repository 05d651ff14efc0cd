//! What `near` and `far` of a request may name.

use crate::{invalid::Invalid, words::shorten};

/// What `near` or `far` may name.
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

    /// Refuses an item that names nothing.
    pub(crate) fn check(field: &str, text: &'a str) -> Result<(), Invalid> {
        if Self::parse(text).is_some() && text.len() <= 300 {
            return Ok(());
        }
        let expected = "app:NAME, tag:KEY=VALUE, rack:NAME or instance:UUID";
        Err(Invalid::new(field, shorten(text), expected))
    }
}
