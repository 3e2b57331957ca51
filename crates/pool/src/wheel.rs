//! Deadlines in a hierarchical timing wheel.
//!
//! Setting and removing a timer takes constant time. This fits requests: nearly all are answered before their deadline.
//! There are eight levels of 64 slots. Level 0 has a slot for each of the next ticks. Every further level covers 64 times
//! as much, with slots that are 64 times as long. When the time of a long slot comes, its timers move to shorter slots. So
//! a timer is moved at most seven times.
//!
//! ```text
//! level 0   │ 64 slots of 1 tick
//! level 1   │ 64 slots of 64 ticks
//!   …       │
//! level 7   │ 64 slots of 2⁴² ticks            together 2⁴⁸ ticks: 8900 years of milliseconds
//! ```
//!
//! A timer is at the level of the highest digit (of 6 bits) in which its tick differs from the current tick. So all slots
//! of a level are in the future, and the first timer is always on the lowest level that has any.
//!
//! A core: the caller passes the time as a number of ticks, which never decreases. There is one entry per timer; the caller
//! bounds their number.
//! Source: Varghese and Lauck, "Hashed and Hierarchical Timing Wheels", 1987; the layout is that of tokio's timer.

use slab::Slab;

const LEVEL_COUNT: usize = 8;
const SLOT_BITS: u32 = 6;
const SLOT_COUNT: usize = 1 << SLOT_BITS;
/// The last tick that a timer can have. Later timers are set to it.
const TICK_MAX: u64 = (1 << (SLOT_BITS * LEVEL_COUNT as u32)) - 1;
/// No timer.
const NIL: u32 = u32::MAX;

/// The key of a timer, until it is removed or has fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimerKey(u32);

/// Timers, each with a value.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    timers: Slab<Timer<T>>,
    levels: [Level; LEVEL_COUNT],
    /// Every timer up to this tick has fired.
    now: u64,
}

#[derive(Debug)]
struct Timer<T> {
    value: T,
    at: u64,
    /// The neighbours in the slot's list.
    previous: u32,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct Level {
    /// Bit n: slot n has timers.
    occupied: u64,
    /// The first timer of each slot's list.
    first: [u32; SLOT_COUNT],
}

impl<T> Wheel<T> {
    pub(crate) fn new() -> Self {
        Self { timers: Slab::new(), levels: [Level { occupied: 0, first: [NIL; SLOT_COUNT] }; LEVEL_COUNT], now: 0 }
    }

    /// Sets a timer for tick `at`, or for the next tick if `at` is past.
    pub(crate) fn insert(&mut self, at: u64, value: T) -> TimerKey {
        let at = at.clamp(self.now + 1, TICK_MAX);
        let key = self.timers.insert(Timer { value, at, previous: NIL, next: NIL });
        let key = u32::try_from(key).expect("`PoolConfig::check` bounds the requests of a connection");
        self.link(key, at);
        TimerKey(key)
    }

    /// Removes a timer that has not fired.
    ///
    /// # Panics
    /// When it has fired or was removed, unless another timer has its key now.
    pub(crate) fn remove(&mut self, key: TimerKey) -> T {
        let timer = self.timers.remove(key.0 as usize);
        if timer.next != NIL {
            self.timers[timer.next as usize].previous = timer.previous;
        }
        if timer.previous != NIL {
            self.timers[timer.previous as usize].next = timer.next;
        } else {
            let (level, slot) = place(self.now, timer.at);
            let level = &mut self.levels[level];
            debug_assert_eq!(level.first[slot], key.0, "a timer without a predecessor is the first of its slot");
            level.first[slot] = timer.next;
            if timer.next == NIL {
                level.occupied &= !(1 << slot);
            }
        }
        timer.value
    }

    /// Advances to tick `now`, and fires the timers up to it, in the order of their ticks.
    pub(crate) fn advance(&mut self, now: u64, mut on_fired: impl FnMut(T)) {
        let now = now.min(TICK_MAX);
        while let Some((level, slot, at)) = self.first_slot() {
            if at > now {
                break;
            }
            self.now = at;
            self.levels[level].occupied &= !(1 << slot);
            let mut key = std::mem::replace(&mut self.levels[level].first[slot], NIL);
            while key != NIL {
                let timer = &self.timers[key as usize];
                let (timer_at, next) = (timer.at, timer.next);
                if timer_at <= at {
                    on_fired(self.timers.remove(key as usize).value);
                } else {
                    self.link(key, timer_at);
                }
                key = next;
            }
        }
        self.now = self.now.max(now);
    }

    /// The next tick at which `advance` has something to do. No timer fires before it.
    pub(crate) fn next_tick(&self) -> Option<u64> {
        self.first_slot().map(|(_, _, at)| at)
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.timers.len()
    }

