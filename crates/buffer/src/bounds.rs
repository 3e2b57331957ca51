//! Types that all shapes share: the limits of a buffer, what it does when they are reached, and its counters.

use std::fmt;

/// How much a buffer may hold: so many values, and optionally so many bytes of them.
///
/// What a value weighs is said by the function given to the buffer (`Ring::weighed`); without one it is the size of its
/// type. A buffer is full when the next value would break either bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Values that may be held, at least 1.
    pub count_max: usize,
    /// Bytes that they may weigh together; `None` leaves them unbounded.
    pub bytes_max: Option<usize>,
}

impl Bounds {
    /// At most `count_max` values, whatever they weigh.
    pub const fn count(count_max: usize) -> Self {
        Self { count_max, bytes_max: None }
    }

    /// The same, and at most `bytes_max` bytes.
    pub const fn and_bytes(self, bytes_max: usize) -> Self {
        Self { bytes_max: Some(bytes_max), ..self }
    }

    /// Whether `count` values of together `bytes` bytes are within the bounds.
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

/// What a push does when there is no room. To wait is not here, it is a method of its own: [`crate::Lake::push_batch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The oldest values go until the new ones fit: for what is worth less the older it is.
    EvictOldest,
    /// The new values go: for what is only worth something in one piece from the beginning.
    DropNewest,
    /// The new values are handed back and not counted as accepted: for what must not be lost.
    Reject,
}

/// What went through a buffer since its creation: `accepted == delivered + dropped + held`, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Values handed in, also those that were dropped at once. Rejected ones are not among them.
    pub accepted: u64,
    /// Values handed out.
    pub delivered: u64,
    /// Values lost: evicted, dropped on arrival, or discarded.
    pub dropped: u64,
    /// Values waiting now.
    pub held: u64,
}

impl Counters {
    /// Whether nothing was lost or made up.
    pub const fn is_conserved(&self) -> bool {
        self.accepted == self.delivered + self.dropped + self.held
    }
}

/// Why values could not be put into a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// Not now: too much is held.
    #[error("no room for {count} values of {bytes} bytes: {held} values of {held_bytes} bytes are held of {bounds}")]
    Full {
        /// Values that were to go in together.
        count: usize,
        /// What they weigh.
        bytes: usize,
        /// Values held.
        held: usize,
        /// What those weigh.
        held_bytes: usize,
        /// What may be held.
        bounds: Bounds,
    },
    /// Never: they would not even fit into an empty buffer, so no policy can help.
    #[error("{count} values of {bytes} bytes never fit into a buffer of {bounds}")]
    TooLarge {
        /// Values that were to go in together.
        count: usize,
        /// What they weigh.
        bytes: usize,
        /// What may be held.
        bounds: Bounds,
    },
}

/// A value that was not accepted comes back with the reason.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Rejected<T, R = NoRoom> {
    /// The value, as it was handed in.
    pub value: T,
    /// Why it came back.
    pub reason: R,
}

/// Shows the reason, not the value: nobody knows what is in it.
impl<T, R: fmt::Debug> fmt::Debug for Rejected<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("reason", &self.reason).finish_non_exhaustive()
    }
}
