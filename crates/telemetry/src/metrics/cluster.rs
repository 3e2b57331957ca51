//! The server in its cluster.

use crate::metric::{Group, Metric, group};

/// When these metrics exist.
const WHEN: &str = "the server is in a cluster";

group! {
    "Cluster";

    /// 1 while this server leads its cluster, 0 while it is a standby.
    LEADS = Metric::gauge("tidings_cluster_leads").when(WHEN).panel("Cluster");

    /// 1 while this server cannot follow the log of its cluster any more.
    LOST = Metric::gauge("tidings_cluster_lost").when(WHEN).panel("Alarms");

    /// 1 while NATS answers this server.
    HEARD = Metric::gauge("tidings_cluster_heard").when(WHEN).panel("Cluster");

    /// The number of the last entry of the log that the store of this server has.
    ENTRY = Metric::gauge("tidings_cluster_entry").when(WHEN).panel("Entries of the log");
}
