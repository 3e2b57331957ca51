//! Settings of the edge; the defaults are the binary's.

use std::time::Duration;

/// How connections are treated.
#[derive(Debug, Clone)]
pub struct EdgeConfig {
    /// Connections at one time; one more is refused with 503.
    pub connection_count_max: usize,
    /// Bytes of one client message.
    pub message_bytes_max: usize,
    /// Publications are written to one connection at most this many bytes at a time, then it is another's turn.
    pub turn_bytes_max: usize,
    /// Bytes of replies that may wait for a reader; over it none of its commands is done until it takes some.
    pub control_bytes_max: usize,
    /// Bytes of replies that may wait for all readers of a loop; over it those that have taken nothing for longest are closed.
    pub reply_budget_bytes: usize,
    /// Bytes of publications, or of who is present, in one answer; one publication may be larger.
    pub reply_bytes_max: usize,
    /// Missed publications that are replayed at most when a reader resumes.
    pub recovery_count_max: usize,
    /// Channels that one user may create by publishing, on one loop, in a minute.
    pub channel_creations_per_minute: u32,
    /// Between two pings of the server.
    pub ping_interval: Duration,
    /// How long a pong may take; less than the interval, since only one ping is in flight at a time.
    pub pong_timeout: Duration,
    /// A peer that takes no byte for so long, while some wait for it, is cut off.
    pub write_timeout: Duration,
    /// How long a new connection may take to send `connect`.
    pub stale_timeout: Duration,
    /// How long a closing connection may take to be flushed and closed by its peer.
    pub close_timeout: Duration,
    /// Web origins that may connect; requests without an `Origin` header always may. `*` admits all.
    pub allowed_origins: Vec<String>,
}
