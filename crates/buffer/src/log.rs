//! The log: values under a running index, for readers that hold positions.
//!
//! A queue gives each value away once. A log keeps its values, and each reader has a *position*: the index of the next
//! value that it wants, a plain `u64`. So a thousand readers share the same values.
//!
//! ```text
//!   gone: evicted or trimmed        held                     not written yet
//!   0 1 2 3 ─────────────────────► [ base … end - 1 ] ─────► `end` gets the next value
//!           ▲                          ▲              ▲
//!           a reader here has          one here       one at `end` has everything
//!           missed `base - it`         reads on
//! ```
//!
//! [`Log`] has one owner and no lock: a [`Ring`] whose values are read instead of taken; the owner keeps the positions.
//! [`SharedLog`] is a log behind a lock, for many writers and for [`Reader`]s that can wait.
//!
//! Bounds: [`Bounds`], values and optionally bytes. A value heavier than the bound of bytes is held alone. Full: the oldest
//! value is evicted, even if readers still want it. Such a reader learns how many values it missed ([`Lagged`]). A `Log`
//! refuses nothing and cannot be closed; a shared log can.
//!
//! Counters: `end` values were accepted, and `end - base` are held. The others were evicted (dropped), or removed by
//! [`Log::trim`] because all readers had them (delivered).
//!
//! Memory: none at first. It grows by doubling up to the bound. It is freed when the log is cleared, or when trimming
//! empties a log that has room for more than 64 values.

mod idle;
mod shared;
#[cfg(test)]
mod tests;

use std::fmt;
use std::iter;

pub use shared::{LogCounters, Read, Reader, SharedLog};

use crate::{Bounds, Counters, Full, Ring};

/// An empty log keeps memory for this many values, and frees more. A shared log keeps memory for this many evicted values.
const KEPT_CAPACITY: usize = 64;

/// Values that a reader wanted are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the reader was overtaken and missed {missed} values")]
pub struct Lagged {
    /// How many values it has missed, from its position on.
    pub missed: u64,
}

/// Values under a running index, with one owner.
///
/// ```
/// use tidings_buffer::{Lagged, Log};
///
/// let mut log = Log::new(2);
/// let start = log.end();
/// for word in ["one", "two", "three"] {
///     log.append(word);
/// }
/// let mut words = Vec::new();
/// assert_eq!(log.read(start, 10, &mut words), Err(Lagged { missed: 1 }));
/// assert_eq!(log.read(start + 1, 10, &mut words), Ok(log.end()));
/// assert_eq!(words, ["two", "three"]);
/// ```
pub struct Log<T> {
    values: Ring<T>,
    /// The number of skipped indices. `end` is this plus the values that the ring has accepted.
    skipped: u64,
    /// Memory was reserved, and is not freed.
    reserved: bool,
}

