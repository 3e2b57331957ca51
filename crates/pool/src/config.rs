//! The settings of a pool.

use std::time::Duration;

/// The settings of a pool. They do not change while it runs.
#[derive(Debug, Clone)]
pub struct PoolConfig {
    /// The pool's name in logs.
    pub name: String,
    /// The number of connections, 1 to 65 536.
    pub connection_count: usize,
    /// How a connection is chosen for a request.
    pub strategy: Strategy,
    /// The most requests of a connection: waiting, in flight, and tombstones (expired, but the peer may still answer). When
    /// all are full, the caller gets [`CallError::Backlog`](crate::CallError::Backlog) at once.
    pub backlog_max: usize,
    /// The most requests in flight on a connection, tombstones included (the depth of the pipeline). The rest of the
    /// backlog waits.
    pub in_flight_max: usize,
    /// A connection with this many tombstones is closed. It is also closed at `in_flight_max` tombstones, and at one
    /// tombstone of a request that travels alone: then nothing more can be written.
    pub tombstone_max: usize,
    /// How often a repeatable request may be written again after its connection was lost. An orderly close after an answer
    /// does not count ([`Decoded`](crate::Decoded)'s `closes`, or an answer that ended with the connection).
    pub repeat_max: u32,
    /// The pauses between attempts to connect.
    pub reconnect: Reconnect,
    /// The limit for resolving, connecting, the TLS handshake and the set-up exchange together.
    pub connect_timeout: Duration,
    /// A connection is closed if no byte came from the peer for this long while an answer is missing (even to an expired
    /// request) or written bytes are not taken. Not for datagrams.
    pub silence_max: Duration,
    /// How many bytes a codec may leave in the input while it waits for the rest of an answer. A codec that consumes a
    /// large answer in parts needs a limit of its own.
    pub input_bytes_max: usize,
    /// Requests are encoded while fewer bytes than this wait to be written.
    pub output_bytes_max: usize,
}

/// The pauses between attempts to connect: the n-th is random between `min` and `min` × 2ⁿ, at most `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reconnect {
    /// The shortest pause, at least 1 ms.
    pub min: Duration,
    /// The longest pause.
    pub max: Duration,
}

/// How a connection is chosen for a request. If it is down or full, the next one that is up and has room is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Random, all with equal probability. Writes no shared memory.
    Random,
    /// One after the other. All callers share a counter.
    RoundRobin,
    /// The less loaded of two random connections (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing",
    /// 2001). Avoids slow connections. The best choice unless a measurement says otherwise.
    LeastLoadedOfTwo,
}

impl PoolConfig {
    /// Default settings: `connection_count` connections with 1024 requests each, 128 of them in flight.
    ///
    /// The less loaded of two connections; 64 tombstones; 2 repeats; reconnect after 0.1 to 30 s; connect within 5 s; 30 s
    /// of silence; 1 MiB of input without an answer; 256 KiB of output.
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

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A number outside of its range.
    #[error("{field} is {value}, must be {min} to {max}")]
    Range {
        /// The name of the setting.
        field: &'static str,
        /// Its value.
        value: usize,
        /// The smallest allowed value.
        min: usize,
        /// The largest allowed value.
        max: usize,
    },
    /// A time that is too short.
    #[error("{field} is {value:?}, must be at least {min:?}")]
    TooShort {
        /// The name of the setting.
        field: &'static str,
        /// Its value.
        value: Duration,
        /// The shortest allowed value.
        min: Duration,
    },
}
