//! Starting and stopping the simulator: threads, the listener, and how connections get to the threads.
//!
//! Each thread has a current-thread runtime; the first one also accepts and hands connections out in turn, by a queue
//! of [`HANDOVER_COUNT_MAX`] per thread (full: accepting waits, and the kernel's backlog holds). Stopping drops
//! all connections where they are, as a crash would; ledger, keys and port remain.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use tidings_types::{DeviceToken, Timestamp};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};
use tokio_rustls::TlsAcceptor;
use uuid::Uuid;

use crate::authentication::Authority;
use crate::config::happens;
use crate::connection;
use crate::identity::{Identity, make_signing_key};
use crate::ledger::{Ledger, bump};
use crate::{Faults, FaultsError, SimulatorConfig, StartError};

const HANDOVER_COUNT_MAX: usize = 64;
/// How long accepting rests after it failed, usually for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Told of each accepted notification, on the thread that accepted it: it must be quick and must not block.
pub type OnAccepted = Arc<dyn Fn(AcceptedNotification<'_>) + Send + Sync>;

/// A notification at the moment of its acceptance; the answer is still to be sent.
#[derive(Clone, Copy)]
pub struct AcceptedNotification<'a> {
    /// Whose it is.
    pub token: &'a DeviceToken,
    /// Its id.
    pub apns_id: Uuid,
    /// What it replaces.
    pub collapse_id: Option<&'a [u8]>,
    /// Its JSON.
    pub payload: &'a [u8],
    /// When it was accepted.
    pub at: Timestamp,
}

/// A simulated Apple Push Notification service.
///
/// It runs on threads of its own until [`stop`](Self::stop) or drop. It can be made and used inside and outside of
/// an asynchronous runtime; starting and stopping block for some milliseconds.
pub struct ApnsSimulator {
    shared: Arc<Shared>,
    identity: Identity,
    addr: SocketAddr,
    /// Empty while stopped.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What all threads and connections use.
pub(crate) struct Shared {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) tls: TlsAcceptor,
    pub(crate) config: SimulatorConfig,
    pub(crate) on_accepted: Option<OnAccepted>,
    orders: watch::Sender<Orders>,
    connection_total: AtomicU64,
}

/// What running connections are told.
#[derive(Clone)]
pub(crate) struct Orders {
    pub(crate) faults: Arc<Faults>,
    pub(crate) authorities: Arc<[Authority]>,
    pub(crate) is_stopping: bool,
}

impl ApnsSimulator {
    /// Starts one: makes certificates and key, and listens.
    ///
    /// # Errors
    /// When the faults break a rule, the address cannot be listened on, or a thread cannot be started.
    pub fn start(config: SimulatorConfig) -> Result<Self, StartError> {
        Self::start_inner(config, None)
    }

