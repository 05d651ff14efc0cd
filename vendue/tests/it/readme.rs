//! Every command of the README's tour, as written there.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use crate::common::{checkout, is_old_server};

/// Returns the lines of the `sh` fences between the two marks of the tour; a line that ends with `\` continues on the
/// next.
fn commands(readme: &str) -> Vec<String> {
    let tour = readme.split("<!-- tour -->").nth(1).expect("a tour");
    let mut commands = Vec::new();
    let mut inside = false;
    let mut whole = String::new();
    for line in tour.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            _ if inside && !line.trim().is_empty() => match line.strip_suffix('\\') {
                Some(part) => whole += part,
                None => commands.push(std::mem::take(&mut whole) + line),
            },
            _ => {}
        }
    }
    commands
}

struct Tour {
    up: Child,
    url: String,
}

impl Tour {
    fn shell(&self, line: &str) -> Command {
        let mut shell = shell(line);
        shell.env("NATS_URL", &self.url);
        shell
    }
}

impl Drop for Tour {
    fn drop(&mut self) {
        // it may already have ended
        let _ = self.up.kill();
        let _ = self.up.wait();
    }
}

/// Returns a shell in the checkout that finds `vendue` on its path.
fn shell(line: &str) -> Command {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_vendue"));
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", program.parent().unwrap().display());
    let mut shell = Command::new("bash");
    shell
        .args(["-c", line])
        .env("PATH", path)
        .current_dir(checkout());
    shell.env("NATS_SERVER_BIN", testkit::server_binary());
    shell
        .env_remove("NATS_URL")
        .env_remove("VENDUE_PREFIX")
        .stdin(Stdio::null());
    shell
}

#[test]
fn every_command_of_the_tour_works() {
    let readme = fs::read_to_string(checkout().join("README.md")).unwrap();
    let commands = commands(&readme);
    assert!(commands.len() >= 10, "{commands:?}");
    let mut tour: Option<Tour> = None;
    let mut shown = BTreeSet::new();
    let without_manager = is_old_server();
    for line in &commands {
        if line.starts_with("vendue up") {
            // another terminal; the port may be taken by a person's own cluster
            let mut up = shell(&format!("exec {line}"))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let said = BufReader::new(up.stdout.take().unwrap())
                .lines()
                .map_while(Result::ok);
            let url = said
                .into_iter()
                .find_map(|line| line.strip_prefix("export NATS_URL=").map(str::to_owned))
                .expect("where the cluster is");
            tour = Some(Tour { up, url });
            continue;
        }
        if line.starts_with("export NATS_URL=nats://") {
            continue; // what `up` has said
        }
        if line.starts_with("curl") && shell("command -v curl").output().unwrap().stdout.is_empty()
        {
            assert_ne!(
                std::env::var("CI").as_deref(),
                Ok("true"),
                "curl is missing"
            );
            eprintln!("\n#### SKIPPED: curl is missing\n");
            continue;
        }
        let code: i32 = line
            .split_once("# exit code ")
            .map_or(0, |(_, code)| code.trim().parse().unwrap());
        let mut command = tour
            .as_ref()
            .map_or_else(|| shell(line), |tour| tour.shell(line));
        let output = command.output().unwrap();
        // apps need a newer server than the rest: without one, the command says what is missing
        let stored = ["vendue app ", "vendue task ", "vendue rebalance "];
        let refused = without_manager && stored.iter().any(|command| line.starts_with(command));
        let code = if refused { 1 } else { code };
        assert_eq!(output.status.code(), Some(code), "{line}: {output:?}");
        shown.extend(line.split_whitespace().nth(1).map(str::to_owned));
    }
    for command in [
        "start", "run", "ps", "wait", "cells", "logs", "explain", "place", "capacity", "policy",
        "drain", "stop",
    ] {
        assert!(
            shown.contains(command),
            "the tour does not show `vendue {command}`"
        );
    }
}
