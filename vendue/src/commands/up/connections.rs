//! The identities of the cluster's programs, and how they connect.

use std::path::PathBuf;

use anyhow::Context;
use shared::{
    nats::{Bus, Echo, NatsOptions, PermissionViolations},
    permissions::Role,
};
use tempfile::TempDir;

use super::manager::MANAGER;
use crate::{
    auth::{Directory, Roster},
    cluster::{self, short_name},
    context::Global,
};

/// The name of the only auctioneer of a private server.
pub(super) const AUCTIONEER: &str = "auctioneer-0";
/// The identity of the user who types commands.
pub(super) const OPERATOR: &str = "operator";

/// The keys of a cluster with --secure, which are removed when it ends.
pub(super) struct Keys {
    pub(super) directory: Directory,
    _files: TempDir,
}

impl Keys {
    /// Creates keys for these cells, an auctioneer, an operator, and a manager if one runs.
    pub(super) fn make(
        global: &Global,
        cells: &[rep::RepConfig],
        has_manager: bool,
    ) -> anyhow::Result<Self> {
        let files = tempfile::Builder::new().prefix("vendue-up-").tempdir();
        let files = files.context("a directory for the keys")?;
        let roster = Roster::new(&global.prefix, "");
        let mut directory = Directory::create(files.path(), roster)?;
        let names: Vec<String> = cells.iter().map(|config| config.cell.clone()).collect();
        directory.add(Role::Cell, &names)?;
        directory.add(Role::Auctioneer, &[AUCTIONEER.to_owned()])?;
        if has_manager {
            directory.add(Role::Manager, &[MANAGER.to_owned()])?;
        }
        directory.add(Role::Operator, &[OPERATOR.to_owned()])?;
        Ok(Self {
            directory,
            _files: files,
        })
    }
}

/// How the programs of the cluster connect.
pub(super) struct Connections {
    pub(super) options: NatsOptions,
    pub(super) keys: Option<Keys>,
}

impl Connections {
    /// Returns the key of one of the cluster's identities, with --secure.
    pub(super) fn key(&self, identity: &str) -> Option<PathBuf> {
        let keys = self.keys.as_ref()?;
        Some(keys.directory.key(identity))
    }

    /// Connects a program; without an identity, as the user who types commands.
    pub(super) async fn connect(
        &self,
        name: &str,
        identity: Option<&str>,
        echo: Echo,
    ) -> anyhow::Result<Bus> {
        let identity = identity.or(self.keys.as_ref().map(|_| OPERATOR));
        let key = identity.and_then(|identity| self.key(identity));
        let options = NatsOptions {
            name: short_name(name),
            echo,
            nkey: key.or(self.options.nkey.clone()),
            identity: identity
                .map(str::to_owned)
                .or(self.options.identity.clone()),
            // each role handles its own violations
            violations: PermissionViolations::default(),
            ..self.options.clone()
        };
        cluster::connect(&options).await
    }

    /// Connects a manager to the cluster and to its stored state. With --secure, that is in a separate account, in
    /// which the manager has a second identity.
    pub(super) async fn connect_manager(&self, name: &str) -> anyhow::Result<(Bus, Bus)> {
        let bus = self.connect("manager", Some(name), Echo::All).await?;
        if self.keys.is_none() {
            return Ok((bus.clone(), bus));
        }
        let second = Role::state_of(name);
        let state = self.connect("manager-state", Some(&second), Echo::All);
        Ok((bus, state.await?))
    }
}
