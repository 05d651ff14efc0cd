//! A real nats-server for one test.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use nats_server::{Error, Options, Places, Server};
use rustix::process::Signal;
use tokio::time::sleep;

/// How long a server may take to freeze, and how long another test may hold its port.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A nats-server on 127.0.0.1 that belongs to one test. When dropped, it is killed and its files
/// are removed; it also ends with the test's process.
#[derive(Debug)]
pub struct NatsServer(Server);

impl NatsServer {
    /// Starts a server with every option at its default.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// Starts a server that requires this token.
    pub async fn with_token(token: &str) -> Self {
        let token = Some(token.to_owned());
        Self::start_with(Options {
            token,
            ..Options::default()
        })
        .await
    }

    /// Starts a server with this configuration text.
    pub async fn with_config(config: &str) -> Self {
        let config = config.to_owned();
        Self::start_with(Options {
            config,
            ..Options::default()
        })
        .await
    }

    /// Starts a server with these options; returns when it accepts connections.
    pub async fn start_with(options: Options) -> Self {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Some(server) = unless_in_use(Server::start(options.clone()).await, deadline) {
                return Self(server);
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Returns the port it listens on, which stays the same after a restart.
    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Returns `127.0.0.1:port`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    /// Returns its address as a URL, including the token if there is one (`nats://token@…`, which the `nats` tool
    /// accepts; `async_nats::connect` by itself does not read a token from a URL).
    pub fn url(&self) -> String {
        self.0.url()
    }

    /// Returns the URL through another port of this machine, such as that of a [`crate::Link`].
    pub fn url_of(&self, port: u16) -> String {
        self.0.url_through(port)
    }

    /// Returns a client of this server.
    pub async fn client(&self) -> async_nats::Client {
        self.client_through(self.port()).await
    }

    /// Returns a client that connects through another port of this machine, such as that of a [`crate::Link`].
    pub async fn client_through(&self, port: u16) -> async_nats::Client {
        let options = match self.0.token() {
            Some(token) => async_nats::ConnectOptions::with_token(token.to_owned()),
            None => async_nats::ConnectOptions::new(),
        };
        let connected = options.connect(format!("nats://127.0.0.1:{port}")).await;
        connected.unwrap_or_else(|e| panic!("no client at port {port}: {e}\n{}", self.log()))
    }

    /// Returns the last lines of its log since it was last started.
    pub fn log(&self) -> String {
        self.0.log()
    }

    /// Returns its process id while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.0.pid()
    }

    /// Kills it (SIGKILL), like a crash of its machine. Does nothing if it is already stopped.
    pub fn stop(&mut self) {
        self.0.kill();
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub async fn stop_gracefully(&mut self) {
        self.signal(Signal::TERM);
        let ended = tokio::time::timeout(TIMEOUT, self.0.ended()).await;
        assert!(
            ended.is_ok(),
            "nats-server ignores SIGTERM:\n{}",
            self.log()
        );
        self.0.kill();
    }

    /// Starts it again on the port it had, after killing it if it still runs.
    pub async fn restart(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        while unless_in_use(self.0.restart().await, deadline).is_none() {
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Freezes it (SIGSTOP): its connections stay open and nothing answers. Returns once all of its threads have
    /// stopped, which the signal alone does not guarantee.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + TIMEOUT;
        while !self.pid().is_none_or(shared::proc::is_stopped) {
            assert!(Instant::now() < deadline, "nats-server does not freeze");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Resumes it after [`NatsServer::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        assert!(self.pid().is_some(), "nats-server does not run");
        self.0.signal(signal).expect("signal nats-server");
    }
}

/// Returns what was started, or none while the port is in use: a server that is ending, or a short connection of
/// another test, may hold it for a moment. Panics on any other failure.
fn unless_in_use<T>(started: Result<T, Error>, deadline: Instant) -> Option<T> {
    match started {
        Ok(started) => Some(started),
        Err(Error::PortInUse(_)) if Instant::now() < deadline => None,
        Err(error) => panic!("{error}"),
    }
}

/// Returns the path of nats-server. Panics if there is none, saying what to do.
pub fn server_binary() -> PathBuf {
    let places = Places::of_this_process();
    places.find().unwrap_or_else(|| panic!("{places}"))
}
