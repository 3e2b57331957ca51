//! The ring: a bounded first-in first-out queue for one owner, without locks.
//!
//! All methods take `&mut self`. To share a ring, put it behind a lock: [`crate::Lake`] is a ring behind a mutex, with
//! producers and consumers that can wait.
//!
//! Bounds: [`Bounds`], values and optionally bytes. Full: [`Full`], the policy given at construction. Under each policy
//! a batch goes in as a whole or not at all. Values that do not fit into an empty ring (one value heavier than `bytes_max`,
//! a batch of more than `count_max`) are returned under every policy, because no eviction would help.
//!
//! ```text
//!             room      EvictOldest               DropNewest            Reject
//! push        held      held, oldest are lost     lost                  returned
//! push_batch  held      held, oldest are lost     all lost              all returned
//! accepted    +n        +n                        +n                    +0 (rejected +n)
//! dropped     +0        +evicted values           +n                    +0
//! ```
//!
//! Bounds can change at any time. If they shrink below the held values, an `EvictOldest` ring evicts at once, counted
//! as dropped. The other policies promise to deliver what was accepted: the values stay, and nothing more is accepted
//! until there is room.
//!
//! Memory: it grows by doubling up to `count_max` × the size of `T`, never more, and is freed when the capacity
//! shrinks. After [`Ring::reserve`] all memory is allocated, and no push or pop allocates or copies the held values.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;

use crate::bounds::{Bounds, Counters, Full, NoRoom, Rejected};

/// A bounded first-in first-out queue with one owner.
///
/// ```
/// use tidings_buffer::{Full, Ring};
///
/// let mut ring = Ring::new(2, Full::EvictOldest);
/// for value in 1..=5 {
///     ring.push(value)?;
/// }
/// assert_eq!(ring.pop(), Some(4));
/// let counters = ring.counters();
/// assert_eq!((counters.accepted, counters.delivered, counters.dropped, counters.held), (5, 1, 3, 1));
/// # Ok::<(), tidings_buffer::Rejected<i32>>(())
/// ```
pub struct Ring<T> {
    values: VecDeque<T>,
    bounds: Bounds,
    full: Full,
    weigh: Option<fn(&T) -> usize>,
    /// Invariant: the weight of all `values`.
    bytes: usize,
    /// All memory is allocated at once, also after a change of bounds.
    reserved: bool,
    /// More than `count_max` values are held. The extra memory is freed when they have left.
    overfull: bool,
    accepted: u64,
    delivered: u64,
    dropped: u64,
    rejected: u64,
}

/// The first allocation has room for this many values, if the bounds allow it.
const FIRST_GROWTH: usize = 4;

