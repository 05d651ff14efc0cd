//! A network link between clients and a server of this machine.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp},
    sync::watch,
    task::{JoinHandle, JoinSet},
};

/// What passes through the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    /// Nothing moves, in neither direction.
    blocked: bool,
    /// Grows with every cut; a connection made in an earlier epoch is closed.
    epoch: u64,
}

/// A TCP proxy that can be blocked as a broken network would block it: no byte moves, and nobody is
/// told. Dropped, it closes everything. It lives on the runtime that made it.
#[derive(Debug)]
pub struct Link {
    port: u16,
    state: watch::Sender<State>,
    acceptor: JoinHandle<()>,
}

impl Link {
    /// A link to a port of 127.0.0.1; whether something listens there matters only when a client
    /// connects (its connection is closed when nothing does).
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

    /// The port for clients to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `nats://127.0.0.1:port`; for a server with a token, see [`crate::NatsServer::url_of`].
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// From now on no byte moves, either way. Connections stay open, new ones are accepted and hang,
    /// and what is sent meanwhile arrives after [`Link::unblock`], late.
    pub fn block(&self) {
        self.state.send_modify(|state| state.blocked = true);
    }

    /// Lets everything move again.
    pub fn unblock(&self) {
        self.state.send_modify(|state| state.blocked = false);
    }

    /// Closes all connections of this moment. New ones are served (or hang while blocked).
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
            // out of file descriptors or the like: the test that waits for its client says so
            Ok((client, _)) = listener.accept() => {
                connections.spawn(serve(client, server, state.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// One connection, from its start to its end or the next cut. Both sockets close when it returns.
async fn serve(client: TcpStream, server: SocketAddr, mut state: watch::Receiver<State>) {
    let epoch = state.borrow().epoch;
    let pass = state.clone();
    let forward = async {
        unblocked(&mut pass.clone()).await;
        let server = TcpStream::connect(server).await?;
        // both are links of small messages: delaying them would only slow tests down
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
        // an error of either side closes both, which is all that can be told
        _ended = forward => {}
        _cut = state.wait_for(|now| now.epoch != epoch) => {}
    }
}

/// Moves bytes one way until either side closes, holding them while the link is blocked.
async fn pump(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    mut state: watch::Receiver<State>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // before the read, so that a sender feels a full pipe; after it, so that bytes that were
        // on their way when the link was blocked do not slip through
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
    // an error means that the link is gone, and then this task is too
    let _ = state.wait_for(|now| !now.blocked).await;
}
