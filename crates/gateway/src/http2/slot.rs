//! A slot for a connection: it makes a connection, lets it work until it leaves, and makes the next one.
//!
//! A connection that leaves waits for its last answers beside its successor, so that a GOAWAY or another credential
//! causes no pause. At most [`LEAVING_COUNT_MAX`] connections do so; then the next connection waits for one of them.
//!
//! A connection that could not be made, or left without a final answer, delays the next one (full jitter, up to 10 s).
//! A refused credential delays it up to a minute, or until there is another credential. A connection that was of use is
//! replaced at once.
//!
//! Not every slot has a connection: slots from the thread's *target* on rest until they are needed (`scaling`). A slot
//! that is no longer needed lets its connection leave.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidings_push::Lakes;
use tidings_push::retry::BACKOFF;
use tidings_types::Backoff;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};
use tracing::info;

use super::connect::{Access, Connector, Link};
use super::connection::{Connection, End, GatewayContext};
use super::intake::Intake;
use super::scheduler::Scheduler;

/// After a refused credential: an operator has to act, so seconds do not matter.
const CREDENTIAL_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// A connection that lived this long was of use, even if nothing was sent on it.
const USEFUL_LIFE: Duration = Duration::from_secs(30);

/// Connections that wait for their last answers beside the one that works.
const LEAVING_COUNT_MAX: usize = 2;

/// What a slot needs. All but its number is common to the slots of a thread.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) slot: usize,
    pub(crate) connector: Rc<Connector>,
    pub(crate) context: Rc<GatewayContext>,
    pub(crate) scheduler: Rc<RefCell<Scheduler>>,
    pub(crate) lakes: Lakes,
    pub(crate) access: watch::Receiver<Arc<Access>>,
    /// How many slots of the thread are to have a connection.
    pub(crate) target: watch::Receiver<usize>,
}

/// Why work was broken off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    /// There is another credential.
    Replaced,
    /// The slot is not wanted any more.
    Retired,
}

/// Keeps a connection in its slot. Never ends; it is dropped when the gateway stops.
pub(crate) async fn keep_connected(plan: Plan) {
    let mut slot = Slot { plan, leaving: JoinSet::new(), failures: 0 };
    loop {
        slot.until_wanted().await;
        let access = Arc::clone(&slot.plan.access.borrow_and_update());
        let connector = Rc::clone(&slot.plan.connector);
        let connected = slot.unless_called(connector.connect(&access)).await;
        let pause = match connected {
            Err(call) => Err(call),
            Ok(Ok(link)) => slot.work(link, &access).await,
            Ok(Err(error)) => {
                slot.plan.context.health.on_failed(connector.is_broken());
                slot.plan.context.on_cannot_connect(slot.plan.slot, slot.failures + 1, &error);
                Ok(slot.failed(error.certificate_alert()))
            }
        };
        match pause {
            Err(Call::Replaced) => slot.begin_anew(),
            Err(Call::Retired) => {}
            Ok(pause) => slot.rest(pause).await,
        }
    }
}

struct Slot {
    plan: Plan,
    /// Leaving connections open nothing more. Each returns whether it was of use and its credential was not refused.
    leaving: JoinSet<bool>,
    /// In a row.
    failures: u32,
}

impl Slot {
    /// Waits until the slot is to have a connection.
    async fn until_wanted(&mut self) {
        let (slot, mut target) = (self.plan.slot, self.plan.target.clone());
        let mut wanted = pin!(async move {
            // The other end lives as long as the thread works.
            _ = target.wait_for(|target| slot < *target).await;
        });
        loop {
            tokio::select! {
                biased; // An answer that comes late is dealt with in any case.
                Some(ended) = self.leaving.join_next() => self.see(ended),
                () = &mut wanted => return,
            }
        }
    }

    /// A connection's life. Returns how long to wait before the next, or why it was broken off.
    async fn work(&mut self, link: Link, access: &Access) -> Result<Duration, Call> {
        let Plan { slot, context, scheduler, lakes, .. } = self.plan.clone();
        let opened_at = Instant::now();
        context.metrics.connections_opened.inc();
        context.health.on_connected();
        info!(provider = context.provider, pool = context.pool, slot, "Connected");
        let intake = Intake::new(&lakes);
        let mut connection = Connection::new(slot, context, scheduler, intake, &access.credential, link);
        let worked = self.unless_called(connection.work()).await;
        let end = connection.end();
        if worked.is_err() {
            connection.leave();
        }
        let useful = end.useful || opened_at.elapsed() >= USEFUL_LIFE;
        self.let_leave(connection, opened_at).await;
        worked?;
        if end.credential_refused.is_none() && useful {
            self.failures = 0;
            return Ok(Duration::ZERO);
        }
        Ok(self.failed(end.credential_refused))
    }

    /// Lets a connection wait for its answers beside the next one.
    async fn let_leave(&mut self, mut connection: Connection, opened_at: Instant) {
        let Plan { slot, context, .. } = self.plan.clone();
        context.health.on_disconnected(); // Nothing more is sent on it.
        let life = async move {
            connection.finish().await;
            context.metrics.connections_closed.inc();
            let elapsed = opened_at.elapsed().as_secs_f64();
            info!(provider = context.provider, pool = context.pool, slot, elapsed, "Disconnected");
            let End { useful, credential_refused } = connection.end();
            useful && credential_refused.is_none()
        };
        self.leaving.spawn_local(life);
        while self.leaving.len() > LEAVING_COUNT_MAX
            && let Some(ended) = self.leaving.join_next().await
        {
            self.see(ended);
        }
    }

    /// A connection that gets its first answer only while it leaves is not a failure either. A panic ends the thread,
    /// not only the connection.
    fn see(&mut self, ended: Result<bool, JoinError>) {
        match ended {
            Ok(true) => self.failures = 0,
            Ok(false) => {}
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => {}
        }
    }

    /// Notes a failure; returns how long to wait after it.
    fn failed(&mut self, refused: Option<&'static str>) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let backoff = match refused {
            Some(reason) => {
                self.plan.context.on_credential_refused(self.plan.slot, reason);
                CREDENTIAL_BACKOFF
            }
            None => BACKOFF,
        };
        backoff.pause(self.failures, rand::random())
    }

    /// Waits, at most until there is another credential.
    async fn rest(&mut self, pause: Duration) {
        if !pause.is_zero() && self.unless_called(sleep(pause)).await == Err(Call::Replaced) {
            self.begin_anew();
        }
    }

    /// There is another credential, and nothing is known against it.
    fn begin_anew(&mut self) {
        self.failures = 0;
        self.plan.context.health.on_taken();
    }

    /// Runs `work` until it is done or the slot is called, and meanwhile handles the connections that leave.
    async fn unless_called<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Call> {
        let slot = self.plan.slot;
        let (mut work, mut access, mut target) = (pin!(work), self.plan.access.clone(), self.plan.target.clone());
        let mut called = pin!(async {
            tokio::select! {
                biased;
                Ok(()) = access.changed() => Call::Replaced,
                Ok(_) = target.wait_for(|target| slot >= *target) => Call::Retired,
                else => std::future::pending().await, // The gateway drains: this credential is the last.
            }
        });
        loop {
            tokio::select! {
                biased; // A connection's turn costs the most, so quick and rare events are checked first.
                Some(ended) = self.leaving.join_next() => self.see(ended),
                call = &mut called => return Err(call),
                done = &mut work => return Ok(done),
            }
        }
    }
}
