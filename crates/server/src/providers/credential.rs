//! What the sections of all providers have in common: reading their files, and why a gateway cannot start.

use std::path::Path;
use std::time::Duration;

use tidings_config::read_file;
use tidings_gateway::CertificateError;
use tidings_http1::OriginError;
use tidings_push::apns::KeyError;
use tidings_push::fcm::oauth::ServiceAccountError;
use tidings_push::web_push::vapid::VapidError;
use tidings_types::AppId;

/// An idle connection is asked for a sign of life this often (Apple: "after an hour of idleness").
pub(super) const IDLE_PING: Duration = Duration::from_secs(600);

/// A credential cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file went away since it was checked.
    #[error("cannot read {path}")]
    File {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A signing key.
    #[error("{path} cannot be used")]
    Key {
        /// Its file.
        path: String,
        /// Why.
        source: KeyError,
    },
    /// A certificate or its key.
    #[error("{path} cannot be used")]
    Certificate {
        /// The file of the one at fault.
        path: String,
        /// Why.
        source: CertificateError,
    },
    /// A service account's key file.
    #[error("{path} cannot be used")]
    Account {
        /// The file.
        path: String,
        /// Why.
        source: ServiceAccountError,
    },
    /// The address in a service account's key file where access tokens are given out.
    #[error("{path} names no usable token_uri")]
    TokenUri {
        /// The file.
        path: String,
        /// Why.
        source: OriginError,
    },
    /// A service account of another project: messages would go on to the first one, which does not know this account,
    /// and tokens of devices are of one project.
    #[error("{path} is of the Firebase project {found:?}, but this section sends for {used:?} until a restart")]
    Project {
        /// The file.
        path: String,
        /// The project that it is of.
        found: String,
        /// The project that is sent for.
        used: String,
    },
    /// A key for Web Push, or the contact that goes with it.
    #[error("{path} cannot be used")]
    Vapid {
        /// The file.
        path: String,
        /// Why.
        source: VapidError,
    },
    /// A certificate for other apps: the provider would refuse every notification for good.
    #[error("{path} is not for {app}: its topics are {topics}")]
    Topic {
        /// Its file.
        path: String,
        /// The section's app that is not among them.
        app: AppId,
        /// What it is for.
        topics: String,
    },
}

/// A gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ProviderError {
    /// Its credential.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// Its settings.
    #[error(transparent)]
    Gateway(#[from] tidings_gateway::StartError),
}

pub(super) fn read(path: &Path) -> Result<String, CredentialError> {
    read_file(path).map_err(|source| CredentialError::File { path: path.display().to_string(), source })
}

pub(super) fn ca_pem(ca_file: Option<&Path>) -> Result<Option<String>, CredentialError> {
    ca_file.map(read).transpose()
}

/// What requests to a host say that they are for.
pub(super) fn authority(host: &str, port: u16) -> String {
    if port == 443 { host.to_owned() } else { format!("{host}:{port}") }
}
