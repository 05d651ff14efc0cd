//! A supervisor's orders and its reports to the rep, over its socket.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io::{self, Read, Write},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::PathBuf,
};

use placement::RunSource;

use crate::ledger::{EndReason, Limit};

/// The longest orders, in bytes: more than the `max_payload` of any server (64 MiB).
const MAX_BYTES: u32 = 80 << 20;

/// A supervisor's orders, the first message on its socket.
///
/// They are not passed in the supervisor's own environment or on its command line: it runs as the rep's user, and what
/// the request chose (`LD_PRELOAD`, say) must only reach the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Orders {
    /// The rep's process id; the instance ends when the rep is gone.
    pub(crate) parent: u32,
    /// The time between SIGTERM and SIGKILL.
    pub(crate) grace_ms: u64,
    /// The user and group that the command runs as; none stands for the supervisor's own.
    pub(crate) user: Option<(u32, u32)>,
    /// The file that reserves this user for the instance, to be held while any part of the instance may be alive; none
    /// if others have the same user.
    pub(crate) user_lock: Option<PathBuf>,
    /// The control group that the command runs in.
    pub(crate) cgroup: Option<PathBuf>,
    /// The memory limit to enforce by polling, in MiB; 0 = none.
    pub(crate) watch_mb: u64,
    /// The disk limit, in MiB; 0 = none.
    pub(crate) disk_mb: u64,
    /// The most processes and threads of its user, if the user is exclusive to the instance.
    pub(crate) max_processes: u64,
    /// The most processes, to be enforced by polling; 0 = the kernel enforces it.
    pub(crate) watch_processes: u64,
    /// The most open files per process.
    pub(crate) max_files: u64,
    /// Its working directory, removed after it has ended.
    pub(crate) directory: PathBuf,
    /// Whether the content of its result file is reported.
    pub(crate) has_result: bool,
    /// What the instance is made from.
    pub(crate) source: Option<SourceOrders>,
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// The whole environment of the command.
    pub(crate) environment: BTreeMap<OsString, OsString>,
}

/// What is put into the instance's directory before its command runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourceOrders {
    /// Where to fetch it, and its checksum.
    pub(crate) what: RunSource,
    /// The directory in which the cell keeps sources; none if it keeps none.
    pub(crate) cache: Option<PathBuf>,
    /// How long it may take.
    pub(crate) timeout_ms: u64,
    /// A file with certificate authorities that are trusted in addition to the system's.
    pub(crate) authorities: Option<PathBuf>,
}

impl Orders {
    /// Writes the orders, preceded by their length. Fields end with a NUL. A field that contains one is an error: it
    /// would be read as several, some of which the supervisor obeys as the rep's user.
    pub(crate) fn write_to(&self, to: &mut impl Write) -> io::Result<()> {
        let (mut body, mut has_nul) = (Vec::new(), false);
        let mut field = |text: &OsStr| {
            has_nul |= text.as_bytes().contains(&0);
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        };
        let path = |path: &Option<PathBuf>| path.clone().unwrap_or_default().into_os_string();
        let user = self.user.map(|(uid, gid)| [uid, gid]);
        for id in user.map_or([None; 2], |user| user.map(Some)) {
            field(id.map_or(String::new(), |id| id.to_string()).as_ref());
        }
        for number in [
            u64::from(self.parent),
            self.grace_ms,
            self.watch_mb,
            self.disk_mb,
            self.max_processes,
            self.watch_processes,
            self.max_files,
            u64::from(self.has_result),
        ] {
            field(number.to_string().as_ref());
        }
        field(&path(&self.user_lock));
        field(&path(&self.cgroup));
        field(self.directory.as_os_str());
        let source = self.source.as_ref();
        let of_source =
            |text: &dyn Fn(&SourceOrders) -> OsString| source.map(text).unwrap_or_default();
        field(&of_source(&|source| source.what.url.clone().into()));
        field(&of_source(&|source| source.what.sha256.clone().into()));
        field(&of_source(&|source| path(&source.cache)));
        field(&of_source(&|source| source.timeout_ms.to_string().into()));
        field(&of_source(&|source| path(&source.authorities)));
        field(self.command.len().to_string().as_ref());
        self.command.iter().for_each(|word| field(word));
        for (name, value) in &self.environment {
            field(name);
            field(value);
        }
        if has_nul {
            return Err(io::Error::other("a NUL in the instructions"));
        }
        let length = u32::try_from(body.len()).ok().filter(|n| *n <= MAX_BYTES);
        let length = length.ok_or_else(|| io::Error::other("the command is too long"))?;
        to.write_all(&length.to_be_bytes())?;
        to.write_all(&body)
    }

