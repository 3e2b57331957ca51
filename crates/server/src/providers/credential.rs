//! Shared by the sections of all providers: reading their files, and why a gateway cannot start.

use std::path::Path;
use std::time::Duration;

use tidings_config::read_file;
use tidings_gateway::CertificateError;
use tidings_http1::OriginError;
use tidings_protocol::token::PublicKeyError;
use tidings_push::apns::KeyError;
use tidings_push::fcm::oauth::ServiceAccountError;
use tidings_push::web_push::vapid::VapidError;
use tidings_types::AppId;

/// An idle connection is asked for a sign of life this often (Apple: "after an hour of idleness").
pub(super) const IDLE_PING: Duration = Duration::from_secs(600);

/// A credential cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// A file has gone since it was checked.
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
        /// The file that is wrong.
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
    /// The token address in a service account's key file.
    #[error("{path} names no usable token_uri")]
    TokenUri {
        /// The file.
        path: String,
        /// Why.
        source: OriginError,
    },
    /// A service account of another project. Messages would still go to the first project, which does not know this
    /// account. Device tokens also belong to one project.
    #[error("{path} is of the Firebase project {found:?}, but this section sends for {used:?} until a restart")]
    Project {
        /// The file.
        path: String,
        /// The project of the file.
        found: String,
        /// The project that the section sends for.
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
    /// A public key that tokens are checked with.
    #[error("{path} cannot be used")]
    PublicKey {
        /// The file.
        path: String,
        /// Why.
        source: PublicKeyError,
    },
    /// A certificate for other apps: the provider would reject every notification.
    #[error("{path} is not for {app}: its topics are {topics}")]
    Topic {
        /// Its file.
        path: String,
        /// The section's app, which the certificate does not cover.
        app: AppId,
        /// The certificate's topics.
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

pub(crate) fn read(path: &Path) -> Result<String, CredentialError> {
    read_file(path).map_err(|source| CredentialError::File { path: path.display().to_string(), source })
}

pub(super) fn ca_pem(ca_file: Option<&Path>) -> Result<Option<String>, CredentialError> {
    ca_file.map(read).transpose()
}

/// The `:authority` of requests to a host.
pub(super) fn authority(host: &str, port: u16) -> String {
    if port == 443 { host.to_owned() } else { format!("{host}:{port}") }
}
