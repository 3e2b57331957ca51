//! The queues of requests that wait for the committer.
//!
//! There are five queues, each a [`Ring`] bounded in requests and bytes. In the order in which they are served:
//!
//! 1. pauses ([`BRAKE_QUEUE`]), because an operator must be able to pause pushes during an overload;
//! 2. job checkpoints and releases ([`JOB_QUEUE`]): one writer makes them and waits for each, and if many events made
//!    the store refuse a checkpoint, a crash would repeat more pushes;
//! 3. events, then devices, then imports (`StoreConfig`).
//!
//! [`Turns`] chooses the queue with which a drain begins, so that no queue starves: of 16 drains in a row, a waiting
//! queue begins at least one. The drain then continues with the first queue, the second and so on until its bytes are
//! used up. Requests keep their order only within one queue.
//!
//! Full: the caller is refused at once. Suspended (the disk fails): waiting and new requests are dropped, which refuses
//! their callers. Before a store follows, only new ones are refused. Closed: waiting requests are still handed out, new ones are refused. Counters: `Counts::overloaded`.

use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

use tidings_buffer::{Bounds, Full, NoRoom, Ring, Turns};
use tidings_telemetry::panics;

use crate::config::QueueLimit;
use crate::error::WriteError;

/// A queue; the first is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Brakes,
    Jobs,
    Events,
    Devices,
    Imports,
}

/// Bound of the waiting pauses.
pub(crate) const BRAKE_QUEUE: QueueLimit = QueueLimit { count: 64, bytes: 1 << 20 };

/// Bound of the waiting job checkpoints and releases.
pub(crate) const JOB_QUEUE: QueueLimit = QueueLimit { count: 16, bytes: 64 << 20 };

const CLASS_COUNT: usize = 5;

impl Class {
    pub(crate) const ALL: [Self; CLASS_COUNT] = [Self::Brakes, Self::Jobs, Self::Events, Self::Devices, Self::Imports];

    /// Its name in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Brakes => "brakes",
            Self::Jobs => "jobs",
            Self::Events => "events",
            Self::Devices => "devices",
            Self::Imports => "imports",
        }
    }

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

/// The five queues of requests of type `T`.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
    limits: [QueueLimit; CLASS_COUNT],
}

struct State<T> {
    waiting: [Waiting<T>; CLASS_COUNT],
    turns: Turns<CLASS_COUNT>,
    phase: Phase,
    /// The next drain does not wait.
    is_woken: bool,
}

/// Requests with their bytes. A request larger than the limit counts as the limit.
type Waiting<T> = Ring<(usize, T)>;

fn waiting<T>(limit: QueueLimit) -> Waiting<T> {
    let bounds = Bounds::count(limit.count.max(1)).and_bytes(limit.bytes);
    Ring::weighed(bounds, Full::Reject, |(bytes, _)| *bytes)
}

/// What the committer does next.
pub(crate) enum Drained<T> {
    /// Handle these requests, in this order. Empty after a timeout.
    Requests(Vec<T>),
    /// The queue is closed and empty.
    Closed,
}

impl<T> Queue<T> {
    pub(crate) fn new(limits: [QueueLimit; CLASS_COUNT]) -> Self {
        let state = State { waiting: limits.map(waiting), turns: Turns::new(), phase: Phase::Open, is_woken: false };
        Self { state: Mutex::new(state), changed: Condvar::new(), limits }
    }

    pub(crate) fn push(&self, class: Class, request: T, bytes: usize) -> Result<(), WriteError> {
        let limit = self.limits[class as usize];
        if limit.count == 0 {
            return Err(WriteError::Overloaded { what: class.name(), limit: 0 }); // A ring holds at least one.
        }
        // A request larger than the limit fills the queue alone. Otherwise it would always be refused.
        let request = (bytes.min(limit.bytes), request);
        let _owner = panics::owner(); // The committer also uses this state.
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

    /// Waits at most `timeout` for requests, and takes up to `bytes_max` bytes of them (at least one request).
    pub(crate) fn drain(&self, bytes_max: usize, timeout: Duration) -> Drained<T> {
        let idle = |state: &mut State<T>| {
            state.phase == Phase::Open && !state.is_woken && state.waiting.iter().all(Ring::is_empty)
        };
        let (mut state, _) =
            self.changed.wait_timeout_while(self.lock(), timeout, idle).expect("no holder of this lock panics");
        let State { waiting, turns, phase, is_woken } = &mut *state;
        *is_woken = false;
        let first = turns.next(|class| !waiting[class].is_empty());
        let (mut requests, mut bytes_left) = (Vec::new(), bytes_max);
        for class in first.into_iter().chain(0..CLASS_COUNT) {
            while waiting[class].front().is_some_and(|(bytes, _)| *bytes <= bytes_left || requests.is_empty()) {
                let (bytes, request) = waiting[class].pop().expect("just seen");
                bytes_left = bytes_left.saturating_sub(bytes);
                requests.push(request);
            }
        }
        match phase {
            Phase::Closed if requests.is_empty() => Drained::Closed,
            _ => Drained::Requests(requests),
        }
    }

    /// The drain that waits, or the next one, ends at once.
    pub(crate) fn wake(&self) {
        self.lock().is_woken = true;
        self.changed.notify_all();
    }

    /// Refuses new requests until [`Queue::resume`]. Those that wait are still handed out.
    pub(crate) fn refuse(&self) {
        let mut state = self.lock();
        if state.phase == Phase::Open {
            state.phase = Phase::Suspended;
        }
    }

    /// Refuses all waiting and new requests until [`Queue::resume`].
    pub(crate) fn suspend(&self) {
        self.refuse();
        let mut state = self.lock();
        let dropped = mem::replace(&mut state.waiting, self.limits.map(waiting));
        drop(state);
        drop(dropped); // Outside the lock, because each drop wakes a caller.
    }

    /// The requests that wait in a queue, and their bytes.
    pub(crate) fn level(&self, class: Class) -> (usize, usize) {
        let state = self.lock();
        let waiting = &state.waiting[class as usize];
        (waiting.len(), waiting.bytes())
    }

    /// Whether no request waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().waiting.iter().all(Ring::is_empty)
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
        let not_closed = |state: &mut State<T>| state.phase != Phase::Closed;
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, not_closed);
        !waited.expect("no holder of this lock panics").1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().expect("no holder of this lock panics")
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn queue() -> Queue<u64> {
        Queue::new([QueueLimit { count: 3, bytes: 100 }; CLASS_COUNT])
    }

