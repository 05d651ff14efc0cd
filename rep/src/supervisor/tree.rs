//! The processes below this one, read from /proc.

use std::{collections::BTreeMap, fs};

/// A process below this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) group: i32,
}

/// All descendants of `root`. As `root` is a subreaper, one whose parent has died is its child.
/// The kernel's list of children is used where there is one, else all of /proc is read.
pub(crate) fn descendants(root: i32) -> Vec<Process> {
    let parents = fs::metadata("/proc/self/task")
        .and_then(|_| fs::metadata(format!("/proc/{root}/task/{root}/children")))
        .is_err()
        .then(all_parents);
    let mut found = Vec::new();
    let mut look_at = vec![root];
    while let Some(pid) = look_at.pop() {
        let children = match &parents {
            Some(parents) => parents.get(&pid).cloned().unwrap_or_default(),
            None => children(pid),
        };
        for child in children {
            if let Some((_, group)) = parent_and_group(child) {
                found.push(Process { pid: child, group });
                look_at.push(child);
            }
        }
    }
    found
}

/// How much of these processes is resident and their own, MiB: what they share with files on disk
/// is not counted, what they share with each other is counted in each.
pub(crate) fn resident_mb(processes: &[Process]) -> u64 {
    let kib: u64 = processes
        .iter()
        .filter_map(|process| fs::read_to_string(format!("/proc/{}/status", process.pid)).ok())
        .map(|status| amount_kib(&status, "RssAnon:") + amount_kib(&status, "RssShmem:"))
        .sum();
    kib / 1024
}

fn amount_kib(status: &str, name: &str) -> u64 {
    let mut lines = status.lines();
    lines
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse().ok())
        .unwrap_or(0)
}

/// The children of every thread of a process.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| {
            let numbers = list.split_ascii_whitespace();
            numbers
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The children of every process.
fn all_parents() -> BTreeMap<i32, Vec<i32>> {
    let mut parents: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|n| n.parse().ok());
        if let Some(pid) = pid
            && let Some((parent, _)) = parent_and_group(pid)
        {
            parents.entry(parent).or_default().push(pid);
        }
    }
    parents
}

fn parent_and_group(pid: i32) -> Option<(i32, i32)> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parent and process group; the program's name in parentheses may hold anything.
fn parse_stat(stat: &str) -> Option<(i32, i32)> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_confuses_nobody() {
        let stat = "42 (a) S 7 (b c)) S 17 18 19 0";
        assert_eq!(parse_stat(stat), Some((17, 18)));
        assert_eq!(parse_stat("42"), None);
    }

    #[test]
    fn a_child_is_found_both_ways() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        let found = descendants(own).iter().any(|p| p.pid == pid);
        let listed = all_parents()[&own].contains(&pid);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(found && listed);
    }

    #[test]
    fn amounts_are_read_in_kib() {
        let status = "Name:\tx\nRssAnon:\t    2048 kB\nRssShmem:\t       0 kB\n";
        assert_eq!(amount_kib(status, "RssAnon:"), 2_048);
        assert_eq!(amount_kib(status, "RssShmem:"), 0);
        assert_eq!(amount_kib(status, "VmSwap:"), 0);
    }
}
