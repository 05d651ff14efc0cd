//! What a supervisor is told on its command line, and the words it says to its rep.

use std::{ffi::OsString, os::unix::ffi::OsStrExt, path::PathBuf};

use crate::ledger::How;

/// A supervisor's orders. Its command's environment is its own; its standard input is a socket to
/// the rep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Orders {
    /// The rep; when it is gone, so is the instance.
    pub(crate) parent: u32,
    /// Between SIGTERM and SIGKILL.
    pub(crate) grace_ms: u64,
    /// The user and group that the command runs as; none = the supervisor's own.
    pub(crate) user: Option<(u32, u32)>,
    /// The control group that the command runs in.
    pub(crate) cgroup: Option<PathBuf>,
    /// End it when its processes are resident with more than this, MiB; 0 = do not watch.
    pub(crate) watch_mb: u64,
    /// Its working directory, removed when it has ended.
    pub(crate) directory: PathBuf,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
}

impl Orders {
    /// As arguments; [`Orders::from_args`] is the opposite.
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        let (uid, gid) = match self.user {
            Some((uid, gid)) => (uid.to_string(), gid.to_string()),
            None => ("-".into(), "-".into()),
        };
        let cgroup = self.cgroup.clone().unwrap_or_else(|| "-".into());
        let mut args: Vec<OsString> = vec![
            self.parent.to_string().into(),
            self.grace_ms.to_string().into(),
            uid.into(),
            gid.into(),
            cgroup.into(),
            self.watch_mb.to_string().into(),
            self.directory.clone().into(),
            "--".into(),
        ];
        args.extend(self.command.iter().cloned());
        args
    }

    pub(crate) fn from_args(args: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut args = args.into_iter();
        let mut number = || args.next()?.to_str()?.parse::<u64>().ok();
        let (parent, grace_ms) = (u32::try_from(number()?).ok()?, number()?);
        let mut id = || {
            let text = args.next()?;
            let text = text.to_str()?;
            (text != "-")
                .then(|| text.parse::<u32>().ok())
                .map_or(Some(None), |id| id.map(Some))
        };
        let (uid, gid) = (id()?, id()?);
        let cgroup = args.next()?;
        let watch_mb = args.next()?.to_str()?.parse().ok()?;
        let directory = args.next()?.into();
        if args.next()? != "--" {
            return None;
        }
        let command: Vec<OsString> = args.collect();
        (!command.is_empty()).then_some(Self {
            parent,
            grace_ms,
            user: uid.zip(gid),
            cgroup: (cgroup.as_bytes() != b"-").then(|| cgroup.into()),
            watch_mb,
            directory,
            command,
        })
    }
}

/// What a supervisor says, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The command runs as this process.
    Runs(u32),
    /// Something to be logged.
    Note(String),
    /// It has ended, and nothing of it is left.
    Ended(How),
}

impl Word {
    pub(crate) fn to_line(&self) -> String {
        let one_line = |text: &str| text.replace(['\n', '\r'], " ");
        match self {
            Word::Runs(pid) => format!("runs {pid}\n"),
            Word::Note(text) => format!("note {}\n", one_line(text)),
            Word::Ended(How::Exit(code)) => format!("exit {code}\n"),
            Word::Ended(How::Signal(number)) => format!("signal {number}\n"),
            Word::Ended(How::OverMemory) => "memory -\n".into(),
            Word::Ended(How::Failed(why)) => format!("failed {}\n", one_line(why)),
        }
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (word, rest) = line.trim_end_matches('\n').split_once(' ')?;
        Some(match word {
            "runs" => Word::Runs(rest.parse().ok()?),
            "note" => Word::Note(rest.into()),
            "exit" => Word::Ended(How::Exit(rest.parse().ok()?)),
            "signal" => Word::Ended(How::Signal(rest.parse().ok()?)),
            "memory" => Word::Ended(How::OverMemory),
            "failed" => Word::Ended(How::Failed(rest.into())),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_the_command_line() {
        let plain = Orders {
            parent: 17,
            grace_ms: 10_000,
            user: None,
            cgroup: None,
            watch_mb: 0,
            directory: "/tmp/x".into(),
            command: vec!["sh".into(), "-c".into(), "-- a b\n".into()],
        };
        let full = Orders {
            user: Some((65_534, 65_533)),
            cgroup: Some("/sys/fs/cgroup/a b".into()),
            watch_mb: 64,
            ..plain.clone()
        };
        for orders in [plain, full] {
            assert_eq!(Orders::from_args(orders.to_args()), Some(orders.clone()));
            let mut short = orders.to_args();
            short.truncate(8);
            assert_eq!(Orders::from_args(short), None);
        }
        assert_eq!(Orders::from_args(["help".into()]), None);
    }

    #[test]
    fn words_survive_the_socket() {
        for word in [
            Word::Runs(12),
            Word::Note("a b".into()),
            Word::Ended(How::Exit(0)),
            Word::Ended(How::Exit(255)),
            Word::Ended(How::Signal(9)),
            Word::Ended(How::OverMemory),
            Word::Ended(How::Failed("cannot run x: no".into())),
        ] {
            assert_eq!(Word::from_line(&word.to_line()), Some(word));
        }
        let broken = Word::Ended(How::Failed("a\nexit 0".into()));
        assert_eq!(broken.to_line().lines().count(), 1);
        assert_eq!(Word::from_line("exit x"), None);
    }
}