    /// Reads what [`Orders::write_to`] wrote; blocks until it is complete.
    pub(crate) fn read_from(from: &mut impl Read) -> io::Result<Self> {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length);
        if length > MAX_BYTES {
            return Err(io::Error::other("the instructions are too long"));
        }
        let mut body = Vec::new();
        from.take(u64::from(length)).read_to_end(&mut body)?;
        if body.len() != length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Self::parse(&body).ok_or_else(|| io::Error::other("the instructions are malformed"))
    }

    fn parse(body: &[u8]) -> Option<Self> {
        let body = body.strip_suffix(&[0])?;
        let mut fields = body.split(|byte| *byte == 0);
        let mut next = || Some(OsString::from_vec(fields.next()?.to_vec()));
        let number = |text: OsString| text.to_str()?.parse::<u64>().ok();
        let id = |text: OsString| u32::try_from(number(text)?).ok();
        let path = |text: OsString| (!text.is_empty()).then(|| PathBuf::from(text));
        let user = id(next()?).zip(id(next()?));
        let parent = id(next()?)?;
        let mut numbers = [0; 7];
        for place in &mut numbers {
            *place = number(next()?)?;
        }
        let [
            grace_ms,
            watch_mb,
            disk_mb,
            max_processes,
            watch_processes,
            max_files,
            has_result,
        ] = numbers;
        let user_lock = path(next()?);
        let cgroup = path(next()?);
        let directory = next()?.into();
        let source = [next()?, next()?, next()?, next()?, next()?];
        let source = match source {
            [url, ..] if url.is_empty() => None,
            [url, sha256, cache, timeout_ms, authorities] => Some(SourceOrders {
                what: RunSource {
                    url: url.into_string().ok()?,
                    sha256: sha256.into_string().ok()?,
                },
                cache: path(cache),
                timeout_ms: number(timeout_ms)?,
                authorities: path(authorities),
            }),
        };
        let words = number(next()?)?;
        let mut command = Vec::new();
        for _ in 0..words {
            command.push(next()?);
        }
        let mut environment = BTreeMap::new();
        while let Some(name) = next() {
            environment.insert(name, next()?);
        }
        (!command.is_empty()).then_some(Self {
            parent,
            grace_ms,
            user,
            user_lock,
            cgroup,
            watch_mb,
            disk_mb,
            max_processes,
            watch_processes,
            max_files,
            directory,
            has_result: has_result != 0,
            source,
            command,
            environment,
        })
    }
}

/// Where an instance's source came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SourceFrom {
    /// It was fetched.
    Network,
    /// The cell already had it.
    Cache,
    /// It could not be fetched, had an unexpected checksum, or could not be unpacked.
    Nowhere,
}

impl SourceFrom {
    const ALL: [Self; 3] = [Self::Network, Self::Cache, Self::Nowhere];

    fn word(self) -> &'static str {
        match self {
            Self::Network => "network",
            Self::Cache => "cache",
            Self::Nowhere => "nowhere",
        }
    }
}

/// What a supervisor reports, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SupervisorReport {
    /// The command runs as this process.
    Runs(u32),
    /// Where its source came from.
    Source(SourceFrom),
    /// A line for the log.
    Note(String),
    /// The content of its result file.
    Result(String),
    /// It has ended, together with all its processes.
    Ended(EndReason),
}

impl SupervisorReport {
    pub(crate) fn to_line(&self) -> String {
        let one_line = |text: &str| text.replace(['\n', '\r'], " ");
        match self {
            SupervisorReport::Runs(pid) => format!("runs {pid}\n"),
            SupervisorReport::Source(from) => format!("source {}\n", from.word()),
            SupervisorReport::Note(text) => format!("note {}\n", one_line(text)),
            // JSON never needs a line feed
            SupervisorReport::Result(text) => format!("result {}\n", one_line(text)),
            SupervisorReport::Ended(EndReason::Exit(code)) => format!("exit {code}\n"),
            SupervisorReport::Ended(EndReason::Signal(number)) => format!("signal {number}\n"),
            SupervisorReport::Ended(EndReason::Over(limit)) => format!("over {limit}\n"),
            SupervisorReport::Ended(EndReason::Failed(why)) => {
                format!("failed {}\n", one_line(why))
            }
        }
    }

