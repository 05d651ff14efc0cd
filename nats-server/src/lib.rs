//! A private nats-server on 127.0.0.1: finds the program ([`Places`]), starts it, and always ends it. `vendue up`,
//! `demo`, `bench` and `sim --over nats` use one, and so does every test that needs a server.

mod find;
pub mod spawn;

use std::{
    collections::VecDeque,
    fmt::Write,
    fs,
    io::{self, BufRead, BufReader},
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

pub use find::Places;

/// The default port of NATS servers.
pub const USUAL_PORT: u16 = 4222;
/// How long a server may take to listen; it usually needs 10 ms.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a server may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of lines of its log that are kept for error messages.
const LOG_LINES: usize = 200;

/// The port to listen on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Port {
    /// A free port that the server chooses.
    #[default]
    Any,
    /// [`USUAL_PORT`] if it is free, else any.
    Usual,
    /// This port.
    Fixed(u16),
}

/// The options of a server. Default: any port, no authentication, the server's own limits.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The port.
    pub port: Port,
    /// The token that clients must send.
    pub token: Option<String>,
    /// The largest message in bytes (the server's own default is 1 MiB).
    pub max_payload: Option<u32>,
    /// Text of a configuration file; the fields above override it.
    pub config: String,
}

/// Why the server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The program was not found in any of these places.
    #[error("{0}")]
    NotFound(Places),
    /// Another process listens on the requested port.
    #[error("port {0} of 127.0.0.1 is in use")]
    PortInUse(u16),
    /// Its directory or its configuration could not be written.
    #[error("writing nats-server's configuration")]
    Configuration(#[source] io::Error),
    /// The program could not be started.
    #[error("starting {}", .0.display())]
    Spawn(PathBuf, #[source] io::Error),
    /// Its state could not be read.
    #[error("waiting for nats-server")]
    Wait(#[source] io::Error),
    /// It ended before it listened.
    #[error("nats-server ended ({status}):\n{log}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// The last lines of its log.
        log: String,
    },
    /// It did not listen in time.
    #[error("nats-server is not listening after {} s:\n{log}", START_TIMEOUT.as_secs())]
    Silent {
        /// The last lines of its log.
        log: String,
    },
}

/// A nats-server that belongs to this process. It is killed when this is dropped, and when the process ends in any way.
#[derive(Debug)]
pub struct Server {
    program: PathBuf,
    options: Options,
    port: u16,
    child: Option<Child>,
    log: Log,
    /// Closed when the server closes its standard error, that is, when it ends.
    running: watch::Receiver<()>,
}

type Log = Arc<Mutex<VecDeque<String>>>;

/// The file that the server writes once it listens.
#[derive(Deserialize)]
struct PortsFile {
    nats: Vec<String>,
}

impl Server {
    /// Finds the program, starts it and waits until it accepts connections.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let places = Places::of_this_process();
        let program = places.find().ok_or(Error::NotFound(places))?;
        let mut server = Self {
            program,
            port: 0,
            child: None,
            log: Log::default(),
            running: watch::channel(()).1,
            options,
        };
        match server.options.port {
            Port::Any => server.launch(0).await?,
            Port::Fixed(port) => server.launch(port).await?,
            Port::Usual => match server.launch(USUAL_PORT).await {
                Err(Error::PortInUse(_)) => server.launch(0).await?,
                started => started?,
            },
        }
        Ok(server)
    }

    /// Starts it again on the same port, after killing it if it still runs.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.kill();
        self.launch(self.port).await
    }

    /// Returns the port it listens on, which stays the same after a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the token that clients must send.
    pub fn token(&self) -> Option<&str> {
        self.options.token.as_deref()
    }

    /// Returns its address as a URL, including the token if there is one (`nats://token@…`, which the `nats` tool
    /// accepts; `async_nats::connect` by itself does not read a token from a URL).
    pub fn url(&self) -> String {
        self.url_through(self.port)
    }

    /// Returns the URL through another port of this machine, such as that of a proxy.
    pub fn url_through(&self, port: u16) -> String {
        match self.token() {
            Some(token) => format!("nats://{token}@127.0.0.1:{port}"),
            None => format!("nats://127.0.0.1:{port}"),
        }
    }

    /// Returns its process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Returns the last lines of its log since it was last started.
    pub fn log(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.iter().cloned().collect::<Vec<_>>().join("\n")
    }

    /// Waits until it ends by itself, which is a failure; none if it is not running.
    pub async fn ended(&mut self) -> Result<Option<ExitStatus>, Error> {
        // the channel closes with the server's standard error; nothing is ever sent
        let _ = self.running.changed().await;
        loop {
            match (self.exit_status()?, &self.child) {
                (None, Some(_)) => sleep(Duration::from_millis(5)).await,
                (status, _) => return Ok(status),
            }
        }
    }

    /// Sends it a signal; does nothing if it is not running.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        match &self.child {
            Some(child) => Ok(kill_process(Pid::from_child(child), signal)?),
            None => Ok(()),
        }
    }

    /// Kills it (SIGKILL), like a crash of its machine.
    pub fn kill(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // fails if the child has already ended
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Asks it to end (SIGTERM), and kills it if it does not.
    pub async fn stop(&mut self) {
        let deadline = Instant::now() + STOP_TIMEOUT;
        // fails if it has already ended, which is fine
        let _ = self.signal(Signal::TERM);
        while matches!(self.exit_status(), Ok(None)) && Instant::now() < deadline {
            sleep(Duration::from_millis(2)).await;
        }
        self.kill();
    }

    fn exit_status(&mut self) -> Result<Option<ExitStatus>, Error> {
        let status = self.child.as_mut().map(Child::try_wait).transpose();
        Ok(status.map_err(Error::Wait)?.flatten())
    }

    /// Starts the process on this port (0 = any) and waits until it listens.
    async fn launch(&mut self, port: u16) -> Result<(), Error> {
        if port != 0 && TcpListener::bind(("127.0.0.1", port)).is_err() {
            return Err(Error::PortInUse(port));
        }
        // removed once it listens, as the configuration contains the token
        let home = tempfile::Builder::new().prefix("nats-server-").tempdir();
        let home = home.map_err(Error::Configuration)?;
        let config = home.path().join("server.conf");
        fs::write(&config, configuration(&self.options, home.path(), port))
            .map_err(Error::Configuration)?;
        self.spawn(&config)?;
        match self.listening(home.path()).await {
            Ok(port) => {
                self.port = port;
                Ok(())
            }
            Err(error) => {
                self.kill();
                // another process took the port between our check and the server's bind
                let taken = self.log().contains("address already in use");
                Err(if taken { Error::PortInUse(port) } else { error })
            }
        }
    }

    fn spawn(&mut self, config: &Path) -> Result<(), Error> {
        let mut command = spawn::command(&self.program);
        command
            .arg("--config")
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C at a terminal goes to the parent only, which ends the server last
            .process_group(0);
        let started = spawn::spawn(command);
        let mut child = started.map_err(|error| Error::Spawn(self.program.clone(), error))?;
        self.log = Log::default();
        let (closes_at_end, running) = watch::channel(());
        if let Some(stderr) = child.stderr.take() {
            let log = Arc::clone(&self.log);
            std::thread::spawn(move || {
                keep_lines(stderr, &log);
                drop(closes_at_end);
            });
        }
        self.running = running;
        self.child = Some(child);
        Ok(())
    }

    /// Waits for the file that the server writes when it listens.
    async fn listening(&mut self, home: &Path) -> Result<u16, Error> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            if let Some(port) = port_in_file(home) {
                return Ok(port);
            }
            if let Some(status) = self.exit_status()? {
                // its last lines may still be in the pipe
                let _ = tokio::time::timeout(STOP_TIMEOUT, self.running.changed()).await;
                let log = self.log();
                return Err(Error::Ended { status, log });
            }
            if Instant::now() > deadline {
                return Err(Error::Silent { log: self.log() });
            }
            sleep(Duration::from_millis(2)).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the configuration file. If a field is set twice, the server uses the last value.
fn configuration(options: &Options, home: &Path, port: u16) -> String {
    let mut text = options.config.clone();
    let home = home.display();
    // for the server, port 0 means the default port, and -1 any
    let port = if port == 0 { -1 } else { i32::from(port) };
    // writing to a string cannot fail
    let _ = write!(
        text,
        "\nlisten: \"127.0.0.1:{port}\"\nports_file_dir: \"{home}\"\n"
    );
    if let Some(bytes) = options.max_payload {
        let _ = writeln!(text, "max_payload: {bytes}");
    }
    if let Some(token) = &options.token {
        let _ = writeln!(text, "authorization {{ token: \"{token}\" }}");
    }
    text
}

fn port_in_file(home: &Path) -> Option<u16> {
    let mut files = fs::read_dir(home).ok()?.flatten().map(|entry| entry.path());
    let file = files.find(|file| file.extension().is_some_and(|e| e == "ports"))?;
    // a partly written file counts as absent
    let ports: PortsFile = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    ports.nats.first()?.rsplit(':').next()?.parse().ok()
}

/// Keeps the last lines of the server's log, and forwards all of them.
fn keep_lines(stderr: ChildStderr, log: &Log) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        tracing::debug!(target: "nats_server", "{line}");
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() == LOG_LINES {
            log.pop_front();
        }
        log.push_back(line);
    }
}
