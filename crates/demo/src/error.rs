//! Why the demo failed.

use std::path::PathBuf;

use tidings_client::HttpError;
use tidings_config::ConfigError;
use tidings_server::ServeError;

/// Why the demo failed, or could not be played.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// Its own configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server cannot start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The server cannot be reached, or breaks off.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// What was asked makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work.
    #[error("{0}")]
    Failed(String),
    /// A file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// "read" or "write".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Standard input or output failed, or a file.
    #[error("cannot use standard input or output")]
    Terminal(#[from] std::io::Error),
}