    fn drain(queue: &Queue<u64>, bytes_max: usize) -> Option<Vec<u64>> {
        match queue.drain(bytes_max, Duration::ZERO) {
            Drained::Requests(requests) => Some(requests),
            Drained::Closed => None,
        }
    }

    #[test]
    fn events_come_before_devices_before_imports_and_a_drain_is_bounded() {
        let queue = queue();
        for (class, position) in [(Class::Imports, 5), (Class::Devices, 3), (Class::Events, 1), (Class::Events, 2)] {
            queue.push(class, position, 40).unwrap();
        }
        assert_eq!(drain(&queue, 100), Some(vec![1, 2]));
        assert_eq!(drain(&queue, 10), Some(vec![3]), "at least one, however large");
        assert_eq!(drain(&queue, 100), Some(vec![5]));
        assert_eq!(drain(&queue, 100), Some(vec![]));
    }

    #[test]
    fn a_pause_comes_before_all_other_requests() {
        let queue = queue();
        for (class, position) in [(Class::Events, 1), (Class::Jobs, 2), (Class::Brakes, 3)] {
            queue.push(class, position, 40).unwrap();
        }
        assert_eq!(drain(&queue, 40), Some(vec![3]));
    }

    #[test]
    fn a_drain_that_was_woken_does_not_wait() {
        let queue = queue();
        queue.wake();
        assert!(matches!(queue.drain(1, Duration::MAX), Drained::Requests(requests) if requests.is_empty()));
        queue.push(Class::Events, 1, 40).unwrap();
        assert_eq!(drain(&queue, 100), Some(vec![1]));
    }

    #[test]
    fn many_events_do_not_starve_devices_and_imports() {
        let queue = Queue::new([QueueLimit { count: 1000, bytes: 1 << 20 }; CLASS_COUNT]);
        (0..200).for_each(|position| queue.push(Class::Events, position, 40).unwrap());
        (1000..1010).for_each(|position| queue.push(Class::Devices, position, 10).unwrap());
        queue.push(Class::Imports, 2000, 5000).unwrap();
        let (mut drains, mut positions) = (0, Vec::new());
        while !(positions.contains(&1009) && positions.contains(&2000)) {
            positions.extend(drain(&queue, 80).unwrap());
            drains += 1;
        }
        // Of 16 drains, one begins with eight devices and one with the import.
        assert!(drains <= 30, "{drains} drains");
        let events = || positions.iter().copied().filter(|position| *position < 1000);
        assert!(events().is_sorted() && events().count() > drains, "events continue, in order");
        assert!(positions.iter().filter(|position| (1000..2000).contains(*position)).is_sorted());
    }

    #[test]
    fn a_queue_is_bounded_in_requests_and_bytes_and_one_large_request_still_passes() {
        let queue = queue();
        queue.push(Class::Events, 1, 500).unwrap();
        let full = |limit| Err(WriteError::Overloaded { what: "the queue of events", limit });
        assert_eq!(queue.push(Class::Events, 2, 1), full(100));
        drain(&queue, 1);
        (0..3).for_each(|position| queue.push(Class::Events, position, 0).unwrap());
        assert_eq!(queue.push(Class::Events, 4, 0), full(3));
        queue.push(Class::Devices, 5, 100).unwrap();
        assert_eq!((queue.level(Class::Events), queue.level(Class::Devices)), ((3, 0), (1, 100)));
    }

    #[test]
    fn suspended_it_refuses_all_and_closed_it_hands_out_the_rest() {
        let queue = Queue::new([QueueLimit { count: 3, bytes: 100 }; CLASS_COUNT]);
        let (caller, mut answer) = oneshot::channel::<()>();
        queue.push(Class::Events, Some(caller), 1).unwrap();
        queue.suspend();
        assert_eq!(answer.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert_eq!(queue.push(Class::Events, None, 1), Err(WriteError::Unavailable));
        queue.resume();
        queue.push(Class::Events, None, 1).unwrap();
        queue.close();
        assert_eq!(queue.push(Class::Events, None, 1), Err(WriteError::Unavailable));
        let drain = || queue.drain(9, Duration::ZERO);
        assert!(matches!(drain(), Drained::Requests(requests) if requests.len() == 1));
        assert!(matches!(drain(), Drained::Closed));
        queue.suspend();
        queue.resume();
        assert!(matches!(drain(), Drained::Closed), "closed stays closed");
    }
}
