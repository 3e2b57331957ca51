//! The book of one connection: all its requests and their states.
//!
//! ```text
//!  accept ─► waiting ──write──► in flight ──answer──► ended
//!               │ ╲                 │ expire, ordered
//!         expire│  ╲leave           ▼
//!               ▼   ▼           tombstone ──answer──► ended (late)
//!            ended leaving ──left──► ended
//! ```
//!
//! *Waiting*: not written yet; first in, first out. *In flight*: written, unanswered. *Tombstone*: in flight, but its
//! caller no longer waits. An ordered protocol needs the place for the late answer; a protocol with ids has no
//! tombstones. *Leaving*: being written, will not be answered, and ends with its last byte.
//!
//! An `R` is a request, kept until its place is freed. A `W` waits for the request's end, and leaves the book exactly
//! once. A core: no clock (the caller passes ticks), no I/O. Bounds: `backlog_max`, which the caller checks, and
//! `in_flight_max`, checked here.

use std::collections::{HashMap, VecDeque};

use slab::Slab;

use crate::protocol::{Matching, RequestId, To};
use crate::wheel::{TimerKey, Wheel};

/// A request's place in the book.
pub(crate) type Key = usize;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Book<R, W> {
    places: Slab<Place<R, W>>,
    waiting: VecDeque<Key>,
    flight: Flight,
    in_flight_max: usize,
    /// Requests that travel alone and are in flight: 0 or 1.
    alone_in_flight: usize,
    leaving_count: usize,
    tombstone_count: usize,
    wheel: Wheel<Key>,
}

#[derive(Debug)]
struct Place<R, W> {
    request: R,
    /// Whoever waits, and until when. None for tombstones.
    waiter: Option<(W, TimerKey)>,
    is_alone: bool,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waiting,
    InFlight { id: RequestId, span: Span },
    Leaving { span: Span },
}

/// Positions of a request's first byte and of the one after its last, in all bytes written on the connection.
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

/// Whose answer it was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answered<W> {
    /// This one's, who waits for it.
    Waiter(W),
    /// A tombstone's, whose place is free now.
    Tombstone,
    /// Nobody's any more: the id was given out but is not in flight.
    Forgotten,
    /// Nobody's ever.
    Unknown,
}

/// Someone whose deadline has come.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired<W> {
    pub(crate) waiter: W,
    pub(crate) was_written: bool,
    /// Whether its place is free now.
    pub(crate) is_place_free: bool,
}