impl<T> Log<T> {
    /// An empty log within `bounds` (a number of values, or [`Bounds`]), at index 0; a value weighs the size of its type.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn new(bounds: impl Into<Bounds>) -> Self {
        Self { values: Ring::new(bounds, Full::EvictOldest), skipped: 0, reserved: false }
    }

    /// As [`Log::new`], with a function that weighs a value in bytes, always the same for the same value.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn weighed(bounds: impl Into<Bounds>, weigh: fn(&T) -> usize) -> Self {
        Self { values: Ring::weighed(bounds, Full::EvictOldest, weigh), skipped: 0, reserved: false }
    }

    /// The index of the first held value, or [`Log::end`] if no value is held.
    pub fn base(&self) -> u64 {
        self.end() - self.len() as u64
    }

    /// The index of the next value. A reader that wants only new values starts here.
    pub fn end(&self) -> u64 {
        self.skipped + self.values.counters().accepted
    }

    /// The number of held values.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether no value is held.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The bytes of the held values.
    pub fn bytes(&self) -> usize {
        self.values.bytes()
    }

    /// The bounds.
    pub fn bounds(&self) -> Bounds {
        self.values.bounds()
    }

    /// The counters. Evicted and cleared values are `dropped`, trimmed values `delivered`. A log does not count reads.
    pub fn counters(&self) -> Counters {
        self.values.counters()
    }

    /// Adds a value and returns its index. The oldest values are evicted if it does not fit.
    #[inline]
    pub fn append(&mut self, value: T) -> u64 {
        self.append_with(value, drop)
    }

    /// As [`Log::append`], but evicted values are passed to `lost`, oldest first, for example to drop them outside of a
    /// lock.
    #[inline]
    pub fn append_with(&mut self, value: T, mut lost: impl FnMut(T)) -> u64 {
        let index = self.end();
        let bytes = self.values.weight(&value);
        self.values.evict_for(1, bytes, &mut lost);
        self.values.append(iter::once(value), 1, bytes); // A value that is too heavy is held alone.
        index
    }

    /// Adds all of `batch` in order, leaves it empty, and returns the index of its first value. If the batch is larger than
    /// the bounds, only its end is held, as if its values had come one by one.
    pub fn append_batch(&mut self, batch: &mut Vec<T>) -> u64 {
        self.append_batch_with(batch, drop)
    }

    /// As [`Log::append_batch`], but evicted values are passed to `lost`, oldest first.
    pub fn append_batch_with(&mut self, batch: &mut Vec<T>, mut lost: impl FnMut(T)) -> u64 {
        let index = self.end();
        if batch.is_empty() {
            return index; // An empty batch must not evict a heavy value that is held alone.
        }
        let (count, bytes) = self.stay_of(batch);
        let surplus = batch.len() - count;
        if surplus > 0 {
            self.values.evict_for(usize::MAX, usize::MAX, &mut lost);
            self.values.shed(surplus);
            batch.drain(..surplus).for_each(&mut lost);
        }
        self.values.evict_for(count, bytes, &mut lost);
        self.values.append(batch.drain(..), count, bytes);
        index
    }

    /// How many values at the end of `batch` will be held, and their weight.
    fn stay_of(&self, batch: &[T]) -> (usize, usize) {
        let (mut count, mut bytes) = (0, 0usize);
        for value in batch.iter().rev() {
            let heavier = bytes.saturating_add(self.values.weight(value));
            if count > 0 && !self.bounds().allow(count + 1, heavier) {
                break;
            }
            (count, bytes) = (count + 1, heavier);
        }
        (count, bytes)
    }

    /// Copies the values from `next` on into `out`, within `limit` (a number of values, or [`Bounds`]), and returns the index
    /// after the last copied value. If there are values, at least one is copied, of any weight. For a position after the
    /// end, it copies nothing and returns the end.
    ///
    /// # Errors
    /// [`Lagged`] when the value at `next` is gone; `next + missed` is the [`Log::base`].
    #[inline]
    pub fn read(&self, next: u64, limit: impl Into<Bounds>, out: &mut Vec<T>) -> Result<u64, Lagged>
    where
        T: Clone,
    {
        let (limit, start) = (limit.into(), self.place(next)?);
        let (mut bytes, mut count) = (0usize, 0);
        for value in self.values.iter().skip(start) {
            bytes = bytes.saturating_add(self.values.weight(value));
            if count > 0 && !limit.allow(count + 1, bytes) {
                break;
            }
            out.push(value.clone());
            count += 1;
        }
        Ok(self.base() + (start + count) as u64)
    }

    /// Iterates over the values from `next` on.
    ///
    /// # Errors
    /// As [`Log::read`].
    pub fn iter_from(&self, next: u64) -> Result<impl DoubleEndedIterator<Item = &T> + ExactSizeIterator, Lagged> {
        Ok(self.values.iter().skip(self.place(next)?))
    }

    /// The held values, oldest first. The first is at [`Log::base`].
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.values.iter()
    }

    /// A copy of the held values, oldest first. The first is at [`Log::base`].
    pub fn snapshot(&self) -> Vec<T>
    where
        T: Clone,
    {
        self.values.snapshot()
    }

    /// The position in the ring of the value at `next`, at most the end.
    fn place(&self, next: u64) -> Result<usize, Lagged> {
        let place = next.checked_sub(self.base()).ok_or_else(|| Lagged { missed: self.base() - next })?;
        Ok(usize::try_from(place).unwrap_or(usize::MAX).min(self.len()))
    }

    /// Removes the values before `next`, because all readers have them. Counts them as delivered and returns their number.
    pub fn trim(&mut self, next: u64) -> usize {
        let count = usize::try_from(next.saturating_sub(self.base())).unwrap_or(usize::MAX).min(self.len());
        iter::repeat_with(|| self.values.pop()).take(count).for_each(drop);
        if !self.reserved && self.values.is_empty() && self.values.memory() > KEPT_CAPACITY {
            self.values.discard();
        }
        count
    }

    /// Drops all values and returns their number. The index goes on.
    pub fn clear(&mut self) -> usize {
        self.values.discard().len()
    }

    /// Drops all values, and goes on at `index` if that is after the end. The skipped indices have no values; a reader that
    /// wants one of them has missed it.
    pub fn skip_to(&mut self, index: u64) {
        self.clear();
        self.skipped += index.saturating_sub(self.end());
    }

    /// Changes the bounds, and returns how many values were evicted because they no longer fit, even one that was held
    /// alone.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn set_bounds(&mut self, bounds: impl Into<Bounds>) -> usize {
        self.set_bounds_with(bounds.into(), drop)
    }

    /// As [`Log::set_bounds`], but evicted values are passed to `lost`, oldest first.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn set_bounds_with(&mut self, bounds: Bounds, lost: impl FnMut(T)) -> usize {
        self.values.set_bounds_with(bounds, lost)
    }

    /// Allocates all memory that the log can need, now and after each change of bounds. It is not freed from then on. No
    /// append allocates after this.
    pub fn reserve(&mut self) {
        self.reserved = true;
        self.values.reserve();
    }
}

/// Shows indices and bounds, not the values.
impl<T> fmt::Debug for Log<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("base", &self.base())
            .field("end", &self.end())
            .field("bounds", &self.bounds())
            .finish()
    }
}
