//! Why a gateway cannot start, or cannot take another credential. Later failures are outcomes of notifications, never
//! errors of the gateway.

use std::io;

use rustls::AlertDescription;

/// Why a gateway cannot start. The cause is its configuration or the system, so a retry does not help.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A number that must be at least 1.
    #[error("{field} must be at least 1, got 0")]
    Zero {
        /// The setting.
        field: &'static str,
    },
    /// Threads without a connection.
    #[error("thread_count must be at most connection_count_min ({connections}), got {threads}")]
    Threads {
        /// Connections that are always kept.
        connections: usize,
        /// Threads configured.
        threads: usize,
    },
    /// The least number of connections is above the greatest.
    #[error("connection_count_max must be at least connection_count_min ({min}), got {max}")]
    Connections {
        /// Connections that are always kept.
        min: usize,
        /// Connections that there may be.
        max: usize,
    },
    /// A provider's requests are too large.
    #[error("the provider's requests may have {bytes} bytes, more than a connection's buffer is made for")]
    Payload {
        /// The largest body.
        bytes: usize,
    },
    /// The server's name.
    #[error("server_name {0:?} is not a host name")]
    ServerName(String),
    /// What connections are made with.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// No thread, or no runtime on it.
    #[error("a gateway thread cannot be started")]
    Thread(#[source] io::Error),
}

/// Why connections cannot be made with a credential, or with the certificates to trust.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// The certificates to trust.
    #[error("ca_pem (ca_file) holds no usable certificate")]
    Certificates,
    /// The system has no certificates to trust.
    #[error("the system's certificate store holds no usable certificate")]
    NoRoots,
    /// TLS cannot be set up.
    #[error("tls cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// Why a connection could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("the host name cannot be resolved")]
    Resolve(#[source] io::Error),
    #[error("the host name has no address")]
    NoAddress,
    #[error("no connection to the address")]
    Tcp(#[source] io::Error),
    #[error("no tls session")]
    Tls(#[source] io::Error),
    #[error("the peer does not speak http/2")]
    NotHttp2,
    #[error("no http/2 session")]
    Http2(#[source] h2::Error),
    #[error("connecting took longer than connect_timeout")]
    TimedOut,
}

impl ConnectError {
    /// The alert by which the peer refused our certificate, if that is why.
    pub(crate) fn certificate_alert(&self) -> Option<&'static str> {
        match self {
            Self::Tls(error) => certificate_alert(error),
            _ => None,
        }
    }
}

/// The name of the TLS alert in an error, if the alert is about our certificate (RFC 8446, 6.2).
pub(crate) fn certificate_alert(error: &io::Error) -> Option<&'static str> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(
            alert @ (AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError), // A signature is wrong: the certificate's or the handshake's.
        ) => alert.as_str(),
        _ => None,
    }
}
