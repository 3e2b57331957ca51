//! One edge loop's thread: a current-thread runtime with the tasks of the loop.
//!
//! Tasks, all on this thread and joined before it ends: one per connection ([`serve`]: reading, and writing when a full
//! socket takes bytes again), and the loop itself. The loop waits for twelve things at once, the arms of the `select!`
//! in [`Worker::drive`]:
//!
//! | It waits for | Then | One pass handles at most |
//! |---|---|---|
//! | the order to stop, or the end of [`Edge`](crate::Edge) | stops: no more handshakes, closes every connection | (ends the loop) |
//! | revocations of devices | ends the proof of their connections | all revoked devices: one bit each |
//! | an order about connections | carries it out for the next connections of its user | 128 connections |
//! | the end of a connection's first second, the time of a subscription that is limited per second, or that of a publication in a channel whose readers are late | asks the connection for receipts, writes to it, or lets it publish | a stint for each |
//! | the hub's mailbox | begins a turn of the fan-out | a stint; of each channel `turn_bytes_max` |
//! | the end of a yield, while a turn is unfinished | makes the next step of the turn | a stint |
//! | the end of a yield, while connections wait for their turn | lets the next one handle its commands | one connection |
//! | news of a connection's task that changed what the fan-out does next | looks when that is | nothing |
//! | the sweep, twice a second | checks all deadlines, hands latencies to the registry | all connections of the loop |
//! | a handshake | starts the task of a connection | one of 1024 queued handshakes |
//! | commands in a request of their own | hands them to their connection | one of 1024 queued requests |
//! | the end of a connection's task | passes a panic of the task on | one task |
//!
//! A stint is 128 connections or a millisecond, whichever ends first ([`Stint`](crate::stint::Stint)).
//!
//! The order of the arms does not matter: `select!` polls them in a random order, so an arm that is always ready does
//! not starve the others. One pass makes one step of the fan-out. While a turn is unfinished, the mailbox waits and the
//! loop yields once before each step. So tasks of connections run between two steps, and a large channel does not delay
//! commands.
//!
//! Every future in the `select!` is cancel safe: a future that is dropped because another arm was ready loses nothing.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tidings_hub::{Channel, LoopId, Mailbox};
use tidings_protocol::Disconnect;
use tidings_telemetry::chain;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet, LocalSet};
use tokio::time::{Instant, sleep_until};
use tracing::{error, warn};

use crate::config::EdgeConfig;
use crate::control::Control;
use crate::edge_loop::{EdgeLoop, SWEEP_INTERVAL};
use crate::orders::Posted;
use crate::revocations::Revocations;
use crate::serve;
use crate::shared::{Emulated, Handshake, Shared};
use crate::subscribers::Key;

/// The longest time from one close to the next when the server stops, so that few connections are closed at once.
const CLOSE_PAUSE: Duration = Duration::from_millis(1);

/// Clients that one line of the log names.
const TOLD_COUNT_MAX: usize = 8;

/// A loop with its tasks and its inputs.
pub(crate) struct Worker<'a> {
    edge_loop: Rc<EdgeLoop>,
    mailbox: &'a Mailbox,
    revocations: &'a Revocations,
    control: Control,
    /// The tasks of the connections.
    tasks: JoinSet<()>,
    /// Channels taken from the mailbox; empty between turns, kept for its capacity.
    dirty: Vec<Arc<Channel>>,
}

/// What comes to a loop through queues.
pub(crate) struct Inputs {
    pub(crate) orders: mpsc::Receiver<Posted>,
    pub(crate) handshakes: mpsc::Receiver<Handshake>,
    pub(crate) emulated: mpsc::Receiver<Emulated>,
}

