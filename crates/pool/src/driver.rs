//! The task of one connection: it connects, serves, and decides about requests while there is no connection.
//!
//! ```text
//!            ┌──────────────── pause (back-off) ◄──────────────┐
//!            ▼                                                 │ failed: what waits goes elsewhere or fails
//! start ─► connect ──────────────────────────────────────────► ┤
//!            ▲  └─► serve ─┬─► drained: goodbye, end           │
//!            │             └─► broken ─► was it of use?  no ───┘
//!            └──────── at once ────────────┘ yes: what waits, and may wait, waits
//! ```
//!
//! A connection was *of use* if it brought an answer or lasted at least `reconnect.min`. Servers close idle
//! connections, and busy ones after a number of requests. If a peer closes a connection that was of use, a new one is
//! made at once, and requests are still accepted during this one attempt. So a peer that accepts and closes at once is
//! met with back-off, and a peer that only renews its connections costs no request.
//!
//! One task owns the [`Book`] and the socket; callers reach it through the [`Lane`]. In one step it takes the whole
//! inbox, reads, decodes all answers, encodes the requests that may be written, and writes them with one vectored
//! write. Then it sleeps until the socket, a caller or the timer wheel wakes it. On cancel (the pool was dropped, or
//! the deadline of its drain has passed) it is aborted: sockets are closed and every request ends with `Closed`.

mod aftermath;
mod connection;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};
use tracing::{debug, info};

use crate::backoff::Backoff;
use crate::book::{Answered, Book, Expired};
use crate::config::Reconnect;
use crate::connect::{Connect, Transport};
use crate::core::Core;
use crate::counters::{Counter, LaneCounters};
use crate::error::{CallError, Violation};
use crate::lane::{Entry, Lane, Outcome, Phase, Reply};
use crate::protocol::{Protocol, To};

use connection::{Connection, End, establish};

/// One tick of the wheel is a millisecond, the precision of tokio's timers.
const TICK: Duration = Duration::from_millis(1);
/// How many reads are made before other tasks get their turn.
const READS_PER_STEP: usize = 8;
/// How long a goodbye may take.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(1);

/// A request in the book.
struct Job<P: Protocol> {
    request: P::Request,
    deadline: Instant,
    is_alone: bool,
    was_sent: bool,
    repeats: u32,
}

/// The whole life of one connection's place in the pool.
pub(crate) fn run<P: Protocol, C: Connect>(
    core: Arc<Core<P>>,
    index: usize,
    connector: Arc<C>,
) -> impl Future<Output = ()> + Send {
    // Made here, because a task that is aborted before its first step never gets to make it, and nobody would end what
    // is in the inbox.
    drive(Driver::new(core, index), connector)
}

async fn drive<P: Protocol, C: Connect>(mut driver: Driver<P>, connector: Arc<C>) {
    let core = Arc::clone(&driver.core);
    let Reconnect { min, max } = core.config.reconnect;
    let mut backoff = Backoff::new(min, max);
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
                let was_of_use = connection.was_of_use(min, Instant::now());
                if was_of_use {
                    backoff.on_success();
                }
                if driver.on_end(&end, connection, was_of_use) {
                    continue;
                }
            }
            Some(Err(error)) => driver.on_failed(&error),
        }
        if driver.pause(backoff.on_failed(rand::random())).await.is_none() {
            return;
        }
    }
}

struct Driver<P: Protocol> {
    core: Arc<Core<P>>,
    index: usize,
    book: Book<Job<P>, Reply<P>>,
    /// What came out of the inbox; kept for its memory.
    taken: Vec<Entry<P>>,
    is_draining: bool,
    /// Tick 0.
    epoch: Instant,
    alarm: Pin<Box<Sleep>>,
    /// The tick the alarm is set for; `u64::MAX` when it is not. It may be set too early, never too late.
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

    /// Waits for `attempt` while requests come in and expire. None: drained, and nobody waits for it.
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

