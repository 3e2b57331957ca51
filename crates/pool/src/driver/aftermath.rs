//! What becomes of requests when their connection has ended, or did not come up.
//!
//! Each is either ended or *homeless*: not written, or repeatable. A homeless one goes to another connection that takes
//! it; else it stays, if the next connection of this lane is made at once; else it fails.

use std::sync::atomic::Ordering::Relaxed;

use tracing::{debug, warn};

use crate::core::NoRoom;
use crate::error::CallError;
use crate::lane::{Entry, Phase, Reply};
use crate::protocol::{Matching, Protocol};

use super::connection::{Connection, End, EstablishError};
use super::{Driver, Job, end};

/// A request that has to look for a connection.
struct Homeless<P: Protocol> {
    job: Job<P>,
    reply: Reply<P>,
}

impl<P: Protocol> Driver<P> {
    /// An attempt to connect failed.
    pub(super) fn on_failed(&mut self, error: &EstablishError<P::Error>) {
        self.counters().connect_failures.increment();
        let pool = &self.core.config.name;
        // One warning until something works again, however many connections the pool has.
        if self.core.is_in_trouble.swap(true, Relaxed) {
            debug!(%pool, connection = self.index, error = %Chain(error), "Cannot connect");
        } else {
            warn!(%pool, connection = self.index, error = %Chain(error), "Cannot connect");
        }
        self.fall(Vec::new());
    }

    /// A connection has ended. Returns whether the next attempt is made at once, with requests waiting for it.
    pub(super) fn on_end<T>(&mut self, why: &End<P::Error>, connection: Connection<P, T>, was_of_use: bool) -> bool {
        self.counters().disconnects.increment();
        debug!(pool = %self.core.config.name, connection = self.index, error = %Chain(why), "Disconnected");
        let rises = was_of_use && matches!(why, End::Closed | End::LastAnswer | End::Broken(_));
        let sent = connection.sent();
        drop(connection); // The peer sees the end of this one before anything is repeated on another.
        let homeless = self.strand(sent, why);
        if rises {
            self.lane().set_phase(Phase::Rising);
            self.rehouse(homeless, true);
        } else {
            self.fall(homeless);
        }
        self.publish();
        rises
    }

    /// Ends what was sent, if only in part, and cannot be repeated; returns the rest.
    fn strand(&mut self, sent: u64, why: &End<P::Error>) -> Vec<Homeless<P>> {
        let mut homeless = Vec::new();
        // After its last answer the peer does nothing more: it was none of those behind that ended the connection, and
        // one that answers a single request on each does not make the others fail.
        let counts = !matches!(why, End::LastAnswer);
        for stranded in self.book.strand() {
            let Some(reply) = stranded.waiter else {
                self.lane().release(1); // A tombstone.
                continue;
            };
            let mut job = stranded.request;
            let was_sent = stranded.span.start < sent;
            if let (true, End::Violation(violation)) = (was_sent, why) {
                let result = Err(CallError::Violation(violation.clone()));
                end(reply, result, &self.counters().violated, self.counters());
                self.lane().release(1);
            } else if was_sent
                && !(self.core.protocol.is_repeatable(&job.request) && (!counts || self.may_repeat(&job)))
            {
                end(reply, Err(CallError::Lost), &self.counters().lost, self.counters());
                self.lane().release(1);
            } else {
                let is_repeat = was_sent && counts;
                job.was_sent |= was_sent;
                job.repeats += u32::from(is_repeat);
                // Perhaps it was this one that ended the connection (RFC 9112, 9.3.2 forbids to pipeline it again at once).
                job.is_alone |= is_repeat && self.core.protocol.matching() == Matching::Ordered;
                homeless.push(Homeless { job, reply });
            }
        }
        homeless
    }

    fn may_repeat(&self, job: &Job<P>) -> bool {
        job.repeats < self.core.config.repeat_max
    }

    /// No connection, and none for a while: everything goes elsewhere or fails.
    fn fall(&mut self, mut homeless: Vec<Homeless<P>>) {
        let inbox = self.lane().close();
        homeless.extend(self.book.take_waiting().into_iter().map(|(job, reply)| Homeless { job, reply }));
        homeless.extend(inbox.into_iter().map(|entry| {
            let Entry { request, deadline, is_alone, was_sent, repeats, reply } = entry;
            Homeless { job: Job { request, deadline, is_alone, was_sent, repeats }, reply }
        }));
        self.rehouse(homeless, false);
    }

    /// Finds other connections; what finds none stays here, in front of all that waits, or fails.
    fn rehouse(&mut self, homeless: Vec<Homeless<P>>, may_stay: bool) {
        let mut staying = Vec::new();
        for Homeless { job, reply } in homeless {
            let Job { request, deadline, is_alone, was_sent, repeats } = job;
            let mut slot = Some(Entry { request, deadline, is_alone, was_sent, repeats, reply });
            let refusal = match self.core.dispatch(&mut slot, Some(self.index)) {
                Ok(_) => {
                    self.counters().repeated.increment();
                    self.lane().release(1);
                    continue;
                }
                Err(refusal) => refusal,
            };
            let entry = slot.expect("nobody took it");
            if may_stay {
                staying.push(entry);
            } else {
                self.abandon(entry.reply, was_sent, refusal);
            }
        }
        for Entry { request, deadline, is_alone, was_sent, repeats, reply } in staying.into_iter().rev() {
            self.counters().repeated.increment();
            let at = self.tick_after(deadline);
            self.book.accept_first(Job { request, deadline, is_alone, was_sent, repeats }, reply, is_alone, at);
        }
    }

    fn abandon(&self, reply: Reply<P>, was_sent: bool, refusal: NoRoom) {
        let counters = self.counters();
        if was_sent {
            end(reply, Err(CallError::Lost), &counters.lost, counters);
        } else {
            let error = match refusal {
                NoRoom::Full => CallError::Backlog { limit: self.core.config.backlog_max },
                NoRoom::Down => CallError::Unavailable,
            };
            end(reply, Err(error), &counters.abandoned, counters);
        }
        self.lane().release(1);
    }
}

/// An error with its sources.
struct Chain<'a>(&'a dyn std::error::Error);

impl std::fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            write!(f, ": {error}")?;
            source = error.source();
        }
        Ok(())
    }
}
