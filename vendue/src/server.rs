//! A private nats-server: finding the program, starting it, and never leaving it behind.

use std::{
    collections::VecDeque,
    env,
    ffi::OsString,
    fs,
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{ExitCode, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, anyhow};
use rustix::process::{self, Pid, Signal};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStderr, Command},
    time::{Instant, sleep, timeout},
};

use crate::output::note;

/// It listens after some 10 ms; a machine in trouble gets more.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Lines of its log that are kept for an error message.
const LINES: usize = 20;

/// Which port to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// 4222 when it is free, else any.
    Usual,
    /// This one; 0 = any.
    This(u16),
}

/// The port that NATS servers have when nobody says otherwise.
pub(crate) const USUAL: u16 = 4222;

/// A nats-server on 127.0.0.1 that is ours.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    log: Arc<Mutex<VecDeque<String>>>,
    /// Where it listens.
    pub(crate) port: u16,
    /// What clients must show.
    pub(crate) token: Option<String>,
}

#[derive(Deserialize)]
struct Ports {
    nats: Vec<String>,
}

impl Server {
    /// Starts one and waits until it listens. Call it on the thread that lasts as long as the
    /// server should: the server dies with that thread.
    pub(crate) async fn start(port: Port, token: Option<String>) -> anyhow::Result<Self> {
        let binary = find()?;
        let wanted = match port {
            Port::Usual if is_free(USUAL) => USUAL,
            Port::Usual | Port::This(0) => 0,
            Port::This(port) if is_free(port) => port,
            Port::This(port) => {
                return Err(anyhow!(
                    "port {port} of 127.0.0.1 is in use; another --port, or --port 0 for any free one"
                ));
            }
        };
        match Self::launch(&binary, wanted, token.clone()).await {
            // somebody took it between our look and the server's
            Err(_) if port == Port::Usual && wanted == USUAL && !is_free(USUAL) => {
                Self::launch(&binary, 0, token).await
            }
            started => started,
        }
    }

