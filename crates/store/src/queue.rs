//! The queues of requests that wait for the committer.
//!
//! Five queues, each a [`Ring`] bounded in requests and bytes. First brakes ([`BRAKE_QUEUE`]), because an operator must
//! be able to pause pushes during an overload. Second job checkpoints and releases ([`JOB_QUEUE`]): they have one
//! writer, which waits for each, and a checkpoint that is refused because of many events would make a crash repeat
//! more. Then events, devices, imports (`StoreConfig`). [`Turns`] chooses the queue with which a drain begins, so that
//! no queue starves: of 16 drains in a row, a waiting queue begins at least one. The drain continues with the first
//! queue, the second and so on, as far as its bytes last. An order is promised only within one queue.
//!
//! Full: the caller is refused at once. Suspended (the disk fails): waiting and new requests are dropped, which refuses
//! their callers. Closed: waiting requests are still handed out, new ones are refused. Counters: `Counts::overloaded`.

use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tidings_buffer::{Bounds, Full, NoRoom, Ring, Turns};
use tidings_telemetry::panics;

use crate::config::QueueLimit;
use crate::error::WriteError;
use crate::message::Command;

/// Which queue; the first is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Brakes,
    Jobs,
    Events,
    Devices,
    Imports,
}

/// Bound of the brakes that wait.
pub(crate) const BRAKE_QUEUE: QueueLimit = QueueLimit { count: 64, bytes: 1 << 20 };

/// Bound of the checkpoints and releases that wait.
pub(crate) const JOB_QUEUE: QueueLimit = QueueLimit { count: 16, bytes: 64 << 20 };

const CLASS_COUNT: usize = 5;

impl Class {
    fn name(self) -> &'static str {
        match self {
            Self::Brakes => "the queue of brakes",
            Self::Jobs => "the queue of job checkpoints",
            Self::Events => "the queue of events",
            Self::Devices => "the queue of devices",
            Self::Imports => "the queue of imports",
        }
    }

    fn overloaded(self, reason: NoRoom) -> WriteError {
        let limit = match reason {
            NoRoom::Full { held, bounds: Bounds { count_max, bytes_max: Some(bytes_max) }, .. } if held < count_max => {
                bytes_max
            }
            NoRoom::Full { bounds, .. } | NoRoom::TooLarge { bounds, .. } => bounds.count_max,
        };
        WriteError::Overloaded { what: self.name(), limit: limit as u64 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Suspended,
    Closed,
}

pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    limits: [QueueLimit; CLASS_COUNT],
}

struct State {
    waiting: [Waiting; CLASS_COUNT],
    turns: Turns<CLASS_COUNT>,
    phase: Phase,
}

/// Requests, each with its bytes, or the limit if it is larger.
type Waiting = Ring<(usize, Command)>;

fn waiting(limit: QueueLimit) -> Waiting {
    let bounds = Bounds::count(limit.count.max(1)).and_bytes(limit.bytes);
    Ring::weighed(bounds, Full::Reject, |(bytes, _)| *bytes)
}

/// What the committer is to do next.
pub(crate) enum Drained {
    /// These, in this order; empty when the time is up.
    Commands(Vec<Command>),
    /// Nothing waits and nothing will come.
    Closed,
}

impl Queue {
    pub(crate) fn new(limits: [QueueLimit; CLASS_COUNT]) -> Self {
        let state = State { waiting: limits.map(waiting), turns: Turns::new(), phase: Phase::Open };
        Self { state: Mutex::new(state), changed: Condvar::new(), limits }
    }

    pub(crate) fn push(&self, class: Class, command: Command, bytes: usize) -> Result<(), WriteError> {
        let limit = self.limits[class as usize];
        if limit.count == 0 {
            return Err(WriteError::Overloaded { what: class.name(), limit: 0 }); // No ring is that small.
        }
        // One request larger than the limit is let through alone rather than refused for ever.
        let request = (bytes.min(limit.bytes), command);
        let _owner = panics::owner(); // The committer goes on with what a request leaves here.
        let mut state = self.lock();
        if state.phase != Phase::Open {
            return Err(WriteError::Unavailable);
        }
        let pushed = state.waiting[class as usize].push(request);
        drop(state);
        pushed.map_err(|rejected| class.overloaded(rejected.reason))?;
        self.changed.notify_one();
        Ok(())
    }

    /// Waits until something is there, at most `timeout`, and takes up to `bytes_max` (at least one request).
    pub(crate) fn drain(&self, bytes_max: usize, timeout: Duration) -> Drained {
        let idle = |state: &mut State| state.phase == Phase::Open && state.waiting.iter().all(Ring::is_empty);
        let (mut state, _) =
            self.changed.wait_timeout_while(self.lock(), timeout, idle).expect("no holder of this lock panics");
        let State { waiting, turns, phase } = &mut *state;
        let first = turns.next(|class| !waiting[class].is_empty());
        let (mut commands, mut bytes_left) = (Vec::new(), bytes_max);
        for class in first.into_iter().chain(0..CLASS_COUNT) {
            while waiting[class].front().is_some_and(|(bytes, _)| *bytes <= bytes_left || commands.is_empty()) {
                let (bytes, command) = waiting[class].pop().expect("just seen");
                bytes_left = bytes_left.saturating_sub(bytes);
                commands.push(command);
            }
        }
        match phase {
            Phase::Closed if commands.is_empty() => Drained::Closed,
            _ => Drained::Commands(commands),
        }
    }

