//! Types that all shapes share: the limits of a buffer, what it does when they are reached, and its counters.

use std::fmt;

/// How much a buffer may hold: a number of values, and optionally of bytes.
///
/// A buffer can get a function that weighs a value in bytes (`Ring::weighed`). Without it, the weight is the size of the
/// type. A buffer is full when the next value would exceed either bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The most values, at least 1.
    pub count_max: usize,
    /// The most bytes of all values; `None` is unbounded.
    pub bytes_max: Option<usize>,
}

impl Bounds {
    /// At most `count_max` values, of any weight.
    pub const fn count(count_max: usize) -> Self {
        Self { count_max, bytes_max: None }
    }

    /// Adds a bound of `bytes_max` bytes.
    pub const fn and_bytes(self, bytes_max: usize) -> Self {
        Self { bytes_max: Some(bytes_max), ..self }
    }

    /// Whether `count` values with `bytes` bytes together are within the bounds.
    #[inline]
    pub fn allow(&self, count: usize, bytes: usize) -> bool {
        count <= self.count_max && self.bytes_max.is_none_or(|bytes_max| bytes <= bytes_max)
    }

    /// # Panics
    /// When no value may be held.
    pub(crate) fn check(self) -> Self {
        assert!(self.count_max > 0, "a buffer holds at least one value");
        self
    }
}

impl From<usize> for Bounds {
    fn from(count_max: usize) -> Self {
        Self::count(count_max)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.count_max)?;
        self.bytes_max.map_or(Ok(()), |bytes_max| write!(f, " and {bytes_max} bytes"))
    }
}

/// What a push does when there is no room. To wait for room, use [`crate::Lake::push_batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The oldest values are dropped until the new ones fit. For values that lose their worth with age.
    EvictOldest,
    /// The new values are dropped. For values that are useful only without a gap from the beginning.
    DropNewest,
    /// The new values are returned and not counted as accepted. For values that must not be lost.
    Reject,
}

/// What went through a buffer since its creation: `accepted == delivered + dropped + held`, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Values put in, including those that were dropped at once, without rejected ones.
    pub accepted: u64,
    /// Values taken out.
    pub delivered: u64,
    /// Lost values: evicted, dropped on arrival, or discarded.
    pub dropped: u64,
    /// Values in the buffer now.
    pub held: u64,
}

impl Counters {
    /// Whether `accepted == delivered + dropped + held`.
    pub const fn is_conserved(&self) -> bool {
        self.accepted == self.delivered + self.dropped + self.held
    }
}

/// Why values could not be put into a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// There is no room now.
    #[error("no room for {count} values of {bytes} bytes: {held} values of {held_bytes} bytes are held of {bounds}")]
    Full {
        /// The number of values.
        count: usize,
        /// Their bytes.
        bytes: usize,
        /// The values in the buffer.
        held: usize,
        /// Their bytes.
        held_bytes: usize,
        /// The bounds of the buffer.
        bounds: Bounds,
    },
    /// The values do not fit even into an empty buffer, so no policy can help.
    #[error("{count} values of {bytes} bytes never fit into a buffer of {bounds}")]
    TooLarge {
        /// The number of values.
        count: usize,
        /// Their bytes.
        bytes: usize,
        /// The bounds of the buffer.
        bounds: Bounds,
    },
}

/// A value that was not accepted, with the reason.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Rejected<T, R = NoRoom> {
    /// The value, unchanged.
    pub value: T,
    /// Why it was not accepted.
    pub reason: R,
}

/// Shows the reason, but not the value, which may be secret.
impl<T, R: fmt::Debug> fmt::Debug for Rejected<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("reason", &self.reason).finish_non_exhaustive()
    }
}
