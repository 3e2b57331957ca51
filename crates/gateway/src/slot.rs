//! One place for a connection: makes one, lets it work until it leaves, makes the next.
//!
//! A connection that leaves has answers under way; it waits for them beside its successor, so that neither a GOAWAY nor
//! another credential makes a pause. At most [`LEAVING_COUNT_MAX`] do; then the next connection waits for one of them.
//!
//! A connection that could not be made, or left before a single final answer, delays the next one (full jitter, up to 10 s);
//! a refused credential delays it up to a minute, or until there is another. One that was of use is replaced at once.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidings_buffer::{Consumer, Lake};
use tidings_push::Notification;
use tidings_push::retry::{BACKOFF_BASE, BACKOFF_CAP, backoff};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use crate::connect::{Access, Connector, Link};
use crate::connection::{Connection, End, Shared};
use crate::pool::Pool;

/// Longest wait after a refused credential.
const CREDENTIAL_BACKOFF_CAP: Duration = Duration::from_secs(60);
/// Shortest window of that wait: an operator has to act, seconds do not matter.
const CREDENTIAL_BACKOFF_BASE: Duration = Duration::from_secs(1);
/// A connection that lived this long was of use, even if nothing was sent on it.
const USEFUL_LIFE: Duration = Duration::from_secs(30);

/// Connections that wait for their last answers beside the one that works.
const LEAVING_COUNT_MAX: usize = 2;

/// What a place needs; all but its number is common to those of a thread.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) slot: usize,
    pub(crate) connector: Rc<Connector>,
    pub(crate) shared: Rc<Shared>,
    pub(crate) pool: Rc<RefCell<Pool>>,
    pub(crate) lake: Arc<Lake<Notification>>,
    pub(crate) access: watch::Receiver<Arc<Access>>,
}

/// Keeps a connection in its place. Never ends; it is dropped when the gateway stops.
pub(crate) async fn keep_connected(plan: Plan) {
    let mut place = Place { plan, leaving: JoinSet::new(), failures: 0 };
    loop {
        let access = Arc::clone(&place.plan.access.borrow_and_update());
        let connector = Rc::clone(&place.plan.connector);
        let connected = place.unless_replaced(connector.connect(&access)).await;
        let pause = match connected {
            None => None,
            Some(Ok(link)) => place.work(link, &access).await,
            Some(Err(error)) => {
                place.plan.shared.metrics.connect_failures.inc();
                let refused = error.certificate_alert();
                let (slot, attempt) = (place.plan.slot, place.failures + 1);
                warn!(provider = "apns", slot, attempt, error = chain(&error), "Cannot connect");
                Some(place.failed(refused))
            }
        };
        match pause {
            None => place.failures = 0, // Another credential: nothing is known against it.
            Some(pause) => place.rest(pause).await,
        }
    }
}

struct Place {
    plan: Plan,
    /// They open nothing more; each tells whether it was of use in the end, and its credential not refused.
    leaving: JoinSet<bool>,
    /// In a row.
    failures: u32,
}

impl Place {
    /// A connection's life. Returns how long to wait before the next, or nothing when it was replaced.
    async fn work(&mut self, link: Link, access: &Access) -> Option<Duration> {
        let Plan { slot, shared, pool, lake, .. } = self.plan.clone();
        let opened_at = Instant::now();
        shared.metrics.connections_opened.inc();
        info!(provider = "apns", slot, "Connected");
        let tokens = access.credential.tokens().cloned();
        let mut connection = Connection::new(slot, shared, pool, Consumer::new(lake), tokens, link);
        let worked = self.unless_replaced(connection.work()).await;
        let end = connection.end();
        if worked.is_none() {
            connection.leave();
        }
        self.let_leave(connection, opened_at).await;
        worked?;
        if end.credential_refused.is_none() && (end.useful || opened_at.elapsed() >= USEFUL_LIFE) {
            self.failures = 0;
            return Some(Duration::ZERO);
        }
        Some(self.failed(end.credential_refused))
    }

    /// Lets a connection wait for its answers beside the next one.
    async fn let_leave(&mut self, mut connection: Connection, opened_at: Instant) {
        let Plan { slot, shared, .. } = self.plan.clone();
        let life = async move {
            connection.finish().await;
            shared.metrics.connections_closed.inc();
            info!(provider = "apns", slot, elapsed = opened_at.elapsed().as_secs_f64(), "Disconnected");
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

    /// What comes of use only while it leaves, because it was told to go before it was answered, is no failure either. A
    /// panic is the thread's end, not a connection's.
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
        let (base, cap) = match refused {
            Some(reason) => {
                self.plan.shared.metrics.credential_refused.inc();
                error!(provider = "apns", slot = self.plan.slot, reason, "Provider refuses the credential");
                (CREDENTIAL_BACKOFF_BASE, CREDENTIAL_BACKOFF_CAP)
            }
            None => (BACKOFF_BASE, BACKOFF_CAP),
        };
        backoff(base, cap, self.failures, rand::random())
    }

    /// Waits, at most until there is another credential.
    async fn rest(&mut self, pause: Duration) {
        if !pause.is_zero() && self.unless_replaced(sleep(pause)).await.is_none() {
            self.failures = 0;
        }
    }

    /// Does `work` until it is done or there is another credential, and meanwhile sees to the connections that leave.
    async fn unless_replaced<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        let mut access = self.plan.access.clone();
        let mut replaced = pin!(async {
            if access.changed().await.is_err() {
                std::future::pending().await // The gateway drains: this credential is the last.
            }
        });
        loop {
            tokio::select! {
                biased; // A connection's turn costs the most: what is quick and rare is looked at first.
                Some(ended) = self.leaving.join_next() => self.see(ended),
                () = &mut replaced => return None,
                done = &mut work => return Some(done),
            }
        }
    }
}

/// An error with all its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
