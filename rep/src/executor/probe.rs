//! Checks of instances: whether their port accepts a connection or answers a request.

use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};

use placement::{CheckKind, HealthCheck};
use shared::InstanceId;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy, sink},
    net::TcpStream,
    sync::{Semaphore, mpsc},
    time::timeout,
};

use crate::ledger::{CheckOf, ExecutorReport, InstanceChange};

/// How many checks run at a time; the timeout of a check that has to wait starts when its turn comes.
const CHECKS: usize = 64;
/// The maximum length of the first line of an answer.
const FIRST_LINE: usize = 256;
/// How much of the rest of an answer is read, so that the instance can finish sending.
const REST_BYTES: u64 = 64 << 10;
/// For how long the rest of an answer is read.
const REST: Duration = Duration::from_millis(100);

/// Runs checks, each in a task of its own.
#[derive(Clone, Debug)]
pub(super) struct Prober {
    turns: Arc<Semaphore>,
    reports: mpsc::Sender<ExecutorReport>,
}

impl Prober {
    pub(super) fn new(reports: mpsc::Sender<ExecutorReport>) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(CHECKS)),
            reports,
        }
    }

    /// Starts a check, whose result is reported. There are at most two per instance: the ledger orders the next one
    /// once it has the result.
    pub(super) fn check(
        &self,
        (instance, attempt): (InstanceId, u32),
        of: CheckOf,
        check: Arc<HealthCheck>,
        port: Option<u16>,
    ) {
        let Self { turns, reports } = self.clone();
        tokio::spawn(async move {
            let _turn = turns.acquire().await;
            let failure = probe(&check, port).await.err();
            let report = ExecutorReport {
                instance,
                attempt,
                change: InstanceChange::Checked { of, failure },
            };
            // the receiver is gone once the cell has ended
            let _ = reports.send(report).await;
        });
    }
}

async fn probe(check: &HealthCheck, port: Option<u16>) -> Result<(), String> {
    let port = port.ok_or("the instance has no port")?;
    let probed = timeout(check.timeout.0, async {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        let stream = stream.map_err(|e| in_words(&e))?;
        match check.kind {
            CheckKind::Http => get(stream, &check.path, port).await,
            CheckKind::Port | CheckKind::Process => Ok(()),
        }
    });
    let late = || Err(format!("no answer within {}", check.timeout));
    probed.await.unwrap_or_else(|_| late())
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".into(),
        io::ErrorKind::ConnectionReset => "connection reset".into(),
        _ => error.to_string(),
    }
}

async fn get(mut stream: TcpStream, path: &str, port: u16) -> Result<(), String> {
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: vendue\r\nConnection: close\r\n\r\n"
    );
    stream
        .write_all(request.as_bytes())
        .await
        .map_err(|e| in_words(&e))?;
    let mut line = Vec::with_capacity(FIRST_LINE);
    while !line.contains(&b'\n') && line.len() < FIRST_LINE {
        if stream.read_buf(&mut line).await.map_err(|e| in_words(&e))? == 0 {
            break;
        }
    }
    let status = status_of(&line).ok_or("no HTTP answer")?;
    // closing at once would cause an error in the instance while it is still writing
    let mut rest = stream.take(REST_BYTES);
    let _ = timeout(REST, copy(&mut rest, &mut sink())).await;
    match status {
        200..=399 => Ok(()),
        _ => Err(format!("HTTP {status}")),
    }
}

/// Returns the status of an answer that starts with these bytes.
fn status_of(answer: &[u8]) -> Option<u16> {
    let rest = answer.strip_prefix(b"HTTP/1.")?;
    let [_, b' ', digits @ ..] = rest else {
        return None;
    };
    let (digits, rest) = digits.split_at_checked(3)?;
    let ends = matches!(rest.first(), Some(b' ' | b'\r' | b'\n'));
    let text = std::str::from_utf8(digits).ok()?;
    let numeric = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| ends && numeric)
}

#[cfg(test)]
mod tests {
    use placement::Span;
    use tokio::net::TcpListener;

    use super::*;

    fn check(kind: CheckKind) -> HealthCheck {
        HealthCheck {
            kind,
            path: "/up?x=1".into(),
            ..HealthCheck::default()
        }
    }

    #[test]
    fn a_status_is_three_digits_of_an_http_1_answer() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\n", Some(200)),
            ("HTTP/1.0 503\r\n", Some(503)),
            ("HTTP/1.1 204 ", Some(204)),
            ("HTTP/1.1 20", None),
            ("HTTP/1.1 2000 OK\r\n", None),
            ("HTTP/1.1 +20 OK\r\n", None),
            ("HTTP/2 200\r\n", None),
            ("SSH-2.0-OpenSSH_9.6\r\n", None),
            ("", None),
        ] {
            assert_eq!(status_of(answer.as_bytes()), expected, "{answer:?}");
        }
    }

    /// Returns what a check says about a port that gives this answer to one request, and the request.
    async fn answered(kind: CheckKind, answer: &'static str) -> (Result<(), String>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut asked).await.unwrap() == 0 {
                    break;
                }
            }
            let _ = stream.write_all(answer.as_bytes()).await;
            String::from_utf8(asked).unwrap()
        });
        let probed = probe(&check(kind), Some(port)).await;
        (probed, server.await.unwrap())
    }

    #[tokio::test]
    async fn http_is_passed_by_2xx_and_3xx() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\n\r\nfine", Ok(())),
            ("HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\n", Ok(())),
            ("HTTP/1.1 404 Not Found\r\n\r\n", Err("HTTP 404")),
            ("HTTP/1.1 500 Oh\r\n\r\n", Err("HTTP 500")),
            ("hello\r\n", Err("no HTTP answer")),
            ("", Err("no HTTP answer")),
        ] {
            let (probed, asked) = answered(CheckKind::Http, answer).await;
            assert_eq!(probed, expected.map_err(str::to_owned), "{answer:?}");
            assert!(asked.starts_with("GET /up?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"));
        }
    }

    #[tokio::test]
    async fn a_port_is_passed_by_a_connection() {
        let (probed, asked) = answered(CheckKind::Port, "").await;
        assert_eq!((probed, asked), (Ok(()), String::new()));
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let refused = probe(&check(CheckKind::Port), Some(port)).await;
        assert_eq!(refused, Err("connection refused".into()));
        let none = probe(&check(CheckKind::Port), None).await;
        assert_eq!(none, Err("the instance has no port".into()));
    }

    #[tokio::test]
    async fn who_does_not_answer_in_time_has_not_passed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let hasty = HealthCheck {
            timeout: Span(Duration::from_millis(20)),
            ..check(CheckKind::Http)
        };
        let probed = probe(&hasty, Some(port)).await;
        assert_eq!(probed, Err("no answer within 20ms".into()));
    }
}