    async fn launch(binary: &Path, port: u16, token: Option<String>) -> anyhow::Result<Self> {
        // only until it listens: the configuration holds the token
        let home = tempfile::Builder::new().prefix("vendue-nats-").tempdir()?;
        let config = home.path().join("server.conf");
        fs::write(&config, configuration(home.path(), port, token.as_deref()))?;
        let mut child = mortal(binary)?
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0) // Ctrl-C at the terminal is for us: the server ends after the cells
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("starting {}", binary.display()))?;
        let log = Arc::default();
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(keep(stderr, Arc::clone(&log)));
        }
        let mut server = Self {
            child,
            log,
            port,
            token,
        };
        server.port = server.listening(home.path()).await?;
        Ok(server)
    }

    /// Waits for the file that the server writes when it listens.
    async fn listening(&mut self, home: &Path) -> anyhow::Result<u16> {
        let end = Instant::now() + TIMEOUT;
        loop {
            if let Some(port) = ports_file(home) {
                return Ok(port);
            }
            if let Some(status) = self.child.try_wait()? {
                // its last words may still be on their way through the pipe
                sleep(Duration::from_millis(50)).await;
                return Err(anyhow!("nats-server ended ({status}):\n{}", self.log()));
            }
            if Instant::now() > end {
                let log = self.log();
                return Err(anyhow!("nats-server does not listen:\n{log}"));
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// What clients connect to, token included.
    pub(crate) fn url(&self) -> String {
        match &self.token {
            Some(token) => format!("nats://{token}@127.0.0.1:{}", self.port),
            None => format!("nats://127.0.0.1:{}", self.port),
        }
    }

    /// Its process id, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until it ends by itself, which it should not.
    pub(crate) async fn ended(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// The last lines of its log.
    pub(crate) fn log(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.iter().cloned().collect::<Vec<_>>().join("\n")
    }

    /// Ends it: asked first, killed when it does not listen.
    pub(crate) async fn stop(mut self) {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            // gone already is as good
            let _ = process::kill_process(pid, Signal::TERM);
        }
        if timeout(Duration::from_secs(5), self.child.wait())
            .await
            .is_err()
        {
            let _ = self.child.kill().await;
        }
    }
}

fn configuration(home: &Path, port: u16, token: Option<&str>) -> String {
    let port = if port == 0 {
        "-1".into() // 0 would be 4222
    } else {
        port.to_string()
    };
    let home = home.display();
    let mut text = format!("listen: \"127.0.0.1:{port}\"\nports_file_dir: \"{home}\"\n");
    if let Some(token) = token {
        text += &format!("authorization {{ token: \"{token}\" }}\n");
    }
    text
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

fn ports_file(home: &Path) -> Option<u16> {
    let mut files = fs::read_dir(home).ok()?.flatten().map(|entry| entry.path());
    let file = files.find(|file| file.extension().is_some_and(|e| e == "ports"))?;
    // half-written is as good as absent
    let ports: Ports = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    ports.nats.first()?.rsplit(':').next()?.parse().ok()
}

/// Keeps the last lines of the server's log, and passes all of them on.
async fn keep(stderr: ChildStderr, log: Arc<Mutex<VecDeque<String>>>) {
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tracing::debug!(target: "nats_server", "{line}");
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() == LINES {
            log.pop_front();
        }
        log.push_back(line);
    }
}

/// The first argument of our own program when it is to become another one that ends with us.
pub(crate) const MORTAL: &str = "become-mortal";

/// A command that is killed when the thread that starts it ends, however that ends: our own
/// program arranges it, and then becomes the other one.
fn mortal(program: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    let parent = std::process::id().to_string();
    command.arg(MORTAL).arg(parent).arg(program);
    Ok(command)
}

/// The other side of [`mortal`]: the arguments are our parent's id and a command.
pub(crate) fn become_mortal(mut args: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = args.next().and_then(|id| id.to_str()?.parse::<i32>().ok());
    let (Some(parent), Some(program)) = (parent, args.next()) else {
        return ExitCode::from(2);
    };
    let armed = process::set_parent_process_death_signal(Some(Signal::KILL));
    let lives = process::getppid() == Pid::from_raw(parent);
    if let (Ok(()), true) = (armed, lives) {
        // returns only when it fails
        let error = std::process::Command::new(&program).args(args).exec();
        note(format_args!("{}: {error}", program.display()));
    }
    ExitCode::FAILURE
}

/// Where nats-server is: `NATS_SERVER_BIN`, else the first on `PATH`, else `.tools/nats-server`
/// here or above our own program.
pub(crate) fn find() -> anyhow::Result<PathBuf> {
    let exe = env::current_exe().unwrap_or_default();
    let mut places: Vec<PathBuf> = vec![PathBuf::from(".tools")];
    places.extend(exe.ancestors().skip(1).map(|dir| dir.join(".tools")));
    find_among(
        env::var_os("NATS_SERVER_BIN").filter(|v| !v.is_empty()),
        &env::var_os("PATH").unwrap_or_default(),
        &places,
    )
}

fn find_among(
    named: Option<OsString>,
    path: &std::ffi::OsStr,
    places: &[PathBuf],
) -> anyhow::Result<PathBuf> {
    if let Some(named) = named.map(PathBuf::from) {
        return named.is_file().then_some(named.clone()).ok_or_else(|| {
            anyhow!(
                "NATS_SERVER_BIN={}: no such file; name a nats-server there, or unset it",
                named.display()
            )
        });
    }
    env::split_paths(path)
        .chain(places.iter().cloned())
        .map(|dir| dir.join("nats-server"))
        .find(|file| file.is_file())
        .ok_or_else(|| {
            anyhow!(
                "nats-server is not installed: not in NATS_SERVER_BIN, on PATH or in .tools/\n\
                 `make tools` in a checkout of vendue fetches it; so does your system's package \
                 nats-server, or https://github.com/nats-io/nats-server/releases\n\
                 or join a server that runs already: `vendue up --nats URL`"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_looked_for_where_it_is_said_and_nowhere_else() {
        let home = tempfile::tempdir().unwrap();
        let tools = home.path().join(".tools");
        fs::create_dir(&tools).unwrap();
        let places = [tools.clone()];
        let path = home.path().as_os_str();
        let missing = find_among(None, path, &places).unwrap_err().to_string();
        assert!(missing.contains("make tools"), "{missing}");
        fs::write(tools.join("nats-server"), "").unwrap();
        assert_eq!(
            find_among(None, path, &places).unwrap(),
            tools.join("nats-server")
        );
        fs::write(home.path().join("nats-server"), "").unwrap();
        assert_eq!(
            find_among(None, path, &places).unwrap(),
            home.path().join("nats-server")
        );
        let error = find_among(Some("/no/where".into()), path, &places).unwrap_err();
        assert!(error.to_string().contains("NATS_SERVER_BIN=/no/where"));
    }
}
