//! Starting and stopping a simulator: threads, listeners, and how connections get to the threads.
//!
//! Each thread has a current-thread runtime; the first one also accepts and hands connections out in turn, by a queue
//! of [`HANDOVER_COUNT_MAX`] per thread (full: accepting waits, and the kernel's backlog holds). Stopping drops
//! all connections where they are, as a crash would; ledger, keys and port remain.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rustls::ServerConfig;
use tidings_telemetry::chain;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::happens;
use crate::ledger::{Ledger, bump};
use crate::provider::Provider;
use crate::quota::Quota;
use crate::shared::{Orders, Seat, Shared};
use crate::wire::LINGER_MAX;
use crate::{Faults, StartError, connection, http1};

const HANDOVER_COUNT_MAX: usize = 64;
/// How long accepting rests after it failed, usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// What every simulator is told at its start.
pub(crate) struct Setup<P: Provider> {
    pub(crate) listen: SocketAddr,
    pub(crate) more_addresses: Vec<IpAddr>,
    pub(crate) thread_count: usize,
    pub(crate) connection_count_max: usize,
    pub(crate) seed: u64,
    pub(crate) ledger: Ledger<P::Refusal>,
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) faults: Faults<P::Refusal>,
    pub(crate) credentials: P::Credentials,
}

/// A simulator that runs on threads of its own until it is stopped or dropped.
pub(crate) struct Server<P: Provider> {
    shared: Arc<Shared<P>>,
    /// The first is the one to be told about; all have its port.
    addrs: Vec<SocketAddr>,
    thread_count: usize,
    /// Empty while stopped.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<P: Provider> Server<P> {
    /// Listens and starts; the provider is made when the port is known.
    pub(crate) fn start(setup: Setup<P>, provider: impl FnOnce(SocketAddr) -> P) -> Result<Self, StartError> {
        setup.faults.check()?;
        let first = bind(setup.listen)?;
        let addr = first.local_addr().map_err(|source| StartError::Listen { addr: setup.listen, source })?;
        let mut listeners = vec![first];
        let mut addrs = vec![addr];
        for ip in setup.more_addresses {
            let addr = SocketAddr::new(ip, addr.port());
            listeners.push(bind(addr)?);
            addrs.push(addr);
        }
        let orders = Orders { faults: Arc::new(setup.faults), credentials: setup.credentials, is_stopping: false };
        let shared = Shared {
            provider: provider(addr),
            ledger: Arc::new(setup.ledger),
            seed: setup.seed,
            connection_count_max: setup.connection_count_max,
            tls: TlsAcceptor::from(setup.tls),
            orders: watch::Sender::new(orders),
            connection_total: AtomicU64::new(0),
            quota: Quota::default(),
        };
        let thread_count = setup.thread_count.max(1);
        let server = Self { shared: Arc::new(shared), addrs, thread_count, threads: Mutex::default() };
        *server.threads() = server.start_threads(listeners)?;
        Ok(server)
    }

    /// Listens again after a [`stop`](Self::stop); does nothing if it runs.
    pub(crate) fn listen(&self) -> Result<(), StartError> {
        let mut threads = self.threads();
        if threads.is_empty() {
            let listeners = self.addrs.iter().copied().map(bind).collect::<Result<_, _>>()?;
            self.shared.orders.send_modify(|orders| orders.is_stopping = false);
            let started = self.start_threads(listeners);
            // Threads that did start before one failed must not go on without it.
            *threads = started.inspect_err(|_| self.shared.orders.send_modify(|orders| orders.is_stopping = true))?;
        }
        Ok(())
    }

    /// Stops listening and drops all connections; returns when the threads have ended.
    pub(crate) fn stop(&self) {
        let mut threads = self.threads();
        self.shared.orders.send_modify(|orders| orders.is_stopping = true);
        for thread in threads.drain(..) {
            let _ = thread.join(); // A panic was reported when it happened.
        }
    }

