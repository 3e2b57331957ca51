//! The handle of a pool, with which callers make requests.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use crate::config::{ConfigError, PoolConfig};
use crate::connect::Connect;
use crate::core::{Core, TIMEOUT_MAX};
use crate::counters::{Counter, Counters};
use crate::driver;
use crate::error::CallError;
use crate::lane::{Answer, Lane, Phase, Reply};
use crate::protocol::Protocol;

/// Connections to one service, shared by all callers. Clones are handles to the same pool.
///
/// When the last handle is dropped, the connections are cut and all requests end with [`CallError::Closed`]. For an orderly
/// end see [`Pool::drain`].
pub struct Pool<P: Protocol> {
    handle: Arc<Handle<P>>,
}

/// The state that only handles own. Tasks must not own it: they would keep themselves alive.
struct Handle<P: Protocol> {
    core: Arc<Core<P>>,
    /// One for each of `tasks`, to end them while another call waits for their end.
    aborts: Box<[AbortHandle]>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

impl<P: Protocol> Pool<P> {
    /// Starts a pool, with one task for each connection. Each task begins to connect at once.
    ///
    /// Requests are accepted at once and wait for the first attempt to connect. If it fails, they end with
    /// [`CallError::Unavailable`]. From then on requests fail at once until a connection is up.
    ///
    /// # Errors
    /// When the configuration is not valid ([`PoolConfig::check`]).
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time.
    pub fn start<C: Connect>(config: PoolConfig, protocol: P, connector: C) -> Result<Self, ConfigError> {
        config.check()?;
        let core = Arc::new(Core {
            lanes: (0..config.connection_count).map(|_| Lane::new()).collect(),
            config,
            protocol,
            next: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            is_in_trouble: AtomicBool::new(false),
            wanted: watch::Sender::new(()),
            backlog: Counter::default(),
            unavailable: Counter::default(),
        });
        let connector = Arc::new(connector);
        let mut tasks = JoinSet::new();
        let aborts = (0..core.lanes.len())
            .map(|index| tasks.spawn(driver::run(Arc::clone(&core), index, Arc::clone(&connector))))
            .collect();
        Ok(Self { handle: Arc::new(Handle { core, aborts, tasks: tokio::sync::Mutex::new(tasks) }) })
    }

    /// Sends a request and waits for its answer, at most `timeout` (to the millisecond, never shorter).
    ///
    /// Requests of one caller go to different connections and may overtake each other. On one connection they are written
    /// in the order in which they were made.
    ///
    /// # Errors
    /// [`CallError`] has a variant for each way to end without an answer. [`CallError::Backlog`] and
    /// [`CallError::Unavailable`] come at once.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request if it was not written yet. A request that was written stays in the
    /// connection's backlog until its answer has come and is discarded. A request that was moved to another connection
    /// stays in its backlog until its turn.
    pub async fn call(&self, request: P::Request, timeout: Duration) -> Result<P::Response, CallError<P::Error>> {
        let (reply, outcome) = Reply::call();
        let lane = self.core().hand_in(request, timeout, reply)?;
        let mut withdrawal = Withdrawal { lane, is_armed: true };
        let outcome = outcome.await;
        withdrawal.is_armed = false;
        outcome.unwrap_or(Err(CallError::Closed))
    }

    /// Sends a request. Its answer goes to `answers`, with `tag`.
    ///
    /// Room in the channel is reserved now. So exactly one [`Answer`] comes for every accepted cast, and no answer waits
    /// for the channel's reader. The capacity of the channel is the number of casts that can be pending.
    ///
    /// # Errors
    /// Only those that are known at once: [`CallError::Backlog`] (of the connections, or of the channel),
    /// [`CallError::Unavailable`], [`CallError::Closed`] (the pool, or the channel).
    pub fn cast(
        &self,
        request: P::Request,
        timeout: Duration,
        tag: u64,
        answers: &mpsc::Sender<Answer<P>>,
    ) -> Result<(), CallError<P::Error>> {
        let permit = answers.clone().try_reserve_owned().map_err(|refusal| match refusal {
            mpsc::error::TrySendError::Full(channel) => {
                self.core().backlog.increment();
                CallError::Backlog { limit: channel.max_capacity() }
            }
            mpsc::error::TrySendError::Closed(_) => CallError::Closed,
        })?;
        self.core().hand_in(request, timeout, Reply::cast(tag, permit)).map(drop)
    }

    /// Sends a request without waiting for its answer. Its outcome is only counted.
    ///
    /// # Errors
    /// As in [`Pool::cast`].
    pub fn tell(&self, request: P::Request, timeout: Duration) -> Result<(), CallError<P::Error>> {
        self.core().hand_in(request, timeout, Reply::nobody()).map(drop)
    }

    /// Ends the pauses before the next attempts to connect. Each pause still lasts at least `reconnect.min`. Call it
    /// rarely: a call for each failed request would disable the back-off.
    pub fn reconnect(&self) {
        self.core().wanted.send_replace(());
    }

    /// Accepts no more requests, waits at most `timeout` for the others, says goodbye on each connection and closes it.
    /// Requests that have not ended by then end with [`CallError::Closed`]. Returns whether there were none.
    ///
    /// # Cancel safety
    /// If the future is dropped, the pool goes on draining. `drain` can be called again.
    pub async fn drain(&self, timeout: Duration) -> bool {
        let core = self.core();
        core.is_draining.store(true, Relaxed);
        for lane in &core.lanes {
            lane.drain();
        }
        let deadline = Instant::now() + timeout.min(TIMEOUT_MAX);
        let all_ended = || async {
            let mut tasks = self.handle.tasks.lock().await;
            while tasks.join_next().await.is_some() {}
        };
        let in_time = tokio::time::timeout_at(deadline, all_ended()).await.is_ok();
        if !in_time {
            self.handle.aborts.iter().for_each(AbortHandle::abort); // Another, longer drain may hold the lock.
            all_ended().await;
        }
        in_time && self.counters().closed == 0
    }

    /// The settings.
    pub fn config(&self) -> &PoolConfig {
        &self.core().config
    }

    /// The protocol.
    pub fn protocol(&self) -> &P {
        &self.core().protocol
    }

    /// What the pool did so far.
    pub fn counters(&self) -> Counters {
        let core = self.core();
        let mut sum =
            Counters { backlog: core.backlog.value(), unavailable: core.unavailable.value(), ..Counters::default() };
        for lane in &core.lanes {
            lane.counters.add_to(&mut sum, lane.load(), lane.phase() == Phase::Up);
        }
        sum
    }

    fn core(&self) -> &Core<P> {
        &self.handle.core
    }
}

impl<P: Protocol> Clone for Pool<P> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

impl<P: Protocol> fmt::Debug for Pool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("config", self.config())
            .field("counters", &self.counters())
            .finish_non_exhaustive()
    }
}

/// Tells the lane if the caller drops its call before the answer.
struct Withdrawal<'a, P: Protocol> {
    lane: &'a Lane<P>,
    is_armed: bool,
}

impl<P: Protocol> Drop for Withdrawal<'_, P> {
    fn drop(&mut self) {
        if self.is_armed {
            self.lane.sweep();
        }
    }
}
