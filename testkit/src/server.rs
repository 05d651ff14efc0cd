//! A real nats-server for one test.

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::spawn;

/// How long a server may take to listen or to end: it needs some 10 ms.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a server is started. The default: any free port, no authentication, the server's own limits.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Clients must show this token.
    pub token: Option<String>,
    /// The largest message, bytes (the server's own default: 1 MiB).
    pub max_payload: Option<u32>,
    /// A configuration file's text, on top of which everything else is laid.
    pub config: String,
    /// The port to listen on; none = one that the server chooses.
    pub port: Option<u16>,
}

/// A nats-server on 127.0.0.1 that belongs to one test. Dropped, it is killed and leaves nothing;
/// it also dies with the test's process.
#[derive(Debug)]
pub struct NatsServer {
    options: Options,
    home: TempDir,
    port: u16,
    child: Option<Child>,
}

impl NatsServer {
    /// A server with every option at its default.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// A server that asks for this token.
    pub async fn with_token(token: &str) -> Self {
        let token = Some(token.to_owned());
        Self::start_with(Options {
            token,
            ..Options::default()
        })
        .await
    }

    /// A server with this configuration text.
    pub async fn with_config(config: &str) -> Self {
        let config = config.to_owned();
        Self::start_with(Options {
            config,
            ..Options::default()
        })
        .await
    }

    /// A server with these options; returns when it accepts connections.
    pub async fn start_with(options: Options) -> Self {
        let home = tempfile::Builder::new()
            .prefix("nats-server-")
            .tempdir()
            .expect("a temporary directory for nats-server");
        let mut server = Self {
            port: options.port.unwrap_or(0),
            options,
            home,
            child: None,
        };
        server.launch().await;
        server
    }

    /// The port it listens on; the same one after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its address as a URL, the token included where there is one (`nats://token@…`, which the
    /// `nats` tool takes; `async_nats::connect` alone reads no token out of a URL).
    pub fn url(&self) -> String {
        self.url_of(self.port)
    }

    /// The same through another port of this machine, such as a [`crate::Link`]'s.
    pub fn url_of(&self, port: u16) -> String {
        match &self.options.token {
            Some(token) => format!("nats://{token}@127.0.0.1:{port}"),
            None => format!("nats://127.0.0.1:{port}"),
        }
    }

    /// A client of this server.
    pub async fn client(&self) -> async_nats::Client {
        self.client_through(self.port).await
    }

    /// A client of this server through another port, such as a [`crate::Link`]'s.
    pub async fn client_through(&self, port: u16) -> async_nats::Client {
        let options = match &self.options.token {
            Some(token) => async_nats::ConnectOptions::with_token(token.clone()),
            None => async_nats::ConnectOptions::new(),
        };
        let connected = options.connect(format!("nats://127.0.0.1:{port}")).await;
        connected.unwrap_or_else(|e| panic!("no client at port {port}: {e}\n{}", self.log()))
    }

    /// What it has logged since it was started last.
    pub fn log(&self) -> String {
        let read = |name| fs::read_to_string(self.home.path().join(name)).unwrap_or_default();
        // what is wrong before there is a log (its arguments, its configuration) is on stderr
        read("stderr") + &read("log")
    }

    /// Its process id, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Ends it at once (SIGKILL), as a crash of its machine would. Already stopped: does nothing.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // a child that ended by itself cannot be killed, and need not be
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub async fn stop_gracefully(&mut self) {
        self.signal(Signal::TERM);
        let end = Instant::now() + PATIENCE;
        while self.exited().is_none() {
            assert!(
                Instant::now() < end,
                "nats-server ignores SIGTERM:\n{}",
                self.log()
            );
            sleep(Duration::from_millis(5)).await;
        }
        self.child = None;
    }

    /// Starts it again on the port it had, after killing it if it still runs.
    pub async fn restart(&mut self) {
        self.stop();
        self.launch().await;
    }

