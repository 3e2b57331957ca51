//! The commands, one module each. Their arguments are in `cli`.

pub(crate) mod client;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod preview;
pub(crate) mod publish;
pub(crate) mod serve;
#[cfg(feature = "simulate")]
pub(crate) mod simulate;
pub(crate) mod store;
pub(crate) mod subscribe;
pub(crate) mod token;
pub(crate) mod web_push;

use tidings_config::{ConfigError, Loaded};
use tidings_server::command_error::CommandError;

/// Reads the configuration with the environment of this process.
pub(crate) fn load(file: &crate::cli::ConfigFile) -> Result<Loaded, ConfigError> {
    tidings_config::load(file.config.as_deref(), std::env::vars_os())
}
