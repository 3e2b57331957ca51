//! How many streams a connection may have open, and when it asks for more work.
//!
//! A provider states with HTTP/2 SETTINGS how many streams it allows at once, and may change this at any time: APNs lowers
//! it after rejected tokens and raises it after accepted ones. [`Permits`] follows it in both directions. After the limit was
//! lowered, more streams may be open than are allowed. Then the permits are negative, and no stream is opened until enough
//! have ended. If the peer states no limit, `h2` reports "unlimited", and our own ceiling holds.
//!
//! A connection that authenticates with a token may have one stream until its first request was accepted (Apple,
//! "Establishing a token-based connection to APNs").
//!
//! Work is requested in batches, so that requests are sent together in one write: only when at least `clamp(limit / 20, 1,
//! 50)` streams are free. The threshold shrinks with the limit, so that a limit of 1 still requests work. If the peer's flow
//! window is smaller than its streams, only as much is requested as fits into the window. More would only occupy streams.

/// The highest number of free streams that a connection needs before it asks for work.
const BATCH_MAX: u32 = 50;
/// The number of free streams that it needs, as a part of the limit.
const BATCH_DIVISOR: u32 = 20;

/// The streams of one connection.
#[derive(Debug, Clone)]
pub struct Permits {
    ceiling: u32,
    peer_limit: u32,
    in_flight: u32,
    proven: bool,
}

impl Permits {
    /// A new connection that never has more than `ceiling` streams, even if the peer allows more.
    ///
    /// # Panics
    /// When `ceiling` is 0.
    pub fn new(ceiling: u32) -> Self {
        assert!(ceiling > 0, "a connection has at least one stream");
        Self { ceiling, peer_limit: 1, in_flight: 0, proven: false }
    }

    /// The peer has a new limit, in the last SETTINGS that we acknowledged. 0 pauses the connection.
    pub fn on_limit(&mut self, streams: usize) {
        self.peer_limit = u32::try_from(streams).unwrap_or(u32::MAX);
    }

    /// A stream was opened.
    pub fn on_opened(&mut self) {
        self.in_flight += 1;
    }

    /// A stream has ended in any way.
    ///
    /// # Panics
    /// When none is open.
    pub fn on_ended(&mut self) {
        self.in_flight = self.in_flight.checked_sub(1).expect("a stream that ends was opened");
    }

    /// A request was accepted, which proves the credential on this connection.
    pub fn on_accepted(&mut self) {
        self.proven = true;
    }

    /// The current limit.
    pub fn limit(&self) -> u32 {
        let proven_max = if self.proven { self.ceiling } else { 1 };
        self.peer_limit.min(proven_max)
    }

    /// Open streams.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// How many streams may be opened; negative while more are open than the limit allows.
    pub fn permits(&self) -> i64 {
        i64::from(self.limit()) - i64::from(self.in_flight)
    }

    /// How many notifications to ask for: all permits if they are enough for a batch, else 0.
    pub fn demand(&self) -> usize {
        let threshold = (self.limit() / BATCH_DIVISOR).clamp(1, BATCH_MAX);
        let permits = self.permits();
        if permits >= i64::from(threshold) { permits as usize } else { 0 }
    }

    /// Like [`Self::demand`], if the peer's flow window has `window_bytes` and a request has about `payload_bytes`. With
    /// nothing in flight, one notification is requested even for a smaller window; it is then sent in pieces.
    pub fn demand_within(&self, window_bytes: u64, payload_bytes: usize) -> usize {
        let fits = usize::try_from(window_bytes / payload_bytes.max(1) as u64).unwrap_or(usize::MAX);
        let least = usize::from(self.in_flight == 0);
        self.demand().min(fits.max(least))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn proven(limit: usize) -> Permits {
        let mut permits = Permits::new(1000);
        permits.on_limit(limit);
        permits.on_accepted();
        permits
    }

    #[test]
    fn one_stream_until_the_first_token_was_accepted() {
        let mut permits = Permits::new(1000);
        permits.on_limit(500);
        assert_eq!(permits.demand(), 1);
        permits.on_opened();
        assert_eq!(permits.demand(), 0);
        permits.on_ended();
        permits.on_accepted();
        assert_eq!(permits.demand(), 500);
    }

    #[test]
    fn without_a_limit_of_the_peer_our_ceiling_holds() {
        assert_eq!(proven(usize::MAX).demand(), 1000);
    }

    #[test]
    fn permits_are_negative_after_the_limit_was_lowered() {
        let mut permits = proven(100);
        (0..100).for_each(|_| permits.on_opened());
        permits.on_limit(10);
        assert_eq!((permits.permits(), permits.demand()), (-90, 0));
        (0..91).for_each(|_| permits.on_ended());
        assert_eq!(permits.demand(), 1);
    }

    #[test]
    fn a_small_window_limits_the_demand_but_never_stops_a_connection() {
        let mut permits = proven(500);
        assert_eq!(permits.demand_within(65_535, 1000), 65);
        assert_eq!(permits.demand_within(u64::MAX, 1000), 500);
        assert_eq!(permits.demand_within(999, 1000), 1, "nothing is in flight");
        permits.on_opened();
        assert_eq!(permits.demand_within(999, 1000), 0);
        assert_eq!(permits.demand_within(999, 0), 499);
        permits.on_limit(0);
        assert_eq!(permits.demand_within(u64::MAX, 1), 0);
    }

    proptest! {
        /// The threshold neither lets a connection starve (with all streams free it always asks) nor splits batches.
        #[test]
        fn demand_comes_in_batches_and_always_comes(limit in 0usize..5000, in_flight in 0u32..5000) {
            let mut permits = proven(limit);
            (0..in_flight).for_each(|_| permits.on_opened());
            let obeyed = limit.min(1000);
            let free = obeyed.saturating_sub(in_flight as usize);
            let demand = permits.demand();
            prop_assert!(demand == 0 || demand == free);
            prop_assert_eq!(demand > 0, free > 0 && free >= (obeyed / 20).clamp(1, 50));
            prop_assert!(in_flight > 0 || obeyed == 0 || demand > 0);
        }
    }
}
