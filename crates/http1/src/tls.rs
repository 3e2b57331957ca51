//! TLS by rustls: the server needs a certificate for the origin's host from a trusted authority.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore};
use tidings_telemetry::unix_now;

/// The trusted certificate authorities.
#[derive(Clone, Default)]
pub enum Roots {
    /// The system's certificates, read when the client starts.
    #[default]
    Native,
    /// Only these certificates, in PEM.
    Pem(String),
    /// A complete configuration, for example with a client certificate. Its ALPN is used.
    Config(Arc<ClientConfig>),
}

/// Why there are no trusted certificates.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The system has no readable certificates.
    #[error("the system's certificates cannot be read, or there are none")]
    NoRoots,
    /// The PEM text has no certificates, or something else.
    #[error("no usable certificates in the PEM text")]
    Certificates,
    /// rustls refuses its own defaults.
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
}

impl Roots {
    /// The TLS configuration that [`Client::start`](crate::Client::start) uses. Your own connector for
    /// [`Client::start_over`](crate::Client::start_over) can use it too. Reads the system's certificates, or the text.
    ///
    /// # Errors
    ///
    /// [`TlsError`].
    pub fn client_config(&self) -> Result<Arc<ClientConfig>, TlsError> {
        let roots = match self {
            Self::Config(config) => return Ok(Arc::clone(config)),
            Self::Native => native()?,
            Self::Pem(pem) => given(pem)?,
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_details(provider, Arc::new(TlsClock))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Setup)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// The clock that checks certificates. The clock of rustls panics if the system's time is before 1970. This one returns 1970
/// then, when no certificate is valid.
#[derive(Debug, Clone, Copy)]
pub struct TlsClock;

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_millis(unix_now().as_millis())))
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Native => "Native",
            Self::Pem(_) => "Pem",
            Self::Config(_) => "Config",
        })
    }
}

fn native() -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    // A store may have unreadable certificates. It is enough that some are usable.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() { Err(TlsError::NoRoots) } else { Ok(roots) }
}

fn given(pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|_| TlsError::Certificates)?;
        roots.add(certificate).map_err(|_| TlsError::Certificates)?;
    }
    if roots.is_empty() { Err(TlsError::Certificates) } else { Ok(roots) }
}
