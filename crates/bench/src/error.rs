//! Why a benchmark did not run, or its answers are wrong.

use tidings_client::HttpError;
use tidings_config::ConfigError;
use tidings_server::ServeError;

/// Why a benchmark did not run, or its answers are wrong.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
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
    /// Standard input or output failed, or a file.
    #[error("cannot use standard input or output")]
    Terminal(#[from] std::io::Error),
}

/// The error of a run that did not do, or whose answers are wrong.
pub(crate) fn failed(why: impl Into<String>) -> BenchError {
    BenchError::Failed(why.into())
}

/// The same, for errors with causes.
pub(crate) fn failed_by(what: &str, error: &dyn std::error::Error) -> BenchError {
    BenchError::Failed(format!("{what}: {}", tidings_telemetry::chain(error)))
}
