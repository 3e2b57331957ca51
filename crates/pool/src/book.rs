//! The requests of one connection and their states.
//!
//! ```text
//!  accept ─► waiting ──write──► in flight ──answer──► ended
//!               │ ╲                 │ expire, ordered
//!         expire│  ╲write_one_way   ▼
//!               ▼   ▼           tombstone ──answer──► ended (late)
//!            ended one-way ──one_way_written──► ended
//! ```
//!
//! - *Waiting*: not written yet; first in, first out.
//! - *In flight*: written, without an answer yet.
//! - *Tombstone*: in flight, but its deadline has passed. An ordered protocol needs the entry for the late answer. A
//!   protocol with ids has no tombstones.
//! - *One-way*: being written. It gets no answer, and ends with its last byte.
//!
//! An `R` is a request, kept until its entry is freed. A `W` waits for the request's end, and leaves the book exactly once.
//! A core: no clock (the caller passes ticks), no I/O. Bounds: `backlog_max`, which the caller checks, and `in_flight_max`,
//! which is checked here.

use std::collections::{HashMap, VecDeque};

use slab::Slab;

use crate::protocol::{Matching, RequestId, To};
use crate::wheel::{TimerKey, Wheel};

/// The key of a request in the book.
pub(crate) type Key = usize;

#[derive(Debug)]
pub(crate) struct Book<R, W> {
    places: Slab<Place<R, W>>,
    waiting: VecDeque<Key>,
    flight: Flight,
    in_flight_max: usize,
    /// Requests that travel alone and are in flight: 0 or 1.
    alone_in_flight: usize,
    one_way_count: usize,
    tombstone_count: usize,
    wheel: Wheel<Key>,
}

#[derive(Debug)]
struct Place<R, W> {
    request: R,
    /// The waiter and its deadline. `None` for tombstones.
    waiter: Option<(W, TimerKey)>,
    is_alone: bool,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    InFlight { id: RequestId, span: Span },
    OneWay { span: Span },
}

/// The bytes of a request: the positions of the first byte and of the byte after the last, among all bytes written on the
/// connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

#[derive(Debug)]
enum Flight {
    Ordered { keys: VecDeque<Key>, next: RequestId },
    ById { keys: HashMap<RequestId, Key>, next: RequestId, id_count: u64, all_used: bool },
}

/// The request that an answer belongs to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answered<W> {
    /// A request with this waiter.
    Waiter(W),
    /// A tombstone. Its entry is free now.
    Tombstone,
    /// A request that has ended: the id was used but is not in flight.
    Forgotten,
    /// No request.
    Unknown,
}

/// A waiter whose deadline has passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired<W> {
    pub(crate) waiter: W,
    pub(crate) was_written: bool,
    /// Whether the entry of the request is free now.
    pub(crate) is_place_free: bool,
}

/// A request that was written on a connection that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Written<R, W> {
    pub(crate) request: R,
    /// `None` for a tombstone.
    pub(crate) waiter: Option<W>,
    pub(crate) span: Span,
}

impl<R, W> Book<R, W> {
    pub(crate) fn new(matching: Matching, in_flight_max: usize) -> Self {
        let flight = match matching {
            Matching::Ordered => Flight::Ordered { keys: VecDeque::new(), next: 0 },
            Matching::ById { id_count } => {
                Flight::ById { keys: HashMap::new(), next: 0, id_count: id_count.max(1), all_used: false }
            }
        };
        let in_flight_max = match matching {
            Matching::Ordered => in_flight_max,
            Matching::ById { id_count } => in_flight_max.min(usize::try_from(id_count.max(1)).unwrap_or(usize::MAX)),
        };
        Self {
            places: Slab::new(),
            waiting: VecDeque::new(),
            flight,
            in_flight_max,
            alone_in_flight: 0,
            one_way_count: 0,
            tombstone_count: 0,
            wheel: Wheel::new(),
        }
    }

    /// Adds a request that expires at tick `at`, after all waiting requests.
    pub(crate) fn accept(&mut self, request: R, waiter: W, is_alone: bool, at: u64) {
        let key = self.place(request, waiter, is_alone, at);
        self.waiting.push_back(key);
    }

    /// Adds a request that expires at tick `at`, before all waiting requests.
    pub(crate) fn accept_first(&mut self, request: R, waiter: W, is_alone: bool, at: u64) {
        let key = self.place(request, waiter, is_alone, at);
        self.waiting.push_front(key);
    }

    fn place(&mut self, request: R, waiter: W, is_alone: bool, at: u64) -> Key {
        let entry = self.places.vacant_entry();
        let timer = self.wheel.insert(at, entry.key());
        let key = entry.key();
        entry.insert(Place { request, waiter: Some((waiter, timer)), is_alone, state: State::Waiting });
        key
    }

