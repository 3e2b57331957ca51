//! What the edge counts.

use tidings_telemetry::{Counter, Gauge, Histogram, Registry};

/// One set for all loops.
#[derive(Debug, Clone)]
pub(crate) struct EdgeMetrics {
    pub(crate) connections: Gauge,
    pub(crate) connected_total: Counter,
    pub(crate) deliveries_total: Counter,
    pub(crate) commands_total: Counter,
    pub(crate) disconnects_slow_total: Counter,
    pub(crate) disconnects_other_total: Counter,
    pub(crate) delivery_seconds: Histogram,
}

impl EdgeMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let disconnects = |reason| {
            let help = "Connections the server closed";
            registry.counter("tidings_edge_disconnects_total", help, &[("reason", reason)])
        };
        Self {
            connections: registry.gauge("tidings_edge_connections", "Open client connections", &[]),
            connected_total: registry.counter("tidings_edge_connected_total", "Client connections opened", &[]),
            deliveries_total: registry.counter(
                "tidings_edge_deliveries_total",
                "Publications handed to the system for a connection",
                &[],
            ),
            commands_total: registry.counter("tidings_edge_commands_total", "Client commands handled", &[]),
            disconnects_slow_total: disconnects("slow"),
            disconnects_other_total: disconnects("other"),
            delivery_seconds: registry.histogram(
                "tidings_edge_delivery_seconds",
                "From publication to the write to a connection",
                &[],
            ),
        }
    }
}
