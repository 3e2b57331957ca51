//! The HTTP listener: accepts connections, and lets nobody hold one without using it.
//!
//! Bounds: `connection_count_max` connections that are still HTTP (one that became a WebSocket is the edge's and counts
//! there); at the bound nothing is accepted and new ones wait in the system's queue. A peer has [`HEAD_TIMEOUT`] to send
//! a request's head, also the next one on a connection it keeps. Stopping: no new ones, those in work are finished.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tower::ServiceExt as _;
use tracing::{debug, error, warn};

/// How long the head of a request may take, from the connection or the last response on.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
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
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    connection_count_max: usize,
    mut stopped: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(connection_count_max));
    let graceful = GracefulShutdown::new();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => break,
            (socket, addr, permit) = accept(&listener, &permits) => {
                tasks.spawn(converse(socket, addr, router.clone(), &graceful, permit));
            }
            Some(ended) = tasks.join_next() => {
                if ended.is_err_and(|error| error.is_panic()) {
                    error!("A request's task panicked: a bug");
                }
            }
        }
    }
    drop(listener);
    graceful.shutdown().await;
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

/// One connection from its first request to its last, or to its upgrade.
fn converse(
    socket: TcpStream,
    addr: SocketAddr,
    router: Router,
    graceful: &GracefulShutdown,
    permit: OwnedSemaphorePermit,
) -> impl Future<Output = ()> + use<> {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(addr));
        router.clone().oneshot(request.map(axum::body::Body::new))
    });
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(socket), service).into_owned();
    let watched = graceful.watch(connection);
    async move {
        let _permit = permit;
        if let Err(error) = watched.await {
            debug!(peer.addr = %addr, %error, "An HTTP connection broke off");
        }
    }
}