    /// The request to write next, with its id, if one may be written now.
    pub(crate) fn next_to_write(&mut self) -> Option<(RequestId, &R, &W)> {
        let key = *self.waiting.front()?;
        let is_alone = self.places[key].is_alone;
        let count = self.in_flight_count();
        let must_wait = is_alone && (count > 0 || self.one_way_count > 0);
        if self.alone_in_flight > 0 || must_wait || count >= self.in_flight_max {
            return None;
        }
        let id = self.flight.next_id();
        let place = &self.places[key];
        let (waiter, _) = place.waiter.as_ref().expect("a waiting request has a waiter");
        Some((id, &place.request, waiter))
    }

    /// Notes that the request from [`Book::next_to_write`] was encoded and needs an answer.
    pub(crate) fn write(&mut self, span: Span) {
        let key = self.waiting.pop_front().expect("`next_to_write` has shown it");
        let id = self.flight.push(key);
        let place = &mut self.places[key];
        place.state = State::InFlight { id, span };
        self.alone_in_flight += usize::from(place.is_alone);
    }

    /// Notes that the request from [`Book::next_to_write`] was encoded and gets no answer. It ends with
    /// [`Book::one_way_written`].
    pub(crate) fn write_one_way(&mut self, span: Span) -> Key {
        let key = self.waiting.pop_front().expect("`next_to_write` has shown it");
        self.places[key].state = State::OneWay { span };
        self.one_way_count += 1;
        key
    }

    /// Removes the request from [`Book::next_to_write`].
    pub(crate) fn refuse(&mut self) -> W {
        let key = self.waiting.pop_front().expect("`next_to_write` has shown it");
        let (_, waiter) = self.free(key);
        waiter.expect("a waiting request has a waiter")
    }

    /// Removes a one-way request whose last byte was written. `None` if it has expired.
    pub(crate) fn one_way_written(&mut self, key: Key) -> Option<W> {
        let (place, waiter) = self.free(key);
        debug_assert!(matches!(place.state, State::OneWay { .. }), "only a one-way request ends so");
        self.one_way_count -= 1;
        self.tombstone_count -= usize::from(waiter.is_none());
        waiter
    }

    /// For an ordered protocol, the request that the next answer belongs to, and its span.
    pub(crate) fn oldest(&self) -> Option<(&R, Span)> {
        let Flight::Ordered { keys, .. } = &self.flight else { return None };
        let place = &self.places[*keys.front()?];
        match place.state {
            State::InFlight { span, .. } => Some((&place.request, span)),
            State::Waiting | State::OneWay { .. } => None,
        }
    }

    /// Ends the request that an answer belongs to.
    pub(crate) fn answer(&mut self, to: To) -> Answered<W> {
        let key = match (&mut self.flight, to) {
            (Flight::Ordered { keys, .. }, to) => {
                let Some(key) = keys.front() else { return Answered::Unknown };
                let is_right = match (to, self.places[*key].state) {
                    (To::Oldest, _) => true,
                    (To::Id(wanted), State::InFlight { id, .. }) => wanted == id,
                    (To::Id(_), _) => false,
                };
                if !is_right {
                    return Answered::Unknown;
                }
                keys.pop_front().expect("`front` has returned it")
            }
            (Flight::ById { .. }, To::Oldest) => return Answered::Unknown,
            (Flight::ById { keys, next, id_count, all_used }, To::Id(id)) => match keys.remove(&id) {
                Some(key) => key,
                None if id < *next || (*all_used && id < *id_count) => return Answered::Forgotten,
                None => return Answered::Unknown,
            },
        };
        let (place, waiter) = self.free(key);
        self.alone_in_flight -= usize::from(place.is_alone);
        match waiter {
            Some(waiter) => Answered::Waiter(waiter),
            None => {
                self.tombstone_count -= 1;
                Answered::Tombstone
            }
        }
    }

    /// Advances to tick `now`. Passes the waiters whose deadline has passed, with their requests, to `on_expired`.
    pub(crate) fn expire(&mut self, now: u64, mut on_expired: impl FnMut(&R, Expired<W>)) {
        let Self { places, wheel, flight, tombstone_count, alone_in_flight, .. } = self;
        let mut has_waiting = false;
        wheel.advance(now, |key| {
            let place = &mut places[key];
            let (waiter, _) = place.waiter.take().expect("a request with a timer has a waiter");
            let was_written = place.state != State::Waiting;
            let is_place_free = match (place.state, &mut *flight) {
                (State::Waiting, _) => {
                    has_waiting = true; // Removed below, with all others of this tick.
                    true
                }
                (State::InFlight { id, .. }, Flight::ById { keys, .. }) => {
                    keys.remove(&id);
                    *alone_in_flight -= usize::from(place.is_alone);
                    true
                }
                (State::InFlight { .. } | State::OneWay { .. }, _) => {
                    *tombstone_count += 1;
                    false
                }
            };
            on_expired(&place.request, Expired { waiter, was_written, is_place_free });
            if was_written && is_place_free {
                places.remove(key);
            }
        });
        if has_waiting {
            self.drop_waiting(|place| place.waiter.is_none(), |_, _| {});
        }
    }