    /// Waits between attempts, while the inbox is closed, or shorter where a connection is wanted. None: drained.
    async fn pause(&mut self, wait: Duration) -> Option<()> {
        let (mut wanted, min) = (self.core.wanted.subscribe(), self.core.config.reconnect.min);
        let mut end = pin!(async move {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = async {
                    tokio::time::sleep(min).await;
                    _ = wanted.changed().await; // The sender lives as long as this task.
                } => {}
            }
        });
        poll_fn(|cx| {
            self.take(cx);
            if self.is_draining { Poll::Ready(None) } else { end.as_mut().poll(cx).map(Some) }
        })
        .await
    }

    /// One step of a connection that is up.
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
            let is_road_blocked = owing > 0 && self.book.is_one_alone();
            if is_road_blocked || owing >= self.core.config.tombstone_max.min(self.core.config.in_flight_max) {
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

    /// Moves what is in the inbox into the book.
    fn take(&mut self, cx: &Context<'_>) {
        let mut taken = std::mem::take(&mut self.taken);
        let signals = self.lane().poll_take(&mut taken, cx);
        for Entry { request, deadline, is_alone, was_sent, repeats, reply } in taken.drain(..) {
            let at = self.tick_after(deadline);
            self.book.accept(Job { request, deadline, is_alone, was_sent, repeats }, reply, is_alone, at);
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

    /// Reads, decodes, encodes and writes until there is no more to do at present.
    fn transfer<T: Transport>(
        &mut self,
        connection: &mut Connection<P, T>,
        now: Instant,
        cx: &mut Context<'_>,
    ) -> Result<(), End<P::Error>> {
        for _ in 0..READS_PER_STEP {
            let has_read = self.read(connection, now, cx)?;
            if let Err(error) = self.write(connection, now, cx) {
                // What the peer said before it hung up may still lie in the socket.
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

    /// Reads once and decodes what came; false when nothing has come.
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
            return Err(End::Violation(Violation::Unsolicited)); // It would be the answer to what was never asked.
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

    /// Encodes and writes until nothing may be encoded or the socket takes no more.
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
            let is_all_leaving = self.book.in_flight_count() == 0 && !connection.is_owed;
            if count > 0 && (is_oldest || is_all_leaving) {
                connection.heard_at = now; // A large request is still on its way: no answer can be expected.
            }
            while let Some((key, response)) = connection.pop_left() {
                if let Some(reply) = self.book.left(key) {
                    end(reply, Ok(response), &self.counters().answered, self.counters());
                }
                self.lane().release(1);
            }
            match progress {
                // What was written has made room, or has left the road to one that travels alone.
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
                Ok((span, Some(response))) => connection.leaving.push_back((self.book.leave(span), span.end, response)),
                Err(error) => {
                    end(self.book.refuse(), Err(CallError::Refused(error)), &lane.counters.refused, &lane.counters);
                    lane.release(1);
                    continue;
                }
            }
            if is_at_rest {
                connection.heard_at = now; // Silence counts from the first request on.
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
        // Whether it gets there is the peer's loss.
        let _ = tokio::time::timeout(GOODBYE_TIMEOUT, connection.say_goodbye()).await;
    }

    /// Ends the lane: whoever is still in it is told `Closed`.
    fn close(&mut self) {
        let inbox = self.lane().close();
        let held = self.book.len() - self.book.tombstone_count() + inbox.len();
        self.counters().closed.add(held as u64);
        self.lane().release(self.book.len() + inbox.len());
        drop(inbox);
        drop(self.book.strand());
        drop(self.book.take_waiting());
        self.publish();
    }

    /// Tells what is held.
    fn publish(&self) {
        let tombstones = self.book.tombstone_count();
        self.counters().tombstones.store(tombstones, Relaxed);
        self.counters().in_flight.store(self.book.in_flight_count().saturating_sub(tombstones), Relaxed);
    }

    /// Sees to being woken at `tick`; true when it has come.
    fn poll_alarm(&mut self, tick: Option<u64>, cx: &mut Context<'_>) -> bool {
        let Some(tick) = tick else { return false };
        if tick < self.alarm_tick {
            // An alarm is only ever moved forward: one that rings too early costs less than moving it with every
            // request that is answered.
            self.alarm.as_mut().reset(self.epoch + Duration::from_millis(tick));
            self.alarm_tick = tick;
        }
        let has_rung = self.alarm.as_mut().poll(cx).is_ready();
        if has_rung {
            self.alarm_tick = u64::MAX;
        }
        has_rung
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
    /// However the task ends, also by a panic of the codec, the lane takes no more and everybody is told.
    fn drop(&mut self) {
        self.close();
    }
}

/// Hands an outcome over and counts it.
fn end<P: Protocol>(reply: Reply<P>, outcome: Outcome<P>, counter: &Counter, counters: &LaneCounters) {
    let is_wanted = reply.finish(outcome);
    if is_wanted { counter.increment() } else { counters.cancelled.increment() }
}
