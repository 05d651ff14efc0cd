//! The scenarios that ship with vendue.

/// A scenario's name and text (TOML).
pub type Shipped = (&'static str, &'static str);

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../scenarios/", $name, ".toml")))),*]
    };
}

/// All shipped scenarios, in the order in which they are listed.
pub const ALL: &[Shipped] = shipped![
    "small-cold-4",
    "small-cold-10",
    "small-cold-20",
    "small-cold-40",
    "large-cold-25",
    "large-cold-100",
    "large-cold-2014",
    "imbalanced-deploy-5",
    "imbalanced-deploy-1",
    "az-distribution",
    "watters-10",
    "watters-30",
    "watters-100",
    "boulders-and-pebbles",
    "bin-pack",
    "bin-pack-one-app",
    "dea-zone-returns",
    "mendix-48h",
    "mendix-128gb",
    "platform-roll-out",
    "one-app-1-auctioneers",
    "one-app-2-auctioneers",
    "one-app-4-auctioneers",
    "one-app-4-single",
    "single-killed",
    "adverts-100ms",
    "adverts-1s",
    "adverts-5s",
    "diego-250000",
    "apps-zone-lost",
    "apps-zone-returns",
    "apps-zone-rebalanced",
    "apps-half-lost",
    "apps-rollout",
];

/// Returns the text of a shipped scenario.
pub fn find(name: &str) -> Option<&'static str> {
    ALL.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, text)| *text)
}
