//! The counters of a pool.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// What a pool did since its start, over all its connections.
///
/// Every accepted request ends exactly once:
/// `accepted == answered + timed_out + lost + violated + refused + cancelled + abandoned + closed + held`. The fields are
/// read one after the other, so the equation may be slightly off while requests run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Requests that a connection accepted.
    pub accepted: u64,
    /// Requests that were refused because every connection was full.
    pub backlog: u64,
    /// Requests that were refused because no connection was up.
    pub unavailable: u64,

    /// Ended with an answer.
    pub answered: u64,
    /// Ended at their deadline.
    pub timed_out: u64,
    /// Ended with their connection, after they were sent, and not repeated.
    pub lost: u64,
    /// Ended because the peer broke the protocol.
    pub violated: u64,
    /// Ended because the codec could not encode them.
    pub refused: u64,
    /// Ended because their caller dropped the call.
    pub cancelled: u64,
    /// Ended with [`CallError::Unavailable`](crate::CallError::Unavailable) or
    /// [`CallError::Backlog`](crate::CallError::Backlog) after they were accepted: their connection broke or could not be
    /// made before they were sent, and no other connection could take them.
    pub abandoned: u64,
    /// Ended because the pool was closed.
    pub closed: u64,

    /// Requests that have not ended: waiting or in flight.
    pub held: u64,
    /// Of these, requests in flight: written, without an answer yet.
    pub in_flight: u64,
    /// Requests that have expired. Their answer will be discarded.
    pub tombstones: u64,

    /// Requests written, repeats included.
    pub sent: u64,
    /// Requests that moved to another connection, or to the next one of their lane, when their connection was lost.
    pub repeated: u64,
    /// Discarded answers: too late, without a request, or unusable datagrams.
    pub late: u64,

    /// Connections that are up.
    pub connected: u64,
    /// Connections that came up.
    pub connects: u64,
    /// Attempts that failed, also during the set-up exchange.
    pub connect_failures: u64,
    /// Connections that ended while the pool was not draining.
    pub disconnects: u64,
    /// Bytes written to sockets.
    pub bytes_sent: u64,
    /// Bytes read from sockets.
    pub bytes_received: u64,
}

impl Counters {
    /// Requests that have ended, in any way.
    pub fn ended(&self) -> u64 {
        self.answered
            + self.timed_out
            + self.lost
            + self.violated
            + self.refused
            + self.cancelled
            + self.abandoned
            + self.closed
    }
}

/// The counters of one connection. Nearly all are written only by its task, so they do not move between cores.
#[derive(Debug, Default)]
pub(crate) struct LaneCounters {
    pub(crate) accepted: Counter,
    pub(crate) answered: Counter,
    pub(crate) timed_out: Counter,
    pub(crate) lost: Counter,
    pub(crate) violated: Counter,
    pub(crate) refused: Counter,
    pub(crate) cancelled: Counter,
    pub(crate) abandoned: Counter,
    pub(crate) closed: Counter,
    pub(crate) sent: Counter,
    pub(crate) repeated: Counter,
    pub(crate) late: Counter,
    pub(crate) connects: Counter,
    pub(crate) connect_failures: Counter,
    pub(crate) disconnects: Counter,
    pub(crate) bytes_sent: Counter,
    pub(crate) bytes_received: Counter,
    /// Without tombstones. Set by the task after each step.
    pub(crate) in_flight: AtomicUsize,
    /// Set by the task after each step.
    pub(crate) tombstones: AtomicUsize,
}

impl LaneCounters {
    /// Adds the counters of this connection, which has `load` requests.
    pub(crate) fn add_to(&self, sum: &mut Counters, load: usize, is_connected: bool) {
        let tombstones = self.tombstones.load(Relaxed) as u64;
        sum.accepted += self.accepted.value();
        sum.answered += self.answered.value();
        sum.timed_out += self.timed_out.value();
        sum.lost += self.lost.value();
        sum.violated += self.violated.value();
        sum.refused += self.refused.value();
        sum.cancelled += self.cancelled.value();
        sum.abandoned += self.abandoned.value();
        sum.closed += self.closed.value();
        sum.held += (load as u64).saturating_sub(tombstones);
        sum.in_flight += self.in_flight.load(Relaxed) as u64;
        sum.tombstones += tombstones;
        sum.sent += self.sent.value();
        sum.repeated += self.repeated.value();
        sum.late += self.late.value();
        sum.connected += u64::from(is_connected);
        sum.connects += self.connects.value();
        sum.connect_failures += self.connect_failures.value();
        sum.disconnects += self.disconnects.value();
        sum.bytes_sent += self.bytes_sent.value();
        sum.bytes_received += self.bytes_received.value();
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn value(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
