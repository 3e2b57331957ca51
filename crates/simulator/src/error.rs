//! Why a simulator does not start, or does not accept new faults.
//!
//! Mistakes of clients are not errors here: they are answered as the provider does ([`crate::Refusal`]) and counted.

use std::io;
use std::net::SocketAddr;

/// A setting outside its range.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} must be {rule}, got {value}")]
pub struct FaultsError {
    /// The field.
    pub field: &'static str,
    /// The rule, with the limit.
    pub rule: &'static str,
    /// The value.
    pub value: String,
}

/// The simulator could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting breaks a rule.
    #[error("checking the settings")]
    Faults(#[from] FaultsError),
    /// The certificates or the key could not be made.
    #[error("making certificates and key")]
    Identity(#[source] rcgen::Error),
    /// `client_ca_pem` holds no certificate that rustls accepts as an authority.
    #[error("client_ca_pem holds no usable certificate")]
    ClientAuthority,
    /// TLS refuses the certificate that was just made.
    #[error("setting up TLS")]
    Tls(#[source] rustls::Error),
    /// The public key that was just made cannot be read back.
    #[error("reading the public key")]
    Key(#[source] jsonwebtoken::errors::Error),
    /// The address cannot be listened on.
    #[error("listening on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A thread or its runtime could not be made.
    #[error("starting a thread")]
    Thread(#[source] io::Error),
}
