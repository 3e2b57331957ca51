//! How long a loop works at one thing before it looks at the others.

use std::time::Duration;

use tokio::time::Instant;

/// Connections that one stint serves: about half a millisecond, if each is written one frame.
const CONNECTION_COUNT_MAX: usize = 128;
/// After so long no further connection is served, whatever it costs to serve one.
const TIME_MAX: Duration = Duration::from_millis(1);

/// Work at connections (or channels) one after the other, until there were enough or the time is over.
#[derive(Debug)]
pub(crate) struct Stint {
    left: usize,
    ends_at: Instant,
}

impl Stint {
    /// It begins now.
    pub(crate) fn begin() -> Self {
        Self { left: CONNECTION_COUNT_MAX, ends_at: Instant::now() + TIME_MAX }
    }

    /// Whether a further one may be served. The first one always may.
    pub(crate) fn goes_on(&mut self) -> bool {
        let is_first = self.left == CONNECTION_COUNT_MAX;
        let goes_on = self.left > 0 && (is_first || Instant::now() < self.ends_at);
        self.left = if goes_on { self.left - 1 } else { 0 };
        goes_on
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stint_has_an_end_in_number_and_in_time() {
        let mut long = Stint { left: CONNECTION_COUNT_MAX, ends_at: Instant::now() + Duration::from_secs(3600) };
        assert_eq!((0..1000).filter(|_| long.goes_on()).count(), CONNECTION_COUNT_MAX);
        let mut late = Stint { left: CONNECTION_COUNT_MAX, ends_at: Instant::now() };
        assert_eq!((0..1000).filter(|_| late.goes_on()).count(), 1, "whatever it costs, one is served");
    }
}
