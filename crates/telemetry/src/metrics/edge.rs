//! The edge: connections of clients.

use crate::metric::{Bounds, Group, Metric, group};

group! {
    "Connections of clients";

    /// Open client connections.
    CONNECTIONS = Metric::gauge("tidings_edge_connections").panel("Connections");

    /// Client connections opened.
    CONNECTED_TOTAL = Metric::counter("tidings_edge_connected_total").panel("Opened and closed connections");

    /// Connections that the server closed: their reader was overtaken (`slow`), took nothing for client.write_timeout
    /// (`stalled`), was the slowest when the replies' part of edge.memory_bytes_max was used up (`reply_budget`), was one too many of its user
    /// (`user_limit`), had sent more than may wait (`input`: code 3013), or anything else (`other`).
    DISCONNECTS_TOTAL = Metric::counter("tidings_edge_disconnects_total")
        .labels(&["reason"])
        .panel("Opened and closed connections");

    /// Requests for a connection that were refused, by reason: `not_websocket`, `version`, `no_pings`, `origin`,
    /// `no_connect`, `not_streamable`, `address` (client.address_connection_count_max), or `full` (client.connection_count_max).
    HANDSHAKES_REFUSED_TOTAL = Metric::counter("tidings_edge_handshakes_refused_total")
        .labels(&["reason"])
        .panel("Refused connections");

    /// Memory of replies that wait for clients, of at most a quarter of edge.memory_bytes_max; looked at twice a second.
    REPLY_BYTES = Metric::gauge("tidings_edge_reply_bytes").panel("Memory for clients");

    /// Memory of what clients have sent and what is not handled yet, of at most edge.input_bytes_max; looked at twice a second.
    INPUT_BYTES = Metric::gauge("tidings_edge_input_bytes").panel("Memory for clients");

    /// Publications written to a client's socket.
    DELIVERIES_TOTAL = Metric::counter("tidings_edge_deliveries_total").panel("Deliveries");

    /// Publications left out because their reader was too slow, or wants less.
    PUBLICATIONS_SKIPPED_TOTAL = Metric::counter("tidings_edge_publications_skipped_total").panel("Skipped publications");

    /// Time from a publication to the write to a client's socket.
    DELIVERY_SECONDS = Metric::histogram("tidings_edge_delivery_seconds", Bounds::Latency).panel("Time of a delivery");

    /// Client commands handled.
    COMMANDS_TOTAL = Metric::counter("tidings_edge_commands_total").panel("Commands");

    /// Publications refused because their user had created client.channel_creations_per_minute channels in that minute.
    CHANNEL_CREATIONS_REFUSED_TOTAL = Metric::counter("tidings_edge_channel_creations_refused_total")
        .panel("Refused channels");

    /// Requests of clients that a fair share held back (`commands`, `publications`) or refused (`channels`), because others wait,
    /// too.
    SHARES_TOTAL = Metric::counter("tidings_edge_shares_total").labels(&["of"]).panel("Fair shares");

    /// Publications written to a client whose receipt is wanted.
    RECEIPTS_ASKED_TOTAL = Metric::counter("tidings_edge_receipts_asked_total").panel("Receipts");

    /// Receipts of publications, by how they came: a `pong`, or the position from which a client resumes (`resume`).
    RECEIPTS_RECEIVED_TOTAL = Metric::counter("tidings_edge_receipts_received_total").labels(&["by"]).panel("Receipts");

    /// Receipts that are no longer awaited: the connection ended or left the channel, or more than 1024 were pending.
    RECEIPTS_DROPPED_TOTAL = Metric::counter("tidings_edge_receipts_dropped_total").panel("Receipts");
}