    /// Removes the waiting requests whose waiter is `gone`.
    pub(crate) fn sweep(&mut self, gone: impl Fn(&W) -> bool, mut on_gone: impl FnMut(W)) {
        let gone = |place: &Place<R, W>| place.waiter.as_ref().is_some_and(|(waiter, _)| gone(waiter));
        self.drop_waiting(gone, |waiter, wheel| {
            if let Some((waiter, timer)) = waiter {
                wheel.remove(timer);
                on_gone(waiter);
            }
        });
    }

    fn drop_waiting(
        &mut self,
        unwanted: impl Fn(&Place<R, W>) -> bool,
        mut on_dropped: impl FnMut(Option<(W, TimerKey)>, &mut Wheel<Key>),
    ) {
        let Self { places, waiting, wheel, .. } = self;
        waiting.retain(|key| {
            let is_unwanted = unwanted(&places[*key]);
            if is_unwanted {
                on_dropped(places.remove(*key).waiter, wheel);
            }
            !is_unwanted
        });
    }

    /// Removes all written requests, the oldest first, because the connection has ended. Ids start again.
    pub(crate) fn take_written(&mut self) -> Vec<Written<R, W>> {
        let mut written: Vec<Written<R, W>> = Vec::new();
        let keys: Vec<Key> =
            self.places.iter().filter(|(_, p)| p.state != State::Waiting).map(|(key, _)| key).collect();
        for key in keys {
            let (place, waiter) = self.free(key);
            if let State::InFlight { span, .. } | State::OneWay { span } = place.state {
                written.push(Written { request: place.request, waiter, span });
            }
        }
        written.sort_by_key(|request| request.span.start);
        self.flight.clear();
        (self.alone_in_flight, self.one_way_count, self.tombstone_count) = (0, 0, 0);
        written
    }

    /// Removes all waiting requests, in order.
    pub(crate) fn take_waiting(&mut self) -> Vec<(R, W)> {
        let keys = std::mem::take(&mut self.waiting);
        let taken = keys.into_iter().map(|key| {
            let (place, waiter) = self.free(key);
            (place.request, waiter.expect("a waiting request has a waiter"))
        });
        taken.collect()
    }

    /// Frees an entry and its timer.
    fn free(&mut self, key: Key) -> (Freed<R>, Option<W>) {
        let Place { request, waiter, is_alone, state } = self.places.remove(key);
        let waiter = waiter.map(|(waiter, timer)| {
            self.wheel.remove(timer);
            waiter
        });
        (Freed { request, is_alone, state }, waiter)
    }

    /// No timer fires before this tick.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        self.wheel.next_tick()
    }

    /// The number of requests, tombstones included.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The number of requests in flight, tombstones included.
    pub(crate) fn in_flight_count(&self) -> usize {
        self.flight.len()
    }

    /// Whether a request that travels alone is in flight, even as a tombstone.
    pub(crate) fn is_one_alone(&self) -> bool {
        self.alone_in_flight > 0
    }

    /// The number of written requests that have expired.
    pub(crate) fn tombstone_count(&self) -> usize {
        self.tombstone_count
    }
}

/// The content of a freed entry.
struct Freed<R> {
    request: R,
    is_alone: bool,
    state: State,
}

impl Flight {
    fn len(&self) -> usize {
        match self {
            Self::Ordered { keys, .. } => keys.len(),
            Self::ById { keys, .. } => keys.len(),
        }
    }

    /// The id of the next request: the next id that is not in flight.
    fn next_id(&mut self) -> RequestId {
        match self {
            Self::Ordered { next, .. } => *next,
            Self::ById { keys, next, id_count, all_used } => {
                while *next >= *id_count || keys.contains_key(next) {
                    let is_end = *next >= *id_count;
                    *all_used |= is_end;
                    *next = if is_end { 0 } else { *next + 1 };
                }
                *next
            }
        }
    }

    fn push(&mut self, key: Key) -> RequestId {
        let id = self.next_id();
        match self {
            Self::Ordered { keys, next } => {
                keys.push_back(key);
                *next += 1;
            }
            Self::ById { keys, next, .. } => {
                keys.insert(id, key);
                *next += 1;
            }
        }
        id
    }

    fn clear(&mut self) {
        match self {
            Self::Ordered { keys, next } => {
                keys.clear();
                *next = 0;
            }
            Self::ById { keys, next, all_used, .. } => {
                keys.clear();
                (*next, *all_used) = (0, false);
            }
        }
    }
}

#[cfg(test)]
mod tests;
