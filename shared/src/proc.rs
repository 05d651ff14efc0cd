//! Processes of this machine, read from `/proc` (Linux). A process that has ended in the meantime is omitted; this is
//! never an error.

use std::{collections::BTreeMap, fs, path::PathBuf};

/// One process, from `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// The kernel's letter for its state: `R` is running, `S` sleeping, `T` stopped, `Z` a zombie, which has ended and
    /// waits for its parent to reap it.
    pub state: char,
    /// Its parent's id.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// The processor time that it has used itself so far (user and system), in clock ticks.
    pub cpu_ticks: u64,
    /// The same of its children that have ended and were waited for, and of theirs.
    pub ended_ticks: u64,
    /// When it was started, in clock ticks since the machine was. Together with the id this identifies a process,
    /// whereas ids alone are reused.
    pub started_ticks: u64,
}

impl Process {
    /// Returns the process with this id; none if it does not exist.
    pub fn read(pid: u32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Parses `/proc/PID/stat`. The second field is the program's name in parentheses and may contain anything, so the
    /// other fields are counted from the last parenthesis. See proc_pid_stat(5), which counts from 1.
    fn parse(stat: &str) -> Option<Self> {
        let (before, after) = stat.rsplit_once(')')?;
        let (pid, _) = before.split_once(' ')?;
        let fields: Vec<&str> = after.split_ascii_whitespace().collect();
        let number = |nth: usize| fields.get(nth - 3)?.parse::<u64>().ok();
        Some(Self {
            pid: pid.parse().ok()?,
            state: fields.first()?.chars().next()?,
            parent: number(4)?.try_into().ok()?,
            group: number(5)?.try_into().ok()?,
            cpu_ticks: number(14)? + number(15)?,
            ended_ticks: number(16)? + number(17)?,
            started_ticks: number(22)?,
        })
    }

    /// Returns whether it is a zombie: it has ended, and its parent has not reaped it.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Returns whether this process ignores the signal with this number, from `/proc/self/status`.
pub fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_in(&status, signal)
}

/// Reads the line `SigIgn`: a hexadecimal number with one bit for each signal, see proc_pid_status(5).
fn ignored_in(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let bit = u32::try_from(signal - 1).ok();
    let bit = bit.and_then(|bit| 1_u64.checked_shl(bit));
    mask.zip(bit).is_some_and(|(mask, bit)| mask & bit != 0)
}

/// Returns all descendants of this process. Uses the kernel's lists of children if it keeps them, else looks at every
/// process.
pub fn descendants(root: u32) -> Vec<Process> {
    let lists = fs::metadata(format!("/proc/{root}/task/{root}/children")).is_ok();
    // a process that has ended has no list either, and no children
    let without_lists = !lists && fs::metadata(format!("/proc/{root}")).is_ok();
    let every = without_lists.then(children_of_every_process);
    let mut found: Vec<Process> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        let children = match &every {
            Some(every) => every.get(&parent).cloned().unwrap_or_default(),
            None => children(parent),
        };
        for process in children.into_iter().filter_map(Process::read) {
            // one that moves to another parent during the search is listed once
            if !found.iter().any(|known| known.pid == process.pid) {
                found.push(process);
                parents.push(process.pid);
            }
        }
    }
    found
}

/// Returns the ids of the children of every thread of a process.
pub fn children(pid: u32) -> Vec<u32> {
    threads(pid)
        .into_iter()
        .filter_map(|thread| fs::read_to_string(thread.join("children")).ok())
        .flat_map(|list| {
            let ids = list.split_ascii_whitespace();
            ids.filter_map(|id| id.parse().ok()).collect::<Vec<_>>()
        })
        .collect()
}

fn children_of_every_process() -> BTreeMap<u32, Vec<u32>> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for process in every().filter_map(Process::read) {
        children
            .entry(process.parent)
            .or_default()
            .push(process.pid);
    }
    children
}

/// Returns the ids of all processes.
pub fn every() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns the user that a process runs as, from its status: the owner of its directory in `/proc` is root if the
/// process may not be traced.
pub fn user(pid: u32) -> Option<u32> {
    parse_user(&fs::read_to_string(format!("/proc/{pid}/status")).ok()?)
}

fn parse_user(status: &str) -> Option<u32> {
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().next()?.parse().ok()
}

/// Returns the environment that a process was started with, as variables terminated by NULs; empty if it may not be
/// read.
pub fn environment(pid: u32) -> Vec<u8> {
    fs::read(format!("/proc/{pid}/environ")).unwrap_or_default()
}

fn threads(pid: u32) -> Vec<PathBuf> {
    let entries = fs::read_dir(format!("/proc/{pid}/task"));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Returns whether a process is in another PID namespace than this one, such as that of a container. False if that
/// cannot be read.
pub fn is_in_other_namespace(pid: u32) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    match (namespace("self"), namespace(&pid.to_string())) {
        (Some(own), Some(other)) => own != other,
        _ => false,
    }
}