    /// Freezes it (SIGSTOP): its connections stay open and nothing answers. Returns when the last of
    /// its threads stands still, which the signal alone does not promise.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let end = Instant::now() + PATIENCE;
        while !self.pid().is_none_or(stands_still) {
            assert!(Instant::now() < end, "nats-server does not freeze");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets it go on after [`NatsServer::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("a nats-server that runs");
        let pid = Pid::from_child(child);
        kill_process(pid, signal).expect("signal nats-server");
    }

    fn exited(&mut self) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        child.try_wait().expect("wait for nats-server")
    }

    /// Starts the process and waits for its port. A fixed port that is in use is tried again: a
    /// server on its way out, or a passing connection of another test, may hold it for a moment.
    async fn launch(&mut self) {
        let end = Instant::now() + PATIENCE;
        loop {
            self.spawn();
            let ended = loop {
                if let Some(port) = self.listening() {
                    self.port = port;
                    return;
                }
                if let Some(status) = self.exited() {
                    break status;
                }
                assert!(
                    Instant::now() < end,
                    "nats-server does not listen:\n{}",
                    self.log()
                );
                sleep(Duration::from_millis(2)).await;
            };
            let log = self.log();
            let again = log.contains("address already in use") && Instant::now() < end;
            assert!(again, "nats-server ended with {ended}:\n{log}");
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn spawn(&mut self) {
        let home = self.home.path();
        let _ = fs::remove_file(home.join("log"));
        let limit = self
            .options
            .max_payload
            .map(|bytes| format!("\nmax_payload: {bytes}\n"));
        let config = self.options.config.clone() + &limit.unwrap_or_default();
        fs::write(home.join("config"), config).expect("write nats-server's configuration");
        let mut command = spawn::mortal(&server_binary());
        command
            .arg("--config")
            .arg(home.join("config"))
            .args(["--addr", "127.0.0.1", "--port"])
            // 0 would mean 4222, and -1 means any
            .arg(if self.port == 0 {
                "-1".into()
            } else {
                self.port.to_string()
            })
            .arg("--ports_file_dir")
            .arg(home)
            .arg("--log")
            .arg(home.join("log"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(home.join("stderr")).expect("create nats-server's stderr"));
        if let Some(token) = &self.options.token {
            command.args(["--auth", token]);
        }
        let child = spawn::spawn(command);
        self.child = Some(child.expect("start nats-server"));
    }

    /// The port in the file that the server writes once it listens; none before.
    fn listening(&self) -> Option<u16> {
        #[derive(serde::Deserialize)]
        struct Ports {
            nats: Vec<String>,
        }
        let ending = format!("_{}.ports", self.pid()?);
        let mut files = fs::read_dir(self.home.path())
            .ok()?
            .flatten()
            .map(|e| e.path());
        let file = files.find(|file| file.to_string_lossy().ends_with(&ending))?;
        // half-written is as good as absent
        let ports: Ports = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
        ports.nats.first()?.rsplit(':').next()?.parse().ok()
    }
}

/// Whether every thread of a process is stopped; true where there is no `/proc` to ask.
fn stands_still(pid: u32) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.is_empty() || status.contains("State:\tT")
    })
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where nats-server is: `NATS_SERVER_BIN`, else the first on `PATH`, else `.tools/nats-server` of
/// the workspace. Panics, with the command that mends it, when there is none.
pub fn server_binary() -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/nats-server");
    find_binary(env::var_os("NATS_SERVER_BIN"), env::var_os("PATH"), &tools)
        .unwrap_or_else(|missing| panic!("{missing}"))
}

fn find_binary(
    named: Option<OsString>,
    path: Option<OsString>,
    tools: &Path,
) -> Result<PathBuf, String> {
    if let Some(named) = named.filter(|n| !n.is_empty()) {
        let file = PathBuf::from(&named);
        let missing = format!(
            "NATS_SERVER_BIN={} is no file; name a nats-server, or unset it and run `make tools`",
            file.display()
        );
        return if file.is_file() {
            Ok(file)
        } else {
            Err(missing)
        };
    }
    let path = path.unwrap_or_default();
    let on_path = env::split_paths(&path).map(|dir| dir.join("nats-server"));
    on_path
        .chain([tools.to_owned()])
        .find(|file| file.is_file())
        .ok_or_else(|| {
            "no nats-server: not in NATS_SERVER_BIN, on PATH or in .tools/; run `make tools`".into()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binary_is_the_named_one_else_on_the_path_else_in_tools() {
        let dirs = tempfile::tempdir().expect("a directory");
        let file = |dir: &str| {
            let dir = dirs.path().join(dir);
            fs::create_dir_all(&dir).expect("a directory");
            fs::write(dir.join("nats-server"), "").expect("a file");
            dir.join("nats-server")
        };
        let (named, on_path, tools) = (file("named"), file("path"), file("tools"));
        let nowhere = dirs.path().join("nowhere");
        let path = env::join_paths([&nowhere, &dirs.path().join("path")]).ok();
        let find = |named: Option<&Path>, path: &Option<OsString>, tools: &Path| {
            find_binary(named.map(Into::into), path.clone(), tools)
        };
        assert_eq!(find(Some(&named), &path, &tools), Ok(named.clone()));
        assert_eq!(find(None, &path, &tools), Ok(on_path));
        assert_eq!(find(None, &None, &tools), Ok(tools.clone()));
        assert_eq!(find(Some(Path::new("")), &None, &tools), Ok(tools.clone()));
        for missing in [
            find(Some(&nowhere), &path, &tools),
            find(None, &None, &nowhere),
        ] {
            let text = missing.expect_err("nothing to be found");
            assert!(text.contains("make tools"), "{text}");
        }
    }
}
