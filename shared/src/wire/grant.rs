//! The grant of auctioneers that are run with `--single`: a manager gives it to one of them at a time, and only that one
//! accepts requests. The subject says which auctioneer asks.

use serde::{Deserialize, Serialize};

use crate::version::Version;

/// What an auctioneer says of itself when it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantAsk {
    /// Nothing: it only wants to know who holds the grant.
    Looks,
    /// It does not hold the grant, and asks for it.
    Wants,
    /// It holds the grant, and asks for it to be renewed.
    Holds,
    /// It gives the grant back. Nobody answers.
    Returns,
}

/// Auctioneer → all managers; the one that acts answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantRequest {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// This run of the auctioneer: another one of its name does not have its grant.
    pub run: String,
    /// What it wants.
    pub ask: GrantAsk,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Who answers.
    pub manager: String,
    /// Whether the auctioneer has the grant.
    pub granted: bool,
    /// For how long, from when it asked: until then the manager gives the grant to no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ms: Option<u64>,
    /// The auctioneer that has the grant, as far as the manager knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
}
