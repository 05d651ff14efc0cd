//! The scenarios that come with vendue.

/// A scenario by its name and text (TOML).
pub type Shipped = (&'static str, &'static str);

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../scenarios/", $name, ".toml")))),*]
    };
}

/// All of them, in the order in which they are listed.
pub const ALL: &[Shipped] = shipped!["small-cold-4", "diego-250000",];

/// The text of one.
pub fn find(name: &str) -> Option<&'static str> {
    ALL.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
}
