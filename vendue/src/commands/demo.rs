//! `demo`: shows a cluster at work, using the commands that people type.

use crate::context::Exit;
use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shared::proc::{Process, descendants};
use tempfile::TempDir;

use crate::output;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DemoArgs {
    /// Policy of the first cluster; the second cluster uses the other of diego and dea
    #[arg(long, default_value = super::roles::DEFAULT_POLICY, value_name = "NAME")]
    policy: String,
}

/// The examples, for a demo outside a checkout.
const EXAMPLES: [(&str, &str); 3] = [
    ("web.json", include_str!("../../../examples/web.json")),
    ("worker.json", include_str!("../../../examples/worker.json")),
    ("task.json", include_str!("../../../examples/task.json")),
];

/// How long the cluster may take for anything; a slow machine is not a failure.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs the whole demo; everything it starts ends with it, even after Ctrl-C.
pub(crate) async fn demo(args: &DemoArgs) -> anyhow::Result<Exit> {
    let args = args.clone();
    // it waits for programs like a script
    tokio::task::spawn_blocking(move || show(&args)).await?
}

fn show(args: &DemoArgs) -> anyhow::Result<Exit> {
    let other = if args.policy == "dea" { "diego" } else { "dea" };
    let examples = Examples::find()?;
    let start = Instant::now();
    super::policy_file::load_to_run(&args.policy)?;
    let cluster = Cluster::up(&args.policy)?;
    place_and_look(&cluster, &examples)?;
    fetch_pages(&cluster)?;
    kill_an_instance(&cluster)?;
    ask_too_much(&cluster)?;
    cluster.end(&["web", "worker"])?;

    let cluster = Cluster::up(other)?;
    step(&format!("The same work, placed by the policy {other}"))?;
    cluster.run(&["start", &examples.path("web.json")], 0)?;
    cluster.run(&["start", &examples.path("worker.json")], 0)?;
    for app in ["web", "worker"] {
        cluster.run(&["wait", app], 0)?;
    }
    cluster.run(&["ps"], 0)?;
    cluster.end(&["web", "worker"])?;
    let seconds = start.elapsed().as_secs();
    step(&format!(
        "That was vendue, in {seconds} s; nothing of it is left running"
    ))?;
    Ok(Exit::Ok)
}

fn step(what: &str) -> anyhow::Result<()> {
    Ok(output::say(format_args!("\n== {what}"))?)
}

fn place_and_look(cluster: &Cluster, examples: &Examples) -> anyhow::Result<()> {
    step("Work to place: three web servers, five workers, and a task that ends")?;
    for (file, _) in EXAMPLES {
        cluster.run(&["start", &examples.path(file)], 0)?;
    }
    for app in ["web", "worker", "report"] {
        cluster.run(&["wait", app], 0)?;
    }
    step("Where it went")?;
    cluster.run(&["cells"], 0)?;
    cluster.run(&["ps", "--all"], 0)?;
    cluster.run(&["logs", "report"], 0)?;
    cluster.run(&["explain", "web"], 0)
}

fn fetch_pages(cluster: &Cluster) -> anyhow::Result<()> {
    step("A page from each web server")?;
    for instance in cluster.instances("web")? {
        let address = instance["address"].as_str().unwrap_or("127.0.0.1");
        let address = format!("{address}:{}", instance["port"]);
        let page = eventually("a page", || fetch(&address))?;
        output::say(format_args!(
            "$ curl http://{address}/\n{}",
            page.trim_end()
        ))?;
        let page: Value = serde_json::from_str(&page)?;
        let same = |key: &str| page[key] == instance[key];
        ensure!(
            ["app", "index", "cell", "zone"].into_iter().all(same),
            "the page is not of the instance that was asked"
        );
    }
    Ok(())
}

/// Sends one GET request, without an HTTP client.
fn fetch(address: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET / HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("not HTTP")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "it answered {head}");
    Ok(body.to_owned())
}

fn kill_an_instance(cluster: &Cluster) -> anyhow::Result<()> {
    step("An instance's process is killed: the cell starts it again")?;
    let victim = cluster.instances("web")?.into_iter().next();
    let victim = victim.context("no instance of web")?;
    let (pid, id) = (&victim["pid"], &victim["instance"]);
    let raw = pid.as_i64().and_then(|pid| i32::try_from(pid).ok());
    let raw = raw.and_then(Pid::from_raw).context("it has no process")?;
    let args = ["events", "web", "--count", "2", "--for", "10s"];
    let mut events = cluster.command(&args).stderr(Stdio::piped()).spawn()?;
    // it reports on standard error that it listens
    let mut heard = String::new();
    let stderr = events.stderr.take().context("no stderr")?;
    BufReader::new(stderr).read_line(&mut heard)?;
    output::say(format_args!("$ kill -9 {pid}"))?;
    kill_process(raw, Signal::KILL)?;
    events.wait()?;
    eventually("the instance to run again", || {
        let instances = cluster.instances("web")?;
        let again = instances.iter().find(|i| i["instance"] == *id);
        let again = again.context("it is gone")?;
        let back = again["restarts"] == 1 && again["state"] == "running" && again["pid"] != *pid;
        ensure!(
            back,
            "it is {} after {} restarts",
            again["state"],
            again["restarts"]
        );
        Ok(())
    })?;
    cluster.run(&["ps", "web"], 0)
}

fn ask_too_much(cluster: &Cluster) -> anyhow::Result<()> {
    step("A request that is too large for every cell: it is said why")?;
    let huge = [
        "run", "--app", "huge", "--memory", "100000", "--disk", "64", "--", "sleep", "60",
    ];
    cluster.run(&huge, 3)?;
    cluster.run(&["explain", "huge"], 0)
}

