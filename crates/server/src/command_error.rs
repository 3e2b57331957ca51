//! Errors of a command and their exit codes, shared by the program, the demo and the benchmarks.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use tidings_client::HttpError;
use tidings_config::ConfigError;
use tidings_telemetry::chain;

use crate::{ServeError, TextError};

/// The error of a command.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Texts or translations of the configuration are wrong.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The server cannot start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The arguments make no sense.
    #[error("{0}")]
    Usage(String),
    /// The command failed, or its result is wrong.
    #[error("{0}")]
    Failed(String),
    /// The server refused the request.
    #[error("{detail}")]
    Refused {
        /// The status of the answer.
        status: u16,
        /// The server and its reason, in words.
        detail: String,
        /// The answer unchanged, if `--json` asks for it and it is JSON.
        answer: Option<String>,
    },
    /// The server cannot be reached, or the connection broke.
    #[error(transparent)]
    Http(#[from] HttpError),
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
    /// Standard input or output failed.
    #[error("cannot use standard input or output")]
    Terminal(#[from] std::io::Error),
}

impl CommandError {
    /// 1 failed, 2 wrong usage or configuration.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_)
            | Self::Text(_)
            | Self::Usage(_)
            | Self::Http(HttpError::Url(_) | HttpError::Key | HttpError::Roots(_)) => ExitCode::from(2),
            _ => ExitCode::from(1),
        }
    }

    /// The JSON to print instead of the error in words.
    pub fn json(&self) -> Option<&str> {
        match self {
            Self::Refused { answer, .. } => answer.as_deref(),
            _ => None,
        }
    }

    /// Whether the reader of our output has gone (`tidings … | head`). That is no failure.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Terminal(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

/// The error of a command that did not work, or whose result is wrong.
pub fn failed(why: impl Into<String>) -> CommandError {
    CommandError::Failed(why.into())
}

/// As [`failed`], for an error with causes.
pub fn failed_by(what: &str, error: &dyn Error) -> CommandError {
    CommandError::Failed(format!("{what}: {}", chain(error)))
}