impl<T> Ring<T> {
    /// An empty ring within `bounds` (a number of values, or [`Bounds`]); a value weighs the size of its type.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn new(bounds: impl Into<Bounds>, full: Full) -> Self {
        Self {
            values: VecDeque::new(),
            bounds: bounds.into().check(),
            full,
            weigh: None,
            bytes: 0,
            reserved: false,
            overfull: false,
            accepted: 0,
            delivered: 0,
            dropped: 0,
            rejected: 0,
        }
    }

    /// As [`Ring::new`], with a function that weighs a value in bytes.
    ///
    /// A value is weighed when it comes and when it leaves, and must weigh the same both times. Inside a [`crate::Lake`]
    /// this happens under the lock: the function must be quick and must not panic.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn weighed(bounds: impl Into<Bounds>, full: Full, weigh: fn(&T) -> usize) -> Self {
        Self { weigh: Some(weigh), ..Self::new(bounds, full) }
    }

    /// Allocates all memory that the ring can need, now and after each change of bounds: `count_max` × the size of `T`. From
    /// then on no push or pop allocates.
    ///
    /// # Panics
    /// When that is more than `isize::MAX` bytes.
    pub fn reserve(&mut self) {
        self.reserved = true;
        self.values.reserve_exact(self.bounds.count_max.saturating_sub(self.values.len()));
    }

    /// Adds a value at the end. Returns how many values were lost: the evicted ones, or 1 if the value itself was dropped.
    ///
    /// # Errors
    /// The value is returned if it does not fit under [`Full::Reject`], and under every policy if it alone is heavier than
    /// the bounds allow.
    #[inline]
    pub fn push(&mut self, value: T) -> Result<usize, Rejected<T>> {
        self.push_with(value, drop)
    }

    /// As [`Ring::push`], but lost values are passed to `lost`, oldest first, for example to drop them outside of a lock.
    /// The ring is consistent when `lost` is called.
    ///
    /// # Errors
    /// As [`Ring::push`].
    #[inline]
    pub fn push_with(&mut self, value: T, mut lost: impl FnMut(T)) -> Result<usize, Rejected<T>> {
        let bytes = self.weight(&value);
        match self.admit(1, bytes, &mut lost) {
            Ok(Admitted::In { evicted }) => {
                self.append_one(value, bytes);
                Ok(evicted)
            }
            Ok(Admitted::Dropped) => {
                lost(value);
                Ok(1)
            }
            Err(reason) => Err(Rejected { value, reason }),
        }
    }

    /// Adds all of `batch` at the end, in order, and leaves it empty, or adds nothing. Returns how many values were lost: the
    /// evicted ones, or the whole batch. The batch keeps its memory.
    ///
    /// # Errors
    /// The batch is unchanged if it does not fit under [`Full::Reject`], and under every policy if it does not fit into an
    /// empty ring.
    pub fn push_batch(&mut self, batch: &mut Vec<T>) -> Result<usize, NoRoom> {
        self.push_batch_with(batch, drop)
    }

    /// As [`Ring::push_batch`], but lost values are passed to `lost`, oldest first.
    ///
    /// # Errors
    /// As [`Ring::push_batch`].
    pub fn push_batch_with(&mut self, batch: &mut Vec<T>, mut lost: impl FnMut(T)) -> Result<usize, NoRoom> {
        let count = batch.len();
        if count == 0 {
            return Ok(0);
        }
        let bytes = self.weight_of(&*batch, count);
        match self.admit(count, bytes, &mut lost)? {
            Admitted::In { evicted } => {
                self.append(batch.drain(..), count, bytes);
                Ok(evicted)
            }
            Admitted::Dropped => {
                batch.drain(..).for_each(lost);
                Ok(count)
            }
        }
    }

    /// Takes the oldest value.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let value = self.leave()?;
        self.delivered += 1;
        Some(value)
    }

    /// Takes up to `demand` values, oldest first, into `out`, and returns how many.
    #[inline]
    pub fn pop_batch(&mut self, demand: usize, out: &mut Vec<T>) -> usize {
        let count = demand.min(self.values.len());
        match count {
            1 => out.extend(self.pop()), // Several times as fast as the general way.
            _ => self.pop_many(count, out),
        }
        count
    }

    fn pop_many(&mut self, count: usize, out: &mut Vec<T>) {
        let bytes = self.weight_of(self.values.range(..count), count);
        out.extend(self.values.drain(..count));
        self.lighten(bytes);
        self.delivered += count as u64;
    }

    /// The oldest value.
    pub fn front(&self) -> Option<&T> {
        self.values.front()
    }

    /// The held values, oldest first.
    pub fn iter(&self) -> std::collections::vec_deque::Iter<'_, T> {
        self.values.iter()
    }

    /// A copy of the held values, oldest first.
    pub fn snapshot(&self) -> Vec<T>
    where
        T: Clone,
    {
        self.iter().cloned().collect()
    }

    /// Drops all values, and returns their number. Keeps the memory.
    pub fn clear(&mut self) -> usize {
        let count = self.values.len();
        self.dropped += count as u64;
        self.bytes = 0; // Set before the values are dropped, because their `Drop` is foreign code.
        self.values.clear();
        self.lighten(0);
        count
    }

    /// As [`Ring::clear`], but returns the values, so that they can be dropped outside of a lock.
    pub(crate) fn discard(&mut self) -> VecDeque<T> {
        self.dropped += self.values.len() as u64;
        self.bytes = 0;
        let values = std::mem::take(&mut self.values);
        self.fit_memory();
        values
    }

    /// Changes the most values that may be held, and returns how many were evicted. See [`Ring::set_bounds`].
    ///
    /// # Panics
    /// When `count_max` is 0.
    pub fn set_capacity(&mut self, count_max: usize) -> usize {
        self.set_bounds(Bounds { count_max, ..self.bounds })
    }

    /// Changes the bounds, and returns how many values were evicted, oldest first, because they no longer fit.
    ///
    /// Only [`Full::EvictOldest`] evicts. Under the other policies, accepted values stay until they are taken. So more than
    /// the bounds may be held for a while, and no value is accepted until there is room. Memory that is no longer needed is
    /// freed. This, and growing a reserved ring, copies the held values once.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn set_bounds(&mut self, bounds: impl Into<Bounds>) -> usize {
        self.set_bounds_with(bounds.into(), drop)
    }

    /// As [`Ring::set_bounds`], but evicted values are passed to `lost`, oldest first.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn set_bounds_with(&mut self, bounds: Bounds, mut lost: impl FnMut(T)) -> usize {
        self.bounds = bounds.check();
        let evicted = if self.full == Full::EvictOldest { self.evict_for(0, 0, &mut lost) } else { 0 };
        self.fit_memory();
        evicted
    }

    /// The number of held values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether no value is held.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The number of values that fit into the allocated memory.
    pub(crate) fn memory(&self) -> usize {
        self.values.capacity()
    }

    /// The bytes of the held values.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bounds.
    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// What happens when there is no room.
    pub fn full(&self) -> Full {
        self.full
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        let Self { accepted, delivered, dropped, .. } = *self;
        Counters { accepted, delivered, dropped, held: self.values.len() as u64 }
    }

    /// How many values were rejected so far. The other counters do not contain them.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Decides about `count` values of `bytes` bytes, and evicts if that is the policy.
    #[inline]
    fn admit(&mut self, count: usize, bytes: usize, lost: &mut impl FnMut(T)) -> Result<Admitted, NoRoom> {
        if self.has_room(count, bytes) {
            return Ok(Admitted::In { evicted: 0 });
        }
        self.check_size(count, bytes)?;
        match self.full {
            Full::EvictOldest => Ok(Admitted::In { evicted: self.evict_for(count, bytes, lost) }),
            Full::DropNewest => {
                self.shed(count);
                Ok(Admitted::Dropped)
            }
            Full::Reject => Err(self.reject(count, bytes)),
        }
    }

    /// Whether `count` values of `bytes` bytes fit without a loss.
    #[inline]
    pub(crate) fn has_room(&self, count: usize, bytes: usize) -> bool {
        self.bounds.allow(self.values.len().saturating_add(count), self.bytes.saturating_add(bytes))
    }

    /// How many of `values`, from the front, fit now, and their weight.
    pub(crate) fn fitting<'a>(&self, values: impl Iterator<Item = &'a T>) -> (usize, usize)
    where
        T: 'a,
    {
        let (mut count, mut bytes) = (0, 0);
        for value in values.take(self.bounds.count_max.saturating_sub(self.values.len())) {
            let with_it = usize::saturating_add(bytes, self.weight(value));
            if !self.has_room(count + 1, with_it) {
                break;
            }
            (count, bytes) = (count + 1, with_it);
        }
        (count, bytes)
    }

    /// Counts values that are dropped on arrival.
    pub(crate) fn shed(&mut self, count: usize) {
        self.accepted += count as u64;
        self.dropped += count as u64;
    }

    /// Counts rejected values.
    pub(crate) fn hand_back(&mut self, count: usize) {
        self.rejected += count as u64;
    }

    /// Rejects values that do not fit into an empty ring.
    #[inline]
    pub(crate) fn check_size(&mut self, count: usize, bytes: usize) -> Result<(), NoRoom> {
        if self.bounds.allow(count, bytes) {
            return Ok(());
        }
        self.hand_back(count);
        Err(NoRoom::TooLarge { count, bytes, bounds: self.bounds })
    }

    /// Rejects values for lack of room now.
    pub(crate) fn reject(&mut self, count: usize, bytes: usize) -> NoRoom {
        self.hand_back(count);
        NoRoom::Full { count, bytes, held: self.values.len(), held_bytes: self.bytes, bounds: self.bounds }
    }

    /// Evicts until there is room for `count` values of `bytes` bytes, or nothing is left.
    #[inline]
    pub(crate) fn evict_for(&mut self, count: usize, bytes: usize, lost: &mut impl FnMut(T)) -> usize {
        let mut evicted = 0;
        while !self.has_room(count, bytes)
            && let Some(value) = self.leave()
        {
            self.dropped += 1;
            evicted += 1;
            lost(value);
        }
        evicted
    }

    /// Takes the oldest value out. The caller counts it.
    #[inline]
    fn leave(&mut self) -> Option<T> {
        let bytes = self.weight(self.values.front()?);
        let value = self.values.pop_front();
        self.lighten(bytes);
        value
    }

    /// Adds all of `batch` if there is room for all of it. Otherwise adds nothing.
    #[inline]
    pub(crate) fn append_all(&mut self, batch: &mut Vec<T>) -> bool {
        let count = batch.len();
        let bytes = self.weight_of(&*batch, count);
        if !self.has_room(count, bytes) {
            return false;
        }
        if count == 1
            && let Some(value) = batch.pop()
        {
            self.append_one(value, bytes);
        } else {
            self.append(batch.drain(..), count, bytes);
        }
        true
    }

    /// Adds a value that was admitted: as [`Self::append`], but several times as fast.
    #[inline]
    fn append_one(&mut self, value: T, bytes: usize) {
        self.grow_for(1);
        self.values.push_back(value);
        self.bytes = self.bytes.saturating_add(bytes);
        self.accepted += 1;
    }

    /// Adds values that were admitted.
    pub(crate) fn append(&mut self, values: impl Iterator<Item = T>, count: usize, bytes: usize) {
        self.grow_for(count);
        self.values.extend(values);
        self.bytes = self.bytes.saturating_add(bytes);
        self.accepted += count as u64;
    }

    /// Makes memory for `count` more values, by doubling, but never for more than the bounds allow.
    #[inline]
    fn grow_for(&mut self, count: usize) {
        let (held, space) = (self.values.len(), self.values.capacity());
        if count > space - held {
            let doubled = (space * 2).max(FIRST_GROWTH).min(self.bounds.count_max);
            self.values.reserve_exact(doubled.max(held + count) - held);
        }
    }

    /// Fits the memory to the bounds. Call it after a change of bounds, and when the ring is no longer overfull.
    #[cold]
    fn fit_memory(&mut self) {
        self.overfull = self.values.len() > self.bounds.count_max;
        self.values.shrink_to(self.bounds.count_max);
        if self.reserved {
            self.reserve();
        }
    }

    #[inline]
    pub(crate) fn weight(&self, value: &T) -> usize {
        self.weigh.map_or(size_of::<T>(), |weigh| weigh(value))
    }

    pub(crate) fn weight_of<'a>(&self, values: impl IntoIterator<Item = &'a T>, count: usize) -> usize
    where
        T: 'a,
    {
        match self.weigh {
            Some(weigh) => values.into_iter().map(weigh).fold(0, usize::saturating_add),
            None => count.saturating_mul(size_of::<T>()),
        }
    }

    /// Subtracts the bytes of values that have left. If a weigher is not consistent, the sum is wrong until the ring is
    /// empty, but nothing panics.
    #[inline]
    fn lighten(&mut self, bytes: usize) {
        self.bytes = if self.values.is_empty() { 0 } else { self.bytes.saturating_sub(bytes) };
        if self.overfull && self.values.len() <= self.bounds.count_max {
            self.fit_memory();
        }
    }
}

/// The decision about values that are not rejected.
enum Admitted {
    /// They are added, after this many evictions.
    In { evicted: usize },
    /// They are dropped, and already counted.
    Dropped,
}

impl<'a, T> IntoIterator for &'a Ring<T> {
    type Item = &'a T;
    type IntoIter = std::collections::vec_deque::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Shows bounds and counters, not the values.
impl<T> fmt::Debug for Ring<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("bounds", &self.bounds)
            .field("full", &self.full)
            .field("counters", &self.counters())
            .finish()
    }
}
