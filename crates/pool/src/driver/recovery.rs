//! The requests of a connection that has ended or could not be made.
//!
//! A request that was sent and cannot be repeated ends. All others are *displaced*: they go to another connection with
//! room. If there is none, they stay if this lane reconnects at once, and fail otherwise.

use std::sync::atomic::Ordering::Relaxed;

use tidings_types::chain;
use tracing::{debug, warn};

use crate::core::NoRoom;
use crate::error::CallError;
use crate::lane::{Entry, Job, Phase};
use crate::protocol::{Matching, Protocol};

use super::connection::{Connection, End, EstablishError};
use super::{Driver, end};

impl<P: Protocol> Driver<P> {
    /// Handles a failed attempt to connect.
    pub(super) fn on_failed(&mut self, error: &EstablishError<P::Error>) {
        self.counters().connect_failures.increment();
        let pool = &self.core.config.name;
        // The whole pool logs one warning until a connection is up again.
        if self.core.is_in_trouble.swap(true, Relaxed) {
            debug!(%pool, connection = self.index, error = chain(error), "Cannot connect");
        } else {
            warn!(%pool, connection = self.index, error = chain(error), "Cannot connect");
        }
        self.redirect_all(Vec::new());
    }

    /// Handles the end of a connection. Returns whether the lane reconnects at once, with requests waiting for it.
    pub(super) fn on_end<T>(&mut self, why: &End<P::Error>, connection: Connection<P, T>, was_useful: bool) -> bool {
        self.counters().disconnects.increment();
        debug!(pool = %self.core.config.name, connection = self.index, error = chain(why), "Disconnected");
        let reconnects = was_useful && matches!(why, End::Closed | End::LastAnswer | End::Broken(_));
        let sent = connection.sent();
        drop(connection); // The peer must see its end before a request is repeated on another connection.
        let displaced = self.end_written(sent, why);
        if reconnects {
            self.lane().set_phase(Phase::Rising);
            self.redirect(displaced, true);
        } else {
            self.redirect_all(displaced);
        }
        self.publish();
        reconnects
    }

    /// Ends the requests that were sent, even in part, and cannot be repeated. Returns the displaced ones.
    fn end_written(&mut self, sent: u64, why: &End<P::Error>) -> Vec<Entry<P>> {
        let mut displaced = Vec::new();
        // After its last answer the peer handles no more requests, so none of the later requests has ended the
        // connection. Their repeat does not count: a peer may answer one request per connection without making others fail.
        let counts = !matches!(why, End::LastAnswer);
        for written in self.book.take_written() {
            let Some(reply) = written.waiter else {
                self.lane().release(1); // A tombstone.
                continue;
            };
            let mut job = written.request;
            let was_sent = written.span.start < sent;
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
                // This request may have ended the connection. RFC 9112, 9.3.2 forbids to pipeline it again at once.
                job.is_alone |= is_repeat && self.core.protocol.matching() == Matching::Ordered;
                displaced.push(Entry { job, reply });
            }
        }
        displaced
    }

    fn may_repeat(&self, job: &Job<P>) -> bool {
        job.repeats < self.core.config.repeat_max
    }

    /// Closes the lane until the next attempt. All requests go to another connection or fail.
    fn redirect_all(&mut self, mut displaced: Vec<Entry<P>>) {
        let inbox = self.lane().close();
        displaced.extend(self.book.take_waiting().into_iter().map(|(job, reply)| Entry { job, reply }));
        displaced.extend(inbox);
        self.redirect(displaced, false);
    }

    /// Gives the requests to other connections. Those that no connection takes stay here before all others, or fail.
    fn redirect(&mut self, displaced: Vec<Entry<P>>, may_stay: bool) {
        let mut staying = Vec::new();
        for entry in displaced {
            let mut slot = Some(entry);
            let refusal = match self.core.dispatch(&mut slot, Some(self.index)) {
                Ok(_) => {
                    self.counters().repeated.increment();
                    self.lane().release(1);
                    continue;
                }
                Err(refusal) => refusal,
            };
            let entry = slot.expect("no lane took it");
            if may_stay {
                staying.push(entry);
            } else {
                self.abandon(entry, refusal);
            }
        }
        for Entry { job, reply } in staying.into_iter().rev() {
            self.counters().repeated.increment();
            let (is_alone, at) = (job.is_alone, self.tick_after(job.deadline));
            self.book.accept_first(job, reply, is_alone, at);
        }
    }

    fn abandon(&self, Entry { job, reply }: Entry<P>, refusal: NoRoom) {
        let counters = self.counters();
        if job.was_sent {
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
