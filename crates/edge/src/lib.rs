//! Client connections: the Centrifugo client protocol over WebSocket, server-sent events and HTTP streams, in JSON or
//! Protobuf.
//!
//! ```text
//!   HTTP server ── handshake ──► loop 0 … n-1 (one thread each, a current-thread runtime)
//!                                  connections ── session (commands) ──► hub
//!                                  fan-out     ◄── mailbox ◄──────────── hub (publications)
//! ```
//!
//! The HTTP server does only the handshake ([`Edge::upgrade`], [`Edge::stream`]). Then the socket, plain or with TLS,
//! belongs to one loop until it is closed, and threads share nothing of a connection. A client without a WebSocket sends
//! its commands in requests of their own ([`Edge::emulate`]), which are handed to its loop. The protocol
//! (`tidings_protocol::Session`) makes the decisions, and the hub keeps order and history; this crate moves bytes. Its
//! modules form a line: each imports only modules below it.
//!
//! | Module | Holds |
//! |---|---|
//! | `streaming` | streams without WebSocket, and the requests with their commands |
//! | `handshake` | from an HTTP request to a socket for a loop |
//! | `worker` | the thread of a loop and its tasks |
//! | `serve` | a connection's task: reading and waiting |
//! | `control` | carries out orders about connections |
//! | `commands` | what each command does |
//! | `identity` | which device a connection has proven to be |
//! | `edge_loop` | the connections of a loop: closing, deadlines, the budgets of replies and commands |
//! | `fanout` | who reads what, and writing publications |
//! | `connection` | one connection: bytes, frames and deadlines |
//! | `input` | bytes of one connection that are still to be handled |
//! | `output` | bytes that are still to be written to one connection |
//! | `stream` | the socket, plain or with TLS |
//! | `takeover` | the socket while the HTTP server has it |
//! | `shared` | what all loops share, and what the edge asks of others |
//! | `receipts` | pings, and what their pongs prove |
//! | `revocations` | devices that lose their proof |
//! | `orders` | the queues of orders about connections |
//! | `emulated` | the queue of commands that come in requests of their own |
//! | `subscribers` | the readers of one channel |
//! | `networks` | how many connections each address has |
//! | `creations`, `users`, `config`, `metrics` | channels created by each user, connected users, settings, counters |
//!
//! Bounds, and what happens when they are reached:
//!
//! | What | Then |
//! |---|---|
//! | connections | 503 |
//! | connections of one network | 429 |
//! | bytes of a message from a client | closed with 1009; in a request of its own: 413 |
//! | commands in requests of their own that wait | of a connection: closed with 3013; of a loop: 503 |
//! | messages and commands of a loop's clients that wait | those that hold most for longest are closed with 3013 |
//! | replies that wait for a connection | the connection is not read |
//! | replies that wait on a loop | the slowest connections are cut off |
//! | time in which a client takes no byte | cut off |
//! | publications that a channel keeps for slow readers | readers that it has overtaken are closed with 3008 |
//! | orders about connections that wait for a loop: 1024 | refused |
//! | publications that wait for a connection's pong: 1024 | the oldest is dropped: its device is pushed |
//!
//! A slow peer harms only itself: its socket is full, and the others go on. Every way in which a connection ends is in
//! the table "How a connection ends" in `docs/clients.md`, with its code, its limit and the file that decides it.
//!
//! Stopping: [`Edge::shutdown`] closes every connection with 3001, so that clients come back elsewhere and resume.

mod allowance;
mod commands;
mod config;
mod connection;
mod control;
mod creations;
mod crowds;
mod edge_loop;
mod emulated;
mod error;
mod fanout;
mod handshake;
mod identity;
mod input;
#[cfg(test)]
mod limits;
mod memory;
mod metrics;
mod networks;
mod orders;
mod output;
mod receipts;
mod revocations;
mod serve;
mod shared;
pub mod shares;
mod stint;
mod stream;
mod streaming;
mod subscribers;
mod takeover;
mod turns;
mod users;
mod wanted;
mod worker;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tidings_hub::{Hub, Wanted};
use tidings_protocol::{LiveConnection, Order, OrderError, SessionConfig, Target};
use tidings_telemetry::Registry;
use tidings_telemetry::panics::lock;
use tidings_types::DeviceNumber;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

