//! What all parts of the demo speak of.

use std::time::Duration;

use tidings_server::command_error::{CommandError, failed};

/// How long the cluster may take to come back.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Servers of the cluster, NATS servers, and clients.
pub(super) const NODE_COUNT: usize = 3;

/// Names of the servers.
const NAMES: [&str; NODE_COUNT] = ["a", "b", "c"];

/// The name of a server, without the word.
pub(super) fn node_name(index: usize) -> &'static str {
    NAMES[index]
}

/// The channel that the events go into.
pub(super) const CHANNEL: &str = "match:final";
/// The namespace of that channel.
pub(super) const NAMESPACE: &str = "match";
/// The topic of the events.
pub(super) const TOPIC: &str = "goal";

pub(super) fn late(trouble: &str) -> CommandError {
    failed(format!("the cluster does not come back within a minute: {trouble}"))
}
