//! The pool as its callers see it.

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

/// Connections to one service, kept up, shared by all callers. Clones are handles to the same pool.
///
/// When the last handle is dropped the connections are cut; whatever still waits ends with [`CallError::Closed`]. For
/// an orderly end see [`Pool::drain`].
pub struct Pool<P: Protocol> {
    handle: Arc<Handle<P>>,
}

/// What the handles own. The tasks know [`Core`] only, or they would keep themselves alive.
struct Handle<P: Protocol> {
    core: Arc<Core<P>>,
    /// One for each of `tasks`, to cut them while somebody else waits for their end.
    aborts: Box<[AbortHandle]>,
    tasks: tokio::sync::Mutex<JoinSet<()>>,
}

impl<P: Protocol> Pool<P> {
    /// Starts a pool; one task for each connection, which begins to connect at once.
    ///
    /// Requests can be made at once: they wait for the first attempt to connect. If it fails they end with
    /// [`CallError::Unavailable`], and from then on requests fail at once until a connection is up.
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
    /// Requests of one caller go to different connections, and so may overtake each other; on one connection they are
    /// written in the order in which they were made.
    ///
    /// # Errors
    /// Each way to end without an answer is a variant of [`CallError`]. [`CallError::Backlog`] and
    /// [`CallError::Unavailable`] come at once, without waiting.
    ///
    /// # Cancel safety
    /// Dropping the future withdraws the request if it was not written yet. If it was, its answer is discarded when it
    /// comes, and until then it keeps its place in the connection's backlog; so does one that waits on another connection
    /// than it was made on, until its turn.
    pub async fn call(&self, request: P::Request, timeout: Duration) -> Result<P::Response, CallError<P::Error>> {
        let (reply, outcome) = Reply::call();
        let lane = self.core().hand_in(request, timeout, reply)?;
        let mut withdrawal = Withdrawal { lane, is_armed: true };
        let outcome = outcome.await;
        withdrawal.is_armed = false;
        outcome.unwrap_or(Err(CallError::Closed))
    }

    /// Sends a request whose answer goes to `answers`, with `tag` to know it by.
    ///
    /// The place in the channel is reserved now, so that exactly one [`Answer`] comes for every cast that was accepted,
    /// and no answer ever waits for the channel's reader: its capacity is the number of casts that can be out.
    ///
    /// # Errors
    /// As in [`Pool::call`], but only what is known at once: [`CallError::Backlog`] (of the connections, or of the
    /// channel), [`CallError::Unavailable`], [`CallError::Closed`] (the pool, or the channel).
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

    /// Sends a request whose answer nobody wants. How it ended is only counted.
    ///
    /// # Errors
    /// As in [`Pool::cast`].
    pub fn tell(&self, request: P::Request, timeout: Duration) -> Result<(), CallError<P::Error>> {
        self.core().hand_in(request, timeout, Reply::nobody()).map(drop)
    }

    /// Ends the pauses before the next attempts to connect: there is something to send now. Each still lasts
    /// `reconnect.min`. For callers that ask rarely: who calls this for each request that fails takes the back-off away.
    pub fn reconnect(&self) {
        self.core().wanted.send_replace(());
    }

    /// Takes no more requests, waits at most `timeout` for those it has, says goodbye on each connection and closes
    /// it. What is cut off ends with [`CallError::Closed`]. Returns whether nothing was.
    ///
    /// # Cancel safety
    /// When dropped, the pool goes on draining; it can be called again.
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
            self.handle.aborts.iter().for_each(AbortHandle::abort); // Another drain with more time may hold the lock.
            all_ended().await;
        }
        in_time && self.counters().closed == 0
    }

    /// The settings it runs with. No lock, no copy.
    pub fn config(&self) -> &PoolConfig {
        &self.core().config
    }

    /// The protocol it speaks.
    pub fn protocol(&self) -> &P {
        &self.core().protocol
    }

    /// What it did so far.
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

/// Tells the lane when the caller goes away before the answer.
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
