//! The HTTP API for servers.
