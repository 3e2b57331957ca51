//! One connection's pings and what their pongs prove (design, section 4): the logic, without socket and clock.
//!
//! ```text
//!   written:   a  b ▼ping c  d        pong ► a, b have been received; the next ping asks for c and d
//!              └asked┘    └ wait for the slot ┘
//! ```
//!
//! A client answers pings in order and at once, so a pong acknowledges everything written before its ping. At most one
//! ping is in flight; one for a receipt and a regular one share the slot. Any ping puts the next regular one off, which
//! comes within the interval that clients were told, provided that a pong is late half a second (one sweep) before that
//! is over; else it comes with the first sweep after the pong. For [`QUIET`] after the answer to `connect` no receipt is
//! asked for; what was written meanwhile is asked for right after.
//!
//! Whose receipt is of use: a proven device's while its app is visible, any proven device's, or every client's, as the
//! event says ([`Standing`]). A connection that is left, or channel it leaves, strikes what was pending: not received.
//!
//! Bound: [`PENDING_COUNT_MAX`] publications wait for their pong; one more strikes the oldest. A connection from which
//! nothing is wanted holds a null pointer.

use std::sync::Arc;
use std::time::Duration;

use tidings_hub::EventReceipts;
use tidings_types::{DeviceNumber, JournalPosition, ReceiptPolicy, ReceiptTerms, Timestamp};
use tokio::time::Instant;

/// How long after the answer to `connect` no receipt is asked for: one SDK would arm a timer that nobody stops.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// Publications of one connection that wait for their pong.
pub(crate) const PENDING_COUNT_MAX: usize = 1024;

/// How pings are timed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// From any ping to the next regular one.
    regular_after: Duration,
    pong_timeout: Duration,
}

impl Timing {
    /// Clients were told `interval`; the connections are looked at every `sweep_interval`, so that a regular ping comes
    /// that much earlier rather than later. `None` when there are no pings.
    pub(crate) fn new(interval: Duration, pong_timeout: Duration, sweep_interval: Duration) -> Option<Self> {
        (!interval.is_zero()).then(|| Self { regular_after: interval.saturating_sub(sweep_interval), pong_timeout })
    }
}

/// Whose receipts an event asks for, and what a connection has to offer: the greater includes the lesser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// Somebody.
    Client,
    /// A proven device.
    Device,
    /// A proven device whose app is on the screen.
    Visible,
}

impl Standing {
    /// What a connection must be for an event to ask it; `None`: its receipt would be of no use any more.
    pub(crate) fn required(terms: &ReceiptTerms, now: Timestamp) -> Option<Self> {
        match terms.policy {
            _ if terms.every_client => Some(Self::Client),
            _ if terms.until <= now => None,
            ReceiptPolicy::Any => Some(Self::Device),
            ReceiptPolicy::Visible => Some(Self::Visible),
        }
    }
}

/// Which device a connection has proven to be, and until when its app is on the screen.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Identity {
    pub(crate) device: Option<DeviceNumber>,
    pub(crate) visible_until: Timestamp,
}

impl Identity {
    pub(crate) fn is_visible(&self, now: Timestamp) -> bool {
        self.visible_until > now
    }

    pub(crate) fn standing(&self, now: Timestamp) -> Standing {
        match self.device {
            Some(_) if self.is_visible(now) => Standing::Visible,
            Some(_) => Standing::Device,
            None => Standing::Client,
        }
    }

    /// Whether this connection's receipt would be of use to an event.
    pub(crate) fn is_wanted_by(&self, terms: &ReceiptTerms, now: Timestamp) -> bool {
        Standing::required(terms, now).is_some_and(|required| self.standing(now) >= required)
    }
}

/// A connection's pings.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    /// When the next regular one is due. `None`: there are none (yet), and the client would not answer.
    next_at: Option<Instant>,
    /// One is in flight, whose pong must have come by then.
    pong_deadline: Option<Instant>,
    quiet_until: Option<Instant>,
    pending: Option<Box<Pending>>,
}

/// Publications whose receipt is wanted.
///
/// Invariant: not empty, at most [`PENDING_COUNT_MAX`]; the first `asked` were written before the ping in flight.
#[derive(Debug, Default)]
struct Pending {
    written: Vec<Written>,
    asked: usize,
    /// No event behind this one is among them.
    newest: JournalPosition,
}

#[derive(Debug)]
struct Written {
    event: Arc<EventReceipts>,
    /// The channel's slot on this loop.
    channel: usize,
}

