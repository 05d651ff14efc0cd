//! A small HTTP server for examples and the demo: each instance says which one it is.

use crate::context::Exit;
use std::{env, net::IpAddr, sync::Arc, time::Duration};

use anyhow::Context;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};

#[derive(Debug, clap::Args)]
pub(crate) struct WebArgs {
    /// The port to listen on
    #[arg(long, env = "PORT")]
    port: u16,
    /// The address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    bind: IpAddr,
}

/// A client that does not send its request within this time is disconnected.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of connections served at once; further ones wait.
const MOST: usize = 64;
/// The longest head of a request, in bytes.
const HEAD: usize = 8192;

/// Answers until it is killed.
pub(crate) async fn web(args: &WebArgs) -> anyhow::Result<Exit> {
    let address = (args.bind, args.port);
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("listening on {}:{}", args.bind, args.port))?;
    let page: Arc<str> = page().into();
    crate::output::note(format_args!("listening on {}", listener.local_addr()?));
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let place = Arc::clone(&places).acquire_owned().await?;
        let (stream, _) = listener.accept().await?;
        let page = Arc::clone(&page);
        tokio::spawn(async move {
            // a client's mistakes are its own problem
            let _ = timeout(TIMEOUT, answer(stream, &page)).await;
            drop(place);
        });
    }
}

fn page() -> String {
    let of = |name| env::var(name).unwrap_or_default();
    let index: u32 = of("INSTANCE_INDEX").parse().unwrap_or(0);
    let body = serde_json::json!({
        "app": of("APP"), "index": index, "cell": of("CELL"), "zone": of("ZONE"),
        "instance": of("INSTANCE_ID"),
    });
    format!("{body}\n")
}

async fn answer(mut stream: TcpStream, page: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|w| w == b"\r\n\r\n") {
        if head.len() > HEAD || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let length = page.len();
    let reply = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{page}"
    );
    stream.write_all(reply.as_bytes()).await?;
    stream.shutdown().await
}
