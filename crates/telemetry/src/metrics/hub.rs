//! The hub: channels and who reads them.

use crate::metric::{Group, Metric, group};

group! {
    "Channels";

    /// Channels that exist.
    CHANNELS = Metric::gauge("tidings_hub_channels").panel("Channels");

    /// Subscriptions of live connections.
    SUBSCRIPTIONS = Metric::gauge("tidings_hub_subscriptions").panel("Live subscriptions");

    /// Events whose receipts were forgotten because those of all events took more than edge.receipt_bytes_max; devices that wait
    /// for them are pushed.
    RECEIPTS_FORGOTTEN_TOTAL = Metric::counter("tidings_hub_receipts_forgotten_total").panel("Forgotten receipts");
}