/// The demo's own cluster.
struct Cluster {
    child: Child,
    url: String,
}

impl Cluster {
    fn up(policy: &str) -> anyhow::Result<Self> {
        step("A cluster: a private nats-server, one auctioneer, four cells in two zones")?;
        let args = [
            "up", "--cells", "4", "--zones", "2", "--policy", policy, "--port", "0",
        ];
        output::say(format_args!("$ vendue {} &", args.join(" ")))?;
        let mut child = program()?
            .args(args)
            .args([
                "--cell-memory",
                "512",
                "--output",
                "json",
                "--until-stdin-ends",
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().context("no stdout")?;
        let mut cluster = Self {
            child,
            url: String::new(),
        };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        if line.is_empty() {
            let status = cluster.child.wait()?;
            return Err(anyhow!("`vendue up` ended with {status}"));
        }
        let said: Value = serde_json::from_str(&line)?;
        // without an address, the commands would go to whatever cluster is at the default one
        let Some(url) = said["nats"].as_str() else {
            let why = said["error"]["message"].as_str().unwrap_or(line.trim());
            return Err(anyhow!("`vendue up` failed: {why}"));
        };
        url.clone_into(&mut cluster.url);
        let (policy, pid) = (said["policy"].as_str().unwrap_or_default(), &said["pid"]);
        output::say(format_args!("it is up: policy {policy}, process {pid}"))?;
        Ok(cluster)
    }

    fn command(&self, args: &[&str]) -> Command {
        // the program exists, as it is running
        let mut command = program().unwrap_or_else(|_| Command::new("vendue"));
        command.args(args).env("NATS_URL", &self.url);
        command
    }

    /// Runs a command as it would be typed, showing its output.
    fn run(&self, args: &[&str], code: i32) -> anyhow::Result<()> {
        let typed = args.join(" ");
        output::say(format_args!("$ vendue {typed}"))?;
        let status = self.command(args).status()?;
        ensure!(
            status.code() == Some(code),
            "`vendue {typed}` ended with {status} instead of exit code {code}"
        );
        Ok(())
    }

    fn all_instances(&self, args: &[&str]) -> anyhow::Result<Vec<Value>> {
        let Output { stdout, status, .. } = self.command(args).stderr(Stdio::null()).output()?;
        ensure!(
            status.success(),
            "`vendue {}` ended with {status}",
            args.join(" ")
        );
        let mut answer: Value = serde_json::from_slice(&stdout)?;
        Ok(serde_json::from_value(answer["instances"].take())?)
    }

    fn instances(&self, app: &str) -> anyhow::Result<Vec<Value>> {
        self.all_instances(&["ps", app, "--output", "json"])
    }

    /// Stops these apps, takes the cluster down, and checks whether any process of it is left.
    fn end(mut self, apps: &[&str]) -> anyhow::Result<()> {
        let family = descendants(self.child.id());
        step("Everything stops")?;
        for app in apps {
            self.run(&["stop", app], 0)?;
        }
        eventually("the instances to end", || {
            let left = self.all_instances(&["ps", "--output", "json"])?;
            ensure!(left.is_empty(), "{} instances are left", left.len());
            Ok(())
        })?;
        self.run(&["ps"], 0)?;
        step("The cluster ends; no process of it may be left")?;
        let pid = i32::try_from(self.child.id())?;
        output::say(format_args!("$ kill {pid}"))?;
        kill_process(Pid::from_raw(pid).context("no process")?, Signal::TERM)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "`vendue up` ended with {status}");
        eventually("its processes to end", || {
            let left = family.iter().filter(|process| still_runs(process));
            let left: Vec<_> = left.map(|process| process.pid).collect();
            ensure!(left.is_empty(), "processes are left: {left:?}");
            Ok(())
        })?;
        let count = family.len();
        Ok(output::say(format_args!(
            "`vendue up` ended in order, and so did the {count} processes below it"
        ))?)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // after a failure; everything it runs dies with it
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns this program, with an environment in which only the demo says where the cluster is.
fn program() -> anyhow::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    for name in ["NATS_URL", "NATS_CREDS", "VENDUE_PREFIX", "VENDUE_CELL"] {
        command.env_remove(name);
    }
    Ok(command)
}

/// Retries until it works.
fn eventually<T>(what: &str, mut look: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let end = Instant::now() + TIMEOUT;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(e) if Instant::now() > end => {
                return Err(e.context(format!("waited {} s for {what}", TIMEOUT.as_secs())));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Returns whether the same process still runs, rather than only being kept for its parent.
fn still_runs(process: &Process) -> bool {
    Process::read(process.pid)
        .is_some_and(|now| now.started_ticks == process.started_ticks && !now.has_ended())
}

/// The example files: those of the current checkout, else copies.
struct Examples {
    dir: PathBuf,
    _copies: Option<TempDir>,
}

impl Examples {
    fn find() -> anyhow::Result<Self> {
        let here = PathBuf::from("examples");
        if EXAMPLES.iter().all(|(name, _)| here.join(name).is_file()) {
            return Ok(Self {
                dir: here,
                _copies: None,
            });
        }
        let copies = tempfile::Builder::new()
            .prefix("vendue-examples-")
            .tempdir()?;
        for (name, text) in EXAMPLES {
            fs::write(copies.path().join(name), text)?;
        }
        Ok(Self {
            dir: copies.path().to_owned(),
            _copies: Some(copies),
        })
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }
}
