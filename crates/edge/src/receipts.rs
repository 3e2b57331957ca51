//! One connection's pings and what their pongs prove: the logic, without socket and clock.
//!
//! ```text
//!   written:   a  b ▼ping c  d        pong ► a, b have been received; the next ping asks for c and d
//!              └asked┘    └ wait for the slot ┘
//! ```
//!
//! A client answers pings at once and in order, so a pong acknowledges everything written before its ping. At most one
//! ping is in flight; pings for receipts and regular pings share this slot. Every ping postpones the next regular one.
//! A regular ping comes within the interval that clients were told, if the pong arrives at least half a second (one
//! sweep) before that interval is over. Otherwise the ping comes with the first sweep after the pong. For [`QUIET`]
//! after the answer to `connect` no receipt is asked for; then one ping asks for everything written in that time.
//!
//! A client without a WebSocket answers in a request of its own. If its pong is late, what it would have acknowledged
//! counts as not received, and the connection goes on. A client of a unidirectional transport is never asked.
//!
//! Which receipts are useful depends on the event ([`Standing`]): those of a proven device while its app is visible,
//! those of any proven device, or those of every client. When a connection ends or leaves a channel, its pending
//! receipts there are dropped: not received.
//!
//! Bound: [`PENDING_COUNT_MAX`] publications wait for their pong; a further one drops the oldest. A connection whose
//! receipts nobody wants holds a null pointer.

use std::sync::Arc;
use std::time::Duration;

use tidings_hub::EventReceipts;
use tidings_types::{DeviceNumber, JournalPosition, ReceiptPolicy, ReceiptTerms, Timestamp, Transport};
use tokio::time::Instant;

/// How long after the answer to `connect` no receipt is asked for: an earlier ping makes one SDK start a timer that it
/// never stops.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// The most publications of one connection that wait for their pong.
pub(crate) const PENDING_COUNT_MAX: usize = 1024;

/// How pings are timed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    /// The time from any ping to the next regular one.
    regular_after: Duration,
    pong_timeout: Duration,
}

impl Timing {
    /// Clients were told `interval`. The connections are checked every `sweep_interval`, so a regular ping is due that
    /// much earlier, in order not to be late. `None`: there are no pings.
    pub(crate) fn new(interval: Duration, pong_timeout: Duration, sweep_interval: Duration) -> Option<Self> {
        (!interval.is_zero()).then(|| Self { regular_after: interval.saturating_sub(sweep_interval), pong_timeout })
    }
}

/// What a client does when it gets a ping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Pongs {
    /// It answers on its connection; without an answer the connection is dead.
    #[default]
    Required,
    /// It answers in a request of its own, which may be late or get lost: without an answer, nothing was received.
    Optional,
    /// It cannot answer.
    None,
}

impl Pongs {
    pub(crate) fn over(transport: Transport) -> Self {
        match transport {
            Transport::WebSocket => Self::Required,
            Transport::Sse | Transport::HttpStream => Self::Optional,
            Transport::UniWebSocket | Transport::UniSse | Transport::UniHttpStream => Self::None,
        }
    }
}

/// What a connection must be for its receipt to count, and what a connection is. A greater value includes the lesser
/// ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// Any client.
    Client,
    /// A proven device.
    Device,
    /// A proven device whose app is on the screen.
    Visible,
}

impl Standing {
    /// What a connection must be for this event; `None`: the event needs no more receipts.
    pub(crate) fn required(terms: &ReceiptTerms, now: Timestamp) -> Option<Self> {
        match terms.policy {
            _ if terms.every_client => Some(Self::Client),
            _ if terms.until <= now => None,
            ReceiptPolicy::Any => Some(Self::Device),
            ReceiptPolicy::Visible => Some(Self::Visible),
        }
    }
}

/// The device that a connection has proven to be, and until when its app is on the screen.
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

    /// Whether this connection's receipt is useful to an event.
    pub(crate) fn is_wanted_by(&self, terms: &ReceiptTerms, now: Timestamp) -> bool {
        Standing::required(terms, now).is_some_and(|required| self.standing(now) >= required)
    }
}

/// A connection's pings.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    /// When the next regular ping is due. `None`: there are no pings (yet), and the client would not answer.
    next_at: Option<Instant>,
    pongs: Pongs,
    /// Pings that were not answered in time. As many of the next pongs may be their answers, so they prove nothing.
    missed: u16,
    /// Set while a ping is in flight: its pong must arrive by then.
    pong_deadline: Option<Instant>,
    quiet_until: Option<Instant>,
    pending: Option<Box<Pending>>,
}

