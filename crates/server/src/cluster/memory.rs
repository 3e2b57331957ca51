//! What a server may hold in memory because it is one of a cluster.

use tidings_config::Cluster;
use tidings_telemetry::memory::Term;

use super::{answers, copying, peers};

/// The terms of the memory sum; none, if the server is alone.
pub(crate) fn terms(cluster: &Cluster) -> Vec<Term> {
    if cluster.servers.is_empty() {
        return Vec::new();
    }
    let of_messages = tidings_cluster::memory_terms();
    [of_messages, peers::memory_terms(), answers::memory_terms(), copying::memory_terms()].concat()
}
