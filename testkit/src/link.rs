//! A network link between clients and a server on this machine.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// The state of the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// Whether nothing moves, in either direction.
    blocked: bool,
    /// Grows with every cut; connections made in an earlier epoch are closed.
    epoch: u64,
}

/// A TCP proxy that can be blocked like a broken network: no byte moves, and neither side is notified. When dropped, it
/// closes everything. It lives on the runtime that created it.
#[derive(Debug)]
pub struct Link {
    port: u16,
    state: watch::Sender<State>,
    acceptor: JoinHandle<()>,
}

impl Link {
    /// Creates a link to a port of 127.0.0.1. Something must listen there only by the time a client connects; otherwise
    /// that connection is closed.
    pub async fn to(server_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("bind a port for a link");
        let port = listener.local_addr().expect("the link's own port").port();
        let (state, watcher) = watch::channel(State::default());
        let server = SocketAddr::from(([127, 0, 0, 1], server_port));
        let acceptor = tokio::spawn(accept(listener, server, watcher));
        Self {
            port,
            state,
            acceptor,
        }
    }

    /// Returns the port for clients to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns `nats://127.0.0.1:port`; for a server with a token, see [`crate::NatsServer::url_of`].
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Blocks the link: from now on no byte moves, in either direction. Connections stay open, new ones are accepted
    /// but hang, and what is sent meanwhile arrives late, after [`Link::unblock`].
    pub fn block(&self) {
        self.state.send_modify(|state| state.blocked = true);
    }

    /// Lets everything move again.
    pub fn unblock(&self) {
        self.state.send_modify(|state| state.blocked = false);
    }

    /// Closes all current connections. New ones are served (or hang while blocked).
    pub fn cut(&self) {
        self.state.send_modify(|state| state.epoch += 1);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // the connections' tasks belong to the acceptor and end with it
        self.acceptor.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, state: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            // an error such as running out of file descriptors is reported by the waiting client's test
            Ok((client, _)) = listener.accept() => {
                connections.spawn(serve(client, server, state.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection until its end or the next cut. Both sockets close when it returns.
async fn serve(client: TcpStream, server: SocketAddr, mut state: watch::Receiver<State>) {
    let epoch = state.borrow().epoch;
    let pass = state.clone();
    let forward = async {
        unblocked(&mut pass.clone()).await;
        let server = TcpStream::connect(server).await?;
        // small messages in both directions: delaying them would only slow tests down
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (client_read, client_write) = client.into_split();
        let (server_read, server_write) = server.into_split();
        tokio::select! {
            ended = pump(client_read, server_write, pass.clone()) => ended,
            ended = pump(server_read, client_write, pass.clone()) => ended,
        }
    };
    tokio::select! {
        // an error on either side closes both
        _ended = forward => {}
        _cut = state.wait_for(|now| now.epoch != epoch) => {}
    }
}

/// Copies bytes in one direction until either side closes, holding them while the link is blocked.
async fn pump(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // before the read, so that a sender's pipe fills up; after it, so that bytes in transit when the link was
        // blocked do not pass
        unblocked(&mut state).await;
        let count = from.read(&mut buffer).await?;
        unblocked(&mut state).await;
        if count == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..count]).await?;
    }
}

async fn unblocked(state: &mut watch::Receiver<State>) {
    // an error means that the link is gone, and this task with it
    let _ = state.wait_for(|now| !now.blocked).await;
}
