//! The commands, one module each. Their arguments are in `cli`.

pub(crate) mod client;
#[cfg(feature = "cluster")]
pub(crate) mod cluster;
pub(crate) mod completions;
pub(crate) mod config;
mod import;
pub(crate) mod preview;
pub(crate) mod publish;
pub(crate) mod serve;
#[cfg(feature = "simulate")]
pub(crate) mod simulate;
pub(crate) mod store;
pub(crate) mod subscribe;
pub(crate) mod token;
pub(crate) mod translations;
pub(crate) mod web_push;

use tidings_client::{Roots, ServerUrl};
use tidings_config::{ConfigError, Http, Loaded, Problem};
use tidings_server::command_error::CommandError;

/// As [`load`], without the topics that are wrong; also returns what is wrong with them.
pub(crate) fn load_to_serve(file: &crate::cli::ConfigFile) -> Result<(Loaded, Vec<Problem>), ConfigError> {
    tidings_config::load_to_serve(file.config.as_deref(), std::env::vars_os())
}

/// Reads the configuration with the environment of this process.
pub(crate) fn load(file: &crate::cli::ConfigFile) -> Result<Loaded, ConfigError> {
    tidings_config::load(file.config.as_deref(), std::env::vars_os())
}

/// The server that the arguments name.
pub(crate) fn named(server: &crate::cli::Server) -> Result<Option<ServerUrl>, CommandError> {
    let roots = match &server.ca_file {
        None => Roots::Native,
        Some(file) => {
            let failed = |source| CommandError::File { action: "read", path: file.clone(), source };
            Roots::Pem(tidings_config::read_file(file).map_err(failed)?)
        }
    };
    Ok(server.url.as_deref().map(|url| ServerUrl::trusting(url, &roots)).transpose()?)
}

/// The server of this configuration, where it speaks no TLS: nothing says which name its certificate has.
pub(crate) fn plain(http: &Http) -> Result<ServerUrl, CommandError> {
    if http.is_tls_only() {
        let told = "http.listen speaks TLS: say --url https://NAME:PORT, with a name that is in the certificate";
        return Err(CommandError::Usage(told.to_owned()));
    }
    Ok(ServerUrl::of_listener(http.listen))
}
