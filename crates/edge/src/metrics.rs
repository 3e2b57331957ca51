//! The metrics of the edge.

use tidings_telemetry::{Counter, Gauge, Histogram, Registry};

/// All loops count in one set of metrics.
#[derive(Debug, Clone)]
pub(crate) struct EdgeMetrics {
    pub(crate) connections: Gauge,
    pub(crate) connected_total: Counter,
    pub(crate) deliveries_total: Counter,
    pub(crate) commands_total: Counter,
    pub(crate) disconnects_slow_total: Counter,
    pub(crate) disconnects_stalled_total: Counter,
    pub(crate) disconnects_budget_total: Counter,
    pub(crate) disconnects_other_total: Counter,
    pub(crate) creations_refused_total: Counter,
    pub(crate) delivery_seconds: Histogram,
    pub(crate) receipts_asked_total: Counter,
    pub(crate) receipts_ponged_total: Counter,
    pub(crate) receipts_resumed_total: Counter,
    pub(crate) receipts_dropped_total: Counter,
}

impl EdgeMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let disconnects = |reason| {
            let help = "Connections the server closed: their reader was overtaken (slow), took nothing for \
                        client.write_timeout (stalled), was the slowest when edge.reply_budget_bytes was used up \
                        (reply_budget), or anything else";
            registry.counter("tidings_edge_disconnects_total", help, &[("reason", reason)])
        };
        let received = |by| {
            let help =
                "Receipts of publications, by how they came: a pong, or the position from which a client resumes";
            registry.counter("tidings_edge_receipts_received_total", help, &[("by", by)])
        };
        Self {
            connections: registry.gauge("tidings_edge_connections", "Open client connections", &[]),
            connected_total: registry.counter("tidings_edge_connected_total", "Client connections opened", &[]),
            deliveries_total: registry.counter(
                "tidings_edge_deliveries_total",
                "Publications written to a client's socket",
                &[],
            ),
            commands_total: registry.counter("tidings_edge_commands_total", "Client commands handled", &[]),
            disconnects_slow_total: disconnects("slow"),
            disconnects_stalled_total: disconnects("stalled"),
            disconnects_budget_total: disconnects("reply_budget"),
            disconnects_other_total: disconnects("other"),
            creations_refused_total: registry.counter(
                "tidings_edge_channel_creations_refused_total",
                "Publications refused because their user had created client.channel_creations_per_minute channels in that minute",
                &[],
            ),
            delivery_seconds: registry.histogram(
                "tidings_edge_delivery_seconds",
                "Time from a publication to the write to a client's socket",
                &[],
            ),
            receipts_asked_total: registry.counter(
                "tidings_edge_receipts_asked_total",
                "Publications written to a client whose receipt is wanted",
                &[],
            ),
            receipts_ponged_total: received("pong"),
            receipts_resumed_total: received("resume"),
            receipts_dropped_total: registry.counter(
                "tidings_edge_receipts_dropped_total",
                "Receipts that are no longer awaited: the connection ended or left the channel, or more than 1024 were pending",
                &[],
            ),
        }
    }
}
