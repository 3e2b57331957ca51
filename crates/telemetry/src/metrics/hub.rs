//! The hub: channels and who reads them.

use crate::metric::{Group, Metric, group};

group! {
    "Channels";

    /// Channels that exist.
    CHANNELS = Metric::gauge("tidings_hub_channels").panel("Channels");

    /// Subscriptions of live connections.
    SUBSCRIPTIONS = Metric::gauge("tidings_hub_subscriptions").panel("Live subscriptions");
}
