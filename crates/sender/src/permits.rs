//! Where tasks wait for a permit, at a lake or on the sender's thread. [`crate::round_robin`] says which task is next.
//!
//! There is one permit at a time. A task keeps it until it drops it, also while it waits for room in a full lake. The tasks
//! behind it wait here and not in the lake's line, because nobody could be let by there.

use std::sync::{Arc, Mutex};

use tidings_telemetry::panics::{self, Locked};
use tidings_types::EventPriority;
use tokio::sync::oneshot;

use crate::round_robin::RoundRobin;

/// Gives permits, one at a time. Bound: one entry per task that waits in [`Permits::acquire`].
pub(crate) struct Permits {
    state: Mutex<State>,
}

struct State {
    waiting: RoundRobin<Entry, { EventPriority::ALL.len() }>,
    /// A task has the permit, or is being given it.
    is_busy: bool,
    next_id: u64,
}

struct Entry {
    id: u64,
    tx: oneshot::Sender<()>,
}

/// The right to be the only one; given on when it is dropped.
#[must_use = "the next task goes on when this is dropped"]
pub(crate) struct Permit {
    permits: Arc<Permits>,
}

/// A place in the line. When dropped, it leaves the line, and passes on a permit that came too late.
struct Waiting {
    permits: Arc<Permits>,
    priority: EventPriority,
    group: usize,
    id: u64,
    rx: oneshot::Receiver<()>,
}

impl Permits {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { waiting: RoundRobin::new(), is_busy: false, next_id: 0 }) })
    }

    /// Waits for a permit.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped, it leaves the line, and a permit it was just given goes to the next.
    pub(crate) async fn acquire(self: &Arc<Self>, priority: EventPriority, group: usize) -> Permit {
        let mut waiting = {
            let mut state = self.lock();
            if !state.is_busy {
                state.is_busy = true;
                return Permit { permits: self.clone() };
            }
            let (tx, rx) = oneshot::channel();
            let id = state.next_id;
            state.next_id += 1;
            state.waiting.join(priority as usize, group, Entry { id, tx });
            Waiting { permits: self.clone(), priority, group, id, rx }
        };
        // The channel's sender is in the line, which outlives this. It is dropped only when the permit is given.
        let _ = (&mut waiting.rx).await;
        Permit { permits: self.clone() }
    }

    fn pass_on(&self) {
        let mut state = self.lock();
        // An entry that has left is no longer in the line, so a receiver takes the permit.
        state.is_busy = std::iter::from_fn(|| state.waiting.next()).any(|entry| entry.tx.send(()).is_ok());
    }

    fn lock(&self) -> Locked<'_, State> {
        panics::lock(&self.state)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.pass_on();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let is_waiting =
            self.permits.lock().waiting.leave(self.priority as usize, self.group, |entry| entry.id == self.id);
        // Neither in line nor told: `acquire` has taken it.
        if !is_waiting && self.rx.try_recv().is_ok() {
            self.permits.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const NORMAL: EventPriority = EventPriority::Normal;

    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Option<F::Output> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_permit_is_given_at_a_time_and_the_more_urgent_go_first() {
        let permits = Permits::new();
        let first = poll(pin!(permits.acquire(EventPriority::Low, 0))).expect("nobody has it");
        let (mut low, mut high) =
            (pin!(permits.acquire(EventPriority::Low, 0)), pin!(permits.acquire(EventPriority::High, 0)));
        assert!(poll(low.as_mut()).is_none() && poll(high.as_mut()).is_none());
        drop(first);
        assert!(poll(low.as_mut()).is_none());
        drop(poll(high.as_mut()).expect("it is free, and this is the more urgent one"));
        drop(poll(low.as_mut()).expect("it is free"));
        assert!(!permits.lock().is_busy, "nobody has it, nobody waits");
    }

    #[test]
    fn who_stops_waiting_loses_nobody_a_permit() {
        let permits = Permits::new();
        let first = poll(pin!(permits.acquire(NORMAL, 0))).expect("nobody has it");
        let mut last = pin!(permits.acquire(NORMAL, 2));
        {
            let (mut gone, mut late) = (Box::pin(permits.acquire(NORMAL, 0)), Box::pin(permits.acquire(NORMAL, 1)));
            assert!(poll(gone.as_mut()).is_none() && poll(late.as_mut()).is_none() && poll(last.as_mut()).is_none());
            drop(gone); // In line.
            drop(first);
            drop(late); // Given the permit, and does not know it.
        }
        drop(poll(last.as_mut()).expect("the permit came to it"));
        assert!(!permits.lock().is_busy);
    }
}
