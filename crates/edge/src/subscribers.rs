//! The connections of one loop that read one channel: each has a place in a list, and the slowest ones are counted.
//!
//! After each turn the channel is told the position of the slowest connection. All connections are searched for it only
//! when the last of the slowest ones has moved on or left, or when the tail has overtaken it. So one connection that stays
//! behind does not make every turn cost a search, while the tail has room.

use std::time::Duration;

use tidings_hub::Wishes;
use tidings_protocol::{SlowReaders, Thinning};
use tidings_types::{Offset, PushForm};
use tokio::time::Instant;

/// A connection's key on its loop.
pub(crate) type Key = usize;

/// A connection's place in one channel's list of subscribers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place {
    /// The channel's slot on this loop.
    pub(crate) channel: usize,
    /// The index in the list.
    pub(crate) index: usize,
}

/// One connection's subscription to the channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subscriber {
    pub(crate) connection: Key,
    /// Index of the next frame to write to this connection.
    pub(crate) next: u64,
    pub(crate) wishes: Wishes,
    /// What its pushes look like.
    pub(crate) form: PushForm,
    /// It has got the channel's publication before the next frame, so it may get the next one as a delta.
    pub(crate) has_base: bool,
    /// If it may get less than everything. Boxed: most get everything.
    pub(crate) thin: Option<Box<Thin>>,
    /// The channel had no other reader when it came.
    pub(crate) is_first: bool,
    /// The tail has overtaken it, so its connection will be closed. Nothing more is written to it.
    pub(crate) is_lost: bool,
}

/// What is known of a subscription that may get less than everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thin {
    /// The time from one write to the next; zero: none.
    interval: Duration,
    /// Before this time nothing is written.
    pub(crate) due: Option<Instant>,
    /// It is in the fan-out's list of subscriptions that wait for their time.
    pub(crate) is_waiting: bool,
    /// So many frames were left out, and the client does not know yet.
    pub(crate) missed_count: u64,
    /// The last publication that was written.
    pub(crate) offset: Offset,
}

impl Thin {
    /// For a subscriber that has all up to `offset`; `None`: it gets everything.
    pub(crate) fn of(thinning: Thinning, offset: Offset) -> Option<Box<Self>> {
        let interval = match thinning.per_second_max {
            0 => Duration::ZERO,
            limit => Duration::from_secs(1) / limit,
        };
        let thin = Self { interval, due: None, is_waiting: false, missed_count: 0, offset };
        thinning.thins().then(|| Box::new(thin))
    }

    /// Something was written.
    pub(crate) fn on_written(&mut self, frames: impl Iterator<Item = Offset>, now: Instant) {
        let mut is_written = false;
        for offset in frames {
            self.offset = self.offset.max(offset);
            is_written = true;
        }
        if is_written {
            self.due = Some(now + self.interval).filter(|_| !self.interval.is_zero());
        }
    }

    /// Whether it is not written in turns, but by itself when it is due.
    pub(crate) fn has_own_time(&self) -> bool {
        self.missed_count > 0 || !self.interval.is_zero()
    }
}

impl Subscriber {
    /// Whether it needs a frame before `midway`, and would be closed without it.
    pub(crate) fn may_be_lost_before(&self, midway: u64) -> bool {
        self.next < midway && self.thin.is_none() && !self.is_lost
    }

    /// Whether it is not written in turns.
    pub(crate) fn has_own_time(&self) -> bool {
        self.thin.as_ref().is_some_and(|thin| thin.has_own_time())
    }

    /// Whether what it lacks is chosen, instead of written whole.
    pub(crate) fn is_chosen_for(&self) -> bool {
        let lacks_some = |thin: &Thin| thin.missed_count > 0;
        self.wishes.thinning.slow_readers == SlowReaders::Latest || self.thin.as_deref().is_some_and(lacks_some)
    }
}

