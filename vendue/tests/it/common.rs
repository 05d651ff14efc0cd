//! A private cluster for one test, and the program as people call it.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

/// Returns whether the tests' server is of version 2.9, which managers cannot use and which has no `handshake_first`.
pub(crate) fn is_old_server() -> bool {
    let version = end(Command::new(testkit::server_binary()).arg("--version"));
    version.out.contains("v2.9.")
}

/// A program's output and how it ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Finished {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// Asserts that it ended with this code and printed each text, on either stream.
    #[track_caller]
    pub(crate) fn expect(&self, code: i32, texts: &[&str]) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        for text in texts {
            let said = self.out.contains(text) || self.err.contains(text);
            assert!(said, "{text:?} was not said: {self:?}");
        }
        assert!(!self.err.contains("panicked"), "{self:?}");
        self
    }
}

/// Returns the program, in an environment that names no cluster.
pub(crate) fn vendue() -> Command {
    vendue_at(Path::new(env!("CARGO_BIN_EXE_vendue")))
}

/// Returns the program in this file, in the same environment.
pub(crate) fn vendue_at(program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("VENDUE_") || text.starts_with("NATS_") {
            command.env_remove(name);
        }
    }
    // where a person's contexts of the nats tool would be
    command.env("XDG_CONFIG_HOME", "/no/such/directory");
    command.env("NATS_SERVER_BIN", testkit::server_binary());
    command.current_dir(checkout());
    command
}

pub(crate) fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a command to its end.
pub(crate) fn end(command: &mut Command) -> Finished {
    let output = command.stdin(Stdio::null()).output().unwrap();
    Finished {
        code: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Runs the program with these arguments and no cluster to its end.
pub(crate) fn run(args: &[&str]) -> Finished {
    end(vendue().args(args))
}

/// `vendue up`, ended (if necessary killed) with the test.
pub(crate) struct Up {
    pub(crate) child: Child,
    pub(crate) url: String,
    /// What it reported about itself.
    pub(crate) said: Value,
    /// Removed with it, including files left by a killed cluster.
    _files: TempDir,
}

impl Up {
    /// Starts four cells in two zones.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        let mut command = vendue();
        command
            .args(["up", "--port", "0", "--grace", "2s"])
            .args(args);
        Self::of(command)
    }

    /// Starts it and waits until it is up.
    pub(crate) fn of(mut command: Command) -> Self {
        let files = tempfile::tempdir().unwrap();
        // instances, which run as another user if the test is root's, must be able to pass through
        fs::set_permissions(&files, fs::Permissions::from_mode(0o755)).unwrap();
        command
            .args(["--output", "json"])
            .stdout(Stdio::piped())
            .env("TMPDIR", files.path());
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line)
            .unwrap_or_else(|e| panic!("up said {line:?} ({e}), then {:?}", child.wait()));
        let url = said["nats"].as_str().unwrap().to_owned();
        Self {
            child,
            url,
            said,
            _files: files,
        }
    }

    /// Returns what its user would type, with the reported address and, with --secure, the reported key.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = vendue();
        command.args(args).env("NATS_URL", &self.url);
        if let Some(key) = self.said["nkey"].as_str() {
            command.env("NATS_NKEY", key);
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Finished {
        end(&mut self.command(args))
    }

    /// Runs a command that must succeed, and reads its JSON.
    #[track_caller]
    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let said = end(self.command(args).args(["--output", "json"]));
        said.expect(0, &[]);
        said.json()
    }

    /// Returns the instances of an app in this state.
    pub(crate) fn instances(&self, app: &str, state: &str) -> Vec<Value> {
        let mut answer = self.json(&["ps", app, "--all"]);
        let all: Vec<Value> = serde_json::from_value(answer["instances"].take()).unwrap();
        all.into_iter().filter(|i| i["state"] == state).collect()
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.pid()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // it may already have ended by itself
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until an auctioneer and a cell of the cluster at this address answer; `more` are further options.
pub(crate) async fn until_healthy(url: &str, more: &[&str]) {
    until("the cluster to be healthy", || {
        let said = run(&[&["health", "--nats", url], more].concat());
        (said.code == Some(0)).then_some(()).ok_or(said.err)
    })
    .await;
}

/// Returns the live processes with this text in their environment or command line; everything that a private cluster
/// runs can be marked this way.
pub(crate) fn processes_with(mark: &str) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        let stat = String::from_utf8_lossy(&read("stat")).into_owned();
        let zombie = stat
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('Z'));
        let has = |bytes: &[u8]| bytes.windows(mark.len()).any(|w| w == mark.as_bytes());
        if !zombie && pid != std::process::id() && (has(&read("environ")) || has(&read("cmdline")))
        {
            found.insert(pid);
        }
    }
    found
}

/// Long enough for a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for a condition; each look may block.
pub(crate) async fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    testkit::eventually_within(PATIENCE, what, async || look()).await
}
