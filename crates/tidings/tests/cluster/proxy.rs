//! A proxy between one server and its NATS servers, which holds up what goes through it. Nothing is lost: what was held up
//! comes late, as with a network that is away for a while.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What goes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passing {
    pub(crate) to_nats: bool,
    pub(crate) from_nats: bool,
}

pub(crate) struct Proxy {
    /// Where the server connects, by NATS server.
    pub(crate) ports: Vec<u16>,
    passing: watch::Sender<Passing>,
    #[expect(dead_code, reason = "ends with the proxy")]
    listening: JoinSet<()>,
}

impl Proxy {
    /// Everything goes through.
    pub(crate) async fn start(nats: &[u16]) -> Self {
        let (passing, gate) = watch::channel(Passing { to_nats: true, from_nats: true });
        let (mut ports, mut listening) = (Vec::new(), JoinSet::new());
        for port in nats {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            ports.push(listener.local_addr().unwrap().port());
            listening.spawn(accept(listener, ([127, 0, 0, 1], *port).into(), gate.clone()));
        }
        Self { ports, passing, listening }
    }

    pub(crate) fn pass(&self, passing: Passing) {
        self.passing.send_replace(passing);
    }
}

async fn accept(listener: TcpListener, nats: SocketAddr, gate: watch::Receiver<Passing>) {
    let mut connections = JoinSet::new();
    while let Ok((node, _)) = listener.accept().await {
        let gate = gate.clone();
        connections.spawn(async move {
            let Ok(nats) = TcpStream::connect(nats).await else { return };
            let ((from_node, to_node), (from_nats, to_nats)) = (node.into_split(), nats.into_split());
            tokio::select! { // One end closes both.
                () = carry(from_node, to_nats, gate.clone(), |passing| passing.to_nats) => {}
                () = carry(from_nats, to_node, gate, |passing| passing.from_nats) => {}
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn carry(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut gate: watch::Receiver<Passing>,
    is_open: impl Fn(&Passing) -> bool,
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let open = gate.wait_for(&is_open).await.is_ok();
        if !open || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