/// A request that was written on a connection that is no more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stranded<R, W> {
    pub(crate) request: R,
    /// None: a tombstone.
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
            leaving_count: 0,
            tombstone_count: 0,
            wheel: Wheel::new(),
        }
    }

    /// Takes a request in, to expire at tick `at`, behind all that wait.
    pub(crate) fn accept(&mut self, request: R, waiter: W, is_alone: bool, at: u64) {
        let key = self.place(request, waiter, is_alone, at);
        self.waiting.push_back(key);
    }

    /// The same, before all that wait.
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

    /// The request to be written next, with the id it shall have, if one may be written now.
    pub(crate) fn next_to_write(&mut self) -> Option<(RequestId, &R, &W)> {
        let key = *self.waiting.front()?;
        let is_alone = self.places[key].is_alone;
        let count = self.in_flight_count();
        let is_road_taken = is_alone && (count > 0 || self.leaving_count > 0);
        if self.alone_in_flight > 0 || is_road_taken || count >= self.in_flight_max {
            return None;
        }
        let id = self.flight.next_id();
        let place = &self.places[key];
        let (waiter, _) = place.waiter.as_ref().expect("who waits has a waiter");
        Some((id, &place.request, waiter))
    }

    /// What [`Book::next_to_write`] showed was written and awaits its answer.
    pub(crate) fn write(&mut self, span: Span) {
        let key = self.waiting.pop_front().expect("it was shown");
        let id = self.flight.push(key);
        let place = &mut self.places[key];
        place.state = State::InFlight { id, span };
        self.alone_in_flight += usize::from(place.is_alone);
    }

    /// What [`Book::next_to_write`] showed was written and awaits nothing. It ends with [`Book::left`].
    pub(crate) fn leave(&mut self, span: Span) -> Key {
        let key = self.waiting.pop_front().expect("it was shown");
        self.places[key].state = State::Leaving { span };
        self.leaving_count += 1;
        key
    }

    /// What [`Book::next_to_write`] showed will not be written.
    pub(crate) fn refuse(&mut self) -> W {
        let key = self.waiting.pop_front().expect("it was shown");
        let (_, waiter) = self.give_up(key);
        waiter.expect("who waits has a waiter")
    }

    /// The last byte of a leaving request was written. None: nobody waited any more.
    pub(crate) fn left(&mut self, key: Key) -> Option<W> {
        let (place, waiter) = self.give_up(key);
        debug_assert!(matches!(place.state, State::Leaving { .. }), "only who leaves has left");
        self.leaving_count -= 1;
        self.tombstone_count -= usize::from(waiter.is_none());
        waiter
    }

    /// Of an ordered protocol, the request whose answer must come now, and where it lies in what was written.
    pub(crate) fn oldest(&self) -> Option<(&R, Span)> {
        let Flight::Ordered { keys, .. } = &self.flight else { return None };
        let place = &self.places[*keys.front()?];
        match place.state {
            State::InFlight { span, .. } => Some((&place.request, span)),
            State::Waiting | State::Leaving { .. } => None,
        }
    }

    /// An answer has come.
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
                keys.pop_front().expect("it was just seen")
            }
            (Flight::ById { .. }, To::Oldest) => return Answered::Unknown,
            (Flight::ById { keys, next, id_count, all_used }, To::Id(id)) => match keys.remove(&id) {
                Some(key) => key,
                None if id < *next || (*all_used && id < *id_count) => return Answered::Forgotten,
                None => return Answered::Unknown,
            },
        };
        let (place, waiter) = self.give_up(key);
        self.alone_in_flight -= usize::from(place.is_alone);
        match waiter {
            Some(waiter) => Answered::Waiter(waiter),
            None => {
                self.tombstone_count -= 1;
                Answered::Tombstone
            }
        }
    }

    /// It is tick `now`: hands out those whose deadline has come, and shows their requests.
    pub(crate) fn expire(&mut self, now: u64, mut on_expired: impl FnMut(&R, Expired<W>)) {
        let Self { places, wheel, flight, tombstone_count, alone_in_flight, .. } = self;
        let mut has_waiting = false;
        wheel.advance(now, |key| {
            let place = &mut places[key];
            let (waiter, _) = place.waiter.take().expect("who has a timer waits");
            let was_written = place.state != State::Waiting;
            let is_place_free = match (place.state, &mut *flight) {
                (State::Waiting, _) => {
                    has_waiting = true; // Its place goes below, with all others of this tick.
                    true
                }
                (State::InFlight { id, .. }, Flight::ById { keys, .. }) => {
                    keys.remove(&id);
                    *alone_in_flight -= usize::from(place.is_alone);
                    true
                }
                (State::InFlight { .. } | State::Leaving { .. }, _) => {
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

    /// Hands out those that wait to be written and are `gone`.
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

    /// The connection is no more: hands out all that was written, the oldest first. Ids begin anew.
    pub(crate) fn strand(&mut self) -> Vec<Stranded<R, W>> {
        let mut stranded: Vec<Stranded<R, W>> = Vec::new();
        let keys: Vec<Key> =
            self.places.iter().filter(|(_, p)| p.state != State::Waiting).map(|(key, _)| key).collect();
        for key in keys {
            let (place, waiter) = self.give_up(key);
            if let State::InFlight { span, .. } | State::Leaving { span } = place.state {
                stranded.push(Stranded { request: place.request, waiter, span });
            }
        }
        stranded.sort_by_key(|request| request.span.start);
        self.flight.clear();
        (self.alone_in_flight, self.leaving_count, self.tombstone_count) = (0, 0, 0);
        stranded
    }

    /// Hands out all that wait to be written, in order.
    pub(crate) fn take_waiting(&mut self) -> Vec<(R, W)> {
        let keys = std::mem::take(&mut self.waiting);
        let taken = keys.into_iter().map(|key| {
            let (place, waiter) = self.give_up(key);
            (place.request, waiter.expect("who waits has a waiter"))
        });
        taken.collect()
    }

    /// Frees a place and its timer.
    fn give_up(&mut self, key: Key) -> (Freed<R>, Option<W>) {
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

    /// Places taken, tombstones included.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Written and unanswered, tombstones included.
    pub(crate) fn in_flight_count(&self) -> usize {
        self.flight.len()
    }

    /// Whether one that travels alone is in flight, or its tombstone is.
    pub(crate) fn is_one_alone(&self) -> bool {
        self.alone_in_flight > 0
    }

    /// Written, not answered or not gone out, and awaited by nobody.
    pub(crate) fn tombstone_count(&self) -> usize {
        self.tombstone_count
    }
}

/// What is left of a place.
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

    /// The id the next request gets: the next one that is not in flight.
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
