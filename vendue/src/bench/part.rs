//! The processes that the bench starts.

use std::{
    path::PathBuf,
    process::{ExitStatus, Stdio},
};

use anyhow::Context;
use tokio::process::{Child, Command};

/// A child process of the bench; killed when it goes out of scope.
pub(super) struct Part {
    child: Child,
    pub(super) pid: u32,
}

impl Part {
    pub(super) fn start(url: &str, arguments: &[String]) -> anyhow::Result<Self> {
        let program: PathBuf = std::env::current_exe()?;
        let child = Command::new(&program)
            .args(arguments)
            .env("NATS_URL", url)
            .env("VENDUE_LOG", "error")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .process_group(0) // Ctrl-C goes only to us, as parts end after the load
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let pid = child.id().context("it ended at once")?;
        Ok(Self { child, pid })
    }

    /// Returns how it ended, if it has.
    pub(super) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // it may already have ended
        let _ = self.child.start_kill();
    }
}
