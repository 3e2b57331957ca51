//! The task of one connection. It connects, transfers requests and answers, and handles the requests while there is no
//! connection.
//!
//! ```text
//!            ┌──────────────── pause (back-off) ◄──────────────┐
//!            ▼                                                 │ failed: requests go to other lanes or fail
//! start ─► connect ──────────────────────────────────────────► ┤
//!            ▲  └─► serve ─┬─► drained: goodbye, end           │
//!            │             └─► broken ─► was it useful?  no ───┘
//!            └──────── at once ────────────┘ yes: requests wait for the next connection
//! ```
//!
//! A connection was *useful* if it brought an answer or lasted at least `reconnect.min`. Servers close idle connections,
//! and busy connections after a number of requests. If a peer closes a useful connection, a new one is made at once, and
//! requests are still accepted during this one attempt. So a peer that only renews its connections costs no request. For
//! a peer that accepts and closes at once, the pool backs off.
//!
//! One task owns the [`Book`] and the socket; callers reach it through the [`Lane`]. In one step it takes the whole
//! inbox, reads, decodes all answers, encodes the requests that may be written, and writes them with one vectored
//! write. Then it sleeps until the socket, a caller or the timer wheel wakes it. On cancel (the pool was dropped, or
//! the deadline of its drain has passed) it is aborted: sockets are closed and every request ends with `Closed`.

mod connection;
mod recovery;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use tidings_types::Backoff;
use tokio::time::{Instant, Sleep};
use tracing::{debug, info};

use crate::book::{Answered, Book, Expired};
use crate::config::Reconnect;
use crate::connect::{Connect, Transport};
use crate::core::Core;
use crate::counters::{Counter, LaneCounters};
use crate::error::{CallError, Violation};
use crate::lane::{Entry, Job, Lane, Outcome, Phase, Reply};
use crate::protocol::{Protocol, To};

use connection::{Connection, End, establish};

/// One tick of the wheel: the precision of tokio's timers.
const TICK: Duration = Duration::from_millis(1);
/// After this many reads, other tasks get a turn.
const READS_PER_STEP: usize = 8;
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs one lane of the pool until the pool ends.
pub(crate) fn run<P: Protocol, C: Connect>(
    core: Arc<Core<P>>,
    index: usize,
    connector: Arc<C>,
) -> impl Future<Output = ()> + Send {
    // The driver is made before the task runs. A task that is aborted before its first step would never make it, and then
    // nothing would end the requests in the inbox.
    drive(Driver::new(core, index), connector)
}

async fn drive<P: Protocol, C: Connect>(mut driver: Driver<P>, connector: Arc<C>) {
    let core = Arc::clone(&driver.core);
    let Reconnect { min, max } = core.config.reconnect;
    let (backoff, mut failures) = (Backoff::new(min, max).at_least(min), 0_u32);
    loop {
        let attempt = establish(&core, &*connector);
        match driver.connect(attempt).await {
            None => return,
            Some(Ok(mut connection)) => {
                driver.on_up();
                let end = poll_fn(|cx| driver.poll(&mut connection, cx)).await;
                if matches!(end, End::Drained) {
                    driver.say_goodbye(connection).await;
                    return;
                }
                let was_useful = connection.was_useful(min, Instant::now());
                if was_useful {
                    failures = 0;
                }
                if driver.on_end(&end, connection, was_useful) {
                    continue;
                }
            }
            Some(Err(error)) => driver.on_failed(&error),
        }
        failures = failures.saturating_add(1);
        if driver.pause(backoff.pause(failures, rand::random())).await.is_none() {
            return;
        }
    }
}

struct Driver<P: Protocol> {
    core: Arc<Core<P>>,
    index: usize,
    book: Book<Job<P>, Reply<P>>,
    /// A buffer for the content of the inbox, reused.
    taken: Vec<Entry<P>>,
    is_draining: bool,
    /// The time of tick 0.
    epoch: Instant,
    alarm: Pin<Box<Sleep>>,
    /// The tick of the alarm; `u64::MAX` if it is not set. It may be too early, but never too late.
    alarm_tick: u64,
}

