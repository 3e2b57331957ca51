//! Owner of all channels: publish, follow from a position, presence.
