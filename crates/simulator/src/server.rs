//! Starting and stopping a simulator: threads, listeners, and how connections get to the threads.
//!
//! Each thread has a current-thread runtime. The first thread also accepts connections and hands them out round-robin,
//! through one queue per thread. A queue holds [`HANDOVER_COUNT_MAX`] connections. When a queue is full, accepting waits
//! and new connections stay in the kernel's backlog. Stopping drops all connections at once, as a crash would. The
//! ledger, the keys and the port remain.

use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use tidings_telemetry::chain;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::happens;
use crate::identity::Identity;
use crate::ledger::{Ledger, bump};
use crate::provider::Provider;
use crate::quota::Quota;
use crate::shared::{Client, Orders, Shared};
use crate::wire::LINGER_MAX;
use crate::{SimulatorConfig, StartError, connection, http1};

const HANDOVER_COUNT_MAX: usize = 64;
/// The pause after a failed accept; usually there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Further ports that are tried.
const BIND_COUNT_MAX: usize = 16;

/// A simulator that runs on threads of its own until it is stopped or dropped.
pub(crate) struct Server<P: Provider> {
    shared: Arc<Shared<P>>,
    ca_pem: String,
    /// At least one; all have the port of the first.
    addrs: Vec<SocketAddr>,
    thread_count: usize,
    /// Empty while stopped.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl<P: Provider> Server<P> {
    /// Makes the certificates, listens and starts. The provider is made when the port is known.
    pub(crate) fn start(
        config: SimulatorConfig<P::Refusal>,
        credentials: P::Credentials,
        provider: impl FnOnce(SocketAddr) -> P,
    ) -> Result<Self, StartError> {
        config.check()?;
        let Identity { ca_pem, tls } =
            Identity::make(config.client_ca_pem.as_deref(), P::PROTOCOLS, &config.more_addresses)?;
        let (addrs, listeners) = bind_all(config.listen, &config.more_addresses)?;
        let addr = addrs[0];
        let orders = Orders { faults: Arc::new(config.faults), credentials, is_stopping: false };
        let shared = Shared {
            provider: provider(addr),
            ledger: Arc::new(Ledger::new(config.device_count_max, config.notification_count_max)),
            seed: config.seed,
            connection_count_max: config.connection_count_max,
            tls: TlsAcceptor::from(tls),
            orders: watch::Sender::new(orders),
            connection_total: AtomicU64::new(0),
            quota: Quota::default(),
        };
        let thread_count = config.thread_count.max(1);
        let server = Self { shared: Arc::new(shared), ca_pem, addrs, thread_count, threads: Mutex::default() };
        *server.threads() = server.start_threads(listeners)?;
        Ok(server)
    }

    pub(crate) fn listen(&self) -> Result<(), StartError> {
        let mut threads = self.threads();
        if threads.is_empty() {
            let listeners = self.addrs.iter().copied().map(bind).collect::<Result<_, _>>()?;
            self.shared.orders.send_modify(|orders| orders.is_stopping = false);
            let started = self.start_threads(listeners);
            // If a thread could not start, the threads before it must stop too.
            *threads = started.inspect_err(|_| self.shared.orders.send_modify(|orders| orders.is_stopping = true))?;
        }
        Ok(())
    }

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

    pub(crate) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addrs[0] // `start` pushes at least one.
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

/// The methods that all simulators have. `$Simulator` has a field `server` and a function `start_inner`.
macro_rules! simulator {
    ($Simulator:ident, $Config:ty, $Refusal:ty, $OnAccepted:ty) => {
        impl $Simulator {
            /// Starts a simulator: makes certificates and keys, and listens.
            ///
            /// # Errors
            /// When a setting breaks a rule, the address cannot be listened on, or a thread cannot be started.
            pub fn start(config: $Config) -> Result<Self, crate::StartError> {
                Self::start_inner(config, None)
            }

            /// Starts a simulator that reports each accepted notification.
            ///
            /// # Errors
            /// As [`start`](Self::start).
            pub fn start_observed(config: $Config, on_accepted: $OnAccepted) -> Result<Self, crate::StartError> {
                Self::start_inner(config, Some(on_accepted))
            }

            /// Listens again after a [`stop`](Self::stop), with the same port, keys, ledger and faults. Does nothing while
            /// the simulator runs.
            ///
            /// # Errors
            /// When another program has taken the port, or a thread cannot be started.
            pub fn listen(&self) -> Result<(), crate::StartError> {
                self.server.listen()
            }

            /// Stops listening and drops all connections, also those with pending answers. Returns when the threads have
            /// ended.
            pub fn stop(&self) {
                self.server.stop();
            }

            /// Where it listens, also while stopped.
            pub fn addr(&self) -> std::net::SocketAddr {
                self.server.addr()
            }

            /// What each device got. The ledger outlives the simulator.
            pub fn ledger(&self) -> &std::sync::Arc<crate::Ledger<$Refusal>> {
                &self.server.shared().ledger
            }

            /// The certificate authority to trust, PEM. The server's names are `localhost`, `127.0.0.1`, `::1` and the
            /// further addresses.
            pub fn ca_pem(&self) -> &str {
                self.server.ca_pem()
            }

            /// The faults in force.
            pub fn faults(&self) -> std::sync::Arc<crate::Faults<$Refusal>> {
                self.server.shared().faults()
            }

            /// Changes the faults, for running connections too.
            ///
            /// # Errors
            /// When a field is outside its range; the old faults stay in force.
            pub fn set_faults(&self, faults: crate::Faults<$Refusal>) -> Result<(), crate::FaultsError> {
                self.server.shared().set_faults(faults)
            }
        }

        impl std::fmt::Debug for $Simulator {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($Simulator)).field("addr", &self.addr()).finish_non_exhaustive()
            }
        }
    };
}

