//! What the commands do, one module each; their arguments are in `cli`.

#[cfg(feature = "bench")]
pub(crate) mod bench;
pub(crate) mod client;
pub(crate) mod completions;
pub(crate) mod config;
#[cfg(feature = "demo")]
pub(crate) mod demo;
pub(crate) mod preview;
pub(crate) mod publish;
pub(crate) mod serve;
#[cfg(feature = "simulate")]
pub(crate) mod simulate;
pub(crate) mod store;
pub(crate) mod subscribe;
pub(crate) mod token;
pub(crate) mod web_push;

use std::path::PathBuf;
use std::process::ExitCode;

use tidings_config::{ConfigError, Loaded};

/// Why a command ended without having done what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Texts or translations of the configuration are wrong.
    #[error(transparent)]
    Text(#[from] tidings_server::TextError),
    /// The server cannot start.
    #[error(transparent)]
    Serve(#[from] tidings_server::ServeError),
    /// What was asked makes no sense.
    #[error("{0}")]
    Usage(String),
    /// It was tried and did not work.
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
    Http(#[from] tidings_client::HttpError),
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
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Config(_)
            | Self::Text(_)
            | Self::Usage(_)
            | Self::Http(tidings_client::HttpError::Url(_) | tidings_client::HttpError::Key) => ExitCode::from(2),
            _ => ExitCode::from(1),
        }
    }

    /// What is to be printed in place of the error in words.
    pub(crate) fn json(&self) -> Option<&str> {
        match self {
            Self::Refused { answer, .. } => answer.as_deref(),
            _ => None,
        }
    }

    /// Whether only the reader of our output has gone (`tidings … | head`), which is no failure.
    pub(crate) fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Terminal(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }
}

/// Reads the configuration with the environment of this process.
pub(crate) fn load(file: &crate::cli::ConfigFile) -> Result<Loaded, ConfigError> {
    tidings_config::load(file.config.as_deref(), std::env::vars_os())
}
