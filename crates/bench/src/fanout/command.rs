//! What the other process is told, and what it answers.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tidings_types::Json;

use crate::process::Usage;

/// Where the channels of this benchmark are: without and with history.
pub(super) const LIVE_CHANNEL: &str = "bench";
pub(super) const KEPT_CHANNEL: &str = "kept:bench";
/// A durable one: only those ask for receipts.
pub(super) const PROOF_CHANNEL: &str = "proof:bench";

/// What the other process is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Command {
    /// Publish; no answer.
    Publish { channel: String, number: u64, data: Json },
    /// Answer with [`Mark`].
    Mark,
}

/// What the other process is at, at one moment.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) usage: Usage,
    pub(super) connections: usize,
}

/// Where it listens: its greeting.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Listening(pub(super) SocketAddr);
