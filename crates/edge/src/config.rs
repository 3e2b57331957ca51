//! Settings of the edge; the defaults are the binary's.

use std::time::Duration;

use tidings_types::OriginPattern;

/// How connections are treated.
#[derive(Debug, Clone)]
pub struct EdgeConfig {
    /// The name of this node, with which a client finds its session again.
    pub node: Box<str>,
    /// Connections at one time; a further one is refused with 503.
    pub connection_count_max: usize,
    /// Connections of one network at a time; a further one is refused with 429. 0: no limit.
    pub address_connection_count_max: usize,
    /// Connections of one user at a time; a further one is closed. 0: no limit.
    pub user_connection_count_max: usize,
    /// The largest message of a client, in bytes; also the largest body of a request that carries commands.
    pub message_bytes_max: usize,
    /// The most bytes of publications that are written to one connection before the next connection is served.
    pub turn_bytes_max: usize,
    /// Bytes of replies that may wait for one reader; above that none of its commands is handled until it takes some.
    pub control_bytes_max: usize,
    /// Bytes of replies that may wait for all readers of a loop; above that the readers that have taken nothing for
    /// longest are cut off.
    pub reply_budget_bytes: usize,
    /// Bytes of commands that a loop keeps of its clients. Half of them are for what waits: above that the clients that hold
    /// most of it for longest are closed. The other half is for commands in work that wait for a disk or another server:
    /// above that they do not wait, and their clients are no proven devices, or may be told that something is missing, or their publications are refused.
    pub input_budget_bytes: usize,
    /// Bytes of publications, or of presence information, in one answer; a single publication may be larger.
    pub reply_bytes_max: usize,
    /// The most publications that a resuming reader gets from the history.
    pub recovery_count_max: usize,
    /// Channels that one user may create by publishing, per loop and minute.
    pub channel_creations_per_minute: u32,
    /// Bytes a second that one connection is written; 0: without a limit.
    pub bytes_per_second_max: u64,
    /// The time between two pings of the server.
    pub ping_interval: Duration,
    /// How long a pong may take; shorter than `ping_interval`, since only one ping is in flight at a time.
    pub pong_timeout: Duration,
    /// A peer that takes no byte for this long, while bytes wait for it, is cut off.
    pub write_timeout: Duration,
    /// How long a new connection may take to send `connect`.
    pub stale_timeout: Duration,
    /// How long a closing connection may take until everything is written and its peer has closed.
    pub close_timeout: Duration,
    /// When the server stops: over how long its connections are closed, at most a millisecond for each of a loop.
    pub shutdown_spread: Duration,
    /// How long stopping may take: what was published before is written as long as there is time for it, and then clients are
    /// disconnected. `shutdown_spread` and `close_timeout` together if they are longer.
    pub shutdown_timeout: Duration,
    /// Web origins that may connect. Requests without an `Origin` header may always connect.
    pub allowed_origins: Vec<OriginPattern>,
}
