//! Where tasks wait for their turn; [`crate::turns`] says whose it is.
//!
//! One turn is given at a time. Whoever has it keeps it until it drops it, also while it waits for room in a full lake:
//! those behind it do not wait in the lake's line, where nobody could be let by, but here.

use std::sync::{Arc, Mutex};

use tidings_telemetry::panics::{self, Locked};
use tidings_types::EventPriority;
use tokio::sync::oneshot;

use crate::turns::Turns;

/// Gives turns, one at a time. Bound: one entry per task that waits in [`Desk::turn`].
pub(crate) struct Desk {
    state: Mutex<State>,
}

struct State {
    turns: Turns<Entry, { EventPriority::ALL.len() }>,
    /// Somebody has the turn, or is being given it.
    is_busy: bool,
    next_id: u64,
}

struct Entry {
    id: u64,
    tx: oneshot::Sender<()>,
}

/// The right to be the only one; given on when it is dropped.
#[must_use = "the turn is over when this is dropped"]
pub(crate) struct Turn {
    desk: Arc<Desk>,
}

/// In line; leaves it when it is dropped, and gives a turn on that came too late.
struct Place {
    desk: Arc<Desk>,
    priority: EventPriority,
    group: usize,
    id: u64,
    rx: oneshot::Receiver<()>,
}

impl Desk {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { turns: Turns::new(), is_busy: false, next_id: 0 }) })
    }

    /// Waits for a turn.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped, it leaves the line, and a turn it was just given goes to the next.
    pub(crate) async fn turn(self: &Arc<Self>, priority: EventPriority, group: usize) -> Turn {
        let mut place = {
            let mut state = self.lock();
            if !state.is_busy {
                state.is_busy = true;
                return Turn { desk: self.clone() };
            }
            let (tx, rx) = oneshot::channel();
            let id = state.next_id;
            state.next_id += 1;
            state.turns.join(priority as usize, group, Entry { id, tx });
            Place { desk: self.clone(), priority, group, id, rx }
        };
        // The sender's end is in the line, which outlives this; it goes only when the turn is given.
        let _ = (&mut place.rx).await;
        Turn { desk: self.clone() }
    }

    fn pass_on(&self) {
        let mut state = self.lock();
        // One that has just left is not in the line any more, so that the turn is taken.
        state.is_busy = std::iter::from_fn(|| state.turns.next()).any(|entry| entry.tx.send(()).is_ok());
    }

    fn lock(&self) -> Locked<'_, State> {
        panics::lock(&self.state)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.desk.pass_on();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let is_waiting = self.desk.lock().turns.leave(self.priority as usize, self.group, |entry| entry.id == self.id);
        // Neither in line nor told: `turn` has taken it.
        if !is_waiting && self.rx.try_recv().is_ok() {
            self.desk.pass_on();
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
    fn one_turn_is_given_at_a_time_and_the_more_urgent_go_first() {
        let desk = Desk::new();
        let first = poll(pin!(desk.turn(EventPriority::Low, 0))).expect("nobody has it");
        let (mut low, mut high) = (pin!(desk.turn(EventPriority::Low, 0)), pin!(desk.turn(EventPriority::High, 0)));
        assert!(poll(low.as_mut()).is_none() && poll(high.as_mut()).is_none());
        drop(first);
        assert!(poll(low.as_mut()).is_none());
        drop(poll(high.as_mut()).expect("it is free, and this is the more urgent one"));
        drop(poll(low.as_mut()).expect("it is free"));
        assert!(!desk.lock().is_busy, "nobody has it, nobody waits");
    }

    #[test]
    fn who_stops_waiting_loses_nobody_a_turn() {
        let desk = Desk::new();
        let first = poll(pin!(desk.turn(NORMAL, 0))).expect("nobody has it");
        let mut last = pin!(desk.turn(NORMAL, 2));
        {
            let (mut gone, mut late) = (Box::pin(desk.turn(NORMAL, 0)), Box::pin(desk.turn(NORMAL, 1)));
            assert!(poll(gone.as_mut()).is_none() && poll(late.as_mut()).is_none() && poll(last.as_mut()).is_none());
            drop(gone); // In line.
            drop(first);
            drop(late); // Given the turn, and does not know it.
        }
        drop(poll(last.as_mut()).expect("the turn came to it"));
        assert!(!desk.lock().is_busy);
    }
}