/// Returns whether every thread of a process is stopped (SIGSTOP); true if there is no such process.
pub fn is_stopped(pid: u32) -> bool {
    threads(pid).into_iter().all(|thread| {
        let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
        Process::parse(&stat).is_none_or(|thread| thread.state == 'T')
    })
}

/// Returns an amount of memory from `/proc/PID/status` in KiB: `VmRSS` is what is resident, `VmHWM` the highest value
/// ever, `RssAnon` and `RssShmem` the parts that belong to no file.
pub fn memory_kib(pid: u32, name: &str) -> Option<u64> {
    parse_kib(
        &fs::read_to_string(format!("/proc/{pid}/status")).ok()?,
        name,
    )
}

fn parse_kib(status: &str, name: &str) -> Option<u64> {
    status.lines().find_map(|line| {
        let amount = line.strip_prefix(name)?.strip_prefix(':')?;
        amount.trim().strip_suffix(" kB")?.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn ignored_signals_are_bits_of_a_hexadecimal_number() {
        for (line, signal, expected) in [
            ("SigIgn:\t0000000000000001", 1, true),
            ("SigIgn:\t0000000000001000", 13, true),
            ("SigIgn:\t0000000000001000", 1, false),
            ("SigIgn:\tffffffffffffffff", 64, true),
            ("SigIgn:\tffffffffffffffff", 65, false),
            ("SigIgn:\tffffffffffffffff", 0, false),
            ("SigBlk:\t0000000000000001", 1, false),
            ("SigIgn:", 1, false),
        ] {
            let status = format!("Name:\tvendue\n{line}\nSigCgt:\t00000001\n");
            assert_eq!(ignored_in(&status, signal), expected, "{line:?} {signal}");
        }
    }

    #[test]
    fn a_name_with_parentheses_and_blanks_shifts_no_field() {
        let stat = "42 (a) S 7 (b c)) T 17 18 19 0 -1 4194304 1 2 3 4 50 60 7 8 20 0 1 0 900 11";
        let expected = Process {
            pid: 42,
            state: 'T',
            parent: 17,
            group: 18,
            cpu_ticks: 110,
            ended_ticks: 15,
            started_ticks: 900,
        };
        assert_eq!(Process::parse(stat), Some(expected));
        for cut in ["", "42", "42 (a) S", "42 (a) S 1 2 3"] {
            assert_eq!(Process::parse(cut), None, "{cut}");
        }
    }

    #[test]
    fn a_child_is_found_by_both_methods_until_it_ends() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        let find = || descendants(own).into_iter().find(|p| p.pid == child.id());
        let found = find().unwrap();
        assert_eq!((found.parent, found.has_ended()), (own, false));
        assert!(children_of_every_process()[&own].contains(&found.pid));
        assert_eq!(
            Process::read(found.pid).unwrap().started_ticks,
            found.started_ticks
        );
        child.kill().unwrap();
        child.wait().unwrap();
        // the id may be reused, but not by a process with the same start time
        let again = Process::read(found.pid).map(|process| process.started_ticks);
        assert_ne!(again, Some(found.started_ticks));
        assert!(is_stopped(u32::MAX));
        assert!(!is_stopped(own));
    }

    #[test]
    fn every_process_is_found_with_its_user_and_environment() {
        let mut child = Command::new("sleep");
        let mut child = child.arg("60").env("MARK", "mine").spawn().unwrap();
        assert!(every().any(|pid| pid == child.id()));
        assert_eq!(user(child.id()), user(std::process::id()));
        let status = "Name:\tx\nUid:\t70000\t70001\t70002\t70003\nGid:\t1\t1\t1\t1\n";
        assert_eq!(parse_user(status), Some(70_000));
        assert_eq!(parse_user("Name:\tx\n"), None);
        // it has none for a moment while it is being executed
        let environment = loop {
            let environment = environment(child.id());
            if !environment.is_empty() {
                break environment;
            }
        };
        assert!(environment.split(|b| *b == 0).any(|v| v == b"MARK=mine"));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn amounts_are_read_in_kib() {
        let status = "Name:\tx\nRssAnon:\t    2048 kB\nRssShmem:\t       0 kB\nThreads:\t1\n";
        assert_eq!(parse_kib(status, "RssAnon"), Some(2_048));
        assert_eq!(parse_kib(status, "RssShmem"), Some(0));
        for unknown in ["VmSwap", "Rss", "Threads"] {
            assert_eq!(parse_kib(status, unknown), None, "{unknown}");
        }
        assert!(memory_kib(std::process::id(), "VmRSS").is_some_and(|kib| kib > 0));
    }
}