impl<P: Protocol> Driver<P> {
    fn new(core: Arc<Core<P>>, index: usize) -> Self {
        let epoch = Instant::now();
        Self {
            book: Book::new(core.protocol.matching(), core.config.in_flight_max),
            core,
            index,
            taken: Vec::new(),
            is_draining: false,
            epoch,
            alarm: Box::pin(tokio::time::sleep_until(epoch)),
            alarm_tick: u64::MAX,
        }
    }

    fn lane(&self) -> &Lane<P> {
        &self.core.lanes[self.index]
    }

    fn counters(&self) -> &LaneCounters {
        &self.lane().counters
    }

    /// Waits for `attempt` while requests come in and expire. `None` if the lane is draining and has no request.
    async fn connect<T, E>(&mut self, attempt: impl Future<Output = Result<T, E>>) -> Option<Result<T, E>> {
        let mut attempt = pin!(attempt);
        poll_fn(|cx| {
            loop {
                let now = Instant::now();
                self.take(cx);
                self.expire(now);
                if self.is_draining && self.book.is_empty() {
                    return Poll::Ready(None);
                }
                if let Poll::Ready(result) = attempt.as_mut().poll(cx) {
                    return Poll::Ready(Some(result));
                }
                if !self.poll_alarm(self.book.next_tick(), cx) {
                    return Poll::Pending;
                }
            }
        })
        .await
    }

