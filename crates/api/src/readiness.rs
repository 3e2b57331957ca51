//! What the server knows of its listeners and providers.

use std::net::SocketAddr;

use serde::Serialize;
use tidings_types::Provider;

use crate::rfc3339::Rfc3339;

/// What `/ready` shows besides the store.
#[derive(Debug, Clone)]
pub struct Readiness {
    /// The server is stopping and accepts nothing more.
    pub is_stopping: bool,
    /// Open listeners.
    pub listeners: Vec<ReadyListener>,
    /// One entry for each section of a provider.
    pub providers: Vec<ReadyProvider>,
}

/// An open listener.
#[derive(Debug, Clone, Serialize)]
pub struct ReadyListener {
    /// The kind of listener: `public`, `tls` (if it has an address of its own) or `internal`.
    pub name: &'static str,
    /// The address on which it listens.
    pub address: SocketAddr,
}

/// The state of a provider.
#[derive(Debug, Clone, Serialize)]
pub struct ReadyProvider {
    /// The provider.
    pub provider: Provider,
    /// The section's name in the configuration.
    pub name: String,
    /// The state.
    pub status: ProviderStatus,
    /// Since when it has this state.
    pub since: Rfc3339,
}

/// The state of a provider's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderStatus {
    /// There is a connection.
    Connected,
    /// There is no connection; the server is connecting.
    Connecting,
    /// There is no connection, and the last attempts failed. Attempts are now rare.
    BreakerOpen,
    /// The provider refuses the credential.
    CredentialRefused,
    /// Connections are made when there is something to send.
    OnDemand,
}

impl ProviderStatus {
    pub(crate) const ALL: [Self; 5] =
        [Self::Connected, Self::Connecting, Self::BreakerOpen, Self::CredentialRefused, Self::OnDemand];

    /// Whether pushes are sent at once.
    pub(crate) fn is_well(self) -> bool {
        matches!(self, Self::Connected | Self::OnDemand)
    }
}