/// The subscribers of one channel on one loop.
///
/// Invariant: no subscriber's next frame is before `slowest`, and `slowest_count` of them have it as their next frame. Those that
/// are lost do not count.
#[derive(Debug)]
pub(crate) struct Subscribers {
    list: Vec<Subscriber>,
    slowest: u64,
    slowest_count: usize,
}

impl Subscribers {
    /// No subscribers yet; the first one's next frame will not be before `next`.
    pub(crate) fn new(next: u64) -> Self {
        Self { list: Vec::new(), slowest: next, slowest_count: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Subscriber> {
        self.list.iter()
    }

    /// Index of the next frame to write to the subscriber at `place`.
    pub(crate) fn next(&self, place: usize) -> u64 {
        self.list[place].next
    }

    pub(crate) fn at(&self, place: usize) -> &Subscriber {
        &self.list[place]
    }

    /// Adds a subscriber whose next frame is not before any other's. Returns its place.
    pub(crate) fn enter(&mut self, subscriber: Subscriber) -> usize {
        debug_assert!(subscriber.next >= self.slowest, "a new subscriber starts at the end");
        self.slowest_count += usize::from(subscriber.next == self.slowest);
        self.list.push(subscriber);
        self.list.len() - 1
    }

    /// Removes the subscriber at `place`. Also returns the connection that now has this place, if any.
    pub(crate) fn leave(&mut self, place: usize) -> (Subscriber, Option<Key>) {
        let gone = self.list.swap_remove(place);
        self.slowest_count -= usize::from(!gone.is_lost && gone.next == self.slowest);
        (gone, self.list.get(place).map(|moved| moved.connection))
    }

    /// `count` frames were written to the subscriber at `place`, or are not for it.
    pub(crate) fn advance(&mut self, place: usize, count: usize, has_base: bool) {
        let Subscriber { next, has_base: had_base, is_lost, .. } = &mut self.list[place];
        *had_base = has_base;
        self.slowest_count -= usize::from(count > 0 && !*is_lost && *next == self.slowest);
        *next += count as u64;
    }

    pub(crate) fn thin_mut(&mut self, place: usize) -> Option<&mut Thin> {
        self.list[place].thin.as_deref_mut()
    }

    /// The tail has overtaken those whose next frame is before `base`. Those that may get less go on at `base`, except those
    /// before `restart_end`. Returns the others, and the places of those that go on.
    pub(crate) fn overtake(&mut self, base: u64, restart_end: u64) -> (Vec<Key>, Vec<usize>) {
        let (mut lost, mut moved) = (Vec::new(), Vec::new());
        let is_overtaken = |subscriber: &Subscriber| subscriber.next < base && !subscriber.is_lost;
        for (place, subscriber) in self.list.iter_mut().enumerate().filter(|(_, subscriber)| is_overtaken(subscriber)) {
            match subscriber.thin.as_deref_mut().filter(|_| subscriber.next >= restart_end) {
                Some(thin) => {
                    thin.missed_count += base - subscriber.next;
                    (subscriber.next, subscriber.has_base) = (base, false);
                    moved.push(place);
                }
                None => {
                    subscriber.is_lost = true;
                    lost.push(subscriber.connection);
                }
            }
        }
        self.search();
        (lost, moved)
    }

    /// Whether all subscribers that were the slowest at the last search have moved on or left.
    pub(crate) fn has_moved(&self) -> bool {
        self.slowest_count == 0
    }

    /// The first frame that any subscriber still needs; `None`: there is none that needs frames.
    pub(crate) fn slowest(&mut self) -> Option<u64> {
        if self.slowest_count == 0 {
            self.search();
        }
        (self.slowest_count > 0).then_some(self.slowest)
    }

    fn search(&mut self) {
        let nexts = || self.list.iter().filter(|subscriber| !subscriber.is_lost).map(|subscriber| subscriber.next);
        let slowest = nexts().min().unwrap_or(self.slowest);
        (self.slowest, self.slowest_count) = (slowest, nexts().filter(|next| *next == slowest).count());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidings_types::{Format, Variant};

    use super::*;

    #[derive(Debug, Clone)]
    enum Action {
        /// A subscriber is added whose next frame is so many frames later.
        Enter(u64),
        Leave(usize),
        /// A subscriber is written this part of what it needs.
        Advance(usize, usize),
        /// The tail overtakes this part of them.
        Overtake(usize),
        Slowest,
    }

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let action = prop_oneof![
            3 => (0u64..3).prop_map(Action::Enter),
            2 => any::<usize>().prop_map(Action::Leave),
            6 => (any::<usize>(), 0usize..4).prop_map(|(who, part)| Action::Advance(who, part)),
            1 => (0usize..4).prop_map(Action::Overtake),
            3 => Just(Action::Slowest),
        ];
        prop::collection::vec(action, 1..150)
    }

    proptest! {
        #[test]
        fn the_slowest_is_the_naive_minimum(start in 0u64..3, actions in actions()) {
            let mut model: Vec<Subscriber> = Vec::new();
            let mut subscribers = Subscribers::new(start);
            let (mut end, mut told) = (start, None);
            for (connection, action) in actions.into_iter().enumerate() {
                match action {
                    Action::Enter(more) => {
                        end += more;
                        let form = Variant::websocket(Format::Json).into();
                        let wishes = Wishes::default();
                        let slow_readers = if connection % 2 == 0 { SlowReaders::Skip } else { SlowReaders::Disconnect };
                        let thin = Thin::of(Thinning { slow_readers, per_second_max: 0 }, Offset(0));
                        let subscriber = Subscriber { connection, next: end, wishes, form, has_base: false, thin, is_first: false, is_lost: false };
                        prop_assert_eq!(subscribers.enter(subscriber.clone()), model.len());
                        model.push(subscriber);
                    }
                    Action::Leave(who) if !model.is_empty() => {
                        let place = who % model.len();
                        let gone = model.swap_remove(place);
                        prop_assert_eq!(subscribers.leave(place), (gone, model.get(place).map(|moved| moved.connection)));
                    }
                    Action::Advance(who, part) if !model.is_empty() => {
                        let place = who % model.len();
                        let count = (end - model[place].next) as usize * part / 3;
                        model[place].next += count as u64;
                        subscribers.advance(place, count, false);
                        prop_assert_eq!(subscribers.next(place), model[place].next);
                    }
                    Action::Overtake(part) => {
                        let base = start + (end - start) * part as u64 / 3;
                        let restart_end = start + base.saturating_sub(start) / 2;
                        let (mut lost, mut moved) = (Vec::new(), Vec::new());
                        for (place, one) in model.iter_mut().enumerate().filter(|(_, one)| one.next < base && !one.is_lost) {
                            match &mut one.thin {
                                Some(thin) if one.next >= restart_end => {
                                    moved.push(place);
                                    thin.missed_count += base - one.next;
                                    one.next = base;
                                }
                                _ => {
                                    one.is_lost = true;
                                    lost.push(one.connection);
                                }
                            }
                        }
                        prop_assert_eq!(subscribers.overtake(base, restart_end), (lost, moved));
                        told = None;
                    }
                    Action::Slowest => {
                        told = model.iter().filter(|one| !one.is_lost).map(|one| one.next).min();
                        prop_assert_eq!(subscribers.slowest(), told);
                    }
                    Action::Leave(_) | Action::Advance(..) => {}
                }
                // If a position was told that no subscriber has any more, a new one is told.
                let is_wanted = model.iter().any(|one| !one.is_lost && Some(one.next) == told);
                prop_assert!(told.is_none() || is_wanted || subscribers.has_moved());
                prop_assert_eq!(subscribers.is_empty(), model.is_empty());
                prop_assert!(subscribers.iter().eq(&model));
            }
        }
    }
}
