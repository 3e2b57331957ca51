//! Sending these metrics to an agent.

use crate::metric::{Group, Metric, group};

const CONFIGURED: &str = "influx.address is set";

group! {
    "Metrics that are sent";

    /// Points in packets that were sent.
    POINTS_TOTAL = Metric::counter("tidings_influx_points_total").when(CONFIGURED).panel("Points and packets");

    /// Packets sent.
    PACKETS_TOTAL = Metric::counter("tidings_influx_packets_total").when(CONFIGURED).panel("Points and packets");

    /// Times that the agent's host was found to have refused a packet, and failed look-ups of its name.
    REFUSALS_TOTAL = Metric::counter("tidings_influx_refusals_total").when(CONFIGURED).panel("Losses");

    /// Points that could not be sent: no socket, no room (1 MiB of lines waits at most), or too long for a packet.
    DROPPED_TOTAL = Metric::counter("tidings_influx_dropped_total").when(CONFIGURED).panel("Losses");
}