pub use config::EdgeConfig;
pub use error::HandshakeError;
pub use memory::{COMMAND_BYTES, MemoryUse};
pub use networks::{ClientNetwork, NetworkPlace, Networks};
pub use shared::{
    Alone, DeviceDirectory, Emulation, EmulationFuture, HookFuture, Hooks, NoHooks, Others, PresenceFuture,
    ProveFuture, PublishFuture, Publisher, StatsFuture,
};
pub use takeover::{LentSocket, Socket, Taker};

use commands::CATCH_UP_TIMEOUT;
use emulated::EmulatedSender;
use metrics::EdgeMetrics;
use orders::{ORDER_COUNT_MAX, Work};
use revocations::Revocations;
use shared::{Handshake, Shared};
use users::Users;
use worker::{Inputs, Worker};

/// Queue: 1024 handshakes per loop. Full: the handshake is refused with 503. Closed: likewise.
const HANDSHAKE_COUNT_MAX: usize = 1024;

/// The client side of the server. Dropping it without [`Edge::shutdown`] cuts all connections.
pub struct Edge {
    shared: Arc<Shared>,
    loops: Vec<LoopInputs>,
    revocations: Vec<Arc<Revocations>>,
    next_loop: AtomicUsize,
    stop: watch::Sender<bool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the edge needs from other components.
pub struct Ports {
    /// Where clients' publications go.
    pub publisher: Arc<dyn Publisher>,
    /// The directory of devices.
    pub devices: Arc<dyn DeviceDirectory>,
    /// The hooks of the application's back end.
    pub hooks: Arc<dyn Hooks>,
    /// The other servers of a cluster.
    pub others: Arc<dyn Others>,
}

/// What a loop takes in.
struct LoopInputs {
    handshakes: mpsc::Sender<Handshake>,
    emulated: EmulatedSender,
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
    /// If the system refuses to start a thread.
    pub fn start(
        config: EdgeConfig,
        session: Arc<SessionConfig>,
        hub: Arc<Hub>,
        ports: Ports,
        registry: &Registry,
    ) -> std::io::Result<Self> {
        let Ports { publisher, devices, hooks, others } = ports;
        let metrics = EdgeMetrics::new(registry);
        let users = Users::new(hub.changes().cloned());
        let (orders_tx, orders_rx): (Vec<_>, Vec<_>) = hub.loops().map(|_| mpsc::channel(ORDER_COUNT_MAX)).unzip();
        let shared = Arc::new(Shared {
            config,
            session,
            hub,
            publisher,
            devices,
            hooks,
            others,
            metrics,
            connection_count: AtomicUsize::new(0),
            networks: Arc::default(),
            users,
            holdings: Arc::default(),
            orders: orders_tx,
            last_number: AtomicU64::new(0),
        });
        let (stop, stopped) = watch::channel(false);
        let (mut loops, mut revocations, mut threads) = (Vec::new(), Vec::new(), Vec::new());
        for (index, ((loop_id, mailbox), orders)) in shared.hub.loops().zip(orders_rx).enumerate() {
            let (handshakes, handshakes_rx) = mpsc::channel(HANDSHAKE_COUNT_MAX);
            let (emulated, emulated_rx) = EmulatedSender::new();
            let revoked = Arc::new(Revocations::default());
            revocations.push(revoked.clone());
            let (shared, stopped) = (shared.clone(), stopped.clone());
            let thread = std::thread::Builder::new().name(format!("edge-{index}"));
            let inputs = Inputs { orders, handshakes: handshakes_rx, emulated: emulated_rx };
            threads.push(thread.spawn(move || Worker::run(shared, loop_id, &mailbox, &revoked, inputs, stopped))?);
            loops.push(LoopInputs { handshakes, emulated });
        }
        let threads = Mutex::new(threads);
        Ok(Self { shared, loops, revocations, next_loop: AtomicUsize::new(0), stop, threads })
    }

