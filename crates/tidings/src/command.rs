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

use tidings_client::ServerUrl;
use tidings_config::{ConfigError, Http, Loaded};
use tidings_server::command_error::CommandError;

/// Reads the configuration with the environment of this process.
pub(crate) fn load(file: &crate::cli::ConfigFile) -> Result<Loaded, ConfigError> {
    tidings_config::load(file.config.as_deref(), std::env::vars_os())
}

/// The server of this configuration, where clients connect without TLS: commands speak none.
pub(crate) fn plain(http: &Http) -> Result<ServerUrl, CommandError> {
    if http.is_tls_only() {
        let told = "http.listen speaks TLS, and this command does not: set http.tls.listen, so that http.listen stays plain, \
                    or http.internal_listen for the commands that use the API";
        return Err(CommandError::Usage(told.to_owned()));
    }
    Ok(ServerUrl::of_listener(http.listen))
}
