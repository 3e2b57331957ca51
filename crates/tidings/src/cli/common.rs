//! Arguments that several commands share: where the configuration and the server are.

use std::path::PathBuf;

use clap::Args;

/// Where the configuration is.
#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigFile {
    /// Configuration file [default: tidings.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "TIDINGS_CONFIG")]
    pub(crate) config: Option<PathBuf>,
}

/// The server a command talks to.
#[derive(Debug, Clone, Args)]
pub(crate) struct Server {
    /// The server [default: the address of the configuration]
    #[arg(long, value_name = "URL", env = "TIDINGS_URL")]
    pub(crate) url: Option<String>,
    /// Certificates (PEM) to trust instead of those of the system, for a server with https.
    #[arg(long, value_name = "FILE", requires = "url")]
    pub(crate) ca_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) file: ConfigFile,
}

/// The server's API and the key for it.
#[derive(Debug, Clone, Args)]
pub(crate) struct ApiServer {
    /// API key.
    #[arg(long, env = "TIDINGS_API_KEY", hide_env_values = true, value_name = "KEY")]
    pub(crate) api_key: Option<String>,
    /// File that holds the API key.
    #[arg(long, value_name = "FILE", conflicts_with = "api_key")]
    pub(crate) api_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: Server,
    /// Print the server's answer unchanged, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}
