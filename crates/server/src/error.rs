//! Why the server cannot start.

use std::net::SocketAddr;

use tidings_types::Provider;

use crate::data_folder::DataFolderError;
use crate::feeds::FeedsError;
use crate::keys::KeyError;
use crate::outgoing::OutgoingError;
use crate::providers::{CredentialError, ProviderError};
use crate::seed::SeedError;
use crate::text::TextError;
use crate::tokens::TokensError;

/// The server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The data folder cannot be used.
    #[error(transparent)]
    DataFolder(#[from] DataFolderError),
    /// The store could not be opened.
    #[error("cannot open the store")]
    Store(#[from] tidings_store::OpenError),
    /// Durable channels could not be read.
    #[error("cannot read the durable channels")]
    Restore(#[from] tidings_store::ReadError),
    /// There is no room for a durable channel.
    #[error("cannot restore a durable channel")]
    Hub(#[from] tidings_hub::HubError),
    /// Texts or translations are wrong.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The predefined state cannot be set up.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// The API keys could not be made or read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The sender refuses its settings or what it finds in the store.
    #[error("cannot start the sender")]
    Sender(#[from] tidings_sender::StartError),
    /// A gateway refuses its credential or its settings.
    #[error("cannot start [{provider}.{name}]")]
    Provider {
        /// The provider's table.
        provider: Provider,
        /// The section.
        name: String,
        /// Why.
        source: Box<ProviderError>,
    },
    /// The certificate of the listener cannot be used.
    #[error("cannot start TLS")]
    Tls(#[from] CredentialError),
    /// The keys of tokens cannot be used.
    #[error("cannot check tokens")]
    Tokens(#[from] TokensError),
    /// The webhook cannot be set up.
    #[error("cannot start the webhook")]
    Webhook(#[source] OutgoingError),
    /// Traces cannot be sent.
    #[error("cannot start sending traces")]
    Traces(#[source] OutgoingError),
    /// A hook cannot be set up.
    #[error("cannot start the hook {name}")]
    Hook {
        /// The hook.
        name: String,
        /// Why.
        source: OutgoingError,
    },
    /// The address is in use, or not an address of this machine.
    #[error(
        "cannot listen on {addr}; is another server running? Set http.listen, http.internal_listen or http.tls.listen to another address"
    )]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// A feed cannot be started.
    #[error("cannot start the feeds")]
    Feeds(#[from] FeedsError),
    /// A file that `cluster` names cannot be used.
    #[error("cannot connect to the cluster")]
    ClusterSettings(#[source] OutgoingError),
    /// The server cannot be a node of its cluster.
    #[cfg(feature = "cluster")]
    #[error("cannot be part of the cluster")]
    Cluster(#[from] tidings_cluster::ClusterError),
    /// The system cannot start a thread.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}
