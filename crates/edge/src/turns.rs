//! Whose commands a loop handles next.
//!
//! A connection whose commands have arrived handles them at once, for [`TIME_MAX`] at most. If the loop has no time left for that
//! before it looks at everything else ([`ROUND_TIME`]), or if others wait already, the connection waits for its turn, and fair
//! shares decide ([`shares`](crate::shares)): the loop gives one turn at a time, and does its other work in between. With many that
//! wait, turns become shorter, so that each comes soon; one command is always handled.
//!
//! Bound: an entry for each connection that waits.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tidings_buffer::Line;
use tokio::sync::oneshot;

use crate::shares::{Asker, Askers};

/// The longest turn.
const TIME_MAX: Duration = Duration::from_millis(1);
/// The shortest, if each connection has cheap commands.
const TIME_MIN: Duration = Duration::from_micros(50);
/// The turns of all connections that wait take about so long, if none has a costly command.
const ALL_TIME: Duration = Duration::from_millis(100);
/// What connections take together without waiting, before the loop looks at everything else.
const ROUND_TIME: Duration = Duration::from_millis(2);

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    waiting: RefCell<Askers<oneshot::Sender<()>>>,
    /// What was worked since the loop looked at everything else.
    worked: Cell<Duration>,
    /// Nobody has to wait any more.
    ended: Cell<bool>,
}

impl Turns {
    /// The connection must wait for its turn until this is received; `None`: it need not wait.
    pub(crate) fn ask(&self, asker: impl FnOnce() -> Asker) -> Option<oneshot::Receiver<()>> {
        let is_free = self.waiting.borrow().is_empty() && self.worked.get() < ROUND_TIME;
        if is_free || self.ended.get() {
            return None;
        }
        let (turn, given) = oneshot::channel();
        self.waiting.borrow_mut().push(asker().path(), turn);
        Some(given)
    }

    /// How long a turn is now.
    pub(crate) fn time(&self) -> Duration {
        let count = u32::try_from(self.waiting.borrow().len()).unwrap_or(u32::MAX).max(1);
        (ALL_TIME / count).clamp(TIME_MIN, TIME_MAX)
    }

    /// A connection has worked so long.
    pub(crate) fn on_worked(&self, time: Duration) {
        self.worked.set(self.worked.get() + time);
    }

    /// The loop looks at everything else. Returns whether somebody waits.
    pub(crate) fn begin_round(&self) -> bool {
        self.worked.set(Duration::ZERO);
        !self.waiting.borrow().is_empty()
    }

    /// Gives the next one its turn.
    pub(crate) fn give(&self) {
        loop {
            let next = self.waiting.borrow_mut().pop();
            match next.map(|turn| turn.send(())) {
                Some(Err(())) => {} // It is gone.
                Some(Ok(())) | None => return,
            }
        }
    }

    /// Nobody waits from now on.
    pub(crate) fn end(&self) {
        self.ended.set(true);
        self.waiting.take();
    }
}

#[cfg(test)]
mod tests {
    use tidings_protocol::ClientId;

    use super::*;

    fn ask(turns: &Turns, network: u8, client: u128) -> Option<oneshot::Receiver<()>> {
        let network = Some([10, 0, 0, network].into());
        turns.ask(|| Asker { network, user: "".into(), client: ClientId::from_random(client) })
    }

    #[test]
    fn a_connection_waits_only_when_the_loop_has_no_time_left() {
        let turns = Turns::default();
        assert!(ask(&turns, 1, 1).is_none());
        turns.on_worked(ROUND_TIME);
        assert!(ask(&turns, 1, 1).is_some());
        assert!(turns.begin_round(), "somebody waits");
        assert!(ask(&turns, 1, 2).is_some(), "who comes later does not go first");
        (0..3).for_each(|_| turns.give());
        assert!(!turns.begin_round());
        assert!(ask(&turns, 1, 1).is_none());
    }

    #[test]
    fn a_thousand_busy_connections_delay_another_network_by_one_turn() {
        let turns = Turns::default();
        turns.on_worked(ROUND_TIME);
        let mut busy: Vec<_> = (0..1000).map(|client| ask(&turns, 1, client).unwrap()).collect();
        let mut other = ask(&turns, 2, 5000).unwrap();
        assert_eq!(turns.time(), ALL_TIME / 1001);
        (0..2).for_each(|_| turns.give());
        assert!(other.try_recv().is_ok());
        assert_eq!(busy.iter_mut().filter_map(|one| one.try_recv().ok()).count(), 1);
        busy.truncate(500); // The others are gone.
        let left = busy.len() - 1;
        (0..left).for_each(|_| turns.give());
        assert!(busy.iter_mut().all(|one| !matches!(one.try_recv(), Err(oneshot::error::TryRecvError::Empty))));
    }

    #[test]
    fn when_the_loop_ends_nobody_waits() {
        let turns = Turns::default();
        turns.on_worked(ROUND_TIME);
        let mut waiting = ask(&turns, 1, 1).unwrap();
        turns.end();
        assert_eq!(waiting.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        assert!(ask(&turns, 1, 1).is_none());
    }
}