/// Publications whose receipt is pending.
///
/// Invariant: not empty, at most [`PENDING_COUNT_MAX`]; the first `asked` were written before the ping in flight.
#[derive(Debug, Default)]
struct Pending {
    written: Vec<Written>,
    asked: usize,
    /// No event among them is newer than this one.
    newest: JournalPosition,
}

#[derive(Debug)]
struct Written {
    event: Arc<EventReceipts>,
    /// The channel's slot on this loop.
    channel: usize,
}

impl Pings {
    /// The client has its answer to `connect`. The first regular ping comes after `part` (0 to 1) of the interval.
    pub(crate) fn begin(&mut self, timing: Timing, part: f64, pongs: Pongs, now: Instant) {
        self.pongs = pongs;
        self.next_at = Some(now + timing.regular_after.mul_f64(part));
        self.quiet_until = Some(now + QUIET);
    }

    /// Whether the client answers pings.
    pub(crate) fn are_answered(&self) -> bool {
        self.next_at.is_some() && self.pongs != Pongs::None
    }

    /// Whether the pong to the ping in flight is late.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.pong_deadline.is_some_and(|deadline| deadline <= now)
    }

    /// Whether a pong is to come.
    pub(crate) fn await_pong(&self) -> bool {
        self.pong_deadline.is_some()
    }

    /// The pong may have come, but could not be read: it has until `deadline`.
    pub(crate) fn postpone(&mut self, deadline: Instant) {
        self.pong_deadline = Some(deadline);
    }

    /// Gives up a pong that is late, if the client need not answer: what it would have acknowledged was not received.
    /// Returns how many publications that were.
    pub(crate) fn drop_overdue(&mut self, now: Instant) -> usize {
        if self.pongs != Pongs::Optional || !self.is_overdue(now) {
            return 0;
        }
        self.pong_deadline = None;
        self.missed = self.missed.saturating_add(1);
        let Some(pending) = &mut self.pending else { return 0 };
        let dropped = std::mem::take(&mut pending.asked);
        pending.written.drain(..dropped);
        if pending.written.is_empty() {
            self.pending = None;
        }
        dropped
    }

    /// Whether a regular ping is to be written. One that is due while a ping is in flight waits for the pong.
    pub(crate) fn is_regular_due(&self, now: Instant) -> bool {
        self.pong_deadline.is_none() && self.next_at.is_some_and(|at| at <= now)
    }

    /// Whether a receipt is still to be asked for.
    pub(crate) fn wants_receipts(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.asked < pending.written.len())
    }

    /// Whether a ping for receipts may be written.
    pub(crate) fn may_ask(&self, now: Instant) -> bool {
        self.are_answered() && self.pong_deadline.is_none() && self.quiet_until(now).is_none()
    }

    /// Until when no receipt may be asked for, if that is in the future.
    pub(crate) fn quiet_until(&self, now: Instant) -> Option<Instant> {
        self.quiet_until.filter(|until| *until > now)
    }

    /// A publication of an event that wants this connection's receipt was written in the channel. Returns how many
    /// older pending receipts this drops.
    pub(crate) fn on_written(&mut self, event: Arc<EventReceipts>, channel: usize) -> usize {
        let pending = self.pending.get_or_insert_default();
        let position = event.event();
        // Events come in order, except those in several channels; an event in several channels counts as one.
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
        self.pong_deadline = (self.pongs != Pongs::None).then(|| now + timing.pong_timeout);
        self.next_at = Some(now + timing.regular_after);
        if let Some(pending) = &mut self.pending {
            pending.asked = pending.written.len();
        }
    }

    /// The pong to the ping in flight. Calls `received` once for each event that it acknowledges. Returns how many
    /// publications were acknowledged.
    pub(crate) fn on_pong(&mut self, mut received: impl FnMut(&EventReceipts)) -> usize {
        if self.missed > 0 {
            self.missed -= 1;
            return 0;
        }
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

    /// The connection leaves the channel: its pending receipts there are dropped. Returns how many.
    pub(crate) fn drop_channel(&mut self, channel: usize) -> usize {
        self.retain(|written| written.channel != channel)
    }

    /// The connection is no longer a proven device: only the receipts that events want from every client stay pending.
    /// Returns how many were dropped.
    pub(crate) fn drop_device(&mut self) -> usize {
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
        let dropped = count - pending.written.len();
        if pending.written.is_empty() {
            self.pending = None;
        }
        dropped
    }
}

impl Written {
    fn position(&self) -> JournalPosition {
        self.event.event()
    }
}

#[cfg(test)]
mod tests;