impl Pings {
    /// The client was told that it is in; the first regular ping comes within `part` (0 to 1) of their interval.
    pub(crate) fn begin(&mut self, timing: Timing, part: f64, now: Instant) {
        self.next_at = Some(now + timing.regular_after.mul_f64(part));
        self.quiet_until = Some(now + QUIET);
    }

    /// Whether the client answers pings.
    pub(crate) fn are_answered(&self) -> bool {
        self.next_at.is_some()
    }

    /// Whether the pong to the ping in flight is late.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.pong_deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Whether a regular ping is to be written. One that is due while another is in flight waits for that one's pong.
    pub(crate) fn is_regular_due(&self, now: Instant) -> bool {
        self.pong_deadline.is_none() && self.next_at.is_some_and(|at| at <= now)
    }

    /// Whether something was written whose receipt is still to be asked for.
    pub(crate) fn wants_receipts(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.asked < pending.written.len())
    }

    /// Whether a ping for receipts may be written.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        self.are_answered() && self.pong_deadline.is_none() && self.quiet_until(now).is_none()
    }

    /// Until when no receipt may be asked for, if that lies ahead.
    pub(crate) fn quiet_until(&self, now: Instant) -> Option<Instant> {
        self.quiet_until.filter(|until| *until > now)
    }

    /// A publication of an event that wants this connection's receipt was written in the channel. Returns how many older
    /// ones that strikes.
    pub(crate) fn on_written(&mut self, event: Arc<EventReceipts>, channel: usize) -> usize {
        let pending = self.pending.get_or_insert_default();
        let position = event.event();
        // Events come in order, but for those in several channels, each of which is still one event.
        if position > pending.newest || !pending.written.iter().any(|written| written.position() == position) {
            event.on_written();
        }
        pending.newest = pending.newest.max(position);
        pending.written.push(Written { event, channel });
        if pending.written.len() <= PENDING_COUNT_MAX {
            return 0;
        }
        pending.written.remove(0);
        pending.asked = pending.asked.saturating_sub(1);
        1
    }

    /// A ping was written behind everything so far.
    pub(crate) fn on_sent(&mut self, timing: Timing, now: Instant) {
        debug_assert!(self.pong_deadline.is_none(), "one ping in flight");
        self.pong_deadline = Some(now + timing.pong_timeout);
        self.next_at = Some(now + timing.regular_after);
        if let Some(pending) = &mut self.pending {
            pending.asked = pending.written.len();
        }
    }

    /// The pong of the ping in flight: each event it acknowledges is told to `received`, once. Returns how many
    /// publications wait no longer.
    pub(crate) fn on_pong(&mut self, mut received: impl FnMut(&EventReceipts)) -> usize {
        self.pong_deadline = None;
        let Some(pending) = &mut self.pending else { return 0 };
        let rest = pending.written.split_off(std::mem::take(&mut pending.asked));
        let mut acknowledged = std::mem::replace(&mut pending.written, rest);
        let count = acknowledged.len();
        acknowledged.sort_by_key(Written::position);
        acknowledged.dedup_by_key(|written| written.position());
        acknowledged.iter().for_each(|written| received(&written.event));
        let is_still_open =
            |written: &Written| acknowledged.binary_search_by_key(&written.position(), Written::position).is_err();
        count + self.retain(is_still_open)
    }

    /// The connection leaves the channel: receipts of what it was written there are not waited for. Returns how many.
    pub(crate) fn strike(&mut self, channel: usize) -> usize {
        self.retain(|written| written.channel != channel)
    }

    /// The connection is no proven device any more: only events that ask everybody still wait. Returns how many do not.
    pub(crate) fn strike_device(&mut self) -> usize {
        self.retain(|written| written.event.terms().every_client)
    }

    fn retain(&mut self, mut keep: impl FnMut(&Written) -> bool) -> usize {
        let Some(pending) = &mut self.pending else { return 0 };
        let (count, asked) = (pending.written.len(), pending.asked);
        let mut index = 0;
        pending.written.retain(|written| {
            let kept = keep(written);
            pending.asked -= usize::from(!kept && index < asked);
            index += 1;
            kept
        });
        let struck = count - pending.written.len();
        if pending.written.is_empty() {
            self.pending = None;
        }
        struck
    }
}

impl Written {
    fn position(&self) -> JournalPosition {
        self.event.event()
    }
}

#[cfg(test)]
mod tests;
