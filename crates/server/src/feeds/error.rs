//! Why the feeds cannot be started.

use tidings_store::ReadError;
use tidings_types::FeedName;

use crate::outgoing::OutgoingError;

/// Feeds cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum FeedsError {
    /// The mapping has changed since it was checked.
    #[error("feed {0}: {1}")]
    Mapping(FeedName, String),
    /// The certificates to trust cannot be read.
    #[error("feed {0}")]
    Certificates(FeedName, #[source] OutgoingError),
    /// A file of a source of messages cannot be read.
    #[error("source {0}")]
    Source(String, #[source] OutgoingError),
    /// What is known of the feeds cannot be read.
    #[error("cannot read what is known of the feeds")]
    Store(#[from] ReadError),
}