    pub(crate) fn shared(&self) -> &Shared<P> {
        &self.shared
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addrs[0] // There is one at least: see `start`.
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_threads(&self, listeners: Vec<TcpListener>) -> Result<Vec<JoinHandle<()>>, StartError> {
        let (mut txs, mut workers) = (Vec::new(), Vec::new());
        for index in 0..self.thread_count {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let (tx, rx) = mpsc::channel(HANDOVER_COUNT_MAX);
            txs.push(tx);
            workers.push((index, runtime.map_err(StartError::Thread)?, rx));
        }
        let mut accepting = Some((listeners, txs));
        let mut threads = Vec::new();
        for (index, runtime, rx) in workers {
            let (shared, accepting) = (self.shared.clone(), accepting.take());
            let thread = Builder::new().name(format!("simulator-{index}"));
            let thread = thread.spawn(move || shared.work(runtime, rx, accepting));
            threads.push(thread.map_err(StartError::Thread)?);
        }
        Ok(threads)
    }
}

impl<P: Provider> Drop for Server<P> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn bind(addr: SocketAddr) -> Result<TcpListener, StartError> {
    let error = |source| StartError::Listen { addr, source };
    let listener = TcpListener::bind(addr).map_err(error)?; // Sets SO_REUSEADDR on Unix.
    listener.set_nonblocking(true).map_err(error)?;
    Ok(listener)
}

type Accepting = (Vec<TcpListener>, Vec<mpsc::Sender<TcpStream>>);

impl<P: Provider> Shared<P> {
    /// A thread's life.
    fn work(self: Arc<Self>, runtime: Runtime, rx: mpsc::Receiver<TcpStream>, accepting: Option<Accepting>) {
        LocalSet::new().block_on(&runtime, async move {
            let mut orders = self.orders.subscribe();
            tokio::select! {
                biased;
                _ = orders.wait_for(|orders| orders.is_stopping) => {}
                () = self.clone().serve(rx) => {}
                () = accept(accepting) => {}
            }
        });
    }

    /// Serves the connections handed over; dropping it drops them.
    async fn serve(self: Arc<Self>, mut rx: mpsc::Receiver<TcpStream>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = connections.join_next() => {}
                stream = rx.recv() => {
                    // The accepting thread has ended, thus this one will.
                    let Some(stream) = stream else { return std::future::pending().await };
                    let mut rng = self.next_rng();
                    let faults = self.faults();
                    let dies = happens(&mut rng, faults.die_after_accept_probability);
                    let address = stream.local_addr().map(|addr| addr.ip());
                    let is_dead = address.is_ok_and(|address| faults.dead_addresses.contains(&address));
                    if dies || is_dead || connections.len() >= self.connection_count_max {
                        bump(&self.ledger.counters.connections_refused);
                        continue;
                    }
                    connections.spawn_local(self.clone().serve_one(stream, rng));
                }
            }
        }
    }

    /// Serves one connection to its end.
    async fn serve_one(self: Arc<Self>, stream: TcpStream, rng: Xoshiro256PlusPlus) {
        let mut orders = self.orders.subscribe();
        let first = orders.borrow_and_update().clone();
        // A round trip for TCP's handshake, one for that of TLS 1.3.
        sleep(2 * first.faults.round_trip()).await;
        let stream = match timeout(HANDSHAKE_TIMEOUT, self.open(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(error = chain(&error), "Handshake failed"),
            Err(_) => return tracing::debug!("Handshake took too long"),
        };
        let local = stream.get_ref().0.local_addr().map(|addr| addr.ip()).ok();
        let seat = Seat { shared: self, rng, local, first };
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            connection::serve(seat, stream, orders).await;
        } else {
            http1::serve(seat, stream, orders).await;
        }
    }

    async fn open(&self, stream: TcpStream) -> io::Result<TlsStream<tokio::net::TcpStream>> {
        match self.tls.accept(tokio::net::TcpStream::from_std(stream)?).into_fallible().await {
            Ok(stream) => Ok(stream),
            Err((error, stream)) => {
                drain(stream).await;
                Err(error)
            }
        }
    }
}

/// After a handshake that failed: reads on until the peer closes. A socket that is closed with bytes unread resets the connection,
/// and so takes the alert from a peer that has not read it yet.
async fn drain(mut stream: tokio::net::TcpStream) {
    let _ = stream.shutdown().await;
    let mut rest = [0; 1024];
    let drained = async { while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
    let _ = timeout(LINGER_MAX, drained).await; // Either way it is closed.
}

// Hands connections out in turn; for ever, also on the threads that have nothing to accept.
async fn accept(accepting: Option<Accepting>) {
    let Some((listeners, txs)) = accepting else { return std::future::pending().await };
    let (txs, turn) = (Rc::new(txs), Rc::new(Cell::new(0)));
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn_local(accept_from(listener, txs.clone(), turn.clone()));
    }
    while accepting.join_next().await.is_some() {}
}

async fn accept_from(listener: TcpListener, txs: Rc<Vec<mpsc::Sender<TcpStream>>>, turn: Rc<Cell<usize>>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(error = chain(&error), "Simulator cannot listen"),
    };
    loop {
        match listener.accept().await.and_then(|(stream, _)| nonblocking(stream)) {
            Ok(stream) => {
                let tx = &txs[turn.get() % txs.len()];
                turn.set(turn.get().wrapping_add(1));
                let _ = tx.send(stream).await; // The thread has ended only when all are to end.
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), "Simulator cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn nonblocking(stream: tokio::net::TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.into_std() // Stays non-blocking, as the thread that takes it needs it.
}