    /// Starts one that tells of each accepted notification.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_observed(config: SimulatorConfig, on_accepted: OnAccepted) -> Result<Self, StartError> {
        Self::start_inner(config, Some(on_accepted))
    }

    fn start_inner(config: SimulatorConfig, on_accepted: Option<OnAccepted>) -> Result<Self, StartError> {
        config.faults.check()?;
        let identity = Identity::make(config.client_ca_pem.as_deref())?;
        let (key_id, team_id) = (config.key_id.clone(), config.team_id.clone());
        let authority = Authority { public_key: identity.public_key.clone(), key_id, team_id };
        let faults = Arc::new(config.faults.clone());
        let orders = Orders { faults, authorities: Arc::new([authority]), is_stopping: false };
        let shared = Shared {
            ledger: Arc::new(Ledger::new(config.device_count_max, config.notification_count_max)),
            tls: TlsAcceptor::from(identity.tls.clone()),
            orders: watch::Sender::new(orders),
            connection_total: AtomicU64::new(0),
            on_accepted,
            config,
        };
        let addr = shared.config.listen;
        let mut simulator = Self { shared: Arc::new(shared), identity, addr, threads: Mutex::default() };
        let listener = simulator.bind()?;
        simulator.addr = listener.local_addr().map_err(|source| StartError::Listen { addr, source })?;
        *simulator.threads() = simulator.start_threads(listener)?;
        Ok(simulator)
    }

    /// Listens again after a [`stop`](Self::stop), on the same port and with the same keys, ledger and faults; does
    /// nothing if it runs.
    ///
    /// # Errors
    /// When the port was taken meanwhile, or a thread cannot be started.
    pub fn listen(&self) -> Result<(), StartError> {
        let mut threads = self.threads();
        if threads.is_empty() {
            let listener = self.bind()?;
            self.shared.orders.send_modify(|orders| orders.is_stopping = false);
            let started = self.start_threads(listener);
            // Threads that did start before one failed must not go on without it.
            *threads = started.inspect_err(|_| self.shared.orders.send_modify(|orders| orders.is_stopping = true))?;
        }
        Ok(())
    }

    /// Stops listening and drops all connections, answers still owed included; returns when the threads have ended.
    pub fn stop(&self) {
        let mut threads = self.threads();
        self.shared.orders.send_modify(|orders| orders.is_stopping = true);
        for thread in threads.drain(..) {
            let _ = thread.join(); // A panic was reported when it happened.
        }
    }

    /// Where it listens, also while stopped.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What each device got; lives on after the simulator.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.shared.ledger
    }

    /// The certificate authority to trust, PEM. The server's names are `localhost`, `127.0.0.1` and `::1`.
    pub fn ca_pem(&self) -> &str {
        &self.identity.ca_pem
    }

    /// The key to sign provider tokens with: the content of a `.p8` file.
    pub fn key_pem(&self) -> &str {
        &self.identity.key_pem
    }

    /// Makes another signing key for a team and takes its tokens as well; returns the key, PEM. A key that has this id is
    /// replaced: its tokens are refused from now on, on running connections too.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn add_key(&self, key_id: &str, team_id: &str) -> Result<String, StartError> {
        let (key_pem, public_key) = make_signing_key()?;
        let added = Authority { public_key, key_id: key_id.to_owned(), team_id: team_id.to_owned() };
        self.shared.orders.send_modify(|orders| {
            let others = orders.authorities.iter().filter(|known| known.key_id != key_id);
            orders.authorities = others.cloned().chain([added]).collect();
        });
        Ok(key_pem)
    }

    /// The `kid` of provider tokens.
    pub fn key_id(&self) -> &str {
        &self.shared.config.key_id
    }

    /// The `iss` of provider tokens.
    pub fn team_id(&self) -> &str {
        &self.shared.config.team_id
    }

    /// The faults in force.
    pub fn faults(&self) -> Arc<Faults> {
        self.shared.faults()
    }

    /// Changes the faults, for running connections too.
    ///
    /// # Errors
    /// When one is outside its range; the old ones stay in force.
    pub fn set_faults(&self, faults: Faults) -> Result<(), FaultsError> {
        self.shared.set_faults(faults)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bind(&self) -> Result<TcpListener, StartError> {
        let addr = self.addr;
        let error = |source| StartError::Listen { addr, source };
        let listener = TcpListener::bind(addr).map_err(error)?; // Sets SO_REUSEADDR on Unix.
        listener.set_nonblocking(true).map_err(error)?;
        Ok(listener)
    }

    fn start_threads(&self, listener: TcpListener) -> Result<Vec<JoinHandle<()>>, StartError> {
        let (mut txs, mut workers) = (Vec::new(), Vec::new());
        for index in 0..self.shared.config.thread_count.max(1) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let (tx, rx) = mpsc::channel(HANDOVER_COUNT_MAX);
            txs.push(tx);
            workers.push((index, runtime.map_err(StartError::Thread)?, rx));
        }
        let mut accepting = Some((listener, txs));
        let mut threads = Vec::new();
        for (index, runtime, rx) in workers {
            let (shared, accepting) = (self.shared.clone(), accepting.take());
            let thread = Builder::new().name(format!("apns-simulator-{index}"));
            let thread = thread.spawn(move || shared.work(runtime, rx, accepting));
            threads.push(thread.map_err(StartError::Thread)?);
        }
        Ok(threads)
    }
}

impl Drop for ApnsSimulator {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for ApnsSimulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApnsSimulator").field("addr", &self.addr).finish_non_exhaustive()
    }
}

type Accepting = (TcpListener, Vec<mpsc::Sender<TcpStream>>);

impl Shared {
    pub(crate) fn faults(&self) -> Arc<Faults> {
        self.orders.borrow().faults.clone()
    }

    pub(crate) fn set_faults(&self, faults: Faults) -> Result<(), FaultsError> {
        faults.check()?;
        self.orders.send_modify(|orders| orders.faults = Arc::new(faults));
        Ok(())
    }

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
                    let dies = happens(&mut rng, self.faults().die_after_accept_probability);
                    if dies || connections.len() >= self.config.connection_count_max {
                        bump(&self.ledger.counters.connections_refused);
                        continue;
                    }
                    connections.spawn_local(connection::serve(self.clone(), stream, rng, self.orders.subscribe()));
                }
            }
        }
    }

    /// The random numbers of the next connection.
    fn next_rng(&self) -> Xoshiro256PlusPlus {
        let mut seeds = Xoshiro256PlusPlus::seed_from_u64(self.config.seed);
        let number = self.connection_total.fetch_add(1, Relaxed);
        Xoshiro256PlusPlus::seed_from_u64(seeds.next_u64() ^ number)
    }
}

/// Hands connections out in turn; for ever, also on the threads that have nothing to accept.
async fn accept(accepting: Option<Accepting>) {
    let Some((listener, txs)) = accepting else { return std::future::pending().await };
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "Simulator cannot listen"),
    };
    for tx in txs.iter().cycle() {
        let stream = loop {
            match listener.accept().await.and_then(|(stream, _)| nonblocking(stream)) {
                Ok(stream) => break stream,
                Err(error) => {
                    tracing::warn!(%error, "Simulator cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        };
        let _ = tx.send(stream).await; // The thread has ended only when all are to end.
    }
}

fn nonblocking(stream: tokio::net::TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.into_std() // Stays non-blocking, as the thread that takes it needs it.
}
