//! Why a simulator does not start, or does not take the faults it is given.
//!
//! What clients do wrong is no error here: it is answered as APNs would ([`crate::Reason`]) and counted.

use std::io;
use std::net::SocketAddr;

/// A setting of the faults outside its range.
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
    /// The settings break a rule.
    #[error("checking the faults")]
    Faults(#[from] FaultsError),
    /// The certificates or the key could not be made.
    #[error("making certificates and key")]
    Identity(#[source] rcgen::Error),
    /// `client_ca_pem` holds nothing that could be trusted.
    #[error("client_ca_pem holds no usable certificate")]
    ClientAuthority,
    /// TLS does not take the certificate just made.
    #[error("setting up TLS")]
    Tls(#[source] rustls::Error),
    /// The public key just made cannot be read back.
    #[error("reading the public key")]
    Key(#[source] jsonwebtoken::errors::Error),
    /// The address cannot be listened on.
    #[error("listening on {addr}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A thread or its runtime could not be made.
    #[error("starting a thread")]
    Thread(#[source] io::Error),
}
