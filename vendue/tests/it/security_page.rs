//! The commands of docs/SECURITY.md work as written there.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::common::{checkout, until};

/// Returns the lines of the `sh` fences between the two marks.
fn commands(page: &str) -> Vec<String> {
    let part = page.split("<!-- setup -->").nth(1).expect("the marks");
    let fences = part.split("```sh\n").skip(1);
    let lines = fences.flat_map(|fence| fence.split("```").next().unwrap_or("").lines());
    lines.map(str::to_owned).collect()
}

/// Programs that run in terminals of their own.
struct Programs(Vec<Child>);

impl Drop for Programs {
    fn drop(&mut self) {
        for program in self.0.iter_mut().rev() {
            // it may already have ended
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

fn shell(line: &str, dir: &Path) -> Command {
    let vendue = Path::new(env!("CARGO_BIN_EXE_vendue")).parent().unwrap();
    // the server under its usual name
    let bin = dir.join("bin");
    fs::create_dir_all(&bin).unwrap();
    let link = bin.join("nats-server");
    if !link.exists() {
        std::os::unix::fs::symlink(testkit::server_binary(), link).unwrap();
    }
    let path = std::env::var("PATH").unwrap();
    let mut shell = Command::new("bash");
    shell
        .args(["-c", line])
        .current_dir(dir)
        .stdin(Stdio::null());
    shell.env(
        "PATH",
        format!("{}:{}:{path}", bin.display(), vendue.display()),
    );
    shell.env("XDG_CONFIG_HOME", "/no/such/directory");
    shell.env_remove("NATS_URL").env_remove("VENDUE_PREFIX");
    shell
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_of_the_page_works() {
    let page = fs::read_to_string(checkout().join("docs/SECURITY.md")).unwrap();
    let files = tempfile::tempdir().unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let (mut programs, mut exports) = (Programs(Vec::new()), String::new());
    let lines = commands(&page);
    assert!(lines.len() >= 14, "{lines:?}");
    for line in lines {
        // the default port may be taken
        let line = line.replace("4222", &port);
        let run = format!("{exports}{line}");
        if line.starts_with("export ") {
            exports = format!("{line}; ");
            continue;
        }
        let stays = [
            "nats-server --config",
            "vendue auctioneer",
            "vendue rep",
            "vendue manager",
        ];
        if stays.iter().any(|program| line.starts_with(program)) {
            let program = shell(&format!("exec {run}"), files.path()).spawn();
            programs.0.push(program.unwrap());
            if line.starts_with("nats-server") {
                until("the server to listen", || {
                    let pid = fs::read_to_string(files.path().join("nats.pid"));
                    pid.map(drop).map_err(|e| e.to_string())
                })
                .await;
            }
            continue;
        }
        let code: i32 = line
            .split_once("# exit code ")
            .map_or(0, |(_, code)| code.trim().parse().unwrap());
        // the programs take a moment to start, and the server to reload
        until(&line, || {
            let output = shell(&run, files.path()).output().unwrap();
            let as_said = output.status.code() == Some(code);
            as_said.then_some(()).ok_or(format!("{output:?}"))
        })
        .await;
    }
}