    pub(crate) fn from_line(line: &str) -> Option<Self> {
        let (status, rest) = line.trim_end_matches('\n').split_once(' ')?;
        Some(match status {
            "runs" => SupervisorReport::Runs(rest.parse().ok()?),
            "source" => {
                let from = SourceFrom::ALL.into_iter().find(|from| from.word() == rest);
                SupervisorReport::Source(from?)
            }
            "note" => SupervisorReport::Note(rest.into()),
            "result" => SupervisorReport::Result(rest.into()),
            "exit" => SupervisorReport::Ended(EndReason::Exit(rest.parse().ok()?)),
            "signal" => SupervisorReport::Ended(EndReason::Signal(rest.parse().ok()?)),
            "over" => {
                let limit = Limit::ALL
                    .into_iter()
                    .find(|limit| limit.to_string() == rest);
                SupervisorReport::Ended(EndReason::Over(limit?))
            }
            "failed" => SupervisorReport::Ended(EndReason::Failed(rest.into())),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(orders: &Orders) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        orders.write_to(&mut bytes).map(|()| bytes)
    }

    #[test]
    fn orders_survive_the_socket() {
        let plain = Orders {
            parent: 17,
            grace_ms: 10_000,
            user: None,
            user_lock: None,
            cgroup: None,
            watch_mb: 0,
            disk_mb: 0,
            max_processes: 1,
            watch_processes: 0,
            max_files: 2,
            directory: "/tmp/x".into(),
            has_result: false,
            source: None,
            command: vec!["sh".into(), "-c".into(), "-- a b\n".into(), "".into()],
            environment: BTreeMap::new(),
        };
        let full = Orders {
            user: Some((65_534, 65_533)),
            user_lock: Some("/run/vendue/uids/65534".into()),
            cgroup: Some("/sys/fs/cgroup/a b".into()),
            watch_mb: 64,
            disk_mb: 65,
            max_processes: 66,
            watch_processes: 67,
            max_files: 68,
            has_result: true,
            source: Some(SourceOrders {
                what: RunSource {
                    url: "http://a/b".into(),
                    sha256: "0f".into(),
                },
                cache: Some("/var/lib/x".into()),
                timeout_ms: 69,
                authorities: Some("/etc/ca.pem".into()),
            }),
            environment: [("A".into(), "".into()), ("B".into(), "x=y\n".into())].into(),
            ..plain.clone()
        };
        for orders in [plain, full.clone()] {
            let bytes = written(&orders).unwrap();
            assert_eq!(Orders::read_from(&mut &bytes[..]).unwrap(), orders);
            for cut in [0, 3, 4, bytes.len() - 1] {
                assert!(Orders::read_from(&mut &bytes[..cut]).is_err(), "{cut}");
            }
        }
        let source = |url: &str| {
            let mut source = full.source.clone().unwrap();
            source.what.url = url.into();
            Some(source)
        };
        for bad in [
            Orders {
                source: source("http://a/\0hash\0/cache"),
                ..full.clone()
            },
            Orders {
                command: vec!["sh".into(), "a\0b".into()],
                ..full.clone()
            },
            Orders {
                environment: [("A".into(), "x\0B".into())].into(),
                ..full.clone()
            },
        ] {
            let mut bytes = Vec::new();
            assert!(bad.write_to(&mut bytes).is_err() && bytes.is_empty());
        }
    }

    #[test]
    fn what_is_no_order_is_refused() {
        assert!(Orders::read_from(&mut &[0xff; 64][..]).is_err());
        assert!(Orders::read_from(&mut &[0, 0, 0, 2, b'1', 0][..]).is_err());
    }

    #[test]
    fn reports_survive_the_socket() {
        for status in [
            SupervisorReport::Runs(12),
            SupervisorReport::Source(SourceFrom::Cache),
            SupervisorReport::Note("a b".into()),
            SupervisorReport::Result(r#"{"a": "b c"}"#.into()),
            SupervisorReport::Ended(EndReason::Exit(0)),
            SupervisorReport::Ended(EndReason::Exit(255)),
            SupervisorReport::Ended(EndReason::Signal(9)),
            SupervisorReport::Ended(EndReason::Over(Limit::Memory)),
            SupervisorReport::Ended(EndReason::Over(Limit::Files)),
            SupervisorReport::Ended(EndReason::Failed("cannot run x: no".into())),
        ] {
            assert_eq!(SupervisorReport::from_line(&status.to_line()), Some(status));
        }
        let broken = SupervisorReport::Ended(EndReason::Failed("a\nexit 0".into()));
        assert_eq!(broken.to_line().lines().count(), 1);
        assert_eq!(SupervisorReport::from_line("exit x"), None);
    }
}