    /// Refuses what waits and what comes, until [`Queue::resume`].
    pub(crate) fn suspend(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Suspended;
        }
        let dropped = mem::replace(&mut state.waiting, self.limits.map(waiting));
        drop(state);
        drop(dropped); // Outside the lock: each wakes its caller.
    }

    /// Whether requests are taken: neither suspended nor closed.
    pub(crate) fn is_open(&self) -> bool {
        self.lock().phase == Phase::Open
    }

    pub(crate) fn resume(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Suspended {
            state.phase = Phase::Open;
        }
    }

    pub(crate) fn close(&self) {
        self.lock().phase = Phase::Closed;
        self.changed.notify_all();
    }

    /// Waits for `timeout` or until closed; true when closed.
    pub(crate) fn wait_closed(&self, timeout: Duration) -> bool {
        let not_closed = |state: &mut State| state.phase != Phase::Closed;
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, not_closed);
        !waited.expect("no holder of this lock panics").1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn queue() -> Queue {
        let limit = QueueLimit { count: 3, bytes: 100 };
        Queue::new([limit; CLASS_COUNT])
    }

    /// A command that can be told from others by its position.
    fn command(position: u64) -> (Command, oneshot::Receiver<()>) {
        let (reply, answer) = oneshot::channel();
        let remove = vec![tidings_types::JournalPosition(position)];
        (Command::Jobs { put: vec![], remove, dispatched: None, reply }, answer)
    }

    fn drain(queue: &Queue, bytes_max: usize) -> Option<Vec<u64>> {
        let position = |command: &Command| match command {
            Command::Jobs { remove, .. } => remove[0].0,
            _ => unreachable!("only these are pushed"),
        };
        match queue.drain(bytes_max, Duration::ZERO) {
            Drained::Commands(commands) => Some(commands.iter().map(position).collect()),
            Drained::Closed => None,
        }
    }

    #[test]
    fn events_come_before_devices_before_imports_and_a_drain_is_bounded() {
        let queue = queue();
        for (class, position) in [(Class::Imports, 5), (Class::Devices, 3), (Class::Events, 1), (Class::Events, 2)] {
            queue.push(class, command(position).0, 40).unwrap();
        }
        assert_eq!(drain(&queue, 100), Some(vec![1, 2]));
        assert_eq!(drain(&queue, 10), Some(vec![3]), "at least one, however large");
        assert_eq!(drain(&queue, 100), Some(vec![5]));
        assert_eq!(drain(&queue, 100), Some(vec![]));
    }

    #[test]
    fn a_brake_is_pulled_before_all_that_waits() {
        let queue = queue();
        for (class, position) in [(Class::Events, 1), (Class::Jobs, 2), (Class::Brakes, 3)] {
            queue.push(class, command(position).0, 40).unwrap();
        }
        assert_eq!(drain(&queue, 40), Some(vec![3]));
    }

    #[test]
    fn a_flood_of_events_leaves_devices_and_imports_their_turn() {
        let queue = Queue::new([QueueLimit { count: 1000, bytes: 1 << 20 }; CLASS_COUNT]);
        (0..200).for_each(|position| queue.push(Class::Events, command(position).0, 40).unwrap());
        (1000..1010).for_each(|position| queue.push(Class::Devices, command(position).0, 10).unwrap());
        queue.push(Class::Imports, command(2000).0, 5000).unwrap();
        let (mut drains, mut positions) = (0, Vec::new());
        while !(positions.contains(&1009) && positions.contains(&2000)) {
            positions.extend(drain(&queue, 80).unwrap());
            drains += 1;
        }
        // Of 16 drains one begins with the devices, eight at a time, and one with the import.
        assert!(drains <= 30, "{drains} drains");
        let events = || positions.iter().copied().filter(|position| *position < 1000);
        assert!(events().is_sorted() && events().count() > drains, "events go on, in order");
        assert!(positions.iter().filter(|position| (1000..2000).contains(*position)).is_sorted());
    }

    #[test]
    fn a_queue_is_bounded_in_requests_and_bytes_and_one_large_request_still_passes() {
        let queue = queue();
        queue.push(Class::Events, command(1).0, 500).unwrap();
        let full = |limit| Err(WriteError::Overloaded { what: "the queue of events", limit });
        assert_eq!(queue.push(Class::Events, command(2).0, 1), full(100));
        drain(&queue, 1);
        (0..3).for_each(|position| queue.push(Class::Events, command(position).0, 0).unwrap());
        assert_eq!(queue.push(Class::Events, command(4).0, 0), full(3));
        queue.push(Class::Devices, command(5).0, 100).unwrap();
    }

    #[test]
    fn suspended_it_refuses_what_waits_and_what_comes_and_closed_it_hands_out_the_rest() {
        let queue = queue();
        let (waiting, mut answer) = command(1);
        queue.push(Class::Events, waiting, 1).unwrap();
        queue.suspend();
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(queue.push(Class::Events, command(2).0, 1), Err(WriteError::Unavailable));
        queue.resume();
        queue.push(Class::Events, command(3).0, 1).unwrap();
        queue.close();
        assert_eq!(queue.push(Class::Events, command(4).0, 1), Err(WriteError::Unavailable));
        assert_eq!((drain(&queue, 9), drain(&queue, 9)), (Some(vec![3]), None));
        queue.suspend();
        queue.resume();
        assert_eq!(drain(&queue, 9), None, "closed stays closed");
    }
}
