//! Why a command ended without having done what was asked, and the exit code that says so. The program, the demo and the
//! benchmarks share it.

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use tidings_client::HttpError;
use tidings_config::ConfigError;
use tidings_telemetry::chain;

use crate::{ServeError, TextError};

/// Why a command ended without having done what was asked.
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
    /// What was asked makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work, or its result is wrong.
    #[error("{0}")]
    Failed(String),
    /// The server does not do it.
    #[error("{detail}")]
    Refused {
        /// Of its answer.
        status: u16,
        /// Who it is and what it says, in words.
        detail: String,
        /// Its answer as it is, where that was asked for and it is JSON.
        answer: Option<String>,
    },
    /// The server cannot be reached, or breaks off.
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
            Self::Config(_) | Self::Text(_) | Self::Usage(_) | Self::Http(HttpError::Url(_) | HttpError::Key) => {
                ExitCode::from(2)
            }
            _ => ExitCode::from(1),
        }
    }

    /// What is to be printed in place of the error in words.
    pub fn json(&self) -> Option<&str> {
        match self {
            Self::Refused { answer, .. } => answer.as_deref(),
            _ => None,
        }
    }

    /// Whether only the reader of our output has gone (`tidings … | head`), which is no failure.
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
