//! The cluster's manager, and where the private server keeps its state.

use std::{
    fmt::Display,
    fs::{DirBuilder, File, TryLockError},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use manager::{BucketConfig, ManagerConfig, ManagerError};
use shared::{Subjects, nats::Bus, shutdown::CancellationToken};
use tempfile::TempDir;

use crate::{
    cluster::short_name, commands::manager_role::manager_error, context::Usage, output::note,
};

/// The name of the only manager of a private server.
pub(super) const MANAGER: &str = "manager-0";
/// How long commands wait until the manager knows its bucket.
const READY: Duration = Duration::from_secs(10);
/// The most that the private server stores, in bytes.
const MAX_STORED: &str = "1G";

/// Where the private server stores apps.
pub(super) struct Data {
    path: PathBuf,
    /// Removed when the cluster ends, unless the user named a directory.
    _files: Option<TempDir>,
    /// Held while this cluster uses a named directory.
    _lock: Option<File>,
}

impl Data {
    /// Uses the named directory, else one that is removed when the cluster ends. As definitions contain secrets, nobody
    /// else may read them.
    pub(super) fn at(named: Option<&Path>) -> anyhow::Result<Self> {
        let Some(path) = named else {
            let files = tempfile::Builder::new().prefix("vendue-apps-").tempdir();
            let files = files.context("a directory for the apps")?;
            let path = files.path().to_owned();
            return Ok(Self {
                path,
                _files: Some(files),
                _lock: None,
            });
        };
        let refused = |why: &dyn Display| {
            Usage::because(format_args!(
                "--data {}: {why}; expected a directory that nothing else uses, or the name of a new one",
                path.display()
            ))
        };
        let mut builder = DirBuilder::new();
        let created = builder.recursive(true).mode(0o700).create(path);
        created.map_err(|error| refused(&error))?;
        // two servers would destroy each other's files
        let mut options = File::options();
        let lock = options.create(true).append(true).open(path.join(".lock"));
        let lock = lock.map_err(|error| refused(&error))?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => refused(&"another `vendue up` uses it"),
            TryLockError::Error(error) => refused(&error),
        })?;
        Ok(Self {
            path: path.canonicalize()?,
            _files: None,
            _lock: Some(lock),
        })
    }

    /// Returns the JetStream part of the server's configuration.
    pub(super) fn config(&self) -> String {
        let path = self.path.display().to_string();
        let path = path.replace('\\', "\\\\").replace('"', "\\\"");
        format!("jetstream {{ store_dir: \"{path}\", max_file: {MAX_STORED} }}\n")
    }
}

/// Returns the settings of the cluster's manager; on a shared server it has a unique name.
pub(super) fn config(joins: bool, subjects: &Subjects) -> ManagerConfig {
    ManagerConfig {
        name: if joins {
            short_name("manager")
        } else {
            MANAGER.to_owned()
        },
        bucket: BucketConfig {
            name: subjects.apps_bucket(),
            replicas: 1,
        },
    }
}

/// Runs the manager over its connections to the cluster and to its stored state. Without usable JetStream, the cluster
/// works without it.
pub(super) async fn run(
    config: ManagerConfig,
    (bus, state): (Bus, Bus),
    subjects: Subjects,
    stop: CancellationToken,
    failed: CancellationToken,
) -> anyhow::Result<()> {
    let ended = manager::run(config, bus, state, subjects, stop.clone()).await;
    match ended {
        Err(
            error @ (ManagerError::OldServer(_)
            | ManagerError::NoJetStream(_)
            | ManagerError::StateNotPermitted { .. }),
        ) => {
            failed.cancel();
            note(format_args!(
                "no manager runs, so `vendue app` does not work: {error}"
            ));
            stop.cancelled().await;
            Ok(())
        }
        ended => ended.map_err(manager_error),
    }
}

/// Waits until a manager answers, but not for long, and not for one that has failed.
pub(super) async fn until_ready(bus: &Bus, subjects: &Subjects, failed: &CancellationToken) {
    let answers = async {
        loop {
            let asked = bus.client.request(subjects.app_list(), "".into());
            if asked.await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        answered = tokio::time::timeout(READY, answers) => if answered.is_err() {
            note("the manager does not answer yet");
        },
        () = failed.cancelled() => {}
    }
}
