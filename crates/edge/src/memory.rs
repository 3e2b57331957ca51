//! What the edge may hold in memory.

use tidings_protocol::{CONNECT_SUBSCRIPTION_COUNT_MAX, EMULATED_BYTES_MAX, SubscribeRequest};
use tidings_telemetry::memory::Term;

use crate::HANDSHAKE_COUNT_MAX;
use crate::config::EdgeConfig;

/// An idle WebSocket connection (the goal, without buffers).
const CONNECTION_BYTES: usize = 6 << 10;
/// Copies of the current reply of a loop: as text, as a frame, and in the connection's buffer, which may be twice as large.
const REPLY_COPIES: usize = 4;
/// One subscription of a connection: its entries in the session (under 32 bytes plus the name), the loop and the channel.
const SUBSCRIPTION_BYTES: usize = 256;
/// A command that is read, without its texts: a connect with as many subscriptions as it may have.
pub const COMMAND_BYTES: usize = CONNECT_SUBSCRIPTION_COUNT_MAX * size_of::<SubscribeRequest>();
/// A subscription's tags filters, the client's and that of its terms (see [`tidings_protocol::TagsFilter`]).
const TAGS_FILTER_BYTES: usize = 2 * (6 << 10);

/// What the memory of the edge depends on, besides its own settings.
#[derive(Debug, Clone, Copy)]
pub struct MemoryUse {
    /// Loops.
    pub loop_count: usize,
    /// Channels that a connection may read.
    pub channel_count_max: usize,
    /// The largest publication: it is sent even if a reply would be smaller.
    pub publication_bytes_max: usize,
    /// Whether clients may filter by tags.
    pub has_tags_filters: bool,
    /// Whether commands may come in requests of their own (`/emulation`).
    pub has_emulation: bool,
}

impl EdgeConfig {
    /// What the connections of all loops may take.
    pub fn memory_terms(&self, edge: MemoryUse) -> Vec<Term> {
        // Each setting is named, so that a new one is not forgotten here.
        let Self {
            connection_count_max,
            message_bytes_max,
            turn_bytes_max,
            control_bytes_max,
            reply_budget_bytes,
            input_budget_bytes,
            reply_bytes_max,
            // These bound no memory of their own.
            node: _,
            address_connection_count_max: _,
            user_connection_count_max: _,
            recovery_count_max: _, // In `reply_bytes_max`.
            channel_creations_per_minute: _,
            bytes_per_second_max: _,
            ping_interval: _,
            pong_timeout: _,
            write_timeout: _,
            stale_timeout: _,
            close_timeout: _,
            shutdown_spread: _,
            shutdown_timeout: _,
            allowed_origins: _,
        } = self;
        let (connections, loops) = (*connection_count_max, edge.loop_count);
        let subscriptions = connections.saturating_mul(edge.channel_count_max);
        let reply = REPLY_COPIES.saturating_mul(edge.publication_bytes_max.max(*reply_bytes_max));
        let replies = reply_budget_bytes.saturating_add(*control_bytes_max).saturating_add(reply);
        let mut terms = vec![
            // Each with its first message.
            Term::peak(
                "handshakes",
                loops.saturating_mul(HANDSHAKE_COUNT_MAX),
                *message_bytes_max,
                "edge.loops, client.frame_bytes_max",
            ),
            Term::standing("connections", connections, CONNECTION_BYTES, "client.connection_count_max"),
            Term::peak("received commands", loops, *input_budget_bytes, "edge.input_bytes_max"),
            Term::peak(
                "commands in work",
                loops,
                COMMAND_BYTES + message_bytes_max,
                "edge.loops, client.frame_bytes_max",
            ),
            Term::standing("subscriptions", subscriptions, SUBSCRIPTION_BYTES, "client.channel_count_max"),
            Term::peak(
                "waiting replies",
                loops,
                replies,
                "edge.loops, edge.memory_bytes_max, edge.control_bytes_max, client.reply_bytes_max, http.body_bytes_max",
            ),
            Term::peak("turns", loops, *turn_bytes_max, "edge.loops, edge.turn_bytes_max"),
        ];
        if edge.has_tags_filters {
            let settings = "client.channel_count_max, allow_tags_filter";
            terms.push(Term::standing("tags filters", subscriptions, TAGS_FILTER_BYTES, settings));
        }
        if edge.has_emulation {
            terms.push(Term::peak("on their way", loops, EMULATED_BYTES_MAX, "edge.loops"));
        }
        terms
    }
}
