//! Who may connect to a cluster's server, and as what: a directory with a roster, a key for each identity, and the
//! files generated from them.

mod directory;
mod roster;
mod server_config;
mod signing_keys;

pub(crate) use directory::{Directory, Entry};
pub(crate) use roster::Roster;
pub(crate) use server_config::server_config;
pub(crate) use signing_keys::signing_keys;
