//! What all parts of the demo speak of.

/// Servers of the cluster, and NATS servers.
pub(super) const NODE_COUNT: usize = 3;

/// The channel that the events go into.
pub(super) const CHANNEL: &str = "match:final";
/// The namespace of that channel.
pub(super) const NAMESPACE: &str = "match";
/// The topic of the events.
pub(super) const TOPIC: &str = "goal";
