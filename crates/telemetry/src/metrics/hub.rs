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

    /// How often a durable channel has let go of its publications because all such channels held more than
    /// store.history_cache_bytes; they are read from the disk when somebody asks for them.
    HISTORIES_DROPPED_TOTAL = Metric::counter("tidings_hub_histories_dropped_total").panel("Dropped histories");

    /// How often a channel in memory has lost publications of its history because all such histories held more than
    /// channels.history_bytes_max; clients that missed them start anew.
    HISTORIES_CUT_TOTAL = Metric::counter("tidings_hub_histories_cut_total").panel("Dropped histories");
}
