//! The metrics of the edge.

use tidings_telemetry::metrics::edge as table;
use tidings_telemetry::{Counter, Gauge, Histogram, Registry};

use crate::error::HandshakeError;

/// All loops count in one set of metrics.
#[derive(Debug, Clone)]
pub(crate) struct EdgeMetrics {
    pub(crate) connections: Gauge,
    pub(crate) reply_bytes: Gauge,
    pub(crate) input_bytes: Gauge,
    pub(crate) connected_total: Counter,
    pub(crate) deliveries_total: Counter,
    pub(crate) publications_skipped_total: Counter,
    pub(crate) commands_total: Counter,
    pub(crate) disconnects_slow_total: Counter,
    pub(crate) disconnects_stalled_total: Counter,
    pub(crate) disconnects_budget_total: Counter,
    pub(crate) disconnects_user_total: Counter,
    pub(crate) disconnects_input_total: Counter,
    pub(crate) disconnects_other_total: Counter,
    pub(crate) creations_refused_total: Counter,
    pub(crate) shares_of_channels_total: Counter,
    pub(crate) shares_of_commands_total: Counter,
    pub(crate) shares_of_publications_total: Counter,
    pub(crate) delivery_seconds: Histogram,
    pub(crate) receipts_asked_total: Counter,
    pub(crate) receipts_ponged_total: Counter,
    pub(crate) receipts_resumed_total: Counter,
    pub(crate) receipts_dropped_total: Counter,
    /// In the order of [`HandshakeError::ALL`].
    handshakes_refused_total: [Counter; HandshakeError::ALL.len()],
}

impl EdgeMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let disconnects = |reason| registry.counter(&table::DISCONNECTS_TOTAL, &[reason]);
        let shares = |of| registry.counter(&table::SHARES_TOTAL, &[of]);
        let received = |by| registry.counter(&table::RECEIPTS_RECEIVED_TOTAL, &[by]);
        let counter = |metric| registry.counter(metric, &[]);
        Self {
            connections: registry.gauge(&table::CONNECTIONS, &[]),
            reply_bytes: registry.gauge(&table::REPLY_BYTES, &[]),
            input_bytes: registry.gauge(&table::INPUT_BYTES, &[]),
            connected_total: counter(&table::CONNECTED_TOTAL),
            deliveries_total: counter(&table::DELIVERIES_TOTAL),
            publications_skipped_total: counter(&table::PUBLICATIONS_SKIPPED_TOTAL),
            commands_total: counter(&table::COMMANDS_TOTAL),
            disconnects_slow_total: disconnects("slow"),
            disconnects_stalled_total: disconnects("stalled"),
            disconnects_budget_total: disconnects("reply_budget"),
            disconnects_user_total: disconnects("user_limit"),
            disconnects_input_total: disconnects("input"),
            disconnects_other_total: disconnects("other"),
            creations_refused_total: counter(&table::CHANNEL_CREATIONS_REFUSED_TOTAL),
            shares_of_channels_total: shares("channels"),
            shares_of_commands_total: shares("commands"),
            shares_of_publications_total: shares("publications"),
            delivery_seconds: registry.histogram(&table::DELIVERY_SECONDS, &[]),
            receipts_asked_total: counter(&table::RECEIPTS_ASKED_TOTAL),
            receipts_ponged_total: received("pong"),
            receipts_resumed_total: received("resume"),
            receipts_dropped_total: counter(&table::RECEIPTS_DROPPED_TOTAL),
            handshakes_refused_total: HandshakeError::ALL
                .map(|error| registry.counter(&table::HANDSHAKES_REFUSED_TOTAL, &[error.reason()])),
        }
    }

    pub(crate) fn on_refused(&self, error: HandshakeError) {
        self.handshakes_refused_total[error as usize].inc();
    }
}
