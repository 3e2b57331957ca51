//! The queues in which orders about connections wait for the loops.
//!
//! An order goes to every loop, because any loop may own connections of its user ([`Target`]). Each loop takes its
//! orders in the order in which they came ([`control`](crate::control)) and reports when it has carried one out.
//!
//! Queue: [`ORDER_COUNT_MAX`] orders per loop.
//! - Full: the order is refused. The loops that were asked before the full one carry the order out nevertheless.
//! - Closed (the loop has stopped): the order is refused. Orders that still wait there are dropped, and their callers
//!   are told that the server is stopping.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_protocol::{ErrorCode, LiveConnection, Order, OrderError, Target};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// Orders that may wait for a loop. One order takes microseconds for each connection of its user.
pub(crate) const ORDER_COUNT_MAX: usize = 1024;
/// How long the giver of an order waits for all loops.
const ORDER_TIMEOUT: Duration = Duration::from_secs(5);

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Work {
    /// An order from outside.
    Ordered(Order),
    /// It is told of here, if there are not more than [`CONNECTION_LIST_MAX`](tidings_protocol::CONNECTION_LIST_MAX) yet.
    List(Mutex<Vec<LiveConnection>>),
    /// The connection with this number takes the place of its user's connections with lower numbers.
    Replace { number: u64 },
    /// Everybody connects to another server; of all users.
    SendAway,
}

impl Work {
    /// Whether it is about the connections of all users, not of the target's.
    pub(crate) fn is_for_all(&self) -> bool {
        matches!(self, Self::SendAway)
    }
}

/// An order in the queue of one loop.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) task: Arc<(Target, Work)>,
    /// Gets the result when the loop has carried the order out: success, or the first refusal.
    pub(crate) done: oneshot::Sender<Result<(), ErrorCode>>,
}

/// The results that are still to come, one for each loop.
pub(crate) type Answers = Vec<oneshot::Receiver<Result<(), ErrorCode>>>;

/// Puts an order into the queues of all loops.
///
/// # Errors
/// If a queue is full or closed.
pub(crate) fn post(loops: &[mpsc::Sender<Posted>], target: Target, work: Work) -> Result<Answers, OrderError> {
    post_shared(loops, &Arc::new((target, work)))
}

/// The same; the caller reads afterwards what the loops left in the task.
///
/// # Errors
/// Those of [`post`].
pub(crate) fn post_shared(loops: &[mpsc::Sender<Posted>], task: &Arc<(Target, Work)>) -> Result<Answers, OrderError> {
    let post = |queue: &mpsc::Sender<Posted>| {
        let (done, answer) = oneshot::channel();
        queue.try_send(Posted { task: task.clone(), done }).map_err(|error| match error {
            TrySendError::Full(_) => OrderError::Overloaded,
            TrySendError::Closed(_) => OrderError::Stopping,
        })?;
        Ok(answer)
    };
    loops.iter().map(post).collect()
}

/// Waits until all loops have carried the order out that was given at `began`. Returns the first refusal.
///
/// # Cancel safety
/// If the future is dropped, the order is carried out nevertheless.
pub(crate) async fn carried_out(posted: Result<Answers, OrderError>, began: Instant) -> Result<(), OrderError> {
    let deadline = began + ORDER_TIMEOUT;
    let mut outcome = Ok(());
    for answer in posted? {
        let answer = timeout_at(deadline, answer).await.map_err(|_| OrderError::Late)?;
        outcome = outcome.and(answer.map_err(|_| OrderError::Stopping)?);
    }
    outcome.map_err(OrderError::Refused)
}
