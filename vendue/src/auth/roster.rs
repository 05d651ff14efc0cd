//! The roster of identities. Plain data, from which everything but the keys is generated.

use std::{collections::BTreeMap, path::PathBuf};

use advertiser::dea::MAX_SLOTS;
use placement::check_name;
use serde::{Deserialize, Serialize};
use shared::{Subjects, permissions::Role};

/// The identities of one cluster, and how they reach its server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Roster {
    v: shared::Version,
    /// The prefix of the cluster's subjects.
    pub(crate) prefix: String,
    /// The server's address, for the contexts.
    pub(crate) url: String,
    /// The file with the authority that signed the server's certificate, for the contexts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    /// Whether connections begin with TLS, for the contexts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) tls_first: bool,
    /// By name: names are part of subjects, so no two roles share one.
    pub(crate) identities: BTreeMap<String, Identity>,
}

/// One identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    /// Its role, which determines its permissions.
    pub(crate) role: Role,
    /// Its public key; whoever has the seed is this identity.
    pub(crate) nkey: String,
    /// For a bridge: the number of cells it makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slots: Option<usize>,
    /// For a facade: the cells of which it makes DEAs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cells: Vec<String>,
}

impl Identity {
    /// Returns the cells for which an identity of this name speaks, or which it commands.
    pub(crate) fn cells_of(&self, name: &str) -> Vec<String> {
        match self.slots {
            Some(slots) => Role::cells_of_bridge(name, slots.min(MAX_SLOTS)),
            None => self.cells.clone(),
        }
    }
}

impl Roster {
    /// Creates an empty roster.
    pub(crate) fn new(prefix: &str, url: &str) -> Self {
        Self {
            v: shared::VERSION,
            prefix: prefix.to_owned(),
            url: url.to_owned(),
            ca: None,
            tls_first: false,
            identities: BTreeMap::new(),
        }
    }

    /// Reads a roster's file. As a person may have edited it, errors name what is wrong.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let roster: Self = serde_json::from_str(text).map_err(|e| e.to_string())?;
        Subjects::new(roster.prefix.as_str()).map_err(|e| e.to_string())?;
        for (name, identity) in &roster.identities {
            check_name("name", name).map_err(|e| e.to_string())?;
            for cell in &identity.cells {
                check_name("cells", cell).map_err(|e| e.to_string())?;
            }
            let key = nkeys::KeyPair::from_public_key(&identity.nkey);
            let user = key.is_ok_and(|key| key.key_pair_type() == nkeys::KeyPairType::User);
            if !user {
                let nkey = &identity.nkey;
                return Err(format!(
                    "nkey of {name}: {nkey:?} is no public key of a user; expected U and 55 more of A-Z 2-7"
                ));
            }
        }
        Ok(roster)
    }

    /// Returns the subjects of the cluster.
    pub(crate) fn subjects(&self) -> Result<Subjects, placement::Invalid> {
        Subjects::new(self.prefix.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roster_is_read_back_and_what_is_wrong_in_it_is_named() {
        let mut roster = Roster::new("vendue", "nats://h:4222");
        let key = nkeys::KeyPair::new_user().public_key();
        let identity = |nkey: &str| Identity {
            role: Role::Cell,
            nkey: nkey.to_owned(),
            slots: None,
            cells: Vec::new(),
        };
        roster.identities.insert("c1".into(), identity(&key));
        let text = |roster: &Roster| serde_json::to_string(roster).unwrap();
        assert_eq!(Roster::parse(&text(&roster)).unwrap(), roster);
        for (name, nkey, said) in [
            ("a b", key.as_str(), "\"a b\""),
            ("c2", "UABC\" }", "nkey of c2"),
            (
                "c2",
                &nkeys::KeyPair::new_account().public_key(),
                "nkey of c2",
            ),
        ] {
            let mut bad = roster.clone();
            bad.identities.insert(name.into(), identity(nkey));
            let error = Roster::parse(&text(&bad)).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let unknown = text(&roster).replace("\"cell\"", "\"boss\"");
        let error = Roster::parse(&unknown).unwrap_err();
        assert!(
            error.contains("boss") && error.contains("auctioneer"),
            "{error}"
        );
    }
}
