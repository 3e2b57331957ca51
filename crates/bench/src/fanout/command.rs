//! The commands of the server's process, and its answers.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use tidings_types::Json;

use crate::process::Usage;

/// A channel without history.
pub(super) const LIVE_CHANNEL: &str = "bench";
/// A channel whose clients may ask for less than everything.
pub(super) const THIN_CHANNEL: &str = "thin:bench";
/// A durable channel: only durable channels ask for receipts.
pub(super) const PROOF_CHANNEL: &str = "proof:bench";

/// A command.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Command {
    /// Publish. There is no answer.
    Publish { channel: String, number: u64, data: Json },
    /// Answer with [`Mark`].
    Mark,
}

/// The state of the process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) usage: Usage,
    pub(super) connections: usize,
}

/// The greeting: where the server listens.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Listening(pub(super) SocketAddr);
