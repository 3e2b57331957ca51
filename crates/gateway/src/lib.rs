//! Connections to push providers.
