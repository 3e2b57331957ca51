//! Client connections: WebSocket, the Centrifugo client protocol.
//!
//! ```text
//!   HTTP server ── handshake ──► loop 0 … n-1 (one thread each, a current-thread runtime)
//!                                  connections ── session (commands) ──► hub
//!                                  fan-out     ◄── mailbox ◄──────────── hub (publications)
//! ```
//!
//! The HTTP server does the handshake only ([`Edge::upgrade`]); then the plain socket belongs to one loop for life, and
//! nothing of a connection is shared between threads. Decisions are the protocol's (`tidings_protocol::Session`), order
//! and history the hub's; this crate moves bytes. Its modules form a line: each imports only modules below it.
//!
//! | Module | Holds |
//! |---|---|
//! | `handshake` | from an HTTP request to a socket for a loop |
//! | `worker` | the thread of a loop and its tasks |
//! | `serve` | a connection's task: reading and waiting |
//! | `commands` | what each command does |
//! | `identity` | which device a connection has proven to be |
//! | `edge_loop` | the connections of a loop: closing, deadlines, the budget of replies |
//! | `fanout` | who reads what, and writing publications |
//! | `connection` | one connection: bytes, frames and deadlines |
//! | `output` | bytes that are still to be written |
//! | `shared` | what all loops share, and what the edge asks of others |
//! | `receipts` | pings, and what their pongs prove |
//! | `revocations` | devices that lose their proof |
//! | `subscribers` | the readers of one channel |
//! | `creations`, `users`, `config`, `metrics` | channels created by each user, connected users, settings, counters |
//!
//! Bounds: connections (refused with 503), bytes per message (1009), replies waiting per connection (then it is not
//! read) and per loop (then the slowest are cut off), time without a byte taken (cut off), publications waiting per channel (3008), publications waiting for a connection's pong (1024; the oldest is
//! struck, for it the device is pushed). A slow peer costs itself: its socket is full, the others go on.
//!
//! Stopping: [`Edge::shutdown`] closes every connection with 3001, so that clients come back elsewhere and resume.

mod commands;
mod config;
mod connection;
mod creations;
mod edge_loop;
mod fanout;
mod handshake;
mod identity;
mod metrics;
mod output;
mod receipts;
mod revocations;
mod serve;
mod shared;
mod subscribers;
mod users;
mod worker;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use hyper::upgrade::OnUpgrade;
use tidings_hub::Hub;
use tidings_protocol::SessionConfig;
use tidings_telemetry::Registry;
use tidings_types::DeviceNumber;
use tokio::sync::{mpsc, watch};

pub use config::EdgeConfig;
pub use handshake::HandshakeError;
pub use shared::{DeviceDirectory, DurablePublisher, ProveFuture, PublishFuture};

use metrics::EdgeMetrics;
use revocations::Revocations;
use shared::Shared;
use users::Users;
use worker::Worker;

/// Queue: 1024 handshakes per loop. Full: the handshake is refused with 503. Closed: likewise.
const HANDSHAKE_COUNT_MAX: usize = 1024;

/// The client side of the server. Dropping it without [`Edge::shutdown`] cuts the connections.
pub struct Edge {
    shared: Arc<Shared>,
    loops: Vec<mpsc::Sender<OnUpgrade>>,
    revocations: Vec<Arc<Revocations>>,
    next_loop: AtomicUsize,
    stop: watch::Sender<bool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Edge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edge").field("loops", &self.loops.len()).finish_non_exhaustive()
    }
}

impl Edge {
    /// Starts a thread for each loop of the hub.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(
        config: EdgeConfig,
        session: Arc<SessionConfig>,
        hub: Arc<Hub>,
        publisher: Arc<dyn DurablePublisher>,
        devices: Arc<dyn DeviceDirectory>,
        registry: &Registry,
    ) -> std::io::Result<Self> {
        let metrics = EdgeMetrics::new(registry);
        let shared = Arc::new(Shared {
            config,
            session,
            hub,
            publisher,
            devices,
            metrics,
            connection_count: AtomicUsize::new(0),
            users: Users::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let (mut loops, mut revocations, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (loop_id, mailbox)) in shared.hub.loops().enumerate() {
            let (handshakes_tx, handshakes_rx) = mpsc::channel(HANDSHAKE_COUNT_MAX);
            let revoked = Arc::new(Revocations::default());
            revocations.push(revoked.clone());
            let (shared, stopped) = (shared.clone(), stopped.clone());
            let thread = std::thread::Builder::new().name(format!("edge-{index}"));
            threads
                .push(thread.spawn(move || Worker::run(shared, loop_id, &mailbox, &revoked, handshakes_rx, stopped))?);
            loops.push(handshakes_tx);
        }
        let threads = Mutex::new(threads);
        Ok(Self { shared, loops, revocations, next_loop: AtomicUsize::new(0), stop, threads })
    }

    /// Open connections.
    pub fn connection_count(&self) -> usize {
        self.shared.connection_count.load(Ordering::Relaxed)
    }

    /// Different users among the connected clients; all anonymous ones are one.
    pub fn user_count(&self) -> usize {
        self.shared.users.count()
    }

    /// Takes their proof from the device's connections: none of them is a receipt for it any more. With `close` they are
    /// closed with 3500 as well (log-out). Whoever revokes has made the old credential invalid before; a connection that
    /// has just proven the new one may lose its proof too, and is as good as without until it connects again.
    pub fn revoke(&self, device: DeviceNumber, close: bool) {
        self.revocations.iter().for_each(|revocations| revocations.add(device, close));
    }

    /// Closes every connection with 3001 and waits until all are closed or the close timeout is over.
    ///
    /// # Cancel safety
    /// Not cancel safe: the loops go on stopping, but nobody waits for them.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let joined =
            tokio::task::spawn_blocking(move || threads.into_iter().map(JoinHandle::join).all(|end| end.is_ok()));
        if !joined.await.unwrap_or(false) {
            tracing::error!("An edge loop panicked");
        }
    }
}