    /// Open connections.
    pub fn connection_count(&self) -> usize {
        self.shared.connection_count.load(Ordering::Relaxed)
    }

    /// Different users among the connected clients; all anonymous clients count as one user.
    pub fn user_count(&self) -> usize {
        self.shared.users.count()
    }

    /// Ends the proof of the device's connections: from now on they give no receipts for the device. With `close` they
    /// are also closed with 3500 (log-out). The caller has made the old credential invalid before. A connection that
    /// has just proven the new credential may lose its proof too, and has none until it connects again.
    pub fn revoke(&self, device: DeviceNumber, close: bool) {
        self.revocations.iter().for_each(|revocations| revocations.add(device, close));
    }

    /// Gives an order about the connections that are open now, and resolves when every loop has carried it out.
    ///
    /// # Errors
    /// See [`OrderError`]. Some connections may have followed the order nevertheless.
    ///
    /// # Cancel safety
    /// If the future is dropped, the order is carried out nevertheless, unless the publications that a subscription begins with
    /// are still read from the disk.
    pub fn order(&self, target: Target, order: Order) -> impl Future<Output = Result<(), OrderError>> + Send + use<> {
        let load = match &order {
            Order::Subscribe { channel, since: Some(since), .. } => {
                self.shared.hub.load(channel, Wanted::After(since.offset, &since.epoch))
            }
            _ => None,
        };
        let shared = self.shared.clone();
        let post = move || orders::post(&shared.orders, target, Work::Ordered(order));
        let posted = match load {
            None => Ok(post()),
            Some(load) => Err((load, post)),
        };
        let began = Instant::now();
        async move {
            let posted = match posted {
                Ok(posted) => posted,
                Err((load, post)) => {
                    let _ = timeout_at(began + CATCH_UP_TIMEOUT, load).await; // Too late: as if they were gone.
                    post()
                }
            };
            orders::carried_out(posted, began).await
        }
    }

    /// Tells of the connections that are open now: of
    /// [`CONNECTION_LIST_MAX`](tidings_protocol::CONNECTION_LIST_MAX), and of one more if there are more.
    ///
    /// # Errors
    /// See [`OrderError`].
    ///
    /// # Cancel safety
    /// Cancel safe: nothing changes.
    pub fn connections(
        &self,
        target: Target,
    ) -> impl Future<Output = Result<Vec<LiveConnection>, OrderError>> + Send + use<> {
        let task = Arc::new((target, Work::List(Mutex::default())));
        let posted = orders::post_shared(&self.shared.orders, &task);
        async move {
            orders::carried_out(posted, Instant::now()).await?;
            let Work::List(found) = &task.1 else { unreachable!("made above") };
            Ok(std::mem::take(&mut *lock(found)))
        }
    }

    /// Closes every connection with 3001, so that clients connect to another server. Resolves when every loop has done so.
    ///
    /// # Errors
    /// See [`OrderError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, they are closed nevertheless.
    pub fn send_away(&self) -> impl Future<Output = Result<(), OrderError>> + Send + use<> {
        orders::carried_out(orders::post(&self.shared.orders, Target::default(), Work::SendAway), Instant::now())
    }

    /// Closes the connections of a user who may have only one, because another server has a newer one, with this number.
    /// Those that were let in later, and have a greater number, stay. Resolves when every loop has done so.
    ///
    /// # Errors
    /// See [`OrderError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, they are closed nevertheless.
    pub fn replace(&self, user: String, number: u64) -> impl Future<Output = Result<(), OrderError>> + Send + use<> {
        self.shared.last_number.fetch_max(number, Ordering::Relaxed); // Whoever comes later is later.
        let target = Target { user, ..Target::default() };
        orders::carried_out(orders::post(&self.shared.orders, target, Work::Replace { number }), Instant::now())
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