    /// Waits between two attempts, with a closed inbox. Ends early if a connection is wanted. `None` when draining.
    async fn pause(&mut self, wait: Duration) -> Option<()> {
        let (mut wanted, min) = (self.core.wanted.subscribe(), self.core.config.reconnect.min);
        let mut end = pin!(async move {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = async {
                    tokio::time::sleep(min).await;
                    _ = wanted.changed().await; // The sender is not dropped before this task.
                } => {}
            }
        });
        poll_fn(|cx| {
            self.take(cx);
            if self.is_draining { Poll::Ready(None) } else { end.as_mut().poll(cx).map(Some) }
        })
        .await
    }

    /// Runs the steps of a connection that is up.
    fn poll<T: Transport>(&mut self, connection: &mut Connection<P, T>, cx: &mut Context<'_>) -> Poll<End<P::Error>> {
        loop {
            let now = Instant::now();
            self.take(cx);
            self.expire(now);
            let result = self.transfer(connection, now, cx);
            self.publish();
            if let Err(end) = result {
                return Poll::Ready(end);
            }
            let owing = self.book.tombstone_count();
            if self.is_draining && self.book.len() == owing {
                return Poll::Ready(End::Drained);
            }
            let is_blocked = owing > 0 && self.book.is_one_alone();
            if is_blocked || owing >= self.core.config.tombstone_max.min(self.core.config.in_flight_max) {
                return Poll::Ready(End::Owing(owing));
            }
            let silent_at = connection.silent_at(&self.book, self.core.config.silence_max);
            if silent_at.is_some_and(|at| at <= now) {
                return Poll::Ready(End::Silent);
            }
            let silent_tick = silent_at.map(|at| self.tick_after(at));
            if !self.poll_alarm(self.book.next_tick().into_iter().chain(silent_tick).min(), cx) {
                return Poll::Pending;
            }
        }
    }

    /// Moves the requests of the inbox into the book.
    fn take(&mut self, cx: &Context<'_>) {
        let mut taken = std::mem::take(&mut self.taken);
        let signals = self.lane().poll_take(&mut taken, cx);
        for Entry { job, reply } in taken.drain(..) {
            let (is_alone, at) = (job.is_alone, self.tick_after(job.deadline));
            self.book.accept(job, reply, is_alone, at);
        }
        self.taken = taken;
        self.is_draining |= signals.drain;
        if signals.sweep {
            let lane = &self.core.lanes[self.index];
            self.book.sweep(Reply::is_gone, |reply| {
                reply.disarm();
                lane.counters.cancelled.increment();
                lane.release(1);
            });
        }
    }

    fn expire(&mut self, now: Instant) {
        let lane = &self.core.lanes[self.index];
        let tick = self.epoch_ticks(now);
        self.book.expire(tick, |job, Expired { waiter, was_written, is_place_free }| {
            let sent = was_written || job.was_sent;
            end(waiter, Err(CallError::Timeout { sent }), &lane.counters.timed_out, &lane.counters);
            lane.release(usize::from(is_place_free));
        });
    }

    /// Reads, decodes, encodes and writes until there is nothing more to do now.
    fn transfer<T: Transport>(
        &mut self,
        connection: &mut Connection<P, T>,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Result<(), End<P::Error>> {
        for _ in 0..READS_PER_STEP {
            let has_read = self.read(connection, now, cx)?;
            if let Err(error) = self.write(connection, now, cx) {
                // The socket may still have bytes that the peer sent before it closed.
                while self.read(connection, now, cx)? {}
                return Err(End::Broken(error));
            }
            if !has_read {
                return Ok(());
            }
        }
        cx.waker().wake_by_ref();
        Ok(())
    }

    /// Reads once and decodes the input. Returns false if there was nothing to read.
    fn read<T: Transport>(
        &mut self,
        connection: &mut Connection<P, T>,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Result<bool, End<P::Error>> {
        let count = match connection.poll_read(cx) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Err(error)) => return Err(End::Broken(error)),
            Poll::Ready(Ok(count)) => count,
        };
        (connection.heard_at, connection.is_owed) = (now, false);
        self.counters().bytes_received.add(count as u64);
        if count == 0 && !connection.is_datagram {
            let oldest = self.book.oldest().filter(|(_, span)| connection.has_begun(*span));
            let oldest = oldest.map(|(job, _)| &job.request);
            if let Some(response) = connection.end_of_input(oldest)? {
                self.answer(connection, To::Oldest, response)?;
                return Err(End::LastAnswer);
            }
            return Err(End::Closed);
        }
        self.decode(connection)?;
        Ok(true)
    }

    fn decode<T: Transport>(&mut self, connection: &mut Connection<P, T>) -> Result<(), End<P::Error>> {
        let limit = self.core.config.input_bytes_max;
        loop {
            let oldest = self.book.oldest().filter(|(_, span)| connection.has_begun(*span));
            let oldest = oldest.map(|(job, _)| &job.request);
            match connection.decode(oldest, limit)? {
                connection::Found::Nothing => return Ok(()),
                connection::Found::Useless => self.counters().late.increment(),
                connection::Found::Answer { to, response, closes } => {
                    self.answer(connection, to, response)?;
                    if closes {
                        return Err(End::LastAnswer);
                    }
                }
            }
        }
    }

    fn answer<T: Transport>(
        &mut self,
        connection: &mut Connection<P, T>,
        to: To,
        response: P::Response,
    ) -> Result<(), End<P::Error>> {
        if self.book.oldest().is_some_and(|(_, span)| !connection.has_begun(span)) && !connection.is_datagram {
            return Err(End::Violation(Violation::Unsolicited)); // The peer has not seen the request yet.
        }
        match self.book.answer(to) {
            Answered::Waiter(reply) => {
                connection.has_answered = true;
                end(reply, Ok(response), &self.counters().answered, self.counters());
                self.lane().release(1);
            }
            Answered::Tombstone => {
                connection.has_answered = true;
                self.counters().late.increment();
                self.lane().release(1);
            }
            Answered::Forgotten => self.counters().late.increment(),
            Answered::Unknown if connection.is_datagram => self.counters().late.increment(),
            Answered::Unknown => return Err(End::Violation(Violation::Unsolicited)),
        }
        Ok(())
    }

    /// Encodes and writes until nothing may be encoded or the socket is full.
    fn write<T: Transport>(
        &mut self,
        connection: &mut Connection<P, T>,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> std::io::Result<()> {
        loop {
            let has_encoded = self.encode(connection, now);
            let was_written = connection.out.written();
            let progress = connection.poll_write(cx);
            let count = connection.out.written() - was_written;
            self.counters().bytes_sent.add(count);
            let is_oldest = self.book.oldest().is_some_and(|(_, span)| span.end > was_written);
            let is_all_one_way = self.book.in_flight_count() == 0 && !connection.is_owed;
            if count > 0 && (is_oldest || is_all_one_way) {
                connection.heard_at = now; // The peer cannot answer while a large request is still being written.
            }
            while let Some((key, response)) = connection.pop_one_way() {
                if let Some(reply) = self.book.one_way_written(key) {
                    end(reply, Ok(response), &self.counters().answered, self.counters());
                }
                self.lane().release(1);
            }
            match progress {
                // Writing has made room, or the connection is now free for a request that travels alone.
                Poll::Ready(Ok(())) if has_encoded || count > 0 => {}
                Poll::Ready(result) => return result,
                Poll::Pending => return Ok(()),
            }
        }
    }

    fn encode<T: Transport>(&mut self, connection: &mut Connection<P, T>, now: Instant) -> bool {
        let lane = &self.core.lanes[self.index];
        let mut has_encoded = false;
        while connection.out.len() < self.core.config.output_bytes_max {
            let is_at_rest = connection.is_at_rest(&self.book);
            let Some((id, job, reply)) = self.book.next_to_write() else { break };
            if reply.is_gone() {
                self.book.refuse().disarm();
                lane.counters.cancelled.increment();
                lane.release(1);
                continue;
            }
            match connection.encode(&job.request, id) {
                Ok((span, None)) => {
                    self.book.write(span);
                    connection.is_owed = true;
                }
                Ok((span, Some(response))) => {
                    connection.one_way.push_back((self.book.write_one_way(span), span.end, response))
                }
                Err(error) => {
                    end(self.book.refuse(), Err(CallError::Refused(error)), &lane.counters.refused, &lane.counters);
                    lane.release(1);
                    continue;
                }
            }
            if is_at_rest {
                connection.heard_at = now; // Silence counts from the first request.
            }
            lane.counters.sent.increment();
            has_encoded = true;
        }
        has_encoded
    }

    fn on_up(&self) {
        self.counters().connects.increment();
        self.lane().set_phase(Phase::Up);
        let pool = &self.core.config.name;
        if self.core.is_in_trouble.swap(false, Relaxed) {
            info!(%pool, connection = self.index, "Connected again");
        } else {
            debug!(%pool, connection = self.index, "Connected");
        }
    }

    /// Closes the lane, then the connection.
    async fn say_goodbye<T: Transport>(&mut self, connection: Connection<P, T>) {
        self.close();
        // The connection ends in any case.
        let _ = tokio::time::timeout(GOODBYE_TIMEOUT, connection.say_goodbye()).await;
    }

    /// Ends the lane. Its remaining requests end with `Closed`.
    fn close(&mut self) {
        let inbox = self.lane().close();
        let held = self.book.len() - self.book.tombstone_count() + inbox.len();
        self.counters().closed.add(held as u64);
        self.lane().release(self.book.len() + inbox.len());
        drop(inbox);
        drop(self.book.take_written());
        drop(self.book.take_waiting());
        self.publish();
    }

    /// Updates the counters of requests that have not ended.
    fn publish(&self) {
        let tombstones = self.book.tombstone_count();
        self.counters().tombstones.store(tombstones, Relaxed);
        self.counters().in_flight.store(self.book.in_flight_count().saturating_sub(tombstones), Relaxed);
    }

    /// Wakes the task at `tick`. Returns true once the alarm has fired.
    fn poll_alarm(&mut self, tick: Option<u64>, cx: &mut Context<'_>) -> bool {
        let Some(tick) = tick else { return false };
        if tick < self.alarm_tick {
            // The alarm is moved only to an earlier tick. An alarm that fires too early costs less than moving it at each
            // answer.
            self.alarm.as_mut().reset(self.epoch + Duration::from_millis(tick));
            self.alarm_tick = tick;
        }
        let has_fired = self.alarm.as_mut().poll(cx).is_ready();
        if has_fired {
            self.alarm_tick = u64::MAX;
        }
        has_fired
    }

    /// The tick that is over at `now`.
    fn epoch_ticks(&self, now: Instant) -> u64 {
        u64::try_from((now - self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    /// The first tick that is not before `at`.
    fn tick_after(&self, at: Instant) -> u64 {
        let nanos = at.saturating_duration_since(self.epoch).as_nanos();
        u64::try_from(nanos.div_ceil(TICK.as_nanos())).unwrap_or(u64::MAX)
    }
}

impl<P: Protocol> Drop for Driver<P> {
    /// However the task ends, also by a panic of the codec, the lane closes and its requests end.
    fn drop(&mut self) {
        self.close();
    }
}

/// Sends an outcome and counts it.
fn end<P: Protocol>(reply: Reply<P>, outcome: Outcome<P>, counter: &Counter, counters: &LaneCounters) {
    let is_wanted = reply.finish(outcome);
    if is_wanted { counter.increment() } else { counters.cancelled.increment() }
}
