//! The HTTP listener: accepts connections, and lets nobody hold one without using it.
//!
//! Bounds: `connection_count_max` connections that are still HTTP (one that became a WebSocket is the edge's and counts
//! there); at the bound nothing is accepted and new ones wait in the system's queue. A peer has `head_timeout` to send
//! a request's head, also the next one on a connection it keeps. Stopping: no new ones, those in work are finished.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tracing::{debug, error, warn};

/// What a listener allows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections that are still HTTP.
    pub(super) connection_count_max: usize,
    /// How long the head of a request may take, from the connection or the last response on.
    pub(super) head_timeout: Duration,
}

/// After the system refused a connection (no more open files), before it is asked again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that wait to be accepted. With the libraries' 128, thousands of clients that come back at once have their
/// SYNs dropped and sent again a second later. The system may allow fewer (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;

/// Opens a listening socket.
pub(crate) fn listen(addr: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?; // A restart need not wait for the connections of the life before.
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Serves `router` until `stopped`.
pub(super) async fn serve(listener: TcpListener, router: Router, limits: Limits, mut stopped: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(limits.connection_count_max));
    let to_stop = stopped.clone();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            (socket, addr, permit) = accept(&listener, &permits) => {
                tasks.spawn(converse(socket, addr, router.clone(), limits, to_stop.clone(), permit));
            }
            Some(ended) = tasks.join_next() => {
                if ended.is_err_and(|error| error.is_panic()) {
                    error!("A request's task panicked: a bug");
                }
            }
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

async fn accept(listener: &TcpListener, permits: &Arc<Semaphore>) -> (TcpStream, SocketAddr, OwnedSemaphorePermit) {
    let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((socket, addr)) => return (socket, addr, permit),
            Err(error) => {
                warn!(%error, "A connection cannot be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// One connection from its first request to its last, or to its upgrade. hyper itself rather than hyper-util's automatic
/// server: that one first waits, without a limit, for the bytes that tell HTTP/1 from HTTP/2.
async fn converse(
    socket: TcpStream,
    addr: SocketAddr,
    router: Router,
    limits: Limits,
    mut stopped: watch::Receiver<bool>,
    _permit: OwnedSemaphorePermit,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(addr));
        router.clone().oneshot(request.map(axum::body::Body::new))
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service).with_upgrades());
    let stop = async move {
        let _ = stopped.wait_for(|stopped| *stopped).await; // An error: the server is gone, which is the same.
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(peer.addr = %addr, %error, "An HTTP connection broke off");
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_peer_that_sends_no_whole_request_is_closed_and_then_stopping_is_quick() {
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let limits = Limits { connection_count_max: 2, head_timeout: Duration::from_millis(100) };
        let mut tasks = JoinSet::new();
        tasks.spawn(serve(listener, Router::new(), limits, stopped));
        for bytes in ["", "G", "PRI * HT", "GET /health HTTP/1.1\r\nHo"] {
            let mut socket = TcpStream::connect(addr).await.unwrap();
            socket.write_all(bytes.as_bytes()).await.unwrap();
            let closed = tokio::time::timeout(Duration::from_secs(20), socket.read_to_end(&mut Vec::new())).await;
            assert!(closed.is_ok(), "still open after {bytes:?}");
        }
        stop.send_replace(true);
        tokio::time::timeout(Duration::from_secs(20), tasks.join_next()).await.unwrap().unwrap().unwrap();
    }
}
