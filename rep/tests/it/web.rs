//! A small HTTP server for sources of instances.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use testkit::eventually;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

/// The answer for a path.
#[derive(Clone)]
pub(crate) enum Reply {
    Body(Vec<u8>),
    Redirect(String),
    Status(u16),
    /// The beginning of an answer, and nothing after it.
    Stuck,
}

/// One request: the path, the value of `authorization`, and the user whose process sent it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) authorization: String,
    pub(crate) user: u32,
}

/// The server; it ends with the test.
pub(crate) struct Web {
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Web {
    pub(crate) async fn start(replies: impl IntoIterator<Item = (&'static str, Reply)>) -> Self {
        let replies: BTreeMap<_, _> = replies.into_iter().collect();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let to = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, replies.clone(), Arc::clone(&to)));
            }
        });
        Self { port, asked }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Returns the requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) async fn is_asked(&self, path: &str) {
        eventually("a request", async || {
            let asked = self.asked();
            let there = asked.iter().any(|one| one.path == path);
            there.then_some(()).ok_or(format!("{asked:?}"))
        })
        .await;
    }
}

async fn answer(
    stream: TcpStream,
    replies: BTreeMap<&'static str, Reply>,
    asked: Arc<Mutex<Vec<Asked>>>,
) {
    let user = user_of(&stream);
    let mut stream = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.unwrap_or(0) == 0 {
            return;
        }
        if line.trim_end().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let path = lines[0].split(' ').nth(1).unwrap().to_owned();
    let authorization = lines.iter().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization")
            .then(|| value.to_owned())
    });
    asked.lock().unwrap().push(Asked {
        path: path.clone(),
        authorization: authorization.unwrap_or_default(),
        user,
    });
    let bare = path.split('?').next().unwrap();
    let (head, body) = match replies.get(bare).unwrap_or(&Reply::Status(404)) {
        Reply::Body(body) => (
            format!("200 OK\r\nContent-Length: {}", body.len()),
            body.clone(),
        ),
        Reply::Redirect(to) => (
            format!("302 Found\r\nLocation: {to}\r\nContent-Length: 0"),
            Vec::new(),
        ),
        Reply::Status(status) => (format!("{status} X\r\nContent-Length: 0"), Vec::new()),
        Reply::Stuck => ("200 OK\r\nContent-Length: 100".into(), b"a little".to_vec()),
    };
    let text = format!("HTTP/1.1 {head}\r\nConnection: close\r\n\r\n");
    let stuck = body == b"a little";
    // the client may be gone
    let _ = stream.write_all(text.as_bytes()).await;
    let _ = stream.write_all(&body).await;
    if stuck {
        let _ = stream.flush().await;
        // until the other side closes it
        let _ = stream.read_line(&mut String::new()).await;
    }
}

/// Returns the user whose process has the other end. Both addresses must match: the port of an earlier connection, which
/// belongs to nobody any more, may be in use again.
fn user_of(stream: &TcpStream) -> u32 {
    let ends = [stream.peer_addr(), stream.local_addr()].map(|end| match end.unwrap() {
        SocketAddr::V4(end) => {
            let ip = u32::from_ne_bytes(end.ip().octets());
            format!("{ip:08X}:{:04X}", end.port())
        }
        SocketAddr::V6(end) => panic!("{end}"),
    });
    // the kernel writes the table in parts, and what moves meanwhile may be left out
    let user = (0..100).find_map(|_| {
        let table = fs::read_to_string("/proc/net/tcp").unwrap();
        let line = table.lines().map(str::split_whitespace).find(|line| {
            let fields = line.clone().skip(1).take(2);
            fields.eq(ends.iter().map(String::as_str))
        });
        line?.nth(7)?.parse().ok()
    });
    user.expect("a connection")
}
