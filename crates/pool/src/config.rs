//! What can be set about a pool.

use std::time::Duration;

/// The settings of a pool. They hold for its life and are read without a lock.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The pool's name in logs.
    pub name: String,
    /// How many connections are kept up, 1 to 65 536.
    pub connection_count: usize,
    /// How a connection is chosen for a request.
    pub strategy: Strategy,
    /// How many requests a connection may have: waiting, in flight, and expired but still owed an answer
    /// (tombstones). Beyond it the caller gets [`CallError::Backlog`](crate::CallError::Backlog) at once.
    pub backlog_max: usize,
    /// How many requests may be written and unanswered on a connection, tombstones included (the depth of the
    /// pipeline). The rest of the backlog waits.
    pub in_flight_max: usize,
    /// At how many tombstones the connection is given up: its peer owes so many answers that nobody wants any more.
    /// It is given up at `in_flight_max` of them in any case, and at one of a request that travels alone, for then
    /// nothing can be written any more.
    pub tombstone_max: usize,
    /// How often a repeatable request may be written again on another connection after its own was lost; but as often
    /// as there is time when each was closed in good order behind an answer ([`Decoded`](crate::Decoded)'s `closes`, or
    /// an answer that ended with it).
    pub repeat_max: u32,
    /// Waits between attempts to connect.
    pub reconnect: Reconnect,
    /// How long resolving, connecting, the TLS handshake and the set-up exchange may take together.
    pub connect_timeout: Duration,
    /// A stream that owes answers, also to requests that have expired, or has not taken all bytes that wait for it, and
    /// from which no byte came for so long, is given up. Not for datagrams.
    pub silence_max: Duration,
    /// How many bytes a codec may leave in the input while it waits for the rest of an answer. A codec that takes the
    /// parts of a large answer as they come is not bound by it, and must have a bound of its own.
    pub input_bytes_max: usize,
    /// Requests are encoded while fewer bytes than this are waiting to be written.
    pub output_bytes_max: usize,
}

/// Waits between attempts to connect: the n-th is random between `min` and `min` × 2ⁿ, at most `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reconnect {
    /// The shortest wait, above 0.
    pub min: Duration,
    /// The longest wait.
    pub max: Duration,
}

/// How a connection is chosen for a request. If the chosen one is down or full, the next one that is neither is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Any, with equal chance. No shared memory is written.
    Random,
    /// One after the other. All callers share a counter.
    RoundRobin,
    /// The one with fewer requests of two chosen at random (Mitzenmacher, "The Power of Two Choices in Randomized Load
    /// Balancing", 2001). Avoids slow connections; the best choice unless measured otherwise.
    LeastLoadedOfTwo,
}

impl PoolConfig {
    /// Settings to start from: `connection_count` connections with 1024 requests each, 128 of them in flight.
    ///
    /// Least loaded of two; 64 tombstones; 2 repeats; reconnect after 0.1 to 30 s; connect within 5 s; 30 s of silence;
    /// 1 MiB of input without an answer, 256 KiB of output.
    pub fn new(name: impl Into<String>, connection_count: usize) -> Self {
        Self {
            name: name.into(),
            connection_count,
            strategy: Strategy::LeastLoadedOfTwo,
            backlog_max: 1024,
            in_flight_max: 128,
            tombstone_max: 64,
            repeat_max: 2,
            reconnect: Reconnect { min: Duration::from_millis(100), max: Duration::from_secs(30) },
            connect_timeout: Duration::from_secs(5),
            silence_max: Duration::from_secs(30),
            input_bytes_max: 1 << 20,
            output_bytes_max: 256 << 10,
        }
    }

    /// Checks every field.
    ///
    /// # Errors
    /// The first field that is out of its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let in_range = |field, value: usize, min, max| {
            if (min..=max).contains(&value) { Ok(()) } else { Err(ConfigError::Range { field, value, min, max }) }
        };
        in_range("connection_count", self.connection_count, 1, 1 << 16)?;
        in_range("backlog_max", self.backlog_max, 1, 1 << 24)?;
        in_range("in_flight_max", self.in_flight_max, 1, self.backlog_max)?;
        in_range("tombstone_max", self.tombstone_max, 1, 1 << 24)?;
        in_range("input_bytes_max", self.input_bytes_max, 1024, 1 << 32)?;
        in_range("output_bytes_max", self.output_bytes_max, 1024, 1 << 32)?;
        for (field, value) in [
            ("reconnect.min", self.reconnect.min),
            ("connect_timeout", self.connect_timeout),
            ("silence_max", self.silence_max),
        ] {
            if value < Duration::from_millis(1) {
                return Err(ConfigError::TooShort { field, value, min: Duration::from_millis(1) });
            }
        }
        let Reconnect { min, max } = self.reconnect;
        if max < min {
            return Err(ConfigError::TooShort { field: "reconnect.max", value: max, min });
        }
        Ok(())
    }
}

/// A setting that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A number outside of its range.
    #[error("{field} is {value}, must be {min} to {max}")]
    Range {
        /// Which.
        field: &'static str,
        /// What it is.
        value: usize,
        /// The smallest allowed.
        min: usize,
        /// The largest allowed.
        max: usize,
    },
    /// A time that is too short.
    #[error("{field} is {value:?}, must be at least {min:?}")]
    TooShort {
        /// Which.
        field: &'static str,
        /// What it is.
        value: Duration,
        /// The shortest allowed.
        min: Duration,
    },
}