pub(crate) use simulator;

type Bound = (Vec<SocketAddr>, Vec<TcpListener>);

/// Listens at all addresses on one port. If the system chooses it, it may be taken at another address; then it chooses again.
fn bind_all(listen: SocketAddr, more: &[IpAddr]) -> Result<Bound, StartError> {
    let mut bound = bind_each(listen, more);
    for _ in 0..BIND_COUNT_MAX {
        match &bound {
            Err(StartError::Listen { source, .. }) if listen.port() == 0 && source.kind() == ErrorKind::AddrInUse => {
                bound = bind_each(listen, more);
            }
            _ => break,
        }
    }
    bound
}

fn bind_each(listen: SocketAddr, more: &[IpAddr]) -> Result<Bound, StartError> {
    let first = bind(listen)?;
    let addr = first.local_addr().map_err(|source| StartError::Listen { addr: listen, source })?;
    let (mut addrs, mut listeners) = (vec![addr], vec![first]);
    for ip in more {
        let addr = SocketAddr::new(*ip, addr.port());
        listeners.push(bind(addr)?);
        addrs.push(addr);
    }
    Ok((addrs, listeners))
}

fn bind(addr: SocketAddr) -> Result<TcpListener, StartError> {
    let error = |source| StartError::Listen { addr, source };
    let listener = TcpListener::bind(addr).map_err(error)?; // Sets SO_REUSEADDR on Unix.
    listener.set_nonblocking(true).map_err(error)?;
    Ok(listener)
}

type Accepting = (Vec<TcpListener>, Vec<mpsc::Sender<TcpStream>>);

impl<P: Provider> Shared<P> {
    /// Runs a thread until the simulator stops.
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

    /// Serves the connections that are handed over. Dropping the future drops the connections.
    async fn serve(self: Arc<Self>, mut rx: mpsc::Receiver<TcpStream>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                Some(_) = connections.join_next() => {}
                stream = rx.recv() => {
                    // The accepting thread has ended, so this one ends soon.
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
        // One round trip for the handshake of TCP, one for that of TLS 1.3.
        sleep(2 * first.faults.round_trip()).await;
        let stream = match timeout(HANDSHAKE_TIMEOUT, self.open(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return tracing::debug!(error = chain(&error), "Handshake failed"),
            Err(_) => return tracing::debug!("Handshake took too long"),
        };
        let local = stream.get_ref().0.local_addr().map(|addr| addr.ip()).ok();
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let session = self.provider.open(certificate, first.credentials);
        let client = Client { shared: self, faults: first.faults, rng, local, session, request_total: 0 };
        if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            connection::serve(client, stream, orders).await;
        } else {
            http1::serve(client, stream, orders).await;
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

/// Reads on after a failed handshake until the peer closes. Closing a socket with unread bytes resets the connection, and
/// the peer might then never read our alert.
async fn drain(mut stream: tokio::net::TcpStream) {
    let _ = stream.shutdown().await;
    let mut rest = [0; 1024];
    let drained = async { while stream.read(&mut rest).await.is_ok_and(|count| count > 0) {} };
    let _ = timeout(LINGER_MAX, drained).await; // The socket is closed in any case.
}

/// Accepts connections and hands them out round-robin. Never ends, also on the threads that do not accept.
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
                let _ = tx.send(stream).await; // Fails only while all threads are ending.
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
    stream.into_std() // The stream stays non-blocking, as the thread that takes it requires.
}