impl Worker<'_> {
    /// Runs the loop until it is told to stop and its connections are closed.
    pub(crate) fn run(
        shared: Arc<Shared>,
        loop_id: LoopId,
        mailbox: &Mailbox,
        revocations: &Revocations,
        Inputs { orders, handshakes, emulated }: Inputs,
        stopped: watch::Receiver<bool>,
    ) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build() {
            Ok(runtime) => runtime,
            Err(error) => return error!(error = chain(&error), "An edge loop could not start"),
        };
        let edge_loop = Rc::new(EdgeLoop::new(shared, loop_id));
        let control = Control::new(orders);
        let worker = Worker { edge_loop, mailbox, revocations, control, tasks: JoinSet::new(), dirty: Vec::new() };
        LocalSet::new().block_on(&runtime, worker.drive(handshakes, emulated, stopped));
    }

    async fn drive(
        mut self,
        mut handshakes: mpsc::Receiver<Handshake>,
        mut emulated: mpsc::Receiver<Emulated>,
        mut stopped: watch::Receiver<bool>,
    ) {
        let mut sweep = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            let waits = self.edge_loop.turns.begin_round();
            let (more, due_at) = {
                let state = self.edge_loop.state();
                let due_at = state.fanout.next_due_at().into_iter().chain(state.crowds.next_due_at()).min();
                (state.fanout.has_more(), due_at)
            };
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => break,
                () = self.revocations.notified() => self.edge_loop.revoke(&self.revocations.take()),
                () = self.control.ready() => self.control.step(&self.edge_loop),
                () = sleep_until(due_at.unwrap_or_else(Instant::now)), if due_at.is_some() => self.edge_loop.on_due(Instant::now()),
                () = self.mailbox.notified(), if !more => self.turn(),
                () = tokio::task::yield_now(), if more => self.turn(),
                () = tokio::task::yield_now(), if waits => self.edge_loop.turns.give(),
                () = self.edge_loop.stirred.notified() => {}
                _ = sweep.tick() => self.edge_loop.sweep(),
                Some(handshake) = handshakes.recv() => {
                    self.tasks.spawn_local(serve::serve(self.edge_loop.clone(), handshake));
                }
                Some(emulated) = emulated.recv() => self.edge_loop.emulate(&emulated),
                Some(ended) = self.tasks.join_next() => Self::report(ended),
            }
        }
        handshakes.close();
        self.stop().await;
    }

    /// Closes every connection with 3001, a few at a time; aborts those that are not closed in time.
    async fn stop(mut self) {
        self.edge_loop.begin_stop();
        let EdgeConfig { close_timeout, shutdown_spread, shutdown_timeout, .. } = self.edge_loop.shared.config;
        let keys: Vec<Key> = self.edge_loop.state().connections.iter().map(|(key, _)| key).collect();
        let spread = shutdown_spread.min(CLOSE_PAUSE * keys.len() as u32);
        let (begin, closing) = (Instant::now(), spread + close_timeout);
        let end = begin + shutdown_timeout.max(closing);
        // Earlier publications are still written. If all of the time is for closing, a part of that.
        let deadline = begin + shutdown_timeout.saturating_sub(closing).max(close_timeout / 4);
        self.turn();
        while self.edge_loop.state().fanout.has_more() && Instant::now() < deadline {
            tokio::task::yield_now().await;
            self.turn();
        }
        self.edge_loop.write_all_waiting();
        let (began, count) = (Instant::now(), keys.len().max(1) as f64);
        for (index, key) in keys.into_iter().enumerate() {
            self.serve_until(began + spread.mul_f64(index as f64 / count)).await;
            self.edge_loop.close(key, &Disconnect::SHUTDOWN);
        }
        let deadline = end.min(Instant::now() + close_timeout);
        while let Ok(Some(ended)) = tokio::time::timeout_at(deadline, self.tasks.join_next()).await {
            Self::report(ended);
        }
        self.tell_cut_off();
        self.tasks.shutdown().await;
    }

    /// Logs who is still connected.
    fn tell_cut_off(&self) {
        let state = self.edge_loop.state();
        let count = state.connections.iter().count();
        let handshakes = self.tasks.len().saturating_sub(count);
        if count + handshakes > 0 {
            let examples: Vec<_> = state.connections.iter().take(TOLD_COUNT_MAX).map(|(_, it)| it.name()).collect();
            warn!(
                count,
                handshakes,
                clients = ?examples,
                "Clients were cut off because they were not closed within client.close_timeout"
            );
        }
    }

    /// Serves the connections that are not closed yet.
    async fn serve_until(&mut self, end: Instant) {
        while Instant::now() < end {
            let more = self.edge_loop.state().fanout.has_more();
            tokio::select! {
                () = sleep_until(end) => {}
                () = self.mailbox.notified(), if !more => self.turn(),
                () = tokio::task::yield_now(), if more => self.turn(),
                Some(ended) = self.tasks.join_next() => Self::report(ended),
            }
        }
    }

    /// Passes a panic of a task on. `serve` has caught panics that may end one connection, so this one ends the loop.
    fn report(ended: Result<(), JoinError>) {
        if let Err(Ok(panic)) = ended.map_err(JoinError::try_into_panic) {
            std::panic::resume_unwind(panic);
        }
    }

    /// One step of the fan-out, with the channels in the mailbox.
    fn turn(&mut self) {
        self.mailbox.take(&mut self.dirty);
        self.edge_loop.turn(&mut self.dirty);
        if !self.edge_loop.state().fanout.has_more() {
            self.mailbox.rest();
        }
    }
}