    /// The first slot with timers, as level, slot and its first tick.
    fn first_slot(&self) -> Option<(usize, usize, u64)> {
        let level = self.levels.iter().position(|level| level.occupied != 0)?;
        let slot = self.levels[level].occupied.trailing_zeros();
        let shift = SLOT_BITS * level as u32;
        let above = self.now >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
        Some((level, slot as usize, above | u64::from(slot) << shift))
    }

    /// Puts a timer at the front of its slot's list.
    fn link(&mut self, key: u32, at: u64) {
        let (level, slot) = place(self.now, at);
        let level = &mut self.levels[level];
        let next = std::mem::replace(&mut level.first[slot], key);
        level.occupied |= 1 << slot;
        let timer = &mut self.timers[key as usize];
        (timer.previous, timer.next) = (NIL, next);
        if next != NIL {
            self.timers[next as usize].previous = key;
        }
    }
}

/// The level and slot of a timer for tick `at`, if the current tick is `now`.
fn place(now: u64, at: u64) -> (usize, usize) {
    debug_assert!(now < at, "a timer is in the future");
    let level = (now ^ at).ilog2() / SLOT_BITS;
    let slot = (at >> (SLOT_BITS * level)) as usize % SLOT_COUNT;
    (level as usize, slot)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u64),
        Remove(prop::sample::Index),
        Advance(u64),
        AdvanceToNext,
    }

    fn step() -> impl Strategy<Value = Step> {
        // Distances of every magnitude use every level and cross every boundary.
        let distance = || (0u32..40, any::<u64>()).prop_map(|(bits, random)| random & ((1 << bits) - 1));
        prop_oneof![
            4 => distance().prop_map(Step::Insert),
            2 => any::<prop::sample::Index>().prop_map(Step::Remove),
            2 => distance().prop_map(Step::Advance),
            2 => Just(Step::AdvanceToNext),
        ]
    }

    proptest! {
        /// The model is a sorted map. The same timers must fire in the same step, in the order of their ticks.
        #[test]
        fn it_fires_the_same_timers_as_a_sorted_map(steps in prop::collection::vec(step(), 1..200)) {
            let mut wheel = Wheel::new();
            let mut model: BTreeMap<u64, (u64, TimerKey)> = BTreeMap::new();
            let mut now = 0;
            for (id, step) in steps.into_iter().enumerate() {
                let id = id as u64;
                match step {
                    Step::Insert(distance) => {
                        let at = (now + distance).max(now + 1);
                        let key = wheel.insert(now + distance, id);
                        model.insert(id, (at, key));
                    }
                    Step::Remove(index) if !model.is_empty() => {
                        let id = *model.keys().nth(index.index(model.len())).expect("the index is in range");
                        let (_, key) = model.remove(&id).expect("its key was just found");
                        prop_assert_eq!(wheel.remove(key), id);
                    }
                    Step::Remove(_) => {}
                    Step::Advance(distance) => now += distance,
                    Step::AdvanceToNext => now = wheel.next_tick().unwrap_or(now),
                }
                let mut fired = Vec::new();
                wheel.advance(now, |id| fired.push(id));
                let ticks: Vec<u64> = fired.iter().map(|id| model[id].0).collect();
                prop_assert!(ticks.is_sorted() && ticks.iter().all(|at| *at <= now), "{ticks:?} at {now}");
                for id in fired {
                    model.remove(&id);
                }
                prop_assert_eq!(wheel.len(), model.len());
                let first = model.values().map(|(at, _)| *at).min();
                prop_assert!(first.is_none_or(|first| first > now), "a timer did not fire");
                prop_assert_eq!(wheel.next_tick().is_some(), first.is_some());
                prop_assert!(wheel.next_tick().is_none_or(|next| next > now && Some(next) <= first));
            }
        }
    }

    #[test]
    fn a_past_tick_fires_at_the_next_one_and_a_far_tick_does_not_overflow() {
        let mut wheel = Wheel::new();
        wheel.advance(1_000_000, |()| unreachable!());
        wheel.insert(3, ());
        wheel.insert(u64::MAX, ());
        let mut fired = 0;
        wheel.advance(1_000_000, |()| fired += 1);
        assert_eq!(fired, 0);
        wheel.advance(1_000_001, |()| fired += 1);
        assert_eq!(fired, 1);
        wheel.advance(u64::MAX, |()| fired += 1);
        assert_eq!((fired, wheel.len()), (2, 0));
    }

    #[test]
    fn a_timer_is_moved_at_most_once_per_level() {
        let mut wheel = Wheel::new();
        wheel.insert(TICK_MAX - 1, ());
        let mut wakes = 0;
        while let Some(next) = wheel.next_tick() {
            wheel.advance(next, |()| ());
            wakes += 1;
        }
        assert_eq!(wakes, LEVEL_COUNT);
    }
}
